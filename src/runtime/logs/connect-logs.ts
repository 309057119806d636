import type { Bus } from "../../bus/bus.ts";
import type { Ahead } from "../../sessions/list.ts";
import type { Journal } from "../../sessions/log/journal.ts";
import type { ConnectedLogs } from "./pod-logs.ts";
import type { StreamLogsParts } from "./stream-logs.ts";

/** The journal of a process that owns no log. */
export type LaterLogs = { readonly journal: Journal & Ahead; close(): Promise<void> };

/**
 * Logs on NATS for a process that owns none. They are opened, and their code loaded, with the first call, and
 * again with the next one if that fails: servers or a store that were away may be back.
 */
export function connectLogs(parts: StreamLogsParts & { bus: Bus }): LaterLogs {
  let opening: Promise<ConnectedLogs> | undefined;
  const open = async (): Promise<ConnectedLogs> => {
    const { openConnectedLogs } = await import("./pod-logs.ts");
    return openConnectedLogs(parts);
  };
  const opened = (): Promise<ConnectedLogs> =>
    (opening ??= open().catch((error: unknown) => {
      opening = undefined;
      throw error;
    }));
  const journal = async () => (await opened()).journal;
  return {
    journal: {
      // This process stores no record.
      maxRecordBytes: Infinity,
      heads: async () => (await opened()).beats.heads(),
      create: async (logs) => (await journal()).create(logs),
      take: async (seen, owner) => (await journal()).take(seen, owner),
      recover: async (head) => (await journal()).recover(head),
      commit: async (at, record) => (await journal()).commit(at, record),
      release: async (podId, heads) => (await journal()).release(podId, heads),
      header: async (sessionId) => (await journal()).header(sessionId),
      storedIds: async (ids) => (await journal()).storedIds(ids),
      entries: async (sessionId, page) => (await journal()).entries(sessionId, page),
      tail: async (sessionId, page) => (await journal()).tail(sessionId, page),
      newest: async (sessionId, messageId) => (await journal()).newest(sessionId, messageId),
      checkpoint: async (sessionId) => (await journal()).checkpoint(sessionId),
      steps: async (turn) => (await journal()).steps(turn),
      stepValue: async (turn, key) => (await journal()).stepValue(turn, key),
      turns: async (sessionId, page) => (await journal()).turns(sessionId, page),
      unarchivedFacts: async (sessionId) => (await journal()).unarchivedFacts(sessionId),
    },
    async close() {
      const found = await opening?.catch(() => undefined);
      found?.beats.close();
    },
  };
}
