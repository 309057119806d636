import { checkNumber, checkOptions } from "../base/options.ts";
import { dayMs, yearMs } from "../base/durations.ts";
import { readBlockers } from "../tasks/inspect/blocked-by.ts";
import type { Database, Row } from "../store/database.ts";
import { countStuck } from "./sql.ts";

export type StuckOptions = {
  /** Failed attempts of one transition from which on it counts as retrying often. Default 5. */
  failures?: number;
  /** How long a run may wait before it counts as waiting for long. Default a day. */
  waitingMs?: number;
};

/** Runs that don't get on and may need somebody, counted together where they stand alike. */
export type StuckRuns = {
  readonly flow: string;
  /**
   * `set_aside`: they can't be read. `no_worker`: no pod that is up may take them, for want of their
   * version. `retrying`: one transition has failed again and again. `waiting`: for long, but not for a time.
   */
  readonly why: "set_aside" | "no_worker" | "retrying" | "waiting";
  /** Where they stand; null before they have begun. */
  readonly at: string | null;
  /** The version that has advanced them last; 0 before any has. */
  readonly version: number;
  readonly runs: number;
  /** The oldest of them. */
  readonly runId: string;
  /** Since when the one that has stood there for longest does. */
  readonly sinceMs: number;
};

/** Reads all open runs once, so it is for people who look and not for every second. */
export async function readStuck(
  database: Database,
  options: StuckOptions = {},
): Promise<StuckRuns[]> {
  checkOptions("stuck", options, ["failures", "waitingMs"]);
  const { failures = 5, waitingMs = dayMs } = options;
  checkNumber("failures", failures, { min: 1, max: 1_000_000 });
  checkNumber("waitingMs", waitingMs, { min: 1, max: yearMs });
  const [rows, holds] = await Promise.all([
    database.read(countStuck({ failures, waitingMs })),
    readBlockers(database),
  ]);
  const found = new Map<string, StuckRuns>();
  for (const row of rows) {
    const stuck = toStuck(row);
    const unworked = stuck.why !== "set_aside" && holds.noWorker(stuck.flow, stuck.version);
    const why = unworked ? "no_worker" : stuck.why;
    if (why === "") continue;
    const at = JSON.stringify([stuck.flow, why, stuck.at, stuck.version]);
    const before = found.get(at);
    found.set(at, before ? together(before, { ...stuck, why }) : { ...stuck, why });
  }
  return [...found.values()];
}

function toStuck(row: Row): Omit<StuckRuns, "why"> & { why: StuckRuns["why"] | "" } {
  return {
    flow: row["name"],
    why: row["why"],
    at: row["cursor"],
    version: Number(row["flow_version"]),
    runs: Number(row["runs"]),
    runId: row["oldest"],
    sinceMs: Number(row["since_at"]),
  };
}

function together(one: StuckRuns, other: StuckRuns): StuckRuns {
  return {
    ...one,
    runs: one.runs + other.runs,
    runId: one.runId < other.runId ? one.runId : other.runId,
    sinceMs: Math.min(one.sinceMs, other.sinceMs),
  };
}
