import { parked } from "../tasks/sql/task-state.ts";
import type { Row } from "../store/database.ts";
import type { FlowCounts, PlaceCounts } from "./describe.ts";

/** How many runs of a flow stand where, and which versions have advanced those that are open. */
export type FlowCount = FlowCounts & {
  readonly flow: string;
  /** Open runs by the version that has advanced them last; 0 before any has. */
  readonly openByVersion: Readonly<Record<number, number>>;
};

type Counting = {
  places: Record<string, { -readonly [Key in keyof PlaceCounts]: number }>;
  openByVersion: Record<number, number>;
  completed: number;
  failed: number;
  cancelled: number;
};

export function toCounts(rows: readonly Row[]): FlowCount[] {
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
    const place = (flow.places[(row["cursor"] as string | null) ?? "start"] ??= {});
    const what = doing(row);
    place[what] = (place[what] ?? 0) + runs;
  }
  return [...flows].map(([flow, counts]) => ({ flow, ...counts }));
}

function empty(): Counting {
  // Any text may be the name of what runs stand at.
  const places = Object.create(null) as Counting["places"];
  return { places, openByVersion: {}, completed: 0, failed: 0, cancelled: 0 };
}

function doing(row: Row): keyof PlaceCounts {
  if (row["status"] === "claimed") return "running";
  switch (Number(row["parked"])) {
    case parked.aside:
      return "setAside";
    case parked.untilDue:
      return Number(row["waiting"]) === 0 && Number(row["retrying"]) === 1 ? "retrying" : "waiting";
    case parked.forOthers:
    case parked.untilTold:
      return "waiting";
    default:
      return "ready";
  }
}
