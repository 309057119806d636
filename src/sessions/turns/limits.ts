import type { Clock } from "../../base/clock.ts";

export type Limits = {
  /** Something has come. */
  touch(): void;
  /** Whether it has said how it ended: then it is only waited for so long, whatever comes. */
  ending(isEnding: boolean): void;
  clear(): void;
};

export type LimitsOptions = {
  readonly clock: Clock;
  readonly idleMs: number;
  /** Of `clock.monotonic`. */
  readonly deadlineAtMs: number;
  readonly graceMs: number;
  onIdle(): void;
  onDeadline(): void;
  /** Told in place of the others once it has said how it ended. */
  onGrace(): void;
};

/** How long an answer may take between its pieces, and in all. Told of one of them, once. */
export function watchLimits(options: LimitsOptions): Limits {
  const { clock, idleMs, deadlineAtMs, graceMs } = options;
  let touchedMs = clock.monotonic();
  let graceAtMs: number | undefined;
  let cancel: (() => void) | undefined;

  // A timer for every piece would cost more than the piece, so one that rings too early is set again.
  const ring = (): void => {
    const nowMs = clock.monotonic();
    const dueMs = Math.min(deadlineAtMs, graceAtMs ?? touchedMs + idleMs);
    if (nowMs < dueMs) cancel = clock.after(dueMs - nowMs, ring);
    else if (graceAtMs !== undefined) options.onGrace();
    else if (nowMs >= deadlineAtMs) options.onDeadline();
    else options.onIdle();
  };
  ring();
  return {
    touch() {
      touchedMs = clock.monotonic();
    },
    ending(isEnding) {
      if (isEnding === (graceAtMs !== undefined)) return;
      graceAtMs = isEnding ? clock.monotonic() + graceMs : undefined;
      cancel?.();
      ring();
    },
    clear: () => cancel?.(),
  };
}
