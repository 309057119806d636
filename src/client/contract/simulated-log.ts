import type { Chunk } from "../../protocol/chunk.ts";
import type { ClientFrame } from "../../protocol/frames.ts";
import type { Entry, SessionState } from "../../protocol/message.ts";

export type Log = {
  incarnation: string;
  entries: Entry[];
  state: SessionState;
  epoch: number;
  chunks: Chunk[];
};

type NewEntry = Omit<Entry, "seq" | "tokens" | "atMs" | "kind">;

/** What a simulated server keeps: a log for each session, and what is being said in it. */
export function createLogs() {
  const logs = new Map<string, Log>();
  let removed = 0;

  const of = (session: string): Log => {
    let log = logs.get(session);
    if (!log) {
      const incarnation = `i${removed + 1}`;
      log = { incarnation, entries: [], state: { state: "idle" }, epoch: 0, chunks: [] };
      logs.set(session, log);
    }
    return log;
  };

  const store = (session: string, entry: NewEntry) => {
    const log = of(session);
    const before = log.entries.find(({ messageId }) => messageId === entry.messageId);
    if (before && entry.replaces === undefined) return { seq: before.seq, duplicate: true };
    const seq = log.entries.length + 1;
    // The same message may be stored again in a log that was cut back, and no reader could tell.
    log.entries.push({ kind: "message", tokens: 1, atMs: 0, ...entry, seq });
    return { seq, duplicate: false };
  };

  return {
    of,
    store,
    /** One that is made under the same name is another log. */
    remove(session: string) {
      removed++;
      logs.delete(session);
    },

    /** Why the place that a client names isn't one in this log, where it isn't. */
    whyReset(frame: Extract<ClientFrame, { type: "join" }>) {
      const { session, lastSeq, incarnation, lastMessageId } = frame;
      const log = of(session);
      if (incarnation !== undefined && incarnation !== log.incarnation) return "incarnation";
      if (lastSeq > log.entries.length) return "ahead";
      const known = log.entries[lastSeq - 1];
      if (lastMessageId !== undefined && known?.messageId !== lastMessageId) return "mismatch";
      return undefined;
    },

    /** A turn begins, or is tried once more. Gives the id of its answer. */
    beginTurn(session: string): string {
      const log = of(session);
      const { state } = log;
      const isAgain = state.state === "catching_up";
      if (!isAgain) log.epoch++;
      const messageId = `@${log.epoch}`;
      log.state = {
        state: "catching_up",
        epoch: log.epoch,
        attempt: isAgain ? state.attempt + 1 : 1,
        agent: "bot",
        messageId,
        upToSeq: log.entries.length,
        stopping: false,
      };
      log.chunks = [];
      return messageId;
    },

    /** Ends the turn, and gives its answer for the log. */
    endTurn(session: string): NewEntry | undefined {
      const log = of(session);
      if (log.state.state !== "catching_up") return undefined;
      const { epoch, messageId } = log.state;
      const text = log.chunks.map(({ delta = "" }) => delta as string).join("");
      log.state = { state: "idle" };
      log.chunks = [];
      return {
        role: "assistant",
        author: "bot",
        messageId,
        epoch,
        outcome: "completed",
        parts: [{ type: "text", text, state: "done" }],
      };
    },

    /** A back-up is put in place of the log, with another name for it or with the same one. */
    restore(session: string, count: number, isNamed: boolean) {
      const log = of(session);
      log.entries = log.entries.slice(0, count);
      log.state = { state: "idle" };
      log.chunks = [];
      log.epoch += 10;
      if (!isNamed) return;
      log.incarnation = `${log.incarnation}+`;
      // Another log that happens to have the same ids: only its name tells it apart.
      log.entries = log.entries.map((entry) => ({ ...entry, tokens: entry.tokens + 1 }));
    },
  };
}
