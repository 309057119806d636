import type { DecidedEntry } from "../conversation/command.ts";
import { type Header, newHeader, type Turn } from "../conversation/header.ts";
import type { Journal, LogRecord } from "../log/journal.ts";
import { record } from "./journal-harness.ts";

export type StoredSession = Partial<Header> & {
  readonly sessionId: string;
  readonly metadata?: string;
  readonly entries?: readonly Partial<DecidedEntry>[];
  readonly reads?: Readonly<Record<string, number>>;
};

/** Stores sessions as their owner does, for tests of what is read of them. */
export function storingSessions(journal: Journal) {
  let records = 0;

  const commit = async (changes: Partial<LogRecord>): Promise<void> => {
    if ((await journal.heads()).length === 0) await journal.create(1);
    const [at] = await journal.heads();
    const recordId = `record-${++records}`;
    const committed = await journal.commit(at!, record({ ...changes, recordId }));
    if (committed.type !== "committed") throw new Error(`it wasn't stored: ${committed.type}`);
  };

  return async (given: StoredSession): Promise<Header> => {
    const { metadata, entries = [], reads = {}, ...facts } = given;
    const { sessionId } = facts;
    const header = { ...fresh, lastSeq: entries.length, ...facts };
    await commit({
      headers: [header],
      entries: entries.map((each, at) => ({ ...said, seq: at + 1, ...each, sessionId })),
      metadata: metadata === undefined ? [] : [{ sessionId, metadata }],
      reads: Object.entries(reads).map(([user, seq]) => ({ sessionId, user, seq })),
    });
    return header;
  };
}

const { sessionId: _, ...fresh }: Header = newHeader(
  { sessionId: "", tenant: "default", agents: ["helper"], users: ["ada"] },
  { nowMs: 1_000 },
);

const said: Omit<DecidedEntry, "seq"> = {
  kind: "message",
  role: "user",
  author: "ada",
  messageId: "m",
  tokens: 1,
  parts: [{ type: "text", text: "hello" }],
  atMs: 1_000,
  clientId: null,
};

export const turn = (agent = "helper"): Turn => ({
  type: "turn",
  epoch: 1,
  attempt: 1,
  lost: 0,
  agent,
  runner: "pod-1",
  upToSeq: 1,
  trigger: "submit",
  messageId: "answer",
  replaces: null,
  stopping: false,
});
