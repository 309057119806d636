import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { FlotillaError } from "../../base/errors.ts";
import { silentLogger } from "../../base/log.ts";
import { beat } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { createFleetLearning } from "../../throttles/shares/fleet-learning.ts";
import { storeThrottle } from "../../throttles/contract/shares-stored.ts";
import { throttle, type Throttle } from "../../throttles/throttle.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import type { Task } from "../rows.ts";
import { task } from "../task.ts";
import { throttlesOf } from "../run/pod-status.ts";
import { countedCalls, workThrottled } from "./throttled-pod.ts";
import type { TaskHandler } from "../model.ts";

/** What tasks of throttled names promise on every store. */
export function throttleContract(kind: StoreKind): void {
  describe(`throttled tasks on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const completed = sql`status = 'completed'`;
    const allDone = (count: number) =>
      // In small steps: a database's own clock doesn't leap, and calls mustn't look long beside it.
      queue.until(`${count} tasks done`, async () => (await queue.count(completed)) === count, {
        stepMs: 2,
      });
    const attempted = sql`retry_count > 0 or deaths > 0 or snoozes > 0`;

    test.each([
      ["makes one call", 1],
      ["makes no call", 0],
      ["makes three calls, one after the other", 3],
    ])("with a limit of one get through where the handler %s", async (_, count) => {
      const api = throttle("api", { pinned: 1 });
      const calls = countedCalls(queue);
      const ask = task("ask", { throttle: api }, async () => {
        for (let made = 0; made < count; made++) await api.run(() => calls.call());
      });
      await workThrottled(queue, "pod-1", [ask]);
      await queue.enqueueMany("ask", [1, 2, 3, 4, 5]);
      await allDone(5);
      expect(calls).toMatchObject({ total: 5 * count, peak: Math.min(1, count) });
      expect(await queue.count(attempted)).toBe(0);
    });

    test("wait unclaimed and uncounted while all permits are taken, and the pod publishes why", async () => {
      const api = throttle("api", { pinned: 2 });
      const calls = countedCalls(queue);
      const ask = task("ask", { throttle: api }, () => api.run(() => calls.call(60_000)));
      const { worker } = await workThrottled(queue, "pod-1", [ask]);
      await queue.enqueueMany("ask", [1, 2, 3, 4, 5]);
      await queue.until("two calls", () => calls.now === 2);
      await queue.pass(5_000);
      expect(await queue.count(sql`status = 'pending' and claim_token = 0`)).toBe(3);
      expect(worker.running).toBe(2);
      expect(worker.capacity.reasons).toMatchObject([
        { code: "throttled", text: expect.stringMatching(/^"ask" throttled: "api" lets 2 /) },
      ]);
    });

    test("are shown with what holds them up, and others without", async () => {
      const api = throttle("api", { pinned: 1 });
      const calls = countedCalls(queue);
      const ask = task("ask", { throttle: api }, () => api.run(() => calls.call(60_000)));
      await workThrottled(queue, "pod-1", [ask]);
      const metadata = { names: ["ask", "plain"], throttles: throttlesOf([ask]) };
      await queue.database.write([beat("pod-2", JSON.stringify(metadata), 0)]);
      const plain = await queue.enqueue("plain", 1);
      const [first] = await queue.enqueueMany("ask", [1]);
      await queue.until("a call", () => calls.now === 1);
      const [held] = await queue.enqueueMany("ask", [2]);
      expect(await queue.get(first!.taskId)).not.toHaveProperty("throttledBy");
      const seen = await queue.until(
        "what holds it up",
        async () => {
          const found = await queue.get(held!.taskId);
          // Pods say once a second how things are.
          const by = found?.status === "pending" ? found.throttledBy : undefined;
          return by?.inFlight === 1 && by;
        },
        { stepMs: 100 },
      );
      expect(seen).toEqual({
        name: "api",
        key: "",
        limit: 1,
        inFlight: 1,
        waiting: 1,
        ahead: 0,
        aboutMs: null,
      });
      expect(await queue.get(plain.taskId)).toMatchObject({ throttledBy: null });
      const { tasks } = await queue.list({ name: "ask", status: "pending" });
      expect(tasks).toMatchObject([{ throttledBy: { name: "api" } }]);
    });

    describe("are shown with about how long they will wait", () => {
      const watch = async (handlers: readonly TaskHandler[]) => {
        const names = handlers.map(({ name }) => name);
        const metadata = JSON.stringify({ names, throttles: throttlesOf(handlers) });
        await queue.database.write([beat("pod-9", metadata, 0)]);
      };
      const heldOf = (task: Task | undefined) =>
        task?.status === "pending" ? (task.throttledBy ?? undefined) : undefined;
      const count = (length: number) => Array.from({ length }, (_, at) => at);

      test("by all that stands before them, and not by what pods have come to yet", async () => {
        const { database, clock } = queue;
        const permits = 4;
        const api = throttle("api", { pinned: permits });
        const calls = countedCalls(queue);
        const handlers = ["ask", "tell"].map((name) =>
          task(name, { throttle: api }, () => api.run(() => calls.call(10_000))),
        );
        await queue.enqueueMany("ask", count(40));
        const { taskId } = (await queue.enqueueMany("tell", count(60))).at(-1)!;
        for (const podId of ["pod-1", "pod-2"]) await workThrottled(queue, podId, handlers);
        await watch(handlers);
        const learning = createFleetLearning({ database, clock, log: silentLogger });
        /** The store's answers take next to none of the time that calls take. */
        const round = async () => {
          const isFull = () => calls.now === permits || calls.total === 100;
          await queue.until("calls with all permits", isFull);
          const began = calls.total;
          const inFlight = calls.now;
          await queue.until("their end", () => calls.total - calls.now >= began, { stepMs: 2_500 });
          return inFlight;
        };
        const said = await queue.until("an estimate", async () => {
          await round();
          await learning.pass();
          const held = heldOf(await queue.get(taskId));
          return held?.aboutMs ? { ...held, aboutMs: held.aboutMs } : undefined;
        });
        const fromMs = clock.monotonic();
        // What a pod gave back a moment ago may stand behind it.
        expect(said.waiting).toBeGreaterThan(said.ahead);
        while ((await queue.get(taskId))?.status === "pending") await round();
        const tookMs = clock.monotonic() - fromMs;
        expect(tookMs).toBeGreaterThan(30_000);
        expect(said.aboutMs).toBeGreaterThan(tookMs / 2);
        expect(said.aboutMs).toBeLessThan(tookMs * 2);
      });

      const use = throttle("api");
      const quickAndSlow = [
        task("quick", { throttle: { use, priority: "interactive" } }, () => {}),
        task("slow", { throttle: use }, () => {}),
        task("apart", { throttle: use.key("other") }, () => {}),
      ];

      test("by their own place, the more urgent first, without what is paused or waits elsewhere", async () => {
        const pods = { "pod-1": { share: 2, inFlight: 2, waiting: 9, callsWaiting: 4 } };
        const stats = { meanMs: 1_000 };
        await storeThrottle(queue.database, { name: "api", key: "", bound: 2, stats, pods });
        await watch(quickAndSlow);
        const slow = await queue.enqueueMany("slow", count(30));
        const [soon] = await queue.enqueueMany("slow", [1], { priority: 5 });
        const quick = await queue.enqueueMany("quick", count(3));
        const [apart] = await queue.enqueueMany("apart", [1]);
        const { tasks } = await queue.list({ limit: 100 });
        const held = new Map(tasks.map((each) => [each.taskId, heldOf(each)]));
        const inOrder = [...quick, soon!, ...slow].map(({ taskId }) => held.get(taskId)!);
        expect(inOrder.map(({ ahead }) => ahead)).toEqual(count(34).map((at) => 4 + at));
        expect(inOrder.map(({ aboutMs }) => aboutMs)).toEqual(
          count(34).map((at) => 2_500 + at * 500),
        );
        expect(new Set(inOrder.map(({ waiting }) => waiting))).toEqual(new Set([38]));
        expect(held.get(apart!.taskId)).toBeUndefined();
        await queue.pause("quick");
        expect(heldOf(await queue.get(slow[0]!.taskId))).toMatchObject({ ahead: 5, waiting: 35 });
      });

      test("by one read of the queue in two seconds, however many callers", async () => {
        const pods = { "pod-1": { share: 2, inFlight: 2, waiting: 9 } };
        await storeThrottle(queue.database, { name: "api", key: "", bound: 2, pods });
        await watch(quickAndSlow);
        const slow = await queue.enqueueMany("slow", count(5));
        const ahead = async (at: number) => heldOf(await queue.get(slow[at]!.taskId))?.ahead;
        expect(await ahead(4)).toBe(4);
        await queue.cancel(slow[0]!.taskId);
        expect(await Promise.all([1, 2, 3, 4].map(ahead))).toEqual([1, 2, 3, 4]);
        await queue.clock.advance(2_000);
        expect(await Promise.all([1, 2, 3, 4].map(ahead))).toEqual([0, 1, 2, 3]);
      });

      test("by what a bucket lets through, where that is less, and by how long all stay away", async () => {
        await storeThrottle(queue.database, {
          name: "api",
          key: "",
          bound: 20,
          constraints: { refillPerS: 100, holdMs: 7_000 },
          stats: { meanMs: 10, meanCost: 50 },
          pods: { "pod-1": { share: 20, inFlight: 1, waiting: 9 } },
        });
        await watch(quickAndSlow);
        const slow = await queue.enqueueMany("slow", count(60));
        expect(heldOf(await queue.get(slow.at(-1)!.taskId))).toMatchObject({ aboutMs: 37_000 });
      });
    });

    test("whose pods have died run alone, with a permit of their own", async () => {
      const api = throttle("api", { pinned: 1 });
      const calls = countedCalls(queue);
      const ask = task("ask", { throttle: api }, () => api.run(() => calls.call()));
      await queue.enqueueMany("ask", [1, 2]);
      await queue.database.write([sql`update ${rowsOf} set deaths = 2`]);
      await workThrottled(queue, "pod-1", [ask]);
      await allDone(2);
      expect(calls).toMatchObject({ total: 2, peak: 1 });
    });

    test("of two names on one throttle take no more than there are permits together", async () => {
      const api = throttle("api", { pinned: 3 });
      const calls = countedCalls(queue);
      const names = ["ask", "tell"];
      const handlers = names.map((name) =>
        task(name, { throttle: api }, () => api.run(() => calls.call(100))),
      );
      const plain = task("plain", {}, () => {});
      const { throttles } = await workThrottled(queue, "pod-1", [...handlers, plain]);
      for (const name of names) await queue.enqueueMany(name, [1, 2, 3, 4, 5, 6]);
      await allDone(12);
      expect(calls.peak).toBe(3);
      await queue.until("no permit out", () => throttles.find("api")?.demand().inFlight === 0);
      // None came that had to be given back for want of a permit.
      expect(await queue.count(sql`claim_token > 1`)).toBe(0);
    });

    test("don't hold up others that aren't throttled", async () => {
      const api = throttle("api", { pinned: 1 });
      const calls = countedCalls(queue);
      const ask = task("ask", { throttle: api }, () => api.run(() => calls.call(60_000)));
      const plain = task("plain", {}, () => "done");
      await workThrottled(queue, "pod-1", [ask, plain]);
      await queue.enqueueMany("ask", [1, 2, 3]);
      await queue.until("a call", () => calls.now === 1);
      const { taskId } = await queue.enqueue(plain, 1);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
      expect(await queue.count(sql`status = 'pending' and claim_token = 0`)).toBe(2);
    });

    test.each([
      ["as soon as there is a permit", (api: Throttle) => api, 20],
      [
        "as soon as there may be one of their key",
        (use: Throttle) => ({ use, key: () => "a" }),
        20,
      ],
      ["when the downstream lets them", (api: Throttle) => api, 0],
    ])("are claimed %s, and not with the next poll", async (_, of, callMs) => {
      const api = throttle("api", { pinned: 1 });
      const calls = countedCalls(queue);
      let throttled = false;
      const ask = task("ask", { throttle: of(api), attempts: 2 }, () =>
        api.key(of(api) === api ? "" : "a").run(async () => {
          if (callMs > 0 || throttled) return calls.call(callMs);
          throttled = true;
          throw Object.assign(new Error("later"), { status: 429, headers: { "retry-after": "1" } });
        }),
      );
      await workThrottled(queue, "pod-1", [ask], { pollMs: 600_000 });
      await queue.enqueueMany("ask", [1, 2, 3, 4, 5]);
      const fromMs = queue.clock.monotonic();
      await allDone(5);
      expect(queue.clock.monotonic() - fromMs).toBeLessThan(300_000);
      expect(calls.peak).toBe(1);
    });

    test("need a permit for every attempt, and wait with the priority of a retry after the first", async () => {
      const api = throttle("api", { pinned: 1 });
      const seen: unknown[] = [];
      const ask = task(
        "ask",
        { throttle: api, attempts: 3, backoff: { baseMs: 10, jitter: 0 } },
        async ({ attempt }) => {
          await api.run(() => void seen.push(api.snapshot().inFlightOf));
          if (attempt < 3) throw new Error("not yet");
        },
      );
      await workThrottled(queue, "pod-1", [ask]);
      await queue.enqueue(ask, 1);
      await allDone(1);
      const inFlightOf = { control: 0, interactive: 0, retry: 0, batch: 0 };
      expect(seen).toEqual([
        { ...inFlightOf, batch: 1 },
        { ...inFlightOf, retry: 1 },
        { ...inFlightOf, retry: 1 },
      ]);
    });

    test("use the limit of the key in their input, and wait for it uncounted", async () => {
      const api = throttle("api", { pinned: 1 });
      const calls = { a: countedCalls(queue), b: countedCalls(queue) };
      type Input = { readonly model: "a" | "b" };
      const ask = task<Input, Input, void, void>(
        "ask",
        { throttle: { use: api, key: (input) => input.model } },
        ({ input }) => {
          running = Math.max(running, worker.running);
          return api.key(input.model).run(() => calls[input.model].call(50));
        },
      );
      let running = 0;
      const { worker } = await workThrottled(queue, "pod-1", [ask]);
      await queue.enqueueMany(ask, [
        ...Array.from({ length: 4 }, () => ({ model: "a" as const })),
        ...Array.from({ length: 4 }, () => ({ model: "b" as const })),
      ]);
      await allDone(8);
      expect(calls.a).toMatchObject({ total: 4, peak: 1 });
      expect(calls.b).toMatchObject({ total: 4, peak: 1 });
      // One of each, and one that was tried.
      expect(running).toBeLessThanOrEqual(3);
      expect(await queue.count(attempted)).toBe(0);
    });

    test("of which the key can't be made have failed, and hold no permit", async () => {
      const api = throttle("api", { pinned: 1 });
      const ask = task(
        "ask",
        {
          attempts: 1,
          throttle: {
            use: api,
            key(): string {
              throw new Error("no model");
            },
          },
        },
        () => {},
      );
      const { throttles } = await workThrottled(queue, "pod-1", [ask]);
      const { taskId } = await queue.enqueue(ask, 1);
      const failed = await queue.ended(taskId);
      expect(failed).toMatchObject({ status: "failed", error: { code: "invalid_option" } });
      expect(throttles.all()).toEqual([]);
    });

    test("that end before their handler is called leave their permit to the next", async () => {
      const api = throttle("api", { pinned: 1, mode: "local" });
      const calls = countedCalls(queue);
      const input = z.object({ model: z.string() });
      const ask = task("ask", { input, throttle: api }, () => api.run(() => calls.call()));
      await workThrottled(queue, "pod-1", [ask]);
      const [wrong] = await queue.enqueueMany("ask", [7]);
      expect(await queue.ended(wrong!.taskId)).toMatchObject({ status: "failed" });
      await queue.enqueue(ask, { model: "a" });
      await allDone(1);
    });

    test("with the more urgent handler go first, whatever else waits", async () => {
      const api = throttle("api", { pinned: 1 });
      const order: string[] = [];
      const calls = countedCalls(queue);
      let goOn = () => {};
      const first = new Promise<void>((resolve) => (goOn = resolve));
      const handlerOf = (name: string, priority: "interactive" | "batch") =>
        task(name, { throttle: { use: api, priority } }, async () => {
          order.push(name);
          await api.run(() => (order.length === 1 ? first : calls.call()));
        });
      const { throttles } = await workThrottled(queue, "pod-1", [
        handlerOf("slow", "batch"),
        handlerOf("quick", "interactive"),
      ]);
      await queue.enqueueMany("slow", [1, 2, 3]);
      await queue.until("a call", () => order.length === 1);
      await queue.enqueueMany("quick", [1, 2]);
      const blockedTasks = () => throttles.find("api")!.demand().blockedTasks;
      await queue.until("both kinds are blocked", () => blockedTasks() >= 3);
      goOn();
      await allDone(5);
      expect(calls.peak).toBe(1);
      expect(order).toEqual(["slow", "quick", "quick", "slow", "slow"]);
    });

    test("stay where they are while their name is paused, and demand no share", async () => {
      const api = throttle("api", { pinned: 2 });
      const ask = task("ask", { throttle: api }, () => {});
      await queue.pause("ask");
      const { throttles } = await workThrottled(queue, "pod-1", [ask]);
      await queue.enqueueMany("ask", [1, 2]);
      await queue.pass(10_000);
      expect(throttles.find("api")?.demand()).toEqual({ inFlight: 0, waiting: 0, blockedTasks: 0 });
      expect(await queue.count(sql`status = 'pending'`)).toBe(2);
      expect(await queue.database.read(sql`select name from ${table("throttle")}`)).toEqual([]);
      await queue.resume("ask");
      await allDone(2);
    });

    test.each(["store_unavailable", "unknown_outcome"] as const)(
      "leave their permits to others when a claim ends with %s",
      async (code) => {
        const api = throttle("api", { pinned: 2, mode: "local" });
        const calls = countedCalls(queue);
        const ask = task("ask", { throttle: api }, () => api.run(() => calls.call()));
        let refuse = true;
        const inFlightThen: number[] = [];
        const database: Database = {
          ...queue.database,
          async write(statements, options) {
            const isClaim = statements.some(({ strings }) =>
              strings.join("").includes("claim_call ="),
            );
            if (!refuse || !isClaim) return queue.database.write(statements, options);
            inFlightThen.push(throttles.find("api")!.demand().inFlight);
            refuse = false;
            throw new FlotillaError(code, "as ordered");
          },
        };
        const { throttles } = await workThrottled(queue, "pod-1", [ask], { database });
        await queue.until("a refused claim", () => inFlightThen.length > 0);
        expect(inFlightThen).toEqual([2]);
        await queue.until("no permit out", () => throttles.find("api")!.demand().inFlight === 0);
        await queue.enqueueMany("ask", [1, 2, 3, 4]);
        await allDone(4);
        expect(calls.peak).toBe(2);
        await queue.until("no permit out", () => throttles.find("api")!.demand().inFlight === 0);
      },
    );

    test("that wait where a pod has no share get it one, and two pods share what there is", async () => {
      const api = throttle("api", { pinned: 4 });
      const calls = { "pod-1": countedCalls(queue), "pod-2": countedCalls(queue) };
      let both = 0;
      let peak = 0;
      const handlerOn = (podId: keyof typeof calls) =>
        task("ask", { throttle: api }, () =>
          api.run(async () => {
            peak = Math.max(peak, ++both);
            await calls[podId].call(200);
            both--;
          }),
        );
      await workThrottled(queue, "pod-1", [handlerOn("pod-1")]);
      await queue.enqueueMany(
        "ask",
        Array.from({ length: 60 }, (_, nth) => nth),
      );
      await queue.until("calls of the first", () => calls["pod-1"].now > 0);
      await workThrottled(queue, "pod-2", [handlerOn("pod-2")]);
      await allDone(60);
      expect(peak).toBeLessThanOrEqual(4);
      expect(calls["pod-2"].total).toBeGreaterThan(5);
      expect(calls["pod-1"].total).toBeGreaterThan(5);
    });

    test("are given back by a pod that stops, and so are their permits", async () => {
      const api = throttle("api", { pinned: 1, mode: "local" });
      const calls = countedCalls(queue);
      const ask = task("ask", { throttle: api }, ({ signal }) =>
        api.run(() => calls.call(60_000), { signal }),
      );
      const { worker } = await workThrottled(queue, "pod-1", [ask]);
      const { taskId } = await queue.enqueue(ask, 1);
      await queue.until("a call", () => calls.now === 1);
      await queue.outcome(worker.stop({ waitMs: 0 }), { stepMs: 10 });
      expect(await queue.get(taskId)).toMatchObject({ status: "pending", failures: 0, deaths: 0 });
    });
  });
}
