import { FlotillaError } from "../../base/errors.ts";
import type { AskedId, Journal } from "./journal.ts";
import type { Draft, Item } from "./record.ts";
import type { KnownIds } from "./known-ids.ts";

/**
 * What was stored isn't refused when it is sent again, whatever has become of its session since. An owner
 * may know nothing of what the one before it has stored, so it looks before it refuses.
 */
export function createStoredBefore({
  journal,
  known,
}: {
  journal: Pick<Journal, "storedIds">;
  known: KnownIds;
}) {
  const looked = new WeakSet<Item>();
  return {
    /** Those that would be refused without anybody having looked. */
    doubted: ({ outcomes }: Draft): Item[] =>
      outcomes
        .filter(([item, outcome]) => outcome instanceof FlotillaError && !looked.has(item))
        .map(([item]) => item)
        .filter((item) => askedId(item) !== undefined),

    async look(items: readonly Item[]): Promise<void> {
      const asked = items.flatMap((item) => askedId(item) ?? []);
      for (const { sessionId, clientId, seq } of await journal.storedIds(asked)) {
        known.add(sessionId, clientId, seq);
      }
      for (const item of items) looked.add(item);
    },
  };
}

/** A regeneration stores no entry that would keep its id. */
function askedId({ sessionId, command }: Item): AskedId | undefined {
  if (command.type !== "append" && command.type !== "tool_result") return undefined;
  return { sessionId, clientId: command.clientId };
}
