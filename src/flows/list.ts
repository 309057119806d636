import type { Clock } from "../base/clock.ts";
import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";
import { type Database, pageReads, type Row } from "../store/database.ts";
import type { Statement } from "../store/sql.ts";
import { readDependencies } from "../tasks/dependencies.ts";
import { readBlockers } from "../tasks/inspect/blocked-by.ts";
import { checkSpan, checkTexts, type ListSpan } from "../tasks/inspect/filter.ts";
import {
  type FewIds,
  foundIn,
  linkedSource,
  listPageNames,
  type ListPageOptions,
  type ListPlan,
  type ListProgress,
  maxFew,
  readList,
} from "../tasks/inspect/list.ts";
import {
  isRunNamed,
  maxTenants,
  openTasks,
  pendingTasks,
  runningTasks,
  taskConditions,
  tasksOfKey,
  tasksSetAside,
} from "../tasks/sql/list.ts";
import { type RunView, toRun } from "./rows.ts";
import { dependenciesOfRun, flowNames, runConditions, walkRuns } from "./sql.ts";

export type RunFilter = ListSpan & {
  flow?: string;
  /** `open`: pending or claimed. */
  status?: "open" | "pending" | "claimed" | "completed" | "failed" | "cancelled";
  tenant?: string;
  /** Only runs at this transition or finalizer. */
  at?: string;
  /** Only children of this run. */
  parent?: string;
  /** Only runs that were set aside, because they can't be read. */
  setAside?: boolean;
  /** Only runs that this version of their flow has advanced last; 0 for those that none has. */
  version?: number;
  /** The unique key. Found at once with a flow. */
  key?: string;
  /** Only runs that a pod drives right now. */
  pod?: string;
  /** Only runs that turns of this session have started. */
  session?: string;
  /** Only runs that this run or task has started. */
  run?: string;
};

export type RunListOptions = RunFilter & ListPageOptions;

export type RunPage = ListProgress & { readonly runs: RunView[] };

const filterNames = [
  "flow",
  "status",
  "tenant",
  "at",
  "parent",
  "setAside",
  "version",
  "key",
  "pod",
  "session",
  "run",
  "sinceMs",
  "untilMs",
] as const;
const statuses = ["open", "pending", "claimed", "completed", "failed", "cancelled"] as const;

const versionRange = { min: 0, max: 1_000_000_000 };

// With more flows than this, runs are searched for among all tasks.
const maxFlows = 100;

/** Reads a page of runs, newest first. */
export async function listRuns(
  parts: { database: Database; clock: Clock },
  options: RunListOptions,
): Promise<RunPage> {
  checkOptions("list", options, [...filterNames, ...listPageNames]);
  const { cursor: _, limit: __, signal, ...filter } = options;
  const database = pageReads(parts.database, signal);
  const plan = await planRuns(database, filter);
  const { items, ...progress } = await readList(parts, plan, options, (rows, pages) =>
    toRuns(pages, rows),
  );
  return { runs: items, ...progress };
}

/** Checks a filter of runs, and chooses how they are found. */
async function planRuns(database: Database, filter: RunFilter): Promise<ListPlan> {
  const { flow, tenant, status, setAside, key, pod, sinceMs, untilMs } = filter;
  if (status !== undefined) checkChoice("status", status, statuses);
  if (filter.version !== undefined) checkNumber("version", filter.version, versionRange);
  checkTexts(filter);
  checkSpan({ sinceMs, untilMs });
  const few = fewRuns(filter);
  const linked = linkedSource(database, filter);
  const isFound = flow !== undefined || few !== undefined || linked !== undefined;
  const fits = [...runConditions(filter), ...taskConditions({ name: flow, tenant, key, pod })];
  return {
    list: "runs",
    filter: { ...filter, setAside: setAside || undefined },
    span: {
      ...(sinceMs !== undefined && { sinceMs }),
      ...(untilMs !== undefined && { untilMs }),
    },
    fits,
    among: flow === undefined ? undefined : isRunNamed(flow),
    ids: linked,
    pieces: isFound ? undefined : await ofAllFlows(database, fits),
    few,
  };
}

/** The runs of all flows, each by the index of its flow; undefined if there are too many flows. */
async function ofAllFlows(
  database: Database,
  fits: readonly Statement[],
): Promise<ListPlan["pieces"]> {
  const names = (await database.read(flowNames(maxFlows + 1))).map((row) => row["name"] as string);
  if (names.length > maxFlows) return undefined;
  return async (span, wanted) => {
    if (names.length === 0) return { found: [], walked: 0, last: undefined, isEnd: true };
    const count = Math.max(1, Math.floor(span.count / names.length));
    const rows = await database.read(walkRuns(names, { ...span, count, fits, wanted }));
    const lasts = rows
      .filter((row) => row["walked"] !== null)
      .map((row) => ({
        id: row["task_id"] as string,
        atMs: Number(row["created_at"]),
        walked: Number(row["walked"]),
      }));
    // Below the last one of a flow that was read in part, runs of it may be missing.
    const inPart = lasts.filter(({ walked }) => walked === count);
    const last = inPart.toSorted((one, other) => (one.id < other.id ? 1 : -1))[0];
    return {
      found: foundIn(rows).filter(({ id }) => last === undefined || id >= last.id),
      walked: lasts.reduce((sum, { walked }) => sum + walked, 0),
      last,
      isEnd: last === undefined,
    };
  };
}

function fewRuns(filter: RunFilter): FewIds | undefined {
  const { flow, status, tenant, parent, setAside, key, pod } = filter;
  if (parent !== undefined) return { read: (max) => dependenciesOfRun(parent, max), max: maxFew };
  if (key !== undefined && flow !== undefined) {
    return { read: () => tasksOfKey({ name: flow, key, tenant }), max: maxTenants };
  }
  if (setAside) return { read: (max) => tasksSetAside({ name: flow }, max), max: maxFew };
  if (pod !== undefined || status === "claimed")
    return { read: (max) => runningTasks({ pod }, max), max: maxFew };
  if (status === "pending")
    return { read: (max) => pendingTasks({ name: flow }, max), max: maxFew };
  if (status === "open") return { read: (max) => openTasks({ name: flow }, max), max: maxFew };
  return undefined;
}

/** Runs for callers, with the dependencies of each. */
export async function toRuns(database: Database, rows: readonly Row[]): Promise<RunView[]> {
  const waits = await readDependencies(database, rows);
  const isWaiting = rows.some((row) => row["status"] === "pending");
  const holds = isWaiting ? await readBlockers(database) : undefined;
  return rows.map((row) => toRun(row, waits.get(row["task_id"]), holds));
}
