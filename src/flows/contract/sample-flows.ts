import { seededRandom } from "../../base/random.ts";
import type { RunDecision, Now } from "../decide/event.ts";
import { type Flow, flow } from "../flow.ts";
import type { Run, State } from "../decide/run.ts";
import type { Thrown } from "../decide/thrown.ts";

/** Moments of runs, for tests that decide about them. */
export const now: Now = {
  nowMs: 10_000,
  startedAtMs: 9_000,
  random: seededRandom(1),
  cancelRequested: false,
};

export const cancelling: Now = { ...now, cancelRequested: true };

const backoff = { baseMs: 1_000, factor: 2, maxMs: 60_000, jitter: 0 };

/** One of each kind, and two finalizers. */
export const order: Flow = flow("order", { version: 2, attempts: 3, backoff })
  .to("reserve", () => ({ reserved: true }))
  .sleep("cool", 5_000)
  .signal("approval", { timeoutMs: 60_000 })
  .children("parcels", () => [])
  .to("ship", { attempts: 1 }, () => ({ shipped: true }))
  .finally("release", { attempts: 2 }, () => {})
  .finally("report", () => {})
  .end();

/** Without finalizers, and its result is its state. */
export const plain: Flow = flow("plain", { version: 1, attempts: 3, backoff })
  .to("one", () => {})
  .to("two", () => {})
  .end();

export function runAt(cursor: string | null, over: Partial<Run> = {}): Run {
  return {
    version: 1,
    cursor,
    state: {},
    failures: 0,
    deaths: 0,
    intent: null,
    waiting: null,
    stoppedAt: null,
    unnoted: [],
    ...over,
  };
}

export function threw(message = "broken", retryAfterMs = 0): { type: "threw"; thrown: Thrown } {
  const error = { code: "handler_failed", message };
  return { type: "threw", thrown: { type: "retry", error, retryAfterMs } };
}

export const aborted: { type: "threw"; thrown: Thrown } = {
  type: "threw",
  thrown: { type: "fail", error: { code: "aborted", message: "no" } },
};

export function returned(set: State | null = null) {
  return { type: "returned", set } as const;
}

/** A decision that is stored. */
export function stored(decision: RunDecision): Extract<RunDecision, { run: Run }> {
  if ("run" in decision) return decision;
  throw new Error(`${decision.type} stores nothing`);
}
