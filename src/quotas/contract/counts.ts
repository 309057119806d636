import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import { systemRandom } from "../../base/random.ts";
import type { Command } from "../../sessions/conversation/command.ts";
import type { Head, Journal } from "../../sessions/log/journal.ts";
import { createOwner, type Owner } from "../../sessions/log/owner.ts";
import { createSqlJournal } from "../../sessions/log/sql-journal.ts";
import type { OpenStore, StoreKind } from "../../store/contract/database.ts";
import { emptyTables } from "../../store/contract/kinds.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, table } from "../../store/sql.ts";
import { createTenantCounter } from "../counts.ts";
import { createTenantLeader } from "../leader.ts";
import { correctCounts, readDrift } from "../sql.ts";

const ids = uuidv7(systemClock, systemRandom);
const tables = [
  "tenant_count",
  "quota_server",
  "session",
  "session_user",
  "message",
  "turn",
  "session_log",
] as const;

/** A pod's part: the owner of one log, on a connection of its own. */
type CountingPod = {
  readonly owner: Owner;
  readonly journal: Journal;
  create(tenant: string, sessionId?: string): Promise<string>;
  say(tenant: string, sessionId: string, text: string, clientId?: string): Promise<void>;
  finish(tenant: string, sessionId: string, text: string): Promise<void>;
  remove(tenant: string, sessionId: string): Promise<void>;
};

/** What the counts of tenants promise on every store. */
export function tenantCountsContract(kind: StoreKind): void {
  describe(`counts of tenants on ${kind.name}`, () => {
    let store: OpenStore;
    /** As another process has it. */
    let again: Database;
    beforeAll(async () => {
      store = await kind.open();
      await migrate(store.database);
      again = (await store.again?.()) ?? store.database;
    });
    afterAll(async () => {
      if (again !== store.database) await again.close();
      await store.database.close();
      await store.remove();
    });
    beforeEach(async () => {
      await emptyTables(store, tables);
      await createSqlJournal({ database: store.database, ids }).create(4);
    });

    const counter = (database = store.database) => createTenantCounter({ database });
    const countsOf = async (tenant: string, database = store.database) =>
      (await counter(database).of([tenant]))[0];
    const none = { sessions: 0, turnsAtOnce: 0, storedBytes: 0 };

    const take = async (journal: Journal, logId: number): Promise<Head> => {
      const seen = (await journal.heads())[logId]!;
      return (await journal.take(seen, { podId: ids.next(), host: null, recordId: ids.next() }))!;
    };
    const startPod = async (
      logId: number,
      { database = store.database, counts = true } = {},
    ): Promise<CountingPod> => {
      const journal = createSqlJournal({ database, ids });
      const clock = movableClock();
      const head = await take(journal, logId);
      const owner = createOwner(head, await journal.recover(head), {
        journal,
        clock,
        random: systemRandom,
        ids,
        log: silentLogger,
        facts: () => ({
          nowMs: 1_000,
          newId: () => ids.next(),
          agent: () => ({ during: "queue", attempts: 3, compaction: null }),
          runnerFor: () => "pod-1",
        }),
        prime: () => undefined,
        onCommitted: () => {},
        onFenced: () => {},
        isFresh: () => true,
        countsTenants: counts,
      });
      const submit = (tenant: string, sessionId: string, command: Command) =>
        owner.submit(tenant, sessionId, command);
      return {
        owner,
        journal,
        async create(tenant, sessionId = ids.next()) {
          const named = { sessionId, tenant, agents: ["helper"], users: ["ada"], metadata: null };
          await submit(tenant, sessionId, { type: "create", ...named });
          return sessionId;
        },
        async say(tenant, sessionId, text, clientId = ids.next()) {
          await submit(tenant, sessionId, {
            type: "append",
            clientId,
            messageId: clientId,
            role: "user",
            author: "ada",
            parts: [{ type: "text", text }],
            tokens: 1,
          });
        },
        async finish(tenant, sessionId, text) {
          const { epoch } = (await journal.header(sessionId))!;
          const reply = {
            outcome: "completed",
            parts: [{ type: "text", text }],
            tokens: 1,
          } as const;
          await submit(tenant, sessionId, { type: "turn_finished", epoch, attempt: 1, reply });
        },
        async remove(tenant, sessionId) {
          await submit(tenant, sessionId, { type: "delete" });
        },
      };
    };
    /** Bytes of what was said, and of all that is known of it. */
    const bytesOf = async (journal: Journal, sessionIds: readonly string[]) => {
      const sum = { said: 0, all: 0 };
      for (const sessionId of sessionIds) {
        for (const entry of await journal.entries(sessionId, { after: 0, limit: 1_000 })) {
          sum.said += Buffer.byteLength(JSON.stringify(entry.parts));
          sum.all += Buffer.byteLength(JSON.stringify(entry));
        }
      }
      return sum;
    };

    test("follow sessions, turns and bytes, of each tenant its own", async () => {
      const pod = await startPod(0);
      const first = await pod.create("acme");
      const second = await pod.create("acme");
      const other = await pod.create("other");
      expect(await countsOf("acme")).toEqual({ ...none, sessions: 2 });
      await Promise.all([pod.say("acme", first, "hallo"), pod.say("other", other, "hi")]);
      await pod.say("acme", second, "é".repeat(100));
      const counted = await countsOf("acme");
      expect(counted).toMatchObject({ sessions: 2, turnsAtOnce: 2 });
      expect(await countsOf("other")).toMatchObject({ sessions: 1, turnsAtOnce: 1 });
      await pod.finish("acme", first, "well, hallo");
      expect(await countsOf("acme")).toMatchObject({ sessions: 2, turnsAtOnce: 1 });
      const { said, all } = await bytesOf(pod.journal, [first, second]);
      const { storedBytes } = (await countsOf("acme"))!;
      expect(storedBytes).toBeGreaterThanOrEqual(said);
      expect(storedBytes).toBeLessThanOrEqual(all);
      expect(storedBytes).toBeGreaterThan(counted!.storedBytes);
    });

    test("lose all of a session that is deleted, also in the middle of a turn", async () => {
      const pod = await startPod(0);
      const [gone, kept] = [await pod.create("acme"), await pod.create("acme")];
      await pod.say("acme", kept, "stays");
      const before = await countsOf("acme");
      await pod.say("acme", gone, "goes");
      await pod.remove("acme", gone);
      expect(await countsOf("acme")).toEqual({ ...before, sessions: 1 });
      await pod.remove("acme", gone);
      await pod.remove("acme", kept);
      expect(await countsOf("acme")).toEqual(none);
    });

    test("are the same for all pods, which add to them at the same time", async () => {
      const pods = await Promise.all([
        startPod(0),
        startPod(1, { database: again }),
        startPod(2, { database: again }),
      ]);
      await Promise.all(
        pods.flatMap((pod) =>
          Array.from({ length: 20 }, async (_, at) => {
            const sessionId = await pod.create("acme");
            await pod.say("acme", sessionId, `message ${at}`);
            if (at % 2 === 0) await pod.finish("acme", sessionId, "answer");
            if (at % 5 === 0) await pod.remove("acme", sessionId);
          }),
        ),
      );
      const counted = await countsOf("acme", again);
      expect(counted).toMatchObject({ sessions: 48, turnsAtOnce: 30 - 3 * 2 });
      expect(await store.database.read(readDrift(10))).toEqual([]);
    });

    test("are kept when a pod is gone, and the next owner of its log goes on with them", async () => {
      const first = await startPod(0);
      const sessionId = await first.create("acme");
      await first.say("acme", sessionId, "before");
      const before = (await countsOf("acme"))!;
      first.owner.drop();
      const second = await startPod(0, { database: again });
      expect(await countsOf("acme", again)).toEqual(before);
      await second.say("acme", sessionId, "after");
      expect((await countsOf("acme"))!.storedBytes).toBeGreaterThan(before.storedBytes);
      await second.remove("acme", sessionId);
      expect(await countsOf("acme")).toEqual(none);
    });

    test("take nothing of a record whose log another pod has taken", async () => {
      const late = await startPod(0);
      const sessionId = await late.create("acme");
      const before = await countsOf("acme");
      await startPod(0, { database: again });
      await expect(late.say("acme", sessionId, "too late")).rejects.toMatchObject({
        code: "not_owner",
      });
      expect(await countsOf("acme")).toEqual(before);
    });

    test("count a record once whose answer was lost and that is sent again", async () => {
      let losses = 0;
      const lossy: Database = {
        ...store.database,
        async write(statements, options) {
          const rows = await store.database.write(statements, options);
          if (losses-- > 0) throw new FlotillaError("unknown_outcome", "the answer was lost");
          return rows;
        },
      };
      const pod = await startPod(0, { database: lossy });
      const sessionId = await pod.create("acme");
      const journal = createSqlJournal({ database: lossy, ids });
      const head = { ...pod.owner.head };
      const header = (await journal.header(sessionId))!;
      const record = {
        recordId: ids.next(),
        entries: [],
        headers: [{ ...header, bytes: 10 }],
        members: [],
        metadata: [],
        reads: [],
        checkpoints: [],
        steps: [],
        stepsOver: [],
        tenants: [{ tenant: "acme", sessions: 0, turns: 0, bytes: 10 }],
      };
      losses = 1;
      await expect(journal.commit(head, record)).rejects.toMatchObject({ code: "unknown_outcome" });
      expect(await journal.commit(head, record)).toMatchObject({ type: "committed" });
      expect(await countsOf("acme")).toEqual({ ...none, sessions: 1, storedBytes: 10 });
    });

    test("are not written by pods whose config has no quotas", async () => {
      const pod = await startPod(0, { counts: false });
      const sessionId = await pod.create("acme");
      await pod.say("acme", sessionId, "uncounted");
      expect(await store.database.read(sql`select * from ${table("tenant_count")}`)).toEqual([]);
      expect((await pod.journal.header(sessionId))!.bytes).toBeUndefined();
    });

    test("are corrected by the leader, whatever was stored without being counted", async () => {
      const uncounted = await startPod(0, { counts: false });
      const old = await uncounted.create("acme");
      await uncounted.say("acme", old, "from before");
      const quiet = await uncounted.create("quiet");
      const counting = await startPod(1);
      const fresh = await counting.create("acme");
      await counting.say("acme", fresh, "counted");
      const { storedBytes } = (await countsOf("acme"))!;

      const clock = movableClock();
      const leader = createTenantLeader({ database: again, clock });
      await leader.pass();
      const corrected = { sessions: 2, turnsAtOnce: 2, storedBytes };
      expect(await countsOf("acme")).toEqual(corrected);
      expect(await countsOf("quiet")).toEqual({ ...none, sessions: 1 });

      // What pods go on counting is no drift, and a second correction changes nothing.
      await counting.finish("acme", fresh, "an answer");
      const after = await countsOf("acme");
      await clock.advance(10 * 60_000);
      await leader.pass();
      expect(await countsOf("acme")).toEqual(after);
      expect(after).toMatchObject({ sessions: 2, turnsAtOnce: 1 });

      // The session from before counts nothing but itself.
      uncounted.owner.drop();
      const next = await startPod(0);
      await next.remove("acme", old);
      await next.remove("quiet", quiet);
      expect(await countsOf("acme")).toEqual({ ...after, sessions: 1, turnsAtOnce: 0 });
      expect(await countsOf("quiet")).toEqual(none);
    });

    test("of tenants without a session are gone after a pass of the leader, and come back with one", async () => {
      const pod = await startPod(0);
      const gone = await pod.create("gone");
      await pod.say("gone", gone, "for a while");
      await pod.create("stays");
      await pod.remove("gone", gone);
      await createTenantLeader({ database: again, clock: movableClock() }).pass();
      const left = sql`select distinct tenant from ${table("tenant_count")}`;
      expect(await store.database.read(left)).toEqual([{ tenant: "stays" }]);
      await pod.create("gone");
      expect(await countsOf("gone")).toEqual({ ...none, sessions: 1 });
    });

    test("are corrected once, if two pods take themselves for the leader or a correction lands twice", async () => {
      const pod = await startPod(0, { counts: false });
      await pod.create("acme");
      const clock = movableClock();
      const lead = (database: Database) => createTenantLeader({ database, clock }).pass();
      const [row] = await store.database.read(readDrift(10));
      const stale = {
        tenant: "acme",
        sessions: Number(row!["sessions"]),
        turns: 0,
        bytes: 0,
        corrected: { sessions: 0, turns: 0, bytes: 0 },
      };
      await Promise.all([lead(store.database), lead(again)]);
      expect(await countsOf("acme")).toEqual({ ...none, sessions: 1 });
      await pod.create("acme");
      await lead(again);
      await store.database.write([correctCounts([stale])]);
      expect(await countsOf("acme")).toEqual({ ...none, sessions: 2 });
    });

    test("are listed by name, page by page, whatever the names are", async () => {
      const pod = await startPod(0);
      const hostile = [
        "'; drop table tenant_count; --",
        "__proto__",
        "a\n\u001b[2J",
        "é".repeat(500),
      ];
      for (const tenant of hostile) await pod.create(tenant);
      const seen: string[] = [];
      let cursor: string | null = null;
      do {
        const page = await counter().list({ limit: 1, ...(cursor !== null && { cursor }) });
        seen.push(...page.tenants.map(({ tenant }) => tenant));
        cursor = page.next;
      } while (cursor !== null);
      expect(seen.toSorted()).toEqual(hostile.toSorted());
      expect(await counter().list({ tenant: "__proto__" })).toEqual({
        tenants: [{ tenant: "__proto__", used: { ...none, sessions: 1 } }],
        next: null,
      });
      expect(await counter().of([hostile[3]!, "constructor", hostile[0]!])).toEqual([
        { ...none, sessions: 1 },
        none,
        { ...none, sessions: 1 },
      ]);
      await expect(counter().list({ limit: 0 })).rejects.toMatchObject({ code: "invalid_option" });
      await expect(counter().list({ tenat: "x" } as never)).rejects.toThrow("tenant");
    });

    test("are divided among the servers that are up", async () => {
      const [one, other] = [counter(), counter(again)];
      expect(await one.announce("server-1")).toBe(1);
      expect(await other.announce("server-2")).toBe(2);
      expect(await one.announce("server-1")).toBe(2);
      await other.leave("server-2");
      expect(await one.announce("server-1")).toBe(1);
      await store.database.write([
        sql`insert into ${table("quota_server")} (server_id, seen_at) values ('gone', 1)`,
      ]);
      expect(await one.announce("server-1")).toBe(1);
    });
  });
}
