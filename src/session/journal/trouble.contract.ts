import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Database, Row } from "../../store/database.ts";
import type { OpenStore, StoreKind } from "../../store/database.contract.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, table } from "../../store/sql.ts";
import type { Head, Journal, LogRecord } from "./journal.ts";
import { all, entry, fresh, header, headOf, record, said, take, turn } from "./scene.contract.ts";
import { createSqlJournal } from "./sql.ts";

/** What becomes of the next write: its answer is lost after or before it is stored, or it comes late. */
type Trouble = "after" | "before" | "late" | undefined;

/** What a journal in SQL does when answers are lost, and the rows that only the database is asked for. */
export function sqlJournalContract(kind: StoreKind, ids: Ids): void {
  describe(`a journal in SQL on ${kind.name}, in trouble`, () => {
    let store: OpenStore;
    let journal: Journal;
    let sound: Journal;
    let trouble: Trouble;
    let land: () => Promise<Row[][]>;
    let sent = 0;
    let logs = 0;
    const own = (podId?: string) => take(sound, logs++, podId);
    const lost = () => new FlotillaError("unknown_outcome", "the answer was lost");

    const troubled = (database: Database): Database => ({
      ...database,
      async write(statements) {
        const now = trouble;
        trouble = undefined;
        sent = statements.length;
        if (now === undefined) return database.write(statements);
        if (now === "after") await database.write(statements);
        if (now === "late") land = () => database.write(statements);
        throw lost();
      },
    });

    beforeAll(async () => {
      store = await kind.open();
      await migrate(store.database);
      journal = createSqlJournal({ database: troubled(store.database), ids });
      sound = createSqlJournal({ database: store.database, ids });
      await sound.create(64);
    });
    afterAll(async () => {
      await store.database.close();
      await store.remove();
    });

    const usersOf = (sessionId: string) =>
      store.database.read(sql`
        select user_id, tenant, read_seq from ${table("session_user")}
        where session_id = ${sessionId} order by user_id`);
    const metadataOf = async (sessionId: string) =>
      (
        await store.database.read(
          sql`select metadata from ${table("session")} where session_id = ${sessionId}`,
        )
      )[0]?.["metadata"];
    const everythingOf = async (sessionId: string) => ({
      ...(await all(sound, sessionId)),
      users: await usersOf(sessionId),
      metadata: await metadataOf(sessionId),
    });

    /** A record with something of everything. */
    const rich = (sessionId: string, seq: number, users: readonly string[] = ["ada"]): LogRecord =>
      record({
        entries: [entry(sessionId, seq)],
        headers: [
          header(sessionId, { lastSeq: seq, epoch: seq, work: turn({ epoch: seq }), users }),
        ],
        metadata: [{ sessionId, metadata: `{"seq":${seq}}` }],
        reads: [{ sessionId, user: users[0]!, seq }],
        checkpoints: [{ sessionId, epoch: seq, attempt: 1, body: `${seq}` }],
      });

    describe.each(["after", "before", "late"] as const)("an answer is lost %s", (when) => {
      test("O2: the same record at the same place is stored once", async () => {
        const head = await own();
        const id = fresh("session");
        const first = rich(id, 1);
        trouble = when;
        await expect(journal.commit(head, first)).rejects.toMatchObject({
          code: "unknown_outcome",
        });
        const next = headOf(await journal.commit(head, first));
        expect(next.offset).toBe(head.offset + 1);
        const stored = await everythingOf(id);
        expect(stored).toMatchObject({
          header: first.headers[0],
          entries: [{ seq: 1 }],
          checkpoint: { body: "1" },
          users: [{ user_id: "ada", read_seq: 1 }],
          metadata: '{"seq":1}',
        });
        if (when === "late") await land();
        expect(await everythingOf(id)).toEqual(stored);
        expect((await sound.heads())[head.logId]).toEqual(next);
      });

      test("O7: who takes over finds it stored as a whole or never", async () => {
        const head = await own("pod-1");
        const id = fresh("session");
        const at = headOf(await journal.commit(head, rich(id, 1)));
        trouble = when;
        await expect(journal.commit(at, rich(id, 2, ["eve"]))).rejects.toMatchObject({
          code: "unknown_outcome",
        });
        const taken = await take(sound, at.logId, "pod-2");
        const stored = await everythingOf(id);
        const seq = when === "after" ? 2 : 1;
        expect(stored).toMatchObject({
          header: { lastSeq: seq },
          metadata: `{"seq":${seq}}`,
          users: [{ user_id: seq === 2 ? "eve" : "ada" }],
        });
        expect(stored.entries).toHaveLength(seq);
        // It lands only now that the log has another owner.
        if (when === "late") await land();
        expect(await everythingOf(id)).toEqual(stored);
        expect((await sound.heads())[at.logId]).toEqual(taken);
        headOf(await sound.commit(taken, rich(id, seq + 1)));
      });

      test("O7: sent again after another took over it is fenced, and nothing more of it stored", async () => {
        const head = await own("pod-1");
        const id = fresh("session");
        const at = headOf(await journal.commit(head, rich(id, 1)));
        const unsure = rich(id, 2, ["eve"]);
        trouble = when;
        await expect(journal.commit(at, unsure)).rejects.toMatchObject({ code: "unknown_outcome" });
        const taken = await take(sound, at.logId, "pod-2");
        const seq = when === "after" ? 3 : 2;
        headOf(await sound.commit(taken, rich(id, seq, ["bob"])));
        const stored = await everythingOf(id);
        expect(await journal.commit(at, unsure)).toEqual({ type: "fenced" });
        if (when === "late") await land();
        expect(await everythingOf(id)).toEqual(stored);
      });

      test("O2: a take is resolved by taking again", async () => {
        const seen = (await sound.heads())[logs++]!;
        const owner = { podId: "pod-1", host: null, recordId: fresh("take") };
        trouble = when;
        await expect(journal.take(seen, owner)).rejects.toMatchObject({ code: "unknown_outcome" });
        const taken = (await journal.take(seen, owner))!;
        expect(taken).toMatchObject({ term: seen.term + 1, offset: seen.offset + 1 });
        const head = headOf(await sound.commit(taken, said(fresh("session"), 1)));
        if (when === "late") await land();
        expect((await sound.heads())[seen.logId]).toEqual(head);
      });
    });

    test("O5: a header from earlier in its log never takes the place of a later one", async () => {
      const head = await own();
      const id = fresh("session");
      headOf(await sound.commit(head, said(id, 1, 2)));
      // The log is set back by hand, as a back-up of one table alone would do it.
      await store.database.write([
        sql`update ${table("session")} set last_offset = 1000 where session_id = ${id}`,
      ]);
      const before = await everythingOf(id);
      const [at] = (await sound.heads()).slice(head.logId);
      const late = record({ headers: [header(fresh("other")), header(id, { lastSeq: 1 })] });
      headOf(await sound.commit(at!, late));
      expect(await everythingOf(id)).toEqual(before);
    });

    test("O3: a fenced record leaves users, reads and metadata alone", async () => {
      const head = await own();
      const id = fresh("session");
      headOf(await sound.commit(head, rich(id, 1, ["ada", "bob"])));
      const before = await everythingOf(id);
      for (const late of [rich(id, 2, ["eve"]), rich(id, 1, [])]) {
        expect(await sound.commit(head, late)).toEqual({ type: "fenced" });
      }
      expect(await everythingOf(id)).toEqual(before);
    });

    test("logs that are made anew go on behind what the old ones have stored", async () => {
      const other = await kind.open();
      await migrate(other.database);
      const made = createSqlJournal({ database: other.database, ids });
      const id = fresh("session");
      await made.create(2);
      let head = await take(made, 1);
      for (let seq = 1; seq <= 5; seq++) head = headOf(await made.commit(head, said(id, seq)));
      await other.database.write([sql`delete from ${table("log_head")}`]);
      await made.create(2);
      expect(await made.commit(head, said(id, 6))).toEqual({ type: "fenced" });
      headOf(await made.commit(await take(made, 1), said(id, 6)));
      expect(await made.header(id)).toMatchObject({ lastSeq: 6 });
      expect(await made.entries(id, { after: 0, limit: 10 })).toHaveLength(6);
      await other.database.close();
      await other.remove();
    });

    test("users are those of the header, and what they have read only rises", async () => {
      let head = await own();
      const id = fresh("session");
      const put = async (users: readonly string[], reads: Record<string, number>) => {
        const changes = record({
          headers: [header(id, { tenant: "acme", users })],
          reads: Object.entries(reads).map(([user, seq]) => ({ sessionId: id, user, seq })),
        });
        head = headOf(await sound.commit(head, changes));
        return Object.fromEntries(
          (await usersOf(id)).map((row) => [row["user_id"], Number(row["read_seq"])]),
        );
      };
      expect(await put(["ada", "bob"], {})).toEqual({ ada: 0, bob: 0 });
      expect((await usersOf(id))[0]).toMatchObject({ tenant: "acme" });
      expect(await put(["ada", "bob"], { ada: 5, eve: 3 })).toEqual({ ada: 5, bob: 0 });
      expect(await put(["eve", "ada"], { ada: 4, eve: 2 })).toEqual({ ada: 5, eve: 2 });
      expect(await put([], {})).toEqual({});
    });

    test("a record of several reads by one user counts the furthest", async () => {
      const head = await own();
      const id = fresh("session");
      const reads = [3, 7, 5].map((seq) => ({ sessionId: id, user: "ada", seq }));
      headOf(await sound.commit(head, record({ headers: [header(id)], reads })));
      expect(await usersOf(id)).toMatchObject([{ read_seq: 7 }]);
    });

    test("metadata stays until it is set anew", async () => {
      let head = await own();
      const [id, other] = [fresh("session"), fresh("session")];
      const put = async (texts: Record<string, string>) => {
        const metadata = Object.entries(texts).map(([sessionId, text]) => ({
          sessionId,
          metadata: text,
        }));
        const headers = [header(id), header(other)];
        head = headOf(await sound.commit(head, record({ headers, metadata })));
        return [await metadataOf(id), await metadataOf(other)];
      };
      expect(await put({})).toEqual([null, null]);
      expect(await put({ [id]: '{"a":1}' })).toEqual(['{"a":1}', null]);
      expect(await put({})).toEqual(['{"a":1}', null]);
      expect(await put({ [other]: "2" })).toEqual(['{"a":1}', "2"]);
      expect(await put({ [id]: "null" })).toEqual(["null", "2"]);
    });

    test("the checkpoint of a turn is removed with its answer, and no other's", async () => {
      let head = await own();
      const [done, next] = [fresh("session"), fresh("session")];
      head = headOf(await sound.commit(head, rich(done, 1)));
      head = headOf(await sound.commit(head, rich(next, 2)));
      const reply = { role: "assistant", clientId: null, epoch: 1 } as const;
      headOf(
        await sound.commit(
          head,
          record({
            entries: [entry(done, 2, reply), entry(next, 3, reply)],
            headers: [
              header(done, { lastSeq: 2, epoch: 1 }),
              header(next, { lastSeq: 3, epoch: 2, work: turn({ epoch: 2 }) }),
            ],
          }),
        ),
      );
      const left = await store.database.read(sql`
        select session_id from ${table("turn_checkpoint")}
        where session_id = ${done} or session_id = ${next}`);
      expect(left).toEqual([{ session_id: next }]);
    });

    test("a deleted session leaves no row but its own, and that is empty", async () => {
      const head = await own();
      const id = fresh("session");
      const next = headOf(await sound.commit(head, rich(id, 1, ["ada", "bob"])));
      const gone = record({
        headers: [header(id, { lastSeq: 1, status: "deleted" })],
        members: [],
      });
      headOf(await sound.commit(next, gone));
      for (const each of ["message", "session_user", "turn_checkpoint"] as const) {
        const left = await store.database.read(
          sql`select session_id from ${table(each)} where session_id = ${id}`,
        );
        expect(left).toEqual([]);
      }
      expect(await metadataOf(id)).toBeNull();
    });

    test("a session keeps the tenant that it was made with", async () => {
      let head = await own();
      const id = fresh("session");
      for (const tenant of ["acme", "other"]) {
        head = headOf(await sound.commit(head, record({ headers: [header(id, { tenant })] })));
      }
      expect(
        await store.database.read(
          sql`select tenant from ${table("session")} where session_id = ${id}`,
        ),
      ).toEqual([{ tenant: "acme" }]);
    });

    test("what a record doesn't change isn't asked about", async () => {
      const head = await own();
      const id = fresh("session");
      const next: Head = headOf(await journal.commit(head, said(id, 1)));
      const more = said(id, 2, 50);
      headOf(await journal.commit(next, { ...more, members: [] }));
      expect(sent).toBe(3);
    });
  });
}
