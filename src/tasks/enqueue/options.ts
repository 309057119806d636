import { FlotillaError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { encodeJson } from "../../base/json.ts";
import { checkChoice, checkNumber, checkOptions, checkText } from "../../base/options.ts";
import { check } from "../../base/schema.ts";
import type { TraceHeaders } from "../../base/trace-context.ts";
import { type NewTaskOptions, taskOptionNames, taskOptions } from "../../protocol/task-options.ts";
import { concurrencyScopeOf } from "../concurrency/limits.ts";
import { checkDependencies, type DependencyRef } from "../dependencies.ts";
import type { KeyPolicy, NewTask } from "../sql/enqueue.ts";
import { checkTaskName } from "../task.ts";
import type { TaskContract } from "../model.ts";

export type EnqueueOptions = NewTaskOptions<Date | number, DependencyRef> & {
  /**
   * A connection of the caller to the same database: the task exists once its transaction
   * commits.
   */
  tx?: unknown;
  /** The W3C trace context that the task belongs to, used if no OpenTelemetry span is active. */
  trace?: TraceHeaders;
};

/** What to do if another task holds the key. */
export type OnDuplicate = NonNullable<NewTaskOptions["onDuplicate"]>;

export type KeyOptions = Pick<
  NewTaskOptions,
  "key" | "onDuplicate" | "uniqueWhile" | "uniqueForMs"
>;

/**
 * Like the options of one task, but the key is derived from each input, because one key for all
 * would make them one task.
 */
export type EnqueueManyOptions<Input = unknown> = Omit<EnqueueOptions, "concurrencyKey" | "key"> & {
  key?: (input: Input) => string;
  concurrencyKey?: string | ((input: Input) => string);
};

export type Enqueued = {
  readonly taskId: string;
  /** False if a task with that key existed already. */
  readonly created: boolean;
  /**
   * With `onDuplicate: "replace"`: whether the existing task was replaced. False if a pod runs it,
   * or if it is a run of a flow.
   */
  readonly replaced?: boolean;
};

export const enqueueOptionNames = [...taskOptionNames, "tx", "trace"] as const;

// Later dates are a mistake, such as microseconds passed as milliseconds.
const maxRunAtMs = Date.UTC(9999, 11, 31);

// A transaction must not block others for long, and its rows are sent as one text.
const maxBulkTasks = 10_000;
const maxBulkChars = 64 * 1024 * 1024;

type PrepareParts = {
  readonly ids: Ids;
  readonly maxPayloadBytes: number;
  /** What the task is linked to. Default: nothing. */
  readonly originOf?: () => NewTask["origin"];
};

/** Validates a caller's task and makes its row. Synchronous unless the schema is asynchronous. */
export function prepareTask(
  contract: TaskContract | string,
  input: unknown,
  options: EnqueueOptions,
  { ids, maxPayloadBytes, originOf }: PrepareParts,
  trace: string | null = null,
): NewTask | Promise<NewTask> {
  const origin = originOf?.();
  const name = typeof contract === "string" ? contract : contract.name;
  checkTaskName(name);
  checkOptions(`enqueue "${name}"`, options, enqueueOptionNames);
  const { priority = 0, delayMs = 0, key = null, attempts = null, tenant = "default" } = options;
  checkNumber("priority", priority, taskOptions.priority);
  checkNumber("delayMs", delayMs, taskOptions.delayMs);
  const runAtMs = runAtOf(options);
  const policy = keyPolicyOf(options);
  const dependencies = checkDependencies(options);
  if (attempts !== null) checkNumber("attempts", attempts, taskOptions.attempts);
  if (key !== null) checkText("key", key, { max: taskOptions.key.maxChars });
  checkText("tenant", tenant, { max: taskOptions.tenant.maxChars });
  // The schema's input form is stored; the handler's side parses it to the output form.
  const payload = encodeJson(`the payload of "${name}"`, input, { maxBytes: maxPayloadBytes });
  const { concurrencyKey } = options;
  const {
    concurrency,
    queue,
    isFlow = false,
  } = typeof contract === "string" ? ({} as Partial<TaskContract>) : contract;
  if (isFlow && policy?.onDuplicate === "replace") {
    throw new FlotillaError("invalid_option", `"${name}" is a flow: a run can't replace another`);
  }
  if (isFlow && attempts !== null) {
    throw new FlotillaError(
      "invalid_option",
      `"${name}" is a flow: give \`attempts\` to its transitions instead`,
    );
  }
  const ready = (): NewTask => ({
    taskId: ids.next(),
    tenant,
    name,
    payload,
    priority,
    delayMs,
    ...(runAtMs !== undefined && { runAtMs }),
    maxAttempts: attempts,
    key,
    ...(policy && { policy }),
    ...dependencies,
    trace,
    ...concurrencyScopeOf({ name, concurrency, queue, input, concurrencyKey, tenant }),
    ...(isFlow && { isRun: true }),
    ...(origin && { origin }),
  });
  const schema = typeof contract === "string" ? undefined : contract.input;
  const checked = check(schema, input, `the payload of "${name}"`, "invalid_input");
  return checked instanceof Promise ? checked.then(ready) : ready();
}

/** The options of one task out of the options for many. */
export function optionsOfOne<Input>(
  { key, concurrencyKey, ...same }: EnqueueManyOptions<Input>,
  input: Input,
): EnqueueOptions {
  const counted = typeof concurrencyKey === "function" ? concurrencyKey(input) : concurrencyKey;
  const rest = { ...same, ...(counted !== undefined && { concurrencyKey: counted }) };
  if (key === undefined) return rest;
  if (typeof key === "function") return { ...rest, key: key(input) };
  throw new FlotillaError(
    "invalid_option",
    "enqueueMany: `key` must be a function that makes a key of each input",
  );
}

/** Throws if there are more tasks than one transaction should hold. */
export function checkBulk(tasks: number, payloadChars = 0): void {
  if (tasks <= maxBulkTasks && payloadChars <= maxBulkChars) return;
  throw new FlotillaError(
    "payload_too_large",
    tasks > maxBulkTasks
      ? `enqueueMany takes ${maxBulkTasks} tasks at most, not ${tasks}: send them in parts`
      : `enqueueMany takes ${maxBulkChars} characters of payload at most, not ${payloadChars}: send them in parts`,
  );
}

export function taskNamesOf(tasks: readonly { readonly name: string }[]): ReadonlySet<string> {
  return new Set(tasks.map(({ name }) => name));
}

export function duplicateKey(task: NewTask, holder: string): FlotillaError {
  const { name, key } = task;
  return new FlotillaError(
    "duplicate_key",
    `task ${holder} (${name}) holds the key ${JSON.stringify(key)} already`,
    { details: { taskId: holder, key } },
  );
}

/**
 * Splits tasks into rounds whose order gives the same outcome as storing each task on its own. A
 * statement handles all rows of a round at once, so a key has only one policy per round.
 */
export function inRounds(newTasks: readonly NewTask[]): readonly (readonly NewTask[])[] {
  if (newTasks.every(({ policy }) => policy === undefined)) return [newTasks];
  const rounds: NewTask[][] = [];
  const latest = new Map<string, { round: number; policy: string }>();
  for (const each of newTasks) {
    let round = 0;
    if (each.key !== null) {
      const id = keyId(each);
      const policy = JSON.stringify(each.policy ?? null);
      const last = latest.get(id);
      if (last) round = last.policy === policy ? last.round : last.round + 1;
      latest.set(id, { round, policy });
    }
    (rounds[round] ??= []).push(each);
  }
  return rounds.map((round) => round ?? []);
}

/** The last of the tasks that replace the same one, as if each had replaced the one before. */
export function lastOfEachKey(newTasks: readonly NewTask[]): NewTask[] {
  return [...new Map(newTasks.map((each) => [keyId(each), each])).values()];
}

export function keyId({ tenant, name, key }: Pick<NewTask, "tenant" | "name" | "key">): string {
  return JSON.stringify([tenant, name, key]);
}

/**
 * Checks the key options. Undefined for the default policy: the first task is returned while it is
 * kept.
 */
function keyPolicyOf(options: KeyOptions): KeyPolicy | undefined {
  const { key, onDuplicate = "existing", uniqueWhile = "kept", uniqueForMs } = options;
  checkChoice("onDuplicate", onDuplicate, taskOptions.onDuplicate.choices);
  checkChoice("uniqueWhile", uniqueWhile, taskOptions.uniqueWhile.choices);
  if (uniqueForMs !== undefined) {
    checkNumber("uniqueForMs", uniqueForMs, taskOptions.uniqueForMs);
  }
  if (key === undefined) {
    const needKey = ["onDuplicate", "uniqueWhile", "uniqueForMs"] as const;
    const unused = needKey.find((name) => options[name] !== undefined);
    if (unused === undefined) return undefined;
    throw new FlotillaError("invalid_option", `${unused} needs a key: give \`key\` too`);
  }
  const isUsual = uniqueWhile === "kept" && uniqueForMs === undefined;
  if (onDuplicate === "existing" && isUsual) return undefined;
  return {
    onDuplicate,
    whileUnfinished: uniqueWhile === "unfinished",
    forMs: uniqueForMs ?? null,
  };
}

function runAtOf({ runAt, delayMs }: EnqueueOptions): number | undefined {
  if (runAt === undefined) return undefined;
  if (delayMs !== undefined) {
    throw new FlotillaError(
      "invalid_option",
      "runAt and delayMs exclude each other: give only one of them",
    );
  }
  const ms = runAt instanceof Date ? runAt.getTime() : runAt;
  if (typeof ms === "number" && Number.isInteger(ms) && ms >= 0 && ms <= maxRunAtMs) return ms;
  throw new FlotillaError(
    "invalid_option",
    "runAt must be a date, or a whole number of milliseconds since 1970, up to the year 9999",
  );
}
