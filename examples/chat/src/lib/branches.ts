import type { Client, SessionView } from "flotilla/client";
import { useClient, useInbox } from "flotilla/react";
import { createContext, useEffect, useState } from "react";

/** By the seq of a message, the sessions that have another one there, in their order, and which of them is shown. */
export type Branches = ReadonlyMap<
  number,
  { readonly all: readonly string[]; readonly at: number }
>;

type Calls = Pick<Client["sessions"], "get" | "forks">;

const none: Branches = new Map();
const pageSize = 200;

export const BranchesContext = createContext(none);

/** The branches of a conversation. A new one changes the inbox, so that is when they are read again. */
export function useBranches(chatId: string): Branches {
  const { sessions: calls } = useClient();
  const { sessions } = useInbox();
  const known = sessions
    .map(({ sessionId }) => sessionId)
    .toSorted()
    .join(" ");
  const [branches, setBranches] = useState(none);
  useEffect(() => {
    let isLeft = false;
    branchesOf(calls, chatId).then(
      (found) => !isLeft && setBranches(found),
      // A chat that isn't there yet has none, and one that can't be read is read again with the next change.
      () => {},
    );
    return () => {
      isLeft = true;
    };
  }, [calls, chatId, known]);
  return branches;
}

async function branchesOf(calls: Calls, chatId: string): Promise<Branches> {
  const line = await lineOf(calls, chatId);
  const places = new Map<number, SessionView[]>();
  let upTo = Infinity;
  for (const session of line) {
    for (const fork of await forksOf(calls, session.sessionId)) {
      const atSeq = fork.parent!.atSeq;
      // Behind that place this conversation has other entries.
      if (atSeq <= upTo) places.set(atSeq, [...(places.get(atSeq) ?? []), fork]);
    }
    upTo = Math.min(upTo, session.parent?.atSeq ?? 0);
  }
  const branches = new Map<number, { all: string[]; at: number }>();
  for (const [atSeq, forks] of places) {
    // The one that all these were forked from has the first message of that place.
    const top = line.find(({ parent }) => !parent || parent.atSeq < atSeq) ?? line.at(-1)!;
    const all = new Map(top.lastSeq > atSeq ? [[top.sessionId, top]] : []);
    for (const fork of forks) await addFamily(calls, fork, atSeq, all);
    const ordered = [...all.values()].toSorted(
      (one, other) =>
        Number(other === top) - Number(one === top) || one.createdAtMs - other.createdAtMs,
    );
    const shown = line.find(({ parent }) => !parent || parent.atSeq <= atSeq) ?? top;
    const ids = ordered.map(({ sessionId }) => sessionId);
    if (ids.length > 1) branches.set(atSeq + 1, { all: ids, at: ids.indexOf(shown.sessionId) });
  }
  return branches;
}

/** A session, the one that it was forked from, and so on. */
async function lineOf(calls: Calls, chatId: string): Promise<SessionView[]> {
  const line = [await calls.get(chatId)];
  for (let at = line[0]; at?.parent;) {
    // The parent may be deleted, or of others.
    at = await calls.get(at.parent.sessionId).catch(() => undefined);
    if (at) line.push(at);
  }
  return line;
}

/** A fork, and those that were made of it at the same place: edits of an edited message. */
async function addFamily(
  calls: Calls,
  fork: SessionView,
  atSeq: number,
  all: Map<string, SessionView>,
): Promise<void> {
  if (all.has(fork.sessionId)) return;
  all.set(fork.sessionId, fork);
  for (const next of await forksOf(calls, fork.sessionId, atSeq)) {
    await addFamily(calls, next, atSeq, all);
  }
}

async function forksOf(
  calls: Calls,
  sessionId: string,
  atSeq?: number,
): Promise<readonly SessionView[]> {
  const forks: SessionView[] = [];
  let cursor: string | null | undefined;
  do {
    const page = await calls.forks(sessionId, {
      limit: pageSize,
      ...(atSeq !== undefined && { atSeq }),
      ...(cursor && { cursor }),
    });
    forks.push(...page.forks);
    cursor = page.next;
  } while (cursor);
  return forks;
}
