import type { FlotillaError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { StepController } from "./call.ts";
import { checkStepKey, keyedSegment, ordinalSegment } from "./key.ts";
import { maxStepDepth, type StepKind, type StepWrite } from "./model.ts";
import { ambiguous, tooDeep } from "./refusals.ts";

/** How many steps a line of the log names. */
export const maxShown = 5;

/** The steps that code calls on one level: those of the owner, of a step, or of a round. */
export type Scope = {
  readonly prefix: string;
  readonly depth: number;
  readonly signal: () => AbortSignal;
  /** How many steps of a name without a key were called. */
  readonly ordinals: Map<string, number>;
  /** Names of running steps without a key, and all segments with one. */
  readonly taken: Set<string>;
  /** The promises of steps that have not settled, with their names. Waits have none here. */
  readonly open: Map<Promise<unknown>, string | undefined>;
  /** The keys of rows within it that this attempt has stored. */
  readonly rows: Set<string>;
  /** The scope of the step that these are within. */
  readonly outer: Scope | undefined;
  /** Why a step within it was refused: code that catches it must not have the outer step stored. */
  refusal: FlotillaError | undefined;
  /** Whether its code may wait. A step that runs can't, because it would hold its pod. */
  readonly waits: boolean;
  /** Its code has returned or thrown: what it still waits for is dropped. */
  left: boolean;
  over: boolean;
};

/** One called step. */
export type Call = {
  readonly name: string;
  readonly path: string;
  readonly scope: Scope;
  readonly hash: string | null;
};

/** What is to be stored of a step, with the scope whose rows it replaces. */
export type Ended = {
  readonly kind: StepKind;
  readonly value: string;
  readonly startedMs: number;
  readonly inner?: Scope;
  /** The signal that it has taken. */
  readonly takes?: string;
  /** What stores it, if more than its row is to be stored. */
  readonly storeAs?: (write: StepWrite) => Promise<void>;
};

export function newScope(
  prefix: string,
  depth: number,
  signal: () => AbortSignal,
  waits: boolean,
  outer?: Scope,
): Scope {
  return {
    waits,
    prefix,
    depth,
    signal,
    ordinals: new Map(),
    taken: new Set(),
    open: new Map(),
    rows: new Set(),
    outer,
    refusal: undefined,
    left: false,
    over: false,
  };
}

/** The scope of steps within a step or a round of this scope. */
export function scopeWithin(
  outer: Scope,
  prefix: string,
  controller: StepController,
  waits = false,
): Scope {
  return newScope(prefix, outer.depth + 1, () => controller.signal, waits, outer);
}

/** Notes that a step of this scope was refused, and throws the reason. */
export function refuseIn(scope: Scope, refusal: FlotillaError): never {
  for (let each: Scope | undefined = scope; each; each = each.outer) each.refusal ??= refusal;
  throw refusal;
}

/** Whether the code of a scope, or of one around it, has returned or thrown. */
export function isLeft(scope: Scope): boolean {
  for (let each: Scope | undefined = scope; each; each = each.outer) if (each.left) return true;
  return false;
}

/** Keeps the promise of a step, or of a wait, which has no name here, until it has settled. */
export function trackIn<Result>(
  scope: Scope,
  name: string | undefined,
  ended: Promise<Result>,
  onFailed: (error: unknown) => void,
): Promise<Result> {
  const tracked = ended.then(
    (result) => {
      scope.open.delete(tracked);
      return result;
    },
    (error: unknown) => {
      scope.open.delete(tracked);
      onFailed(error);
      throw error;
    },
  );
  scope.open.set(tracked, name === undefined ? undefined : scope.prefix + name);
  return tracked;
}

/**
 * Waits for the steps that code has not awaited, and warns about them if there is a log. Then the scope is
 * over. Throws why a step within it was refused, if there is a log and a step around it that would be stored.
 */
export async function settleScope(
  scope: Scope,
  within: string,
  log: Logger | undefined,
): Promise<void> {
  while (scope.open.size > 0) {
    const steps = [...scope.open.values()].filter((name) => name !== undefined);
    const shown = { steps: steps.slice(0, maxShown), within };
    if (steps.length > 0) log?.warn(shown, "steps were not awaited, waiting for them");
    await Promise.allSettled(scope.open.keys());
  }
  scope.over = true;
  if (log && scope.outer && scope.refusal) throw scope.refusal;
}

/** What a scope has stored and its step hasn't replaced belongs to the scope around it. */
export function closeScope(inner: Scope, outer: Scope): void {
  for (const key of inner.rows) outer.rows.add(key);
}

/** The key of the next step of a name. Throws if a later attempt could not find it by that. */
export function placeOf(scope: Scope, name: string, key: string | undefined): string {
  const { prefix, taken, ordinals } = scope;
  if (scope.depth >= maxStepDepth) throw tooDeep(name);
  if (key !== undefined) checkStepKey(name, key);
  const segment = key === undefined ? name : keyedSegment(name, key);
  if (taken.has(segment)) throw ambiguous(prefix + segment, name, key);
  taken.add(segment);
  if (key !== undefined) return prefix + segment;
  const ordinal = (ordinals.get(name) ?? 0) + 1;
  ordinals.set(name, ordinal);
  return prefix + ordinalSegment(name, ordinal);
}

/**
 * A name without a key may be called again once its step has ended. A key is used once. But a step that
 * has failed and is not stored leaves its place free: code that catches its error and calls it again
 * gets the same place, in this attempt and in later ones.
 */
export function leaveScope(
  { taken, ordinals }: Scope,
  { name, key, isStored }: { name: string; key?: string | undefined; isStored: boolean },
): void {
  if (key === undefined) {
    taken.delete(name);
    if (!isStored) ordinals.set(name, ordinals.get(name)! - 1);
  } else if (!isStored) taken.delete(keyedSegment(name, key));
}
