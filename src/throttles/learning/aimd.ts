import { braked, type Evidence, isSlow, type LimitDecision } from "./evidence.ts";

/**
 * Additive increase, multiplicative decrease: one more after a proven round, no growth while latency is
 * up, half after a strike or a timeout.
 */
export type AimdMemory = { readonly algorithm: "aimd" };

export const firstAimdMemory: AimdMemory = { algorithm: "aimd" };

export function decideAimd(memory: AimdMemory, evidence: Evidence): LimitDecision<AimdMemory> {
  const { limit, struck, timedOut, proven } = evidence;
  if (struck || timedOut) return { limit: braked(limit), memory, reacted: true };
  if (proven && !isSlow(evidence)) return { limit: limit + 1, memory };
  return { limit, memory };
}
