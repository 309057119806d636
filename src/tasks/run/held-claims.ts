import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { fraction, type Random } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import { lookAtHeld } from "./held.ts";
import type { Running, StopReason } from "./attempt.ts";

export type PollingParts = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  log: Logger;
  pollMs: number;
  running: () => Iterable<Running>;
  /** The task that this pod empties itself for. */
  reserved: () => string | undefined;
  onPoll: () => void;
  interrupt: (run: Running, reason: StopReason) => void;
  /** Told where that task isn't meant for this pod any more. */
  onTaken: (reserved: string) => void;
};

/** Makes up for hints that were lost: claims, and learns of cancels and of what went to other pods. */
export function startPolling(parts: PollingParts): { stop(): void } {
  const { podId, database, clock, random, log, pollMs } = parts;
  let stopped = false;
  let cancel = () => {};

  const poll = () => {
    cancel = clock.after(pollMs * (0.75 + fraction(random) / 2), () => {
      parts.onPoll();
      void checkHeld().finally(() => (stopped ? undefined : poll()));
    });
  };

  /** Asks what became of what is held. Short tasks are gone before it asks. */
  const checkHeld = async (): Promise<void> => {
    const since = clock.monotonic() - pollMs / 2;
    const runs = [...parts.running()].filter((run) => !run.stopped && run.startedMs <= since);
    const meant = parts.reserved();
    try {
      const news = await lookAtHeld(database, {
        runs,
        podId,
        ...(meant !== undefined && { reserved: meant }),
      });
      for (const { run, reason } of news.stops) parts.interrupt(run, reason);
      // Nothing is worth draining for that was cancelled, or that another pod runs by now.
      if (meant !== undefined && meant === parts.reserved() && !news.stillMeant) {
        parts.onTaken(meant);
      }
    } catch (error) {
      log.debug({ pod: podId, error: messageOf(error) }, "looking at held tasks failed");
    }
  };

  poll();
  return {
    stop() {
      stopped = true;
      cancel();
    },
  };
}
