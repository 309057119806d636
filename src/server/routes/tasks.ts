import type { Context } from "hono";
import { FlotillaError } from "../../base/errors.ts";
import type { TaskContract } from "../../queue/task.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { parseRow } from "../../runtime/rows.ts";
import { sees } from "../auth/caller.ts";
import { route, type Route } from "../route.ts";
import { taskSpecs } from "../specs/tasks.ts";

export type TaskRoutes = {
  flotilla: Flotilla;
  /** Tasks whose input is checked before it is stored. */
  contracts?: ReadonlyMap<string, TaskContract> | undefined;
  /** The longest body of one task. */
  maxBytes: number;
};

// As for other bodies that hold many tasks: it is kept in memory while it is read.
const graphBytes = 32 * 1024 * 1024;

/** Tasks: storing them, asking about them, acting on them. */
export function taskRoutes({ flotilla, contracts, maxBytes }: TaskRoutes): Route[] {
  const contractOf = (name: string): TaskContract =>
    contracts?.get(name) ?? { name, input: undefined, output: undefined };

  /** Where the store can't say so, what was stored is still the answer. */
  const hasWorker = (name: string) => flotilla.hasWorker(name).catch(() => true);

  return [
    route(taskSpecs.enqueue, { maxBytes }).to(async ({ body, context }) => {
      const { name, input, options } = parseRow("the body", await body());
      const trace = traceOf(context);
      const enqueued = await flotilla.enqueue(contractOf(name), input, { ...options, trace });
      const noWorker = !(await hasWorker(name));
      return { status: enqueued.created ? 201 : 200, body: { ...enqueued, noWorker } };
    }),
    route(taskSpecs.graph, { maxBytes: graphBytes }).to(async ({ body, context }) => {
      const { tasks } = await body();
      const rows = tasks.map(({ ref, after, ...rest }) => {
        const { name, input, options } = parseRow(`the task ${JSON.stringify(ref)}`, rest);
        return { ref, task: contractOf(name), input, options, ...(after && { after }) };
      });
      const made = await flotilla.enqueueGraph(rows, { trace: traceOf(context) });
      return { status: 201, body: { tasks: made } };
    }),
    route(taskSpecs.list).to(async ({ query }) => {
      return { status: 200, body: await flotilla.list(given(query)) };
    }),
    route(taskSpecs.get).to(async ({ caller, params: { taskId } }) => {
      const [task, events] = await Promise.all([flotilla.get(taskId), flotilla.events(taskId)]);
      // One of another tenant is as if it weren't there.
      if (!task || !sees(caller, task)) throw missing(taskId);
      return { status: 200, body: { task, events } };
    }),
    route(taskSpecs.events).to(async ({ params: { taskId } }) => {
      const [task, events] = await Promise.all([flotilla.get(taskId), flotilla.events(taskId)]);
      if (!task) throw missing(taskId);
      return { status: 200, body: { events } };
    }),
    route(taskSpecs.cancel).to(async ({ params: { taskId } }) => {
      const status = await flotilla.cancel(taskId);
      if (status === "cancelled") return { status: 200, body: { status } };
      if (status === "cancelling") return { status: 202, body: { status } };
      throw new FlotillaError("conflict", "the task has ended already and can't be cancelled");
    }),
    route(taskSpecs.retry).to(async ({ params: { taskId } }) => {
      await flotilla.retry(taskId);
      return { status: 200, body: { status: "pending" } };
    }),
  ];
}

/** The trace that a request belongs to. */
export function traceOf(c: Context) {
  return { traceparent: c.req.header("traceparent"), tracestate: c.req.header("tracestate") };
}

/** Without what wasn't given, as options are. */
export function given<T extends Record<string, unknown>>(options: T): Given<T> {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as Given<T>;
}

type Given<T> = { [Name in keyof T]: Exclude<T[Name], undefined> };

function missing(taskId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no task ${taskId.slice(0, 80)}`);
}
