import type { ActAbout } from "../audit/act.ts";
import { yearMs } from "../base/durations.ts";
import { FlotillaError, hasCode, messageOf, snooze } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import type { Json } from "../base/json.ts";
import { checkNumber, checkOptions, checkText } from "../base/options.ts";
import { asTime } from "../base/time.ts";
import type { TraceHeaders } from "../base/trace-context.ts";
import type { WakeView } from "../protocol/message.ts";
import { timesOf } from "../schedules/times.ts";
import { prepareLoggedTasks } from "../tasks/enqueue/logged-tasks.ts";
import type { TaskContext, TaskHandler } from "../tasks/model.ts";
import type { NewTask } from "../tasks/sql/enqueue.ts";
import { task } from "../tasks/task.ts";
import type { Audited, Traced } from "./conversation/command.ts";
import type { Header } from "./conversation/header.ts";
import type { CallDeadline } from "./log/call-deadline.ts";
import type { CommandRouter } from "./log/command-router.ts";
import type { Reads } from "./log/journal.ts";
import type { DueWake, SetWake, WakeSet } from "./service.ts";
import { checkGivenId, checkSessionId, maxIdChars } from "./validate.ts";

/** The task that fires a wake. */
export const wakeTaskName = "flotilla:wake";

/** The turn that sets a wake, and whose end sets none any more. */
type SetByTurn = { readonly epoch: number };

export type Wakes = {
  set(
    tenant: string,
    sessionId: string,
    wake: SetWake,
    options?: { turn?: SetByTurn; audited?: Audited; signal?: AbortSignal },
  ): Promise<WakeSet>;
  /** Fires the wake whose task this is. False if that has happened, or it is set no longer. */
  fire(tenant: string, taskId: string, due: DueWake): Promise<boolean>;
};

type WakesParts = {
  readonly journal: Pick<Reads, "entries">;
  readonly submit: CommandRouter["submit"];
  readonly ids: Ids;
  readonly clock: { now(): number };
  readonly maxPayloadBytes: number;
  readonly tracedBy?: (headers: TraceHeaders | undefined) => Traced;
};

type Times = Pick<DueWake, "cron" | "timezone">;

export const wakeLimits = {
  maxKeyChars: 100,
  maxMessageChars: 2_000,
  /** Between the times of a pattern, and before a wake that a turn sets: an agent must not spin. */
  minIntervalMs: 60_000,
  maxHorizonMs: yearMs,
} as const;

const names = [
  "id",
  "key",
  "at",
  "afterMs",
  "cron",
  "timezone",
  "message",
  "to",
  "author",
] as const;
/** How many times of a pattern are looked at for its shortest interval. */
const checkedTimes = 50;
/** The store may be away for hours, and no other task fires the wake. */
const attempts = 50;
/** How long a wake waits that finds too many requests pending in its session. */
const snoozeMs = 30_000;

export function createWakes(parts: WakesParts): Wakes {
  const { journal, submit, ids, clock, maxPayloadBytes, tracedBy = () => ({}) } = parts;

  /** The task that fires a wake at a time. It is stored in the record that sets the wake. */
  const taskOf = async (
    tenant: string,
    due: DueWake,
    atMs: number,
    { trace = null }: { readonly trace?: string | null },
  ): Promise<NewTask> => {
    const origin = { id: due.sessionId, what: "session" } as const;
    const options = { runAt: new Date(atMs), attempts };
    const rows = [{ task: wakeTaskName, input: { ...due, tenant }, options }];
    const made = await prepareLoggedTasks(rows, { ids, maxPayloadBytes, tenant, origin, trace });
    return made[0]!;
  };

  return {
    async set(tenant, sessionId, wake, { turn, audited, signal } = {}) {
      checkSessionId(sessionId);
      const nowMs = clock.now();
      const { cron, timezone, atMs } = timesFrom(wake, nowMs, turn !== undefined);
      const { id = ids.next(), key, message, to, author } = wake;
      checkText("id", id, { max: maxIdChars });
      checkText("author", author, { max: maxIdChars });
      if (to !== undefined) checkText("to", to, { max: maxIdChars });
      const times = {
        ...(cron !== undefined && { cron }),
        ...(timezone !== undefined && { timezone }),
      };
      const due = { sessionId, key, ...times, ...(message !== undefined && { message }) };
      const fires = await taskOf(tenant, due, atMs, tracedBy(undefined));
      const command = {
        type: "wake_set",
        clientId: id,
        author,
        key,
        atMs,
        ...times,
        ...(message !== undefined && { message }),
        ...(to !== undefined && { agent: to }),
        ...turn,
        ...audited,
        taskId: fires.taskId,
        tasks: [fires],
      } as const;
      const result = await submit(tenant, sessionId, command, signal && { signal });
      const seq = result.seq!;
      if (result.duplicate !== true) return { key, atMs, seq, duplicate: false };
      const [entry] = await journal.entries(sessionId, { after: seq - 1, limit: 1 });
      const isOfWake = entry?.wake?.event === "set" && entry.wake.key === key;
      if (entry && !isOfWake)
        throw new FlotillaError(
          "conflict",
          `the id ${id} is that of something else in the session`,
        );
      return { key, atMs: entry?.wake?.atMs ?? atMs, seq, duplicate: true };
    },

    async fire(tenant, taskId, due) {
      const { sessionId, key, message, cron, timezone } = due;
      const traced = tracedBy(undefined);
      // Times that were missed are not made up for.
      const atMs = cron === undefined ? null : timesOf(cron, timezone ?? "UTC").next(clock.now());
      const again = atMs === null ? undefined : await taskOf(tenant, due, atMs, traced);
      const command = {
        type: "wake_fired",
        key,
        taskId,
        ...(message !== undefined && { message }),
        ...(again && { next: { taskId: again.taskId, atMs: atMs! }, tasks: [again] }),
        ...traced,
      } as const;
      try {
        return (await submit(tenant, sessionId, command)).done ?? false;
      } catch (error) {
        if (hasCode(error, "not_found")) return false;
        throw error;
      }
    },
  };
}

/** Asks agents when their wakes are due. */
export function wakeHandler(wakes: () => Pick<Wakes, "fire">): TaskHandler {
  return task(wakeTaskName, {}, async ({ input, taskId }: TaskContext<Json>) => {
    const { tenant, ...due } = input as unknown as DueWake & { readonly tenant: string };
    try {
      return { fired: await wakes().fire(tenant, taskId, due) };
    } catch (error) {
      if (hasCode(error, "overloaded")) throw snooze(snoozeMs, messageOf(error));
      throw error;
    }
  });
}

/** Lists and cancels wakes, for callers outside of turns. */
export function createWakeCalls(parts: {
  readonly wakes: Wakes;
  readonly submit: CommandRouter["submit"];
  readonly headerOf: (tenant: string, sessionId: string) => Promise<Header>;
  readonly startDeadline: () => CallDeadline;
  /** The entry of an operator's act on a session; undefined for others. */
  readonly operatedAs: (
    action: Extract<ActAbout["action"], "sessions.wake" | "sessions.cancel_wake">,
    session: { readonly tenant: string; readonly sessionId: string },
    filter: object,
    author: string,
  ) => Promise<Audited> | undefined;
}) {
  const { wakes, submit, headerOf, startDeadline, operatedAs } = parts;
  return {
    async wake(tenant: string, sessionId: string, wake: SetWake): Promise<WakeSet> {
      const { id, key, author } = wake;
      checkKey(key);
      if (id !== undefined) checkGivenId("id", id);
      const audited = operatedAs("sessions.wake", { tenant, sessionId }, { key }, author);
      return wakes.set(tenant, sessionId, wake, { ...(audited && { audited: await audited }) });
    },

    async wakes(tenant: string, sessionId: string): Promise<readonly WakeView[]> {
      const header = await headerOf(tenant, sessionId);
      return (header.wakes ?? [])
        .map((wake): WakeView => {
          const { taskId: _, ...shown } = wake;
          return shown;
        })
        .toSorted((one, other) => one.atMs - other.atMs);
    },

    async cancelWake(
      tenant: string,
      sessionId: string,
      { key, author }: { key: string; author: string },
    ): Promise<boolean> {
      checkKey(key);
      checkText("author", author, { max: maxIdChars });
      const deadline = startDeadline();
      const header = await deadline.read(() => headerOf(tenant, sessionId));
      // Fixed once, so that a try after a lost answer cancels no later wake of that key.
      const setSeq = header.wakes?.find((wake) => wake.key === key)?.setSeq;
      if (setSeq === undefined) return false;
      const audited = operatedAs("sessions.cancel_wake", { tenant, sessionId }, { key }, author);
      const ofCaller = { author, ...(audited && (await audited)) };
      const command = { type: "wake_cancel", key, setSeq, ...ofCaller } as const;
      const timeoutMs = deadline.leftMs;
      return (await submit(tenant, sessionId, command, { timeoutMs })).done ?? false;
    },
  };
}

function checkKey(key: unknown): string {
  return checkText("key", key, { max: wakeLimits.maxKeyChars });
}

/** When a wake is due first. A time that is over is due at once, and a pattern at its next time. */
function timesFrom(
  wake: SetWake,
  nowMs: number,
  isOfTurn: boolean,
): Times & { readonly atMs: number } {
  checkOptions("wake", wake, names);
  const { key, at, afterMs, cron, timezone, message } = wake;
  checkKey(key);
  if (message !== undefined) checkText("message", message, { max: wakeLimits.maxMessageChars });
  if ([at, afterMs, cron].filter((each) => each !== undefined).length !== 1) {
    throw invalid("give a wake exactly one of `at`, `afterMs` and `cron`");
  }
  if (cron === undefined && timezone !== undefined) {
    throw invalid("a time zone is for `cron`: leave it out, or give a pattern");
  }
  const { minIntervalMs, maxHorizonMs } = wakeLimits;
  if (cron !== undefined) return { ...patternFrom(cron, timezone, nowMs), cron };
  if (afterMs !== undefined) checkNumber("afterMs", afterMs, { min: 0, max: maxHorizonMs });
  const atMs = afterMs !== undefined ? nowMs + afterMs : timeOf(at);
  if (atMs > nowMs + maxHorizonMs) {
    throw invalid(`a wake is at most ${maxHorizonMs} ms ahead, which is a year`);
  }
  if (isOfTurn && atMs < nowMs + minIntervalMs) {
    throw invalid(
      `a turn wakes its session after ${minIntervalMs} ms at the earliest: else it could go on without end`,
    );
  }
  return { atMs: Math.max(atMs, nowMs) };
}

function timeOf(at: SetWake["at"]): number {
  const atMs = at instanceof Date ? at.getTime() : asTime(at, "at");
  if (Number.isSafeInteger(atMs) && atMs >= 0) return atMs;
  throw invalid("`at` must be a time such as 2026-01-31T08:00:00Z, or milliseconds since 1970");
}

function patternFrom(cron: string, timezone: string | undefined, nowMs: number) {
  const { minIntervalMs, maxHorizonMs } = wakeLimits;
  const times = timesOf(cron, timezone ?? "UTC");
  const first = times.next(nowMs);
  if (first === null || first > nowMs + maxHorizonMs) {
    throw invalid(`"${cron}" has no time within ${maxHorizonMs} ms, which is a year`);
  }
  let last = first;
  for (let count = 0; count < checkedTimes; count++) {
    const next = times.next(last);
    if (next === null) break;
    if (next - last < minIntervalMs) {
      throw invalid(`"${cron}" comes more often than each ${minIntervalMs} ms`);
    }
    last = next;
  }
  return { atMs: first, ...(timezone !== undefined && { timezone }) };
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}
