import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import { limit, now, sql } from "../../store/sql.ts";
import { readDepth } from "../inspect/depth.ts";
import { closeStores, openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { maxDepthCount, maxNamesCounted } from "../sql/inspect.ts";

/** What the depth of the queue promises on every store. */
export function depthContract(kind: StoreKind): void {
  describe(`the depth of the queue on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());
    afterAll(closeStores);
    const depth = async () => Object.fromEntries(await readDepth(queue.database));
    const none = {
      ready: 0,
      delayed: 0,
      waiting: 0,
      blocked: 0,
      alone: 0,
      running: 0,
      failed: 0,
      oldestMs: 0,
      paused: false,
    };

    test("is nothing where nothing waits, whatever has ended", async () => {
      await queue.database.write([
        sql`insert into ${rowsOf} (name, status) values ('a', 'completed'), ('b', 'cancelled')`,
      ]);
      expect(await depth()).toEqual({});
    });

    test("counts each task by its name and where it stands", async () => {
      await queue.database.write([
        sql`insert into ${rowsOf} (name, status, priority, parked, deaths, run_at) values
          ('a', 'pending', 5, 0, 0, ${now}), ('a', 'pending', 0, 0, 1, ${now}),
          ('a', 'pending', -5, 0, 0, ${now}), ('a', 'pending', 0, 0, 2, ${now}),
          ('a', 'pending', 0, 1, 0, ${now} + 60000), ('b', 'pending', 0, 1, 0, ${now} + 60000),
          ('a', 'claimed', 0, 0, 0, ${now}), ('b', 'claimed', 0, 0, 0, ${now}),
          ('b', 'claimed', 0, 0, 0, ${now}), ('c', 'failed', 0, 0, 0, ${now}),
          ('z', 'pending', 0, 0, 0, ${now}), ('z', 'completed', 0, 0, 0, ${now})`,
      ]);
      const age = { oldestMs: expect.any(Number) };
      expect(await depth()).toEqual({
        a: { ...none, ready: 3, alone: 1, delayed: 1, running: 1, ...age },
        b: { ...none, delayed: 1, running: 2 },
        c: { ...none, failed: 1 },
        z: { ...none, ready: 1, ...age },
      });
    });

    test("counts what is limited as ready, what has no free slot as blocked, and shows what is paused", async () => {
      await queue.database.write([
        sql`insert into ${rowsOf} (name, parked, blocked_by, limited, deaths) values
          ('a', 4, null, 1, 0), ('a', 3, 'key/a/k', 1, 0), ('a', 4, null, 1, 2), ('b', 0, null, 0, 0)`,
      ]);
      await queue.pause("b");
      await queue.pause("nobody");
      const seen = await depth();
      expect(seen["a"]).toMatchObject({ ready: 1, blocked: 1, alone: 1, paused: false });
      expect(seen["b"]).toMatchObject({ ready: 1, paused: true });
      expect(seen["nobody"]).toEqual({ ...none, paused: true });
      await queue.pause();
      expect((await depth())["a"]).toMatchObject({ paused: true });
    });

    test("shows how long the one has waited that has been due for longest", async () => {
      const due = (name: string, agoMs: number, createdAgoMs: number, priority = 0, parked = 0) =>
        queue.database.write([
          sql`insert into ${rowsOf} (name, run_at, created_at, priority, parked) values
            (${name}, ${now} - ${agoMs}, ${now} - ${createdAgoMs}, ${priority}, ${parked})`,
        ]);
      // A retry that was made long ago has waited only since it was due again.
      await due("a", 1_000, 900_000);
      await due("a", 60_000, 60_000);
      await due("a", 300_000, 300_000, -10);
      await due("a", 2_000, 2_000, 10);
      // Due, though no pod has made it ready yet.
      await due("b", 120_000, 200_000, 0, 1);
      await due("c", -60_000, 500_000, 0, 1);
      const seen = await depth();
      const about = (ms: number) => ({ from: ms, to: ms + 60_000 });
      for (const [name, { from, to }] of Object.entries({ a: about(300_000), b: about(120_000) })) {
        expect(seen[name]!.oldestMs).toBeGreaterThanOrEqual(from);
        expect(seen[name]!.oldestMs).toBeLessThan(to);
      }
      expect(seen["c"]).toEqual({ ...none, delayed: 1 });
    });

    test("counts every one of two thousand names", async () => {
      await queue.database.write([
        sql`insert into ${rowsOf} (name, priority)
          with recursive step (at) as (
            select 1 union all select at + 1 from step where at < ${maxNamesCounted + 1})
          select 'name-' || cast(at as text), at % 3 from step`,
      ]);
      const ready = Object.values(await depth()).filter((each) => each.ready === 1);
      expect(ready).toHaveLength(maxNamesCounted);
    });

    test("isn't counted beyond its limit", async () => {
      const many = sql`with recursive step (at) as (
        select 1 union all select at + 1 from step where at < ${maxDepthCount + 5})`;
      await queue.database.write([
        sql`insert into ${rowsOf} (name) ${many} select 'a' from step`,
        sql`insert into ${rowsOf} (name, status) ${many} select 'b', 'failed' from step ${limit(maxDepthCount + 5)}`,
      ]);
      expect(await depth()).toMatchObject({
        a: { ready: maxDepthCount },
        b: { failed: maxDepthCount },
      });
    });
  });
}
