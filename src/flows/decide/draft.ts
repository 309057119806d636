import type { RunDecision, RunEffect, Now } from "./event.ts";
import {
  applyEvent,
  atEnd,
  type HistoryEvent,
  type Intent,
  outputOf,
  type Run,
  type RunError,
  type State,
} from "./run.ts";
import { firstFinalizer, type Machine, partAfter } from "../machine.ts";

/** An unfinished decision: the events and effects so far, and the run after them. */
export type DecisionDraft = {
  readonly run: Run;
  readonly events: readonly HistoryEvent[];
  readonly effects: readonly RunEffect[];
};

export function draftOf(run: Run): DecisionDraft {
  return { run: { ...run, unnoted: [] }, events: run.unnoted, effects: [] };
}

export function recordEvent(
  draft: DecisionDraft,
  event: HistoryEvent,
  ...effects: RunEffect[]
): DecisionDraft {
  return {
    run: applyEvent(draft.run, event),
    events: [...draft.events, event],
    effects: [...draft.effects, ...effects],
  };
}

/** The attempt at the cursor's part. A wait began when the run was parked, however often it is claimed. */
export function attemptAt({ run }: DecisionDraft, now: Now) {
  return {
    transition: run.cursor!,
    attempt: run.failures + 1,
    startedAtMs: run.waiting?.sinceMs ?? now.startedAtMs,
  };
}

export type Completion = {
  readonly set: State | null;
  /** Set where the transition ends the run. */
  readonly intent?: Intent;
  readonly effect?: RunEffect;
};

/** A transition is done: the cursor moves to the next one. */
export function withCompletion(
  machine: Machine,
  draft: DecisionDraft,
  done: Completion,
  now: Now,
): DecisionDraft {
  const attempt = attemptAt(draft, now);
  const following = partAfter(machine, attempt.transition);
  // An output with a schema must be checked first: until then the run has no intent at the end.
  const reached: Intent | undefined =
    following === atEnd && !machine.output ? { type: "completed" } : undefined;
  const intent = done.intent ?? reached;
  const event: HistoryEvent = {
    type: "complete",
    version: machine.version,
    ...attempt,
    set: done.set,
    next: intent ? firstFinalizer(machine) : following,
    ...(intent && { intent }),
  };
  return recordEvent(draft, event, ...(done.effect ? [done.effect] : []));
}

/** The run fails: the cursor moves to the finalizers. */
export function withFailure(
  machine: Machine,
  draft: DecisionDraft,
  error: RunError,
  now: Now,
): DecisionDraft {
  return recordEvent(draft, {
    type: "error",
    version: machine.version,
    ...attemptAt(draft, now),
    error,
    retryAtMs: null,
    next: firstFinalizer(machine),
    intent: { type: "failed", error },
  });
}

export function withCancel(
  machine: Machine,
  draft: DecisionDraft,
  reason: string | null,
): DecisionDraft {
  const { cursor, waiting } = draft.run;
  const event: HistoryEvent = {
    type: "cancel",
    version: machine.version,
    transition: cursor!,
    next: firstFinalizer(machine),
    intent: { type: "cancelled", reason },
  };
  const isParent = waiting?.for === "children";
  return recordEvent(
    draft,
    event,
    ...(isParent ? [{ type: "cancel_children", transition: cursor! } as const] : []),
  );
}

/** A transition is done. The run continues with the next one, unless a cancel was requested. */
export function completeTransition(
  machine: Machine,
  draft: DecisionDraft,
  what: Completion,
  now: Now,
): RunDecision {
  const completed = withCompletion(machine, draft, what, now);
  // After the last transition a cancel comes too late.
  const isOpen = completed.run.intent === null && completed.run.cursor !== atEnd;
  return continueRun(
    isOpen && now.cancelRequested ? withCancel(machine, completed, null) : completed,
  );
}

/** Commits the draft, or finishes the run where nothing is left. */
export function continueRun(draft: DecisionDraft): RunDecision {
  const { intent, cursor, version } = draft.run;
  if (intent === null || cursor !== atEnd) return { type: "commit", ...draft };
  const finished = recordEvent(draft, { type: "finish", version, status: intent.type });
  const { state } = finished.run;
  switch (intent.type) {
    case "completed": {
      const result = outputOf(intent, state);
      return { type: "finish", status: "completed", result, error: null, ...finished };
    }
    case "failed":
      return { type: "finish", status: "failed", result: null, error: intent.error, ...finished };
    case "cancelled": {
      const { reason } = intent;
      const error = reason === null ? null : { code: "cancelled", message: reason };
      return { type: "finish", status: "cancelled", result: null, error, ...finished };
    }
  }
}
