import { backoffMs } from "../../base/backoff.ts";
import { deathLimit } from "../../base/death-limit.ts";
import { FlotillaError } from "../../base/errors.ts";
import {
  finalizerAfter,
  finalizerAt,
  firstFinalizer,
  type Machine,
  type FlowPart,
  partAt,
  type Tries,
} from "../machine.ts";
import type { RunDecision, RunEvent, Now } from "./event.ts";
import {
  attemptAt,
  withCancel,
  completeTransition,
  type DecisionDraft,
  draftOf,
  withFailure,
  continueRun,
  recordEvent,
} from "./draft.ts";
import { atEnd, type Run, type RunError } from "./run.ts";
import type { Thrown } from "./thrown.ts";
import { decideChildren, decideSignal, startChildren, startSleep, decideWake } from "./waits.ts";

/** Decides; never does: the next state of a run after an event. */
export function advanceRun(machine: Machine, run: Run, event: RunEvent, now: Now): RunDecision {
  if (run.cursor === null) return { type: "ignore", why: "ended" };
  if (event.type === "interrupted") return { type: "release" };
  if (event.type === "step_changed") {
    const { message } = event;
    return { type: "set_aside", reason: "step_changed", message, byVersion: machine.version };
  }
  const draft = draftOf(run);
  if (run.intent !== null) return finalize(machine, draft, event, now);
  if (run.cursor === atEnd) return decideEnd(machine, draft, event, now);
  const part = partAt(machine, run.cursor);
  if (!part) throw unexpectedEvent(run.cursor, event);
  return advancePart(machine, draft, part, event, now);
}

function advancePart(
  machine: Machine,
  draft: DecisionDraft,
  part: FlowPart,
  event: RunEvent,
  now: Now,
): RunDecision {
  const cancelled = (reason: string | null) => continueRun(withCancel(machine, draft, reason));
  const failed = (error: RunError) => continueRun(withFailure(machine, draft, error, now));

  if (event.type === "cancel_requested") return cancelled(event.reason);
  if (event.type === "unmet") return failed(event.error);
  const thrown = thrownBy(event, part.name);
  if (thrown) {
    // A transition that throws after a cancel throws because of the cancel.
    if (now.cancelRequested) return cancelled(null);
    if (thrown.type === "cancel") return cancelled(thrown.reason);
    const tries = part.kind === "signal" ? machine.tries : part.tries;
    return retryOrFail(draft, tries, thrown, now, failed);
  }
  switch (part.kind) {
    case "work":
      if (event.type === "returned") {
        const { set, output } = event;
        const intent = output === undefined ? undefined : ({ type: "completed", output } as const);
        return completeTransition(machine, draft, { set, ...(intent && { intent }) }, now);
      }
      if (event.type === "handed_off") {
        const intent = { type: "completed", output: event.output } as const;
        return completeTransition(machine, draft, { set: null, intent }, now);
      }
      break;
    case "sleep":
      if (event.type === "sleep_requested") return startSleep(machine, draft, event.ms, now);
      if (event.type === "woken") return decideWake(machine, draft, now);
      break;
    case "signal":
      if (event.type === "signal_seen" || event.type === "signal_refused") {
        return decideSignal(machine, draft, part, event, now);
      }
      break;
    case "children":
      if (event.type === "children_requested") {
        return startChildren(machine, draft, event.children, now);
      }
      if (event.type === "children_seen") {
        return decideChildren(machine, draft, part, event.children, now);
      }
      break;
  }
  throw unexpectedEvent(part.name, event);
}

/** No transition is left, but there is no intent yet: the state must be checked against the output. */
function decideEnd(machine: Machine, draft: DecisionDraft, event: RunEvent, now: Now): RunDecision {
  if (event.type === "cancel_requested") return { type: "ignore", why: "ending" };
  const thrown = thrownBy(event, atEnd);
  if (thrown) {
    const failed = (error: RunError) => continueRun(withFailure(machine, draft, error, now));
    if (thrown.type === "cancel") return continueRun(withCancel(machine, draft, thrown.reason));
    // The state doesn't change, so the schema would refuse it again.
    const isFinal = thrown.type === "retry" && thrown.error.code === "invalid_output";
    return isFinal ? failed(thrown.error) : retryOrFail(draft, machine.tries, thrown, now, failed);
  }
  if (event.type !== "concluded") throw unexpectedEvent(atEnd, event);
  const { output } = event;
  return continueRun(
    recordEvent(draft, {
      type: "complete",
      version: machine.version,
      transition: atEnd,
      attempt: draft.run.failures + 1,
      startedAtMs: now.startedAtMs,
      set: null,
      next: firstFinalizer(machine),
      intent: { type: "completed", ...(output !== undefined && { output }) },
    }),
  );
}

function unexpectedEvent(cursor: string, { type }: RunEvent): FlotillaError {
  return new FlotillaError("internal", `"${type}" can't happen to a run at "${cursor}"`);
}

/**
 * Decides on a run whose intent is set. Finalizers can't change the intent, and a cancel doesn't stop
 * them. If one is out of attempts, its error is recorded, and the next one runs.
 */
function finalize(machine: Machine, draft: DecisionDraft, event: RunEvent, now: Now): RunDecision {
  if (event.type === "cancel_requested") return { type: "ignore", why: "ending" };
  const { cursor } = draft.run;
  if (cursor === atEnd) return continueRun(draft);
  const finalizer = finalizerAt(machine, cursor);
  const { version } = machine;
  const thrown = thrownBy(event, cursor!);
  if (!finalizer || (!thrown && event.type !== "finalized")) {
    throw new FlotillaError(
      "internal",
      `"${event.type}" can't happen to a run that ends, at "${cursor}"`,
    );
  }
  const attempt = attemptAt(draft, now);
  const next = finalizerAfter(machine, finalizer.name);
  if (!thrown)
    return continueRun(
      recordEvent(draft, { type: "complete", version, ...attempt, set: null, next }),
    );
  const failed = (error: RunError) =>
    continueRun(
      recordEvent(draft, { type: "error", version, ...attempt, error, retryAtMs: null, next }),
    );
  // There is nothing left to cancel, so it counts as a failure of the finalizer.
  if (thrown.type === "cancel") return failed({ code: "cancelled", message: thrown.reason });
  return retryOrFail(draft, finalizer.tries, thrown, now, failed);
}

/** A failed attempt as something thrown; undefined for other events. */
function thrownBy(event: RunEvent, transition: string): Thrown | undefined {
  if (event.type === "threw") return event.thrown;
  if (event.type === "timed_out") {
    const message = `the attempt took longer than ${event.timeoutMs} ms`;
    return { type: "retry", error: { code: "timeout", message }, retryAfterMs: 0 };
  }
  if (event.type !== "poisoned") return undefined;
  const message = `${deathLimit} pods have died while they ran "${transition}"`;
  return { type: "fail", error: { code: "pod_died", message } };
}

/** Retries while there are attempts left. `giveUp` differs between transitions and finalizers. */
function retryOrFail(
  draft: DecisionDraft,
  tries: Tries,
  thrown: Exclude<Thrown, { type: "cancel" }>,
  now: Now,
  giveUp: (error: RunError) => RunDecision,
): RunDecision {
  // Neither a retry nor a snooze advances the run, so it keeps its version, and older pods may claim it.
  const { version } = draft.run;
  const { attempt, transition, startedAtMs } = attemptAt(draft, now);
  if (thrown.type === "snooze") {
    const untilMs = now.nowMs + thrown.delayMs;
    const { message } = thrown;
    const event = { type: "park", version, transition, waiting: null, untilMs, message } as const;
    return { type: "park", untilMs, ...recordEvent(draft, event) };
  }
  const { error } = thrown;
  if (thrown.type === "fail" || attempt >= tries.attempts) return giveUp(error);
  const waitMs = Math.max(backoffMs(attempt, now.random, tries.backoff), thrown.retryAfterMs);
  const retryAtMs = now.nowMs + waitMs;
  const recorded = recordEvent(draft, {
    type: "error",
    version,
    transition,
    attempt,
    startedAtMs,
    error,
    retryAtMs,
    next: transition,
  });
  return { type: "retry", untilMs: retryAtMs, ...recorded };
}
