import { backoffMs } from "../../base/backoff.ts";
import { deathLimit } from "../../base/death-limit.ts";
import { FlotillaError } from "../../base/errors.ts";
import {
  finalizerAfter,
  finalizerAt,
  firstFinalizer,
  type Machine,
  type Part,
  partAt,
  type Tries,
} from "../machine.ts";
import type { Decision, Happened, Now } from "./event.ts";
import { attemptAt, cancelling, done, type Draft, draftOf, failing, goOn, note } from "./draft.ts";
import { atEnd, type Run, type RunError } from "./run.ts";
import type { Thrown } from "./thrown.ts";
import { seeChildren, seeSignal, startChildren, startSleep, wake } from "./waits.ts";

/** Decides; never does. What is to become of a run after something has happened to it. */
export function advance(machine: Machine, run: Run, happened: Happened, now: Now): Decision {
  if (run.cursor === null) return { type: "ignore", why: "ended" };
  if (happened.type === "interrupted") return { type: "release" };
  const draft = draftOf(run);
  if (run.intent !== null) return finalize(machine, draft, happened, now);
  if (run.cursor === atEnd) return conclude(machine, draft, happened, now);
  const part = partAt(machine, run.cursor);
  if (!part) throw misplaced(run.cursor, happened);
  return advancePart(machine, draft, part, happened, now);
}

function advancePart(
  machine: Machine,
  draft: Draft,
  part: Part,
  happened: Happened,
  now: Now,
): Decision {
  const cancelled = (reason: string | null) => goOn(cancelling(machine, draft, reason));
  const failed = (error: RunError) => goOn(failing(machine, draft, error, now));

  if (happened.type === "cancel_asked") return cancelled(happened.reason);
  if (happened.type === "unmet") return failed(happened.error);
  const thrown = thrownBy(happened, part.name);
  if (thrown) {
    // Whatever a transition throws that was told to stop, it is because it was told to.
    if (now.cancelRequested) return cancelled(null);
    if (thrown.type === "cancel") return cancelled(thrown.reason);
    const tries = part.kind === "signal" ? machine.tries : part.tries;
    return tryAgain(draft, tries, thrown, now, failed);
  }
  switch (part.kind) {
    case "work":
      if (happened.type === "returned") {
        const { set, output } = happened;
        const intent = output === undefined ? undefined : ({ type: "completed", output } as const);
        return done(machine, draft, { set, ...(intent && { intent }) }, now);
      }
      if (happened.type === "handed_off") {
        const intent = { type: "completed", output: happened.output } as const;
        return done(machine, draft, { set: null, intent }, now);
      }
      break;
    case "sleep":
      if (happened.type === "sleep_asked") return startSleep(machine, draft, happened.ms, now);
      if (happened.type === "woken") return wake(machine, draft, now);
      break;
    case "signal":
      if (happened.type === "signal_seen" || happened.type === "signal_refused") {
        return seeSignal(machine, draft, part, happened, now);
      }
      break;
    case "children":
      if (happened.type === "children_asked") {
        return startChildren(machine, draft, happened.children, now);
      }
      if (happened.type === "children_seen") {
        return seeChildren(machine, draft, part, happened.children, now);
      }
      break;
  }
  throw misplaced(part.name, happened);
}

/** No transition is left, but the ending isn't set: the state has yet to be held to the output. */
function conclude(machine: Machine, draft: Draft, happened: Happened, now: Now): Decision {
  if (happened.type === "cancel_asked") return { type: "ignore", why: "ending" };
  const thrown = thrownBy(happened, atEnd);
  if (thrown) {
    const failed = (error: RunError) => goOn(failing(machine, draft, error, now));
    if (thrown.type === "cancel") return goOn(cancelling(machine, draft, thrown.reason));
    // The state stays what it is, so what the schema has refused it would refuse again.
    const isFinal = thrown.type === "retry" && thrown.error.code === "invalid_output";
    return isFinal ? failed(thrown.error) : tryAgain(draft, machine.tries, thrown, now, failed);
  }
  if (happened.type !== "concluded") throw misplaced(atEnd, happened);
  const { output } = happened;
  return goOn(
    note(draft, {
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

function misplaced(cursor: string, { type }: Happened): FlotillaError {
  return new FlotillaError("internal", `"${type}" can't happen to a run at "${cursor}"`);
}

/**
 * What is to become of a run whose ending is set. Finalizers can't change that ending any more, and
 * nobody can keep them from running: one that is out of attempts is noted, and the next runs.
 */
function finalize(machine: Machine, draft: Draft, happened: Happened, now: Now): Decision {
  if (happened.type === "cancel_asked") return { type: "ignore", why: "ending" };
  const { cursor } = draft.run;
  if (cursor === atEnd) return goOn(draft);
  const finalizer = finalizerAt(machine, cursor);
  const { version } = machine;
  const thrown = thrownBy(happened, cursor!);
  if (!finalizer || (!thrown && happened.type !== "finalized")) {
    throw new FlotillaError(
      "internal",
      `"${happened.type}" can't happen to a run that ends, at "${cursor}"`,
    );
  }
  const attempt = attemptAt(draft, now);
  const next = finalizerAfter(machine, finalizer.name);
  if (!thrown) return goOn(note(draft, { type: "complete", version, ...attempt, set: null, next }));
  const failed = (error: RunError) =>
    goOn(note(draft, { type: "error", version, ...attempt, error, retryAtMs: null, next }));
  // There is nothing left to cancel: the finalizer has only said that it gives up.
  if (thrown.type === "cancel") return failed({ code: "cancelled", message: thrown.reason });
  return tryAgain(draft, finalizer.tries, thrown, now, failed);
}

/** What an attempt that brought nothing amounts to; undefined where it was none of those. */
function thrownBy(happened: Happened, transition: string): Thrown | undefined {
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
function tryAgain(
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
