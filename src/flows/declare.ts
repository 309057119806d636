import { checkBackoff } from "../base/backoff.ts";
import { dayMs, yearMs } from "../base/durations.ts";
import { FlotillaError } from "../base/errors.ts";
import { encodeJson, type Json } from "../base/json.ts";
import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";
import { checkSchema, type Schema } from "../base/schema.ts";
import {
  checkConcurrency,
  type Concurrency,
  limitRange,
  type NamedQueue,
} from "../tasks/concurrency/limits.ts";
import { handleDefaults } from "../tasks/task.ts";
import type { SignalOptions, TriesOptions } from "./flow.ts";
import {
  type PartFunction,
  type ChildrenPart,
  findCursor,
  type Interceptor,
  type Machine,
  removedAtEnd,
  type SignalPart,
  type SleepPart,
  type Tries,
} from "./machine.ts";

export type FlowOptions<Input, Parsed, Accepts, Output> = TriesOptions & {
  /** Raised when the flow changes. A run that a version has advanced is left alone by lower ones. */
  version: number;
  input?: Schema<Input, Parsed>;
  /** Checks what the run ends with; its output form is the result. Default: the result is the state. */
  output?: Schema<Accepts, Output>;
  /** The named queue whose limit its runs count against, together with those of other flows. */
  queue?: NamedQueue;
  /** How many of its runs may be under way at once in the whole fleet, by a key made of the input. */
  concurrency?: Concurrency<Input>;
  /** Run around every transition and finalizer, the first outermost. */
  interceptors?: readonly Interceptor[];
  /** Transitions of earlier versions that are no more, each with the one to go on with, or `end`. */
  removed?: Readonly<Record<string, string>>;
  /** Transitions that had another name in earlier versions: the old name, and the new. */
  renamed?: Readonly<Record<string, string>>;
};

const flowPattern = /^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$/;
export const namePattern = /^[A-Za-z][A-Za-z0-9_.:-]{0,99}$/;
const reserved: readonly string[] = ["start", "end", "finally"];
const maxVersion = 1_000_000_000;
/** A machine that nobody can read any more is a mistake. */
const maxParts = 1_000;

/** The beginning of a machine. */
export function checkFlow(name: string, options: FlowOptions<any, any, any, any>): Machine {
  const what = `flow ${JSON.stringify(name)?.slice(0, 80)}`;
  if (typeof name !== "string" || !flowPattern.test(name)) {
    throw invalidOption(
      `${what}: a flow's name is 1 to 200 letters, digits and _ . : / -, and begins with a letter, a digit or _`,
    );
  }
  const { version, input, output, queue, interceptors = [], ...rest } = options ?? {};
  const { removed = {}, renamed = {}, concurrency, ...tries } = rest;
  checkOptions(what, options, [
    "version",
    "input",
    "output",
    "queue",
    "concurrency",
    "interceptors",
    "removed",
    "renamed",
    ...triesNames,
  ]);
  checkNumber(`${what}: version`, version, { min: 1, max: maxVersion });
  if (queue !== undefined) checkQueue(what, queue);
  if (concurrency !== undefined) checkConcurrency(what, concurrency);
  if (queue !== undefined && concurrency !== undefined) {
    throw invalidOption(`${what}: queue and concurrency are both limits: give one of them`);
  }
  checkSchema(`${what}: input`, input);
  checkSchema(`${what}: output`, output);
  if (!Array.isArray(interceptors)) throw invalidOption(`${what}: interceptors must be a list`);
  interceptors.forEach((each: unknown) => checkFunction(`${what}: an interceptor`, each));
  return {
    name,
    version,
    input,
    output,
    isFlow: true,
    queue,
    ...(concurrency && { concurrency }),
    removed: checkNames(`${what}: removed`, removed),
    renamed: checkNames(`${what}: renamed`, renamed),
    tries: resolveTries(what, tries, triesDefaults),
    initializers: [],
    interceptors: [...(interceptors as readonly PartFunction[])],
    parts: [],
    finalizers: [],
  };
}

function checkQueue(what: string, queue: NamedQueue): void {
  checkOptions(`${what}: queue`, queue, ["name", "limit"]);
  if (typeof queue.name !== "string" || !flowPattern.test(queue.name)) {
    throw invalidOption(`${what}: queue.name must be the name of a queue`);
  }
  checkNumber(`${what}: queue.limit`, queue.limit, limitRange);
}

/** A name that no other part of the machine has. */
export function checkPartName(machine: Machine, name: unknown): string {
  const what = `flow "${machine.name}"`;
  if (typeof name !== "string" || !namePattern.test(name)) {
    throw invalidOption(
      `${what}: a transition's name is 1 to 100 letters, digits and _ . : -, and begins with a letter, not ${JSON.stringify(name)?.slice(0, 80)}`,
    );
  }
  if (reserved.includes(name) || /^finally-\d+$/.test(name)) {
    throw invalidOption(`${what}: "${name}" is a reserved name`);
  }
  if ([...machine.parts, ...machine.finalizers].some((part) => part.name === name)) {
    throw invalidOption(`${what} has a "${name}" already`);
  }
  return name;
}

/** What can be told only of the whole: something to run, and a place for every earlier name. */
export function checkMachine(machine: Machine): Machine {
  const what = `flow "${machine.name}"`;
  const parts = [...machine.parts, ...machine.finalizers];
  if (machine.parts.length === 0) throw invalidOption(`${what} has no transitions`);
  if (parts.length > maxParts) throw invalidOption(`${what} has more than ${maxParts} parts`);
  const names = parts.map(({ name }) => name);
  for (const option of ["removed", "renamed"] as const) {
    for (const [old, target] of Object.entries(machine[option])) {
      if (names.includes(old)) {
        throw invalidOption(`${what}: "${old}" is declared, so it can't be in \`${option}\``);
      }
      // One or the other, since which of both a run stood in is known only when there is one.
      const found = findCursor(machine, old, false) ?? findCursor(machine, old, true);
      const isEnd = option === "removed" && target === removedAtEnd;
      if (!found && !isEnd) {
        throw invalidOption(
          `${what}: \`${option}\` leads "${old}" to "${target}", which isn't there`,
        );
      }
    }
  }
  const both = Object.keys(machine.removed).find((old) => Object.hasOwn(machine.renamed, old));
  if (both !== undefined)
    throw invalidOption(`${what}: "${both}" is in both \`removed\` and \`renamed\``);
  return machine;
}

function checkNames(what: string, given: unknown): Readonly<Record<string, string>> {
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new FlotillaError("invalid_option", `${what} must be an object: { old: "new" }`);
  }
  for (const [old, target] of Object.entries(given as Record<string, unknown>)) {
    if (typeof target === "string") continue;
    throw invalidOption(`${what}: "${old}" must lead to the name of a transition`);
  }
  return { ...(given as Record<string, string>) };
}

/**
 * A run that fails loses what its earlier transitions did, so it is more patient than a task: with the
 * default backoff, ten attempts outlast eight minutes of somebody else's trouble.
 */
const triesDefaults: Tries = {
  attempts: 10,
  timeoutMs: handleDefaults.timeoutMs,
  backoff: {},
};

const triesNames = ["attempts", "timeoutMs", "backoff"] as const;

/** How often a part is tried, where it says nothing else as the flow says. */
export function resolveTries(what: string, given: TriesOptions, otherwise: Tries): Tries {
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
    return { kind: "sleep", name, tries, run: ms as PartFunction, ms: undefined };
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
    throw invalidOption(`${what}: onTimeout needs \`timeoutMs\`: without it there is no such time`);
  }
  const kind = "signal";
  if (onTimeout === "fail") return { kind, name, schema, timeoutMs, onTimeout };
  if (typeof onTimeout !== "object" || onTimeout === null || !("value" in onTimeout)) {
    throw invalidOption(`${what}: onTimeout must be "fail" or { value }`);
  }
  // As it would come from the store, so that it is the same before and after a restart.
  const value = JSON.parse(encodeJson(`${what}: onTimeout.value`, onTimeout.value)) as Json;
  return { kind, name, schema, timeoutMs, onTimeout: { value } };
}

export function childrenPart(
  what: string,
  name: string,
  given: object,
  run: PartFunction,
  otherwise: Tries,
): ChildrenPart {
  const { failures = "fail", ...rest } = given as { failures?: "fail" | "keep" };
  checkChoice(`${what}: failures`, failures, ["fail", "keep"]);
  return { kind: "children", name, tries: resolveTries(what, rest, otherwise), run, failures };
}

export function checkFunction(what: string, run: unknown): asserts run is PartFunction {
  if (typeof run !== "function") throw invalidOption(`${what} must be a function`);
}

export function invalidOption(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}
