import { describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { task } from "../../tasks/task.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { createSchedules, putAll } from "../schedules.ts";
import { everyMs, sendMail, rows, openSchedules } from "./harness.ts";
import { schedule } from "../schedule.ts";

/** What schedules promise on every store. */
export function schedulesContract(kind: StoreKind): void {
  describe(`schedules on ${kind.name}`, () => {
    const scene = openSchedules(kind);
    const { lead, letCome, tasksOf } = scene;

    test("are stored as they were put, once however often and by however many", async () => {
      const first = await scene.schedules.put(sendMail());
      expect(first).toMatchObject({
        revision: 1,
        name: "mail",
        input: { to: "ada" },
        missed: "once",
      });
      expect(first.nextAtMs! % everyMs).toBe(0);
      await Promise.all([scene.schedules.put(sendMail()), putAll([sendMail()], scene.queue)]);
      expect(await scene.schedules.get("mail")).toEqual(first);

      const changed = sendMail("mail", { input: { to: "bob" } });
      await Promise.all([1, 2, 3].map(() => scene.schedules.put(changed)));
      expect(await scene.schedules.get("mail")).toMatchObject({
        revision: 2,
        input: { to: "bob" },
      });
    });

    test("keep their next time when only the input changes, and begin again with another pattern", async () => {
      await scene.schedules.put(sendMail());
      await lead();
      await letCome("mail", 1);
      const dueMs = (await scene.schedules.get("mail"))!.nextAtMs;
      expect((await scene.schedules.put(sendMail("mail", { input: 2 }))).nextAtMs).toBe(dueMs);
      const daily = schedule("mail", { name: "mail", pattern: "0 0 * * *", input: 2 });
      expect((await scene.schedules.put(daily)).nextAtMs).toBeGreaterThan(dueMs!);
      await lead();
      expect(await tasksOf("mail")).toEqual([]);
    });

    test("are quiet while they are paused, stay so when put again, and go on from when they are resumed", async () => {
      await scene.schedules.put(sendMail("mail", { missed: "all" }));
      await lead();
      expect(await scene.schedules.pause("mail")).toMatchObject({
        state: "paused",
        nextAtMs: null,
      });
      await letCome("mail", 3);
      await lead();
      expect((await scene.schedules.put(sendMail("mail", { input: 2 }))).state).toBe("paused");
      await lead();
      expect(await tasksOf("mail")).toEqual([]);
      expect(await scene.schedules.upcoming("mail", 2)).toHaveLength(2);

      const resumed = await scene.schedules.resume("mail");
      expect(resumed.state).toBe("active");
      await lead();
      expect(await tasksOf("mail")).toEqual([]);
      expect((await scene.schedules.resume("mail")).nextAtMs).toBe(resumed.nextAtMs);
      // What isn't paused loses nothing by it.
      await letCome("mail", 1);
      await scene.schedules.resume("mail");
      await lead();
      expect(await tasksOf("mail")).toHaveLength(1);
    });

    test("make an extra task on demand, and aren't moved by that", async () => {
      const put = await scene.schedules.put(sendMail());
      const { taskId } = await scene.schedules.fire("mail");
      expect(await scene.queue.get(taskId)).toMatchObject({
        name: "mail",
        payload: { to: "ada" },
        key: null,
      });
      expect(await scene.schedules.get("mail")).toEqual(put);
    });

    test("are gone once removed, and a missing one isn't found", async () => {
      await scene.schedules.put(sendMail());
      expect(await scene.schedules.remove("mail")).toBe(true);
      expect(await scene.schedules.remove("mail")).toBe(false);
      expect(await scene.schedules.get("mail")).toBeUndefined();
      for (const ask of ["pause", "resume", "fire", "upcoming"] as const) {
        await expect(scene.schedules[ask]("mail")).rejects.toMatchObject({ code: "not_found" });
      }
    });

    /** A store that stores a write, and loses its answer when all that is said has happened. */
    const losingAnswer = (nth: number, meanwhile: () => Promise<unknown>): Database => {
      const { database } = scene.queue;
      let sends = 0;
      return {
        ...database,
        async write(statements, options) {
          const answer = await database.write(statements, options);
          if (++sends !== nth) return answer;
          await meanwhile();
          throw new FlotillaError("unknown_outcome", "the answer was lost");
        },
      };
    };
    const losing = (meanwhile: () => Promise<unknown> = async () => {}) =>
      createSchedules({ ...scene.queue, database: losingAnswer(1, meanwhile) });

    /** One that wasn't made in this very moment. */
    const putBefore = async () => {
      await scene.schedules.put(sendMail());
      await scene.queue.database.write([sql`update ${rows} set created_at = created_at - 1000`]);
    };

    test("are removed once though the answer was lost, and stay if they were put again since", async () => {
      await putBefore();
      const removing = losing(() => scene.schedules.put(sendMail("mail", { input: 2 })));
      expect(await scene.queue.outcome(removing.remove("mail"))).toBe(true);
      expect(await scene.schedules.get("mail")).toMatchObject({ input: 2 });
      expect(await scene.queue.outcome(losing().remove("mail"))).toBe(true);
      expect(await scene.schedules.get("mail")).toBeUndefined();
      expect(await scene.queue.outcome(losing().remove("mail"))).toBe(false);
    });

    test.each([
      ["pause", "active", "resume"],
      ["resume", "paused", "pause"],
    ] as const)(
      "change once where the answer to %s was lost, and stay %s if that was undone since",
      async (ask, state, undo) => {
        await putBefore();
        if (state === "paused") await scene.schedules.pause("mail");
        const changing = losing(() => scene.schedules[undo]("mail"));
        await expect(scene.queue.outcome(changing[ask]("mail"))).rejects.toMatchObject({
          code: "unknown_outcome",
        });
        expect(await scene.schedules.get("mail")).toMatchObject({ state });
        expect(await scene.queue.outcome(losing()[ask]("mail"))).not.toMatchObject({ state });
      },
    );

    test("aren't paused where the answer was lost and they were created again since", async () => {
      await putBefore();
      const pausing = losing(async () => {
        await scene.schedules.remove("mail");
        await scene.schedules.put(sendMail());
      });
      await expect(scene.queue.outcome(pausing.pause("mail"))).rejects.toMatchObject({
        code: "unknown_outcome",
      });
      expect(await scene.schedules.get("mail")).toMatchObject({ state: "active" });
    });

    /** Schedules whose first poll is over before the given call happens. */
    const looking = (meanwhile: () => Promise<unknown>) => {
      const { database } = scene.queue;
      let looks = 0;
      return createSchedules({
        ...scene.queue,
        database: {
          ...database,
          async read(statement) {
            const seen = await database.read(statement);
            if (looks++ === 0) await meanwhile();
            return seen;
          },
        },
      });
    };

    test("are as they were put last, also where the answer to an earlier put was lost", async () => {
      await putBefore();
      const putting = losing(() => scene.schedules.put(sendMail("mail", { input: 2 })));
      await expect(
        scene.queue.outcome(putting.put(sendMail("mail", { input: 1 }))),
      ).rejects.toMatchObject({ code: "unknown_outcome" });
      expect(await scene.schedules.get("mail")).toMatchObject({ input: 2 });
      const again = losing().put(sendMail("mail", { input: 3 }));
      expect(await scene.queue.outcome(again)).toMatchObject({ input: 3 });
    });

    test("aren't brought back by a put whose answer was lost", async () => {
      const putting = losing(() => scene.schedules.remove("mail"));
      await expect(scene.queue.outcome(putting.put(sendMail()))).rejects.toMatchObject({
        code: "unknown_outcome",
      });
      expect(await scene.schedules.get("mail")).toBeUndefined();
      expect(await scene.queue.outcome(losing().put(sendMail()))).toMatchObject({ revision: 1 });
    });

    test("that a pod declares are there though the answer was lost, as they were put since", async () => {
      const declare = (input: number, meanwhile: () => Promise<unknown>) => {
        // The first is its look.
        const parts = { ...scene.queue, database: losingAnswer(2, meanwhile) };
        const declared = putAll([sendMail("mail", { input })], parts, { declares: true });
        return scene.queue.outcome(declared);
      };
      expect(await declare(1, () => scene.schedules.remove("mail"))).toMatchObject([{ input: 1 }]);
      const put = () => scene.schedules.put(sendMail("mail", { input: 3 }));
      expect(await declare(2, put)).toMatchObject([{ input: 3 }]);
    });

    test("are put though they were made, changed or removed between the read and the write", async () => {
      const making = looking(() => scene.schedules.put(sendMail("mail", { input: 1 })));
      expect(await making.put(sendMail("mail", { input: 2 }))).toMatchObject({
        input: 2,
        revision: 2,
      });
      const changing = looking(() => scene.schedules.put(sendMail("mail", { input: 3 })));
      expect(await changing.put(sendMail("mail", { input: 4 }))).toMatchObject({ input: 4 });
      const removing = looking(() => scene.schedules.remove("mail"));
      expect(await removing.put(sendMail("mail", { input: 5 }))).toMatchObject({
        input: 5,
        revision: 1,
      });
    });

    test("have another revision after each change, though the store's clock was turned back", async () => {
      await scene.schedules.put(sendMail());
      await scene.queue.database.write([
        sql`update ${rows} set last_update = last_update + 3600000`,
      ]);
      const times = [(await scene.schedules.get("mail"))!.updatedAtMs];
      for (const change of [
        () => scene.schedules.put(sendMail("mail", { input: 2 })),
        () => scene.schedules.pause("mail"),
        () => scene.schedules.resume("mail"),
      ]) {
        times.push((await change()).updatedAtMs);
      }
      expect(times).toEqual([0, 1, 2, 3].map((more) => times[0]! + more));
    });

    test("make a task as they are when it is stored, and none once they are gone", async () => {
      await putBefore();
      const changing = looking(() => scene.schedules.put(sendMail("mail", { input: 2 })));
      const { taskId } = await changing.fire("mail");
      expect(await scene.queue.get(taskId)).toMatchObject({ payload: 2 });
      const removing = looking(() => scene.schedules.remove("mail"));
      await expect(removing.fire("mail")).rejects.toMatchObject({ code: "not_found" });
      expect(await tasksOf("mail")).toHaveLength(1);
    });

    test("are paused though they were changed between the read and the write", async () => {
      await putBefore();
      const changing = looking(() => scene.schedules.put(sendMail("mail", { input: 2 })));
      expect(await changing.pause("mail")).toMatchObject({ state: "paused", input: 2 });
    });

    test("make one task on demand though the answer was lost and they were changed since", async () => {
      await putBefore();
      const firing = losing(() => scene.schedules.put(sendMail("mail", { input: 2 })));
      const { taskId } = await scene.queue.outcome(firing.fire("mail"));
      expect(await tasksOf("mail")).toMatchObject([{ task_id: taskId, payload: '{"to":"ada"}' }]);
    });

    test("show their interval or their pattern, whichever they were given", async () => {
      await scene.schedules.put(schedule("a", { name: "a", everyMs: 300_000 }));
      await scene.schedules.put(
        schedule("b", { name: "a", pattern: "0 3 * * *", zone: "Asia/Tokyo" }),
      );
      const shown = [
        { everyMs: 300_000, pattern: null, zone: null },
        { everyMs: null, pattern: "0 3 * * *", zone: "Asia/Tokyo" },
      ];
      expect([await scene.schedules.get("a"), await scene.schedules.get("b")]).toMatchObject(shown);
      expect((await scene.schedules.list()).schedules).toMatchObject(shown);
      expect(await scene.schedules.upcoming("a", 2)).toHaveLength(2);
    });

    test("are listed in pages, with the times that come", async () => {
      for (const id of ["c", "a", "b"]) await scene.schedules.put(sendMail(id));
      const first = await scene.schedules.list({ limit: 2 });
      expect(first.schedules.map(({ scheduleId }) => scheduleId)).toEqual(["a", "b"]);
      const rest = await scene.schedules.list({ cursor: first.next! });
      expect(rest).toMatchObject({ schedules: [{ scheduleId: "c" }], next: null });
      const { nextAtMs } = first.schedules[0]!;
      expect(await scene.schedules.upcoming("a", 3)).toEqual(
        [0, 1, 2].map((times) => nextAtMs! + times * everyMs),
      );
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
      await expect(scene.schedules.put(declared)).rejects.toMatchObject({ code: "invalid_input" });
      const big = schedule("big", { name: "big", everyMs, input: "x".repeat(300_000) });
      await expect(scene.schedules.put(big)).rejects.toMatchObject({ code: "payload_too_large" });
      expect((await scene.schedules.list()).schedules).toEqual([]);
    });
  });
}
