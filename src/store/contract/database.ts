import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { type MovableClock, eventLoopTurns, until } from "../../base/contract/movable-clock.ts";
import { type Database, pageReads } from "../database.ts";
import { migrate } from "../migrate.ts";
import {
  createSchema,
  now,
  returning,
  rows,
  sql,
  type Statement,
  table,
  type TableName,
} from "../sql.ts";

/** A kind of store, for the suites that every kind passes. */
export type StoreKind = {
  readonly name: string;
  /** Whether a caller can have a connection of its own to it. */
  readonly callers?: true;
  /** Whether its content is stored longer than it is. */
  readonly encrypts?: true;
  /** A new, empty store. */
  open(): Promise<OpenStore>;
};

export type OpenStore = {
  readonly database: Database;
  /** What the store's time follows, where tests can move it. */
  readonly clock?: MovableClock;
  /** Opens the same store again, as another process would. */
  readonly again?: () => Promise<Database>;
  /** A connection of the caller's own on the same store. The caller closes it. */
  readonly caller?: () => Promise<CallerConnection>;
  /** How many transactions it has committed so far, where that can be seen. */
  readonly commits?: () => number;
  /** False if no listener is ever notified of a commit, so that only polling finds it. */
  readonly hints?: false;
  /** Forgets all rows that tables have, and that they ever had. Default: they are deleted. */
  readonly empty?: (tables: readonly TableName[]) => Promise<void>;
  remove(): Promise<void>;
};

export type CallerConnection = {
  /** What a caller gives as `tx`. */
  readonly handle: unknown;
  begin(): Promise<void>;
  exec(text: string): Promise<void>;
  all(text: string): Promise<unknown[]>;
  close(): Promise<void>;
};

/** A table of a test, in the place of our tables: a role may have the right to make tables nowhere else. */
export function ownTable(name: string): ReturnType<typeof table> {
  return table(name as TableName);
}

/** What every store promises to the rest of the program. */
export function databaseContract(kind: StoreKind): void {
  const scratch = ownTable("scratch");
  let store: OpenStore;
  let database: Database;
  const put = (id: number, body: string | null = null) =>
    sql`insert into ${scratch} (id, body) values (${id}, ${body})`;
  const giving = (column: Statement, which: Statement) =>
    returning(column, { after: sql`select ${column} from ${scratch} where ${which} order by id` });
  const ids = async () =>
    (await database.read(sql`select id from ${scratch} order by id`)).map((row) => row["id"]);
  const open = async () => {
    store = await kind.open();
    database = store.database;
  };
  const remove = async () => {
    await database.close();
    await store.remove();
  };
  const empty = () =>
    database.write([
      sql`${createSchema}`,
      sql`drop table if exists ${scratch}`,
      sql`create table ${scratch} (id integer primary key, body text, size bigint)`,
    ]);

  describe(`the database on ${kind.name}`, () => {
    // To open one takes far longer than what these do with it, so that they share it.
    beforeAll(open);
    afterAll(remove);
    beforeEach(empty);

    test("commits statements together, and gives the rows of each", async () => {
      const tables = await database.write([
        put(1, "a"),
        sql`insert into ${scratch} (id) values (2), (3) ${giving(sql`id`, sql`id > 1`)}`,
        sql`select count(*) as count from ${scratch}`,
      ]);
      expect(tables).toEqual([[], [{ id: 2 }, { id: 3 }], [{ count: 3 }]]);
      expect(await ids()).toEqual([1, 2, 3]);
    });

    test("gives what a change has touched, also where that must be read before the change", async () => {
      await database.write([put(1, "old"), put(2, "old"), put(3, "new")]);
      const old = sql`from ${scratch} where body = 'old'`;
      const tables = await database.write([
        sql`update ${scratch} set body = 'changed' where body = 'old'
          ${returning(sql`id`, { before: sql`select id ${old}` })}`,
        sql`delete from ${scratch} where body = 'old' ${returning(sql`id`, { before: sql`select id ${old}` })}`,
        sql`select count(*) as count from ${scratch}`,
      ]);
      expect(tables).toEqual([[{ id: 1 }, { id: 2 }], [], [{ count: 3 }]]);
    });

    test("commits nothing where one of the statements is refused", async () => {
      await database.write([put(1)]);
      const refused = database.write([put(2), put(3), put(1), put(4)]);
      await expect(refused).rejects.toBeInstanceOf(FlotillaError);
      expect(await ids()).toEqual([1]);
      await database.write([put(5)]);
      expect(await ids()).toEqual([1, 5]);
    });

    test("refuses a statement that makes no sense, and works on", async () => {
      await expect(database.read(sql`select nonsense`)).rejects.toBeInstanceOf(FlotillaError);
      await expect(database.write([sql`nonsense`])).rejects.toBeInstanceOf(FlotillaError);
      await database.write([put(1)]);
      expect(await ids()).toEqual([1]);
    });

    test("lets no refused part take its neighbours with it", async () => {
      await database.write([put(7)]);
      const parts = Array.from({ length: 40 }, (_, id) =>
        database.write([put(id), put(id + 1_000)]),
      );
      const outcomes = await Promise.allSettled(parts);
      outcomes.forEach(({ status }, id) =>
        expect(status).toBe(id === 7 ? "rejected" : "fulfilled"),
      );
      expect(await ids()).toHaveLength(79);
      expect(await ids()).not.toContain(1_007);
    });

    test("answers a thousand concurrent writes, each with its own rows", async () => {
      const before = store.commits?.() ?? 0;
      const writes = Array.from({ length: 1_000 }, (_, id) =>
        database.write([
          sql`insert into ${scratch} (id) values (${id}) ${giving(sql`id`, sql`id = ${id}`)}`,
        ]),
      );
      const answers = await Promise.all(writes);
      answers.forEach(([table], id) => expect(table).toEqual([{ id }]));
      expect(await ids()).toHaveLength(1_000);
      // What arrives while a commit is under way shares the next.
      const commits = store.commits ? store.commits() - before : 1;
      expect(commits).toBeGreaterThan(0);
      expect(commits).toBeLessThan(200);
    });

    test("shows a write to every read that begins after its answer", async () => {
      for (let id = 0; id < 50; id++) {
        await database.write([put(id)]);
        expect(await database.read(sql`select id from ${scratch} where id = ${id}`)).toEqual([
          { id },
        ]);
      }
    });

    test("reads while a long write is under way, and doesn't see half of it", async () => {
      let writing = true;
      const long = database
        .write([
          put(1),
          sql`insert into ${scratch} (id)
            with recursive n (i) as (select 1 union all select i + 1 from n where i < 2000000)
            select max(i) from n`,
        ])
        .finally(() => (writing = false));
      const seen = await ids();
      // A store on this very thread has nothing that could go on meanwhile.
      expect(writing || !store.again).toBe(true);
      expect(seen).toEqual(writing ? [] : [1, 2_000_000]);
      await long;
      expect(await ids()).toEqual([1, 2_000_000]);
    });

    test.each([
      ["unicode", "héllo 漢字 😀 \u202e \u0001"],
      ["quotes", `'; drop table scratch; -- "\\\` $1 ?`],
      ["quotes beside control characters", `"\n\t\\n \u0001 \\"`],
      ["quotes beside pairs of surrogates", `"😀" \\u0041`],
      ["the empty text", ""],
      ["null", null],
      ["text like a number", "007"],
      ["text like JSON", `{"a":[1,"b"]}`],
      ["256 KiB", "x".repeat(256 * 1024)],
      ["256 KiB of other scripts", "漢".repeat(87_381)],
    ])("gives text back as it was: %s", async (_, body) => {
      await database.write([
        put(1, body),
        sql`insert into ${scratch} (id, body) select id, body
          from ${rows({ id: "integer", body: "text" }, [[2, body]])} fresh where true`,
      ]);
      const found = await database.read(sql`select body from ${scratch} order by id`);
      expect(found).toEqual([{ body }, { body }]);
    });

    test.each([0, -1, 1, 2 ** 31, -(2 ** 40), 2 ** 53 - 1, -(2 ** 53 - 1)])(
      "gives whole numbers back as they were: %d",
      async (size) => {
        await database.write([
          sql`insert into ${scratch} (id, size) values (1, ${size})`,
          sql`insert into ${scratch} (id, size) select id, size
            from ${rows({ id: "integer", size: "integer" }, [[2, size]])} fresh where true`,
        ]);
        const found = await database.read(sql`select size from ${scratch} order by id`);
        expect(found.map((row) => Number(row["size"]))).toEqual([size, size]);
        const same = await database.read(sql`select id from ${scratch} where size = ${size}`);
        expect(same).toHaveLength(2);
      },
    );

    test.each([0, 1, 500])("takes %d rows as one value, in order and with nulls", async (count) => {
      const given = Array.from({ length: count }, (_, id): [number, string | null] => [
        id,
        id % 3 === 0 ? null : `row ${id}`,
      ]);
      const fresh = rows({ id: "integer", body: "text" }, given);
      const [inserted] = await database.write([
        sql`insert into ${scratch} (id, body) select id, body from ${fresh} fresh where true
          ${giving(sql`id`, sql`true`)}`,
      ]);
      expect(inserted).toHaveLength(count);
      const stored = await database.read(sql`select id, body from ${scratch} order by id`);
      expect(stored).toEqual(given.map(([id, body]) => ({ id, body })));
    });

    test("gives pages what others get, however many are sent at once, and nothing after an abort", async () => {
      await database.write([sql`insert into ${scratch} (id) values (8)`]);
      const pages = Array.from({ length: 30 }, () =>
        pageReads(database).read(sql`select id from ${scratch} where id = 8`),
      );
      for (const rows of await Promise.all(pages)) expect(rows).toEqual([{ id: 8 }]);
      const wrong = pageReads(database).read(sql`select nonsense`);
      await expect(wrong).rejects.toMatchObject({ code: "internal" });
      const dropped = pageReads(database, AbortSignal.abort()).read(sql`select 1 as one`);
      await expect(dropped).rejects.toMatchObject({ code: "cancelled" });
      expect(await pageReads(database).read(sql`select 1 as one`)).toEqual([{ one: 1 }]);
    });

    test("gives cold reads what others get, however many are sent at once", async () => {
      await database.write([sql`insert into ${scratch} (id) values (7)`]);
      const cold = Array.from({ length: 30 }, () =>
        database.read(sql`select id from ${scratch}`, { cold: true }),
      );
      for (const rows of await Promise.all(cold)) expect(rows).toEqual([{ id: 7 }]);
      const wrong = database.read(sql`select nonsense`, { cold: true });
      await expect(wrong).rejects.toBeInstanceOf(FlotillaError);
      expect(await database.read(sql`select 1 as one`, { cold: true })).toEqual([{ one: 1 }]);
    });

    test("gives the store's time", async () => {
      const apartMs = store.clock ? 0 : 5_000;
      const realMs = () => store.clock?.now() ?? Date.now();
      const ask = async () => Number((await database.read(sql`select ${now} as now`))[0]!["now"]);
      const sinceMs = realMs();
      const [table] = await database.write([
        sql`insert into ${scratch} (id, size) values (1, ${now}) ${giving(sql`size`, sql`true`)}`,
      ]);
      const written = Number(table![0]!["size"]);
      expect(Number.isInteger(written)).toBe(true);
      expect(written).toBeGreaterThanOrEqual(sinceMs - apartMs);
      expect(written).toBeLessThanOrEqual(realMs() + apartMs);
      await store.clock?.advance(90_000);
      const askedMs = realMs();
      const read = await ask();
      expect(read).toBeGreaterThanOrEqual(Math.max(written, askedMs - apartMs));
      expect(read).toBeLessThanOrEqual(realMs() + apartMs);
    });
  });

  describe(`a database of its own on ${kind.name}`, () => {
    beforeEach(async () => {
      await open();
      await migrate(database);
      await empty();
    });
    afterEach(remove);

    /** Notifications may be sent only if a pod is marked idle. */
    const markPodIdle = async () => {
      const pods = table("pod");
      await database.write([sql`insert into ${pods} (pod_id, waiting) values ('pod', 1)`]);
    };

    let letters: (string | undefined)[] = [];
    let sent = 0;
    /** Commits to these channels, and to one whose notifications bring a letter where they can. */
    const commitTo = async (...channels: string[]) => {
      const letter = `the letter ${++sent}`;
      letters = [];
      const id = 1_000 + sent;
      await database.write([put(id), sql`delete from ${scratch} where id = ${id}`], {
        channels: [...channels, "last"],
        payloads: new Map([["last", letter]]),
      });
      return letter;
    };
    /** Waits until no notification comes any more. Those of earlier commits come before one of a later. */
    const settled = async (told: Readonly<Record<string, number>>) => {
      let last = "";
      const letter = await commitTo();
      await until("the last hint", () => letters.includes(letter) || letters.includes(undefined));
      await until("an end of hints", async () => {
        const before = last;
        last = JSON.stringify(told);
        await new Promise((resolve) => setTimeout(resolve, 100));
        return last === before;
      });
    };

    test("notifies after a commit, until the last listener leaves", async () => {
      if (store.hints === false) return;
      await markPodIdle();
      let hints = 0;
      const stop = database.subscribe(() => hints++);
      await database.write([put(1)], { notify: true });
      await until("a hint", () => hints > 0);
      stop();
      await eventLoopTurns(10);
      const before = hints;
      await database.write([put(2)], { notify: true });
      await database.read(sql`select 1 as one`);
      await eventLoopTurns(10);
      expect(hints).toBe(before);
    });

    test("notifies of what others have committed, and shows it", async () => {
      if (!store.again || store.hints === false) return;
      await markPodIdle();
      const other = await store.again();
      let hints = 0;
      let ofOthers = 0;
      database.subscribe((whose) => {
        hints++;
        if (whose !== "own") ofOthers++;
      });
      for (let id = 1; id <= 5; id++) {
        await database.write([put(id + 100)]);
        const before = ofOthers;
        await other.write([put(id)], { notify: true });
        // What another has committed is never taken for our own.
        await until("a hint", () => ofOthers > before);
        expect(await ids()).toContain(id);
      }
      expect(hints).toBeGreaterThanOrEqual(ofOthers);
      await other.close();
    });

    test("notifies of envelopes those at whose address they are, and no one else of our own", async () => {
      if (store.hints === false) return;
      await markPodIdle();
      const told = { alice: 0, bob: 0, work: 0 };
      database.subscribe((whose) => (whose === "own" ? 0 : told.work++));
      const stop = database.subscribe(() => told.alice++, "alice");
      database.subscribe(() => told.bob++, "bob");
      database.subscribe((_, letter) => letters.push(letter), "last");
      // A store that had to begin to listen notifies all listeners once, because it may have missed something.
      await until("hints for all", async () => {
        await commitTo("alice", "bob");
        return told.alice > 0 && told.bob > 0 && letters.length > 0;
      });
      await settled(told);
      const before = { ...told };
      await database.write([put(1)], { channels: ["alice", "somebody else"] });
      await until("a hint for alice", () => told.alice > before.alice);
      await settled(told);
      expect(told).toEqual({ ...before, alice: told.alice });
      stop();
      const stopped = { ...told };
      await database.write([put(2)], { channels: ["alice", "bob"] });
      await until("a hint for bob", () => told.bob > stopped.bob);
      await settled(told);
      expect(told).toEqual({ ...stopped, bob: told.bob });
    });

    test("notifies of the envelopes that others have sent, to as many as there are", async () => {
      if (!store.again || store.hints === false) return;
      const other = await store.again();
      let hints = 0;
      database.subscribe(() => hints++, "the last of many");
      const many = Array.from({ length: 1_000 }, (_, nth) => `somebody ${nth}`);
      for (const channels of [["the last of many"], [...many, "the last of many"]]) {
        for (let id = 0; id < 3; id++) {
          const before = hints;
          await other.write([put(id), sql`delete from ${scratch}`], { channels, lossy: true });
          expect(await until("a hint", () => hints > before)).toBe(true);
        }
      }
      await other.close();
    });

    test("commits what may be lost like everything else", async () => {
      const refused = database.write([put(1), sql`nonsense`], { lossy: true, channels: ["alice"] });
      await expect(refused).rejects.toBeInstanceOf(FlotillaError);
      const tables = await database.write(
        [put(1), sql`select count(*) as count from ${scratch}`, put(2)],
        { lossy: true, channels: ["alice"], notify: true },
      );
      expect(tables).toEqual([[], [{ count: 1 }], []]);
      expect(await ids()).toEqual([1, 2]);
    });

    test("keeps what it has acknowledged over a close", async () => {
      if (!store.again) return;
      await database.write([put(1, "kept")]);
      await database.close();
      database = await store.again();
      expect(await database.read(sql`select body from ${scratch}`)).toEqual([{ body: "kept" }]);
    });

    test("finishes what was sent before a close, and refuses what comes after with `closed`", async () => {
      const last = database.write([put(1)]);
      const closing = database.close();
      await last;
      await closing;
      await expect(database.write([put(2)])).rejects.toMatchObject({ code: "closed" });
      await expect(database.read(sql`select 1 as one`)).rejects.toMatchObject({ code: "closed" });
      expect(() => database.subscribe(() => {})()).not.toThrow();
      await database.close();
    });
  });
}
