import { copyFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../base/errors.ts";
import { beat } from "../pods/sql.ts";
import { temporaryDatabase, temporaryFile } from "../store/contract/kinds.ts";
import type { Database } from "../store/database.ts";
import { migrate } from "../store/migrate.ts";
import { markId } from "../store/promotion-mark.ts";
import { migrations } from "../store/schema.ts";
import { sql, type Statement, table } from "../store/sql.ts";
import { openReadOnly } from "../store/sqlite/inspect.ts";
import { allRows, fillFile, openFile, openTarget, partsOf } from "./contract/harness.ts";
import { planPromotion, promote, type PromoteParts, undoPromotion } from "./promote.ts";
import { readSingles } from "./sql.ts";
import { openStores } from "./stores.ts";
import { movedTables } from "./tables.ts";

const tasks = 1_100;
const schema = "flotilla";
let server: Awaited<ReturnType<typeof temporaryDatabase>>;
let files: ReturnType<typeof temporaryFile>;
let target: Database;
let source: Database;
let parts: PromoteParts;
let path: string;
let copies = 0;

beforeAll(async () => {
  server = await temporaryDatabase();
  target = await openTarget(`${server.url}?connections=1`);
  files = temporaryFile("filled.db");
  await fillFile(files.path, { tasks });
});
afterAll(async () => {
  await target.close();
  await server.remove();
  await files.remove();
});
beforeEach(() => {
  path = `${files.path}-${++copies}`;
  copyFileSync(files.path, path);
  source = openFile(path);
  parts = partsOf(source, target);
});
afterEach(() => source.close());

const dropTables = () => target.write([sql`drop schema if exists flotilla cascade`]);
/** Takes everything back but the tables, which take long to make. */
const emptyTarget = async () => {
  await migrate(target).catch(() => {});
  await target.write([
    ...[...movedTables, "promotion" as const].map((name) => sql`delete from ${table(name)}`),
    sql`delete from ${table("migration")} where id > ${migrations.length}`,
  ]);
};
const opening = (database: Database) =>
  migrate(database).then(
    () => "opens",
    (error: Error) => error.message,
  );
const inTarget = async (statement: Statement) => target.read(statement);

describe("a promotion", () => {
  beforeEach(dropTables);

  test("moves every column of every table, and the source says where it went", async () => {
    const promoted = await promote(parts);
    expect(promoted).toMatchObject({ already: false, logs: 8 });
    expect(Object.keys(promoted.tables)).toEqual(movedTables);
    expect(promoted.tables).toMatchObject({ task: tasks + 2, message: 2, session_log: 8 });
    expect(Object.entries(promoted.tables).filter(([, rows]) => rows < 1)).toEqual([]);

    // Sessions are spread over other logs; the test after this one says how.
    const { session: _, session_log: __, ...before } = await allRows(source, source);
    expect(await allRows(target, source)).toMatchObject(before);
    expect(await inTarget(readSingles())).toEqual(await source.read(readSingles()));
    const made = sql`select cast(applied_at as text) as at from ${table("migration")} where id = 1`;
    expect(await inTarget(made)).toEqual(await source.read(made));

    expect(await opening(target)).toBe("opens");
    expect(await opening(source)).toBe(
      "the data of this store was moved to postgres://…@host/app by `flotilla promote`: start with that store",
    );
    // Nor does a release start there that knows of no promotion, or one of its pods that is still up write.
    const needed = sql`select max(needs) as needs from ${table("migration")}`;
    expect(Number((await source.read(needed))[0]!["needs"])).toBe(markId);
    const late = sql`insert into ${table("task")} (name) values ('late')`;
    await expect(source.write([late])).rejects.toMatchObject({ code: "store_read_only" });
    expect(await promote(parts)).toMatchObject({ already: true, rows: promoted.rows });
    await expect(undoPromotion(parts)).rejects.toThrow("it can't be undone");
    // No sequence has to go on after the rows, and every type is one that both databases have.
    const sequences = sql`
      select 1 from information_schema.sequences where sequence_schema = ${schema}`;
    expect(await inTarget(sequences)).toEqual([]);
    const types = await inTarget(sql`
      select distinct data_type from information_schema.columns
      where table_schema = ${schema} order by data_type`);
    expect(types.map((row) => row["data_type"])).toEqual(["bigint", "integer", "text"]);
  });

  test("moves a store that an older release has made, and sessions of a store to more logs", async () => {
    const newTables = [
      "promotion",
      "log_watermark",
      "archive_aside",
      "task_alias",
      "log_place",
      "change",
      "change_state",
      "session_fork",
      "file",
      "file_part",
      "file_remnant",
      "file_reference",
      "file_count",
    ] as const;
    const session = table("session");
    await source.write([
      sql`delete from ${table("migration")} where id >= 7`,
      ...newTables.map((name) => sql`drop table ${table(name)}`),
      sql`alter table ${session} drop column turn_epoch`,
      sql`alter table ${session} drop column turn_agent`,
    ]);
    await source.write(
      ["a", "b", "c", "d", "e", "f"].map(
        (sessionId) => sql`
          insert into ${table("session")} (session_id, log_id, last_offset, header, created_at, active_at)
          values (${sessionId}, 0, 1, '{}', 1, 1)`,
      ),
    );
    expect(await planPromotion(parts)).toMatchObject({
      schema: { from: 6, to: migrations.length },
    });
    const promoted = await promote({ ...parts, logs: 4 });
    expect(promoted).toMatchObject({ logs: 4, tables: { task: tasks + 2, task_alias: 0 } });

    const heads = sql`
      select incarnation, cast(term as text) as term, cast(log_offset as text) as log_offset,
        record_id, owner, host
      from ${table("session_log")}`;
    const [old] = await source.read(heads);
    expect(old!["owner"]).not.toBeNull();
    const free = { ...old, owner: null, host: null };
    expect(await inTarget(heads)).toEqual(Array.from({ length: 4 }, () => free));
    const logs = await inTarget(sql`select distinct log_id from ${table("session")}`);
    expect(logs.length).toBeGreaterThan(1);
  });

  test("says before what it would move, and changes nothing", async () => {
    const readOnly = openReadOnly(path);
    const plan = await planPromotion({ ...parts, source: readOnly });
    await readOnly.close();
    expect(plan).toMatchObject({
      tables: { task: tasks + 2, session_log: 1 },
      logs: { from: 1, to: 8 },
      pods: [],
      copied: 0,
    });
    expect(await opening(source)).toBe("opens");
    const made = sql`select 1 from information_schema.schemata where schema_name = ${schema}`;
    expect(await inTarget(made)).toEqual([]);
  });
});

/** A process that is killed with its `at`-th call to either store, which may have been carried out. */
function dying(at: number, isDone: boolean): { parts: PromoteParts; calls: () => number } {
  let calls = 0;
  const through = (database: Database): Database => {
    const call = async <Answer>(ask: () => Promise<Answer>): Promise<Answer> => {
      const own = ++calls;
      if (own > at || (own === at && !isDone)) throw new Error("killed");
      const answer = await ask();
      if (own === at) throw new Error("killed");
      return answer;
    };
    return {
      ...database,
      read: (...given) => call(() => database.read(...given)),
      write: (...given) => call(() => database.write(...given)),
    };
  };
  const own = { ...parts, source: through(source), target: through(target) };
  return { parts: own, calls: () => calls };
}

/** A process that is killed right after its `at`-th batch is stored. */
function dyingInCopy(at: number): PromoteParts {
  let batches = 0;
  const write: Database["write"] = async (statements, options) => {
    if (batches >= at) throw new Error("killed");
    const isBatch = statements.length === 2;
    const answer = await target.write(statements, options);
    if (isBatch && ++batches === at) throw new Error("killed");
    return answer;
  };
  return { ...parts, target: { ...target, write } };
}

describe("a promotion that is killed", () => {
  const points = 20;
  // The first ones make the tables, so that they have other calls.
  const pointsOfMaking = 3;
  const lastPoints = 4;
  const calls = new Map<boolean, number>();

  const freshSource = async () => {
    await source.close();
    copyFileSync(files.path, path);
    source = openFile(path);
    parts = partsOf(source, target);
  };
  const callsInAll = async (isMaking: boolean, empty: () => Promise<unknown>): Promise<number> => {
    await empty();
    if (!calls.has(isMaking)) {
      const whole = dying(Infinity, true);
      await promote(whole.parts);
      calls.set(isMaking, whole.calls());
      await empty();
      await freshSource();
    }
    return calls.get(isMaking)!;
  };

  test.each(Array.from({ length: points }, (_, point) => point))(
    "at its point %i goes on when it is started again, and there are never two stores",
    async (point) => {
      const isMaking = point < pointsOfMaking;
      const all = await callsInAll(isMaking, isMaking ? dropTables : emptyTarget);
      // The last ones are right after each of the last calls, which close one store and open the other.
      const left = points - 1 - point;
      const isLast = left < lastPoints;
      const at = isLast ? all - left : 1 + Math.floor((all * point) / points);
      await expect(promote(dying(at, isLast || point % 2 === 1).parts)).rejects.toThrow("killed");
      const isUsed = (await opening(source)) === "opens" && (await opening(target)) === "opens";
      const copied = isUsed ? await inTarget(sql`select 1 from ${table("task")}`) : [];
      expect(copied).toEqual([]);

      const { rows } = await promote(parts);
      expect(rows).toBeGreaterThan(tasks);
      expect(await opening(target)).toBe("opens");
      expect(await opening(source)).toContain("was moved to");
      const ids = sql`select task_id, payload from ${table("task")} order by task_id`;
      expect(await inTarget(ids)).toEqual(await source.read(ids));
    },
  );
});

describe("a promotion is refused", () => {
  beforeEach(emptyTarget);
  const nothingChanged = async () => {
    expect(await opening(source)).toBe("opens");
    expect(await opening(target)).toBe("opens");
  };

  test("while a pod beats on the source, or is waited for until it has stopped", async () => {
    await source.write([beat("pod-1", "{}", 0)]);
    const own = { ...parts, isGone: () => false };
    await expect(promote(own)).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringMatching(
        /^pods are up on the source \(pod-1\): stop them, or give --wait/,
      ),
    });
    await nothingChanged();
    expect((await planPromotion(own)).pods).toEqual(["pod-1"]);
    const seen: unknown[] = [];
    const waited = promote({
      ...own,
      wait: true,
      onProgress(progress) {
        if (progress.phase !== "waiting") return;
        seen.push(progress.pods);
        void source.write([sql`update ${table("pod")} set status = 'down'`]);
      },
    });
    expect(await waited).toMatchObject({ already: false });
    expect(seen).toEqual([["pod-1"]]);
  });

  test("by the fence, where a pod comes up in the last moment: it gets the source back", async () => {
    let writes = 0;
    const late: Database = {
      ...source,
      async write(statements) {
        if (writes++ === 0) await source.write([beat("pod-1", "{}", 0)]);
        return source.write(statements);
      },
    };
    await expect(promote({ ...parts, source: late, isGone: () => false })).rejects.toThrow(
      "pods are up on the source",
    );
    expect(await opening(source)).toBe("opens");
    await source.write([beat("pod-1", "{}", 0)]);
  });

  test.each(["before its fence", "with a pod that was up"] as const)(
    "for a process that was paused %s, while another one has finished: the source stays where it went",
    async (when) => {
      await emptyTarget();
      const isWithPod = when === "with a pod that was up";
      let writes = 0;
      let looks = 0;
      const finish = async () => {
        await source.write([sql`update ${table("pod")} set last_beat = 0`]).catch(() => {});
        await promote(parts);
      };
      const paused: Database = {
        ...source,
        async read(statement, options) {
          const found = await source.read(statement, options);
          // It has fenced the source, and sees the pod there.
          if (isWithPod && writes === 1 && ++looks === 1) await finish();
          return found;
        },
        async write(statements) {
          if (writes++ === 0) {
            if (isWithPod) await source.write([beat("pod-1", "{}", 0)]);
            else await finish();
          }
          return source.write(statements);
        },
      };
      await expect(
        promote({ ...parts, source: paused, isGone: (host) => host === parts.host }),
      ).rejects.toMatchObject({ code: "conflict" });
      expect(await opening(source)).toContain("was moved to");
      await expect(
        source.write([sql`insert into ${table("task")} (task_id, name) values ('later', 'mail')`]),
      ).rejects.toMatchObject({ code: "store_read_only" });
      expect(await opening(target)).toBe("opens");
    },
  );

  test("where the target isn't empty, or pods are up there", async () => {
    await target.write([sql`insert into ${table("task")} (name) values ('mine')`]);
    await expect(promote(parts)).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringContaining("its table task has rows. Name an empty database"),
    });
    await expect(planPromotion(parts)).rejects.toThrow("isn't empty");
    await emptyTarget();
    await target.write([beat("pod-1", "{}", 0)]);
    await expect(promote({ ...parts, isGone: () => false })).rejects.toThrow(
      "pods are up on the target (pod-1): stop them;",
    );
    await nothingChanged();
    await target.write([sql`delete from ${table("pod")}`]);
  });

  test("where the target has a newer schema, or the source has none", async () => {
    const newer = sql`
      insert into ${table("migration")} (id, name, needs, applied_at) values (99, 'later', 1, 1)`;
    await target.write([newer]);
    await expect(promote(parts)).rejects.toMatchObject({
      code: "store_newer",
      message: expect.stringContaining("the target has schema 99"),
    });
    await emptyTarget();
    const empty = openFile(`${path}-empty`, { create: true });
    await expect(promote({ ...parts, source: empty })).rejects.toThrow("nothing to move");
    await empty.close();
    await nothingChanged();
  });

  test("where the stores aren't a SQLite file and Postgres", async () => {
    const file = `sqlite:${path}`;
    const refusal = (from: string, to: string) =>
      openStores({ from, to }, { readOnly: true }).then(
        () => "none",
        (error: FlotillaError) => error.message,
      );
    expect(await refusal(file, file)).toMatch(/^the target is the source itself: name a database/);
    expect(await refusal(file, "sqlite:other.db")).toMatch(/^a store is promoted to Postgres, and/);
    expect(await refusal(server.url, server.url)).toMatch(
      /^the target is the source itself: name the/,
    );
    expect(await refusal("postgres://other/app", server.url)).toMatch(/^only a SQLite store/);
    expect(await refusal("sqlite:missing.db", server.url)).toMatch(/^there is no database file/);
    expect(await refusal(file, "redis://host")).toMatch(/isn't supported/);
  });

  test("with fewer logs than there are, or others than it has begun with", async () => {
    await source.write([
      sql`insert into ${table("session_log")} (log_id, incarnation, record_id) values (1, 'x', '')`,
    ]);
    await expect(promote({ ...parts, logs: 1 })).rejects.toThrow(
      "the store has 2 logs, and --logs",
    );
    await expect(promote(dyingInCopy(4))).rejects.toThrow("killed");
    await expect(promote({ ...parts, logs: 16 })).rejects.toThrow("has begun with 8 logs");
    await undoPromotion(parts);
    await source.write([sql`delete from ${table("session_log")}`]);
    await expect(promote({ ...parts, logs: 4 })).rejects.toThrow("has no logs in the database");
    await nothingChanged();
  });

  test.each([
    ["a NUL in a text", sql`payload = '"a' || char(0) || '"'`, "payload"],
    ["bytes in place of a text", sql`result = x'00ff'`, "result"],
    ["no number in place of one", sql`priority = 'high'`, "priority"],
    ["a number that is too wide", sql`priority = 3000000000`, "priority"],
  ])("for a row that Postgres can't hold: %s", async (_, change, faulty) => {
    await source.write([sql`update ${table("task")} set ${change} where task_id = 'task-00700'`]);
    await expect(promote(parts)).rejects.toMatchObject({
      code: "payload_not_storable",
      message: expect.stringContaining(
        `a row of the table task, with the key ["task-00700"]: its column ${faulty} has`,
      ),
    });
    await nothingChanged();
  });

  test("for a row that only the server refuses, by its key and without its content", async () => {
    await target.write([
      sql`alter table ${table("task")} add constraint picky check (payload <> '{"n":700}')`,
    ]);
    const error = (await promote(parts).catch((thrown: unknown) => thrown)) as FlotillaError;
    expect(error).toBeInstanceOf(FlotillaError);
    expect(error.message).toContain(`with the key ["task-00700"]: it breaks a rule of the table`);
    expect(error.message).not.toContain(`"n"`);
    expect(await opening(source)).toContain("run the same `flotilla promote` again, or give it up");
    expect(await opening(target)).toContain(
      "isn't whole yet: run the same `flotilla promote` again",
    );
    await target.write([sql`alter table ${table("task")} drop constraint picky`]);
    expect(await promote(parts)).toMatchObject({ already: false, tables: { task: tasks + 2 } });
  });

  test("for a second process at once, which may go on when the first was silent for long", async () => {
    await expect(promote(dyingInCopy(4))).rejects.toThrow("killed");
    const other = { ...parts, host: "another process", isGone: () => false };
    await expect(promote(other)).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringMatching(/is at work on this target: let it finish, .* in \d\d? s$/),
    });
    await target.write([sql`update ${table("promotion")} set held_until = 1`]);
    expect(await promote(other)).toMatchObject({ already: false });
  });

  test("for a process that another one has taken over from: it stores nothing more", async () => {
    let batches = 0;
    const slow: Database = {
      ...target,
      async write(statements, options) {
        if (statements.length === 2 && ++batches === 3) {
          await promote(parts);
          // The store is in use by then, and what is deleted there stays so.
          await target.write([sql`delete from ${table(movedTables[2]!)}`]);
        }
        return target.write(statements, options);
      },
    };
    await expect(promote({ ...parts, target: slow })).rejects.toThrow(
      "has taken this promotion over",
    );
    expect(await inTarget(sql`select 1 from ${table(movedTables[2]!)}`)).toEqual([]);
    expect(await opening(target)).toBe("opens");
    expect(await opening(source)).toContain("was moved to");
  });

  test("for another target or another source than it has begun with", async () => {
    await expect(promote(dyingInCopy(4))).rejects.toThrow("killed");
    const other = openFile(`${path}-other`, { create: true });
    await migrate(other);
    await expect(promote({ ...parts, source: other })).rejects.toThrow(
      "the target is being filled from sqlite:app.db: go on with that one",
    );
    await other.close();
    await target.write([sql`update ${table("promotion")} set promotion_id = 'another'`]);
    await expect(promote(parts)).rejects.toThrow(
      "the source is being moved to postgres://…@host/app",
    );
  });

  test("for a second target at once: the source is claimed by the first, and the second is free again", async () => {
    const other = await openTarget(`${server.url}?connections=1&schema=other`);
    let begun = 0;
    // It has looked at a source that isn't claimed, and marks its own target next.
    const second: Database = {
      ...other,
      async write(statements, options) {
        if (++begun === 1) await expect(promote(dyingInCopy(4))).rejects.toThrow("killed");
        return other.write(statements, options);
      },
    };
    const toOther = { ...parts, to: "postgres://…@host/other" };
    await expect(promote({ ...toOther, target: second })).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringContaining("has gone on with this source meanwhile"),
    });
    expect(await opening(other)).toBe("opens");
    expect(await other.read(sql`select 1 from ${table("task")}`)).toEqual([]);
    await expect(promote({ ...toOther, target: other })).rejects.toThrow(
      "the source is being moved to postgres://…@host/app",
    );
    expect(await promote(parts)).toMatchObject({ already: false, tables: { task: tasks + 2 } });
    expect(await opening(source)).toContain("was moved to postgres://…@host/app");
    await other.write([sql`drop schema other cascade`]);
    await other.close();
  });

  test("for a source that was claimed for another target by the time that it would say where its data went", async () => {
    const mark = { promotionId: "another", other: "postgres://…@host/other", state: "moving" };
    let isFinished = false;
    const late: Database = {
      ...target,
      async write(statements, options) {
        const text = statements.flatMap(({ strings }) => strings).join("");
        const written = await target.write(statements, options);
        if (text.includes("state = 'done', held_until") && !isFinished) {
          isFinished = true;
          await source.write([
            sql`update ${table("migration")} set name = ${JSON.stringify(mark)} where id = ${markId}`,
          ]);
        }
        return written;
      },
    };
    await expect(promote({ ...parts, target: late })).rejects.toMatchObject({ code: "conflict" });
    expect(isFinished).toBe(true);
    expect(await opening(source)).toContain("is being moved to postgres://…@host/other");
  });

  test("by its source, which an --undo with another target has given back in the last moment", async () => {
    let isFinished = false;
    const late: Database = {
      ...target,
      async write(statements, options) {
        const text = statements.flatMap(({ strings }) => strings).join("");
        if (text.includes("state = 'done', held_until") && !isFinished) {
          isFinished = true;
          const other = openFile(`${path}-other`, { create: true });
          await undoPromotion({ ...parts, target: other });
          await other.close();
        }
        return target.write(statements, options);
      },
    };
    await promote({ ...parts, target: late });
    expect(isFinished).toBe(true);
    expect(await opening(source)).toContain("was moved to postgres://…@host/app");
    const task = sql`insert into ${table("task")} (task_id, name) values ('later', 'mail')`;
    await expect(source.write([task])).rejects.toMatchObject({ code: "store_read_only" });
  });

  test("at the end, where the target differs", async () => {
    let compared = false;
    const changed: Database = {
      ...target,
      async read(statement) {
        if (!compared && statement.strings.join().includes("string_agg")) {
          compared = true;
          await target.write([
            sql`update ${table("task")} set payload = '1' where task_id = 'task-01050'`,
          ]);
        }
        return target.read(statement);
      },
    };
    await expect(promote({ ...parts, target: changed })).rejects.toMatchObject({
      code: "store_corrupt",
      message: expect.stringContaining(
        "the table task of the target differs from the source after",
      ),
    });
    expect(compared).toBe(true);
    expect(await opening(target)).toContain("isn't whole yet");
  });

  test("by a full disk, and goes on when there is room", async () => {
    let batches = 0;
    const full: Database = {
      ...target,
      async write(statements, options) {
        if (statements.length === 2 && ++batches === 5) {
          throw new FlotillaError("store_full", "the database: its disk is full");
        }
        return target.write(statements, options);
      },
    };
    await expect(promote({ ...parts, target: full })).rejects.toMatchObject({ code: "store_full" });
    expect(await opening(target)).toContain("isn't whole yet");
    expect((await planPromotion(parts)).copied).toBeGreaterThan(0);
    expect(await promote(parts)).toMatchObject({ already: false });
  });
});

describe("a promotion that is given up", () => {
  test("leaves both stores as they were, and the next one moves what has changed since", async () => {
    await emptyTarget();
    await expect(promote(dyingInCopy(4))).rejects.toThrow("killed");
    const task = sql`insert into ${table("task")} (task_id, name) values ('later', 'mail')`;
    await expect(source.write([task])).rejects.toMatchObject({
      code: "store_read_only",
      message: expect.stringContaining("its data is moved to another store"),
    });
    expect((await undoPromotion(parts)).rows).toBeGreaterThan(0);
    expect(await opening(source)).toBe("opens");
    expect(await opening(target)).toBe("opens");
    expect(await inTarget(sql`select 1 from ${table("task")}`)).toEqual([]);
    await source.write([task]);
    expect(await promote(parts)).toMatchObject({ tables: { task: tasks + 3 } });
  });

  test("is given up whole, though the process was killed while it emptied the target", async () => {
    await emptyTarget();
    await expect(promote(dyingInCopy(4))).rejects.toThrow("killed");
    let deletes = 0;
    const dying: Database = {
      ...target,
      async write(statements, options) {
        const isDelete = statements.some(({ strings }) => strings.join().includes("delete from"));
        if (isDelete && ++deletes > 1) throw new Error("killed");
        return target.write(statements, options);
      },
    };
    await expect(undoPromotion({ ...parts, target: dying })).rejects.toThrow("killed");
    expect((await undoPromotion(parts)).rows).toBeGreaterThan(0);
    const filled = Object.entries(await allRows(target, source)).filter(
      ([, found]) => (found as unknown[]).length > 0,
    );
    expect(filled).toEqual([]);
    const { rows, tables } = await promote(parts);
    expect(tables).toMatchObject({ task: tasks + 2 });
    expect(rows).toBe(Object.values(tables).reduce((sum, each) => sum + each, 0));
  });

  test("is given up whole, though the server refused a row of the very first ones", async () => {
    await emptyTarget();
    const agents = table(movedTables[0]!);
    await target.write([
      sql`alter table ${agents} add constraint picky check (name not like 'name 1%') not valid`,
    ]);
    await expect(promote(parts)).rejects.toThrow("it breaks a rule of the table");
    await undoPromotion(parts);
    await target.write([sql`alter table ${agents} drop constraint picky`]);
    expect(await inTarget(sql`select 1 from ${agents}`)).toEqual([]);
    expect(await promote(parts)).toMatchObject({ already: false });
  });

  test.each(["moving", "moved"])(
    "is emptied where its source is %s to another target, and the source is left alone",
    async (state) => {
      await emptyTarget();
      await expect(promote(dyingInCopy(4))).rejects.toThrow("killed");
      const mark = { promotionId: "another", other: "postgres://…@host/other", state };
      await source.write([
        sql`update ${table("migration")} set name = ${JSON.stringify(mark)} where id = ${markId}`,
      ]);
      expect((await undoPromotion(parts)).rows).toBeGreaterThan(0);
      expect(await opening(target)).toBe("opens");
      expect(await inTarget(sql`select 1 from ${table("task")}`)).toEqual([]);
      expect(await opening(source)).toContain("moved to postgres://…@host/other");
    },
  );

  test("with another target leaves rows in the first, which the next one there replaces", async () => {
    await emptyTarget();
    await expect(promote(dyingInCopy(4))).rejects.toThrow("killed");
    const other = openFile(`${path}-other`, { create: true });
    await undoPromotion({ ...parts, target: other });
    await other.close();
    expect(await opening(source)).toBe("opens");
    await source.write([sql`delete from ${table("agent")}`]);
    expect(await promote(parts)).toMatchObject({ tables: { agent: 0, task: tasks + 2 } });
    expect(await inTarget(sql`select 1 from ${table("agent")}`)).toEqual([]);
  });
});
