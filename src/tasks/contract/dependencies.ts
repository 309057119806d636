import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { seededRandom } from "../../base/random.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { createFinishWriter } from "../finish/finish-writer.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import type { Claim } from "../rows.ts";
import { decideFinish } from "../finish/outcome.ts";
import { cancelTask } from "../sql/inspect.ts";
import { releaseCall } from "../sql/claim.ts";
import { deleteFinished, noteRecovery, recoverTasks } from "../sql/recover.ts";
import { wakeDependents } from "../sql/dependencies.ts";
import type { AttemptOutcome } from "../model.ts";

const returned: AttemptOutcome = { type: "returned", result: `"done"` };
const threw: AttemptOutcome = { type: "threw", thrown: new Error("broken") };

/** What tasks that wait for other tasks are promised on every store. */
export function dependenciesContract(kind: StoreKind): void {
  describe(`waiting for other tasks on ${kind.name}`, () => {
    let queue: TasksHarness;
    const over = new AbortController();
    beforeEach(async () => {
      queue = await openTasks(kind);
      await queue.beat("pod-1");
    });
    afterEach(() => queue.close());

    const enqueue = async (name: string, ...after: string[]) =>
      (await queue.enqueue(name, 1, { after })).taskId;
    const claim = async (name: string) => (await queue.claim("pod-1", [name]))[0];
    /** Stores how an attempt ended, as the worker does. */
    const end = async (claimed: Claim, outcome: AttemptOutcome = returned) => {
      const finishWriter = createFinishWriter({ ...queue, podId: "pod-1", signal: over.signal });
      const settled = decideFinish(claimed, outcome, { attempts: 1, backoff: {} }, seededRandom(1));
      const finish = { ...settled, ...(claimed.hasDependents && { hasDependents: true }) };
      expect(await finishWriter.finish(finish)).toEqual({ type: "stored" });
    };
    const run = async (name: string, outcome?: AttemptOutcome) =>
      end((await claim(name))!, outcome);

    test("a task runs once all that it waits for have completed, and not before", async () => {
      const [one, other] = [await enqueue("one"), await enqueue("other")];
      const waiter = await enqueue("waiter", one, other);
      expect(await claim("waiter")).toBeUndefined();
      await run("one");
      expect(await claim("waiter")).toBeUndefined();
      await run("other");
      expect(await claim("waiter")).toMatchObject({ taskId: waiter });
    });

    test("it waits for what was claimed before it had any dependents", async () => {
      const one = await enqueue("one");
      const claimed = (await claim("one"))!;
      expect(claimed.hasDependents).toBeUndefined();
      const waiter = await enqueue("waiter", one);
      await end(claimed);
      expect(await claim("waiter")).toMatchObject({ taskId: waiter });
      expect(await queue.events(one)).toEqual([]);
    });

    test("what isn't awaited ends in the same write as what is", async () => {
      const one = await enqueue("a");
      const claimed = await queue.claim("pod-1", ["a"]);
      await enqueue("a");
      claimed.push(...(await queue.claim("pod-1", ["a"])));
      await enqueue("waiter", one);
      await Promise.all(claimed.map((each) => end(each, threw)));
      expect(await queue.count(sql`name = 'a' and status = 'failed'`)).toBe(2);
      expect(await queue.events(one)).toMatchObject([{ seq: 1, type: "failed" }]);
      expect(await claim("waiter")).toMatchObject({ dependencyFailed: true });
    });

    test("what has ended already isn't waited for", async () => {
      const one = await enqueue("one");
      await run("one");
      const waiter = await enqueue("waiter", one);
      expect(await claim("waiter")).toMatchObject({ taskId: waiter });
    });

    test("a task of which one awaited has failed or was cancelled is woken at once, and marked", async () => {
      const [one, other] = [await enqueue("one"), await enqueue("other")];
      await enqueue("waiter", one, other);
      await run("one", threw);
      expect(await claim("waiter")).toMatchObject({ dependencyFailed: true });
      const late = (await queue.enqueue("late", 1, { after: [one] })).taskId;
      expect(await claim("late")).toMatchObject({ taskId: late, dependencyFailed: true });
      await enqueue("waiter", other);
      await queue.cancel(other);
      expect(await claim("waiter")).toMatchObject({ dependencyFailed: true });
    });

    test("with `afterFailed: run` it waits until all have ended, however they end", async () => {
      const [one, other] = [await enqueue("one"), await enqueue("other")];
      const options = { after: [one, other], afterFailed: "run" } as const;
      const { taskId } = await queue.enqueue("waiter", 1, options);
      await run("one", threw);
      expect(await claim("waiter")).toBeUndefined();
      await queue.cancel(other);
      const claimed = await claim("waiter");
      expect(claimed).toMatchObject({ taskId });
      expect(claimed?.dependencyFailed).toBeUndefined();
    });

    test("a retry of an awaited task is no end of it", async () => {
      const one = await enqueue("one");
      await enqueue("waiter", one);
      await run("one", { type: "interrupted" });
      expect(await claim("waiter")).toBeUndefined();
      await run("one");
      expect(await claim("waiter")).toBeDefined();
    });

    test("one whose delay isn't over when it is woken waits for its time", async () => {
      const one = await enqueue("one");
      const { taskId } = await queue.enqueue("waiter", 1, { after: [one], delayMs: 60_000 });
      await run("one");
      expect(await queue.row(taskId)).toMatchObject({ parked: 1 });
      const other = await enqueue("other");
      const second = await queue.enqueue("waiter", 1, { after: [other], delayMs: 60_000 });
      await queue.pass(60_001);
      await run("other");
      expect(await queue.row(second.taskId)).toMatchObject({ parked: 0 });
    });

    test("the death that poisons a dependency wakes its dependents", async () => {
      const one = await enqueue("one");
      await enqueue("waiter", one);
      await queue.database.write([
        sql`update ${table("task")} set deaths = 3 where task_id = ${one}`,
      ]);
      await queue.database.write([
        sql`update ${table("task")} set status = 'claimed', claimed_by = 'pod-1',
          claim_token = 1 where task_id = ${one}`,
      ]);
      const pod = { podId: "pod-1", birthMs: 0, status: "up", beat: 1, passes: 0 } as const;
      const orphans = [{ taskId: one, token: 1, pod }];
      await queue.database.write([
        noteRecovery(orphans),
        recoverTasks(orphans),
        ...wakeDependents([one]),
      ]);
      expect(await queue.get(one)).toMatchObject({ status: "failed" });
      expect(await claim("waiter")).toMatchObject({ dependencyFailed: true });
    });

    test("a claim that is released after a cancel wakes the dependents of its task", async () => {
      const [one, other, third] = [await enqueue("a"), await enqueue("a"), await enqueue("a")];
      const held = [one, other].map(async (each) => enqueue("waiter", each, third));
      await Promise.all(held);
      await queue.claim("pod-1", ["a"], 3, { call: 70 });
      await queue.cancel(one);
      expect(await claim("waiter")).toBeUndefined();
      await queue.database.write(releaseCall("pod-1", 70));
      expect(await queue.get(one)).toMatchObject({ status: "cancelled" });
      expect(await queue.get(other)).toMatchObject({ status: "pending" });
      expect(await queue.claim("pod-1", ["waiter"], 5, { call: 71 })).toMatchObject([
        { dependencyFailed: true },
      ]);
    });

    test("a waiter that is cancelled runs no more, and wakes its own waiters", async () => {
      const one = await enqueue("one");
      const waiter = await enqueue("waiter", one);
      await enqueue("last", waiter);
      expect(await queue.cancel(waiter)).toBe("cancelled");
      expect(await claim("last")).toMatchObject({ dependencyFailed: true });
      await run("one");
      expect(await claim("waiter")).toBeUndefined();
    });

    test("a cancel that is sent twice wakes once", async () => {
      const one = await enqueue("one");
      const waiter = await enqueue("waiter", one);
      await queue.database.write(cancelTask(one, "request"));
      const before = await queue.row(waiter);
      await queue.database.write(cancelTask(one, "request"));
      expect(await queue.row(waiter)).toEqual(before);
    });

    test("a cancel leaves the others alone that wait for what was cancelled before", async () => {
      const [one, open] = [await enqueue("one"), await enqueue("open")];
      const given = { after: [one, open], afterFailed: "run" } as const;
      const waiter = await queue.enqueue("waiter", 1, given);
      const other = await queue.enqueue("waiter", 2, given);
      await queue.cancel(one);
      const before = await queue.row(other.taskId);
      await queue.cancel(waiter.taskId);
      expect(await queue.row(other.taskId)).toEqual(before);
    });

    test("starting a failed waiter over has it wait again for what is open", async () => {
      const one = await enqueue("one");
      const waiter = await enqueue("waiter", one);
      await run("one", threw);
      await run("waiter", { type: "unmet", error: { code: "dependency_failed", message: "x" } });
      await queue.retry(one);
      expect(await queue.get(waiter)).toMatchObject({ status: "failed" });
      await queue.retry(waiter);
      expect(await claim("waiter")).toBeUndefined();
      await run("one");
      const claimed = await claim("waiter");
      expect(claimed).toMatchObject({ taskId: waiter });
      expect(claimed?.dependencyFailed).toBeUndefined();
    });

    test("starting one over whose awaited task has failed for good dooms it again", async () => {
      await enqueue("waiter", await enqueue("one"));
      await run("one", threw);
      const claimed = (await claim("waiter"))!;
      await end(claimed, threw);
      await queue.retry(claimed.taskId);
      expect(await claim("waiter")).toMatchObject({ dependencyFailed: true });
    });

    test("a dependency is kept until its dependents have ended, and their notes go with them", async () => {
      const one = await enqueue("one");
      const waiter = await enqueue("waiter", one);
      await run("one");
      await queue.pass(120_000);
      const prune = (...ids: string[]) =>
        queue.database.write(
          deleteFinished(ids, { completed: 90_000, failed: 90_000, cancelled: 90_000 }),
        );
      await prune(one);
      expect(await queue.get(one)).toBeDefined();
      await run("waiter");
      await prune(one);
      expect(await queue.get(one)).toBeUndefined();
      expect(await queue.get(waiter)).toMatchObject({ waitsFor: [one] });
      await queue.pass(120_000);
      await prune(waiter);
      expect(await queue.get(waiter)).toBeUndefined();
      expect(await queue.database.read(sql`select * from ${table("task_dependency")}`)).toEqual([]);
    });
  });
}
