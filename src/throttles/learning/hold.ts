/** How long nobody may begin a call, from now on: as asked for by `Retry-After`, or to cool down. */
export function heldFor(
  holdMs: number,
  { elapsedMs, askedMs, maxMs }: { elapsedMs: number; askedMs: number; maxMs: number },
): number {
  return Math.max(0, holdMs - elapsedMs, Math.min(askedMs, maxMs));
}

const firstCoolMs = 250;
/** So that the end of a long refusal is noticed soon. */
const maxCoolMs = 8_000;

/**
 * Where one strike follows the other, lowering the limit isn't enough: a limit of one still repeats
 * refused calls as fast as they are refused.
 */
export function coolingMs(strikes: number): number {
  return strikes < 2 ? 0 : Math.min(maxCoolMs, firstCoolMs * 2 ** (strikes - 2));
}
