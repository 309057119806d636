import { priorities, type Priority } from "./wait-queue.ts";

/** How many permits are kept for calls of a priority, even when all others are taken. */
export type Reserve = { readonly [priority in Priority]?: number };

export type PerPriority = Record<Priority, number>;

export const noneOfAny = (): PerPriority => ({ control: 0, interactive: 0, retry: 0, batch: 0 });

/**
 * What can be kept of the reservations under a limit. They never take the last permit, so that a small
 * limit still serves everybody; where they don't fit, the more urgent ones come first.
 */
export function fitReserve(reserve: Reserve, limit: number): PerPriority {
  let left = Math.max(0, limit - 1);
  const fitted = noneOfAny();
  for (const priority of priorities) {
    fitted[priority] = Math.min(left, reserve[priority] ?? 0);
    left -= fitted[priority];
  }
  return fitted;
}

/** Whether a call of this priority may have a permit, or the free ones are kept for others. */
export function mayHave(
  priority: Priority,
  free: number,
  reserve: PerPriority,
  inFlight: PerPriority,
): boolean {
  let kept = 0;
  for (const each of priorities) {
    if (each !== priority) kept += Math.max(0, reserve[each] - inFlight[each]);
  }
  return free > kept;
}
