import { describe, expect, test } from "vitest";
import { planning, planningOnSqlite } from "../../store/contract/planning.ts";
import type { Statement } from "../../store/sql.ts";
import { changesOf } from "./changes.ts";
import {
  findIds,
  readBusy,
  readCheckpoint,
  readEntries,
  readHeader,
  readNewest,
  readTail,
  readTurns,
} from "./sql/reading.ts";
import { storeRecords } from "./sql/records.ts";
import { entry, header, messageRecord, record, turn } from "../contract/journal-harness.ts";

const sessionIds = Array.from({ length: 20 }, (_, at) => `s${at}`);
const entries = sessionIds.map((id) => entry(id, 2, { epoch: 1 }));

/** A record with something for every table, in several sessions. */
const full = record({
  entries,
  headers: sessionIds.map((id, at) =>
    header(id, {
      lastSeq: 2,
      epoch: 2,
      work: turn({ epoch: 2 }),
      status: at === 0 ? "deleted" : "active",
    }),
  ),
  metadata: sessionIds.map((sessionId) => ({ sessionId, metadata: "{}" })),
  reads: sessionIds.map((sessionId) => ({ sessionId, user: "ada", seq: 2 })),
  checkpoints: sessionIds.map((sessionId) => ({ sessionId, epoch: 2, attempt: 1, body: "{}" })),
  turns: sessionIds.map((sessionId) => ({
    sessionId,
    epoch: 1,
    attempt: 1,
    agent: "helper",
    podId: "p",
    beganAtMs: 1,
    firstChunkAtMs: null,
    endedAtMs: 2,
    outcome: "completed",
    usage: null,
  })),
});
const other = messageRecord("s20", 2);
const head = {
  logId: 1,
  incarnation: "i",
  term: 1,
  owner: "p",
  host: null,
  offset: 1,
  recordId: "r",
};

const statements: Record<string, Statement> = {
  ...Object.fromEntries(
    storeRecords([
      { at: head, recordId: full.recordId, changes: changesOf(full) },
      { at: { ...head, logId: 2 }, recordId: other.recordId, changes: changesOf(other) },
    ]).map((each, at) => [`part ${at + 1} of a record`, each]),
  ),
  "turns of a session": readTurns("s1", { before: { epoch: 2, attempt: 1 }, limit: 10 }),
  "ids that are stored": findIds(
    sessionIds.map((sessionId) => ({ sessionId, clientId: `${sessionId}/2` })),
  ),
  "a header": readHeader("s1"),
  "what is busy": readBusy(1),
  "a page of entries": readEntries("s1", { after: 5, limit: 100 }),
  "a page of so many bytes": readEntries("s1", { after: 5, limit: 100, maxBytes: 1_000 }),
  "the tail": readTail("s1", { after: 0, upTo: 9, limit: 5 }),
  "a tail of so many bytes": readTail("s1", { after: 0, upTo: 9, limit: 5, maxBytes: 1_000 }),
  "the newest of a message": readNewest("s1", "m"),
  "a checkpoint": readCheckpoint("s1"),
};

const tables = ["session", "session_user", "message", "turn_checkpoint", "turn", "link"];
const unattended = tables.map(
  (each) => `alter table flotilla.${each} set (autovacuum_enabled = off)`,
);
const analyze = tables.map((each) => `analyze flotilla.${each}`);
const fill = (sessions: number) => [
  `insert into flotilla.session (session_id, log_id, last_offset, state, header, created_at, active_at)
    select 's' || n, n % 4, 1, case when n % 1000 = 0 then 'catching_up' else 'idle' end, '{}', n, n
    from generate_series(1, ${sessions}) n`,
  `insert into flotilla.session_user (session_id, user_id)
    select 's' || n, 'ada' from generate_series(1, ${sessions}) n`,
  `insert into flotilla.message (session_id, seq, role, author, message_id, client_id, body, at)
    select 's' || n % ${sessions / 20}, n, 'user', 'u', n::text, n::text, '{}', n
    from generate_series(1, ${sessions}) n`,
  `insert into flotilla.turn_checkpoint (session_id, epoch, attempt, body)
    select 's' || n, 1, 1, '{}' from generate_series(1, ${sessions / 10}) n`,
  `insert into flotilla.turn (session_id, epoch, attempt, agent, began_at, ended_at, outcome)
    select 's' || n % ${sessions / 20}, n, 1, 'helper', n, n, 'completed'
    from generate_series(1, ${sessions}) n`,
  `insert into flotilla.link (from_id, to_id, what)
    select 's' || n % ${sessions / 20}, n, 'session' from generate_series(1, ${sessions}) n`,
];

const histories = {
  "100,000 sessions": [...unattended, ...fill(100_000), ...analyze],
  "as many as nobody has counted yet": [...unattended, ...fill(20_000)],
  "many where there were none when they were counted": [...unattended, ...analyze, ...fill(20_000)],
};

describe.each(Object.entries(histories))("with %s, Postgres goes by an index", (_, history) => {
  const planOf = planning(history);

  test.each(Object.entries(statements))("for %s", async (__, statement) => {
    const plan = await planOf(statement);
    expect(plan).not.toMatch(
      /Seq Scan on (session|session_user|message|turn_checkpoint|turn|link)\b/,
    );
    // An index without a condition is one that is read from its beginning to its end.
    expect(plan).not.toMatch(
      /Index (Only )?Scan( Backward)? using \w+ on (session|session_user|message|turn_checkpoint|turn|link)\b.*\n(?! *Index Cond)/,
    );
  });

  test("for what is busy, that of busy sessions", async () => {
    expect(await planOf(statements["what is busy"]!)).toMatch(/session_busy/);
  });
});

describe("SQLite goes by an index", () => {
  const sqliteStepsOf = planningOnSqlite();
  test.each(Object.entries(statements))("for %s", (_, statement) => {
    const steps = sqliteStepsOf(statement);
    const scans =
      /^SCAN (flotilla_)?(session|session_user|message|turn_checkpoint|turn|link|session_log)\b/;
    expect(steps.filter((step) => scans.test(step))).toEqual([]);
  });
});
