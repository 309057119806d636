import type { Json } from "../../base/json.ts";
import type { TaskError } from "../../tasks/rows.ts";

/** What transitions have returned so far, merged, as it comes from the store. */
export type State = Readonly<Record<string, Json>>;

/** Why a run failed, as it is stored. */
export type RunError = TaskError & {
  /** Of `unrecoverable`: whose fault it is. */
  readonly by?: "system" | "user";
};

/** The ending that a run is led to. It is set before the finalizers run, and they don't change it. */
export type Intent =
  /** Without `output`, the result is the state. */
  | { readonly type: "completed"; readonly output?: Json }
  | { readonly type: "failed"; readonly error: RunError }
  | { readonly type: "cancelled"; readonly reason: string | null };

/** What a parked run waits for. A retry isn't among them: it has only a time. */
export type RunWait = { readonly sinceMs: number } & (
  | { readonly for: "sleep"; readonly untilMs: number }
  /** Null where it waits for as long as it takes. */
  | { readonly for: "signal"; readonly untilMs: number | null }
  | { readonly for: "children" }
);

/** Where a run stands. All of it but `unnoted` is in its row. */
export type Run = {
  /** The highest version of the flow that has advanced it; 0 before any has. */
  readonly version: number;
  /** The transition or finalizer that is next; `atEnd` behind the last; null once the run has ended. */
  readonly cursor: string | null;
  readonly state: State;
  /** Failed attempts of what is at the cursor. */
  readonly failures: number;
  /** Pods that died while they ran what is at the cursor. */
  readonly deaths: number;
  /** Null for as long as transitions run. */
  readonly intent: Intent | null;
  readonly waiting: RunWait | null;
  /** What was at the cursor when it failed or was cancelled: there it goes on if it is started over. */
  readonly stoppedAt: string | null;
  /** What happened to it when it was read, to be noted with the next decision. */
  readonly unnoted: readonly HistoryEvent[];
};

/** The cursor of a run that has nothing left but to finish. No transition can have this name. */
export const atEnd = "$end";

/** What a run that completes gives. Null is an output too. */
export function outputOf(intent: Intent & { type: "completed" }, state: State): Json {
  return "output" in intent ? intent.output : state;
}

type AttemptFields = {
  readonly transition: string;
  readonly attempt: number;
  readonly startedAtMs: number;
};

/**
 * What is noted of a run. Each event says what it changed, so that all of them together give the run
 * back; when it was noted, and by which pod, stands beside it in the store.
 */
export type HistoryEvent =
  | { readonly type: "start"; readonly version: number; readonly next: string }
  /** A later version has another name for where the run stood, or has it no more. */
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
      /** When it is tried again; null where it won't be. */
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
      /** Why, where somebody has said so: a snooze, or a signal that was refused. */
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
  /** It couldn't be read, and was left as it is. */
  | {
      readonly type: "set_aside";
      readonly reason: "unreadable" | "unknown_transition" | "invalid_input";
      readonly message: string;
      readonly byVersion: number;
    }
  /** It was set aside, and a caller has cancelled it: it ended as it was, without its finalizers. */
  | { readonly type: "given_up" }
  /** Somebody has given it to this version, or back to it, by hand. */
  | { readonly type: "resume"; readonly version: number }
  /** Noted by whoever recovers, and not by a decision. */
  | { readonly type: "pod_died" }
  /** It had failed or was cancelled, and somebody has started it over from there. */
  | { readonly type: "retried" }
  | { readonly type: "redriven" };

/** A run that nobody has advanced yet. */
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

/** The run that a history tells of. */
export function fold(events: readonly HistoryEvent[]): Run {
  return events.reduce(applyEvent, newRun);
}

/**
 * The run after one more event. Decisions are made by the same function, so that a run can't change
 * without its history saying so.
 */
export function applyEvent(run: Run, event: HistoryEvent): Run {
  if (event.type === "pod_died") return { ...run, deaths: run.deaths + 1 };
  if (event.type === "set_aside" || event.type === "given_up") return run;
  if (event.type === "retried" || event.type === "redriven") {
    // One that was cancelled while nobody could read it stands where it stood, wherever it had stopped before.
    const { cursor, stoppedAt, intent } = run;
    const stands = intent === null && cursor !== null;
    return { ...movedTo(run, stands ? cursor : (stoppedAt ?? cursor)), intent: null };
  }
  const { version } = event;
  switch (event.type) {
    case "start":
      // Pods may have died under it before one got as far as this.
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
    case "resume":
      return { ...run, version };
  }
}

/** A finalizer that fails has no intent: the run was stopped before. */
function stoppedBy({ transition, intent }: { transition: string; intent?: Intent }, run: Run): Run {
  return intent === undefined ? run : { ...run, intent, stoppedAt: transition };
}

/** Attempts, deaths and waits belong to what was at the cursor. */
function movedTo(run: Run, cursor: string | null): Run {
  return { ...run, cursor, failures: 0, deaths: 0, waiting: null };
}

/** An event as the store has it, without its number, its time and its pod. */
export type EventRow = {
  readonly type: string;
  readonly attempt: number | null;
  /** The rest of it, as JSON. */
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

/** A run's row has other events too, of tasks; those say nothing about where the run stands. */
export function toHistory(rows: readonly EventRow[]): HistoryEvent[] {
  return rows.flatMap(({ type, attempt, detail }) => {
    if (!eventTypes.has(type)) return [];
    // Those who note these do so for tasks too, and count attempts as those do.
    if (type === "pod_died" || type === "retried" || type === "redriven") return [{ type }];
    if (type === "given_up") return [{ type }];
    const rest = JSON.parse(detail ?? "{}") as object;
    return [{ type, ...(attempt !== null && { attempt }), ...rest } as HistoryEvent];
  });
}
