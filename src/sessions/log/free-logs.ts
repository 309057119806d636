import type { Clock } from "../../base/clock.ts";
import type { Head, Listening, LiveHead } from "./journal.ts";

/**
 * Which logs are free, as this pod sees it: those without an owner, those whose owner has ended, and those
 * whose owner is silent, by its beats where pods hear each other, else by a head that hasn't moved.
 */
export type FreeLogs = {
  /** Notes the heads that a pass begins with. */
  see(all: readonly LiveHead[]): void;
  isFree(head: Head): boolean;
  /** Whether the log can be taken without a wait for another pod. */
  isAtOnce(head: Head): boolean;
  /** How long a log has been free. */
  forMs(head: Head): number;
  /** Whether the process of its owner is known to have ended. */
  hasEnded(head: Head): boolean;
  /** Since when the head of a log hasn't moved. */
  standsSinceMs(logId: number): number;
};

export type FreeLogsParts = {
  podId: string;
  clock: Pick<Clock, "monotonic">;
  isGone: (host: string) => boolean;
  listening: () => Listening | undefined;
  /** A log whose head has not moved for this long is free. */
  silentMs: number;
  /** After a longer gap between two passes, no head counts as silent. */
  gapMs: number;
};

export function createFreeLogs(parts: FreeLogsParts): FreeLogs {
  const { podId, clock, isGone, listening, silentMs, gapMs } = parts;
  const seen = new Map<number, { readonly head: LiveHead; readonly movedMs: number }>();
  let lastMs = -Infinity;
  const standsSinceMs = (logId: number): number => seen.get(logId)!.movedMs;
  const hasEnded = ({ host }: Head): boolean => host !== null && isGone(host);
  // If the head names this pod but the log is not held, the response to an earlier take was lost.
  const isAtOnce = (head: Head): boolean =>
    head.owner === null || head.owner === podId || hasEnded(head);
  const forMs = (head: Head): number => {
    const nowMs = clock.monotonic();
    const quietMs = nowMs - standsSinceMs(head.logId);
    if (isAtOnce(head)) return quietMs;
    const heard = listening();
    if (heard) return nowMs - (heard.freeSinceMs(head) ?? Infinity);
    return quietMs - silentMs;
  };
  return {
    see(all) {
      const nowMs = clock.monotonic();
      const gap = nowMs - lastMs > gapMs;
      lastMs = nowMs;
      for (const head of all) {
        const before = seen.get(head.logId);
        const moved = !before || gap || !isSame(before.head, head);
        seen.set(head.logId, { head, movedMs: moved ? nowMs : before.movedMs });
      }
    },
    isFree: (head) => isAtOnce(head) || forMs(head) >= 0,
    isAtOnce,
    forMs,
    hasEnded,
    standsSinceMs,
  };
}

function isSame(one: LiveHead, other: LiveHead): boolean {
  return (
    one.term === other.term &&
    one.offset === other.offset &&
    one.beat === other.beat &&
    one.owner === other.owner &&
    one.incarnation === other.incarnation
  );
}
