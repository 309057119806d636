import type { Clock } from "../../base/clock.ts";
import type { Caller } from "../auth/caller.ts";

/** Calls back when the caller's token has expired; never where it has no end. */
export function untilExpiry(
  clock: Clock,
  { expiresAtMs }: Caller,
  callback: () => void,
): () => void {
  if (expiresAtMs === undefined) return () => {};
  let cancel: () => void;
  const look = () => {
    const leftMs = expiresAtMs - clock.now();
    // A timer can't be set for longer than some weeks, and clocks are corrected: so look again.
    if (leftMs <= 0) callback();
    else cancel = clock.after(Math.min(leftMs, lookAgainMs), look);
  };
  cancel = clock.after(Math.max(0, Math.min(expiresAtMs - clock.now(), lookAgainMs)), look);
  return () => cancel();
}

const lookAgainMs = 3_600_000;
