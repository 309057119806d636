const baseMs = 250;

/**
 * The wait after so many failures: random up to a bound that doubles, so that clients that lost the same
 * server don't return at the same time.
 */
export function jitteredMs(failures: number, chance: number, maxMs = 20_000): number {
  return Math.round(chance * Math.min(maxMs, baseMs * 2 ** (failures - 1)));
}
