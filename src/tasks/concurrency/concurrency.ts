import { FlotillaError, messageOf } from "../../base/errors.ts";
import { checkNumber, checkOptions, checkText } from "../../base/options.ts";
import { keyScope, queueScope } from "../sql/rooms.ts";

/** How many tasks may run at once in the whole fleet. */
export type Concurrency<Input = any> = {
  /** 1 to 10,000. */
  readonly limit: number;
  /** What is counted together, made of the input. Without it, all tasks of the name. */
  readonly key?: (input: Input) => string;
};

/** A queue by its name: runs of all flows that name it count together. */
export type NamedQueue = {
  readonly name: string;
  /** How many may run at once in the whole fleet: 1 to 10,000. */
  readonly limit: number;
};

// Whoever claims counts what runs, so a limit that is out of all reach would only be a cost.
export const limitRange = { min: 1, max: 10_000 } as const;
const keyChars = 500;

export function checkConcurrency(what: string, given: Concurrency): Concurrency {
  checkOptions(`${what}: concurrency`, given, ["limit", "key"]);
  checkNumber(`${what}: concurrency.limit`, given.limit, limitRange);
  if (given.key === undefined || typeof given.key === "function") return given;
  throw new FlotillaError(
    "invalid_option",
    `${what}: concurrency.key must be a function that makes a key of the input`,
  );
}

export type Gated = {
  readonly name: string;
  readonly concurrency: Concurrency | undefined;
  readonly queue?: NamedQueue | undefined;
  readonly input: unknown;
  /** What the caller says instead of what the contract makes of the input. */
  readonly concurrencyKey: string | undefined;
  readonly tenant: string;
};

/** The gate that a task has to go through: for a key, for whose it is, or for both; undefined if none. */
export function gateOf(task: Gated): { group: string | null; gated: true } | undefined {
  const { name, concurrency, queue, concurrencyKey, tenant } = task;
  if (concurrencyKey !== undefined) {
    checkText("concurrencyKey", concurrencyKey, { max: keyChars });
    return { group: keyScope(name, concurrencyKey), gated: true };
  }
  // A flow of a queue has the queue's limit as its own too, and counts among all of the queue.
  if (queue !== undefined) return { group: queueScope(queue.name), gated: true };
  if (concurrency !== undefined) return { group: keyScope(name, madeKey(task)), gated: true };
  return tenant === "default" ? undefined : { group: null, gated: true };
}

function madeKey({ name, concurrency, input }: Gated): string {
  if (concurrency?.key === undefined) return "";
  let key: unknown;
  try {
    key = concurrency.key(input);
  } catch (error) {
    const message = `the key function of "${name}" threw: ${messageOf(error)}`;
    throw new FlotillaError("invalid_option", message, { cause: error });
  }
  return checkText(`what the key function of "${name}" makes`, key, { max: keyChars });
}
