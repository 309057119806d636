import type { Database, Row } from "../store/database.ts";
import { parked } from "../tasks/sql/task-state.ts";
import type { FlowCounts, CursorCounts } from "./describe.ts";
import type { Doing } from "./rows.ts";
import { countOtherRuns, countReadyRuns } from "./sql.ts";

/** The number of a flow's runs by cursor, and of its open runs by version. */
export type FlowCount = FlowCounts & {
  readonly flow: string;
  /** Open runs by the version that advanced them last; 0 before any has. */
  readonly openByVersion: Readonly<Record<number, number>>;
};

/** The number of open runs of each flow, by what they do. */
export type DoingCounts = ReadonlyMap<string, Readonly<Record<Doing["type"], number>>>;

type Counting = {
  places: Record<string, { -readonly [Key in keyof CursorCounts]: number }>;
  openByVersion: Record<number, number>;
  completed: number;
  failed: number;
  cancelled: number;
};

export function toFlowCounts(rows: readonly Row[]): FlowCount[] {
  const flows = new Map<string, Counting>();
  for (const row of rows) {
    const name = row["name"] as string;
    const flow = flows.get(name) ?? empty();
    flows.set(name, flow);
    const runs = Number(row["runs"]);
    const status = row["status"] as string;
    if (status === "completed" || status === "failed" || status === "cancelled") {
      flow[status] += runs;
      continue;
    }
    const version = Number(row["flow_version"]);
    flow.openByVersion[version] = (flow.openByVersion[version] ?? 0) + runs;
    const counts = (flow.places[(row["cursor"] as string | null) ?? "start"] ??= {});
    const what = doing(row);
    counts[what] = (counts[what] ?? 0) + runs;
  }
  return [...flows].map(([flow, counts]) => ({ flow, ...counts }));
}

function empty(): Counting {
  // Without a prototype, because a cursor may have any name.
  const places = Object.create(null) as Counting["places"];
  return { places, openByVersion: {}, completed: 0, failed: 0, cancelled: 0 };
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
 * Reads bounded ranges of indexes, so that the cost doesn't depend on the table's size. (`counts` reads
 * all runs.) Indexes that aren't separated by name contain tasks too, which are read and left out.
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
