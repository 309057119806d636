import type { StepController } from "./call.ts";
import { checkStepKey, keyedSegment, ordinalSegment } from "./key.ts";
import { maxStepDepth } from "./model.ts";
import { ambiguous, tooDeep } from "./refusals.ts";

/** The steps that code calls on one level: those of the owner, of a step, or of a round. */
export type Scope = {
  readonly prefix: string;
  readonly depth: number;
  readonly signal: () => AbortSignal;
  /** How many steps of a name without a key were called. */
  readonly ordinals: Map<string, number>;
  /** Names of running steps without a key, and all segments with one. */
  readonly taken: Set<string>;
  /** The promises of steps that have not settled, with their names. */
  readonly open: Map<Promise<unknown>, string>;
  /** The keys of rows within it that this attempt has stored. */
  readonly rows: Set<string>;
  over: boolean;
};

export function newScope(prefix: string, depth: number, signal: () => AbortSignal): Scope {
  return {
    prefix,
    depth,
    signal,
    ordinals: new Map(),
    taken: new Set(),
    open: new Map(),
    rows: new Set(),
    over: false,
  };
}

/** The scope of steps within a step or a round of this scope. */
export function scopeWithin(outer: Scope, prefix: string, controller: StepController): Scope {
  return newScope(prefix, outer.depth + 1, () => controller.signal);
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
