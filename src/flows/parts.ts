import { checkBackoff } from "../base/backoff.ts";
import { dayMs, yearMs } from "../base/durations.ts";
import { FlotillaError } from "../base/errors.ts";
import { encodeJson, type Json } from "../base/json.ts";
import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";
import { checkSchema } from "../base/schema.ts";
import { handleDefaults } from "../tasks/task.ts";
import type { SignalOptions, TriesOptions } from "./builder.ts";
import type { Call, ChildrenPart, SignalPart, SleepPart, Tries } from "./machine.ts";

/**
 * A run that fails loses what its earlier transitions did, so it is more patient than a task: with the
 * default backoff, ten attempts outlast eight minutes of somebody else's trouble.
 */
export const triesDefaults: Tries = {
  attempts: 10,
  timeoutMs: handleDefaults.timeoutMs,
  backoff: {},
};

export const triesNames = ["attempts", "timeoutMs", "backoff"] as const;

/** How often a part is tried, where it says nothing else as the flow says. */
export function triesOf(what: string, given: TriesOptions, otherwise: Tries): Tries {
  checkOptions(what, given, triesNames);
  const { attempts = otherwise.attempts, timeoutMs = otherwise.timeoutMs } = given;
  const { backoff = otherwise.backoff } = given;
  checkNumber(`${what}: attempts`, attempts, { min: 1, max: 1_000_000 });
  checkNumber(`${what}: timeoutMs`, timeoutMs, { min: 1, max: 7 * dayMs });
  checkBackoff(what, backoff);
  return { attempts, timeoutMs, backoff };
}

export function sleepPart(what: string, name: string, ms: unknown, tries: Tries): SleepPart {
  if (typeof ms === "function")
    return { kind: "sleep", name, tries, run: ms as Call, ms: undefined };
  const fixed = checkNumber(`${what}: its time`, ms, { min: 0, max: yearMs });
  return { kind: "sleep", name, tries, run: () => fixed, ms: fixed };
}

export function signalPart(
  what: string,
  name: string,
  given: SignalOptions<any, any, unknown>,
): SignalPart {
  checkOptions(what, given, ["schema", "timeoutMs", "onTimeout"]);
  const { schema, timeoutMs = null, onTimeout = "fail" } = given;
  checkSchema(`${what}: schema`, schema);
  if (timeoutMs !== null) checkNumber(`${what}: timeoutMs`, timeoutMs, { min: 1, max: yearMs });
  if (timeoutMs === null && given.onTimeout !== undefined) {
    throw invalid(`${what}: onTimeout needs \`timeoutMs\`: without it there is no such time`);
  }
  const kind = "signal";
  if (onTimeout === "fail") return { kind, name, schema, timeoutMs, onTimeout };
  if (typeof onTimeout !== "object" || onTimeout === null || !("value" in onTimeout)) {
    throw invalid(`${what}: onTimeout must be "fail" or { value }`);
  }
  // As it would come from the store, so that it is the same before and after a restart.
  const value = JSON.parse(encodeJson(`${what}: onTimeout.value`, onTimeout.value)) as Json;
  return { kind, name, schema, timeoutMs, onTimeout: { value } };
}

export function childrenPart(
  what: string,
  name: string,
  given: object,
  run: Call,
  otherwise: Tries,
): ChildrenPart {
  const { failures = "fail", ...rest } = given as { failures?: "fail" | "keep" };
  checkChoice(`${what}: failures`, failures, ["fail", "keep"]);
  return { kind: "children", name, tries: triesOf(what, rest, otherwise), run, failures };
}

export function checkFunction(what: string, run: unknown): asserts run is Call {
  if (typeof run !== "function") throw invalid(`${what} must be a function`);
}

export function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}
