import { FlotillaError } from "../../base/errors.ts";
import type { Journal } from "../journal/journal.ts";
import type { Draft, Item } from "./draft.ts";
import type { KnownIds } from "./known-ids.ts";

/** So many of what was stored last are looked at before something with an id is refused. */
const recentMost = 256;

/**
 * What was stored isn't refused when it is sent again, whatever has become of its session since. An owner
 * may know nothing of what the one before it has stored, so it looks before it refuses.
 */
export function createStoredBefore({
  journal,
  known,
}: {
  journal: Pick<Journal, "recentIds">;
  known: KnownIds;
}) {
  const looked = new WeakSet<Item>();
  return {
    /** Those that would be refused without anybody having looked. */
    doubted: ({ outcomes }: Draft): Item[] =>
      outcomes
        .filter(([item, outcome]) => outcome instanceof FlotillaError && !looked.has(item))
        .map(([item]) => item)
        .filter(({ command }) => "clientId" in command),

    async look(items: readonly Item[]): Promise<void> {
      for (const sessionId of new Set(items.map((item) => item.sessionId))) {
        const stored = await journal.recentIds(sessionId, recentMost);
        for (const { clientId, seq } of stored) known.add(sessionId, clientId, seq);
      }
      for (const item of items) looked.add(item);
    },
  };
}
