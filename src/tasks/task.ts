import { type Backoff, checkBackoff } from "../base/backoff.ts";
import { dayMs } from "../base/durations.ts";
import { FlotillaError } from "../base/errors.ts";
import type { Json, Jsonify } from "../base/json.ts";
import { checkChoice, checkNumber, checkOptions, isStorable } from "../base/options.ts";
import { checkSchema, type Schema } from "../base/schema.ts";
import { checkThrottle, type ThrottleOfHandler } from "./claim/throttle.ts";
import { checkConcurrency, type Concurrency } from "./concurrency/limits.ts";
import type { TaskError } from "./rows.ts";
import type { TaskContext, TaskContract, TaskHandler } from "./model.ts";

export type HandleOptions<Input = any> = {
  /**
   * Raise it when the meaning of its steps changes. Once a version has stored a step of a task, pods of
   * lower versions don't claim it. Default: no version, which is below all others.
   */
  version?: number;
  /** How many attempts the task gets before it fails. Default 3. */
  attempts?: number;
  /** How long one attempt may take before its signal aborts. Default 15 minutes. */
  timeoutMs?: number;
  backoff?: Backoff;
  /** How many of this task one pod runs at once. Default: up to the pod's capacity. */
  slots?: number;
  /**
   * `local`: every value is saved on this machine at once, and in the store every five seconds, for
   * tasks that save often and resume from it. Default `store`: a few times a second.
   */
  progress?: "store" | "local";
  /**
   * The throttle of the downstream that it calls: a task is claimed only when a permit is free, and
   * its first call uses that permit.
   */
  throttle?: ThrottleOfHandler<Input>;
  /** Runs after the task has failed for good, as a task of its own: `<name>:failed`. */
  onFailure?: (context: TaskContext<TaskFailure<Input>>) => unknown;
};

type ContractOptions<Input, Parsed, Returned, Output> = {
  input?: Schema<Input, Parsed>;
  /** Checks what the handler returns; its output form is stored. */
  output?: Schema<Returned, Output>;
  /**
   * How many run at once in the whole fleet, by a key derived from the input. Default: no limit.
   */
  concurrency?: Concurrency<Input>;
};

type Handle<Input, Parsed, Returned, Output> = {
  (run: HandlerFunction<Parsed, Returned>): TaskHandler<Input, Parsed, Output>;
  (
    options: HandleOptions<Input>,
    run: HandlerFunction<Parsed, Returned>,
  ): TaskHandler<Input, Parsed, Output>;
};

type HandlerFunction<Parsed, Returned> = (
  context: TaskContext<Parsed>,
) => Returned | Promise<Returned>;

export type InputOf<T extends TaskContract> =
  T extends TaskContract<infer Input, any, any> ? Input : never;

/** What `waitFor` returns: the handler's value after a round trip through JSON. */
export type ResultOf<T extends TaskContract> =
  T extends TaskContract<any, any, infer Output> ? Jsonify<Output> : never;

/** The input of the `onFailure` function: which task has failed, and why. */
export type TaskFailure<Input = unknown> = {
  readonly taskId: string;
  readonly name: string;
  /** The enqueued input, as stored. */
  readonly input: Jsonify<Input>;
  readonly error: TaskError;
  /** Attempts that failed, without deaths of pods. */
  readonly attempts: number;
};

export const handleDefaults = { attempts: 3, timeoutMs: 15 * 60_000 };

const maxNameChars = 200;
const maxSignalIdChars = 200;
const namePattern = /^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$/;

const handleOptions = [
  "version",
  "attempts",
  "timeoutMs",
  "backoff",
  "slots",
  "progress",
  "throttle",
  "onFailure",
];

/**
 * Declares a task. `task(name, options)` is the contract; with a function it is the handler too.
 */
export function task<Input = Json, Parsed = Input, Returned = unknown, Output = Returned>(
  name: string,
  options?: ContractOptions<Input, Parsed, Returned, Output>,
): TaskContract<Input, Parsed, Output> & { handle: Handle<Input, Parsed, Returned, Output> };
export function task<Input = Json, Parsed = Input, Returned = unknown, Output = Returned>(
  name: string,
  options: ContractOptions<Input, Parsed, Returned, Output> & HandleOptions<Input>,
  run: HandlerFunction<Parsed, Returned>,
): TaskHandler<Input, Parsed, Output>;
export function task(
  name: string,
  options: ContractOptions<any, any, any, any> & HandleOptions = {},
  run?: HandlerFunction<any, any>,
): unknown {
  checkTaskName(name);
  if (typeof options === "function") {
    throw new FlotillaError(
      "invalid_option",
      `task "${name}": the function comes third, as in \`task("${name}", {}, async ({ input }) => …)\``,
    );
  }
  const { input, output, concurrency, ...rest } = options;
  checkSchema(`task "${name}": input`, input);
  checkSchema(`task "${name}": output`, output);
  if (concurrency !== undefined) checkConcurrency(`task "${name}"`, concurrency);
  const contract: TaskContract = { name, input, output, ...(concurrency && { concurrency }) };
  if (run) return withHandler(contract, rest, run);
  checkOptions(`task "${name}"`, rest, ["input", "output", "concurrency"], {
    options: handleOptions,
    how: "is given with the code, as in `.handle({ … }, async ({ input }) => …)`",
  });
  return {
    ...contract,
    handle: (
      first: HandleOptions | HandlerFunction<any, any>,
      second?: HandlerFunction<any, any>,
    ) =>
      typeof first === "function"
        ? withHandler(contract, {}, first)
        : withHandler(contract, first, second!),
  };
}

export function checkTaskName(name: unknown): asserts name is string {
  if (typeof name === "string" && namePattern.test(name)) return;
  throw new FlotillaError(
    "invalid_option",
    `a task's name is 1 to 200 letters, digits and _ . : / -, and begins with a letter, a digit or _, not ${JSON.stringify(name)?.slice(0, 80)}`,
  );
}

/** Throws unless it can be the id of a signal to a task or run. */
export function checkSignalId(id: unknown): asserts id is string {
  const isText = typeof id === "string" && id.length > 0 && id.length <= maxSignalIdChars;
  if (isText && isStorable(id)) return;
  throw new FlotillaError(
    "invalid_option",
    `signal: id must be 1 to ${maxSignalIdChars} characters, without NUL and lone surrogates`,
  );
}

/** The name of the follow-up task of a name. */
export function followUpName(name: string): string {
  return `${name}:failed`;
}

function withHandler(
  contract: TaskContract,
  given: HandleOptions,
  run: HandlerFunction<any, any>,
): TaskHandler {
  const what = `task "${contract.name}"`;
  checkOptions(what, given, handleOptions);
  if (typeof run !== "function") {
    throw new FlotillaError("invalid_option", `${what}: the handler must be a function`);
  }
  const { attempts = handleDefaults.attempts, timeoutMs = handleDefaults.timeoutMs } = given;
  const { backoff = {}, slots, progress, throttle, onFailure, version } = given;
  if (version !== undefined) {
    checkNumber(`${what}: version`, version, { min: 1, max: 1_000_000_000 });
  }
  if (progress !== undefined) checkChoice(`${what}: progress`, progress, ["store", "local"]);
  if (slots !== undefined) checkNumber(`${what}: slots`, slots, { min: 1, max: 100_000 });
  checkNumber(`${what}: attempts`, attempts, { min: 1, max: 1_000 });
  checkNumber(`${what}: timeoutMs`, timeoutMs, { min: 1, max: 7 * dayMs });
  checkBackoff(what, backoff);
  const options = {
    attempts,
    timeoutMs,
    backoff,
    ...(slots !== undefined && { slots }),
    ...(progress && { progress }),
  };
  const handler: TaskHandler = {
    ...contract,
    options,
    run,
    ...(version !== undefined && { version }),
    ...(throttle !== undefined && { throttle: checkThrottle(what, throttle) }),
  };
  if (onFailure === undefined) return handler;
  return { ...handler, onFailure: followUpHandler(contract.name, onFailure) };
}

/** A follow-up has the default options of a task. */
function followUpHandler(name: string, onFailure: HandlerFunction<any, unknown>): TaskHandler {
  const following = followUpName(name);
  if (following.length > maxNameChars) {
    throw new FlotillaError(
      "invalid_option",
      `task "${name}": with \`onFailure\` its name may have ${maxNameChars - following.length + name.length} characters at most, because "${followUpName("")}" is added`,
    );
  }
  if (typeof onFailure !== "function") {
    throw new FlotillaError("invalid_option", `task "${name}": onFailure must be a function`);
  }
  return withHandler({ name: following, input: undefined, output: undefined }, {}, onFailure);
}
