import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { createUnblocker } from "../concurrency/unblock.ts";
import { abort, retryAfter } from "../../base/errors.ts";
import { claimReserved } from "../sql/claim.ts";
import { task } from "../task.ts";
import type { TaskContext } from "../model.ts";

type Call = { user: string; n: number };
type Attempt = {
  context: TaskContext<Call>;
  finish: (value: unknown) => void;
  fail: (thrown: unknown) => void;
};

const byNumber = (one: number, other: number) => one - other;

/** What limits promise on every store, with pods that run tasks. */
export function limitsContract(kind: StoreKind): void {
  describe(`limits on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const call = task<Call>("call", { concurrency: { limit: 2, key: ({ user }) => user } });
    /** Runs calls until the test ends them. */
    const held = () => {
      const attempts: Attempt[] = [];
      const handler = call.handle(
        { attempts: 2, backoff: { baseMs: 60_000, jitter: 0 } },
        (context) =>
          new Promise((finish, fail) => {
            attempts.push({ context, finish, fail });
            // So that a test that has seen enough needn't wait for them.
            context.signal.addEventListener("abort", () => fail(context.signal.reason));
          }),
      );
      const running = (user: string) =>
        attempts
          .filter(({ context }) => context.input.user === user)
          .map(({ context }) => context.input.n);
      return { attempts, handler, running };
    };
    const enqueue = async (user: string, ...numbers: number[]) => {
      const ids: string[] = [];
      for (const n of numbers) ids.push((await queue.enqueue(call, { user, n })).taskId);
      return ids;
    };
    const settle = async () => {
      // Every pod that could claim has had the time to do so.
      for (let times = 0; times < 3; times++) await queue.pass(1_500);
    };

    test("no more of a key run than the contract allows, in all pods together, and the next runs when one has ended", async () => {
      const [one, other] = [held(), held()];
      await enqueue("ada", 1, 2, 3, 4);
      await enqueue("bob", 1);
      await queue.work("pod-1", [one.handler]);
      await queue.work("pod-2", [other.handler]);
      const running = (user: string) =>
        [...one.running(user), ...other.running(user)].toSorted(byNumber);
      await queue.until("the first", () => running("ada").length + running("bob").length === 3);
      await settle();
      expect(running("ada")).toEqual([1, 2]);
      expect(await queue.limits.get("key/call/ada")).toMatchObject({
        limit: 2,
        running: 2,
        byHand: false,
      });
      [...one.attempts, ...other.attempts].find(({ context }) => context.input.n === 2)!.finish(0);
      await queue.until("the third", () => running("ada").length === 3);
      expect(running("ada")).toEqual([1, 2, 3]);
    });

    test.each([
      ["is tried again later", retryAfter(60_000, "not now")],
      ["has failed for good", abort("never")],
    ])("what %s frees its slot", async (_, thrown) => {
      const { attempts, handler, running } = held();
      await enqueue("ada", 1, 2, 3);
      await queue.work("pod-1", [handler]);
      await queue.until("the first", () => attempts.length === 2);
      attempts[0]!.fail(thrown);
      await queue.until("the third", () => running("ada").includes(3));
      expect(running("ada")).toEqual([1, 2, 3]);
    });

    test("a task that was unblocked and is cancelled before it runs passes its slot on", async () => {
      const { attempts, handler } = held();
      await queue.limits.set("key/call/ada", 1);
      const ids = await enqueue("ada", 1, 2, 3);
      await queue.work("pod-1", [handler]);
      const blocked = () => queue.count(sql`status = 'pending' and parked = 3`);
      await queue.until("the others to wait", async () => (await blocked()) === 2);
      await queue.pause("call");
      attempts[0]!.finish(0);
      await queue.until("one to go on", async () => (await blocked()) === 1);
      await queue.cancel(ids[1]!);
      expect(await blocked()).toBe(0);
      await queue.resume("call");
      await queue.until("the third", () => attempts.length === 2);
    });

    test("the leader unblocks what waits for slots that are free", async () => {
      const { attempts, handler } = held();
      await enqueue("ada", 1, 2, 3);
      await queue.work("pod-1", [handler]);
      await queue.until(
        "the third to wait",
        async () => (await queue.count(sql`parked = 3`)) === 1,
      );
      const keeping = createUnblocker(queue);
      expect(await keeping.pass()).toEqual({ blocked: 1, freed: 0 });
      await queue.database.write([
        sql`update ${table("task_limit")} set max_running = 3, by_hand = 1`,
      ]);
      expect(await keeping.pass()).toEqual({ blocked: 1, freed: 1 });
      await queue.until("the third", () => attempts.length === 3);
    });

    test("limits that nothing needs are forgotten, unless they were set by hand", async () => {
      const { attempts, handler } = held();
      await queue.limits.set("key/call/bob", 5);
      await enqueue("ada", 1);
      await queue.work("pod-1", [handler]);
      await queue.until("the run", () => attempts.length === 1);
      const scopes = async () =>
        (
          await queue.database.read(sql`select scope from ${table("task_limit")} order by scope`)
        ).map((row) => row["scope"] as string);
      await createUnblocker(queue).pass();
      expect(await scopes()).toEqual(["key/call/ada", "key/call/bob"]);
      attempts[0]!.finish(0);
      await queue.ended(attempts[0]!.context.taskId);
      await createUnblocker(queue).pass();
      expect(await scopes()).toEqual(["key/call/bob"]);
    });

    test("a limit that is set counts more than the code, and more go on when it is raised or taken back", async () => {
      const { attempts, handler } = held();
      await queue.limits.set("key/call/ada", 1);
      await enqueue("ada", 1, 2, 3, 4);
      await queue.work("pod-1", [handler]);
      await queue.until(
        "the others to wait",
        async () => (await queue.count(sql`parked = 3`)) === 3,
      );
      expect(await queue.limits.list()).toEqual([
        { scope: "key/call/ada", limit: 1, byHand: true, running: 1, blocked: 3 },
      ]);
      await queue.limits.set("key/call/ada", 3);
      await queue.until("two more", () => attempts.length === 3);
      await settle();
      expect(attempts).toHaveLength(3);
      await queue.limits.set("key/call/ada", null);
      attempts[0]!.finish(0);
      attempts[1]!.finish(0);
      await queue.until("the last", () => attempts.length === 4);
    });

    test("a tenant runs no more than its limit, and the others run meanwhile", async () => {
      const { attempts, handler } = held();
      await queue.limits.set("tenant/acme", 1);
      const plain = task<Call>("call");
      for (const n of [1, 2, 3]) await queue.enqueue(plain, { user: "x", n }, { tenant: "acme" });
      for (const n of [4, 5]) await queue.enqueue(plain, { user: "x", n }, { tenant: "beta" });
      await queue.enqueue(plain, { user: "x", n: 6 });
      await queue.work("pod-1", [handler]);
      await queue.until("those with room", () => attempts.length === 4);
      await settle();
      const numbers = () => attempts.map(({ context }) => context.input.n).toSorted(byNumber);
      expect(numbers()).toEqual([1, 4, 5, 6]);
      attempts.find(({ context }) => context.input.n === 1)!.finish(0);
      await queue.until("the next of the tenant", () => attempts.length === 5);
      expect(numbers()).toEqual([1, 2, 4, 5, 6]);
    });

    test("what must run alone keeps to its limit as well", async () => {
      const { attempts, handler } = held();
      await queue.limits.set("key/call/ada", 1);
      const [first, second] = await enqueue("ada", 1, 2);
      await queue.work("pod-1", [handler]);
      await queue.until("the first", () => attempts.length === 1);
      await queue.until(
        "the second to wait",
        async () => (await queue.count(sql`parked = 3`)) === 1,
      );
      await queue.database.write([
        sql`update ${rowsOf} set parked = 4, blocked_by = null, deaths = 2 where task_id = ${second!}`,
      ]);
      const other = held();
      await queue.work("pod-2", [other.handler]);
      await settle();
      expect(other.attempts).toHaveLength(0);
      attempts[0]!.finish(0);
      await queue.ended(first!);
      await queue.until("the second", () => attempts.length + other.attempts.length === 2);
      const call = { podId: "pod-1", call: 1_000, names: ["call"], limit: 1 };
      expect(await queue.database.write([claimReserved(call, second!)])).toEqual([[]]);
    });

    test("a key given with the task counts where the contract has none, one at a time", async () => {
      const { attempts, handler } = held();
      for (const n of [1, 2])
        await queue.enqueue("call", { user: "x", n }, { concurrencyKey: "k" });
      await queue.enqueueMany("other", [1, 2], { concurrencyKey: (n) => `k${n}` });
      const other = task<number>("other").handle(() => 0);
      await queue.limits.set("key/call/k", 1);
      await queue.work("pod-1", [handler, other]);
      await queue.until("the others", async () => (await queue.stats()).byStatus.completed === 2, {
        stepMs: 20,
      });
      await settle();
      expect(attempts).toHaveLength(1);
      expect(await queue.limits.get("key/other/k1")).toMatchObject({ limit: 1, running: 0 });
    });

    test.each([
      ["no scope", "acme", 1, "a limit's scope must be"],
      ["tasks without a tenant", "tenant/default", 1, "can't have a limit"],
      ["a limit of nothing", "tenant/acme", 0, "from 1 to 10000, not 0"],
      ["a limit out of reach", "tenant/acme", 10_001, "from 1 to 10000"],
      ["half a task", "tenant/acme", 1.5, "a whole number"],
      ["a key too long", `key/call/${"k".repeat(501)}`, 1, "a limit's scope must be"],
    ])("refuses %s", async (_, scope, limit, message) => {
      await expect(queue.limits.set(scope, limit)).rejects.toThrow(message);
      expect(await queue.limits.list()).toEqual([]);
    });

    test.each([
      ["an empty one", "", "1 to 500 characters"],
      ["one too long", "k".repeat(501), "1 to 500 characters"],
      ["one that no database stores", "\u0000", "1 to 500 characters"],
    ])("refuses a key: %s", async (_, concurrencyKey, message) => {
      await expect(queue.enqueue("call", 1, { concurrencyKey })).rejects.toThrow(message);
      const made = task<Call>("call", { concurrency: { limit: 1, key: () => concurrencyKey } });
      await expect(queue.enqueue(made, { user: "x", n: 1 })).rejects.toThrow(message);
      expect(await queue.count()).toBe(0);
    });
  });
}
