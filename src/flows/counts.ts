import { checkOptions, checkText } from "../base/options.ts";
import { type Database, pageReads, type Row } from "../store/database.ts";
import { maxDepthCount } from "../tasks/sql/inspect.ts";
import { parked } from "../tasks/sql/task-state.ts";
import type { FlowCounts, CursorCounts } from "./describe.ts";
import type { Doing } from "./rows.ts";
import { countEndedRuns, countOpenRuns, countOtherRuns, countReadyRuns, flowNames } from "./sql.ts";

/** The number of a flow's runs by cursor, and of its open runs by version. */
export type FlowCount = FlowCounts & {
  readonly flow: string;
  /** True if there may be more than were counted: the numbers are lower bounds. */
  readonly atLeast: boolean;
  /** Open runs by the version that advanced them last; 0 before any has. */
  readonly openByVersion: Readonly<Record<number, number>>;
  /** The same by cursor, for each version. */
  readonly placesByVersion: Readonly<Record<number, Readonly<Record<string, CursorCounts>>>>;
};

export type FlowCountOptions = {
  /** Only this flow, whether it has runs or not. Default: those that have runs. */
  flow?: string;
};

/** The number of open runs of each flow, by what they do. */
export type DoingCounts = ReadonlyMap<string, Readonly<Record<Doing["type"], number>>>;

type CountingPlaces = Record<string, { -readonly [Key in keyof CursorCounts]: number }>;

type Counting = {
  places: CountingPlaces;
  openByVersion: Record<number, number>;
  placesByVersion: Record<number, CountingPlaces>;
  completed: number;
  failed: number;
  cancelled: number;
  /** How many of its newest runs were looked at. */
  newest: number;
};

/** How many flows are counted, and how many of the newest runs of all of them. */
export const maxFlowsCounted = 100;
const maxEndedCounted = maxDepthCount;

/**
 * Counts open runs by their indexes, up to 10,000 of each kind, and ended ones among the newest of their
 * flow, so that the cost doesn't depend on the table's size.
 */
export async function readFlowCounts(
  database: Database,
  options: FlowCountOptions = {},
): Promise<FlowCount[]> {
  checkOptions("counts", options, ["flow"]);
  const { flow } = options;
  if (flow !== undefined) checkText("flow", flow, { max: 200 });
  const pages = pageReads(database);
  const names = flow === undefined ? await readFlowNames(pages) : [flow];
  if (names.length === 0) return [];
  const ofEach = Math.floor(maxEndedCounted / names.length);
  const [open, ended] = await Promise.all([
    pages.read(countOpenRuns(names)),
    pages.read(countEndedRuns(names, ofEach)),
  ]);
  return toFlowCounts(names, open, { ended, ofEach });
}

/** The names of flows that have runs. */
export async function readFlowNames(database: Pick<Database, "read">): Promise<string[]> {
  return (await database.read(flowNames(maxFlowsCounted))).map((row) => row["name"] as string);
}

function toFlowCounts(
  names: readonly string[],
  open: readonly Row[],
  { ended, ofEach }: { ended: readonly Row[]; ofEach: number },
): FlowCount[] {
  const flows = new Map(names.map((name) => [name, empty()]));
  const ofKind = new Map<number, number>();
  for (const row of ended) {
    const flow = flows.get(row["name"] as string);
    if (!flow) continue;
    const status = row["status"] as string;
    const runs = Number(row["runs"]);
    flow.newest += runs;
    if (status === "completed" || status === "failed" || status === "cancelled")
      flow[status] += runs;
  }
  for (const row of open) {
    const runs = Number(row["runs"]);
    const kind = Number(row["kind"]);
    ofKind.set(kind, (ofKind.get(kind) ?? 0) + runs);
    // Tasks have no version, and neither do flows that had no run a moment ago.
    const flow = row["flow_version"] === null ? undefined : flows.get(row["name"] as string);
    if (!flow) continue;
    const version = Number(row["flow_version"]);
    flow.openByVersion[version] = (flow.openByVersion[version] ?? 0) + runs;
    const cursor = (row["cursor"] as string | null) ?? "start";
    const what = doing(row);
    for (const places of [flow.places, (flow.placesByVersion[version] ??= noPlaces())]) {
      const counts = (places[cursor] ??= {});
      counts[what] = (counts[what] ?? 0) + runs;
    }
  }
  const isFull = [...ofKind.values()].some((rows) => rows >= maxDepthCount);
  return [...flows].map(([flow, { newest, ...counts }]) => ({
    flow,
    ...counts,
    atLeast: isFull || newest >= ofEach,
  }));
}

function empty(): Counting {
  return {
    places: noPlaces(),
    openByVersion: {},
    placesByVersion: {},
    completed: 0,
    failed: 0,
    cancelled: 0,
    newest: 0,
  };
}

function noPlaces(): CountingPlaces {
  // Without a prototype, because a cursor may have any name.
  return Object.create(null) as CountingPlaces;
}

function doing(row: Row): keyof CursorCounts {
  if (row["status"] === "claimed") return "running";
  switch (Number(row["parked"])) {
    case parked.setAside:
      return "setAside";
    case parked.untilDue:
      return Number(row["waiting"]) === 0 && Number(row["retrying"]) === 1 ? "retrying" : "waiting";
    case parked.forDependencies:
    case parked.untilSignal:
      return "waiting";
    default:
      return "ready";
  }
}

/**
 * Reads bounded ranges of indexes, so that the cost doesn't depend on the table's size. Indexes that aren't
 * separated by name contain tasks too, which are read and left out.
 */
export async function readDoing(
  database: Database,
  flows: readonly string[],
): Promise<DoingCounts> {
  const counts = new Map(flows.map((flow) => [flow, noRuns()]));
  if (flows.length === 0) return counts;
  const [ready, others] = await Promise.all([
    database.read(countReadyRuns(flows)),
    database.read(countOtherRuns()),
  ]);
  for (const row of [...ready, ...others]) {
    const of = counts.get(row["name"] as string);
    if (of) of[row["doing"] as Doing["type"]] += Number(row["runs"]);
  }
  return counts;
}

function noRuns(): Record<Doing["type"], number> {
  return {
    running: 0,
    ready: 0,
    retrying: 0,
    delayed: 0,
    sleeping: 0,
    waiting_for_signal: 0,
    waiting_for_children: 0,
    waiting_for_others: 0,
    waiting_for_room: 0,
    set_aside: 0,
  };
}
