import type { NewTask } from "../../tasks/sql/enqueue.ts";
import type { DecidedEntry } from "../conversation/command.ts";
import { type Header, newHeader, type Turn } from "../conversation/header.ts";
import type { CommitResult, Head, Journal, Log, LogRecord, Reads } from "../log/journal.ts";

export type LogHarness = {
  readonly log: Log;
  /** The same logs, as another process has them. */
  readonly another: Log;
} & OwnLogs;

export type JournalHarness = {
  readonly journal: Journal;
  /** The same journal, as another process has it. */
  readonly another: Journal;
} & OwnLogs;

type OwnLogs = {
  /** The number of a log that no other test has. */
  nextLog(): number;
  /** Such a log, taken. */
  own(podId?: string): Promise<Head>;
  /** Where its log stands now. */
  now(head: Head): Promise<Head>;
};

let made = 0;
/** Ids that no other test of this process has. */
export const fresh = (what: string) => `${what}-${++made}`;

export function header(sessionId: string, facts: Partial<Header> = {}): Header {
  const made = { sessionId, tenant: "default", agents: ["helper"], users: ["ada"] };
  return { ...newHeader(made, { nowMs: 1_000 }), ...facts };
}

export function entry(sessionId: string, seq: number, facts: Partial<DecidedEntry> = {}) {
  const { clientId = `${sessionId}/${seq}`, ...rest } = facts;
  return {
    sessionId,
    seq,
    kind: "message",
    role: "user",
    author: "ada",
    messageId: `message-${seq}`,
    clientId,
    tokens: 1,
    parts: [{ type: "text", text: `said ${seq}` }],
    atMs: 1_000 + seq,
    ...rest,
  } as const satisfies LogRecord["entries"][number];
}

/** What is read of an entry: all but what only its owner needs. */
export function storedEntry({ sessionId, clientId, ...rest }: LogRecord["entries"][number]) {
  void sessionId;
  void clientId;
  return rest;
}

export function turn(facts: Partial<Turn> = {}): Turn {
  return {
    type: "turn",
    epoch: 1,
    attempt: 1,
    lost: 0,
    agent: "helper",
    runner: "pod-1",
    upToSeq: 1,
    trigger: "submit",
    messageId: "answer",
    replaces: null,
    stopping: false,
    ...facts,
  };
}

export function record(changes: Partial<LogRecord> = {}): LogRecord {
  const none = { entries: [], headers: [], metadata: [], reads: [], checkpoints: [] };
  const noSteps = { steps: [], stepsOver: [] };
  return { ...none, ...noSteps, recordId: fresh("record"), ...changes };
}

/** A task that starts with a record of a session. */
export function startedTask(
  sessionId: string,
  taskId: string,
  facts: Partial<NewTask> = {},
): NewTask {
  return {
    taskId,
    tenant: "default",
    name: "mail",
    payload: `{"of":${JSON.stringify(taskId)}}`,
    priority: 0,
    delayMs: 0,
    maxAttempts: null,
    key: null,
    trace: null,
    origin: { id: sessionId, what: "session" },
    ...facts,
  };
}

/** Entries `from`…`to` of one session, with the header that counts them. */
export function messageRecord(sessionId: string, from: number, to = from): LogRecord {
  const entries = [];
  for (let seq = from; seq <= to; seq++) entries.push(entry(sessionId, seq));
  return record({ entries, headers: [header(sessionId, { lastSeq: to })] });
}

/** A message of a session that is then busy, so that a log shows the header to its next owner. */
export function busyRecord(sessionId: string, seq: number, changes: Partial<LogRecord> = {}) {
  const work = turn();
  return record({
    entries: [entry(sessionId, seq)],
    headers: [header(sessionId, { lastSeq: seq, epoch: 1, work })],
    ...changes,
  });
}

/** Logs that no other test has, of those that were made. */
export function ownLogs(log: () => Log): OwnLogs {
  let used = 0;
  return {
    nextLog: () => used++,
    own: (podId) => take(log(), used++, podId),
    now: async ({ logId }) => (await log().heads())[logId]!,
  };
}

/** A server that is behind shows a head that the log has moved on from. */
const takeTries = 20;

export async function take(
  log: Pick<Log, "heads" | "take">,
  logId: number,
  podId = "pod-1",
): Promise<Head> {
  for (let tries = 1; tries <= takeTries; tries++) {
    const seen = (await log.heads())[logId]!;
    const taken = await log.take(seen, { podId, host: null, recordId: fresh("take") });
    if (taken) return taken;
  }
  throw new Error(`log ${logId} has moved on`);
}

export function headOf(committed: CommitResult): Head {
  if (committed.type !== "committed") throw new Error(`it was ${committed.type}`);
  return committed.head;
}

/** All that can be read of a session; of its client ids, those that `entry` gives to the first few. */
export async function all(journal: Reads, sessionId: string) {
  const asked = [1, 2, 3, 4, 5].map((seq) => ({ sessionId, clientId: `${sessionId}/${seq}` }));
  const ids = await journal.storedIds(asked);
  return {
    header: await journal.header(sessionId),
    entries: await journal.entries(sessionId, { after: 0, limit: 100_000 }),
    ids: ids.toSorted((one, other) => one.seq - other.seq),
    checkpoint: await journal.checkpoint(sessionId),
  };
}

export const nothing = { header: undefined, entries: [], ids: [], checkpoint: undefined };

export const everything = { after: 0, limit: 100_000 };

/** Heads that differ from a log's own in one thing each. */
export function elsewhere(head: Head): Head[] {
  return [
    { ...head, term: head.term - 1 },
    { ...head, term: head.term + 1 },
    { ...head, offset: head.offset - 1 },
    { ...head, offset: head.offset + 1 },
    { ...head, recordId: fresh("record") },
    { ...head, incarnation: fresh("incarnation") },
  ];
}

/** Texts that databases and JSON have their own ideas about. */
export const oddTexts = [
  `it's "quoted" \\ and \\"escaped\\"`,
  "😀👩‍👩‍👧‍👦 𝒳 ü",
  "__proto__",
  "null",
  "{a,b}",
  "[1]",
  "1e5",
  "; drop table message; --",
  "line\nbreak\ttab \u2028",
  " ",
];
