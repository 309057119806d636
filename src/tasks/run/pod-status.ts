import type { Clock } from "../../base/clock.ts";
import { settledWithin } from "../../base/timeout.ts";
import { updatePodState } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import {
  type Capacity,
  capacityOf,
  type PressureLimits,
  type Overload,
} from "../claim/capacity.ts";
import type { BlockedDemand } from "../claim/throttle-gate.ts";

/** Why a pod doesn't claim more than it does. */
export const reasonCodes = [
  "stopping",
  "outbox_full",
  "store_away",
  "paused",
  "alone",
  "draining",
  "full",
  "paused_names",
  "event_loop",
  "memory",
  "slots",
  "throttled",
] as const;

export type ReasonCode = (typeof reasonCodes)[number];

export type Reason = { readonly code: ReasonCode; readonly text: string };

/** What there is to know of a pod that claims. */
export type WorkerFacts = {
  readonly stopping: boolean;
  readonly storeAway: boolean;
  readonly outboxFull: boolean;
  /** All of its names are paused, or these are. */
  readonly allPaused: boolean;
  readonly pausedNames: readonly string[];
  readonly alone: boolean;
  readonly draining: boolean;
  readonly held: number;
  readonly capacity: Capacity;
  /** What lowers its capacity, if something does. */
  readonly overload: Overload | undefined;
  readonly limits: PressureLimits | undefined;
  /** Names of which as many run as may. */
  readonly fullNames: readonly string[];
  /** Names whose throttle has no permit for what waits. */
  readonly blockedDemand: readonly BlockedDemand[];
};

const maxNamesShown = 5;

/** The one place that says why a pod doesn't claim more: nothing where it takes whatever comes. */
export function reasonsOf(facts: WorkerFacts): Reason[] {
  const holds = capacityOf(facts.capacity);
  const { overload, limits } = facts;
  const reasons: (Reason | false | undefined)[] = [
    facts.stopping && { code: "stopping", text: "stopping" },
    facts.outboxFull && { code: "outbox_full", text: "the outbox is full" },
    facts.storeAway && { code: "store_away", text: "the store is away" },
    facts.allPaused && { code: "paused", text: "paused" },
    facts.alone && { code: "alone", text: "runs one alone" },
    facts.draining && { code: "draining", text: "draining for one" },
    facts.held >= holds && { code: "full", text: `full: ${facts.held} of ${holds}` },
    facts.pausedNames.length > 0 &&
      !facts.allPaused && { code: "paused_names", text: `${listed(facts.pausedNames)} paused` },
    ...(overload && limits ? overloadReasons(overload, limits, holds) : []),
    facts.fullNames.length > 0 && {
      code: "slots",
      text: `slots of ${listed(facts.fullNames)} used`,
    },
    ...facts.blockedDemand.map(throttled),
  ];
  return reasons.filter((each): each is Reason => Boolean(each));
}

/** After the trouble is over the pod takes on more only by and by, and says what it was. */
function overloadReasons(
  { pressure: seen, hasPassed: over }: Overload,
  limits: PressureLimits,
  holds: number,
): Reason[] {
  const was = over ? "was " : "";
  const down = `at most ${holds} for now`;
  const late = `event loop ${was}late ${Math.round(seen.lateMs)} ms: ${down}`;
  const short = `memory ${was}${Math.round(seen.memory * 100)} %: ${down}`;
  return [
    ...(seen.lateMs > limits.eventLoopMs ? [{ code: "event_loop", text: late } as const] : []),
    ...(seen.memory > limits.memory ? [{ code: "memory", text: short } as const] : []),
  ];
}

/** In steps, because a pod tells whenever it has something else to say. */
function throttled({ names, throttle, key, limit, aboutMs }: BlockedDemand): Reason {
  const of = key === "" ? `"${throttle}"` : `"${throttle}" with the key "${key}"`;
  const about = aboutMs === undefined ? "" : `, for about ${roughly(aboutMs)}`;
  const text = `${listed(names)} throttled: ${of} lets ${limit} of this pod's calls through at once${about}`;
  return { code: "throttled", text };
}

function roughly(durationMs: number): string {
  const steps = [100, 250, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
  const stepMs = steps.find((each) => durationMs <= each) ?? Infinity;
  if (stepMs === Infinity) return "some minutes";
  return stepMs < 1_000 ? `${stepMs} ms` : `${stepMs / 1_000} s`;
}

function listed(names: readonly string[]): string {
  const shown = names.slice(0, maxNamesShown).map((name) => `"${name}"`);
  const more = names.length - shown.length;
  return more > 0 ? `${shown.join(", ")} and ${more} more` : shown.join(", ");
}

/** What a pod says of itself in its row, for people on other machines. */
export type PodState = {
  /** How many tasks it takes on at most, right now. */
  readonly holds: number;
  /** Why it claims no more than it does; empty where it takes whatever comes. */
  readonly reasons: readonly Reason[];
};

type StatusPublisher = {
  /** There may be something new to say. */
  publish(): void;
  /** Resolves when what was being said is stored, so that it doesn't come after the pod has left, or soon. */
  stop(): Promise<void>;
};

const everyMs = 1_000;
const stopTimeoutMs = 1_000;

/**
 * Stores why a pod doesn't claim more: at most once a second, and only where it isn't what was stored
 * last. A pod that is never held back stores nothing.
 */
export function createStatusPublisher(parts: {
  podId: string;
  database: Database;
  clock: Clock;
  state: () => PodState;
}): StatusPublisher {
  const { podId, database, clock, state } = parts;
  let stored = JSON.stringify({ holds: state().holds, reasons: [] });
  let notBeforeMs = -Infinity;
  let writing: Promise<void> | undefined;

  const write = async (text: string): Promise<void> => {
    try {
      await database.write([updatePodState(podId, text)]);
    } catch {
      // Said with the next change: a store that is away can't be told that it is.
      stored = "";
    }
    writing = undefined;
  };
  return {
    publish() {
      if (writing || clock.monotonic() < notBeforeMs) return;
      const text = JSON.stringify(state());
      if (text === stored) return;
      stored = text;
      notBeforeMs = clock.monotonic() + everyMs;
      writing = write(text);
    },
    async stop() {
      notBeforeMs = Infinity;
      if (writing === undefined) return;
      await settledWithin(clock, stopTimeoutMs, writing);
    },
  };
}
