import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Jsonify } from "../../base/json.ts";
import { checkChoice, checkNumber, checkOptions } from "../../base/options.ts";
import { checkKey } from "../../throttles/declaration.ts";
import type { TaskThrottle, Throttled, TaskAttempt } from "../model.ts";
import { priorities, type Priority } from "../../throttles/limiter/priority.ts";
import type { ThrottleRegistry } from "../../throttles/registry.ts";
import { isProcessDefault, type HandlerScope } from "../../throttles/scope.ts";
import { declarationOf, type Throttle } from "../../throttles/throttle.ts";
import type { Claim } from "../rows.ts";

/** The throttle of a handler's calls. Tasks that wait for its permits stay unclaimed. */
export type ThrottleOfHandler<Input = any> =
  | (Throttle & { readonly use?: undefined })
  | {
      readonly use: Throttle;
      /** Derives the throttle's key from the stored input. */
      readonly key?: (input: Jsonify<Input>) => string;
      /** Priority of all its calls. Default `batch`, and `retry` after a failed attempt. */
      readonly priority?: Priority;
      /**
       * Expected cost of its first call in the bucket's unit. Default: the throttle's own estimate.
       */
      readonly estimate?: number | ((input: Jsonify<Input>) => number);
    };

const estimateRange = { min: 0, max: 1e9, whole: false } as const;

/** Validates the `throttle` of a handler. */
export function checkThrottle(what: string, throttle: ThrottleOfHandler): TaskThrottle {
  if (isThrottle(throttle)) {
    return { ...declarationOf(throttle), priority: undefined, estimate: undefined };
  }
  checkOptions(`${what}: throttle`, throttle, ["use", "key", "priority", "estimate"]);
  const { use, key, priority, estimate } = throttle;
  if (!isThrottle(use)) {
    throw new FlotillaError(
      "invalid_option",
      `${what}: throttle.use must be what \`throttle(name, options)\` returns`,
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
  // The functions take `unknown`, because stored input may come from any enqueuer.
  const ofInput = { key: key ?? found.key, estimate } as Pick<TaskThrottle, "key" | "estimate">;
  return { declared: found.declared, ...ofInput, priority };
}

/** The throttle key that a task counts against. */
export function throttleKeyOf(
  { declared, key }: TaskThrottle,
  taskName: string,
  payload: string,
): string {
  if (typeof key === "string") return key;
  return checkKey(
    declared.name,
    evaluate(`the throttle's key of "${taskName}"`, key, inputOf(taskName, payload)),
  );
}

/** The expected cost of a task's first call. */
export function estimateOf(
  { estimate }: TaskThrottle,
  taskName: string,
  payload: string,
): number | undefined {
  if (typeof estimate !== "function") return estimate;
  const what = `the throttle's estimate of "${taskName}"`;
  return checkNumber(what, evaluate(what, estimate, inputOf(taskName, payload)), estimateRange);
}

/** The priority of an attempt's calls. */
export function priorityOf(
  throttle: Pick<TaskThrottle, "priority"> | undefined,
  { failures }: Pick<Claim, "failures">,
): Priority | undefined {
  return throttle?.priority ?? (failures > 0 ? "retry" : undefined);
}

/**
 * The throttle scope of a handler's calls. Undefined where it equals the process default, because
 * entering a scope costs more than a short task.
 */
export function throttleScopeOf(
  attempt: TaskAttempt,
  throttles: ThrottleRegistry,
): HandlerScope | undefined {
  const { throttled, claim, handler } = attempt;
  if (throttled !== undefined && "permit" in throttled) {
    throttled.handedOver = true;
    const { priority, limiter, permit } = throttled;
    return { throttles, priority, permits: [{ limiter, permit }] };
  }
  if ((claim.failures === 0 || !throttles.any) && isProcessDefault(throttles)) return undefined;
  return { throttles, priority: priorityOf(handler.throttle, claim) };
}

/** True if the task was claimed but got no permit. */
export function isRefused({ throttled }: TaskAttempt): boolean {
  return throttled !== undefined && "refused" in throttled;
}

/** Releases the permit of a task that ended before its handler was called. */
export function releasePermit(throttled: Throttled): void {
  if ("permit" in throttled && !throttled.handedOver) throttled.permit.release("ignored");
}

function isThrottle(given: unknown): given is Throttle {
  return typeof (given as Throttle | undefined)?.fetchWith === "function";
}

function evaluate<Made>(what: string, make: (input: unknown) => Made, input: unknown): Made {
  try {
    return make(input);
  } catch (error) {
    throw new FlotillaError("invalid_option", `${what} threw: ${messageOf(error)}`, {
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
