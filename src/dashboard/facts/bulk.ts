import { scalarOf } from "../../base/json.ts";
import type { TaskQuery } from "../api.ts";
import type { BulkAct, BulkFacts, BulkFilterFacts, BulkOutcomeFacts } from "../asks/bulk.ts";
import type { RunQuery } from "../asks/flows.ts";
import { counted, exactCount } from "./spans.ts";

/** One act on many: which are possible on a list, what they are on, how far they are and what came of them. */

export type BulkNoun = "task" | "run";

/** A server takes no more ids than this in one act. */
export const maxTicked = 1_000;

const statusesOf: Readonly<Record<BulkAct, readonly string[]>> = {
  cancel: ["pending", "claimed"],
  retry: ["failed", "cancelled"],
  resume: ["pending"],
  signal: ["pending", "claimed"],
  delete: ["completed", "failed", "cancelled"],
};

function actsFor(fits: (statuses: readonly string[]) => boolean): BulkAct[] {
  const all = Object.entries(statusesOf) as [BulkAct, readonly string[]][];
  return all.filter(([, statuses]) => fits(statuses)).map(([act]) => act);
}

/** The acts that are possible on the tasks that a filter matches. */
export function possibleBulks({ status, state, pod, group, setAside }: TaskQuery): BulkAct[] {
  const only = [
    status,
    pod === undefined ? undefined : "claimed",
    group === undefined ? undefined : "failed",
    setAside === undefined && state === undefined ? undefined : "pending",
  ].filter((each) => each !== undefined);
  return actsFor((statuses) => only.every((each) => statuses.includes(each)));
}

const runStatuses: Readonly<Record<NonNullable<RunQuery["status"]>, readonly string[]>> = {
  open: ["pending", "claimed"],
  setAside: ["pending"],
  completed: ["completed"],
  failed: ["failed"],
  cancelled: ["cancelled"],
};

/** The acts that are possible on the runs that a filter matches. */
export function possibleRunBulks({ status }: RunQuery): BulkAct[] {
  const some = status === undefined ? undefined : runStatuses[status];
  return actsFor((statuses) => !some || some.some((each) => statuses.includes(each)));
}

/** A row that a person has ticked. */
export type TickedRow = {
  readonly id: string;
  readonly status: string;
  readonly isSetAside: boolean;
};

/** The acts that are possible on one of these rows at least. */
export function bulksOnTicked(ticked: readonly TickedRow[]): BulkAct[] {
  const onStatus = actsFor((statuses) => ticked.some(({ status }) => statuses.includes(status)));
  const isAnyAside = ticked.some(({ isSetAside }) => isSetAside);
  return onStatus.filter((act) => act !== "resume" || isAnyAside);
}

/** The conditions of the address as JSON, as the server reads them from the address. */
export function bulkFilterOf(query: TaskQuery): BulkFilterFacts {
  const filter: Record<string, unknown> = {};
  const payload: [string, unknown][] = [];
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    if (name.startsWith("payload.")) payload.push([name.slice("payload.".length), scalarOf(value)]);
    else if (numbers.includes(name)) filter[name] = Number(value);
    else if (name === "ids") filter[name] = value.split(",");
    else filter[name] = name === "setAside" ? true : value;
  }
  return { ...filter, ...(payload.length > 0 && { payload: Object.fromEntries(payload) }) };
}

const numbers: readonly string[] = ["sinceMs", "untilMs", "version"];

/** The filter of an act on the runs that a list shows. */
export function runBulkFilter(
  flow: string,
  { at, status, tenant, version }: RunQuery,
): BulkFilterFacts {
  return {
    name: flow,
    ...(at !== undefined && { at }),
    ...(version !== undefined && { version: Number(version) }),
    ...(tenant !== undefined && { tenant }),
    ...(status === "setAside" && { setAside: true }),
    ...((status === "completed" || status === "failed" || status === "cancelled") && { status }),
  };
}

/** How an act on many stands, for people. */
export type BulkProgress = {
  readonly title: string;
  /** How much of it is done, of 1; undefined if how much there is isn't known. */
  readonly share: number | undefined;
};

const verbs: Readonly<Record<BulkAct, readonly [string, string]>> = {
  cancel: ["Cancelling", "Cancelled"],
  retry: ["Retrying", "Retried"],
  delete: ["Deleting", "Deleted"],
  signal: ["Signalling", "Signalled"],
  resume: ["Resuming", "Resumed"],
};

export function bulkProgress(bulk: BulkFacts, noun: BulkNoun = "task"): BulkProgress {
  const { action, state, matched, isExact, filter, lastTaskId } = bulk;
  const [doing, done] = verbs[action];
  const ofName = filter.name === undefined ? "all that match" : `all of ${filter.name} that match`;
  const what = filter.ids === undefined ? ofName : `${noun}s that were ticked`;
  const title = state === "running" ? `${doing} ${what}` : `${done} ${what}`;
  if (state === "done") return { title, share: 1 };
  const through = bulk.done + bulk.skipped + bulk.refused;
  if (lastTaskId === null) return { title, share: state === "running" ? undefined : 0 };
  // More may match than were counted, and fewer may be left when it comes to them.
  if (!isExact && state === "running") return { title, share: undefined };
  return { title, share: Math.min(1, through / Math.max(1, matched, through)) };
}

/** What became of each kind, in one line. */
export function bulkOutcome(bulk: BulkFacts, noun: BulkNoun = "task"): string {
  const { state, done, skipped, refused, matched, isExact, lastTaskId } = bulk;
  if (state === "running" && lastTaskId === null) return "waits for the leader to begin";
  const of = `${exactCount(matched)}${isExact ? "" : "+"}`;
  return [
    state === "done" ? `${counted(done, noun)} done` : `${exactCount(done)} of ${of} done`,
    ...(skipped > 0 ? [`${exactCount(skipped)} skipped, because they had changed`] : []),
    ...(refused > 0 ? [`${exactCount(refused)} refused, because it wasn't possible`] : []),
    ...(state === "stopped" ? ["stopped"] : []),
  ].join(", ");
}

/** What became of one ticked row, in a few words. */
export function rowOutcomeText(
  action: BulkAct,
  { outcome, status }: Pick<BulkOutcomeFacts, "outcome" | "status">,
): string {
  if (outcome === "done") return verbs[action][1].toLowerCase();
  if (outcome === "waiting") return "waits for its turn";
  if (outcome === "gone") return action === "delete" ? "is gone" : "there is no such task any more";
  // It is in a status that the act isn't for, or the act was tried in vain.
  const isMeant = status !== null && statusesOf[action].includes(status);
  return isMeant ? "left as it is: it wasn't possible, or not any more" : `left: it is ${status}`;
}
