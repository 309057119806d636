import { braked, type Evidence, isSlow, type LimitDecision } from "./evidence.ts";

/**
 * The seed's controller to the letter: one more after sustained success, a pause while latency rises,
 * half after a strike.
 */
export type AimdMemory = { readonly algorithm: "aimd" };

export const firstAimdMemory: AimdMemory = { algorithm: "aimd" };

export function decideAimd(memory: AimdMemory, evidence: Evidence): LimitDecision<AimdMemory> {
  const { limit, struck, timedOut, proven: whole } = evidence;
  if (struck || timedOut) return { limit: braked(limit), memory, reacted: true };
  if (whole && !isSlow(evidence)) return { limit: limit + 1, memory };
  return { limit, memory };
}
