import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { beat, markLeft } from "../../pods/sql.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { openTasks, type TasksHarness } from "./harness.ts";

/** What is reported of tasks that no pod works on, on every store. */
export function blockedByContract(kind: StoreKind): void {
  describe(`tasks without a worker on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const start = (podId: string, metadata: unknown) =>
      queue.database.write([beat(podId, JSON.stringify(metadata), 0)]);

    test("wait, and are shown as having none until a pod is up that works on their name", async () => {
      const { taskId } = await queue.enqueue("mial", 1);
      await queue.enqueue("mail", 1);
      const seen = async () => {
        const { tasks } = await queue.list();
        const [task, stats] = [await queue.get(taskId), await queue.stats()];
        return [task, ...tasks, { noWorker: stats.noWorker }].map(
          (each) => "noWorker" in each! && each.noWorker,
        );
      };
      expect(await seen()).toEqual([true, true, true, ["mail", "mial"]]);
      await start("pod-1", { names: ["mail", "post"] });
      expect(await seen()).toEqual([true, false, true, ["mial"]]);
      await start("pod-2", { names: ["mial"] });
      expect(await seen()).toEqual([false, false, false, []]);
      await queue.database.write([markLeft("pod-1")]);
      expect(await seen()).toEqual([false, true, false, ["mail"]]);
      expect(await queue.get(taskId)).toMatchObject({ status: "pending" });
    });

    test("are named, and a pod that has left may count for a second longer", async () => {
      const without = () => queue.noWorker(["mail", "mial"]);
      expect(await without()).toEqual(["mail", "mial"]);
      await start("pod-1", { names: ["mail"] });
      // A pod that has come counts at once.
      expect(await without()).toEqual(["mial"]);
      await start("pod-2", { names: ["mial"] });
      expect(await without()).toEqual([]);
      await queue.database.write([markLeft("pod-1")]);
      expect(await without()).toEqual([]);
      await queue.clock.advance(1_000);
      expect(await without()).toEqual(["mail"]);
    });

    test("of a run have one only where a pod has its version or a later one", async () => {
      const { taskId } = await queue.enqueue("order", 1);
      const seen = async () => (await queue.get(taskId)) as { noWorker?: boolean };
      await start("pod-1", { names: ["order"], flows: { order: 2 } });
      expect(await seen()).toMatchObject({ noWorker: false, flowVersion: null });
      const advancedBy = (version: number) =>
        queue.database.write([
          sql`update ${table("task")} set flow_version = ${version} where task_id = ${taskId}`,
        ]);
      await advancedBy(2);
      expect(await seen()).toMatchObject({ noWorker: false, flowVersion: 2 });
      await advancedBy(3);
      expect(await seen()).toMatchObject({ noWorker: true, flowVersion: 3 });
      await start("pod-2", { names: ["order"], flows: { order: 3 } });
      expect(await seen()).toMatchObject({ noWorker: false });
    });

    test("of a version have one only where a pod has that or a later one", async () => {
      const { taskId } = await queue.enqueue("mail", 1);
      const seen = async () => (await queue.get(taskId)) as { noWorker?: boolean };
      await start("pod-1", { names: ["mail"] });
      expect(await seen()).toMatchObject({ noWorker: false, version: null });
      await queue.database.write([
        sql`update ${table("task")} set task_version = 2 where task_id = ${taskId}`,
      ]);
      expect(await seen()).toMatchObject({ noWorker: true, version: 2 });
      await start("pod-2", { names: ["mail"], versions: { mail: 1 } });
      expect(await seen()).toMatchObject({ noWorker: true });
      await start("pod-3", { names: ["mail"], versions: { mail: 3 } });
      expect(await seen()).toMatchObject({ noWorker: false });
    });

    test("and tasks whose name is paused differ from those where everything is", async () => {
      await start("pod-1", { names: ["mail", "post"] });
      const { taskId } = await queue.enqueue("mail", 1);
      await queue.enqueue("post", 1);
      const paused = async () => {
        const { tasks } = await queue.list();
        return [await queue.get(taskId), ...tasks].map((each) => "paused" in each! && each.paused);
      };
      expect(await paused()).toEqual([false, false, false]);
      await queue.pause("mail");
      expect(await paused()).toEqual([true, false, true]);
      await queue.pause();
      expect(await paused()).toEqual([true, true, true]);
      await queue.resume("mail");
      await queue.resume();
      expect(await paused()).toEqual([false, false, false]);
    });

    test("can't be known where a pod doesn't publish what it works on", async () => {
      const { taskId } = await queue.enqueue("mail", 1);
      await start("pod-1", { names: ["post"] });
      await start("pod-2", {});
      expect(await queue.get(taskId)).toMatchObject({ noWorker: false });
      expect((await queue.stats()).noWorker).toEqual([]);
    });
  });
}
