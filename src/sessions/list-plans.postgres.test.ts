import { describe, expect, test } from "vitest";
import { planning, planningOnSqlite } from "../store/contract/planning.ts";
import type { Statement } from "../store/sql.ts";
import {
  busySessionsBelow,
  countSessionsOf,
  readInboxRows,
  readOwner,
  readSessions,
  sessionsAwaiting,
  sessionsBelow,
  walkSessionsBelow,
} from "./sql.ts";

const window = { before: { activeAtMs: 9_000, sessionId: "s5" }, count: 51 };
const waiting = { tenant: undefined, count: 51 };
const inbox = { tenant: "t", user: "u1", limit: 100, maxConsidered: 5_000, maxCounted: 1_000 };

const statements: Record<string, Statement> = {
  "one session": readSessions("t", ["s1"]),
  "the owner of one": readOwner("t", "s1"),
  "a page": sessionsBelow("t", {}, window),
  "a page of an agent's": sessionsBelow("t", { agent: "a", state: "idle" }, window),
  "a page by metadata": sessionsBelow("t", { metadata: { "ticket.id": 7 } }, window),
  "a page of a user's": sessionsBelow("t", { user: "u1", status: "active" }, window),
  "how many a user has": countSessionsOf("t", "u1", 2_001),
  "a page of a user's with very many": walkSessionsBelow("t", { user: "u1" }, window),
  "what is busy": busySessionsBelow("t", { state: "catching_up" }, window),
  "what is busy of a user's": busySessionsBelow("t", { state: "compacting", user: "u" }, window),
  "what waits for a person": sessionsAwaiting({ by: "since", atMs: 5, id: "s" }, waiting),
  "what of a tenant waits for a person": sessionsAwaiting(
    { by: "since", atMs: 5, id: "s" },
    { ...waiting, tenant: "t" },
  ),
  "what waits until a time": sessionsAwaiting({ by: "until", atMs: 5, id: "s" }, waiting),
  "what of a tenant waits until a time": sessionsAwaiting(
    { by: "until", atMs: 5, id: "s" },
    { ...waiting, tenant: "t" },
  ),
  "an inbox": readInboxRows(inbox),
  "a part of an inbox": readInboxRows({ ...inbox, only: ["s1", "s2"] }),
};

describe("however many sessions there are, they are found by an index", () => {
  const sqliteStepsOf = planningOnSqlite();
  const planOf = planning([
    `insert into flotilla.session (session_id, tenant, log_id, last_offset, header, created_at, active_at)
      select 's' || n, 't', n % 4, n, '{}', n, n from generate_series(1, 20000) n`,
    `insert into flotilla.session_user (session_id, user_id, tenant)
      select 's' || n, 'u' || n % 100, 't' from generate_series(1, 20000) n`,
    `insert into flotilla.message (session_id, seq, role, author, message_id, body, at)
      select 's' || n % 1000, n, 'user', 'u', n::text, '{}', n from generate_series(1, 20000) n`,
    "analyze flotilla.session",
    "analyze flotilla.session_user",
    "analyze flotilla.message",
  ]);

  test.each(Object.entries(statements))("on SQLite for %s", (_, statement) => {
    const steps = sqliteStepsOf(statement);
    // An index that is read from its beginning to its end is no better than its table.
    const scans = steps.filter((step) => /^SCAN (flotilla_)?(session|member|message)\b/.test(step));
    expect(scans.filter((step) => !step.includes("session_busy"))).toEqual([]);
  });

  test.each(Object.entries(statements))("on Postgres for %s", async (_, statement) => {
    const plan = await planOf(statement);
    expect(plan).not.toMatch(/Seq Scan on (session|session_user|message)\b/);
    expect(plan).not.toMatch(
      /Index (Only )?Scan( Backward)? using (?!\w*busy)\w+ on (session|session_user|message)\b.*\n(?! *Index Cond)/,
    );
  });

  test("busy sessions are searched among busy sessions", async () => {
    const statement = statements["what is busy"]!;
    expect(await planOf(statement)).toMatch(/session_busy/);
    expect(sqliteStepsOf(statement).join()).toMatch(/session_busy/);
  });
});
