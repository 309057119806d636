import type { Clock } from "../base/clock.ts";
import { dayMs, hourMs, minuteMs } from "../base/durations.ts";
import type { Ids } from "../base/ids.ts";
import { createLeaderPass, type LeaderPass } from "../base/semaphore.ts";
import type { Logger } from "../base/log.ts";
import type { Database, Row } from "../store/database.ts";
import { foldMinutes, foldPods, rangeOf, startOf } from "./fold.ts";
import {
  closeUpTo,
  deleteHoursBefore,
  ensureFold,
  type Fold,
  foldedBetween,
  minutesBefore,
  readFold,
  type SeriesRow,
  storeFold,
  unfoldedUpTo,
} from "./sql.ts";

export type SeriesLeaderOptions = { database: Database; clock: Clock; ids: Ids; log?: Logger };

/** How long after its end a minute is folded: pods send theirs for two minutes. */
export const foldedAfterMs = 5 * minuteMs;
/** How long minutes are kept before they are folded into hours, and hours before they are deleted. */
export const minutesKeptMs = dayMs;
export const hoursKeptMs = 30 * dayMs;
const rowsPerFold = 2_000;
// The next pass goes on, so that a pass doesn't take for ever.
const foldsPerPass = 100;

type FoldState = {
  readonly nowMs: number;
  readonly closedTo: number;
  readonly lastFold: string;
  readonly firstUnfolded: number;
  readonly firstMinute: number;
  readonly firstHour: number;
};

/**
 * The leader's work on series: adds up the pods, then the minutes, and deletes what is old. A sum takes the
 * place of the rows that it was made of in one transaction, which is refused if another pod has folded
 * since they were read. So nothing is counted twice, whichever pods lead.
 */
export function createSeriesLeader(options: SeriesLeaderOptions): LeaderPass {
  const { database, clock, ids, log } = options;

  const readState = async (): Promise<FoldState> => {
    const [row] = await database.read(readFold());
    if (row) return toState(row);
    await database.write([ensureFold()], { lossy: true });
    return readState();
  };

  /** Stores one fold. Returns whether it was stored, and not another one before it. */
  const store = async (lastFold: string, folded: Pick<Fold, "puts" | "deletes">) => {
    const statements = storeFold({ foldId: ids.next(), lastFold, ...folded });
    const [stored] = await database.write(statements, { lossy: true });
    return stored!.length > 0;
  };

  /** Folds until there is nothing left to fold. Returns false if another leader does so too. */
  const foldAll = async (
    sourcesOf: (state: FoldState) => Promise<readonly SeriesRow[]>,
    span: number,
    fold: typeof foldPods,
  ): Promise<boolean> => {
    for (let at = 0; at < foldsPerPass; at++) {
      // Read before the rows, so that a fold between the two is noticed.
      const state = await readState();
      const sources = await sourcesOf(state);
      if (sources.length === 0) return true;
      const targets = await database.read(foldedBetween(span, ...rangeOf(sources, span)));
      if (!(await store(state.lastFold, fold(sources, targets.map(toRow))))) return false;
    }
    return true;
  };

  const unfolded = async ({ closedTo }: FoldState) =>
    (await database.read(unfoldedUpTo(closedTo, rowsPerFold))).map(toRow);

  const oldMinutes = async ({ nowMs, firstUnfolded }: FoldState) => {
    const before = startOf(nowMs - minutesKeptMs, hourMs);
    // What is folded into a minute later would have to be folded into its hour again.
    const upTo = Math.min(before, startOf(firstUnfolded, hourMs));
    return (await database.read(minutesBefore(upTo, rowsPerFold))).map(toRow);
  };

  const passNow = async (): Promise<void> => {
    const state = await readState();
    const { nowMs, closedTo } = state;
    const closing = startOf(nowMs - foldedAfterMs, minuteMs) - minuteMs;
    const isAhead = closedTo > nowMs;
    if (isAhead || (state.firstUnfolded <= closing && closedTo < closing)) {
      await database.write([closeUpTo(closing)], { lossy: true });
    }
    if (state.firstUnfolded <= Math.max(closing, isAhead ? 0 : closedTo)) {
      if (!(await foldAll(unfolded, minuteMs, foldPods))) return;
    }
    if (state.firstMinute < startOf(nowMs - minutesKeptMs, hourMs)) {
      if (!(await foldAll(oldMinutes, hourMs, foldMinutes))) return;
    }
    if (state.firstHour < nowMs - hoursKeptMs) {
      await database.write([deleteHoursBefore(nowMs - hoursKeptMs)], { lossy: true });
    }
  };

  return createLeaderPass(passNow, { clock, everyMs: minuteMs, log, failed: "series not folded" });
}

function toState(row: Row): FoldState {
  const timeOf = (name: string) => (row[name] === null ? Infinity : Number(row[name]));
  return {
    nowMs: Number(row["now"]),
    closedTo: Number(row["closed_to"]),
    lastFold: row["last_fold"] as string,
    firstUnfolded: timeOf("first_unfolded"),
    firstMinute: timeOf("first_minute"),
    firstHour: timeOf("first_hour"),
  };
}

function toRow(row: Row): SeriesRow {
  return {
    span: Number(row["span"]),
    at: Number(row["at"]),
    subject: row["subject"] as string,
    pod: row["pod"] as string,
    counts: row["counts"] as string,
  };
}
