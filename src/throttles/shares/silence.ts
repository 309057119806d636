import type { ShareEntry } from "./lease.ts";

/** Pods with a share report every second, so one that is silent for this long is cut off or gone. */
export const silentAfterMs = 5_000;

type Shares = Readonly<Record<string, ShareEntry>>;

/**
 * Pods that are silent for so long that their calls have probably ended, and the renewal of their entries
 * when they were. The entries stay until their leases are over, because only then it is certain that the
 * pods make no calls. Until then the others may use their permits too, as a probe: if such a pod is only
 * cut off from the store and goes on calling, the downstream refuses calls, and the leader counts its
 * permits again. A pod that renews its entry is counted again by all who read that.
 */
export type SilentPods = Readonly<Record<string, number>>;

type SilenceOptions = {
  /** For how long a pod with a share hasn't reported. */
  readonly silentMs: (podId: string) => number;
  readonly doubted: readonly string[];
  /** How many permits at most may be used by others. */
  readonly spare: number;
};

export function findSilentPods(
  shares: Shares,
  { silentMs, doubted, spare }: SilenceOptions,
): SilentPods {
  const found: Record<string, number> = {};
  let left = spare;
  for (const [podId, entry] of Object.entries(shares)) {
    const over = silentMs(podId) >= silentAfterMs + entry.longestMs;
    if (!over || doubted.includes(podId) || entry.share > left) continue;
    left -= entry.share;
    found[podId] = entry.renewal;
  }
  return found;
}

/** Whether the permits of this entry count, or others may use them too. */
export function isCounted(podId: string, entry: ShareEntry, silent: SilentPods = {}): boolean {
  return silent[podId] !== entry.renewal;
}

/** The permits that count against the bound. */
export function countedPermits(shares: Shares, silent?: SilentPods): number {
  return Object.entries(shares).reduce(
    (sum, [podId, entry]) => sum + (isCounted(podId, entry, silent) ? entry.share : 0),
    0,
  );
}
