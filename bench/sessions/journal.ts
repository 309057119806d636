import { systemClock } from "../../src/base/clock.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { systemRandom } from "../../src/base/random.ts";
import { decideCommand } from "../../src/sessions/conversation/decide.ts";
import type { Header } from "../../src/sessions/conversation/header.ts";
import { changesOf } from "../../src/sessions/log/changes.ts";
import { storeRecords } from "../../src/sessions/log/sql/records.ts";
import type { Head, LogRecord } from "../../src/sessions/log/journal.ts";
import { createSqlJournal } from "../../src/sessions/log/sql-journal.ts";
import { openStore } from "../../src/store/open.ts";
import type { Statement } from "../../src/store/sql.ts";
import { playRole } from "../roles.ts";
import { openBare as openPostgres } from "../systems/limit.ts";
import { openBare as openSqlite } from "../tasks/bare.ts";
import { countUsage, type Usage } from "../usage.ts";
import { parts } from "./frames.ts";

/**
 * The other limit: the very transactions that records of a log are made of, on the same tables with the
 * same settings, one after the other, with nothing around them.
 */
export type JournalParams = {
  readonly store: string;
  readonly sessions: number;
  /** How many messages of each session a record has. */
  readonly each: number;
  readonly warmMs: number;
  readonly runMs: number;
};

export type Journalled = Usage & { readonly entries: number };

const ids = uuidv7(systemClock, systemRandom);

playRole(async ({ store, sessions, each, warmMs, runMs }: JournalParams) => {
  let head = await prepare(store);
  let headers = Array.from({ length: sessions }, (_, at) => created(`bare-${at}`));
  const bare = await openBare(store);
  const one = async () => {
    const record = nextRecord(headers, each);
    const { recordId } = record;
    await bare.commit(storeRecords([{ at: head, recordId, changes: changesOf(record) }]));
    head = { ...head, offset: head.offset + 1, recordId };
    headers = [...record.headers];
  };
  const during = async (forMs: number): Promise<number> => {
    const endMs = performance.now() + forMs;
    let entries = 0;
    for (; performance.now() < endMs; entries += sessions * each) await one();
    return entries;
  };
  await during(warmMs);
  const used = countUsage();
  const entries = await during(runMs);
  const journalled: Journalled = { entries, ...used() };
  await bare.close();
  return journalled;
});

/** Makes the tables and a log, and takes it. */
async function prepare(store: string): Promise<Head> {
  const database = await openStore(store);
  const journal = createSqlJournal({ database, ids });
  await journal.create(1);
  const [head] = await journal.heads();
  const owner = { podId: "bare", host: null, recordId: ids.next() };
  const taken = await journal.take(head!, owner);
  await database.close();
  return taken!;
}

async function openBare(store: string) {
  if (store.startsWith("postgres")) {
    const bare = await openPostgres(store);
    return {
      commit: (statements: Statement[]): Promise<unknown> => bare.commit(statements),
      close: () => bare.close(),
    };
  }
  const bare = openSqlite(store.slice("sqlite:".length));
  return {
    commit: (statements: Statement[]) => Promise.resolve(bare.commit(statements)),
    close: () => Promise.resolve(bare.close()),
  };
}

function created(sessionId: string): Header {
  const command = {
    type: "create",
    sessionId,
    tenant: "default",
    agents: [],
    users: ["ada"],
    metadata: null,
  } as const;
  const facts = {
    nowMs: systemClock.now(),
    newId: () => ids.next(),
    agent: () => undefined,
    runnerFor: () => null,
  };
  const decision = decideCommand(undefined, command, facts);
  if (decision.type === "refused") throw new Error(decision.message);
  return decision.header;
}

function nextRecord(before: readonly Header[], each: number): LogRecord {
  const atMs = systemClock.now();
  const entries = before.flatMap(({ sessionId, lastSeq }) =>
    Array.from({ length: each }, (_, at) => {
      const clientId = ids.next();
      return {
        sessionId,
        seq: lastSeq + 1 + at,
        kind: "message",
        role: "user",
        author: "ada",
        messageId: clientId,
        clientId,
        tokens: 50,
        parts,
        atMs,
      } as const;
    }),
  );
  return {
    recordId: ids.next(),
    entries,
    headers: before.map((header) => ({
      ...header,
      lastSeq: header.lastSeq + each,
      tokens: header.tokens + 50 * each,
      activeAtMs: atMs,
    })),
    members: [],
    metadata: [],
    reads: [],
    checkpoints: [],
    steps: [],
    stepsOver: [],
  };
}
