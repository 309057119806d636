import { dayMs } from "../base/durations.ts";
import { FlotillaError } from "../base/errors.ts";
import { encodeJson, type Json } from "../base/json.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import { checkStepKey, checkStepName, inputHash, keyedSegment } from "./key.ts";
import {
  type ForEachOptions,
  maxForEachItems,
  maxStepDepth,
  type StepContext,
  type StepOptions,
} from "./model.ts";

/** What steps are refused with: wrong options, wrong calls, and rows that can't be used. */

const stepOptions = ["key", "input", "timeoutMs", "throttle", "once"];
const forEachOptions = ["key", "atOnce", "throttle", "timeoutMs"];
export const timeoutRange = { min: 1, max: 7 * dayMs };
const defaultAtOnce = 10;
const maxAtOnce = 1_000;

/** Throws unless a step can be called so. */
export function checkStep(name: string, options: StepOptions<any>, run: unknown): void {
  checkStepName(name);
  if (options === undefined) throw noFunction(name);
  checkOptions(`step "${name}"`, options, stepOptions);
  checkCall(name, options, run);
  const { once } = options;
  if (once === undefined || once === true || typeof once?.look === "function") return;
  throw new FlotillaError(
    "invalid_option",
    `step "${name}": once must be true or an object with the function \`look\``,
  );
}

/** Throws unless `forEach` can be called so. */
export function checkForEach<Item>(
  prefix: string,
  name: string,
  items: readonly Item[],
  options: ForEachOptions<Item>,
  run: unknown,
) {
  checkStepName(name);
  const what = `step "${name}"`;
  checkOptions(what, options, forEachOptions);
  checkCall(name, options, run);
  const { key: keyOf, atOnce = defaultAtOnce, ...rest } = options;
  checkNumber(`${what}: atOnce`, atOnce, { min: 1, max: maxAtOnce });
  if (typeof keyOf !== "function") {
    throw new FlotillaError("invalid_option", `${what}: key must be a function of an item`);
  }
  if (!Array.isArray(items) || items.length > maxForEachItems) {
    throw new FlotillaError(
      "invalid_option",
      `${what}: forEach takes a list of up to ${maxForEachItems} items; enqueue a task for each if there are more`,
    );
  }
  const keys = new Set<string>();
  for (const [at, item] of items.entries()) {
    const key = keyOf(item, at);
    checkStepKey(name, key);
    if (keys.has(key)) throw ambiguous(prefix + keyedSegment(name, key), name, key);
    keys.add(key);
  }
  return { keys: [...keys], atOnce, rest };
}

export function checkRound(name: string, round: unknown): void {
  if (typeof round !== "function") throw noFunction(name);
}

/** The hash of a step's input. */
export function hashOf(name: string, input: Json): string {
  return inputHash(JSON.parse(encodeJson(`the input of step "${name}"`, input)) as Json);
}

export function tooDeep(name: string): FlotillaError {
  return new FlotillaError(
    "invalid_option",
    `step "${name}" is within ${maxStepDepth} others, which is the most: call it beside them`,
  );
}

export function ambiguous(path: string, name: string, key: string | undefined): FlotillaError {
  const message =
    key === undefined
      ? `two steps are called "${name}" at the same time, and a later attempt could not tell which is which: give each a \`key\``
      : `step "${name}" is called twice with the key ${JSON.stringify(key)}: give each call its own`;
  return new FlotillaError("step_ambiguous", message, { details: { step: path } });
}

/** For a call after the attempt or the step around it has ended. */
export function calledLate(prefix: string, name: string): FlotillaError {
  const around = prefix === "" ? "its attempt" : `"${prefix.slice(0, -1)}"`;
  return new FlotillaError(
    "closed",
    `step "${name}" was called after ${around} had ended: await every step before you return`,
  );
}

export function takenWithin(): FlotillaError {
  return new FlotillaError(
    "step_ambiguous",
    "what comes meanwhile can't be taken within a step, which a later attempt doesn't run again: take it outside, and give it to the step",
  );
}

export function changed(path: string, stored: string, given: string): FlotillaError {
  return new FlotillaError(
    "step_changed",
    `step "${path}" is stored for another input: give what it does now another name, or forget the stored step`,
    { details: { step: path, stored, given } },
  );
}

/** For a row that no step of this code can have stored. */
export function unreadable(path: string, what: string, cause?: unknown): FlotillaError {
  return new FlotillaError(
    "step_changed",
    `what is stored for step "${path}" ${what}: give the step another name, or forget the stored step`,
    { details: { step: path }, ...(cause !== undefined && { cause }) },
  );
}

export function stepNotCommitted(path: string): FlotillaError {
  const message = `step "${path}" called \`store\`, but its transaction wasn't committed`;
  return new FlotillaError("not_committed", message);
}

export function storedTwice(path: string): FlotillaError {
  return new FlotillaError("conflict", `step "${path}" has called \`store\` already`);
}

export function unknownOutcome(path: string): FlotillaError {
  return new FlotillaError(
    "unknown_outcome",
    `step "${path}" runs at most once, and was called before without a result that is stored: find out what became of it, then return that from \`look\`, or forget the step to run it again`,
    { details: { step: path } },
  );
}

/** What runs in place of a step that is called at most once and has been. */
export function lookFor(
  path: string,
  once: NonNullable<StepOptions<any>["once"]>,
): (context: StepContext) => Promise<unknown> {
  return async (context) => {
    const found = once === true ? undefined : await once.look(context);
    if (found === undefined) throw unknownOutcome(path);
    return found;
  };
}

function checkCall(name: string, { timeoutMs }: { timeoutMs?: number }, run: unknown): void {
  if (timeoutMs !== undefined) checkNumber(`step "${name}": timeoutMs`, timeoutMs, timeoutRange);
  if (typeof run !== "function") throw noFunction(name);
}

function noFunction(name: string): FlotillaError {
  return new FlotillaError(
    "invalid_option",
    `step "${name}" needs a function, as in step("${name}", () => …)`,
  );
}
