import { checkNumber, checkOptions, checkText } from "../base/options.ts";
import { dayMs, yearMs } from "../base/durations.ts";
import { readBlockers } from "../tasks/inspect/blocked-by.ts";
import { type Database, pageReads, type Row } from "../store/database.ts";
import { readFlowNames } from "./counts.ts";
import { countStuck } from "./sql.ts";

export type StuckOptions = {
  /** A run counts as retrying after this many failed attempts of one transition. Default 5. */
  failures?: number;
  /** A run counts as waiting after this long. Default a day. */
  waitingMs?: number;
  /** Only runs of this flow. */
  flow?: string;
};

/** Runs that make no progress and may need an operator, grouped by reason, cursor and version. */
export type StuckRuns = {
  readonly flow: string;
  /**
   * `set_aside`: they can't be read. `no_worker`: no live pod has their flow in their version or a later
   * one. `retrying`: one transition fails again and again. `waiting`: for long, and not for a known time.
   */
  readonly why: "set_aside" | "no_worker" | "retrying" | "waiting";
  /** Their cursor; null before they have begun. */
  readonly at: string | null;
  /** The version that advanced them last; 0 before any has. */
  readonly version: number;
  readonly runs: number;
  /** The oldest of them. */
  readonly runId: string;
  /** When the one that has waited longest came there. */
  readonly sinceMs: number;
};

/** Reads open runs by their indexes, up to 10,000 of each kind. */
export async function readStuck(
  database: Database,
  options: StuckOptions = {},
): Promise<StuckRuns[]> {
  checkOptions("stuck", options, ["failures", "waitingMs", "flow"]);
  const { failures = 5, waitingMs = dayMs, flow } = options;
  checkNumber("failures", failures, { min: 1, max: 1_000_000 });
  checkNumber("waitingMs", waitingMs, { min: 1, max: yearMs });
  const pages = pageReads(database);
  if (flow !== undefined) checkText("flow", flow, { max: 200 });
  const flows = flow === undefined ? await readFlowNames(pages) : [flow];
  const [rows, holds] = await Promise.all([
    pages.read(countStuck(flows, { failures, waitingMs })),
    readBlockers(pages),
  ]);
  const found = new Map<string, StuckRuns>();
  for (const row of rows) {
    const stuck = toStuck(row);
    // Indexes that aren't by name have the runs of other flows as well.
    if (flow !== undefined && stuck.flow !== flow) continue;
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
