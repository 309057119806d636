import { FlotillaError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";
import { type EnqueueOptions, prepareTask } from "../tasks/enqueue/options.ts";
import { refuseReferences } from "../tasks/files/task-files.ts";
import type { NewTask } from "../tasks/sql/enqueue.ts";
import { checkTaskName, type InputOf } from "../tasks/task.ts";
import { everyRange, type Missed, missedPolicies } from "./plan.ts";
import { keyOf } from "../tasks/sql/task-state.ts";
import type { StoredOptions } from "./rows.ts";
import type { Definition } from "./sql.ts";
import { everyPatternOf, timesOf } from "./times.ts";
import type { TaskContract } from "../tasks/model.ts";

/** The options of a schedule's tasks; the schedule itself sets their key and time. */
export type ScheduledOptions = Pick<
  EnqueueOptions,
  Extract<keyof EnqueueOptions, (typeof optionNames)[number]>
>;

type When =
  | {
      /**
       * Cron: minute, hour, day of month, month, day of week; optionally with seconds before or
       * years after.
       */
      pattern: string;
      /** The time zone of the pattern, such as `Europe/Berlin`. Default `UTC`. */
      zone?: string;
      everyMs?: undefined;
    }
  | {
      /** An interval in milliseconds, counted from 1970: 300,000 is at :00, :05, :10. */
      everyMs: number;
      pattern?: undefined;
      zone?: undefined;
    };

type Further = {
  /**
   * What to do about times that were not fired because no pod was up: `once` (default) creates one
   * task for all of them, `skip` none, `all` one each, at most the oldest hundred.
   */
  missed?: Missed;
  options?: ScheduledOptions;
};

type Given<Input> = null extends Input ? { input?: Input } : { input: Input };

/** The task, its input, and its times. */
export type ScheduleOf<T extends TaskContract> = { task: T } & Given<InputOf<T>> & When & Further;

/** Like `ScheduleOf`, for a task whose contract is not available. */
export type ScheduleOfName = { name: string; input?: unknown } & When & Further;

/** A declared schedule. It is stored by `schedules.put`, or by a pod that has it in its config. */
export type ScheduleDeclaration = {
  readonly scheduleId: string;
  readonly task: TaskContract | string;
  readonly input: unknown;
  readonly pattern: string;
  readonly zone: string;
  readonly missed: Missed;
  readonly options: ScheduledOptions;
};

const optionNames = ["priority", "attempts", "tenant", "concurrencyKey"] as const;
const scheduleNames = ["task", "name", "input", "pattern", "zone", "everyMs", "missed", "options"];
const idPattern = /^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$/;

/**
 * Declares a schedule: `schedule("nightly", { task: report, input, pattern: "0 3 * * *", zone })`.
 */
export function schedule<T extends TaskContract>(
  scheduleId: string,
  given: ScheduleOf<T>,
): ScheduleDeclaration;
export function schedule(scheduleId: string, given: ScheduleOfName): ScheduleDeclaration;
export function schedule(
  scheduleId: string,
  given: (ScheduleOf<TaskContract> | ScheduleOfName) & { task?: TaskContract; name?: string },
): ScheduleDeclaration {
  checkScheduleId(scheduleId);
  const what = `schedule "${scheduleId}"`;
  checkOptions(what, given, scheduleNames);
  const { task, name, input = null, pattern, everyMs, missed = "once", options = {} } = given;
  const { zone = "UTC" } = given;
  const named = task ?? name;
  if (named === undefined || (task !== undefined && name !== undefined)) {
    const were = named === undefined ? "neither was" : "both were";
    throw new FlotillaError(
      "invalid_option",
      `${what} needs one of \`task\` and \`name\`: ${were} given`,
    );
  }
  checkTaskName(typeof named === "string" ? named : named?.name);
  checkChoice(`${what}: missed`, missed, missedPolicies);
  checkOptions(`${what}: options`, options, optionNames);
  return {
    scheduleId,
    task: named,
    input,
    pattern: checkedPattern(scheduleId, { pattern, everyMs, zone }),
    zone,
    missed,
    options,
  };
}

export function checkScheduleId(scheduleId: unknown): asserts scheduleId is string {
  if (typeof scheduleId === "string" && idPattern.test(scheduleId)) return;
  throw new FlotillaError(
    "invalid_schedule",
    `a schedule's id is 1 to 200 letters, digits and _ . : / -, and begins with a letter, a digit or _, not ${JSON.stringify(scheduleId)?.slice(0, 80)}`,
  );
}

function checkedPattern(
  scheduleId: string,
  given: { pattern: string | undefined; everyMs: number | undefined; zone: string },
): string {
  const { pattern, everyMs, zone } = given;
  const what = `schedule "${scheduleId}"`;
  if ((pattern === undefined) === (everyMs === undefined)) {
    const were = pattern === undefined ? "neither was" : "both were";
    throw new FlotillaError(
      "invalid_schedule",
      `${what} needs one of \`pattern\` and \`everyMs\`: ${were} given`,
    );
  }
  if (everyMs !== undefined) checkNumber(`${what}: everyMs`, everyMs, everyRange);
  const text = pattern ?? everyPatternOf(everyMs!);
  try {
    timesOf(text, zone);
  } catch (error) {
    if (!(error instanceof FlotillaError)) throw error;
    throw new FlotillaError("invalid_schedule", `${what}: ${error.message}`, {
      details: { scheduleId, ...error.details },
      cause: error,
    });
  }
  return text;
}

/** Checks the input as an enqueue would, and returns the stored definition. */
export async function definitionOf(
  declared: ScheduleDeclaration,
  parts: { ids: Ids; maxPayloadBytes: number },
): Promise<Definition> {
  const { scheduleId, task, input, pattern, zone, missed, options } = declared;
  const made: NewTask = await prepareTask(task, input, options, parts);
  refuseReferences(
    made,
    "a schedule keeps no files, have its task read them from where they are, or store them in its handler",
  );
  const { name, payload, scope } = made;
  // The key may be one that the contract makes of the input.
  const key = typeof scope === "string" ? keyOf(name, scope) : undefined;
  const stored: StoredOptions = {
    ...(made.priority !== 0 && { priority: made.priority }),
    ...(made.maxAttempts !== null && { attempts: made.maxAttempts }),
    ...(made.tenant !== "default" && { tenant: made.tenant }),
    ...(typeof scope === "string" && (key === undefined ? { scope } : { concurrencyKey: key })),
  };
  return { scheduleId, name, pattern, zone, payload, options: JSON.stringify(stored), missed };
}
