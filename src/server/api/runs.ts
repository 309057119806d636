import { FlotillaError } from "../../base/errors.ts";
import { accountIn } from "../admission/admission.ts";
import type { Machine } from "../../flows/machine.ts";
import type { TaskEventsOptions } from "../../tasks/tasks.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import type { HistoryOptions } from "../../flows/runs.ts";
import { flowToJson, machineToJson, readFlow, readFlows } from "../../runtime/flows.ts";
import { parseRow } from "../../runtime/json-rows.ts";
import { type Caller, canSee, heldTenant, onlyTenant } from "../auth/caller.ts";
import { route, type Route } from "../route.ts";
import { runSpecs } from "./runs.schema.ts";
import { eventPage, withoutUndefined, noWorkerAmong, traceOf, visibleLinks } from "./tasks.ts";
import type { FlowContract, TaskContract } from "../../tasks/model.ts";

export type RunRoutes = {
  flotilla: Pick<Flotilla, "files" | "machine" | "pods" | "runs" | "series" | "tasks">;
  /** Flows whose input is checked before it is stored. */
  contracts?: ReadonlyMap<string, TaskContract> | undefined;
  /** The flows of this program. */
  machines?: readonly Machine[] | undefined;
  /** The longest body that is read. */
  maxBytes: number;
};

/** Runs of flows: start, read, signal, cancel and resume them. */
export function runRoutes(parts: RunRoutes): Route[] {
  const { flotilla, contracts, machines = [], maxBytes } = parts;
  const { runs } = flotilla;
  const flowOf = (name: string): FlowContract => {
    const found = contracts?.get(name);
    if (!found) return { name, input: undefined, output: undefined, isFlow: true };
    if (found.isFlow) return { ...found, isFlow: true };
    throw new FlotillaError(
      "invalid_option",
      `${name} is a task and no flow: POST it to /v1/tasks`,
    );
  };
  /** A run of another tenant answers as a missing one does. Its tenant never changes. */
  const checkRun = async (caller: Caller, runId: string): Promise<void> => {
    if (onlyTenant(caller) === undefined) return;
    const run = await runs.get(runId);
    if (!run || !canSee(caller, run)) throw missing(runId);
  };

  return [
    route(runSpecs.start, { maxBytes }).to(async ({ body, context }) => {
      const { flow, ...rest } = await body();
      const { input, options } = parseRow("the body", { name: flow, ...rest });
      flotilla.files.claimUploads(input, accountIn(context), options?.tenant);
      const { attempts: _, onDuplicate, ...others } = options;
      const policy = onDuplicate === "reject" ? { onDuplicate } : {};
      const trace = traceOf(context);
      const { runId, created } = await runs.start(flowOf(flow), input, {
        ...others,
        ...policy,
        trace,
      });
      const noWorker = (await noWorkerAmong(flotilla, [flow])).has(flow);
      return { status: created ? 201 : 200, body: { runId, created, noWorker } };
    }),
    route(runSpecs.list).to(async ({ caller, query: { setAside, ...query }, context }) => {
      const held = withoutUndefined({ ...query, tenant: heldTenant(caller, query.tenant) });
      const filter = setAside === undefined ? {} : { setAside: true };
      const { signal } = context.req.raw;
      return { status: 200, body: await runs.list({ ...held, ...filter, signal }) };
    }),
    route(runSpecs.get).to(async ({ caller, params: { runId } }) => {
      const run = await runs.get(runId);
      if (!run || !canSee(caller, run)) throw missing(runId);
      const links = visibleLinks(caller, await flotilla.tasks.links(runId));
      return { status: 200, body: { run, links } };
    }),
    route(runSpecs.history).to(async ({ caller, params: { runId }, query }) => {
      await checkRun(caller, runId);
      return { status: 200, body: await historyPage(runs, runId, query) };
    }),
    route(runSpecs.signals).to(async ({ caller, params: { runId }, query }) => {
      await checkRun(caller, runId);
      const read = (page: TaskEventsOptions) => runs.signals(runId, page);
      const { events: signals, next } = await eventPage(read, query);
      return { status: 200, body: { signals, next } };
    }),
    route(runSpecs.signal, { maxBytes }).to(async ({ caller, params: { runId }, body }) => {
      const { name, payload = null, ...options } = await body();
      await checkRun(caller, runId);
      await runs.signal(runId, name, payload, withoutUndefined(options));
      return { status: 202, body: { status: "sent" } };
    }),
    route(runSpecs.cancel).to(async ({ caller, params: { runId } }) => {
      await checkRun(caller, runId);
      const status = await runs.cancel(runId);
      if (status === "cancelled") return { status: 200, body: { status } };
      if (status === "cancelling") return { status: 202, body: { status } };
      throw new FlotillaError("conflict", "the run has ended already and can't be cancelled");
    }),
    route(runSpecs.resume).to(async ({ caller, params: { runId }, body }) => {
      const options = withoutUndefined(await body());
      await checkRun(caller, runId);
      await runs.resume(runId, options);
      return { status: 200, body: { status: "open" } };
    }),
    route(runSpecs.flows).to(async () => {
      const flows = await readFlows(flotilla, machines);
      return { status: 200, body: { flows: flows.map(flowToJson) } };
    }),
    route(runSpecs.flow).to(async ({ params: { flow } }) => {
      const found = await readFlow(flotilla, machines, flow);
      if (!found) {
        throw new FlotillaError(
          "not_found",
          `there is no flow ${flow.slice(0, 80)}: no live pod has it, and it has no runs`,
        );
      }
      return { status: 200, body: { flow: flowToJson(found.flow), times: found.times } };
    }),
    route(runSpecs.machine).to(async ({ params: { flow }, query: { version } }) => {
      const own = machines.find(({ name }) => name === flow);
      const isOwn = own !== undefined && (version === undefined || version === own.version);
      const machine = isOwn ? machineToJson(own) : await flotilla.machine(flow, version);
      return { status: 200, body: { machine: machine ?? null } };
    }),
  ];
}

// As many as a page of a list has at most.
const maxEvents = 1_000;

/** A page of events after a number, or the last ones before one, with where its neighbours are. */
async function historyPage(
  runs: Pick<Flotilla["runs"], "history">,
  runId: string,
  query: {
    after?: number | undefined;
    before?: number | undefined;
    limit?: number | undefined;
  },
) {
  const { after, before, limit = maxEvents } = query;
  const history = await runs.history(runId, withoutUndefined({ after, before, limit }));
  const [first, last] = [history[0]?.seq, history.at(-1)?.seq];
  const isThere = async (where: HistoryOptions) =>
    (await runs.history(runId, { ...where, limit: 1 })).length > 0;
  const hasNext = last !== undefined && (await isThere({ after: last }));
  // From the first event on there is none before.
  const mayPrecede = first !== undefined && (before !== undefined || (after ?? 0) > 0);
  const hasPrevious = mayPrecede && (await isThere({ before: first }));
  return { history, next: hasNext ? last : null, previous: hasPrevious ? first : null };
}

function missing(runId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no run ${runId.slice(0, 80)}`);
}
