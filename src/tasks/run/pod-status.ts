import type { Clock } from "../../base/clock.ts";
import { settledWithin } from "../../base/timeout.ts";
import { updatePodState } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import type { Priority } from "../../throttles/limiter/priority.ts";
import {
  type Capacity,
  capacityOf,
  type PressureLimits,
  type Overload,
} from "../claim/capacity.ts";
import type { BlockedDemand } from "../claim/throttle-gate.ts";
import type { TaskHandler } from "../model.ts";

/** Why a pod does not claim more tasks. */
export const reasonCodes = [
  "stopping",
  "drained",
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

/** The state of a worker that `reasonsOf` decides by. */
export type WorkerFacts = {
  readonly stopping: boolean;
  /** Set while an operator wants it to take no more work. */
  readonly drain: DrainState | undefined;
  readonly storeAway: boolean;
  readonly outboxFull: boolean;
  /** All names of the pod are paused, or only `pausedNames`. */
  readonly allPaused: boolean;
  readonly pausedNames: readonly string[];
  readonly alone: boolean;
  readonly draining: boolean;
  readonly held: number;
  readonly capacity: Capacity;
  /** What lowers its capacity, if anything does. */
  readonly overload: Overload | undefined;
  readonly limits: PressureLimits | undefined;
  /** Names that use all their slots. */
  readonly fullNames: readonly string[];
  /** Names whose throttle has no permit for blocked tasks. */
  readonly blockedDemand: readonly BlockedDemand[];
};

/** Whether a pod that is to take no more work still has some. */
export type DrainState = "draining" | "drained";

/** The state that a pod stores in its row, for operators. */
export type PodState = {
  /** How many tasks it holds at most, right now. */
  readonly holds: number;
  /** Set while an operator wants it to take no more work. */
  readonly drain?: DrainState;
  /** Why it claims no more tasks; empty if it takes every task. */
  readonly reasons: readonly Reason[];
};

/** The throttle of a name's tasks, and the priority if it is not the default. */
export type ThrottleOfName = {
  readonly name: string;
  readonly key: string | null;
  readonly priority?: Priority;
};

type StatusPublisher = {
  /** The state may have changed. */
  publish(): void;
  /**
   * Resolves when the write in flight is stored, so that it does not land after the pod has left,
   * or after a short timeout.
   */
  stop(): Promise<void>;
};

const maxNamesShown = 5;
const everyMs = 1_000;
const stopTimeoutMs = 1_000;

const drainTexts: Readonly<Record<DrainState, string>> = {
  draining: "draining: what it has begun goes on",
  drained: "drained: takes no work until it is undrained",
};

/** The only place that decides why a pod claims no more. Empty if the pod takes every task. */
export function reasonsOf(facts: WorkerFacts): Reason[] {
  const holds = capacityOf(facts.capacity);
  const { overload, limits } = facts;
  const reasons: (Reason | false | undefined)[] = [
    facts.stopping && { code: "stopping", text: "stopping" },
    facts.drain && { code: "drained", text: drainTexts[facts.drain] },
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

/** The flows that a pod handles, and their versions. */
export function flowsOf(handlers: Iterable<TaskHandler>): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const { name, flow } of handlers) if (flow) found.set(name, flow.version);
  return found;
}

/** The tasks with a version that a pod handles. */
export function versionsOf(handlers: Iterable<TaskHandler>): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const { name, version } of handlers) if (version !== undefined) found.set(name, version);
  return found;
}

/** The throttles of a pod's handlers, for its metadata. */
export function throttlesOf(handlers: Iterable<TaskHandler>): Record<string, ThrottleOfName> {
  const found: Record<string, ThrottleOfName> = {};
  for (const { name, throttle } of handlers) {
    // The state of a local throttle is known only to its pod.
    if (!throttle || throttle.declared.settings.mode === "local") continue;
    const { declared, key, priority } = throttle;
    found[name] = {
      name: declared.name,
      key: typeof key === "string" ? key : null,
      ...(priority && { priority }),
    };
  }
  return found;
}

/**
 * Stores why a pod claims no more: at most once a second, and only when it changed. A pod that is
 * never held back stores nothing.
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
      // The state is stored with the next change; an unavailable store cannot be updated.
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

/**
 * After the overload has passed, the capacity grows back slowly, and the reason stays until then.
 */
function overloadReasons(
  { pressure, hasPassed }: Overload,
  limits: PressureLimits,
  holds: number,
): Reason[] {
  const was = hasPassed ? "was " : "";
  const down = `at most ${holds} for now`;
  const late = `event loop ${was}late ${Math.round(pressure.lateMs)} ms: ${down}`;
  const short = `memory ${was}${Math.round(pressure.memory * 100)} %: ${down}`;
  return [
    ...(pressure.lateMs > limits.eventLoopMs ? [{ code: "event_loop", text: late } as const] : []),
    ...(pressure.memory > limits.memory ? [{ code: "memory", text: short } as const] : []),
  ];
}

/** The time is rounded to steps, because the pod stores its state whenever the text changes. */
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

/** What a pod says of its handlers in the table of pods. */
export function handlerMetadata(handlers: readonly TaskHandler[]) {
  return {
    names: handlers.map(({ name }) => name),
    flows: Object.fromEntries(flowsOf(handlers)),
    versions: Object.fromEntries(versionsOf(handlers)),
    throttles: throttlesOf(handlers),
    followUps: handlers.filter((each) => each.onFailure).map(({ name }) => name),
  };
}
