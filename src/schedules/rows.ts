import { FlotillaError } from "../base/errors.ts";
import type { Json } from "../base/json.ts";
import { checkNumber } from "../base/options.ts";
import { taskOptions } from "../protocol/task-options.ts";
import type { Row } from "../store/database.ts";
import type { NewTask } from "../tasks/sql/enqueue.ts";
import { keyScope } from "../tasks/sql/task-state.ts";
import type { Missed } from "./plan.ts";
import { everyMsOf, nextTime } from "./times.ts";

/** The options of each task that a schedule creates. */
export type TaskOptions = {
  readonly priority?: number;
  readonly attempts?: number;
  readonly tenant?: string;
  /** The key that a concurrency limit counts its tasks under. */
  readonly concurrencyKey?: string;
};

/** What is stored of them. */
export type StoredOptions = TaskOptions & {
  /** The scope of a limit that is not by key: that of the flow's queue. */
  readonly scope?: string;
};

/** A schedule in its public form. */
export type Schedule = {
  readonly scheduleId: string;
  /** The name of the task that it creates. */
  readonly name: string;
  /** A cron pattern in a time zone; both null if the schedule has an interval. */
  readonly pattern: string | null;
  readonly zone: string | null;
  readonly everyMs: number | null;
  readonly input: Json;
  readonly options: TaskOptions;
  readonly missed: Missed;
  /**
   * `ended`: its pattern has no more times. `broken`: it cannot be fired, and `error` says why;
   * storing a new definition repairs it.
   */
  readonly state: "active" | "paused" | "ended" | "broken";
  /** Grows with every change of its definition. */
  readonly revision: number;
  readonly nextAtMs: number | null;
  /** The last time that was fired, and the task that it created. */
  readonly lastAtMs: number | null;
  readonly lastTaskId: string | null;
  readonly error: string | null;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
};

/** A time of a schedule, and the key of its task. */
type Timed = { readonly atMs: number; readonly key: string };

/** Converts a row of `schedule` to its public form. */
export function toSchedule(row: Row): Schedule {
  const { error, nextAtMs } = whatComes(row);
  const paused = Number(row["paused"]) === 1;
  return {
    scheduleId: row["schedule_id"],
    name: row["name"],
    ...whenOf(row["pattern"], row["zone"]),
    input: parsed(row["payload"]) as Json,
    options: publicOptions(parsed(row["options"])),
    missed: row["missed"],
    state: error !== null ? "broken" : paused ? "paused" : nextAtMs === null ? "ended" : "active",
    revision: Number(row["revision"]),
    nextAtMs: paused ? null : nextAtMs,
    lastAtMs: numberOrNull(row["last_at"]),
    lastTaskId: row["last_task_id"],
    error,
    createdAtMs: Number(row["created_at"]),
    updatedAtMs: Number(row["last_update"]),
  };
}

/**
 * Creates the task of one time of a schedule, or of none of them, from its row alone; throws if the
 * row is invalid.
 */
export function taskOf(row: Row): (taskId: string, time?: Timed) => NewTask {
  const payload: string = row["payload"];
  mustParse("payload", payload);
  const options = mustParse("options", row["options"]) as StoredOptions;
  const { priority = 0, attempts, tenant = "default" } = options ?? {};
  const { concurrencyKey = null, scope: otherScope = null } = options ?? {};
  checkNumber("options.priority", priority, taskOptions.priority);
  if (attempts !== undefined) checkNumber("options.attempts", attempts, taskOptions.attempts);
  const isText = (value: unknown) => value === null || typeof value === "string";
  if (typeof tenant !== "string" || !isText(concurrencyKey) || !isText(otherScope)) {
    throw new FlotillaError(
      "invalid_schedule",
      "options: tenant, concurrencyKey and scope must be text",
    );
  }
  const scope = concurrencyKey === null ? otherScope : keyScope(row["name"], concurrencyKey);
  const limited = scope !== null || tenant !== "default";
  return (taskId, time) => ({
    taskId,
    tenant,
    name: row["name"],
    payload,
    priority,
    delayMs: 0,
    maxAttempts: attempts ?? null,
    key: time?.key ?? null,
    trace: null,
    origin: { id: row["schedule_id"], what: "schedule" },
    ...(time && { scheduledAtMs: time.atMs }),
    ...(limited && { scope, limited }),
  });
}

function publicOptions(stored: unknown): TaskOptions {
  if (typeof stored !== "object" || stored === null) return (stored ?? {}) as TaskOptions;
  const { scope: _, ...options } = stored as StoredOptions;
  return options;
}

function whenOf(pattern: string, zone: string): Pick<Schedule, "pattern" | "zone" | "everyMs"> {
  const everyMs = everyMsOf(pattern);
  return everyMs === null ? { pattern, zone, everyMs } : { pattern: null, zone: null, everyMs };
}

/** Computes the next time of a schedule if the leader has not done so yet. */
function whatComes(row: Row): { error: string | null; nextAtMs: number | null } {
  const stored = numberOrNull(row["next_at"]);
  if (row["error"] !== null) return { error: row["error"], nextAtMs: null };
  if (stored !== 0) return { error: null, nextAtMs: stored };
  try {
    const nextAtMs = nextTime(row["pattern"], row["zone"], Number(row["after_at"]));
    return { error: null, nextAtMs };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error), nextAtMs: null };
  }
}

function mustParse(what: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FlotillaError("invalid_schedule", `its ${what} isn't JSON`, { cause: error });
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function numberOrNull(value: unknown): number | null {
  return value === null ? null : Number(value);
}
