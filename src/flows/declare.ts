import { type Backoff, checkBackoff } from "../base/backoff.ts";
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

export type SignalOptions<Payload, Checked, Value> = {
  /** Checks the payload; its output goes into the state. */
  schema?: Schema<Payload, Checked>;
  /** How long to wait. Default: without a timeout. */
  timeoutMs?: number;
  /** If none came in time: the run fails, or continues with a value. Default `fail`. */
  onTimeout?: "fail" | { readonly value: Value };
};

export type TriesOptions = {
  /** How many attempts it has before the run fails. Default: the flow's, which is 10. */
  attempts?: number;
  /** How long one attempt may take before its signal fires. Default: the flow's, which is 15 minutes. */
  timeoutMs?: number;
  backoff?: Backoff;
};

export type FlowOptions<Input, Parsed, Accepts, Output> = TriesOptions & {
  /** Raise it when the flow changes. A version doesn't touch runs that a higher one has advanced. */
  version: number;
  input?: Schema<Input, Parsed>;
  /** Checks the final state; its output is the result. Default: the result is the state. */
  output?: Schema<Accepts, Output>;
  /** A named queue, whose limit its runs share with other flows. */
  queue?: NamedQueue;
  /** How many of its runs may be claimed at once in the whole fleet, by a key made of the input. */
  concurrency?: Concurrency<Input>;
  /** They wrap every transition and finalizer, the first outermost. */
  interceptors?: readonly Interceptor[];
  /** Removed transitions of earlier versions, each with the one to continue with, or `end`. */
  removed?: Readonly<Record<string, string>>;
  /** Renamed transitions: the old name, and the new one. */
  renamed?: Readonly<Record<string, string>>;
};

const flowPattern = /^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$/;
export const namePattern = /^[A-Za-z][A-Za-z0-9_.:-]{0,99}$/;
const reserved: readonly string[] = ["start", "end", "finally"];
const maxVersion = 1_000_000_000;
/** A larger machine is unreadable, and probably a mistake. */
const maxParts = 1_000;

/**
 * A run that fails loses the work of its earlier transitions, so it has more attempts than a task. With
 * the default backoff, ten attempts survive an outage of eight minutes.
 */
const triesDefaults: Tries = {
  attempts: 10,
  timeoutMs: handleDefaults.timeoutMs,
  backoff: {},
};

const triesNames = ["attempts", "timeoutMs", "backoff"] as const;

/** Checks a flow's options, and creates a machine without parts. */
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
    throw invalidOption(`${what}: queue and concurrency exclude each other: set one of them`);
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
    throw invalidOption(
      `${what}: queue.name must be 1 to 200 letters, digits and _ . : / -, and begin with a letter, a digit or _`,
    );
  }
  checkNumber(`${what}: queue.limit`, queue.limit, limitRange);
}

/** Checks the name of a new part: its form, and that it is unique. */
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

/** Checks the whole machine: it has transitions, and every removed or renamed one leads somewhere. */
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
      // Either is enough: only a run shows whether the old name was a transition or a finalizer.
      const found = findCursor(machine, old, false) ?? findCursor(machine, old, true);
      const isEnd = option === "removed" && target === removedAtEnd;
      if (!found && !isEnd) {
        throw invalidOption(
          `${what}: \`${option}\` maps "${old}" to "${target}", which this flow doesn't have`,
        );
      }
    }
  }
  const both = Object.keys(machine.removed).find((old) => Object.hasOwn(machine.renamed, old));
  if (both !== undefined)
    throw invalidOption(`${what}: "${both}" is in both \`removed\` and \`renamed\``);
  return machine;
}

function checkNames(what: string, names: unknown): Readonly<Record<string, string>> {
  if (typeof names !== "object" || names === null || Array.isArray(names)) {
    throw new FlotillaError("invalid_option", `${what} must be an object: { old: "new" }`);
  }
  for (const [old, target] of Object.entries(names as Record<string, unknown>)) {
    if (typeof target === "string") continue;
    throw invalidOption(`${what}: "${old}" must be mapped to the name of a transition`);
  }
  return { ...(names as Record<string, string>) };
}

/** The attempts, timeout and backoff of a part; defaults come from the flow. */
export function resolveTries(what: string, options: TriesOptions, defaults: Tries): Tries {
  checkOptions(what, options, triesNames);
  const { attempts = defaults.attempts, timeoutMs = defaults.timeoutMs } = options;
  const { backoff = defaults.backoff } = options;
  checkNumber(`${what}: attempts`, attempts, { min: 1, max: 1_000_000 });
  checkNumber(`${what}: timeoutMs`, timeoutMs, { min: 1, max: 7 * dayMs });
  checkBackoff(what, backoff);
  return { attempts, timeoutMs, backoff };
}

export function sleepPart(what: string, name: string, ms: unknown, tries: Tries): SleepPart {
  if (typeof ms === "function")
    return { kind: "sleep", name, tries, run: ms as PartFunction, ms: undefined };
  const fixed = checkNumber(`${what}: ms`, ms, { min: 0, max: yearMs });
  return { kind: "sleep", name, tries, run: () => fixed, ms: fixed };
}

export function signalPart(
  what: string,
  name: string,
  options: SignalOptions<any, any, unknown>,
): SignalPart {
  checkOptions(what, options, ["schema", "timeoutMs", "onTimeout"]);
  const { schema, timeoutMs = null, onTimeout = "fail" } = options;
  checkSchema(`${what}: schema`, schema);
  if (timeoutMs !== null) checkNumber(`${what}: timeoutMs`, timeoutMs, { min: 1, max: yearMs });
  if (timeoutMs === null && options.onTimeout !== undefined) {
    throw invalidOption(`${what}: onTimeout needs \`timeoutMs\`: set it, or remove onTimeout`);
  }
  const kind = "signal";
  if (onTimeout === "fail") return { kind, name, schema, timeoutMs, onTimeout };
  if (typeof onTimeout !== "object" || onTimeout === null || !("value" in onTimeout)) {
    throw invalidOption(`${what}: onTimeout must be "fail" or { value }`);
  }
  // As JSON, so that it is the same before and after a restart.
  const value = JSON.parse(encodeJson(`${what}: onTimeout.value`, onTimeout.value)) as Json;
  return { kind, name, schema, timeoutMs, onTimeout: { value } };
}

export function childrenPart(
  what: string,
  name: string,
  options: object,
  run: PartFunction,
  defaults: Tries,
): ChildrenPart {
  const { failures = "fail", ...rest } = options as { failures?: "fail" | "keep" };
  checkChoice(`${what}: failures`, failures, ["fail", "keep"]);
  return { kind: "children", name, tries: resolveTries(what, rest, defaults), run, failures };
}

export function checkFunction(what: string, run: unknown): asserts run is PartFunction {
  if (typeof run !== "function") throw invalidOption(`${what} must be a function`);
}

export function invalidOption(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}
