import { FlotillaError } from "../../base/errors.ts";
import type { ClientIdRef, Reads } from "./journal.ts";
import { keyOfId, type PendingCommand, type RecordDraft } from "./record.ts";

/**
 * The seqs of recently stored client ids, so that a repeated command is answered from memory. Older ids
 * are found by the journal, which stores no client id twice.
 */
export type KnownIds = {
  /** The seq under which an id was stored, by the key that `keyOfId` makes of it. */
  seqOf(key: string): number | undefined;
  add(key: string, seq: number): void;
};

export function createKnownIds(maxIds: () => number): KnownIds {
  const seqs = new Map<string, number>();
  return {
    seqOf: (key) => seqs.get(key),
    add(key, seq) {
      seqs.set(key, seq);
      // The pod may have taken more logs since, so that fewer ids fit.
      for (let more = seqs.size - maxIds(); more > 0; more--) {
        seqs.delete(seqs.keys().next().value!);
      }
    },
  };
}

/**
 * A command that was stored is not refused when it is sent again, whatever has changed in its session
 * since. An owner does not know which ids its predecessor stored, so it reads them before it refuses.
 */
export function createDuplicateCheck({
  journal,
  known,
}: {
  journal: Pick<Reads, "storedIds">;
  known: KnownIds;
}) {
  const checked = new WeakSet<PendingCommand>();
  const isUnchecked = (item: PendingCommand): boolean =>
    !checked.has(item) && clientIdOf(item) !== undefined;
  return {
    /** True for a command whose client id has not been checked in the store. */
    isUnchecked,

    /** Refused commands of which that is true. */
    doubted: ({ outcomes }: RecordDraft): PendingCommand[] =>
      outcomes
        .filter(([item, outcome]) => outcome instanceof FlotillaError && isUnchecked(item))
        .map(([item]) => item),

    async check(items: readonly PendingCommand[]): Promise<void> {
      const ids = items.flatMap((item) => clientIdOf(item) ?? []);
      for (const { sessionId, clientId, seq } of await journal.storedIds(ids)) {
        known.add(keyOfId(sessionId, clientId), seq);
      }
      for (const item of items) checked.add(item);
    },
  };
}

/** A regeneration is left out, because it stores no entry that would keep its id. */
function clientIdOf({ sessionId, command }: PendingCommand): ClientIdRef | undefined {
  const { type } = command;
  if (type !== "append" && type !== "tool_result" && type !== "wake_set") return undefined;
  return { sessionId, clientId: command.clientId };
}
