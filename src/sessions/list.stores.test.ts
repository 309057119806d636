import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../base/clock.ts";
import { uuidv7 } from "../base/ids.ts";
import { systemRandom } from "../base/random.ts";
import type { Database } from "../store/database.ts";
import type { OpenStore } from "../store/contract/database.ts";
import { storeKinds } from "../store/contract/kinds.ts";
import { migrate } from "../store/migrate.ts";
import { rows, sql, table } from "../store/sql.ts";
import { walkBounds } from "../store/walk.ts";
import type { Journal } from "./log/journal.ts";
import { createSqlJournal } from "./log/sql-journal.ts";
import {
  exportSession,
  listSessions,
  maxOfUser,
  readInbox,
  readSession,
  readSessionCounts,
  readSessionOwner,
  maxUnread,
} from "./list.ts";
import type { ListSessions } from "./service.ts";
import { storingSessions, turn } from "./contract/stored-sessions.ts";

describe.each(storeKinds)("sessions as they are read on $name", (kind) => {
  let store: OpenStore;
  let database: Database;
  let journal: Journal;
  let put: ReturnType<typeof storingSessions>;
  const pages = async (tenant: string, options: ListSessions) => {
    const ids: string[] = [];
    let cursor: string | null = null;
    do {
      const from: ListSessions = cursor === null ? {} : { cursor };
      const page = await listSessions(database, tenant, { ...options, ...from });
      ids.push(...page.sessions.map(({ sessionId }) => sessionId));
      cursor = page.next;
    } while (cursor !== null);
    return ids;
  };

  beforeAll(async () => {
    store = await kind.open();
    database = store.database;
    await migrate(database);
    journal = createSqlJournal({ database, ids: uuidv7(systemClock, systemRandom) });
    put = storingSessions(journal);
  });
  afterAll(async () => {
    await database.close();
    await store.remove();
  });

  test("they are counted, and those in which something goes on", async () => {
    const before = await readSessionCounts(database);
    await put({ sessionId: "c-1", tenant: "counted" });
    await put({ sessionId: "c-2", tenant: "counted", work: turn() });
    await put({ sessionId: "c-3", tenant: "another" });
    await put({ sessionId: "c-4", tenant: "another" });
    await put({ sessionId: "c-4", tenant: "another", status: "deleted" });
    const { all, busy } = await readSessionCounts(database);
    expect([all - before.all, busy - before.busy]).toEqual([3, 1]);
  });

  test("one is shown to its tenant alone, and no longer once it is deleted", async () => {
    const facts = { tokens: 12, metadataVersion: 2, preview: "hello", previewAuthor: "ada" };
    await put({
      ...facts,
      sessionId: "one",
      tenant: "here",
      users: ["ada", "bob"],
      work: turn(),
      metadata: '{"title":"Tea"}',
      entries: [{}],
      activeAtMs: 5_000,
    });
    expect(await readSession(database, "here", "one")).toEqual({
      ...facts,
      sessionId: "one",
      tenant: "here",
      agents: ["helper"],
      users: ["ada", "bob"],
      status: "active",
      state: {
        state: "catching_up",
        epoch: 1,
        attempt: 1,
        agent: "helper",
        messageId: "answer",
        upToSeq: 1,
        stopping: false,
      },
      lastSeq: 1,
      needsCompaction: false,
      metadata: { title: "Tea" },
      createdAtMs: 1_000,
      activeAtMs: 5_000,
    });
    expect(await readSession(database, "elsewhere", "one")).toBeUndefined();
    await put({ sessionId: "one", tenant: "here", status: "deleted" });
    expect(await readSession(database, "here", "one")).toBeUndefined();
    expect(await pages("here", {})).toEqual([]);
    expect(await readInbox(database, "here", "ada")).toEqual([]);
  });

  test("the owner of one's log is shown to its tenant alone, with each takeover a higher term", async () => {
    await put({ sessionId: "owned", tenant: "here" });
    const before = await readSessionOwner(database, "here", "owned");
    const heads = await journal.heads();
    const head = heads.find(({ logId }) => logId === before!.logId)!;
    expect(before).toEqual({ logId: head.logId, term: head.term, podId: head.owner });
    const taken = await journal.take(head, { podId: "heir", host: null, recordId: "taken" });
    const after = { logId: head.logId, term: head.term + 1, podId: "heir" };
    expect(await readSessionOwner(database, "here", "owned")).toEqual(after);
    await journal.release("heir", [taken!]);
    expect(await readSessionOwner(database, "here", "owned")).toEqual({ ...after, podId: null });
    expect(await readSessionOwner(database, "elsewhere", "owned")).toBeUndefined();
    await put({ sessionId: "owned", tenant: "here", status: "deleted" });
    expect(await readSessionOwner(database, "here", "owned")).toBeUndefined();
  });

  test("they are listed newest first, page by page, each once", async () => {
    for (let at = 0; at < 7; at++) await put({ sessionId: `l-${at}`, tenant: "list" });
    await put({ sessionId: "l-3x", tenant: "another" });
    expect(await pages("list", { limit: 3 })).toEqual([6, 5, 4, 3, 2, 1, 0].map((n) => `l-${n}`));
    expect((await listSessions(database, "list", { limit: 7 })).next).toBeNull();
    expect((await listSessions(database, "list", { limit: 6 })).next).toMatch(/l-1$/);
  });

  test("they are listed by what happened in them last, whenever they were made", async () => {
    const tenant = "activity";
    const at = async (sessionId: string, activeAtMs: number, more: object = {}) =>
      put({ sessionId, tenant, users: ["ada"], activeAtMs, ...more });
    await at("a-1", 9_000);
    await at("a-2", 5_000, { work: turn() });
    await at("a-3", 7_000, { users: ["bob"] });
    await at("a-4", 5_000);
    await at("a-5", 8_000, { work: turn() });
    const of = (options: ListSessions) => pages(tenant, { limit: 2, ...options });
    expect(await of({})).toEqual(["a-1", "a-5", "a-3", "a-4", "a-2"]);
    expect(await of({ user: "ada" })).toEqual(["a-1", "a-5", "a-4", "a-2"]);
    expect(await of({ user: "ada", state: "idle", limit: 1 })).toEqual(["a-1", "a-4"]);
    expect(await of({ state: "catching_up", limit: 1 })).toEqual(["a-5", "a-2"]);
    expect(await of({ user: "ada", state: "catching_up", limit: 1 })).toEqual(["a-5", "a-2"]);
    await at("a-2", 10_000);
    expect(await of({})).toEqual(["a-2", "a-1", "a-5", "a-3", "a-4"]);
  });

  test("they are listed by user, agent, status and state", async () => {
    const tenant = "filters";
    await put({ sessionId: "f-1", tenant, users: ["ada", "bob"] });
    await put({ sessionId: "f-2", tenant, users: ["bob"], agents: ["other", "helper"] });
    await put({ sessionId: "f-3", tenant, status: "archived" });
    await put({ sessionId: "f-4", tenant, work: turn() });
    await put({ sessionId: "f-5", tenant, users: ["bob"], work: turn() });
    const waits = { attempt: 1, count: 1 };
    await put({ sessionId: "f-6", tenant, users: ["cy"], work: { ...turn(), waits } });
    await put({ sessionId: "g-5", tenant: "another", users: ["bob"], work: turn() });
    const of = (options: ListSessions) => pages(tenant, { limit: 1, ...options });
    expect(await of({ user: "bob" })).toEqual(["f-5", "f-2", "f-1"]);
    expect(await of({ user: "bob", agent: "helper" })).toEqual(["f-5", "f-1"]);
    expect(await of({ agent: "other" })).toEqual(["f-2"]);
    expect(await of({ status: "archived" })).toEqual(["f-3"]);
    expect(await of({ status: "active", user: "ada" })).toEqual(["f-4", "f-1"]);
    expect(await of({ state: "waiting" })).toEqual(["f-6"]);
    expect(await readInbox(database, tenant, "cy")).toMatchObject([{ state: "waiting" }]);
    expect(await of({ state: "catching_up" })).toEqual(["f-5", "f-4"]);
    expect(await of({ state: "catching_up", user: "bob" })).toEqual(["f-5"]);
    expect(await of({ state: "idle" })).toEqual(["f-3", "f-2", "f-1"]);
    expect(await of({ user: "nobody" })).toEqual([]);
  });

  const having = (
    metadata: NonNullable<ListSessions["metadata"]>,
    more: ListSessions = {},
  ): Promise<string[]> => pages("metadata", { limit: 2, metadata, ...more });

  test.skipIf(kind.encrypts)(
    "they are listed by values of their metadata, numbers as numbers and text as text",
    async () => {
      const tenant = "metadata";
      const stored: unknown[] = [
        { ticket: { id: 7 }, plan: "pro" },
        { ticket: { id: "7" }, plan: "pro" },
        { ticket: { id: 7.0 }, open: true },
        { ticket: [7] },
        { ticket: { id: null } },
        "ticket",
        { note: 'it\'s 100% "ours"' },
        { ticket: { id: Number.MAX_SAFE_INTEGER } },
      ];
      for (const [at, value] of stored.entries())
        await put({
          sessionId: `m-${at}`,
          tenant,
          users: at === 0 ? ["ada"] : ["bob"],
          metadata: JSON.stringify(value),
          activeAtMs: 1_000 + at,
        });
      await put({ sessionId: "m-without", tenant });
      await put({ sessionId: "m-busy", tenant, work: turn(), metadata: '{"ticket":{"id":7}}' });
      await put({ sessionId: "m-gone", tenant, status: "deleted", metadata: '{"plan":"pro"}' });
      await put({ sessionId: "m-theirs", tenant: "another", metadata: '{"plan":"pro"}' });
      expect(await having({ "ticket.id": 7 })).toEqual(["m-2", "m-busy", "m-0"]);
      expect(await having({ "ticket.id": "7" })).toEqual(["m-1"]);
      expect(await having({ "ticket.id": null })).toEqual(["m-4"]);
      expect(await having({ "ticket.id": Number.MAX_SAFE_INTEGER })).toEqual(["m-7"]);
      expect(await having({ open: true })).toEqual(["m-2"]);
      expect(await having({ open: 1 })).toEqual([]);
      expect(await having({ plan: "pro", "ticket.id": 7 })).toEqual(["m-0"]);
      expect(await having({ note: 'it\'s 100% "ours"' })).toEqual(["m-6"]);
      expect(await having({ absent: null })).toEqual([]);
      expect(await having({ plan: "pro" }, { user: "ada" })).toEqual(["m-0"]);
      expect(await having({ "ticket.id": 7 }, { state: "catching_up" })).toEqual(["m-busy"]);
      const only = { metadata: { plan: "pro" }, only: ["m-1", "m-5", "m-theirs"] };
      expect((await listSessions(database, tenant, only)).sessions).toMatchObject([
        { sessionId: "m-1" },
      ]);
      const { next } = await listSessions(database, tenant, {
        metadata: { plan: "pro" },
        limit: 1,
      });
      for (const other of [{}, { metadata: { plan: "free" } }])
        await expect(
          listSessions(database, tenant, { ...other, cursor: next! }),
        ).rejects.toMatchObject({ code: "invalid_option" });
    },
  );

  test.skipIf(kind.encrypts)(
    "a list by metadata that matches nothing looks no further than any list",
    async () => {
      const tenant = "many";
      const count = walkBounds.entries + 700;
      const many = rows(
        { session_id: "text", at: "integer" },
        Array.from({ length: count }, (_, at) => [`n-${at}`, at]),
      );
      await database.write([
        sql`insert into ${table("session")}
            (session_id, tenant, log_id, last_offset, header, metadata, created_at, active_at)
          select many.session_id, ${tenant}, 0, 0, '{}', '{"plan":"free"}', 0, many.at
          from ${many} many`,
      ]);
      const filter = { metadata: { plan: "pro" } };
      const still = { monotonic: () => 0 };
      const first = await listSessions(database, tenant, filter, still);
      expect(first).toMatchObject({ sessions: [], lookedBackTo: 700 });
      const rest = await listSessions(database, tenant, { ...filter, cursor: first.next! }, still);
      expect(rest).toEqual({ sessions: [], next: null, lookedBackTo: null });
      let passedMs = 0;
      const slow = { monotonic: () => (passedMs += walkBounds.ms) };
      const late = await listSessions(database, tenant, filter, slow);
      expect(late.sessions).toEqual([]);
      expect(late.lookedBackTo).toBeGreaterThan(count - 2_000);
    },
  );

  test.runIf(kind.encrypts)("metadata that is encoded can't be searched", async () => {
    await expect(having({ plan: "pro" })).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringContaining("a store with a codec"),
    });
  });

  test("a list says up to which activity it was searched, and goes on only with a cursor of its own", async () => {
    const tenant = "searched";
    for (let at = 0; at < 4; at++)
      await put({ sessionId: `p-${at}`, tenant, users: ["ada"], activeAtMs: 1_000 * at });
    const first = await listSessions(database, tenant, { user: "ada", limit: 1 });
    expect(first).toMatchObject({ sessions: [{ sessionId: "p-3" }], lookedBackTo: 3_000 });
    const cursor = first.next!;
    expect(await listSessions(database, tenant, { user: "ada", cursor })).toMatchObject({
      sessions: [{ sessionId: "p-2" }, { sessionId: "p-1" }, { sessionId: "p-0" }],
      next: null,
      lookedBackTo: null,
    });
    for (const other of [{}, { user: "bob" }, { user: "ada", state: "idle" }] as const) {
      await expect(listSessions(database, tenant, { ...other, cursor })).rejects.toMatchObject({
        code: "invalid_option",
        message: expect.stringContaining("cursor must be the `next` of an earlier page"),
      });
    }
    const theirs = listSessions(database, "another", { user: "ada", cursor });
    await expect(theirs).rejects.toMatchObject({ code: "invalid_option" });
  });

  test("those of a user with very many are found among the tenant's, page by page, as others are", async () => {
    const tenant = "crowd";
    for (let at = 0; at < 9; at++)
      await put({ sessionId: `w-${at}`, tenant, users: at % 2 === 0 ? ["ada"] : ["bob"] });
    const few = await pages(tenant, { user: "ada", limit: 2 });
    expect(few).toEqual(["w-8", "w-6", "w-4", "w-2", "w-0"]);
    const others = rows(
      { session_id: "text" },
      Array.from({ length: maxOfUser + 1 }, (_, at) => [`elsewhere-${at}`]),
    );
    await database.write([
      sql`insert into ${table("session_user")} (session_id, user_id, tenant)
        select other.session_id, 'ada', ${tenant} from ${others} other`,
    ]);
    expect(await pages(tenant, { user: "ada", limit: 2 })).toEqual(few);
    expect(await pages(tenant, { user: "ada", status: "archived" })).toEqual([]);
    const page = await listSessions(database, tenant, { user: "ada", limit: 2 });
    expect(page.sessions.map(({ sessionId }) => sessionId)).toEqual(["w-8", "w-6"]);
  });

  const deep = Array.from({ length: 50 }, () => "a").join(".");
  test.skipIf(kind.encrypts).each<[unknown, string]>([
    [{}, "metadata must have 1 to 5 paths"],
    ["plan", "metadata must have 1 to 5 paths"],
    [{ a: 1, b: 1, c: 1, d: 1, e: 1, f: 1 }, "metadata must have 1 to 5 paths"],
    [JSON.parse('{"__proto__":1}'), 'metadata: "__proto__" must be a path'],
    [JSON.parse('{"a.__proto__":1}'), "must be a path"],
    [{ 'a"b': 1 }, "must be a path"],
    [{ "a'b": 1 }, "must be a path"],
    [{ "a%": 1 }, "must be a path"],
    [{ [deep]: 1 }, "must be a path of 1 to 5 names"],
    [{ plan: ["pro"] }, "the value of plan must be"],
    [{ plan: 2 ** 53 }, "within 2^53"],
    [{ plan: "x".repeat(1_001) }, "text of at most 1000 characters"],
    [{ plan: "\ud800" }, "the value of plan must be"],
  ])("a list by the metadata %j is refused", async (metadata, message) => {
    const asked = listSessions(database, "list", { metadata } as ListSessions);
    await expect(asked).rejects.toMatchObject({
      code: "invalid_option",
      message: expect.stringContaining(message),
    });
  });

  test.each<[string, object]>([
    ["a limit of none", { limit: 0 }],
    ["a state that there isn't", { state: "asleep" }],
    ["a status that is never shown", { status: "deleted" }],
    ["a misspelt filter", { usr: "ada" }],
    ["a cursor that no page gave", { cursor: "\0" }],
    ["a cursor that is an id", { cursor: "l-1" }],
  ])("a list with %s is refused", async (_, options) => {
    const asked = listSessions(database, "list", options);
    await expect(asked).rejects.toMatchObject({ code: "invalid_option" });
  });

  test("an inbox has what happened last first, and counts what others have written since", async () => {
    const tenant = "inbox";
    const bob = { author: "bob" };
    const answer = { role: "assistant", author: "helper" } as const;
    await put({
      sessionId: "i-1",
      tenant,
      activeAtMs: 9_000,
      preview: "fine",
      previewAuthor: "helper",
      entries: [
        { ...bob },
        { ...bob },
        { author: "ada" },
        { ...answer },
        { ...answer, replaces: 4 },
        { kind: "tool_result", author: "bob" },
        { kind: "summary", role: "system", author: "helper" },
      ],
      reads: { ada: 1 },
    });
    await put({ sessionId: "i-2", tenant, activeAtMs: 8_000, entries: [bob], reads: { ada: 1 } });
    await put({ sessionId: "i-3", tenant, activeAtMs: 10_000, status: "archived", work: turn() });
    await put({ sessionId: "i-4", tenant, users: ["bob"], activeAtMs: 11_000 });
    const inbox = await readInbox(database, tenant, "ada");
    expect(inbox.map(({ sessionId, unread }) => [sessionId, unread])).toEqual([
      ["i-3", 0],
      ["i-1", 2],
      ["i-2", 0],
    ]);
    expect(inbox[1]).toEqual({
      sessionId: "i-1",
      agents: ["helper"],
      status: "active",
      state: "idle",
      lastSeq: 7,
      readSeq: 1,
      unread: 2,
      preview: "fine",
      previewAuthor: "helper",
      activeAtMs: 9_000,
    });
    expect(inbox[0]).toMatchObject({ status: "archived", state: "catching_up" });
    const only = (...sessionIds: string[]) =>
      readInbox(database, tenant, "ada", { only: sessionIds });
    expect((await only("i-2", "i-4", "nothing")).map(({ sessionId }) => sessionId)).toEqual([
      "i-2",
    ]);
    expect(await only()).toEqual([]);
    expect(await readInbox(database, tenant, "ada", { limit: 1 })).toHaveLength(1);
    expect(await readInbox(database, "elsewhere", "ada", { only: ["i-1"] })).toEqual([]);
  });

  test("what is unread is counted up to a cap", async () => {
    const entries = Array.from({ length: maxUnread + 5 }, () => ({ author: "bob" }));
    await put({ sessionId: "many", tenant: "cap", entries });
    expect(await readInbox(database, "cap", "ada")).toMatchObject([{ unread: maxUnread }]);
  });

  test("an export gives what there was when it began, and fails where that goes away", async () => {
    const tenant = "export";
    const entries = Array.from({ length: 450 }, (_, at) => ({ messageId: `m-${at}` }));
    await put({ sessionId: "long", tenant, entries });
    await put({ sessionId: "none", tenant });
    const seqs: number[] = [];
    let pageCount = 0;
    for await (const page of exportSession({ database, journal }, tenant, "long")) {
      seqs.push(...page.entries.map(({ seq }) => seq));
      expect(page.session.lastSeq).toBe(450);
      if (++pageCount === 1) {
        await put({ sessionId: "long", tenant, lastSeq: 451, entries: [{ seq: 451 }] });
      }
    }
    expect(seqs).toEqual(Array.from({ length: 450 }, (_, at) => at + 1));
    expect(pageCount).toBeGreaterThan(2);

    const empty = exportSession({ database, journal }, tenant, "none");
    expect((await empty.next()).value).toMatchObject({
      session: { sessionId: "none" },
      entries: [],
    });
    expect((await empty.next()).done).toBe(true);

    const cut = exportSession({ database, journal }, tenant, "long");
    await cut.next();
    await put({ sessionId: "long", tenant, status: "deleted" });
    await expect(cut.next()).rejects.toMatchObject({ code: "not_found" });
    const other = exportSession({ database, journal }, "elsewhere", "none");
    await expect(other.next()).rejects.toMatchObject({ code: "not_found" });
  });
});
