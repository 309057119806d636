import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Database, Row } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import {
  allowanceOf,
  causeOf,
  type ControllerState,
  initialState,
  step,
} from "../learning/limit-controller.ts";
import { percentile } from "../learning/histogram.ts";
import {
  addCounts,
  addSamples,
  type OutcomeCounts,
  emptySample,
  noCounts,
  type Sample,
} from "../learning/sample.ts";
import { windowDurations } from "../learning/windows.ts";
import type { ControllerSettings } from "../settings.ts";
import { nothingObserved, type ObservedMarks, observeMarks, type RoundTrip } from "./lease.ts";
import { findSilentPods, silentAfterMs } from "./silence.ts";
import {
  changeLearned,
  type CallConstraints,
  getThrottles,
  type Learned,
  getRecentReports,
  type ShareEntries,
  type ThrottleId,
  throttleMapKey,
  noteChange,
  pruneReports,
  pruneThrottles,
  unusedThrottles,
} from "./sql.ts";
import { noTotals, sampleBetween, type Totals } from "./totals.ts";

type LearningOptions = {
  readonly database: Database;
  readonly clock: Clock;
  readonly log: Logger;
  /** Called with every change of a bound. */
  readonly onBound?: ((bound: ThrottleId & { bound: number; epoch: number }) => void) | undefined;
  /** How long the row of an unused throttle is kept. */
  readonly rememberMs?: number;
};

export type FleetLearning = {
  /** Learns from the reports since the last pass. Only the leader calls it, one pass at a time. */
  pass(): Promise<void>;
};

const dayMs = 86_400_000;
// Pods with demand report every second.
const reportedWithinMs = 10_000;
const reportsKeptMs = 60_000;
const pruneEveryMs = 60_000;
// The rest is found a minute later.
const maxPruned = 100;
// A throttle that this leader hasn't stepped before was probably stepped by the last leader just now.
const firstElapsedMs = 1_000;
const maxTries = 5;
const maxRecalledReports = 4;

// The first reports of a pod are counted whole, because no report came before them.
const firstReports = 2;

// The weight of all calls before the last one in an average.
const olderWeight = 0.9;

type Memory = {
  steppedMs: number;
  /** The last few reports of each pod, because only the row says which of them was counted. */
  readonly reports: Map<string, Report[]>;
  /** The last report of each pod that this leader has read, and for how long there was no newer one. */
  readonly lastSeqs: Map<string, number>;
  silences: ObservedMarks<number>;
  seen: RoundTrip;
};

/** Learns the bounds of all throttles from the reports of all pods, on the leader. */
export function createFleetLearning(options: LearningOptions): FleetLearning {
  const { database, clock, log, onBound, rememberMs = 30 * dayMs } = options;
  const memories = new Map<string, Memory>();
  let prunedMs = clock.monotonic();
  let passing = false;

  const remember = (at: string, reports: readonly Report[], seen: RoundTrip): Memory => {
    const memory = memories.get(at) ?? {
      steppedMs: -Infinity,
      reports: new Map(),
      lastSeqs: new Map(),
      silences: nothingObserved,
      seen,
    };
    memory.seen = seen;
    for (const { podId, seq } of reports) memory.lastSeqs.set(podId, seq);
    memories.set(at, memory);
    for (const podId of memory.reports.keys()) {
      if (!reports.some((each) => each.podId === podId)) memory.reports.delete(podId);
    }
    for (const report of reports) {
      const known = memory.reports.get(report.podId) ?? [];
      if (known.at(-1)?.seq !== report.seq) known.push(report);
      memory.reports.set(report.podId, known.slice(-maxRecalledReports));
    }
    return memory;
  };

  /** The next state of one throttle; undefined where this release can't read its settings. */
  const stepOf = (row: LearnedRow, reports: readonly Report[], memory: Memory) => {
    const nowMs = clock.monotonic();
    const elapsedMs = Math.min(nowMs - memory.steppedMs, dayMs);
    const recall = (podId: string, seq: number): Totals | undefined =>
      memory.reports.get(podId)?.find((each) => each.seq === seq)?.totals;
    const holders = Object.keys(row.shares);
    for (const podId of memory.lastSeqs.keys()) {
      if (!holders.includes(podId)) memory.lastSeqs.delete(podId);
    }
    const marks = new Map(holders.map((podId) => [podId, memory.lastSeqs.get(podId) ?? 0]));
    // No report is no mark: where the database's clock has been set forward, reports look old. Two reads
    // that find none don't tell of a pod's silence if it could have reported many times between them.
    memory.silences = observeMarks(memory.silences, marks, memory.seen, silentAfterMs / 2);
    const silentMs = (podId: string): number => memory.silences.seen.get(podId)?.forMs ?? 0;
    try {
      const inputs = {
        elapsedMs: elapsedMs < dayMs ? elapsedMs : firstElapsedMs,
        recall,
        silentMs,
      };
      return { row, nowMs, learned: learnFromReports(row, reports, inputs) };
    } catch (error) {
      log.warn(
        { throttle: row.name, key: row.key, error: messageOf(error) },
        "throttle learning failed",
      );
      return undefined;
    }
  };

  const learnFrom = async (
    byThrottle: ReadonlyMap<string, ThrottleReports>,
    seen: RoundTrip,
  ): Promise<void> => {
    for (const at of memories.keys()) if (!byThrottle.has(at)) memories.delete(at);
    for (const [at, { reports }] of byThrottle) remember(at, reports, seen);
    let open = [...byThrottle.values()].map(({ throttleId }) => throttleId);
    for (let attempt = 1; attempt <= maxTries && open.length > 0; attempt++) {
      const rows = (await database.read(getThrottles(open))).map(toLearnedRow);
      // Always in one order, so that two leaders don't deadlock.
      const steps = rows
        .toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
        .flatMap((row) => {
          const at = keyOf(row);
          return stepOf(row, byThrottle.get(at)!.reports, memories.get(at)!) ?? [];
        });
      if (steps.length === 0) return;
      const statements: Statement[] = [];
      const answers = steps.map(({ row, learned }) => {
        const { change, bound, epoch } = learned;
        if (change) statements.push(...noteChange(row, row.rev, { ...change, bound, epoch }));
        return statements.push(changeLearned(row, row.rev, learned)) - 1;
      });
      const tables = await database.write(statements);
      open = [];
      for (const [nth, { row, nowMs, learned }] of steps.entries()) {
        const { name, key } = row;
        if (tables[answers[nth]!]!.length === 0) {
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
    const unused = (await database.read(unusedThrottles(rememberMs, maxPruned))).map(
      ({ name, key }) => ({ name: name as string, key: key as string }),
    );
    await database.write([
      pruneReports(reportsKeptMs),
      ...(unused.length > 0 ? pruneThrottles(unused, rememberMs) : []),
    ]);
  };

  return {
    async pass() {
      if (passing) return;
      passing = true;
      try {
        const sentMs = clock.monotonic();
        const byThrottle = groupReports(await database.read(getRecentReports(reportedWithinMs)));
        await learnFrom(byThrottle, { sentMs, answeredMs: clock.monotonic() });
        await prune();
      } catch (error) {
        // The next pass reads again what wasn't counted, or may not have been.
        log.debug({ error: messageOf(error) }, "throttle learning pass failed");
      } finally {
        passing = false;
      }
    },
  };
}

type ThrottleReports = { readonly throttleId: ThrottleId; readonly reports: Report[] };

function groupReports(rows: readonly Row[]): Map<string, ThrottleReports> {
  const all = new Map<string, ThrottleReports>();
  for (const row of rows) {
    const throttleId = { name: row["name"] as string, key: row["key"] as string };
    const at = keyOf(throttleId);
    const known = all.get(at) ?? { throttleId, reports: [] };
    all.set(at, known);
    known.reports.push({
      podId: row["pod_id"] as string,
      seq: Number(row["seq"]),
      totals: JSON.parse(row["totals"] as string) as Totals,
    });
  }
  return all;
}

export function toLearnedRow(row: Row): LearnedRow {
  const settings = JSON.parse(row["settings"] as string) as ControllerSettings;
  const pinned = row["pinned"] === null ? settings.pinned : Number(row["pinned"]);
  const state = row["state"] as string | null;
  return {
    name: row["name"] as string,
    key: row["key"] as string,
    rev: Number(row["rev"]),
    bound: Number(row["bound"]),
    epoch: Number(row["epoch"]),
    settings: { ...settings, pinned },
    stored: state === null ? undefined : (JSON.parse(state) as LearnedState),
    stats: toThrottleStats(row["stats"] as string),
    shares: JSON.parse(row["shares"] as string) as ShareEntries,
  };
}

function keyOf({ name, key }: ThrottleId): string {
  return throttleMapKey(name, key);
}

/** What the leader stores in a throttle's row. */
export type LearnedState = {
  readonly controller: ControllerState;
  /** The sequence number of each pod's last counted report, so that no leader counts one twice. */
  readonly seen: Readonly<Record<string, number>>;
  /** Pods whose permits others may use because they are silent, and those that seem to go on calling. */
  readonly silent?: readonly string[];
  readonly doubted?: readonly string[];
};

/** What `throttles.get` shows of a throttle's calls. */
export type ThrottleStats = {
  readonly outcomes: OutcomeCounts;
  readonly p95Ms?: number;
  readonly firstTokenP95Ms?: number;
  /** The average duration of successful calls, weighted towards the latest. Kept while there are no calls. */
  readonly meanMs?: number;
  /** Their average cost in the bucket's unit. */
  readonly meanCost?: number;
};

export type LearnedRow = ThrottleId & {
  readonly rev: number;
  readonly bound: number;
  readonly epoch: number;
  readonly settings: ControllerSettings;
  readonly stored: LearnedState | undefined;
  readonly stats: ThrottleStats;
  readonly shares: ShareEntries;
};

export type Report = { readonly podId: string; readonly seq: number; readonly totals: Totals };

/** Returns the totals of an earlier report. Undefined where this leader hasn't read that one. */
type Recall = (podId: string, seq: number) => Totals | undefined;

/** Pure: the next state of a throttle after these reports, each of which counts once. */
export function learnFromReports(
  row: LearnedRow,
  reports: readonly Report[],
  {
    elapsedMs,
    recall,
    silentMs,
  }: {
    elapsedMs: number;
    recall: Recall;
    /** For how long a pod with a share hasn't reported. */
    silentMs: (podId: string) => number;
  },
): Learned {
  const { settings, stored } = row;
  const seen = { ...stored?.seen };
  const known = new Set(reports.map(({ podId }) => podId));
  for (const podId of Object.keys(seen)) if (!known.has(podId)) delete seen[podId];
  let sample: Sample | undefined;
  for (const { podId, seq, totals } of reports) {
    const last = seen[podId];
    if (last !== undefined && last >= seq) continue;
    seen[podId] = seq;
    const before =
      last === undefined ? (seq <= firstReports ? noTotals : undefined) : recall(podId, last);
    // Another leader has counted up to a report that this one hasn't read: count from now on.
    if (!before) continue;
    const since = sampleBetween(before, totals);
    sample = addSamples(sample ?? emptySample(row.epoch), since);
  }
  // Pods report at different times, and some haven't since the last pass. What those had in flight in
  // their last report belongs to the peak of the fleet.
  if (sample) sample = { ...sample, peak: peakOf(reports, sample.epoch) };
  const last = stored?.controller ?? initialState(settings);
  const before = { ...last, epoch: Math.max(last.epoch, row.epoch) };
  const input = { elapsedMs, restrained: true, ...(sample && { sample }) };
  const controller = step(settings, before, input);
  const { limit, epoch, holdMs, breaker, refillPerS } = allowanceOf(settings, controller);
  const doubted = doubtedPods(row, sample);
  // A limit that was set by hand, or as the maximum, holds even if a silent pod goes on calling.
  const spare = settings.pinned === null ? settings.max - limit : 0;
  const silent = findSilentPods(row.shares, { silentMs, doubted, spare });
  const anySilent = Object.keys(silent).length > 0;
  const constraints: CallConstraints = {
    holdMs: Math.ceil(holdMs),
    breaker,
    ...(refillPerS !== undefined && { refillPerS }),
    ...(anySilent && { silent }),
  };
  // No call begins while the breaker is open, so shares may stay as they are.
  const bound = breaker === "open" ? row.bound : limit;
  const isOther = bound !== row.bound || breaker !== last.breaker.state;
  return {
    bound,
    epoch,
    ...(isOther && {
      change: {
        cause: isByHand(row, last) ? "unpinned" : causeOf(settings, before, controller, input),
        breaker,
      },
    }),
    constraints: JSON.stringify(constraints),
    state: JSON.stringify({
      controller,
      seen,
      ...(anySilent && { silent: Object.keys(silent) }),
      ...(doubted.length > 0 && { doubted }),
    } satisfies LearnedState),
    stats: JSON.stringify(nextStats(row.stats, controller, sample)),
  };
}

/** Whether the bound is none that was learned: it was pinned, and unpinned before a pass has seen it. */
function isByHand({ bound, settings, stored }: LearnedRow, last: ControllerState): boolean {
  if (!stored || settings.pinned !== null || last.breaker.state === "open") return false;
  return bound !== allowanceOf({ ...settings, pinned: last.pinned }, last).limit;
}

/** Calls of silent pods would be a part of all calls, so as many are refused. Probes have fewer refused. */
const doubtShare = 0.05;

function doubtedPods(row: LearnedRow, sample: Sample | undefined): readonly string[] {
  const { silent = [], doubted = [] } = row.stored ?? {};
  const counts = sample ? addCounts(sample.counts, sample.earlier) : noCounts;
  const refused = counts.throttled > doubtShare * (counts.success + counts.throttled);
  const all = refused ? [...doubted, ...silent] : doubted;
  return all.filter((podId) => row.shares[podId] !== undefined);
}

function peakOf(reports: readonly Report[], epoch: number): number {
  const present = reports.filter(({ totals }) => totals.epoch === epoch);
  return present.reduce((sum, { totals }) => sum + totals.peak, 0);
}

function nextStats(
  before: ThrottleStats,
  controller: ControllerState,
  sample: Sample | undefined,
): ThrottleStats {
  const counted = sample ? addCounts(sample.counts, sample.earlier) : noCounts;
  const p95Ms = percentile(windowDurations(controller.windows).latencies, 0.95);
  const firstTokenP95Ms = percentile(windowDurations(controller.windows).firstTokens, 0.95);
  const weight = 1 - olderWeight ** counted.success;
  const mean = (known: number | undefined, sum: number) =>
    counted.success === 0 ? known : blend(known, sum / counted.success, weight);
  const meanMs = mean(before.meanMs, sample?.acceptedMs ?? 0);
  const meanCost = mean(before.meanCost, sample?.used ?? 0);
  return {
    outcomes: addCounts(before.outcomes, counted),
    ...(p95Ms !== undefined && { p95Ms }),
    ...(firstTokenP95Ms !== undefined && { firstTokenP95Ms }),
    ...(meanMs !== undefined && { meanMs }),
    ...(meanCost !== undefined && { meanCost }),
  };
}

function blend(known: number | undefined, next: number, weight: number): number {
  return known === undefined ? next : known + (next - known) * weight;
}

export function toThrottleStats(text: string): ThrottleStats {
  return { outcomes: noCounts, ...(JSON.parse(text) as Partial<ThrottleStats>) };
}
