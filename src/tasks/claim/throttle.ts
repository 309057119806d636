import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Jsonify } from "../../base/json.ts";
import { checkChoice, checkNumber, checkOptions } from "../../base/options.ts";
import { checkKey, type Declared } from "../../throttles/declaration.ts";
import { declarationOf, type Throttle } from "../../throttles/throttle.ts";
import { priorities, type Priority } from "../../throttles/limiter/wait-queue.ts";

/** The throttle that a handler's calls are made under, so that its tasks wait for permits unclaimed. */
export type ThrottleOfHandler<Input = any> =
  | (Throttle & { readonly use?: undefined })
  | {
      readonly use: Throttle;
      /** Which of its limits a task counts against, made of the input as it was stored. */
      readonly key?: (input: Jsonify<Input>) => string;
      /** Of all its calls. `batch` by default, and `retry` after an attempt has failed. */
      readonly priority?: Priority;
      /** What its first call will probably cost in the bucket's unit. Default: what the throttle says. */
      readonly estimate?: number | ((input: Jsonify<Input>) => number);
    };

/** The same, checked. */
export type TaskThrottle = {
  readonly declared: Declared;
  readonly key: string | ((input: unknown) => string);
  readonly priority: Priority | undefined;
  readonly estimate: number | ((input: unknown) => number) | undefined;
};

const estimateRange = { min: 0, max: 1e9, whole: false } as const;

export function checkThrottle(what: string, given: ThrottleOfHandler): TaskThrottle {
  if (isThrottle(given)) {
    return { ...declarationOf(given), priority: undefined, estimate: undefined };
  }
  checkOptions(`${what}: throttle`, given, ["use", "key", "priority", "estimate"]);
  const { use, key, priority, estimate } = given;
  if (!isThrottle(use)) {
    throw new FlotillaError(
      "invalid_option",
      `${what}: throttle.use must be what \`throttle(name, options)\` gives`,
    );
  }
  if (key !== undefined && typeof key !== "function") {
    throw new FlotillaError(
      "invalid_option",
      `${what}: throttle.key must be a function of the input; for one key it is \`throttle: ${use.name}.key(…)\``,
    );
  }
  if (priority !== undefined) checkChoice(`${what}: throttle.priority`, priority, priorities);
  if (estimate !== undefined && typeof estimate !== "function") {
    checkNumber(`${what}: throttle.estimate`, estimate, estimateRange);
  }
  const found = declarationOf(use);
  // What is stored came from whoever could enqueue such an input.
  const ofInput = { key: key ?? found.key, estimate } as Pick<TaskThrottle, "key" | "estimate">;
  return { declared: found.declared, ...ofInput, priority };
}

function isThrottle(given: unknown): given is Throttle {
  return typeof (given as Throttle | undefined)?.fetchWith === "function";
}

/** Which key of its throttle a task counts against. */
export function keyOf({ declared, key }: TaskThrottle, taskName: string, payload: string): string {
  if (typeof key === "string") return key;
  return checkKey(
    declared.name,
    made(`the throttle's key of "${taskName}"`, key, inputOf(taskName, payload)),
  );
}

/** What its first call will probably cost. */
export function estimateOf(
  { estimate }: TaskThrottle,
  taskName: string,
  payload: string,
): number | undefined {
  if (typeof estimate !== "function") return estimate;
  const what = `the throttle's estimate of "${taskName}"`;
  return checkNumber(what, made(what, estimate, inputOf(taskName, payload)), estimateRange);
}

function made<Made>(what: string, make: (input: unknown) => Made, input: unknown): Made {
  try {
    return make(input);
  } catch (error) {
    throw new FlotillaError("invalid_option", `${what} couldn't be made: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

function inputOf(taskName: string, payload: string): unknown {
  try {
    return JSON.parse(payload);
  } catch (error) {
    throw new FlotillaError("invalid_input", `the stored payload of "${taskName}" isn't JSON`, {
      cause: error,
    });
  }
}
