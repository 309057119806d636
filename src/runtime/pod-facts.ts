import type { Clock } from "../base/clock.ts";
import { minuteMs } from "../base/durations.ts";
import { messageOf } from "../base/errors.ts";
import { costMillionths, type ModelTotal, type Prices } from "../base/usage.ts";
import type { Ids } from "../base/ids.ts";
import type { Logger } from "../base/log.ts";
import type { Observation } from "../pods/liveness.ts";
import {
  encodePulse,
  maxPulsed,
  type PulsedLog,
  type PulsedTask,
  type PulsedThrottle,
} from "../pods/pulse.ts";
import { countDurationOf, countOf, type Tally } from "../series/counts.ts";
import { startOf } from "../series/fold.ts";
import { createSeriesLeader } from "../series/leader.ts";
import { createRecorder } from "../series/recorder.ts";
import { createSeriesWriter } from "../series/writer.ts";
import type { Database } from "../store/database.ts";
import { perDoubling } from "../throttles/learning/histogram.ts";
import type { Limiter } from "../throttles/limiter/limiter.ts";
import type { CallTotals } from "../throttles/limiter/stats.ts";
import type { ThrottleRegistry } from "../throttles/registry.ts";
import type { PodEvent } from "./pod-parts.ts";

export type PodFactsParts = {
  podId: string;
  database: Database;
  clock: Clock;
  ids: Ids;
  log: Logger;
  /** How often `tick` is called. */
  tickMs: number;
  registry: ThrottleRegistry;
  /** What models cost, if that is known. */
  prices?: Prices | undefined;
  /** How many tasks the pod holds, and which of them it has run for longest. */
  held: () => number;
  longestRunning: (count: number) => readonly PulsedTask[];
  /** Of the pod's logs of sessions, those that the store is furthest behind. */
  backlogs: (count: number) => readonly PulsedLog[];
  /** How long the oldest task of each name waits, in the store as a whole. */
  readOldestWaits: () => Promise<ReadonlyMap<string, number>>;
  /** The bytes of memory of this process. */
  readMemory?: (() => number) | undefined;
  setPulse: (pulse: string) => void;
};

export type PodFacts = ReturnType<typeof createPodFacts>;

/**
 * What a pod counts of itself: for its pulse, which goes with every heartbeat, and for the series, once a
 * minute. Counting is done by its events, and costs a task a few numbers in memory.
 */
export function createPodFacts(parts: PodFactsParts) {
  const { podId, clock, tickMs, log } = parts;
  const recorder = createRecorder();
  const ended: Record<string, number> = {};
  const throttles = createThrottleCounts(parts.registry, parts.prices);
  let claimed = 0;
  let chunks = 0;
  let seen: { readonly storeMs: number; readonly atMs: number } | undefined;
  let dueMs: number | undefined;
  let lagMs = 0;
  let minute = newMinute();
  /** The minute whose oldest waits were read, or are being read. */
  let waitsReadAt: number | undefined;
  let leadsSinceMs: number | null = null;

  function newMinute() {
    return { ticks: 0, held: 0, lagMs: 0, memoryBytes: 0, claimed, ended: total(ended) };
  }

  /** Counts what is known of the pod and its throttles at the end of a minute, if it did anything. */
  const onMinute = () => {
    const { ticks, held, claimed: claimedBefore, ended: endedBefore } = minute;
    const hasWorked = held > 0 || claimed > claimedBefore || total(ended) > endedBefore;
    if (hasWorked) {
      const tally = recorder.tally("pod", podId);
      countOf(tally, "claimed", claimed - claimedBefore);
      countOf(tally, "ended", total(ended) - endedBefore);
      tally.gauges["held"] = mean(held, ticks);
      tally.gauges["lagMs"] = Math.round(minute.lagMs);
      tally.gauges["memoryBytes"] = minute.memoryBytes;
    }
    throttles.count((name, key) => recorder.tally("throttle", name, key), ticks);
    minute = newMinute();
  };

  const storeNowMs = () => seen && seen.storeMs + Math.max(0, clock.monotonic() - seen.atMs);
  const writer = createSeriesWriter({ ...parts, recorder, storeNowMs, onMinute });
  const leader = createSeriesLeader(parts);

  /** Once a minute. Of two pods that take themselves for the leader, the longest wait counts. */
  const sampleWaits = async (): Promise<void> => {
    const nowMs = storeNowMs();
    const at = nowMs === undefined ? undefined : startOf(nowMs, minuteMs);
    if (at === undefined || at === waitsReadAt) return;
    waitsReadAt = at;
    try {
      for (const [name, oldestMs] of await parts.readOldestWaits()) {
        const { gauges } = recorder.tally("task", name);
        gauges["oldestMs"] = Math.max(gauges["oldestMs"] ?? 0, oldestMs);
      }
    } catch (error) {
      // That minute has no point then, which is what is known of it.
      log.debug({ pod: podId, error: messageOf(error) }, "oldest waits not read");
    }
  };

  const countEnd = (outcome: string) => {
    ended[outcome] = (ended[outcome] ?? 0) + 1;
  };

  return {
    /** Counts an event of the pod. */
    observe(event: PodEvent): void {
      switch (event.type) {
        case "ended": {
          const { outcome, waitedMs, ranMs } = event;
          countEnd(outcome);
          const tally = recorder.tally("task", event.name);
          countOf(tally, outcome);
          if (waitedMs !== undefined) countDurationOf(tally.wait, waitedMs);
          if (ranMs !== undefined) countDurationOf(tally.run, ranMs);
          return;
        }
        case "claimed":
          claimed += event.tasks;
          return;
        case "transition": {
          const tally = recorder.tally("flow", event.flow, event.transition);
          countOf(tally, event.outcome);
          // A wait counts when it ends, for as long as it was.
          if (event.outcome !== "parked") countDurationOf(tally.run, event.tookMs);
          return;
        }
        case "run_begun":
          return countOf(recorder.tally("flow", event.flow), "begun");
        case "run_set_aside":
          return countOf(recorder.tally("flow", event.flow), "set_aside");
        case "run_ended": {
          countEnd(event.status);
          const tally = recorder.tally("flow", event.flow);
          countOf(tally, event.status);
          return countDurationOf(tally.run, event.tookMs);
        }
        case "turn_ended": {
          chunks += event.chunks;
          return countTurn(recorder.tally("agent", event.agent), event);
        }
        case "share":
          return throttles.setBound(event);
        case "leading":
          leadsSinceMs = event.podId === podId ? Math.round(storeNowMs() ?? 0) : null;
          return;
        case "beat":
        case "beat_failed":
        case "bound":
        case "claim_failed":
        case "contended":
        case "fired":
        case "forged":
        case "log_lost":
        case "log_owned":
        case "log_taken":
        case "record_fenced":
        case "record_resent":
        case "record_unknown":
        case "record":
        case "recovered":
        case "refused":
        case "resent":
        case "step":
        case "store_error":
        case "tokens":
        case "turn_started":
          return;
      }
    },

    /** A beat was committed. From here on the pod knows the store's time. */
    beat({ storeMs, atMs }: Observation): void {
      if (storeMs !== undefined) seen = { storeMs, atMs };
    },

    /** Samples the pod, and writes its pulse and its series. Called while the main thread runs. */
    tick(): void {
      const nowMs = clock.monotonic();
      const lateMs = dueMs === undefined ? 0 : Math.max(0, nowMs - dueMs);
      dueMs = nowMs + tickMs;
      const memoryBytes = parts.readMemory?.() ?? null;
      const held = parts.held();
      minute.ticks++;
      minute.held += held;
      minute.lagMs = Math.max(minute.lagMs, lateMs);
      minute.memoryBytes = Math.max(minute.memoryBytes, memoryBytes ?? 0);
      parts.setPulse(
        encodePulse({
          claimed,
          ended,
          chunks,
          // A beat comes with every second tick.
          lagMs: Math.round(Math.max(lateMs, lagMs)),
          memoryBytes,
          held,
          leadsSinceMs,
          throttles: throttles.sample(),
          running: parts.longestRunning(maxPulsed),
          logs: parts.backlogs(maxPulsed),
        }),
      );
      lagMs = lateMs;
      writer.tick();
    },

    /** Adds up the series of all pods. The leader calls it with its beats. */
    fold: leader.beat,

    /** Counts how long tasks wait, of all pods. The leader calls it with its beats. */
    lead: () => void sampleWaits(),

    /** Writes what was counted since the last minute. */
    async stop(): Promise<void> {
      await leader.stop();
      await writer.stop();
    },
  };
}

function countTurn(tally: Tally, event: Extract<PodEvent, { type: "turn_ended" }>): void {
  countOf(tally, event.outcome);
  countOf(tally, "chunks", event.chunks);
  for (const total of event.tokens) countTokens(tally, total);
  if (event.ttftMs !== undefined) countDurationOf(tally.wait, event.ttftMs);
  countDurationOf(tally.run, event.durationMs);
}

function countTokens(tally: Tally, { input, output, cached }: ModelTotal): void {
  countOf(tally, "inputTokens", input);
  countOf(tally, "outputTokens", output);
  countOf(tally, "cachedTokens", cached);
}

/** The tokens of each model that have come since. */
function tokensSince(before: readonly ModelTotal[], now: readonly ModelTotal[]): ModelTotal[] {
  return now.map(({ model, input, output, cached }) => {
    const known = before.find((each) => each.model === model);
    return {
      model,
      input: input - (known?.input ?? 0),
      output: output - (known?.output ?? 0),
      cached: cached - (known?.cached ?? 0),
    };
  });
}

/** What limiters had when they were last counted, and their samples since. */
type Watched = {
  readonly outcomes: CallTotals["outcomes"];
  readonly used: number;
  readonly durations: readonly number[];
  readonly sumMs: number;
  readonly tokens: readonly ModelTotal[];
};

type Samples = { inFlight: number; waiting: number };

const nothing: Watched = {
  outcomes: { success: 0, throttled: 0, timeout: 0, server_error: 0, ignored: 0 },
  used: 0,
  durations: [],
  sumMs: 0,
  tokens: [],
};

/** Counts of the throttles in use, as differences of what their limiters count anyway. */
function createThrottleCounts(registry: ThrottleRegistry, prices: Prices | undefined) {
  const watched = new WeakMap<Limiter, Watched>();
  const bounds = new WeakMap<Limiter, number>();
  let samples = new Map<Limiter, Samples>();

  /** Returns whether it had calls since it was counted last. */
  const addCalls = (limiter: Limiter, tallyOf: () => Tally): boolean => {
    const before = watched.get(limiter) ?? nothing;
    const { outcomes, used, durations, sumMs, tokens } = limiter.usage();
    const entries = Object.entries(outcomes).map(
      ([outcome, count]) =>
        [outcome, count - before.outcomes[outcome as keyof typeof outcomes]] as const,
    );
    if (entries.every(([, count]) => count === 0)) return false;
    const tally = tallyOf();
    for (const [outcome, count] of entries) countOf(tally, outcome, count);
    countOf(tally, "used", Math.round(used - before.used));
    for (const [bucket, count] of durations.entries()) {
      const more = count - (before.durations[bucket] ?? 0);
      tally.run.buckets[Math.min(tally.run.buckets.length - 1, Math.ceil(bucket / perDoubling))]! +=
        more;
    }
    tally.run.sumMs += sumMs - before.sumMs;
    for (const total of tokensSince(before.tokens, tokens)) {
      countTokens(tally, total);
      countOf(tally, "costMillionths", costMillionths([total], prices) ?? 0);
    }
    const own = { outcomes: { ...outcomes }, durations: [...durations] };
    watched.set(limiter, { ...own, used, sumMs, tokens });
    return true;
  };

  return {
    setBound({ name, key, bound }: { name: string; key: string; bound: number }): void {
      const limiter = registry.find(name, key);
      if (limiter) bounds.set(limiter, bound);
    },
    /** Samples all throttles, and returns those with the most calls in flight. */
    sample(): PulsedThrottle[] {
      if (!registry.any) return [];
      const busy: PulsedThrottle[] = [];
      for (const limiter of registry.all()) {
        const { inFlight, waiting, blockedTasks } = limiter.demand();
        if (inFlight + waiting + blockedTasks === 0) continue;
        const sampled = samples.get(limiter) ?? { inFlight: 0, waiting: 0 };
        sampled.inFlight += inFlight;
        sampled.waiting += waiting + blockedTasks;
        samples.set(limiter, sampled);
        if (inFlight > 0) busy.push({ name: limiter.name, key: limiter.key, inFlight });
      }
      return busy.toSorted((a, b) => b.inFlight - a.inFlight).slice(0, maxPulsed);
    },
    /** Counts what was sampled and called since the last call. */
    count(tallyOf: (name: string, key: string) => Tally, ticks: number): void {
      if (!registry.any) return;
      for (const limiter of registry.all()) {
        const own = () => tallyOf(limiter.name, limiter.key);
        const sampled = samples.get(limiter);
        const hasCalled = addCalls(limiter, own);
        if (!hasCalled && sampled === undefined) continue;
        const { gauges } = own();
        const bound = bounds.get(limiter) ?? limiter.usage().limit;
        gauges["bound"] = Math.max(gauges["bound"] ?? 0, bound);
        gauges["inFlight"] = (gauges["inFlight"] ?? 0) + mean(sampled?.inFlight ?? 0, ticks);
        gauges["waiting"] = (gauges["waiting"] ?? 0) + mean(sampled?.waiting ?? 0, ticks);
      }
      samples = new Map();
    },
  };
}

function mean(sum: number, count: number): number {
  return count === 0 ? 0 : Math.round((sum / count) * 100) / 100;
}

function total(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((all, count) => all + count, 0);
}
