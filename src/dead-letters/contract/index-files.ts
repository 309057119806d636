import { afterEach, beforeEach, describe, expect, test } from "vitest";
import fc from "fast-check";
import { FlotillaError } from "../../base/errors.ts";
import type { Row } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { now, rows, sql, table } from "../../store/sql.ts";
import { createDeadLetters } from "../dead-letters.ts";
import { errorGroupOf } from "../fingerprint.ts";
import { createIndexSync, overlapMs } from "../index-sync.ts";
import { discardTasks, failedSince } from "../sql.ts";
import { openDeadLetters, type DeadLettersHarness } from "./harness.ts";
import { openIndex } from "../index.ts";

const tasks = table("task");

/** What a view of failed tasks promises on every store. */
export function indexFilesContract(kind: StoreKind): void {
  describe(`the view of failed tasks on ${kind.name}`, () => {
    let scene: DeadLettersHarness;
    beforeEach(async () => {
      scene = await openDeadLetters(kind);
    });
    afterEach(() => scene.close());

    test("groups them by name, code and the shape of the message", async () => {
      const { failed, queue, letters } = scene;
      const mails = await failed("mail", 7, (at) => `no such user ${at}`);
      await failed("mail", 2, `can't reach "smtp"`);
      await failed("post", 1, "no such user 8");
      const [ended] = await failed("mail", 1, "no such user 9");
      await queue.retry(ended!);

      const { groups, count, tasks: all } = await letters.groups();
      expect({ count, all }).toEqual({ count: 3, all: 10 });
      expect(groups.map(({ name, tasks: each }) => [name, each])).toEqual([
        ["mail", 7],
        ["mail", 2],
        ["post", 1],
      ]);
      const latest = mails.toSorted().at(-1)!;
      expect(groups[0]).toMatchObject({ code: "handler_failed", message: "no such user 6" });
      expect(groups[0]!.taskIds).toEqual(mails.toSorted().toReversed().slice(0, 5));
      expect(groups[0]!.firstAtMs).toBeLessThanOrEqual(groups[0]!.lastAtMs);

      const ofPost = await letters.groups({ name: "post" });
      expect(ofPost).toMatchObject({ count: 1, tasks: 1, groups: [{ name: "post" }] });
      expect((await letters.groups({ limit: 1 })).groups).toHaveLength(1);

      const { group } = groups[0]!;
      const first = await letters.list({ group, limit: 5 });
      const second = await letters.list({ group, limit: 5, cursor: first.next! });
      const listed = [...first.tasks, ...second.tasks].map((each) => each.taskId);
      expect(listed).toEqual(mails.toSorted().toReversed());
      expect(second.next).toBe(null);
      expect(first.tasks[0]).toMatchObject({ taskId: latest, group, failures: 3, deaths: 0 });
    });

    test("has the tasks of a group in the order of their ids, for lists of tasks", async () => {
      const paper = await scene.failed("a", 5, (at) => `no paper in tray ${at}`);
      const ink = await scene.failed("a", 2, "no ink");
      const { groups } = await scene.letters.groups();
      const groupOf = (taskIds: readonly string[]) =>
        groups.find(({ tasks }) => tasks === taskIds.length)!.group;
      const client = scene.queue.client({ inGroup: scene.letters.inGroup });
      const listed = async (group: string): Promise<string[]> => {
        const found: string[] = [];
        for (let cursor: string | null | undefined; cursor !== null;) {
          const page = await client.list({ group, limit: 2, ...(cursor && { cursor }) });
          found.push(...page.tasks.map(({ taskId }) => taskId));
          cursor = page.next;
        }
        return found;
      };
      // What fails last isn't always the newest.
      await scene.fail([paper[0]!], "no paper in tray 9");
      expect(await listed(groupOf(paper))).toEqual(paper.toReversed());
      expect(await listed(groupOf(ink))).toEqual(ink.toReversed());
      client.close();
    });

    test("names groups alike for every process, and by nothing that can be made from a guess", async () => {
      const { failed, queue, letters } = scene;
      await failed("mail", 2, "no such user 4");
      const { group } = (await letters.groups()).groups[0]!;
      // Another process, which has read nothing yet.
      const other = createDeadLetters({ ...queue, database: { ...queue.database } });
      expect((await other.groups()).groups).toMatchObject([{ group }]);
      other.close();
      const error = { name: "mail", code: "handler_failed", message: "no such user 4" };
      const [row] = await queue.database.read(sql`select secret from ${table("bus_secret")}`);
      expect(errorGroupOf(error, row!["secret"])).toBe(group);
      for (const secret of ["", "flotilla", "no such user 4"]) {
        expect(errorGroupOf(error, secret)).not.toBe(group);
      }
    });

    test("shows what was written by hand, whatever it holds", async () => {
      const { queue, letters } = scene;
      const errors = ["nor this", "null", "5", `{"message":5}`, `["a"]`, null];
      for (const [at, error] of errors.entries()) {
        await queue.database.write([
          sql`insert into ${tasks} (task_id, name, status, error)
            values (${`t${at}`}, 'a', 'failed', ${error})`,
        ]);
      }
      const { groups, tasks: all } = await letters.groups();
      expect(all).toBe(errors.length);
      expect(groups.map((each) => each.message)).toContain("nor this");
      expect(groups.every((each) => each.code === "internal")).toBe(true);
    });

    test("is the same row by row, from whatever point a process has followed it", async () => {
      const { queue, letters } = scene;
      const act = fc.record({
        what: fc.constantFrom("fail", "more", "retry", "complete", "discard", "delete", "pass"),
        share: fc.integer({ min: 1, max: 3 }),
        message: fc.constantFrom("no such user 7", "too late", "can't"),
      });
      const all = async () =>
        (await queue.database.read(sql`select task_id, status from ${tasks} order by task_id`)).map(
          (row) => ({ taskId: row["task_id"] as string, status: row["status"] as string }),
        );
      await fc.assert(
        fc.asyncProperty(fc.array(act, { minLength: 2, maxLength: 12 }), async (acts) => {
          await queue.database.write([sql`delete from ${tasks}`]);
          const lead = scene.lead();
          for (const { what, share, message } of acts) {
            const some = (await all()).filter((_, at) => at % share === 0);
            const ids = some.map((each) => each.taskId);
            const failed = some.filter((each) => each.status === "failed");
            if (what === "more") await scene.failed("a", share, message);
            if (what === "fail" && ids.length > 0) await scene.fail(ids, message);
            if (what === "complete") await scene.complete(ids);
            if (what === "retry") for (const { taskId } of failed) await queue.retry(taskId);
            if (what === "discard" && failed[0]) {
              await letters.discard({ taskId: failed[0].taskId });
            }
            if (what === "delete" && ids[0]) {
              await queue.database.write([sql`delete from ${tasks} where task_id = ${ids[0]}`]);
            }
            if (what === "pass") await lead.pass();
            await queue.pass(5_000);
          }
          await lead.pass();
          const other = scene.lead();
          await other.pass();
          const rowsOf = (each: typeof lead) => each.kept!.index.page({}, undefined, 1_000);
          expect(rowsOf(lead)).toEqual(await scene.fresh());
          expect(rowsOf(other)).toEqual(rowsOf(lead));
          const groups = other.kept!.index.groups({ limit: 9 });
          expect(lead.kept!.index.groups({ limit: 9 })).toEqual(groups);
          lead.rest();
          other.rest();
        }),
        { numRuns: 8 },
      );
    });

    test("finds what was committed late, and what a clock that was set back hides", async () => {
      const { queue, failed } = scene;
      const index = openIndex();
      const following = createIndexSync(queue.database, index);
      await failed("a", 2, "boom");
      expect(await following.read(1)).toBe(true);
      const insert = (taskId: string, byMs: number) =>
        queue.database.write([
          sql`insert into ${tasks} (task_id, name, status, last_update)
            values (${taskId}, 'a', 'failed', ${now} + ${byMs})`,
        ]);
      await insert("late", -overlapMs + 5_000);
      await following.read(1);
      expect(index.count({ taskId: "late" })).toBe(1);

      // A time to come must not make it miss what happens until then.
      await insert("ahead", 100 * overlapMs);
      await following.read(1);
      await insert("before that", 0);
      await following.read(1);
      expect(index.count({ taskId: "before that" })).toBe(1);

      // A look that was made by a clock that was ahead is no reason to wait for that hour to come.
      const [clockMs] = await queue.database.read(sql`select ${now} as now`);
      const ahead = failedSince(Number(clockMs!["now"]) + 10 * overlapMs, 1_000, 9);
      const seen = (await queue.database.read(ahead)).map((row) => row["task_id"]);
      expect(seen).toContain("before that");

      await insert("long ago", -10 * overlapMs);
      await following.read(1);
      expect(index.count({ taskId: "long ago" })).toBe(0);
      await following.walk();
      expect(index.count({ taskId: "long ago" })).toBe(1);
      index.close();
    });

    test("gives tasks up for good, with their errors, and leaves the others", async () => {
      const { queue, letters, failed } = scene;
      const [one, ...more] = await failed("a", 3, "boom");
      const [other] = await failed("b", 1, "boom");
      const { taskId: runs } = await queue.enqueue("a", 1);
      expect(await letters.discard({ taskId: one! })).toEqual({ discarded: 1 });
      await expect(letters.discard({ taskId: one! })).rejects.toMatchObject({ code: "conflict" });
      await expect(letters.discard({ taskId: runs })).rejects.toMatchObject({ code: "conflict" });
      await expect(letters.discard({ taskId: "x" })).rejects.toMatchObject({ code: "not_found" });

      const told: number[] = [];
      const onProgress = (discarded: number) => told.push(discarded);
      expect(await letters.discard({ name: "a" }, { onProgress })).toEqual({ discarded: 2 });
      expect(told).toEqual([2]);
      expect(await letters.discard({ name: "a" })).toEqual({ discarded: 0 });
      for (const taskId of [one!, ...more]) {
        expect(await queue.get(taskId)).toMatchObject({
          status: "cancelled",
          error: { message: "boom" },
        });
        expect((await queue.events(taskId)).map((each) => each.type)).toEqual(["discarded"]);
      }
      expect(await queue.get(other!)).toMatchObject({ status: "failed" });
      // What was given up by two at once is given up once.
      const [seen] = await scene.fresh();
      for (const given of [1, 0]) {
        const [, , [row]] = (await queue.database.write(
          discardTasks([seen!], `write-${given}`),
        )) as [unknown, unknown, Row[]];
        expect(Number(row!["discarded"])).toBe(given);
      }
      expect(await queue.events(other!)).toHaveLength(1);
      expect(await queue.get(runs)).toMatchObject({ status: "pending" });
    });

    test("reports how many were given up where the store refuses the rest", async () => {
      const { queue } = scene;
      await queue.database.write([
        sql`insert into ${tasks} (task_id, name, status, error) select task_id, 'a', 'failed', '{}'
          from ${rows(
            { task_id: "text" },
            Array.from({ length: 251 }, (_, at) => [`t${at}`]),
          )} fresh where true`,
      ]);
      let refusing = true;
      let writes = 0;
      const letters = createDeadLetters({
        ...queue,
        database: {
          ...queue.database,
          async write(statements, options) {
            const isRefused = refusing && writes++ > 0;
            if (isRefused) throw new FlotillaError("store_full", "there is no room");
            return queue.database.write(statements, options);
          },
        },
      });
      await expect(letters.discard({ all: true })).rejects.toMatchObject({
        code: "unknown_outcome",
        message: expect.stringContaining("there is no room"),
        details: { discarded: 250 },
      });
      await expect(letters.discard({ all: true })).rejects.toMatchObject({ code: "store_full" });
      refusing = false;
      expect(await letters.discard({ all: true })).toEqual({ discarded: 1 });
      letters.close();
    });
  });
}
