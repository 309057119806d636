import { describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { linksOf } from "../../links/links.ts";
import { task } from "../../tasks/task.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { scheduleKeyOf } from "../fire.ts";
import { everyMs, sendMail, rows, openSchedules } from "./harness.ts";
import { schedule } from "../schedule.ts";

/** What schedules promise on every store when their times come. */
export function firingContract(kind: StoreKind): void {
  describe(`schedules on ${kind.name}, when their times come,`, () => {
    const scene = openSchedules(kind);
    const { lead, letCome, tasksOf } = scene;

    test("make a task when a time has come, from the row alone, and go on to the next", async () => {
      const options = { priority: 3, attempts: 7, tenant: "acme" };
      await scene.schedules.put(
        schedule("mail", { name: "mail", everyMs, input: { a: 1 }, options }),
      );
      await lead();
      expect(await tasksOf("mail")).toEqual([]);
      await letCome("mail", 1);
      const dueMs = (await scene.schedules.get("mail"))!.nextAtMs!;
      await lead();
      const [made, ...others] = await tasksOf("mail");
      expect(others).toEqual([]);
      expect(made).toMatchObject({
        status: "pending",
        payload: `{"a":1}`,
        priority: 3,
        tenant: "acme",
        // As every task of a tenant it is limited.
        limited: 1,
        unique_key: scheduleKeyOf("mail", dueMs),
      });
      expect(Number(made!["max_attempts"])).toBe(7);
      expect(await scene.queue.get(made!["task_id"])).toMatchObject({ scheduledAtMs: dueMs });
      expect(await scene.schedules.get("mail")).toMatchObject({
        nextAtMs: dueMs + everyMs,
        lastAtMs: dueMs,
        lastTaskId: made!["task_id"],
        state: "active",
      });
      expect(scene.fired).toMatchObject([{ scheduleId: "mail", tasks: 1, skipped: 0 }]);
      expect(scene.fired[0]!.lagMs).toBeGreaterThanOrEqual(0);
    });

    test("link their tasks to them, at their times and when they are fired by hand", async () => {
      await scene.schedules.put(sendMail());
      await lead();
      await letCome("mail", 1);
      await lead();
      const byHand = await scene.schedules.fire("mail");
      const { started } = await linksOf(scene.queue.database, "mail", "schedule");
      const ids = (await tasksOf("mail")).map((row) => row["task_id"] as string);
      expect(started.map((each) => each.taskId).toSorted()).toEqual(ids.toSorted());
      expect(started.map((each) => each.what)).toEqual(["schedule", "schedule"]);
      expect(await linksOf(scene.queue.database, byHand.taskId, "task")).toMatchObject({
        startedBy: { what: "schedule", id: "mail" },
      });
    });

    test("fire each time once, however many leaders there are", async () => {
      const ids = Array.from({ length: 8 }, (_, at) => `mail-${at}`);
      for (const id of ids) await scene.schedules.put(sendMail(id, { missed: "all" }));
      await lead();
      for (const id of ids) await letCome(id, 3);
      await Promise.all([lead(), lead(), lead()]);
      for (const id of ids) expect(await tasksOf(id)).toHaveLength(3);
      expect(scene.fired.reduce((sum, each) => sum + each.tasks, 0)).toBe(24);
    });

    test("aren't fired again by a leader that wakes up late", async () => {
      await scene.schedules.put(sendMail());
      await lead();
      await letCome("mail", 1);
      await lead({
        ...scene.queue.database,
        async write(statements) {
          await lead();
          return scene.queue.database.write(statements);
        },
      });
      expect(await tasksOf("mail")).toHaveLength(1);
      expect(scene.fired).toHaveLength(1);
    });

    test("aren't fired again after an answer was lost, nor by the same write that comes again", async () => {
      await scene.schedules.put(sendMail());
      await lead();
      await letCome("mail", 1);
      await lead({
        ...scene.queue.database,
        async write(statements) {
          await scene.queue.database.write(statements);
          await scene.queue.database.write(statements);
          throw new FlotillaError("unknown_outcome", "the answer was lost");
        },
      });
      await lead();
      expect(await tasksOf("mail")).toHaveLength(1);
      expect((await scene.schedules.get("mail"))!.lastTaskId).toBe(
        (await tasksOf("mail"))[0]!["task_id"],
      );
    });

    test("don't make the task of a time that has one, though the row was set back", async () => {
      await scene.schedules.put(sendMail());
      await lead();
      for (let times = 0; times < 2; times++) {
        await letCome("mail", 1);
        await lead();
      }
      expect(await tasksOf("mail")).toHaveLength(1);
    });

    test.each([
      ["all", 3, 0],
      ["once", 1, 2],
      ["skip", 0, 3],
    ] as const)(
      "that were missed three times with `missed` of %s make %i",
      async (missed, made, skipped) => {
        await scene.schedules.put(sendMail("mail", { missed }));
        await lead();
        await letCome("mail", 3);
        await lead();
        await lead();
        const keys = (await tasksOf("mail")).map((row) => row["unique_key"]);
        const lastMs = (await scene.schedules.get("mail"))!.nextAtMs! - everyMs;
        const times = [lastMs - 2 * everyMs, lastMs - everyMs, lastMs].slice(3 - made);
        expect(keys).toEqual(times.map((atMs) => scheduleKeyOf("mail", atMs)));
        expect(scene.fired).toMatchObject([{ tasks: made, skipped }]);
      },
    );

    test("are fired though they were written by hand, with nothing but a name and a pattern", async () => {
      await scene.queue.database.write([
        sql`insert into ${rows} (schedule_id, name, pattern, after_at)
          values ('hand', 'hand', ${"* * * * * *"}, ${scene.queue.store.clock ? scene.queue.clock.now() - 5_000 : 5_000})`,
      ]);
      await lead();
      expect(await tasksOf("hand")).toMatchObject([{ payload: "null", tenant: "default" }]);
    });

    test.each([
      ["pattern", "0 25 * * *", "hour"],
      ["zone", "Mars/Phobos", "time zone"],
      ["payload", "{", "payload isn't JSON"],
      ["options", `{"priority":1000}`, "priority"],
      ["options", `{"tenant":7}`, "tenant"],
    ])("with a broken %s show why, and the others go on", async (column, value, why) => {
      await scene.schedules.put(sendMail("bad"));
      await scene.schedules.put(sendMail("good"));
      await lead();
      const name = sql([column] as unknown as TemplateStringsArray);
      await scene.queue.database.write([
        sql`update ${rows} set ${name} = ${value} where schedule_id = 'bad'`,
      ]);
      await letCome("bad", 1);
      await letCome("good", 1);
      await lead();
      await lead();
      expect(await tasksOf("bad")).toEqual([]);
      expect(await tasksOf("good")).toHaveLength(1);
      const broken = (await scene.schedules.get("bad"))!;
      expect(broken).toMatchObject({ state: "broken", nextAtMs: null });
      expect(broken.error).toContain(why);
      expect((await scene.schedules.list()).schedules).toHaveLength(2);

      await scene.schedules.put(sendMail("bad"));
      await lead();
      expect(await scene.schedules.get("bad")).toMatchObject({ state: "active", error: null });
    });

    test("whose pattern has no time any more have ended, and stay", async () => {
      await scene.schedules.put(schedule("old", { name: "old", pattern: "0 0 0 1 1 * 2020" }));
      await lead();
      expect(await scene.schedules.get("old")).toMatchObject({ state: "ended", nextAtMs: null });
      expect(await scene.schedules.upcoming("old")).toEqual([]);
      expect(await tasksOf("old")).toEqual([]);
    });

    test("that changed between a leader's read and its write aren't fired as they were", async () => {
      await scene.schedules.put(sendMail());
      await lead();
      await letCome("mail", 1);
      await lead({
        ...scene.queue.database,
        async write(statements) {
          await scene.schedules.put(sendMail("mail", { input: "new" }));
          return scene.queue.database.write(statements);
        },
      });
      expect(await tasksOf("mail")).toEqual([]);
      await lead();
      expect(await tasksOf("mail")).toMatchObject([{ payload: `"new"` }]);
    });

    test("that were paused or removed between a leader's read and its write aren't fired", async () => {
      await scene.schedules.put(sendMail("one"));
      await scene.schedules.put(sendMail("two"));
      await lead();
      await letCome("one", 1);
      await letCome("two", 1);
      let asked = false;
      await lead({
        ...scene.queue.database,
        async write(statements) {
          if (!asked) {
            asked = true;
            await scene.schedules.pause("one");
            await scene.schedules.remove("two");
          }
          return scene.queue.database.write(statements);
        },
      });
      expect(await tasksOf("one")).toEqual([]);
      expect(await tasksOf("two")).toEqual([]);
    });

    test("are listed by the tasks that they made, newest first, with lag and outcome, page by page", async () => {
      await scene.schedules.put(sendMail("mail", { missed: "all" }));
      await scene.schedules.put(sendMail("post"));
      expect(await scene.schedules.firings("mail")).toEqual({ firings: [], next: null });
      await lead();
      await letCome("mail", 2);
      await lead();
      const { taskId: byHand } = await scene.schedules.fire("mail");
      await scene.schedules.fire("post");
      const made = (await tasksOf("mail")).toReversed();
      expect(made).toHaveLength(3);
      const ended = made[1]!["task_id"] as string;
      await scene.queue.database.write([
        sql`update ${table("task")} set status = 'failed', retry_count = 3 where task_id = ${ended}`,
      ]);
      const first = await scene.schedules.firings("mail", { limit: 2 });
      expect(first.firings).toMatchObject([
        { taskId: byHand, scheduledAtMs: null, lagMs: null, status: "pending", endedAtMs: null },
        { taskId: ended, status: "failed", failures: 3, skipped: 0 },
      ]);
      const [, failed] = first.firings;
      expect(failed!.lagMs).toBe(failed!.createdAtMs - failed!.scheduledAtMs!);
      expect(failed!.endedAtMs).toBeGreaterThan(0);
      const second = await scene.schedules.firings("mail", { limit: 2, cursor: first.next! });
      expect(second).toMatchObject({
        firings: [{ taskId: made[2]!["task_id"], skipped: null }],
        next: null,
      });
      // They outlive their schedule, as long as they are kept.
      await scene.schedules.remove("mail");
      expect((await scene.schedules.firings("mail")).firings).toHaveLength(3);
      await expect(scene.schedules.firings("none")).rejects.toMatchObject({ code: "not_found" });
    });

    test("make tasks with the same concurrency limit as others of their kind", async () => {
      const few = task("few", {
        concurrency: { limit: 1, key: (input: { to: string }) => input.to },
      });
      const input = { to: "ada" };
      const options = { concurrencyKey: "bob" };
      await scene.queue.enqueue(few, input);
      await scene.queue.enqueue(few, input, options);
      await scene.schedules.put("a", { task: few, input, everyMs });
      await scene.schedules.put("b", { task: few, input, everyMs, options });
      expect((await scene.schedules.get("a"))?.options).toEqual({ concurrencyKey: "ada" });
      expect((await scene.schedules.get("b"))?.options).toEqual(options);
      for (const id of ["a", "b"]) await scene.schedules.fire(id);
      await lead();
      for (const id of ["a", "b"]) await letCome(id, 1);
      await lead();
      const gates = (await tasksOf("few")).map((row) => [
        row["concurrency_key"],
        row["limited"],
        row["parked"],
      ]);
      const [ada, bob, ...others] = gates;
      expect(ada![0]).not.toBe(bob![0]);
      expect(ada!.slice(1)).toEqual([1, 4]);
      expect(others.filter(([group]) => group === ada![0])).toEqual([ada, ada]);
      expect(others.filter(([group]) => group === bob![0])).toEqual([bob, bob]);
    });

    test.runIf(kind.name === "Postgres")(
      "whose row another transaction holds wait, and the others are fired",
      async () => {
        await scene.schedules.put(sendMail("held"));
        await scene.schedules.put(sendMail("free"));
        await lead();
        await letCome("held", 1);
        await letCome("free", 1);
        const caller = await scene.queue.store.caller!();
        await caller.begin();
        await caller.exec(
          "update flotilla.schedule set missed = missed where schedule_id = 'held'",
        );
        await lead();
        expect(await tasksOf("held")).toEqual([]);
        expect(await tasksOf("free")).toHaveLength(1);
        await caller.exec("commit");
        await caller.close();
        await lead();
        expect(await tasksOf("held")).toHaveLength(1);
      },
    );
  });
}
