import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import { writeUntilKnown, untilKnown } from "../../store/retry.ts";
import { lockLimits, unblock } from "../sql/concurrency.ts";
import { blockedScopes, dropUnneeded, unneededLimits } from "../sql/limits.ts";

// A pass looks at so many scopes and goes on from there with the next.
const scopesPerPass = 200;
const scopesPerStatement = 128;
const maxUnblocked = 500;
const limitsPerPass = 1_000;
// Limits that the code has brought are few bytes each: between two walks over them it rests.
const restPasses = 60;

/**
 * Lets another of a key go on where one has ended otherwise than by a finish. If it can't be stored, or
 * nobody lives to do it, the leader sees to it.
 */
export async function unblockScope(
  parts: { database: Database; clock: Clock; random: Random },
  scope: string | null,
): Promise<void> {
  if (scope === null) return;
  const statements = [lockLimits([scope]), unblock([scope], 1)];
  await writeUntilKnown(parts.database, statements, { ...parts, ...untilKnown, hint: true }).catch(
    () => {},
  );
}

/**
 * The leader's care for limits. Whoever makes room lets others go on, in the same write; but a limit
 * can be raised, and a task that was let go on can be cancelled or fail with its pod before it runs.
 * Then there is room, and tasks that wait for some, and nobody to see it. And limits of keys that
 * nothing is counted by any more are forgotten.
 */
export function createUnblocker({ database }: { database: Database }) {
  let unblockedTo = "";
  let prunedTo = "";
  let resting = 0;

  const unblockPass = async (): Promise<number> => {
    const rows = await database.read(blockedScopes(unblockedTo, scopesPerPass));
    unblockedTo = rows.length < scopesPerPass ? "" : (rows.at(-1)!["scope"] as string);
    const slots = rows.map((row) => ({
      scope: row["scope"] as string,
      // Where there is no limit there is all the room in the world.
      freeSlots: row["room"] === null ? maxUnblocked : Number(row["room"]),
    }));
    const open = slots.filter(({ freeSlots: room }) => room > 0);
    for (let at = 0; at < open.length; at += scopesPerStatement) {
      const part = open.slice(at, at + scopesPerStatement);
      const scopes = part.map(({ scope }) => scope);
      const count = Math.min(maxUnblocked, Math.max(...part.map(({ freeSlots: room }) => room)));
      await database.write([lockLimits(scopes), unblock(scopes, count)], { hint: true });
    }
    return open.length;
  };

  const prune = async (): Promise<void> => {
    if (resting > 0) {
      resting--;
      return;
    }
    const rows = await database.read(unneededLimits(prunedTo, limitsPerPass));
    const old = rows.filter((row) => Boolean(row["unneeded"])).map((row) => row["scope"] as string);
    if (old.length > 0) await database.write([dropUnneeded(old)]);
    prunedTo = rows.length < limitsPerPass ? "" : (rows.at(-1)!["scope"] as string);
    if (prunedTo === "") resting = restPasses;
  };

  return {
    /** Gives in how many scopes there was room that nobody took. */
    async pass(): Promise<number> {
      const freed = await unblockPass();
      await prune();
      return freed;
    },
  };
}
