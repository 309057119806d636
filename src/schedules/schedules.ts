import { type Act, type ActWrite, beginAct, noEntry, writeAct } from "../audit/act.ts";
import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { defaultMaxBytes } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Random } from "../base/random.ts";
import { writeUntilKnown, type RetryOptions, untilKnown } from "../store/retry.ts";
import type { Database, Row } from "../store/database.ts";
import { hasMore } from "../store/page.ts";
import type { Statement } from "../store/sql.ts";
import { skippedBefore } from "./plan.ts";
import { type Schedule, taskOf, toSchedule } from "./rows.ts";
import {
  checkScheduleId,
  definitionOf,
  schedule,
  type ScheduleDeclaration,
  type ScheduleOf,
  type ScheduleOfName,
} from "./schedule.ts";
import {
  type Definition,
  entryOfChange,
  fireSchedule,
  getSchedules,
  listFirings,
  listSchedules,
  pauseSchedule,
  putSchedule,
  removeSchedule,
  resumeSchedule,
  type SeenSchedule,
} from "./sql.ts";
import { timesOf } from "./times.ts";
import type { TaskContract } from "../tasks/model.ts";
import type { TaskStatus } from "../tasks/rows.ts";

export type SchedulePage = { readonly schedules: Schedule[]; readonly next: string | null };

export type ScheduleListOptions = {
  /** The `next` of the previous page. */
  cursor?: string;
  /** 1 to 1,000. Default 100. */
  limit?: number;
};

/** The operations on schedules, for producers, pods, servers and the command line. */
export type Schedules = {
  /**
   * Stores a schedule's definition. An equal definition is left unchanged; a paused schedule stays
   * paused.
   */
  put(declared: ScheduleDeclaration): Promise<Schedule>;
  put<T extends TaskContract>(scheduleId: string, given: ScheduleOf<T>): Promise<Schedule>;
  put(scheduleId: string, given: ScheduleOfName): Promise<Schedule>;
  get(scheduleId: string): Promise<Schedule | undefined>;
  /** A page, ordered by id. */
  list(options?: ScheduleListOptions): Promise<SchedulePage>;
  /** Its next times, in milliseconds since 1970: 5 by default. */
  upcoming(scheduleId: string, count?: number): Promise<number[]>;
  /** The tasks that it has made, newest first, as long as they are kept. */
  firings(scheduleId: string, options?: ScheduleListOptions): Promise<FiringPage>;
  /** Stops firing until it is resumed. */
  pause(scheduleId: string): Promise<Schedule>;
  /** Continues with the next time from now; times during the pause are skipped. */
  resume(scheduleId: string): Promise<Schedule>;
  /** Creates a task now, in addition to those of its times. */
  fire(scheduleId: string): Promise<{ readonly taskId: string }>;
  /** Returns whether it existed. The tasks that it has created stay. */
  remove(scheduleId: string): Promise<boolean>;
};

/** A task that a schedule has made. */
export type ScheduleFiring = {
  readonly taskId: string;
  readonly name: string;
  readonly tenant: string;
  /** How it stands, or how it has ended. */
  readonly status: TaskStatus;
  /** The time of the schedule that it was made for; null if it was fired by hand. */
  readonly scheduledAtMs: number | null;
  readonly createdAtMs: number;
  /** How much later than its time it was made; null if it was fired by hand. */
  readonly lagMs: number | null;
  /** When it ended; null while it hasn't. */
  readonly endedAtMs: number | null;
  /** Attempts that have failed. */
  readonly failures: number;
  /**
   * How many times of the schedule came since the firing before and got no task, because they were missed
   * or it was paused; null where that isn't known, as after its pattern was changed.
   */
  readonly skipped: number | null;
};

export type FiringPage = { readonly firings: ScheduleFiring[]; readonly next: string | null };

export type SchedulesParts = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  /** Where acts are logged. Default: nowhere. */
  log?: Logger;
  maxPayloadBytes?: number;
  /**
   * Called after a task was stored here, so that a pod in this process claims without waiting for a
   * notification.
   */
  onEnqueued?: () => void;
};

export type PutOptions = Pick<RetryOptions, "limitMs" | "codes"> & {
  /**
   * True for a pod's declared schedules. After a lost answer, a missing one is stored again, and a
   * different one was changed since and is left alone. Otherwise both cases throw
   * `unknown_outcome`.
   */
  declares?: boolean;
  /** The act that stores one schedule. What pods declare is no act. */
  act?: Act;
};

const upcomingRange = { min: 1, max: 100 };
// Every pod stores its declared schedules when it starts.
const maxDeclared = 1_000;
const definitionColumns = ["name", "pattern", "zone", "payload", "options", "missed"] as const;

/** Creates the operations on schedules. */
export function createSchedules(parts: SchedulesParts): Schedules {
  const { database, onEnqueued } = parts;

  const send = (act: Act, statements: ActWrite["statements"], notify = false) =>
    writeAct(parts, act, { statements, notify }, untilKnown);

  const found = async (scheduleId: string): Promise<Row> => {
    checkScheduleId(scheduleId);
    const [row] = await database.read(getSchedules([scheduleId]));
    return row ?? missing(scheduleId);
  };

  /** How many times got no task before each of these firings, if the schedule is still there. */
  const skippedIn = async (
    scheduleId: string,
    firings: readonly MadeFiring[],
  ): Promise<readonly (number | null)[]> => {
    const [row] = firings.length === 0 ? [] : await database.read(getSchedules([scheduleId]));
    const unknown = firings.map(() => null);
    if (!row) return unknown;
    try {
      const times = timesOf(row["pattern"], row["zone"]);
      return skippedBefore(
        times,
        firings.map(({ scheduledAtMs }) => scheduledAtMs),
      );
    } catch {
      // It is broken, which the schedule itself says.
      return unknown;
    }
  };

  /** Pauses or resumes a schedule, unless it was changed since it was read. */
  const change = async (
    scheduleId: string,
    paused: 0 | 1,
    statementFor: (seen: SeenSchedule, mark: string) => Statement,
  ): Promise<Schedule> => {
    const isDone = (row: Row) => Number(row["paused"]) === paused;
    let row = await found(scheduleId);
    const action = paused === 1 ? "schedules.pause" : "schedules.resume";
    const act = await beginAct(parts, { action, subject: scheduleId });
    const states = {
      before: JSON.stringify({ paused: paused === 0 }),
      after: JSON.stringify({ paused: paused === 1 }),
    };
    while (!isDone(row) && !act.stored) {
      const seen = toSchedule(row);
      const { tables, repeated, stored } = await send(act, (mark, entry) => [
        statementFor(seen, mark),
        ...entryOfChange(scheduleId, mark, states, entry),
        getSchedules([scheduleId]),
      ]);
      row = tables.at(-1)![0] ?? missing(scheduleId);
      if (isDone(row) || stored) break;
      if (!repeated) continue;
      throw new FlotillaError(
        "unknown_outcome",
        `schedule ${scheduleId} was changed before it was known whether it had been ${paused === 1 ? "paused" : "resumed"}`,
        { details: { scheduleId } },
      );
    }
    return toSchedule(row);
  };

  return {
    async put(first: ScheduleDeclaration | string, given?: object) {
      const declared = typeof first === "string" ? schedule(first, given as ScheduleOfName) : first;
      checkSchedules([declared]);
      const { scheduleId } = declared;
      const act = await beginAct(parts, { action: "schedules.put", subject: scheduleId });
      const [stored] = await putAll([declared], parts, { ...untilKnown, act });
      return stored!;
    },
    async get(scheduleId) {
      checkScheduleId(scheduleId);
      const [row] = await database.read(getSchedules([scheduleId]));
      return row && toSchedule(row);
    },
    async list(options = {}) {
      checkOptions("schedules.list", options, ["cursor", "limit"]);
      const { cursor = "", limit = 100 } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const rows = await database.read(listSchedules(cursor, limit));
      const page = fitPage(rows.map(toSchedule), hasMore(rows));
      return { schedules: page.items, next: page.hasMore ? page.items.at(-1)!.scheduleId : null };
    },
    async upcoming(scheduleId, count = 5) {
      checkNumber("count", count, upcomingRange);
      const row = await found(scheduleId);
      const { nextAtMs, state } = toSchedule(row);
      const times = timesOf(row["pattern"], row["zone"]);
      const upcoming: number[] = [];
      // While it is paused, these are the times that it would have if it were resumed now.
      let next = state === "paused" ? times.next(Number(row["now_at"])) : nextAtMs;
      while (next !== null && upcoming.length < count) {
        upcoming.push(next);
        next = times.next(next);
      }
      return upcoming;
    },
    async firings(scheduleId, options = {}) {
      checkScheduleId(scheduleId);
      checkOptions("schedules.firings", options, ["cursor", "limit"]);
      const { cursor: before, limit = 100 } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const rows = await database.read(listFirings(scheduleId, { before, count: limit + 1 }));
      // The schedule may be removed while its tasks are kept.
      if (rows.length === 0) await found(scheduleId);
      const page = rows.slice(0, limit);
      // A task that is being deleted at this moment has a link and no row.
      const kept = rows.filter((row) => row["status"] !== null).map(toFiring);
      const skipped = await skippedIn(scheduleId, kept);
      const shown = new Set(page.map((row) => row["task_id"] as string));
      const firings = kept
        .map((firing, at) => ({ ...firing, skipped: skipped[at]! }))
        .filter(({ taskId }) => shown.has(taskId));
      const hasMorePages = rows.length > limit;
      return { firings, next: hasMorePages ? (page.at(-1)!["task_id"] as string) : null };
    },
    pause: (scheduleId) => change(scheduleId, 1, pauseSchedule),
    resume: (scheduleId) => change(scheduleId, 0, resumeSchedule),
    async fire(scheduleId) {
      // One id for the act and for the task that it makes.
      const act = await beginAct(parts, { action: "schedules.fire", subject: scheduleId });
      for (;;) {
        const row = await found(scheduleId);
        const { tables, stored } = await send(
          act,
          (id, entry) => fireSchedule(toSchedule(row), taskOf(row)(id), entry),
          true,
        );
        // A task that was stored before may be gone by now.
        if (tables.at(-1)!.length === 0 && !stored) continue;
        onEnqueued?.();
        return { taskId: stored?.id ?? act.id };
      }
    },
    async remove(scheduleId) {
      checkScheduleId(scheduleId);
      const [row] = await database.read(getSchedules([scheduleId]));
      const act = await beginAct(parts, { action: "schedules.remove", subject: scheduleId });
      if (!row || act.stored) return act.stored !== undefined;
      const { tables, repeated } = await writeAct(
        parts,
        act,
        {
          statements: (_, entry) => removeSchedule(toSchedule(row), factsOf(row), entry),
          hasAnswer: false,
        },
        untilKnown,
      );
      // It existed, and an earlier send may have removed it.
      return tables[0]!.length > 0 || repeated;
    },
  };
}

/** Stores the definitions of several schedules, in one transaction and in one order. */
export async function putAll(
  declared: readonly ScheduleDeclaration[],
  parts: SchedulesParts,
  { declares = false, act, ...retryOptions }: PutOptions = untilKnown,
): Promise<Schedule[]> {
  const { database, clock, random, ids, maxPayloadBytes = defaultMaxBytes } = parts;
  if (declared.length === 0) return [];
  const definitions = await Promise.all(
    declared.map((each) => definitionOf(each, { ids, maxPayloadBytes })),
  );
  const ordered = definitions.toSorted((a, b) => (a.scheduleId < b.scheduleId ? -1 : 1));
  const wanted = getSchedules(ordered.map(({ scheduleId }) => scheduleId));
  const options = { clock, random, ...retryOptions };
  // A starting pod waits for a busy or unavailable store; other callers get the error.
  const readStored = async () =>
    declares
      ? (await writeUntilKnown(database, [wanted], options)).tables[0]!
      : await database.read(wanted);
  for (;;) {
    const seen = byId(await readStored());
    const putting = (definitions: readonly Definition[], entry = noEntry) => [
      ...definitions.flatMap((each) => {
        const row = seen.get(each.scheduleId);
        const mark = entry === noEntry ? null : act!.id;
        const states = { ...(row && { before: factsOf(row) }), after: factsOf(each) };
        return [
          putSchedule(each, row && { ...toSchedule(row), payload: row["payload"] as string }, mark),
          ...(mark === null ? [] : entryOfChange(each.scheduleId, mark, states, entry)),
        ];
      }),
      wanted,
    ];
    // A schedule that did not exist before and does not now may have been created, and removed
    // since.
    const again = () =>
      putting(declares ? ordered : ordered.filter(({ scheduleId }) => seen.has(scheduleId)));
    // With an entry every send is known to have landed or not.
    const isAudited = act !== undefined && act.entry !== noEntry;
    const written = isAudited
      ? await writeAct(
          parts,
          act,
          { statements: (_, entry) => putting(ordered, entry) },
          retryOptions,
        )
      : await writeUntilKnown(database, putting(ordered), { ...options, again });
    const { tables, repeated } = written;
    const stored = byId(tables.at(-1)!);
    if ("stored" in written && stored.size > 0) return [...stored.values()].map(toSchedule);
    const isStored = (each: Definition) => {
      const row = stored.get(each.scheduleId);
      return row !== undefined && isDefinedAs(row, each) && (repeated || row["error"] === null);
    };
    const other = ordered.find((each) => !isStored(each));
    if (!other || (repeated && declares)) return [...stored.values()].map(toSchedule);
    if (!repeated) continue;
    throw new FlotillaError(
      "unknown_outcome",
      `it isn't known whether schedule ${other.scheduleId} was stored, and changed or removed since`,
      { details: { scheduleId: other.scheduleId } },
    );
  }
}

/** Throws unless the value is a list of declared schedules with unique ids. */
export function checkSchedules(declared: unknown): asserts declared is ScheduleDeclaration[] {
  if (!Array.isArray(declared) || declared.length > maxDeclared) {
    throw new FlotillaError(
      "invalid_option",
      `schedules must be an array of ${maxDeclared} at most, made by \`schedule(…)\``,
    );
  }
  const seen = new Set<string>();
  for (const each of declared as Partial<ScheduleDeclaration>[]) {
    if (typeof each?.scheduleId !== "string" || typeof each.pattern !== "string") {
      throw new FlotillaError("invalid_option", "schedules: each must be made by `schedule(…)`");
    }
    if (seen.has(each.scheduleId)) {
      throw new FlotillaError("invalid_option", `schedules: two have the id "${each.scheduleId}"`);
    }
    seen.add(each.scheduleId);
  }
}

/** What the audit says of a schedule: nothing of its payload. */
function factsOf({ name, pattern, zone, missed }: Row | Definition): string {
  return JSON.stringify({ name, pattern, zone, missed });
}

type MadeFiring = Omit<ScheduleFiring, "skipped">;

function toFiring(row: Row): MadeFiring {
  const createdAtMs = Number(row["created_at"]);
  const scheduledAtMs = row["scheduled_at"] === null ? null : Number(row["scheduled_at"]);
  const status = row["status"] as TaskStatus;
  const isOpen = status === "pending" || status === "claimed";
  return {
    taskId: row["task_id"],
    name: row["name"],
    tenant: row["tenant"],
    status,
    scheduledAtMs,
    createdAtMs,
    lagMs: scheduledAtMs === null ? null : createdAtMs - scheduledAtMs,
    endedAtMs: isOpen ? null : Number(row["last_update"]),
    failures: Number(row["retry_count"]),
  };
}

function byId(rows: readonly Row[]): Map<string, Row> {
  return new Map(rows.map((row) => [row["schedule_id"] as string, row]));
}

function isDefinedAs(row: Row, given: Definition): boolean {
  return definitionColumns.every((each) => row[each] === given[each]);
}

function missing(scheduleId: string): never {
  throw new FlotillaError("not_found", `there is no schedule ${scheduleId}`, {
    details: { scheduleId },
  });
}
