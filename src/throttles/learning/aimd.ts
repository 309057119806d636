import { braked, type Evidence, isSlow, type Move } from "./evidence.ts";

/**
 * The seed's controller to the letter: one more after sustained success, a pause while latency rises,
 * half after a strike.
 */
export type SeedMemory = { readonly algorithm: "seed" };

export const firstSeedMemory: SeedMemory = { algorithm: "seed" };

export function seedMove(memory: SeedMemory, evidence: Evidence): Move<SeedMemory> {
  const { limit, struck, timedOut, whole } = evidence;
  if (struck || timedOut) return { limit: braked(limit), memory, reacted: true };
  if (whole && !isSlow(evidence)) return { limit: limit + 1, memory };
  return { limit, memory };
}
