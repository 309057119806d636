import type { fleetSpecs } from "../../server/api/fleet.schema.ts";
import type { runSpecs } from "../../server/api/runs.schema.ts";
import { type NewAct, type Answered, part, readAnswer, send } from "../api.ts";

/** What the pages of flows and runs ask of the server and do there. */

export type FlowFacts = Answered<typeof runSpecs.flows>["flows"][number];
export type FlowWhole = Answered<typeof runSpecs.flow>;
export type StateTimesFacts = FlowWhole["times"][number];
export type MachineFacts = NonNullable<FlowFacts["machine"]>;
export type PlaceCounts = FlowFacts["places"][string];
export type StuckFacts = FlowFacts["stuck"][number];
export type RunListPage = Answered<typeof runSpecs.list>;
export type RunFacts = RunListPage["runs"][number];
export type RunWhole = Answered<typeof runSpecs.get>;
export type RunHistoryPage = Answered<typeof runSpecs.history>;
export type RunEventFacts = RunHistoryPage["history"][number];
export type UnusedSignal = Answered<typeof runSpecs.signals>["signals"][number];

/** The filter of a list of runs, as it is in the address. */
export type RunQuery = {
  readonly at?: string | undefined;
  readonly status?: RunStatus | undefined;
  readonly version?: string | undefined;
  readonly tenant?: string | undefined;
  readonly cursor?: string | undefined;
};

export type RunStatus = "open" | "setAside" | "completed" | "failed" | "cancelled";

/** So many runs a page of the list has. */
export const runsPerPage = 50;
/** So many events a page of a run has: enough to read, and drawn at once. */
export const eventsPerPage = 200;
/** So many runs are drawn on a machine. The counts beside them are of all. */
export const runsDrawn = 100;
const maxChildren = 50;
// The largest number that an event can have, before which the newest ones are.
const afterAllEvents = 2 ** 31 - 1;

export const flowsApi = {
  flows: async (signal: AbortSignal) =>
    (await readAnswer<Answered<typeof runSpecs.flows>>("v1/flows", {}, signal)).flows,
  flow: (flow: string, signal: AbortSignal) =>
    readAnswer<FlowWhole>(`v1/flows/${part(flow)}`, {}, signal),
  machine: async (flow: string, version: number | undefined, signal: AbortSignal) => {
    const path = `v1/flows/${part(flow)}/machine`;
    return (await readAnswer<Answered<typeof runSpecs.machine>>(path, { version }, signal)).machine;
  },
  runs: (flow: string | undefined, filter: RunQuery, signal: AbortSignal) =>
    readAnswer<RunListPage>("v1/runs", { flow, ...listedAs(filter), limit: runsPerPage }, signal),
  openRuns: async (flow: string, version: string | undefined, signal: AbortSignal) => {
    const query = { flow, version, status: "open", limit: runsDrawn };
    return (await readAnswer<RunListPage>("v1/runs", query, signal)).runs;
  },
  stateSeries: (flow: string, at: string, signal: AbortSignal) =>
    readAnswer<Answered<typeof fleetSpecs.series>>(
      "v1/series",
      { subject: `flow:${flow} ${at}` },
      signal,
    ),
  run: (runId: string, signal: AbortSignal) =>
    readAnswer<RunWhole>(`v1/runs/${part(runId)}`, {}, signal),
  history: (runId: string, before: string | undefined, signal: AbortSignal) =>
    readAnswer<RunHistoryPage>(
      `v1/runs/${part(runId)}/history`,
      { before: before ?? afterAllEvents, limit: eventsPerPage },
      signal,
    ),
  signals: async (runId: string, signal: AbortSignal) =>
    (
      await readAnswer<Answered<typeof runSpecs.signals>>(
        `v1/runs/${part(runId)}/signals`,
        { limit: 100 },
        signal,
      )
    ).signals,
  children: async (runId: string, signal: AbortSignal) =>
    (await readAnswer<RunListPage>("v1/runs", { parent: runId, limit: maxChildren }, signal)).runs,

  cancelRun: (runId: string, act: NewAct) =>
    send<{ readonly status: "cancelled" | "cancelling" }>(`v1/runs/${part(runId)}/cancel`, act),
  resumeRun: (runId: string, act: NewAct & { readonly as?: number | undefined }) =>
    send<Answered<typeof runSpecs.resume>>(
      `v1/runs/${part(runId)}/resume`,
      act,
      act.as === undefined ? {} : { as: act.as },
    ),
  signalRun: (runId: string, act: NewAct & { readonly name: string; readonly payload: unknown }) =>
    send<Answered<typeof runSpecs.signal>>(`v1/runs/${part(runId)}/signals`, act, {
      name: act.name,
      payload: act.payload,
      // The same act sent twice is one signal.
      id: act.actId,
    }),
};

/** A filter as the route of lists takes it. */
function listedAs({ status, ...rest }: RunQuery) {
  if (status === "setAside") return { ...rest, setAside: "true" };
  return { ...rest, status };
}
