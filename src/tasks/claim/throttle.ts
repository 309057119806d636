import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Jsonify } from "../../base/json.ts";
import { checkChoice, checkNumber, checkOptions } from "../../base/options.ts";
import { checkKey, type ThrottleDeclaration } from "../../throttles/declaration.ts";
import type { Limiter } from "../../throttles/limiter/limiter.ts";
import type { HeldPermit } from "../../throttles/limiter/permit.ts";
import { priorities, type Priority } from "../../throttles/limiter/wait-queue.ts";
import type { ThrottleRegistry } from "../../throttles/registry.ts";
import { isProcessDefault, type HandlerScope } from "../../throttles/scope.ts";
import { declarationOf, type Throttle } from "../../throttles/throttle.ts";
import type { AttemptOutcome } from "../finish/outcome.ts";
import type { Claim } from "../rows.ts";
import type { TaskAttempt } from "../run/attempt.ts";

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
  readonly declared: ThrottleDeclaration;
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

/** What its first call will probably cost. */
export function estimateOf(
  { estimate }: TaskThrottle,
  taskName: string,
  payload: string,
): number | undefined {
  if (typeof estimate !== "function") return estimate;
  const what = `the throttle's estimate of "${taskName}"`;
  return checkNumber(what, evaluate(what, estimate, inputOf(taskName, payload)), estimateRange);
}

function evaluate<Made>(what: string, make: (input: unknown) => Made, input: unknown): Made {
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

/** What a task of a throttled name was claimed with: its permit, or why it can't run now. */
export type Throttled =
  | {
      readonly limiter: Limiter;
      readonly permit: HeldPermit;
      readonly priority: Priority | undefined;
      /** Whether the permit has become its handler's, which gives it back. */
      handedOver: boolean;
    }
  | { readonly refused: AttemptOutcome };

/** How urgent the calls of an attempt are. */
export function priorityOf(
  throttle: Pick<TaskThrottle, "priority"> | undefined,
  { failures }: Pick<Claim, "failures">,
): Priority | undefined {
  return throttle?.priority ?? (failures > 0 ? "retry" : undefined);
}

/**
 * Whose permits a handler's calls use, and with which priority, where that isn't plain anyway: to say it
 * costs more than a short task.
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

/** Whether it was claimed in vain, because there was no permit for it. */
export function isRefused({ throttled }: TaskAttempt): boolean {
  return throttled !== undefined && "refused" in throttled;
}

/** Gives back the permit of a task that has ended without its handler having been called. */
export function releasePermit(throttled: Throttled): void {
  if ("permit" in throttled && !throttled.handedOver) throttled.permit.release("ignored");
}
