import type { Json } from "../../base/json.ts";
import type { ChildState, RunDecision, RunEffect, RunEvent, NewChild, Now } from "./event.ts";
import {
  attemptAt,
  withCancel,
  completeTransition,
  type DecisionDraft,
  withFailure,
  continueRun,
  recordEvent,
} from "./draft.ts";
import type { ChildrenPart, Machine, SignalPart } from "../machine.ts";
import type { RunError, RunWait } from "./run.ts";

export function startSleep(
  machine: Machine,
  draft: DecisionDraft,
  ms: number,
  now: Now,
): RunDecision {
  if (ms <= 0) return completeTransition(machine, draft, { set: null }, now);
  const { startedAtMs: sinceMs } = attemptAt(draft, now);
  return parkRun(machine, draft, { for: "sleep", sinceMs, untilMs: now.nowMs + ms }, now);
}

/** A run that was claimed during a sleep continues, or keeps sleeping if it was woken early. */
export function decideWake(machine: Machine, draft: DecisionDraft, now: Now): RunDecision {
  const { waiting } = draft.run;
  if (waiting?.for === "sleep" && now.nowMs < waiting.untilMs) {
    return parkRun(machine, draft, waiting, now);
  }
  return completeTransition(machine, draft, { set: null }, now);
}

export function decideSignal(
  machine: Machine,
  draft: DecisionDraft,
  part: SignalPart,
  event: Extract<RunEvent, { type: "signal_seen" | "signal_refused" }>,
  now: Now,
): RunDecision {
  const waiting = draft.run.waiting?.for === "signal" ? draft.run.waiting : beginWait(part, now);
  if (event.type === "signal_refused") {
    // The signal is dropped and the claim kept, because more signals may be stored.
    const effect: RunEffect = { type: "take_signal", signalId: event.signalId };
    return { type: "commit", ...recordWait(machine, draft, waiting, event.message, effect) };
  }
  if (event.signal) {
    const { signalId, payload } = event.signal;
    const effect: RunEffect = { type: "take_signal", signalId };
    return completeTransition(machine, draft, { set: { [part.name]: payload }, effect }, now);
  }
  if (waiting.untilMs === null || now.nowMs < waiting.untilMs) {
    return parkRun(machine, draft, waiting, now);
  }
  if (part.onTimeout !== "fail") {
    return completeTransition(machine, draft, { set: { [part.name]: part.onTimeout.value } }, now);
  }
  const message = `no signal "${part.name}" came within ${part.timeoutMs} ms`;
  return continueRun(withFailure(machine, draft, { code: "timeout", message }, now));
}

function beginWait(part: SignalPart, { nowMs }: Now): RunWait & { for: "signal" } {
  const untilMs = part.timeoutMs === null ? null : nowMs + part.timeoutMs;
  return { for: "signal", sinceMs: nowMs, untilMs };
}

export function startChildren(
  machine: Machine,
  draft: DecisionDraft,
  children: readonly NewChild[],
  now: Now,
): RunDecision {
  const { transition, startedAtMs: sinceMs } = attemptAt(draft, now);
  if (children.length === 0)
    return completeTransition(machine, draft, { set: { [transition]: [] } }, now);
  const effect: RunEffect = { type: "start_children", transition, children };
  return parkRun(machine, draft, { for: "children", sinceMs }, now, effect);
}

/** Continues when the last child has ended. A failed child doesn't stop the others. */
export function decideChildren(
  machine: Machine,
  draft: DecisionDraft,
  part: ChildrenPart,
  children: readonly ChildState[],
  now: Now,
): RunDecision {
  if (children.some(({ status }) => status === "open")) {
    const { startedAtMs: sinceMs } = attemptAt(draft, now);
    return parkRun(machine, draft, draft.run.waiting ?? { for: "children", sinceMs }, now);
  }
  if (part.failures === "keep") {
    return completeTransition(
      machine,
      draft,
      { set: { [part.name]: children.map(childResult) } },
      now,
    );
  }
  const failed = children.find(({ status }) => status !== "completed");
  if (failed) return continueRun(withFailure(machine, draft, childError(failed), now));
  const outputs = children.map((child): Json =>
    child.status === "completed" ? child.result : null,
  );
  return completeTransition(machine, draft, { set: { [part.name]: outputs } }, now);
}

function childResult(child: ChildState): Json {
  switch (child.status) {
    case "completed":
      return { status: "completed", output: child.result };
    case "cancelled":
      return { status: "cancelled" };
    case "failed":
      return { status: "failed", error: child.error };
    case "open":
    case "gone":
      return { status: "failed", error: childError(child) };
  }
}

function childError(child: ChildState): RunError {
  const became = {
    open: "hasn't ended",
    completed: "has completed",
    failed: `has failed: ${child.status === "failed" ? child.error.message : ""}`,
    cancelled: "was cancelled",
    gone: "was deleted",
  }[child.status];
  const message = `child run ${child.taskId} (${child.name}) ${became}`;
  return { code: "dependency_failed", message, taskId: child.taskId };
}

/** Releases the run until its wait ends. A wait that continues isn't recorded again. */
function parkRun(
  machine: Machine,
  draft: DecisionDraft,
  waiting: RunWait,
  now: Now,
  ...effects: RunEffect[]
): RunDecision {
  // A cancelled run neither waits nor starts children.
  if (now.cancelRequested) return continueRun(withCancel(machine, draft, null));
  const untilMs = waiting.for === "children" ? null : waiting.untilMs;
  const isNew = draft.run.waiting !== waiting;
  const recorded = isNew ? recordWait(machine, draft, waiting, undefined, ...effects) : draft;
  return { type: "park", untilMs, ...recorded };
}

function recordWait(
  { version }: Machine,
  draft: DecisionDraft,
  waiting: RunWait,
  message?: string,
  ...effects: RunEffect[]
): DecisionDraft {
  const untilMs = waiting.for === "children" ? null : waiting.untilMs;
  return recordEvent(
    draft,
    {
      type: "park",
      version,
      transition: draft.run.cursor!,
      waiting,
      untilMs,
      ...(message !== undefined && { message }),
    },
    ...effects,
  );
}
