import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { fraction, type Random } from "../../base/random.ts";
import type { Database, Row } from "../../store/database.ts";
import { readTaskStates } from "../sql/finish.ts";
import type { TaskAttempt, StopReason } from "./attempt.ts";

type HeldClaimsParts = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  log: Logger;
  pollMs: number;
  running: () => Iterable<TaskAttempt>;
  /** The task that this pod empties itself for. */
  reserved: () => string | undefined;
  onPoll: () => void;
  interrupt: (attempt: TaskAttempt, reason: StopReason) => void;
  /** Told where that task isn't meant for this pod any more. */
  onTaken: (reserved: string) => void;
};

/** Makes up for hints that were lost: claims, and learns of cancels and of what went to other pods. */
export function startPolling(parts: HeldClaimsParts): { stop(): void } {
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
    const attempts = [...parts.running()].filter(
      (attempt) => !attempt.stopReason && attempt.startedMs <= since,
    );
    const reservedId = parts.reserved();
    try {
      const held = await readHeldClaims(database, {
        runs: attempts,
        podId,
        ...(reservedId !== undefined && { reserved: reservedId }),
      });
      for (const { run: attempt, reason } of held.stops) parts.interrupt(attempt, reason);
      // Nothing is worth draining for that was cancelled, or that another pod runs by now.
      if (reservedId !== undefined && reservedId === parts.reserved() && !held.stillReserved) {
        parts.onTaken(reservedId);
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
type HeldClaims = {
  readonly stops: readonly { readonly run: TaskAttempt; readonly reason: StopReason }[];
  /** Whether the task that was reserved is still meant for this pod. */
  readonly stillReserved: boolean;
};

/** Learns of cancels, and of tasks that went to other pods. */
export async function readHeldClaims(
  database: Database,
  {
    runs: attempts,
    reserved,
    podId,
  }: { runs: readonly TaskAttempt[]; reserved?: string; podId: string },
): Promise<HeldClaims> {
  const ids = attempts.map((attempt) => attempt.claim.taskId).concat(reserved ?? []);
  if (ids.length === 0) return { stops: [], stillReserved: false };
  const rows = await database.read(readTaskStates(ids));
  const seen = new Map(rows.map((row) => [row["task_id"] as string, row]));
  const stops: { run: TaskAttempt; reason: StopReason }[] = [];
  for (const run of attempts) {
    if (run.ended || run.stopReason) continue;
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
  return {
    stops,
    stillReserved: reserved !== undefined && isReservedFor(seen.get(reserved), podId),
  };
}

function isReservedFor(row: Row | undefined, podId: string): boolean {
  return row?.["status"] === "pending" && row["claimed_by"] === podId;
}
