import type { Clock } from "../base/clock.ts";
import { type ErrorCode, errorCodes, FlotillaError } from "../base/errors.ts";
import { encodeJson, isJsonObject, type Json, storableText } from "../base/json.ts";
import type { LoopDone, RoundContext, StepContext, StepWrite, StoredStep } from "./model.ts";
import { unreadable } from "./refusals.ts";

const loopDone = Symbol("done");

export const defaultTimeoutMs = 15 * 60_000;

/** A step's context, and the row that its function has written in a transaction of its own. */
export type Within = {
  readonly context: StepContext;
  readonly written: () => StepWrite | undefined;
  /** The row is stored by now, or won't be: it needs no room beside those that are. */
  readonly release: () => void;
};

type CallParts = {
  clock: Clock;
  controller: StepController;
  /** The key of the step, for messages. */
  path: string;
  timeoutMs: number;
  /** How long the function may take to settle after its signal has aborted. */
  graceMs: number;
};

/** The signal of a step. Most functions never read it, so it is created on demand. */
export class StepController {
  readonly #outer: () => AbortSignal;
  #own: AbortController | undefined;
  #signal: AbortSignal | undefined;
  #reason: FlotillaError | undefined;

  constructor(outer: () => AbortSignal) {
    this.#outer = outer;
  }

  get signal(): AbortSignal {
    if (this.#signal === undefined) {
      this.#own = new AbortController();
      if (this.#reason) this.#own.abort(this.#reason);
      this.#signal = AbortSignal.any([this.#outer(), this.#own.signal]);
      ownSignals.set(this.#signal, this.#own.signal);
    }
    return this.#signal;
  }

  abort(reason: FlotillaError): void {
    this.#reason = reason;
    this.#own?.abort(reason);
  }
}

/** The part of a step's signal that is its own, without that of the attempt. */
const ownSignals = new WeakMap<AbortSignal, AbortSignal>();

const lateResults = new WeakMap<AbortSignal, () => unknown>();

/** Sets what a step returns if its time is over, and its function goes on though it was told to stop. */
export function setLateResult(signal: AbortSignal, result: () => unknown): void {
  lateResults.set(signal, result);
}

/** Whether a step was told to stop by its own time limit, and by nothing before it. */
export function isTimedOut(signal: AbortSignal): boolean {
  return signal.aborted && signal.reason === ownSignals.get(signal)?.reason;
}

/**
 * Calls a step's function with a time limit. At the limit its signal aborts. What it returns within
 * the grace after that still counts; then it is abandoned.
 */
export async function callWithin(run: () => unknown, parts: CallParts): Promise<unknown> {
  const { clock, controller, path, timeoutMs, graceMs } = parts;
  const returned = run();
  if (!isThenable(returned)) return returned;
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  let late: FlotillaError | undefined;
  let cancel = clock.after(timeoutMs, () => {
    late = new FlotillaError("timeout", `step "${path}" took longer than ${timeoutMs} ms`);
    controller.abort(late);
    cancel = clock.after(graceMs, () => {
      const result = isTimedOut(controller.signal) ? lateResults.get(controller.signal) : undefined;
      if (result) resolve(result());
      else reject(late);
    });
  });
  returned.then(resolve, (error: unknown) => reject(late ?? error));
  try {
    return await promise;
  } finally {
    cancel();
  }
}

/** What a step returned, as it is stored. */
export function encodeResult(path: string, result: unknown, maxBytes: number): string {
  const what = `the result of step "${path}"`;
  if (isStream(result)) {
    throw new FlotillaError(
      "payload_not_storable",
      `${what} is a stream, which can't be stored: read it to its end within the step and return what it held`,
    );
  }
  return encodeJson(what, result, { maxBytes });
}

/** Errors that are stored and thrown again: another attempt could only end the same way. */
export function isStoredError(thrown: unknown): thrown is FlotillaError {
  return thrown instanceof FlotillaError && thrown.code === "aborted";
}

export function encodeError(path: string, { code, message, details }: FlotillaError): string {
  const text = storableText(message);
  try {
    return encodeJson(`the error of step "${path}"`, { code, message: text, details });
  } catch {
    // Its details can't be stored, and its message says the most.
    return JSON.stringify({ code, message: text });
  }
}

/** The error that a step has thrown in an earlier attempt; undefined if the value is none. */
export function decodeError(value: Json): FlotillaError | undefined {
  if (!isJsonObject(value)) return undefined;
  const { code, message, details } = value;
  if (!errorCodes.includes(code as ErrorCode) || typeof message !== "string") return undefined;
  return new FlotillaError(code as ErrorCode, message, isJsonObject(details) ? { details } : {});
}

/** A round of a loop that is next, with the state that it gets as JSON. */
export type Round = { readonly at: number; readonly value: string };

export function toRound(row: StoredStep, stored: Json): Round {
  const { at, state } = isJsonObject(stored) ? stored : {};
  if (row.kind === "round" && typeof at === "number" && state !== undefined) {
    return { at, value: JSON.stringify(state) };
  }
  throw unreadable(row.key, "is no state of a loop");
}

/** A round is stored by what it returns, so that it has no `store`. */
export function roundContext(context: StepContext): RoundContext {
  return {
    get step() {
      return context.step;
    },
    get key() {
      return context.key;
    },
    get signal() {
      return context.signal;
    },
    get log() {
      return context.log;
    },
    done: (result) => ({ [loopDone]: true, done: result }),
  };
}

export function isLoopDone(returned: unknown): returned is LoopDone<unknown> {
  return typeof returned === "object" && returned !== null && loopDone in returned;
}

/** Calls a function for each item, some at the same time. After a failure no further one is called. */
export async function callEach<Item, Result>(
  items: readonly Item[],
  atOnce: number,
  run: (item: Item, at: number) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  let next = 0;
  let failed = false;
  const work = async (): Promise<void> => {
    while (next < items.length && !failed) {
      const at = next++;
      try {
        results[at] = await run(items[at]!, at);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const workers = Array.from({ length: Math.min(atOnce, items.length) }, work);
  const broken = (await Promise.allSettled(workers)).find((each) => each.status === "rejected");
  if (broken) throw broken.reason;
  return results;
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  if (value === null || (typeof value !== "object" && typeof value !== "function")) return false;
  return typeof (value as { then?: unknown }).then === "function";
}

/** JSON would store a stream as an empty object, and a response as well. */
function isStream(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (Symbol.asyncIterator in value) return true;
  return ["getReader", "pipe", "arrayBuffer"].some(
    (method) => typeof (value as Record<string, unknown>)[method] === "function",
  );
}
