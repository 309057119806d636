import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { fraction, type Random } from "../../base/random.ts";
import type { Database, Row } from "../../store/database.ts";
import { readTaskStates } from "../sql/finish.ts";
import type { TaskAttempt, StopReason } from "../model.ts";

type HeldClaimsParts = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  log: Logger;
  pollMs: number;
  running: () => Iterable<TaskAttempt>;
  /** The task that this pod drains for. */
  reserved: () => string | undefined;
  onPoll: () => void;
  interrupt: (attempt: TaskAttempt, reason: StopReason) => void;
  /** Called when that task is no longer reserved for this pod. */
  onTaken: (reserved: string) => void;
};

/** The stored state of the tasks that a pod runs and of the one that it drains for. */
type HeldClaims = {
  readonly stops: readonly { readonly attempt: TaskAttempt; readonly reason: StopReason }[];
  /** True if the reserved task is still meant for this pod. */
  readonly stillReserved: boolean;
};

/**
 * Compensates for lost notifications: claims, and finds cancels and tasks that went to other pods.
 */
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

  /** Reads the state of held claims. Short tasks end before they are read. */
  const checkHeld = async (): Promise<void> => {
    const since = clock.monotonic() - pollMs / 2;
    const attempts = [...parts.running()].filter(
      (attempt) => !attempt.stopReason && attempt.startedMs <= since,
    );
    const reservedId = parts.reserved();
    try {
      const held = await readHeldClaims(database, {
        attempts,
        podId,
        ...(reservedId !== undefined && { reserved: reservedId }),
      });
      for (const { attempt, reason } of held.stops) parts.interrupt(attempt, reason);
      // The pod stops draining for a task that was cancelled, or that another pod runs by now.
      if (reservedId !== undefined && reservedId === parts.reserved() && !held.stillReserved) {
        parts.onTaken(reservedId);
      }
    } catch (error) {
      log.debug({ pod: podId, error: messageOf(error) }, "reading held claims failed");
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

/** Finds cancels, and tasks that went to other pods. */
export async function readHeldClaims(
  database: Database,
  {
    attempts,
    reserved,
    podId,
  }: { attempts: readonly TaskAttempt[]; reserved?: string; podId: string },
): Promise<HeldClaims> {
  const ids = attempts.map((attempt) => attempt.claim.taskId).concat(reserved ?? []);
  if (ids.length === 0) return { stops: [], stillReserved: false };
  const rows = await database.read(readTaskStates(ids));
  const seen = new Map(rows.map((row) => [row["task_id"] as string, row]));
  const stops: { attempt: TaskAttempt; reason: StopReason }[] = [];
  for (const attempt of attempts) {
    if (attempt.ended || attempt.stopReason) continue;
    const row = seen.get(attempt.claim.taskId);
    if (!row || Number(row["claim_token"]) !== attempt.claim.token) {
      stops.push({ attempt, reason: "claim_lost" });
    } else if (Number(row["cancel_requested"]) === 1 && !attempt.cancelSeen) {
      // A write with this `wake` implies that the driver knows of the cancel.
      attempt.wake = Number(row["wake"]);
      attempt.cancelSeen = true;
      stops.push({ attempt, reason: "cancel" });
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
