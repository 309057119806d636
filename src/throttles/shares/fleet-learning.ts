import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Database, Row } from "../../store/database.ts";
import { learn, type LearnedRow, type Report, toLearnedRow } from "./learned.ts";
import { placeKey } from "./row.ts";
import {
  changeLearned,
  getThrottles,
  lookAtReports,
  type Place,
  pruneReports,
  pruneThrottles,
} from "./sql.ts";
import type { Totals } from "./totals.ts";

export type LearningOptions = {
  readonly database: Database;
  readonly clock: Clock;
  readonly log: Logger;
  /** Told of every change of a bound. */
  readonly onBound?: ((bound: Place & { bound: number; epoch: number }) => void) | undefined;
  /** For how long a throttle that nobody uses is remembered. */
  readonly rememberMs?: number;
};

export type Learning = {
  /** Learns from what pods have reported since the last pass. One at a time, by the pod that leads. */
  pass(): Promise<void>;
};

const dayMs = 86_400_000;
// Pods that have work report every second.
const reportedWithinMs = 10_000;
const reportsKeptMs = 60_000;
const pruneEveryMs = 60_000;
// Where this leader hasn't stepped a throttle before, it is taken to have been stepped by another.
const firstElapsedMs = 1_000;
const triesMost = 5;
const recalled = 4;

type Memory = {
  steppedMs: number;
  /** The last few reports of each pod, because which of them was counted is known from the row alone. */
  readonly reports: Map<string, Report[]>;
};

export function createLearning(options: LearningOptions): Learning {
  const { database, clock, log, onBound, rememberMs = 30 * dayMs } = options;
  const memories = new Map<string, Memory>();
  let prunedMs = clock.monotonic();
  let passing = false;

  const remember = (at: string, reports: readonly Report[]): Memory => {
    const memory = memories.get(at) ?? { steppedMs: -Infinity, reports: new Map() };
    memories.set(at, memory);
    for (const podId of memory.reports.keys()) {
      if (!reports.some((each) => each.podId === podId)) memory.reports.delete(podId);
    }
    for (const report of reports) {
      const known = memory.reports.get(report.podId) ?? [];
      if (known.at(-1)?.seq !== report.seq) known.push(report);
      memory.reports.set(report.podId, known.slice(-recalled));
    }
    return memory;
  };

  /** What to write about one throttle; undefined where its settings are beyond this release. */
  const stepOf = (row: LearnedRow, reports: readonly Report[], memory: Memory) => {
    const nowMs = clock.monotonic();
    const elapsedMs = Math.min(nowMs - memory.steppedMs, dayMs);
    const recall = (podId: string, seq: number): Totals | undefined =>
      memory.reports.get(podId)?.find((each) => each.seq === seq)?.totals;
    try {
      const given = { elapsedMs: elapsedMs < dayMs ? elapsedMs : firstElapsedMs, recall };
      return { row, nowMs, learned: learn(row, reports, given) };
    } catch (error) {
      log.warn(
        { throttle: row.name, key: row.key, error: messageOf(error) },
        "nothing could be learned about a throttle",
      );
      return undefined;
    }
  };

  const learnFrom = async (byPlace: ReadonlyMap<string, PlaceReports>): Promise<void> => {
    for (const at of memories.keys()) if (!byPlace.has(at)) memories.delete(at);
    for (const [at, { reports }] of byPlace) remember(at, reports);
    let open = [...byPlace.values()].map(({ place }) => place);
    for (let tries = 1; tries <= triesMost && open.length > 0; tries++) {
      const rows = (await database.read(getThrottles(open))).map(toLearnedRow);
      // Always in one order, so that two leaders don't wait for each other.
      const steps = rows
        .toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
        .flatMap((row) => {
          const at = keyOf(row);
          return stepOf(row, byPlace.get(at)!.reports, memories.get(at)!) ?? [];
        });
      if (steps.length === 0) return;
      const tables = await database.write(
        steps.map(({ row, learned }) => changeLearned(row, row.rev, learned)),
      );
      open = [];
      for (const [nth, { row, nowMs, learned }] of steps.entries()) {
        const { name, key } = row;
        if (tables[nth]!.length === 0) {
          open.push({ name, key });
          continue;
        }
        memories.get(keyOf(row))!.steppedMs = nowMs;
        const { bound, epoch } = learned;
        if (bound !== row.bound) onBound?.({ name, key, bound, epoch });
      }
    }
  };

  const prune = async (): Promise<void> => {
    const nowMs = clock.monotonic();
    if (nowMs - prunedMs < pruneEveryMs) return;
    prunedMs = nowMs;
    await database.write([pruneReports(reportsKeptMs), pruneThrottles(rememberMs)]);
  };

  return {
    async pass() {
      if (passing) return;
      passing = true;
      try {
        const byPlace = groupReports(await database.read(lookAtReports(reportedWithinMs)));
        await learnFrom(byPlace);
        await prune();
      } catch (error) {
        // What wasn't counted, or isn't known to be, is looked at again by the next pass.
        log.debug({ error: messageOf(error) }, "a pass over the throttles has failed");
      } finally {
        passing = false;
      }
    },
  };
}

type PlaceReports = { readonly place: Place; readonly reports: Report[] };

function groupReports(rows: readonly Row[]): Map<string, PlaceReports> {
  const all = new Map<string, PlaceReports>();
  for (const row of rows) {
    const place = { name: row["name"] as string, key: row["key"] as string };
    const at = keyOf(place);
    const known = all.get(at) ?? { place, reports: [] };
    all.set(at, known);
    known.reports.push({
      podId: row["pod_id"] as string,
      seq: Number(row["seq"]),
      totals: JSON.parse(row["totals"] as string) as Totals,
    });
  }
  return all;
}

function keyOf({ name, key }: Place): string {
  return placeKey(name, key);
}
