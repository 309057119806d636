import type { OwnerFacts } from "../../asks/sessions.ts";

/** Another pod goes on with the log of a session. */
export type Takeover = {
  readonly term: number;
  readonly fromPodId: string;
  readonly toPodId: string;
  /** When the page has seen it. */
  readonly atMs: number;
};

/** What a page has seen of the owners of a session's log, since it was opened. */
export type SeenOwners = {
  /** The last pod that owned it. A log may be free for a moment in between. */
  readonly lastPodId: string | undefined;
  readonly term: number;
  /** The newest first. */
  readonly takeovers: readonly Takeover[];
};

const maxTakeovers = 5;

export const noOwnersSeen: SeenOwners = { lastPodId: undefined, term: 0, takeovers: [] };

/** Adds what the owner is now. An answer that was overtaken by a newer one changes nothing. */
export function ownersAfter(seen: SeenOwners, owner: OwnerFacts, nowMs: number): SeenOwners {
  const { term, podId: toPodId } = owner;
  const { lastPodId: fromPodId } = seen;
  if (toPodId === null || term < seen.term || toPodId === fromPodId) return seen;
  const takeovers =
    fromPodId === undefined
      ? seen.takeovers
      : [{ term, fromPodId, toPodId, atMs: nowMs }, ...seen.takeovers].slice(0, maxTakeovers);
  return { lastPodId: toPodId, term, takeovers };
}

/** Since when the owner has the log, if the page has seen it take the log over. */
export function ownerSince({ takeovers: [last] }: SeenOwners, owner: OwnerFacts) {
  const isSeen = last !== undefined && last.term === owner.term && last.toPodId === owner.podId;
  return isSeen ? last.atMs : undefined;
}
