import type { ShareEntry } from "./lease.ts";
import type { ShareEntries } from "./sql.ts";

/** Pods with a share report every second, so one that is silent for this long is cut off or gone. */
export const silentAfterMs = 5_000;

/**
 * The permits of pods that are silent for so long that their calls have probably ended. Their entries
 * stay until their leases are over, because only then it is certain that they make no calls. Until then
 * the leader raises the bound by their permits, as a probe: if such a pod is only cut off from the store
 * and goes on calling, the downstream refuses calls, and its permits are counted again.
 */
export type SilentPermits = { readonly pods: readonly string[]; readonly permits: number };

export function silentPermits(
  shares: ShareEntries,
  silentMs: (podId: string) => number,
  doubted: readonly string[],
): SilentPermits {
  const silent = Object.entries(shares).filter(
    ([podId, entry]) => !doubted.includes(podId) && silentMs(podId) >= probablyOverMs(entry),
  );
  return {
    pods: silent.map(([podId]) => podId),
    permits: silent.reduce((sum, [, { share }]) => sum + share, 0),
  };
}

function probablyOverMs({ longestMs }: ShareEntry): number {
  return silentAfterMs + longestMs;
}
