import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import { writeUntilKnown, untilKnown } from "../../store/retry.ts";
import type { Statement } from "../../store/sql.ts";
import { lockLimits, unblock } from "../sql/concurrency.ts";
import { blockedScopes, dropUnneeded, unneededLimits } from "../sql/limits.ts";

// A pass reads this many scopes, and the next pass continues after them.
const scopesPerPass = 200;
const scopesPerStatement = 128;
const maxUnblocked = 500;
const limitsPerPass = 1_000;
// Limits declared in code are a few bytes each, so pruning pauses between two walks over them.
const restPasses = 60;

/**
 * Unblocks one task of a scope after a task ended otherwise than by a finish. If the write fails or
 * the process dies, the leader unblocks it.
 */
export async function unblockScope(
  parts: { database: Database; clock: Clock; random: Random },
  scope: string | null,
): Promise<void> {
  if (scope === null) return;
  const statements = [lockLimits([scope]), unblock([scope], 1)];
  await writeUntilKnown(parts.database, statements, {
    ...parts,
    ...untilKnown,
    notify: true,
  }).catch(() => {});
}

/** How many scopes had blocked tasks, and how many of those had free slots too. */
type UnblockPass = { readonly blocked: number; readonly freed: number };

/**
 * The leader's upkeep of concurrency limits. A finish unblocks tasks in its own write. But a limit
 * can be raised, and an unblocked task can be cancelled, or fail with its pod, before it runs. Then
 * slots are free and tasks stay blocked, so the leader unblocks them. It also deletes unused limits
 * of keys.
 */
export function createUnblocker({ database }: { database: Database }) {
  let unblockedTo = "";
  let prunedTo = "";
  let resting = 0;

  const unblockPass = async (before: readonly Statement[]): Promise<UnblockPass> => {
    const look = blockedScopes(unblockedTo, scopesPerPass);
    const rows = (await database.write([...before, look])).at(-1)!;
    unblockedTo = rows.length < scopesPerPass ? "" : (rows.at(-1)!["scope"] as string);
    const slots = rows.map((row) => ({
      scope: row["scope"] as string,
      // Without a limit the number of free slots is unbounded.
      freeSlots: row["free_slots"] === null ? maxUnblocked : Number(row["free_slots"]),
    }));
    const open = slots.filter(({ freeSlots }) => freeSlots > 0);
    for (let at = 0; at < open.length; at += scopesPerStatement) {
      const part = open.slice(at, at + scopesPerStatement);
      const scopes = part.map(({ scope }) => scope);
      const count = Math.min(maxUnblocked, Math.max(...part.map(({ freeSlots }) => freeSlots)));
      await database.write([lockLimits(scopes), unblock(scopes, count)], { notify: true });
    }
    return { blocked: rows.length, freed: open.length };
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
    /** Stores these first. */
    async pass(...before: readonly Statement[]): Promise<UnblockPass> {
      const passed = await unblockPass(before);
      await prune();
      return passed;
    },
  };
}
