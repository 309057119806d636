import { backoffMs } from "../../base/backoff.ts";
import { deathLimit } from "../../base/death-limit.ts";
import type { Decision } from "./decision.ts";
import { attemptAt, type Draft, note } from "./draft.ts";
import type { Happened, Now } from "./event.ts";
import type { Tries } from "../machine.ts";
import type { RunError } from "./run.ts";
import type { Thrown } from "./thrown.ts";

/** What an attempt that brought nothing amounts to; undefined where it was none of those. */
export function thrownBy(happened: Happened, transition: string): Thrown | undefined {
  if (happened.type === "threw") return happened.thrown;
  if (happened.type === "timed_out") {
    const message = `the attempt took longer than ${happened.timeoutMs} ms`;
    return { type: "retry", error: { code: "timeout", message }, retryAfterMs: 0 };
  }
  if (happened.type !== "poisoned") return undefined;
  const message = `${deathLimit} pods have died while they ran "${transition}"`;
  return { type: "fail", error: { code: "pod_died", message } };
}

/** Tries again while that is allowed. What to do otherwise differs between transitions and finalizers. */
export function tryAgain(
  draft: Draft,
  tries: Tries,
  thrown: Exclude<Thrown, { type: "cancel" }>,
  now: Now,
  giveUp: (error: RunError) => Decision,
): Decision {
  // Neither a retry nor a snooze advances the run, so pods of its version may have it again.
  const { version } = draft.run;
  const { attempt, transition, startedAtMs } = attemptAt(draft, now);
  if (thrown.type === "snooze") {
    const untilMs = now.nowMs + thrown.delayMs;
    const { message } = thrown;
    const event = { type: "park", version, transition, waiting: null, untilMs, message } as const;
    return { type: "park", untilMs, ...note(draft, event) };
  }
  const { error } = thrown;
  if (thrown.type === "fail" || attempt >= tries.attempts) return giveUp(error);
  const waitMs = Math.max(backoffMs(attempt, now.random, tries.backoff), thrown.retryAfterMs);
  const retryAtMs = now.nowMs + waitMs;
  const noted = note(draft, {
    type: "error",
    version,
    transition,
    attempt,
    startedAtMs,
    error,
    retryAtMs,
    next: transition,
  });
  return { type: "retry", untilMs: retryAtMs, ...noted };
}
