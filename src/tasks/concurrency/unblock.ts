import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import { resend, untilKnown } from "../../store/retry.ts";
import { holdLimits, unblock } from "../sql/concurrency.ts";
import { blockedScopes, dropUnneeded, unneededLimits } from "../sql/limits.ts";

// A pass looks at so many scopes and goes on from there with the next.
const scopesInPass = 200;
const scopesInOne = 128;
const unblockedMost = 500;
const limitsInPass = 1_000;
// Limits that the code has brought are few bytes each: between two walks over them it rests.
const restPasses = 60;

/**
 * Lets another of a key go on where one has ended otherwise than by a finish. If it can't be stored, or
 * nobody lives to do it, the leader sees to it.
 */
export async function freeKey(
  parts: { database: Database; clock: Clock; random: Random },
  scope: string | null,
): Promise<void> {
  if (scope === null) return;
  const statements = [holdLimits([scope]), unblock([scope], 1)];
  await resend(parts.database, statements, { ...parts, ...untilKnown, hint: true }).catch(() => {});
}

/**
 * The leader's care for limits. Whoever makes room lets others go on, in the same write; but a limit
 * can be raised, and a task that was let go on can be cancelled or fail with its pod before it runs.
 * Then there is room, and tasks that wait for some, and nobody to see it. And limits of keys that
 * nothing is counted by any more are forgotten.
 */
export function createRoomKeeping({ database }: { database: Database }) {
  let lookedTo = "";
  let prunedTo = "";
  let resting = 0;

  const free = async (): Promise<number> => {
    const rows = await database.read(blockedScopes(lookedTo, scopesInPass));
    lookedTo = rows.length < scopesInPass ? "" : (rows.at(-1)!["scope"] as string);
    const rooms = rows.map((row) => ({
      scope: row["scope"] as string,
      // Where there is no limit there is all the room in the world.
      room: row["room"] === null ? unblockedMost : Number(row["room"]),
    }));
    const open = rooms.filter(({ room }) => room > 0);
    for (let at = 0; at < open.length; at += scopesInOne) {
      const part = open.slice(at, at + scopesInOne);
      const scopes = part.map(({ scope }) => scope);
      const count = Math.min(unblockedMost, Math.max(...part.map(({ room }) => room)));
      await database.write([holdLimits(scopes), unblock(scopes, count)], { hint: true });
    }
    return open.length;
  };

  const prune = async (): Promise<void> => {
    if (resting > 0) {
      resting--;
      return;
    }
    const rows = await database.read(unneededLimits(prunedTo, limitsInPass));
    const old = rows.filter((row) => Boolean(row["unneeded"])).map((row) => row["scope"] as string);
    if (old.length > 0) await database.write([dropUnneeded(old)]);
    prunedTo = rows.length < limitsInPass ? "" : (rows.at(-1)!["scope"] as string);
    if (prunedTo === "") resting = restPasses;
  };

  return {
    /** Gives in how many scopes there was room that nobody took. */
    async pass(): Promise<number> {
      const freed = await free();
      await prune();
      return freed;
    },
  };
}
