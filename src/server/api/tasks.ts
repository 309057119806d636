import type { Context } from "hono";
import { FlotillaError } from "../../base/errors.ts";
import type { TaskEventsOptions } from "../../tasks/tasks.ts";
import type { TaskContract } from "../../tasks/task.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { parseRow } from "../../runtime/json-rows.ts";
import { sees } from "../auth/caller.ts";
import { route, type Route } from "../route.ts";
import { taskSpecs } from "./tasks.schema.ts";

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

  return [
    route(taskSpecs.enqueue, { maxBytes }).to(async ({ body, context }) => {
      const { name, input, options } = parseRow("the body", await body());
      const trace = traceOf(context);
      const enqueued = await flotilla.enqueue(contractOf(name), input, { ...options, trace });
      const noWorker = (await noWorkerAmong(flotilla, [name])).has(name);
      return { status: enqueued.created ? 201 : 200, body: { ...enqueued, noWorker } };
    }),
    route(taskSpecs.graph, { maxBytes: graphBytes }).to(async ({ body, context }) => {
      const { tasks } = await body();
      const rows = tasks.map(({ ref, after, ...rest }) => {
        const { name, input, options } = parseRow(`the task ${JSON.stringify(ref)}`, rest);
        return { ref, task: contractOf(name), input, options, ...(after && { after }) };
      });
      const made = await flotilla.enqueueGraph(rows, { trace: traceOf(context) });
      const noWorker = await noWorkerAmong(flotilla, new Set(tasks.map(({ name }) => name)));
      const shown = tasks.map(({ ref, name }) => [
        ref,
        { ...made[ref]!, noWorker: noWorker.has(name) },
      ]);
      return { status: 201, body: { tasks: Object.fromEntries(shown) } };
    }),
    route(taskSpecs.list).to(async ({ query }) => {
      return { status: 200, body: await flotilla.list(given(query)) };
    }),
    route(taskSpecs.get).to(async ({ caller, params: { taskId } }) => {
      const task = await flotilla.get(taskId);
      // One of another tenant is as if it weren't there.
      if (!task || !sees(caller, task)) throw missing(taskId);
      const read = (page: TaskEventsOptions) => flotilla.events(taskId, page);
      return { status: 200, body: { task, ...(await eventPage(read)) } };
    }),
    route(taskSpecs.events).to(async ({ params: { taskId }, query }) => {
      const read = (page: TaskEventsOptions) => flotilla.events(taskId, page);
      const page = await eventPage(read, query);
      // Most have events. Of one that has none it is asked whether there is such a task.
      if (page.events.length === 0 && !(await flotilla.get(taskId))) throw missing(taskId);
      return { status: 200, body: page };
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

// As many as are shown at once at most.
const eventsMost = 1_000;

/** A page of what happened to a task or a run, and where to go on. */
export async function eventPage<Event extends { readonly seq: number }>(
  read: (page: TaskEventsOptions) => Promise<Event[]>,
  {
    after = 0,
    limit = eventsMost,
  }: { after?: number | undefined; limit?: number | undefined } = {},
): Promise<{ events: Event[]; next: number | null }> {
  const events = await read({ after, limit });
  const last = events.at(-1)?.seq;
  const isWhole = last === undefined || (await read({ after: last, limit: 1 })).length === 0;
  return { events, next: isWhole ? null : last };
}

/**
 * Of the names that something was stored under, those that no pod which is up works on. Where the store
 * can't say so, what was stored is still the answer.
 */
export async function noWorkerAmong(
  { noWorker }: Pick<Flotilla, "noWorker">,
  names: Iterable<string>,
): Promise<ReadonlySet<string>> {
  return new Set(await noWorker([...names]).catch(() => []));
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
