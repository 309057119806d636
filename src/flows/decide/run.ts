import type { Json } from "../../base/json.ts";
import type { TaskError } from "../../tasks/rows.ts";

/** What transitions have returned so far, merged, as JSON. */
export type State = Readonly<Record<string, Json>>;

/** Why a run failed, as stored. */
export type RunError = TaskError & {
  /** Set by `unrecoverable`: whose fault it is. */
  readonly by?: "system" | "user";
};

/** How a run is about to end. It is set before the finalizers run, and they don't change it. */
export type Intent =
  /** Without `output`, the result is the state. */
  | { readonly type: "completed"; readonly output?: Json }
  | { readonly type: "failed"; readonly error: RunError }
  | { readonly type: "cancelled"; readonly reason: string | null };

/** What a parked run waits for. A retry is no wait: it has only a time. */
export type RunWait = { readonly sinceMs: number } & (
  | { readonly for: "sleep"; readonly untilMs: number }
  /** Null: without a timeout. */
  | { readonly for: "signal"; readonly untilMs: number | null }
  | { readonly for: "children" }
);

/** The state of a run. All of it but `unnoted` is in its row. */
export type Run = {
  /** The highest version of the flow that has advanced it; 0 before any has. */
  readonly version: number;
  /** The transition or finalizer that is next; `atEnd` after the last; null once the run has ended. */
  readonly cursor: string | null;
  readonly state: State;
  /** Failed attempts of the part at the cursor. */
  readonly failures: number;
  /** Pods that died while they ran the part at the cursor. */
  readonly deaths: number;
  /** Null while transitions run. */
  readonly intent: Intent | null;
  readonly waiting: RunWait | null;
  /** The cursor when it failed or was cancelled. A run that is started over continues there. */
  readonly stoppedAt: string | null;
  /** Events from when it was read, to be stored with the next decision. */
  readonly unnoted: readonly HistoryEvent[];
};

/** The cursor of a run that only has to finish. No transition can have this name. */
export const atEnd = "$end";

/** The result of a run that completes. Null is an output too. */
export function outputOf(intent: Intent & { type: "completed" }, state: State): Json {
  return "output" in intent ? intent.output : state;
}

type AttemptFields = {
  readonly transition: string;
  readonly attempt: number;
  readonly startedAtMs: number;
};

/**
 * An event in the history of a run. Each event contains what it changed, so that folding all of them
 * gives the run. The store adds the time and the pod.
 */
export type HistoryEvent =
  | { readonly type: "start"; readonly version: number; readonly next: string }
  /** A later version has renamed or removed the transition at the cursor. */
  | {
      readonly type: "move";
      readonly version: number;
      readonly why: "renamed" | "removed";
      readonly from: string;
      readonly next: string;
    }
  | ({
      readonly type: "complete";
      readonly version: number;
      /** What it added to the state; null where it added nothing. */
      readonly set: State | null;
      readonly next: string;
      readonly intent?: Intent;
    } & AttemptFields)
  | ({
      readonly type: "error";
      readonly version: number;
      readonly error: RunError;
      /** When it is retried; null where it isn't. */
      readonly retryAtMs: number | null;
      readonly next: string;
      readonly intent?: Intent;
    } & AttemptFields)
  | {
      readonly type: "park";
      readonly version: number;
      readonly transition: string;
      readonly waiting: RunWait | null;
      readonly untilMs: number | null;
      /** The reason of a snooze, or of a refused signal. */
      readonly message?: string;
    }
  | {
      readonly type: "cancel";
      readonly version: number;
      readonly transition: string;
      readonly next: string;
      readonly intent: Intent;
    }
  | { readonly type: "finish"; readonly version: number; readonly status: Intent["type"] }
  /** The first step that an attempt has stored: attempts and deaths count from there. */
  | { readonly type: "stepped"; readonly version: number; readonly transition: string }
  /** It couldn't be read, and was left unchanged. */
  | {
      readonly type: "set_aside";
      readonly reason: "unreadable" | "unknown_transition" | "invalid_input" | "step_changed";
      readonly message: string;
      readonly byVersion: number;
    }
  /** A caller cancelled it while it was set aside: it ended without its finalizers. */
  | { readonly type: "given_up" }
  /** A caller resumed it, for this version. */
  | { readonly type: "resume"; readonly version: number }
  /** Written by the leader's recovery, not by a decision. */
  | { readonly type: "pod_died" }
  /** It had failed or was cancelled, and was started over from there. */
  | { readonly type: "retried" }
  | { readonly type: "redriven" };

/** A run that no version has advanced yet. */
export const newRun: Run = {
  version: 0,
  cursor: null,
  state: {},
  failures: 0,
  deaths: 0,
  intent: null,
  waiting: null,
  stoppedAt: null,
  unnoted: [],
};

/** The run after all events of its history. */
export function fold(events: readonly HistoryEvent[]): Run {
  return events.reduce(applyEvent, newRun);
}

/**
 * The run after one more event. Decisions use the same function, so that a run can't change without an
 * event in its history.
 */
export function applyEvent(run: Run, event: HistoryEvent): Run {
  if (event.type === "pod_died") return { ...run, deaths: run.deaths + 1 };
  if (event.type === "set_aside" || event.type === "given_up") return run;
  if (event.type === "retried" || event.type === "redriven") {
    // A run that was cancelled while it was set aside keeps its cursor, wherever it had stopped before.
    const { cursor, stoppedAt, intent } = run;
    const stands = intent === null && cursor !== null;
    return { ...movedTo(run, stands ? cursor : (stoppedAt ?? cursor)), intent: null };
  }
  const { version } = event;
  switch (event.type) {
    case "start":
      // Deaths are kept: pods may have died with the run before one stored its start.
      return { ...run, version, cursor: event.next };
    case "move": {
      const { next } = event;
      return event.why === "renamed"
        ? { ...run, version, cursor: next }
        : movedTo({ ...run, version }, next);
    }
    case "complete": {
      const state = event.set === null ? run.state : { ...run.state, ...event.set };
      return movedTo({ ...run, version, state, intent: event.intent ?? run.intent }, event.next);
    }
    case "error":
      return event.retryAtMs === null
        ? movedTo(stoppedBy(event, { ...run, version }), event.next)
        : { ...run, version, failures: event.attempt, waiting: null };
    case "park":
      return { ...run, version, waiting: event.waiting };
    case "cancel":
      return movedTo(stoppedBy(event, { ...run, version }), event.next);
    case "finish":
      return { ...movedTo(run, null), version };
    case "stepped":
      return { ...run, version, failures: 0, deaths: 0 };
    case "resume":
      return { ...run, version };
  }
}

/** An event of a finalizer has no intent: the run was stopped before. */
function stoppedBy({ transition, intent }: { transition: string; intent?: Intent }, run: Run): Run {
  return intent === undefined ? run : { ...run, intent, stoppedAt: transition };
}

/** Attempts, deaths and waits belong to the part at the cursor, so a move resets them. */
function movedTo(run: Run, cursor: string | null): Run {
  return { ...run, cursor, failures: 0, deaths: 0, waiting: null };
}

/** An event's row, without its number, its time and its pod. */
export type EventRow = {
  readonly type: string;
  readonly attempt: number | null;
  /** The other fields, as JSON. */
  readonly detail: string | null;
};

const eventTypes: ReadonlySet<string> = new Set<HistoryEvent["type"]>([
  "start",
  "move",
  "complete",
  "error",
  "park",
  "cancel",
  "finish",
  "stepped",
  "set_aside",
  "given_up",
  "resume",
  "pod_died",
  "retried",
  "redriven",
]);

export function toEventRow(event: HistoryEvent): EventRow {
  const { type, ...rest } = event;
  if (!("attempt" in rest)) return { type, attempt: null, detail: JSON.stringify(rest) };
  const { attempt, ...detail } = rest;
  return { type, attempt, detail: JSON.stringify(detail) };
}

/** Parses a run's history. Runs also have events of tasks, which don't change the run. */
export function toHistory(rows: readonly EventRow[]): HistoryEvent[] {
  return rows.flatMap(({ type, attempt, detail }) => {
    if (!eventTypes.has(type)) return [];
    // These are written for tasks too, so their `attempt` is the task's, and is left out.
    if (type === "pod_died" || type === "retried" || type === "redriven") return [{ type }];
    if (type === "given_up") return [{ type }];
    const rest = JSON.parse(detail ?? "{}") as object;
    return [{ type, ...(attempt !== null && { attempt }), ...rest } as HistoryEvent];
  });
}
