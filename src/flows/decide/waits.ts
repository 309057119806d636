import type { Json } from "../../base/json.ts";
import type { ChildSeen, Decision, Effect, Happened, NewChild, Now } from "./event.ts";
import { attemptAt, cancelling, done, type Draft, failing, goOn, note } from "./draft.ts";
import type { ChildrenPart, Machine, SignalPart } from "../machine.ts";
import type { RunError, Waiting } from "./run.ts";

export function startSleep(machine: Machine, draft: Draft, ms: number, now: Now): Decision {
  if (ms <= 0) return done(machine, draft, { set: null }, now);
  const { startedAtMs: sinceMs } = attemptAt(draft, now);
  return parked(machine, draft, { for: "sleep", sinceMs, untilMs: now.nowMs + ms }, now);
}

/** A run that was claimed while it slept goes on, or sleeps on if it was woken before its time. */
export function wake(machine: Machine, draft: Draft, now: Now): Decision {
  const { waiting } = draft.run;
  if (waiting?.for === "sleep" && now.nowMs < waiting.untilMs) {
    return parked(machine, draft, waiting, now);
  }
  return done(machine, draft, { set: null }, now);
}

export function seeSignal(
  machine: Machine,
  draft: Draft,
  part: SignalPart,
  seen: Extract<Happened, { type: "signal_seen" | "signal_refused" }>,
  now: Now,
): Decision {
  const waiting = draft.run.waiting?.for === "signal" ? draft.run.waiting : begin(part, now);
  if (seen.type === "signal_refused") {
    // It is dropped, and the claim kept: others may have come behind it.
    const effect: Effect = { type: "take_signal", signalId: seen.signalId };
    return { type: "commit", ...waitingFor(machine, draft, waiting, seen.message, effect) };
  }
  if (seen.signal) {
    const { signalId, payload } = seen.signal;
    const effect: Effect = { type: "take_signal", signalId };
    return done(machine, draft, { set: { [part.name]: payload }, effect }, now);
  }
  if (waiting.untilMs === null || now.nowMs < waiting.untilMs) {
    return parked(machine, draft, waiting, now);
  }
  if (part.onTimeout !== "fail") {
    return done(machine, draft, { set: { [part.name]: part.onTimeout.value } }, now);
  }
  const message = `no signal "${part.name}" came within ${part.timeoutMs} ms`;
  return goOn(failing(machine, draft, { code: "timeout", message }, now));
}

function begin(part: SignalPart, { nowMs }: Now): Waiting & { for: "signal" } {
  const untilMs = part.timeoutMs === null ? null : nowMs + part.timeoutMs;
  return { for: "signal", sinceMs: nowMs, untilMs };
}

export function startChildren(
  machine: Machine,
  draft: Draft,
  children: readonly NewChild[],
  now: Now,
): Decision {
  const { transition, startedAtMs: sinceMs } = attemptAt(draft, now);
  if (children.length === 0) return done(machine, draft, { set: { [transition]: [] } }, now);
  const effect: Effect = { type: "start_children", transition, children };
  return parked(machine, draft, { for: "children", sinceMs }, now, effect);
}

/** Goes on when the last child has ended. That one has failed doesn't cut the others short. */
export function seeChildren(
  machine: Machine,
  draft: Draft,
  part: ChildrenPart,
  children: readonly ChildSeen[],
  now: Now,
): Decision {
  if (children.some(({ status }) => status === "open")) {
    const { startedAtMs: sinceMs } = attemptAt(draft, now);
    return parked(machine, draft, draft.run.waiting ?? { for: "children", sinceMs }, now);
  }
  if (part.failures === "keep") {
    return done(machine, draft, { set: { [part.name]: children.map(kept) } }, now);
  }
  const culprit = children.find(({ status }) => status !== "completed");
  if (culprit) return goOn(failing(machine, draft, childError(culprit), now));
  const outputs = children.map((child): Json =>
    child.status === "completed" ? child.result : null,
  );
  return done(machine, draft, { set: { [part.name]: outputs } }, now);
}

function kept(child: ChildSeen): Json {
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

function childError(child: ChildSeen): RunError {
  const became = {
    open: "hasn't ended",
    completed: "has completed",
    failed: `has failed: ${child.status === "failed" ? child.error.message : ""}`,
    cancelled: "was cancelled",
    gone: "isn't there any more",
  }[child.status];
  const message = `child run ${child.taskId} (${child.name}) ${became}`;
  return { code: "dependency_failed", message, taskId: child.taskId };
}

/** Gives the run back until what it waits for is there. A wait that goes on isn't noted again. */
function parked(
  machine: Machine,
  draft: Draft,
  waiting: Waiting,
  now: Now,
  ...effects: Effect[]
): Decision {
  // Nothing that a cancelled run waits for is wanted any more, nor what it was about to start.
  if (now.cancelRequested) return goOn(cancelling(machine, draft, null));
  const untilMs = waiting.for === "children" ? null : waiting.untilMs;
  const isNew = draft.run.waiting !== waiting;
  const noted = isNew ? waitingFor(machine, draft, waiting, undefined, ...effects) : draft;
  return { type: "park", untilMs, ...noted };
}

function waitingFor(
  { version }: Machine,
  draft: Draft,
  waiting: Waiting,
  message?: string,
  ...effects: Effect[]
): Draft {
  const untilMs = waiting.for === "children" ? null : waiting.untilMs;
  return note(
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
