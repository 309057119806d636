import type { Row } from "../../store/database.ts";
import { allowed, type ControllerState, firstState, step } from "../learning/controller.ts";
import { percentile } from "../learning/histogram.ts";
import {
  addCounts,
  addSamples,
  type Counts,
  emptySample,
  noCounts,
  type Sample,
} from "../learning/sample.ts";
import type { Settings } from "../settings.ts";
import { windowDurations } from "../learning/windows.ts";
import type { Gate } from "./row.ts";
import type { Learned, Place } from "./sql.ts";
import { noTotals, sampleBetween, type Totals } from "./totals.ts";

/** What a leader keeps in a throttle's row. */
export type Stored = {
  readonly controller: ControllerState;
  /** The report of each pod that was counted last, so that none is counted twice, by any leader. */
  readonly seen: Readonly<Record<string, number>>;
};

/** What is shown to people. */
export type Stats = {
  readonly outcomes: Counts;
  readonly p95Ms?: number;
  readonly firstTokenP95Ms?: number;
  /** How long successful calls take on average, the latest most of all. It outlasts times without calls. */
  readonly meanMs?: number;
  /** And what they cost in the bucket's unit. */
  readonly meanCost?: number;
};

export type LearnedRow = Place & {
  readonly rev: number;
  readonly bound: number;
  readonly epoch: number;
  readonly settings: Settings;
  readonly stored: Stored | undefined;
  readonly stats: Stats;
};

export type Report = { readonly podId: string; readonly seq: number; readonly totals: Totals };

/** The totals of a report that was read before. Undefined where this leader hasn't read that one. */
export type Recall = (podId: string, seq: number) => Totals | undefined;

// The first reports of a pod are counted whole, since nothing before them can have been.
const firstReports = 2;

// What all calls before the last one count for in an average.
const olderWeight = 0.9;

/** Pure: what is known after these reports, each of which counts once. */
export function learn(
  row: LearnedRow,
  reports: readonly Report[],
  { elapsedMs, recall }: { elapsedMs: number; recall: Recall },
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
    // Somebody else has counted it up to a point that isn't known here: it counts from now on.
    if (!before) continue;
    const since = sampleBetween(before, totals);
    sample = addSamples(sample ?? emptySample(row.epoch), since);
  }
  // Pods report at moments of their own, so some have said nothing since the last pass: what those had
  // in flight when they did is a part of what all had.
  if (sample) sample = { ...sample, peak: peakOf(reports, sample.epoch) };
  const last = stored?.controller ?? firstState(settings);
  const before = { ...last, epoch: Math.max(last.epoch, row.epoch) };
  const controller = step(settings, before, {
    elapsedMs,
    restrained: true,
    ...(sample && { sample }),
  });
  const { limit, epoch, holdMs, breaker, refillPerS } = allowed(settings, controller);
  const gate: Gate = {
    holdMs: Math.ceil(holdMs),
    breaker,
    ...(refillPerS !== undefined && { refillPerS }),
  };
  return {
    // Nobody begins a call while the breaker is open, so shares may stay where they are.
    bound: breaker === "open" ? row.bound : limit,
    epoch,
    gate: JSON.stringify(gate),
    state: JSON.stringify({ controller, seen } satisfies Stored),
    stats: JSON.stringify(nextStats(row.stats, controller, sample)),
  };
}

function peakOf(reports: readonly Report[], epoch: number): number {
  const present = reports.filter(({ totals }) => totals.epoch === epoch);
  return present.reduce((sum, { totals }) => sum + totals.peak, 0);
}

function nextStats(before: Stats, controller: ControllerState, sample: Sample | undefined): Stats {
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

export function toLearnedRow(row: Row): LearnedRow {
  const settings = JSON.parse(row["settings"] as string) as Settings;
  const pinned = row["pinned"] === null ? settings.pinned : Number(row["pinned"]);
  const state = row["state"] as string | null;
  return {
    name: row["name"] as string,
    key: row["key"] as string,
    rev: Number(row["rev"]),
    bound: Number(row["bound"]),
    epoch: Number(row["epoch"]),
    settings: { ...settings, pinned },
    stored: state === null ? undefined : (JSON.parse(state) as Stored),
    stats: toStats(row["stats"] as string),
  };
}

export function toStats(text: string): Stats {
  return { outcomes: noCounts, ...(JSON.parse(text) as Partial<Stats>) };
}
