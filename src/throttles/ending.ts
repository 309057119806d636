import type { Ending } from "./limiter/permit.ts";
import { outcomeKinds, type OutcomeKind } from "./learning/sample.ts";

const plainEndings: ReadonlyMap<unknown, Ending> = new Map(
  outcomeKinds.map((kind) => [kind, { kind }]),
);

/**
 * What somebody has said of how a call ended, and undefined where that is none of the outcomes. Amounts
 * that are none are left out, as one of them would spoil every sum that it comes into.
 */
export function toEnding(said: OutcomeKind | Ending): Ending | undefined {
  if (typeof said !== "object" || said === null) return plainEndings.get(said);
  const { kind, retryAfterMs, used } = said;
  if (!plainEndings.has(kind)) return undefined;
  if (isAmountIfAny(retryAfterMs) && isAmountIfAny(used)) return said;
  const { retryAfterMs: _retryAfterMs, used: _used, ...rest } = said;
  return {
    ...rest,
    ...(isAmount(retryAfterMs) && { retryAfterMs }),
    ...(isAmount(used) && { used }),
  };
}

export function isAmount(value: unknown): value is number {
  return Number.isFinite(value) && (value as number) >= 0;
}

const isAmountIfAny = (value: unknown): boolean => value === undefined || isAmount(value);
