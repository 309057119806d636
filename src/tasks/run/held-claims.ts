import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { fraction, type Random } from "../../base/random.ts";
import type { Database, Row } from "../../store/database.ts";
import { lookAt } from "../sql/finish.ts";
import type { Running, StopReason } from "./attempt.ts";

type PollingParts = {
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

/** What became, in the store, of the tasks that a pod runs and of the one that it drains for. */
type HeldNews = {
  readonly stops: readonly { readonly run: Running; readonly reason: StopReason }[];
  /** Whether the task that was reserved is still meant for this pod. */
  readonly stillMeant: boolean;
};

/** Learns of cancels, and of tasks that went to other pods. */
export async function lookAtHeld(
  database: Database,
  { runs, reserved, podId }: { runs: readonly Running[]; reserved?: string; podId: string },
): Promise<HeldNews> {
  const ids = runs.map((run) => run.claim.taskId).concat(reserved ?? []);
  if (ids.length === 0) return { stops: [], stillMeant: false };
  const rows = await database.read(lookAt(ids));
  const seen = new Map(rows.map((row) => [row["task_id"] as string, row]));
  const stops: { run: Running; reason: StopReason }[] = [];
  for (const run of runs) {
    if (run.ended || run.stopped) continue;
    const row = seen.get(run.claim.taskId);
    if (!row || Number(row["claim_token"]) !== run.claim.token) {
      stops.push({ run, reason: "claim_lost" });
    } else if (Number(row["cancel_requested"]) === 1 && !run.cancelSeen) {
      // Whoever writes with this wake says that it knows of the cancel.
      run.wake = Number(row["wake"]);
      run.cancelSeen = true;
      stops.push({ run, reason: "cancel" });
    }
  }
  return { stops, stillMeant: reserved !== undefined && isMeant(seen.get(reserved), podId) };
}

function isMeant(row: Row | undefined, podId: string): boolean {
  return row?.["status"] === "pending" && row["claimed_by"] === podId;
}
