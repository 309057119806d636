const baseMs = 250;

/**
 * How long to wait after the so-manieth failure: anything up to a bound that doubles, so that many who
 * lost the same server don't come back at the same time.
 */
export function jitteredMs(failures: number, chance: number, maxMs = 20_000): number {
  return Math.round(chance * Math.min(maxMs, baseMs * 2 ** (failures - 1)));
}
