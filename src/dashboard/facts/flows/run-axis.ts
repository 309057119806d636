import type { RunEventFacts, RunFacts } from "../../asks/flows.ts";
import type { Moment } from "../waterfall.ts";

/** What a run did from one time to another. */
export type RunStretch = {
  readonly kind: RunStretchKind;
  /** The transition or finalizer that it was at; null before it began and after it ended. */
  readonly transition: string | null;
  readonly fromMs: number;
  readonly toMs: number;
  /** It goes on. */
  readonly isOpen: boolean;
  readonly attempt?: number | undefined;
  readonly podId?: string | undefined;
  /** How it ended, where that is more than its kind says. */
  readonly outcome?: string | undefined;
  /** When it ends by itself, of a wait that goes on. */
  readonly untilMs?: number | null | undefined;
};

export type RunStretchKind =
  /** Before the first pod took it. */
  | "queued"
  | "attempt"
  /** It waited for a pod and then ran; when it began isn't known. */
  | "waited and ran"
  | "sleep"
  | "signal"
  | "children"
  | "backoff"
  | "snoozed"
  /** It could go on, and no pod had taken it yet. */
  | "ready"
  | "delayed"
  | "others"
  | "limit"
  | "set aside"
  /** It had ended, and was started over later. */
  | "ended";

export type RunAxis = {
  readonly fromMs: number;
  readonly toMs: number;
  readonly stretches: readonly RunStretch[];
  readonly moments: readonly Moment[];
};

export type RunAxisParts = {
  readonly run: RunFacts;
  /** Some of its events, in order and without gaps. */
  readonly history: readonly RunEventFacts[];
  /** Whether the first of its events is among them, and the last. */
  readonly isFromStart: boolean;
  readonly isToEnd: boolean;
  readonly nowMs: number;
};

type Wait = {
  readonly kind: RunStretchKind;
  readonly transition: string | null;
  readonly fromMs: number;
  readonly untilMs: number | null;
};

// What is between two events for less than this is the time that a write took.
const leastGapMs = 100;
const waits: Readonly<Record<string, RunStretchKind>> = {
  sleep: "sleep",
  signal: "signal",
  children: "children",
};
const ofDoing: Readonly<Record<string, RunStretchKind>> = {
  sleeping: "sleep",
  waiting_for_signal: "signal",
  waiting_for_children: "children",
  waiting_for_others: "others",
  waiting_for_room: "limit",
  retrying: "backoff",
  delayed: "delayed",
  set_aside: "set aside",
  ready: "ready",
};

/**
 * Attempts, waits and what was between them, oldest first. Clocks of pods may differ: no stretch ends
 * before it begins, and none begins before the one before has ended.
 */
export function runAxisOf({ run, history, isFromStart, isToEnd, nowMs }: RunAxisParts): RunAxis {
  const stretches: RunStretch[] = [];
  const moments: Moment[] = [];
  const first = history[0];
  const begins = isFromStart ? run.createdAtMs : (first?.startedAtMs ?? first?.atMs ?? nowMs);
  let at = begins;
  let wait = undefined as Wait | undefined;

  const add = (
    kind: RunStretchKind,
    transition: string | null,
    toMs: number,
    more: Partial<RunStretch> = {},
  ) => {
    const end = Math.max(at, toMs);
    if (end > at || more.outcome !== undefined || more.isOpen)
      stretches.push({ kind, transition, fromMs: at, toMs: end, isOpen: false, ...more });
    at = end;
  };
  /** Ends what it waited for. After a time that was known before, it waits for a pod. */
  const endWait = (toMs: number, more: Partial<RunStretch> = {}) => {
    if (!wait) return;
    const { kind, transition, fromMs, untilMs } = wait;
    wait = undefined;
    at = Math.max(at, fromMs);
    const isTimed = kind === "backoff" || kind === "snoozed";
    add(kind, transition, isTimed && untilMs !== null ? Math.min(untilMs, toMs) : toMs, more);
    if (isTimed && toMs - at >= leastGapMs) add("ready", transition, toMs);
  };
  const beginWait = (next: Wait) => {
    wait = { ...next, fromMs: Math.max(at, next.fromMs) };
  };
  const note = (event: RunEventFacts, what: string) => moments.push({ atMs: event.atMs, what });

  for (const event of history) {
    const { type, transition, atMs, startedAtMs } = event;
    const attempt = event.attempt ?? undefined;
    const podId = event.podId ?? undefined;
    const detail = fieldsOf(event.detail);
    switch (type) {
      case "start":
        endWait(atMs);
        add("queued", null, atMs);
        break;
      case "complete":
      case "error": {
        const retryAtMs = numberIn(detail, "retryAtMs");
        const outcome = type === "complete" ? "completed" : "failed";
        const isWait = wait?.transition === transition && isWaitKind(wait?.kind);
        if (isWait) endWait(atMs, { outcome, podId });
        else if (transition !== "$end" || type === "error") {
          const started = startedAtMs ?? at;
          endWait(started);
          if (started - at >= leastGapMs) add("ready", transition, started);
          add("attempt", transition, atMs, { outcome, attempt, podId });
        }
        if (retryAtMs !== undefined)
          beginWait({ kind: "backoff", transition, fromMs: atMs, untilMs: retryAtMs });
        break;
      }
      case "park": {
        const waiting = fieldsOf(detail["waiting"]);
        const kind = waits[String(waiting["for"])];
        const untilMs = numberIn(detail, "untilMs") ?? null;
        if (kind === undefined) {
          endWait(startedAtMs ?? at);
          add("waited and ran", transition, atMs, { outcome: "snoozed", podId });
          beginWait({ kind: "snoozed", transition, fromMs: atMs, untilMs });
          break;
        }
        // It was woken, found nothing, and waits on.
        if (wait?.kind === kind && wait.transition === transition) break;
        const sinceMs = numberIn(waiting, "sinceMs") ?? atMs;
        endWait(sinceMs);
        if (sinceMs - at >= leastGapMs) add("waited and ran", transition, sinceMs, { podId });
        beginWait({ kind, transition, fromMs: sinceMs, untilMs });
        break;
      }
      case "pod_died":
        endWait(Math.min(atMs, wait?.untilMs ?? atMs));
        add("waited and ran", transition, atMs, { outcome: "its pod died", podId });
        break;
      case "cancel":
        endWait(atMs, { outcome: "cancelled" });
        note(event, "cancelled");
        break;
      case "set_aside":
        endWait(atMs);
        beginWait({ kind: "set aside", transition: run.at, fromMs: atMs, untilMs: null });
        break;
      case "finish":
        endWait(atMs);
        at = Math.max(at, atMs);
        note(event, `ended: ${textIn(detail, "status") ?? "finished"}`);
        break;
      case "retried":
      case "redriven":
        endWait(atMs);
        add("ended", null, atMs);
        note(event, type === "retried" ? "started over" : "redriven");
        break;
      case "move":
        note(
          event,
          `moved from ${textIn(detail, "from") ?? "?"} to ${textIn(detail, "next") ?? "?"}`,
        );
        break;
      case "stepped":
        break;
      default:
        if (type === "resume") endWait(atMs);
        note(event, type.replaceAll("_", " "));
    }
  }

  if (isToEnd && run.doing) addDoing(run.doing);
  else if (wait) endWait(isToEnd ? run.updatedAtMs : at);
  return { fromMs: begins, toMs: Math.max(at, begins + 1), stretches, moments };

  function addDoing(doing: NonNullable<RunFacts["doing"]>): void {
    if (doing.type === "running") {
      endWait(doing.sinceMs);
      if (doing.sinceMs - at >= leastGapMs) add("ready", run.at, doing.sinceMs);
      const { podId } = doing;
      return add("attempt", run.at, nowMs, { isOpen: true, podId, attempt: run.attempt });
    }
    const kind = history.length === 0 && doing.type === "ready" ? "queued" : ofDoing[doing.type]!;
    const untilMs = "untilMs" in doing ? doing.untilMs : "atMs" in doing ? doing.atMs : undefined;
    if (wait?.kind === kind) at = Math.max(at, wait.fromMs);
    else endWait("sinceMs" in doing ? doing.sinceMs : Math.min(nowMs, wait?.untilMs ?? at));
    wait = undefined;
    add(kind, run.at, nowMs, { isOpen: true, untilMs });
  }
}

/** The runs that it has started, as stretches of the same axis. */
export function childStretches(
  children: readonly RunFacts[],
  nowMs: number,
): readonly { readonly run: RunFacts; readonly fromMs: number; readonly toMs: number }[] {
  return children
    .map((run) => {
      const toMs = run.status === "open" ? nowMs : run.updatedAtMs;
      return { run, fromMs: run.createdAtMs, toMs: Math.max(run.createdAtMs, toMs) };
    })
    .toSorted((one, other) => one.fromMs - other.fromMs);
}

function isWaitKind(kind: RunStretchKind | undefined): boolean {
  return kind === "sleep" || kind === "signal" || kind === "children";
}

type Fields = Readonly<Record<string, unknown>>;

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}

function numberIn(fields: Fields, name: string): number | undefined {
  const value = Object.hasOwn(fields, name) ? fields[name] : undefined;
  return typeof value === "number" ? value : undefined;
}

function textIn(fields: Fields, name: string): string | undefined {
  const value = Object.hasOwn(fields, name) ? fields[name] : undefined;
  return typeof value === "string" ? value : undefined;
}
