/**
 * Changes that have no id: members, status, metadata. One may be stored more than once while its client
 * waits, because it is asked for again, but never after its answer: another client may have undone it since.
 */
import { hasCode } from "../../../src/base/errors.ts";
import type { Header } from "../../../src/sessions/conversation/header.ts";
import type { World } from "../world.ts";

export type Changes = {
  /** Asks for a change, known by what it makes of the session. */
  ask<Answer>(made: string, ask: () => Promise<Answer>): Promise<Answer>;
  /** Judges what a commit has made of a session. What is in its first record was there from the start. */
  judge(before: Stored | undefined, after: Stored): void;
};

export type Stored = { readonly header: Header; readonly metadata: string | null };

/** After these it isn't known what was stored, or still may be. */
export const unsure = ["timeout", "unknown_outcome"] as const;

export const changed = {
  joined: (sessionId: string, user: string) => `${sessionId} has ${user}`,
  left: (sessionId: string, user: string) => `${sessionId} has no ${user}`,
  status: (sessionId: string, status: string) => `${sessionId} is ${status}`,
  metadata: (sessionId: string, text: string) => `${sessionId} says ${text}`,
};

export function createChanges({ violate, count }: World): Changes {
  /** What waits for its answer, or never got one that settles it, by how many have asked. */
  const open = new Map<string, number>();
  const stored = new Set<string>();
  /** What was answered and is undone. */
  const undone = new Set<string>();

  const settle = (made: string) => {
    const left = open.get(made)! - 1;
    if (left > 0) open.set(made, left);
    else open.delete(made);
  };

  const judgeMade = (made: string): void => {
    stored.add(made);
    if (open.has(made)) return;
    const again = undone.has(made)
      ? "once more, though it was undone"
      : "though no client waits for it";
    violate("O2", `${made}: stored ${again}`);
  };

  return {
    async ask(made, ask) {
      open.set(made, (open.get(made) ?? 0) + 1);
      try {
        const answer = await ask();
        settle(made);
        return answer;
      } catch (error) {
        if (!hasCode(error, ...unsure)) settle(made);
        throw error;
      }
    },
    judge(before, { header, metadata }) {
      const { sessionId, status, users } = header;
      if (!before || status === "deleted") return;
      const had = before.header;
      const undo = (made: string) => {
        if (!stored.has(made) || open.has(made)) return;
        undone.add(made);
        count("change: undone");
      };
      for (const user of users.filter((each) => !had.users.includes(each))) {
        undo(changed.left(sessionId, user));
        judgeMade(changed.joined(sessionId, user));
      }
      for (const user of had.users.filter((each) => !users.includes(each))) {
        undo(changed.joined(sessionId, user));
        judgeMade(changed.left(sessionId, user));
      }
      if (status !== had.status) {
        undo(changed.status(sessionId, had.status));
        judgeMade(changed.status(sessionId, status));
      }
      if (metadata !== null && metadata !== before.metadata) {
        if (before.metadata !== null) undo(changed.metadata(sessionId, before.metadata));
        judgeMade(changed.metadata(sessionId, metadata));
      }
    },
  };
}
