import type { Clock } from "../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import type { Database } from "../store/database.ts";
import { resend, untilMended } from "./resend.ts";
import { type Claim, toClaim } from "./row.ts";
import {
  claimOldest,
  claimReserved,
  claimTasks,
  nextDue,
  releaseCall,
  reserveAlone,
  unparkDue,
} from "./statements/claim.ts";

export type Claiming = {
  /** Claims up to `limit` tasks but none that is held, or the one that was reserved. */
  claim(limit: number, reserved: string | undefined, held: readonly string[]): Promise<Claimed>;
};

export type Claimed = {
  readonly claims: readonly Claim[];
  /** How long until the next waiting task is due, if there is one. */
  readonly nextDueMs: number | undefined;
  /** A task that must run alone and is now meant for this pod. */
  readonly reserved: string | undefined;
};

export type ClaimingParts = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  names: readonly string[];
  /** Told of calls that were given up, for the heartbeat's upsert. */
  onFloor: (call: number) => void;
  /** Counts what must be over before the pod may leave. */
  onReleasing: (release: Promise<void>) => void;
  signal: AbortSignal;
  log: Logger;
};

const claimTimeoutMs = 10_000;
// Every sixteenth claim takes the oldest first, so that low priorities move too.
const oldestEvery = 16;

/** Makes claim calls, one at a time, and takes back those whose answer never came. */
export function createClaiming(parts: ClaimingParts): Claiming {
  const { podId, database, clock, random, names, onFloor, signal, log } = parts;
  let lastCall = 0;

  // Whether the claim landed isn't known: whatever it took, or may still take, is given back.
  const giveUp = async (call: number): Promise<void> => {
    onFloor(call);
    try {
      const patience = { clock, random, signal, codes: untilMended };
      await resend(database, releaseCall(podId, call), patience);
    } catch (error) {
      const fields = { pod: podId, call, error: messageOf(error) };
      log.error(fields, "a claim that was given up is left to recovery");
    }
  };

  return {
    async claim(limit, reserved, held) {
      const call = { podId, call: ++lastCall, names, limit, held };
      const taking =
        reserved !== undefined
          ? claimReserved(call, reserved)
          : (call.call % oldestEvery === 0 ? claimOldest : claimTasks)(call);
      const reserving = reserved === undefined ? [reserveAlone(podId, names)] : [];
      try {
        const written = database.write([unparkDue(), taking, nextDue(), ...reserving]);
        const [, claimed, due, marked] = await inTime(clock, written);
        const waitMs = due![0]?.["wait_ms"];
        return {
          claims: claimed!.map(toClaim),
          nextDueMs: waitMs === undefined ? undefined : Math.max(1, Number(waitMs)),
          reserved: marked?.[0]?.["task_id"],
        };
      } catch (error) {
        if (hasCode(error, "unknown_outcome")) parts.onReleasing(giveUp(call.call));
        throw error;
      }
    },
  };
}

/** The answer, unless it takes too long: then it is unknown, and dropped if it still comes. */
function inTime<Answer>(clock: Clock, answer: Promise<Answer>): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const cancel = clock.after(claimTimeoutMs, () =>
      reject(
        new FlotillaError("unknown_outcome", `the store took longer than ${claimTimeoutMs} ms`),
      ),
    );
    answer.then(resolve, reject).finally(cancel);
  });
}
