import { describe, expect, test } from "vitest";
import { task } from "../queue/task.ts";
import type { StoreKind } from "../store/database.contract.ts";
import { putAll } from "./client.ts";
import { everyMs, mail, schedulesScene } from "./scene.contract.ts";
import { schedule } from "./schedule.ts";

/** What those who keep schedules are promised on every store. */
export function schedulesContract(kind: StoreKind): void {
  describe(`schedules on ${kind.name}`, () => {
    const scene = schedulesScene(kind);
    const { lead, letCome, tasksOf } = scene;

    test("say what was put, once however often and by however many", async () => {
      const first = await scene.schedules.put(mail());
      expect(first).toMatchObject({
        revision: 1,
        name: "mail",
        input: { to: "ada" },
        missed: "once",
      });
      expect(first.nextAtMs! % everyMs).toBe(0);
      await Promise.all([scene.schedules.put(mail()), putAll([mail()], scene.queue)]);
      expect(await scene.schedules.get("mail")).toEqual(first);

      const changed = mail("mail", { input: { to: "bob" } });
      await Promise.all([1, 2, 3].map(() => scene.schedules.put(changed)));
      expect(await scene.schedules.get("mail")).toMatchObject({
        revision: 2,
        input: { to: "bob" },
      });
    });

    test("keep their next time when only the input changes, and begin anew with another pattern", async () => {
      await scene.schedules.put(mail());
      await lead();
      await letCome("mail", 1);
      const dueMs = (await scene.schedules.get("mail"))!.nextAtMs;
      expect((await scene.schedules.put(mail("mail", { input: 2 }))).nextAtMs).toBe(dueMs);
      const daily = schedule("mail", { name: "mail", pattern: "0 0 * * *", input: 2 });
      expect((await scene.schedules.put(daily)).nextAtMs).toBeGreaterThan(dueMs!);
      await lead();
      expect(await tasksOf("mail")).toEqual([]);
    });

    test("are quiet while they are paused, stay so when put again, and go on from when they are resumed", async () => {
      await scene.schedules.put(mail("mail", { missed: "all" }));
      await lead();
      expect(await scene.schedules.pause("mail")).toMatchObject({
        state: "paused",
        nextAtMs: null,
      });
      await letCome("mail", 3);
      await lead();
      expect((await scene.schedules.put(mail("mail", { input: 2 }))).state).toBe("paused");
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

    test("make a task besides when they are told to, and aren't moved by that", async () => {
      const put = await scene.schedules.put(mail());
      const { taskId } = await scene.schedules.fire("mail");
      expect(await scene.queue.get(taskId)).toMatchObject({
        name: "mail",
        payload: { to: "ada" },
        key: null,
      });
      expect(await scene.schedules.get("mail")).toEqual(put);
    });

    test("are gone once removed, and nobody finds what isn't there", async () => {
      await scene.schedules.put(mail());
      expect(await scene.schedules.remove("mail")).toBe(true);
      expect(await scene.schedules.remove("mail")).toBe(false);
      expect(await scene.schedules.get("mail")).toBeUndefined();
      for (const ask of ["pause", "resume", "fire", "upcoming"] as const) {
        await expect(scene.schedules[ask]("mail")).rejects.toMatchObject({ code: "not_found" });
      }
    });

    test("say their interval or their pattern, whichever they were given", async () => {
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
      for (const id of ["c", "a", "b"]) await scene.schedules.put(mail(id));
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
