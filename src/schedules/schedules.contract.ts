import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../base/errors.ts";
import { openQueue, type QueueUnderTest, rowsOf } from "../queue/queue.contract.ts";
import { task } from "../queue/task.ts";
import type { Database } from "../store/database.ts";
import type { StoreKind } from "../store/database.contract.ts";
import { sql, table } from "../store/sql.ts";
import { createSchedules, putAll, type Schedules } from "./client.ts";
import { createFiring, type Fired, keyOf } from "./fire.ts";
import { schedule } from "./schedule.ts";

// So long that no test sees a time come by itself.
const everyMs = 10 * 24 * 60 * 60_000;
const rows = table("schedule");

/** What schedules promise on every store. */
export function schedulesContract(kind: StoreKind): void {
  describe(`schedules on ${kind.name}`, () => {
    let queue: QueueUnderTest;
    let schedules: Schedules;
    let fired: Fired[];
    beforeEach(async () => {
      queue = await openQueue(kind);
      await queue.database.write([sql`delete from ${rows}`]);
      schedules = createSchedules(queue);
      fired = [];
    });
    afterEach(() => queue.close());

    /** A leader that does one pass. */
    const lead = async (database: Database = queue.database): Promise<void> => {
      const firing = createFiring({
        podId: "leader",
        database,
        clock: queue.clock,
        ids: queue.ids,
        everyMs: 1_000,
        leads: () => true,
        onFired: (each) => fired.push(each),
      });
      await firing.pass();
      await firing.stop();
    };
    /** Lets so many of a schedule's times have come by. */
    const letCome = (scheduleId: string, times: number) =>
      queue.database.write([
        sql`update ${rows} set next_at = next_at - ${times * everyMs},
          after_at = after_at - ${times * everyMs} where schedule_id = ${scheduleId}`,
      ]);
    const tasksOf = async (name: string) =>
      (await queue.database.read(
        sql`select * from ${rowsOf} where name = ${name} order by task_id`,
      ))!;
    const mail = (id = "mail", more: { missed?: "skip" | "once" | "all"; input?: unknown } = {}) =>
      schedule(id, { name: id, everyMs, input: { to: "ada" }, ...more });

    test("make a task when a time has come, from the row alone, and go on to the next", async () => {
      const options = { priority: 3, attempts: 7, tenant: "acme" };
      await schedules.put(schedule("mail", { name: "mail", everyMs, input: { a: 1 }, options }));
      await lead();
      expect(await tasksOf("mail")).toEqual([]);
      await letCome("mail", 1);
      const dueMs = (await schedules.get("mail"))!.nextAtMs!;
      await lead();
      const [made, ...others] = await tasksOf("mail");
      expect(others).toEqual([]);
      expect(made).toMatchObject({
        status: "pending",
        payload: `{"a":1}`,
        priority: 3,
        tenant: "acme",
        // As every task of a tenant it goes through the gate.
        gated: 1,
        unique_key: keyOf("mail", dueMs),
      });
      expect(Number(made!["max_attempts"])).toBe(7);
      expect(await queue.get(made!["task_id"])).toMatchObject({ scheduledAtMs: dueMs });
      expect(await schedules.get("mail")).toMatchObject({
        nextAtMs: dueMs + everyMs,
        lastAtMs: dueMs,
        lastTaskId: made!["task_id"],
        state: "active",
      });
      expect(fired).toMatchObject([{ scheduleId: "mail", tasks: 1, skipped: 0 }]);
      expect(fired[0]!.lagMs).toBeGreaterThanOrEqual(0);
    });

    test("fire each time once, however many leaders there are", async () => {
      const ids = Array.from({ length: 8 }, (_, at) => `mail-${at}`);
      for (const id of ids) await schedules.put(mail(id, { missed: "all" }));
      await lead();
      for (const id of ids) await letCome(id, 3);
      await Promise.all([lead(), lead(), lead()]);
      for (const id of ids) expect(await tasksOf(id)).toHaveLength(3);
      expect(fired.reduce((sum, each) => sum + each.tasks, 0)).toBe(24);
    });

    test("aren't fired again by a leader that wakes up late", async () => {
      await schedules.put(mail());
      await lead();
      await letCome("mail", 1);
      await lead({
        ...queue.database,
        async write(statements) {
          await lead();
          return queue.database.write(statements);
        },
      });
      expect(await tasksOf("mail")).toHaveLength(1);
      expect(fired).toHaveLength(1);
    });

    test("aren't fired again after an answer was lost, nor by the same write that comes again", async () => {
      await schedules.put(mail());
      await lead();
      await letCome("mail", 1);
      await lead({
        ...queue.database,
        async write(statements) {
          await queue.database.write(statements);
          await queue.database.write(statements);
          throw new FlotillaError("unknown_outcome", "the answer was lost");
        },
      });
      await lead();
      expect(await tasksOf("mail")).toHaveLength(1);
      expect((await schedules.get("mail"))!.lastTaskId).toBe(
        (await tasksOf("mail"))[0]!["task_id"],
      );
    });

    test("don't make the task of a time that has one, though the row was set back", async () => {
      await schedules.put(mail());
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
      "that were missed three times and say %s make %i",
      async (missed, made, skipped) => {
        await schedules.put(mail("mail", { missed }));
        await lead();
        await letCome("mail", 3);
        await lead();
        await lead();
        const keys = (await tasksOf("mail")).map((row) => row["unique_key"]);
        const lastMs = (await schedules.get("mail"))!.nextAtMs! - everyMs;
        const times = [lastMs - 2 * everyMs, lastMs - everyMs, lastMs].slice(3 - made);
        expect(keys).toEqual(times.map((atMs) => keyOf("mail", atMs)));
        expect(fired).toMatchObject([{ tasks: made, skipped }]);
      },
    );

    test("are fired though they were written by hand, with nothing but a name and a pattern", async () => {
      await queue.database.write([
        sql`insert into ${rows} (schedule_id, name, pattern, after_at)
          values ('hand', 'hand', ${"* * * * * *"}, ${queue.store.clock ? queue.clock.now() - 5_000 : 5_000})`,
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
      await schedules.put(mail("bad"));
      await schedules.put(mail("good"));
      await lead();
      const name = sql([column] as unknown as TemplateStringsArray);
      await queue.database.write([
        sql`update ${rows} set ${name} = ${value} where schedule_id = 'bad'`,
      ]);
      await letCome("bad", 1);
      await letCome("good", 1);
      await lead();
      await lead();
      expect(await tasksOf("bad")).toEqual([]);
      expect(await tasksOf("good")).toHaveLength(1);
      const broken = (await schedules.get("bad"))!;
      expect(broken).toMatchObject({ state: "broken", nextAtMs: null });
      expect(broken.error).toContain(why);
      expect((await schedules.list()).schedules).toHaveLength(2);

      await schedules.put(mail("bad"));
      await lead();
      expect(await schedules.get("bad")).toMatchObject({ state: "active", error: null });
    });

    test("whose pattern has no time any more have ended, and stay", async () => {
      await schedules.put(schedule("old", { name: "old", pattern: "0 0 0 1 1 * 2020" }));
      await lead();
      expect(await schedules.get("old")).toMatchObject({ state: "ended", nextAtMs: null });
      expect(await schedules.upcoming("old")).toEqual([]);
      expect(await tasksOf("old")).toEqual([]);
    });

    test("say what was put, once however often and by however many", async () => {
      const first = await schedules.put(mail());
      expect(first).toMatchObject({
        revision: 1,
        name: "mail",
        input: { to: "ada" },
        missed: "once",
      });
      expect(first.nextAtMs! % everyMs).toBe(0);
      await Promise.all([schedules.put(mail()), putAll([mail()], queue)]);
      expect(await schedules.get("mail")).toEqual(first);

      const changed = mail("mail", { input: { to: "bob" } });
      await Promise.all([1, 2, 3].map(() => schedules.put(changed)));
      expect(await schedules.get("mail")).toMatchObject({ revision: 2, input: { to: "bob" } });
    });

    test("keep their next time when only the input changes, and begin anew with another pattern", async () => {
      await schedules.put(mail());
      await lead();
      await letCome("mail", 1);
      const dueMs = (await schedules.get("mail"))!.nextAtMs;
      expect((await schedules.put(mail("mail", { input: 2 }))).nextAtMs).toBe(dueMs);
      const daily = schedule("mail", { name: "mail", pattern: "0 0 * * *", input: 2 });
      expect((await schedules.put(daily)).nextAtMs).toBeGreaterThan(dueMs!);
      await lead();
      expect(await tasksOf("mail")).toEqual([]);
    });

    test("that changed between a leader's look and its write aren't fired as they were", async () => {
      await schedules.put(mail());
      await lead();
      await letCome("mail", 1);
      await lead({
        ...queue.database,
        async write(statements) {
          await schedules.put(mail("mail", { input: "new" }));
          return queue.database.write(statements);
        },
      });
      expect(await tasksOf("mail")).toEqual([]);
      await lead();
      expect(await tasksOf("mail")).toMatchObject([{ payload: `"new"` }]);
    });

    test("are quiet while they are paused, stay so when put again, and go on from when they are resumed", async () => {
      await schedules.put(mail("mail", { missed: "all" }));
      await lead();
      expect(await schedules.pause("mail")).toMatchObject({ state: "paused", nextAtMs: null });
      await letCome("mail", 3);
      await lead();
      expect((await schedules.put(mail("mail", { input: 2 }))).state).toBe("paused");
      await lead();
      expect(await tasksOf("mail")).toEqual([]);
      expect(await schedules.upcoming("mail", 2)).toHaveLength(2);

      const resumed = await schedules.resume("mail");
      expect(resumed.state).toBe("active");
      await lead();
      expect(await tasksOf("mail")).toEqual([]);
      expect((await schedules.resume("mail")).nextAtMs).toBe(resumed.nextAtMs);
      // What isn't paused loses nothing by it.
      await letCome("mail", 1);
      await schedules.resume("mail");
      await lead();
      expect(await tasksOf("mail")).toHaveLength(1);
    });

    test("that were paused or removed between a leader's look and its write aren't fired", async () => {
      await schedules.put(mail("one"));
      await schedules.put(mail("two"));
      await lead();
      await letCome("one", 1);
      await letCome("two", 1);
      let asked = false;
      await lead({
        ...queue.database,
        async write(statements) {
          if (!asked) {
            asked = true;
            await schedules.pause("one");
            await schedules.remove("two");
          }
          return queue.database.write(statements);
        },
      });
      expect(await tasksOf("one")).toEqual([]);
      expect(await tasksOf("two")).toEqual([]);
    });

    test("make a task besides when they are told to, and aren't moved by that", async () => {
      const put = await schedules.put(mail());
      const { taskId } = await schedules.fire("mail");
      expect(await queue.get(taskId)).toMatchObject({
        name: "mail",
        payload: { to: "ada" },
        key: null,
      });
      expect(await schedules.get("mail")).toEqual(put);
    });

    test("are gone once removed, and nobody finds what isn't there", async () => {
      await schedules.put(mail());
      expect(await schedules.remove("mail")).toBe(true);
      expect(await schedules.remove("mail")).toBe(false);
      expect(await schedules.get("mail")).toBeUndefined();
      for (const ask of ["pause", "resume", "fire", "upcoming"] as const) {
        await expect(schedules[ask]("mail")).rejects.toMatchObject({ code: "not_found" });
      }
    });

    test("say their interval or their pattern, whichever they were given", async () => {
      await schedules.put(schedule("a", { name: "a", everyMs: 300_000 }));
      await schedules.put(schedule("b", { name: "a", pattern: "0 3 * * *", zone: "Asia/Tokyo" }));
      const shown = [
        { everyMs: 300_000, pattern: null, zone: null },
        { everyMs: null, pattern: "0 3 * * *", zone: "Asia/Tokyo" },
      ];
      expect([await schedules.get("a"), await schedules.get("b")]).toMatchObject(shown);
      expect((await schedules.list()).schedules).toMatchObject(shown);
      expect(await schedules.upcoming("a", 2)).toHaveLength(2);
    });

    test("are listed in pages, with the times that come", async () => {
      for (const id of ["c", "a", "b"]) await schedules.put(mail(id));
      const first = await schedules.list({ limit: 2 });
      expect(first.schedules.map(({ scheduleId }) => scheduleId)).toEqual(["a", "b"]);
      const rest = await schedules.list({ cursor: first.next! });
      expect(rest).toMatchObject({ schedules: [{ scheduleId: "c" }], next: null });
      const { nextAtMs } = first.schedules[0]!;
      expect(await schedules.upcoming("a", 3)).toEqual(
        [0, 1, 2].map((times) => nextAtMs! + times * everyMs),
      );
    });

    test("make tasks that go through the same gate as others of their kind", async () => {
      const few = task("few", {
        concurrency: { limit: 1, key: (input: { to: string }) => input.to },
      });
      const input = { to: "ada" };
      const options = { concurrencyKey: "bob" };
      await queue.enqueue(few, input);
      await queue.enqueue(few, input, options);
      await schedules.put("a", { task: few, input, everyMs });
      await schedules.put("b", { task: few, input, everyMs, options });
      for (const id of ["a", "b"]) await schedules.fire(id);
      await lead();
      for (const id of ["a", "b"]) await letCome(id, 1);
      await lead();
      const gates = (await tasksOf("few")).map((row) => [
        row["group_key"],
        row["gated"],
        row["parked"],
      ]);
      const [ada, bob, ...others] = gates;
      expect(ada![0]).not.toBe(bob![0]);
      expect(ada!.slice(1)).toEqual([1, 4]);
      expect(others.filter(([group]) => group === ada![0])).toEqual([ada, ada]);
      expect(others.filter(([group]) => group === bob![0])).toEqual([bob, bob]);
    });

    test("check the input against the task's schema, as enqueueing does", async () => {
      const picky = task("picky", {
        input: {
          "~standard": {
            version: 1,
            vendor: "test",
            validate: (value: unknown) =>
              typeof value === "number" ? { value } : { issues: [{ message: "no number" }] },
          },
        },
      });
      const declared = schedule("picky", { task: picky, everyMs, input: "text" as never });
      await expect(schedules.put(declared)).rejects.toMatchObject({ code: "invalid_input" });
      const big = schedule("big", { name: "big", everyMs, input: "x".repeat(300_000) });
      await expect(schedules.put(big)).rejects.toMatchObject({ code: "payload_too_large" });
      expect((await schedules.list()).schedules).toEqual([]);
    });

    test.runIf(kind.name === "Postgres")(
      "whose row somebody else holds wait, and the others are fired",
      async () => {
        await schedules.put(mail("held"));
        await schedules.put(mail("free"));
        await lead();
        await letCome("held", 1);
        await letCome("free", 1);
        const caller = await queue.store.caller!();
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
