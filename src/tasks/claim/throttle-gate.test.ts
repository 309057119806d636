import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Database } from "../../store/database.ts";
import { memoryKind } from "../../store/contract/kinds.ts";
import { sql } from "../../store/sql.ts";
import { declarationOf, throttle } from "../../throttles/throttle.ts";
import { createThrottleRegistry } from "../../throttles/registry.ts";
import { closeStores, openTasks, type TasksHarness } from "../contract/harness.ts";
import { task } from "../task.ts";
import { countedCalls, workThrottled } from "../contract/throttled-pod.ts";
import type { Priority } from "../../throttles/limiter/priority.ts";
import type { TaskHandler } from "../model.ts";

let queue: TasksHarness;
beforeEach(async () => {
  queue = await openTasks(memoryKind);
});
afterEach(() => queue.close());
afterAll(closeStores);

const many = (count: number) => Array.from({ length: count }, (_, nth) => nth);

describe("the throttle gate before the claim", () => {
  test("gives every priority a turn, though more urgent tasks never cease to come", async () => {
    const api = throttle("api", { pinned: 2 });
    const calls = countedCalls(queue);
    const order: string[] = [];
    const handlers = (["interactive", "retry", "batch"] as const).map((priority: Priority) =>
      task(priority, { throttle: { use: api, priority } }, async () => {
        order.push(priority);
        await api.run(() => calls.call());
      }),
    );
    await workThrottled(queue, "pod-1", handlers);
    await queue.enqueueMany("batch", many(2));
    await queue.enqueueMany("retry", many(2));
    await queue.enqueueMany("interactive", many(200));
    await queue.until("many calls", () => order.length >= 100, { stepMs: 20 });
    const countOf = (name: string) => order.filter((each) => each === name).length;
    expect({ retry: countOf("retry"), batch: countOf("batch") }).toEqual({ retry: 2, batch: 2 });
    // Urgent ones go first nevertheless.
    expect(order.slice(4, 15).every((each) => each === "interactive")).toBe(true);
    expect(calls.peak).toBe(2);
  });

  test("wants nothing for a pod that stops, whatever its last claim brings", async () => {
    const api = throttle("api", { pinned: 2, mode: "local" });
    const ask = task("ask", { throttle: api }, () => {});
    let answer: (() => void) | undefined;
    const database: Database = {
      ...queue.database,
      async write(statements, options) {
        const isClaim = statements.some(({ strings }) => strings.join("").includes("claim_call ="));
        const tables = await queue.database.write(statements, options);
        if (isClaim) await new Promise<void>((resolve) => (answer = resolve));
        return tables;
      },
    };
    await queue.enqueueMany("ask", many(9));
    const { worker, throttles } = await workThrottled(queue, "pod-1", [ask], { database });
    await queue.until("a claim", () => answer !== undefined);
    const stopped = worker.stop({ waitMs: 1_000 });
    answer!();
    await queue.outcome(stopped, { stepMs: 10 });
    expect(throttles.find("api")!.demand()).toEqual({ inFlight: 0, waiting: 0, blockedTasks: 0 });
    expect(await queue.count(sql`status = 'pending' and retry_count = 0`)).toBe(9);
  });
});

describe("where as many keys are in use as a pod holds", () => {
  const full = async (handlers: TaskHandler[]) => {
    const { clock, random } = queue;
    const throttles = createThrottleRegistry({ clock, random, maxLimiters: 2 });
    const worker = await queue.work("pod-1", handlers, { throttles });
    // Its first claim has ended by then, and holds nothing.
    await queue.pass(100);
    const { declared } = declarationOf(throttle("busy", { pinned: 1 }));
    const permits = ["a", "b"].flatMap((key) => {
      try {
        return [throttles.of(declared, key).tryAcquire()!];
      } catch {
        return [];
      }
    });
    return { worker, throttles, permits };
  };

  test("a handler's own throttle is always there", async () => {
    const api = throttle("api", { pinned: 1 });
    const { permits } = await full([task("ask", { throttle: api }, () => {})]);
    expect(permits).toHaveLength(1);
    await queue.pass(5_000);
    await queue.enqueueMany("ask", many(3));
    await queue.until("all done", async () => (await queue.count(sql`status = 'completed'`)) === 3);
  });

  test("tasks of other keys wait uncounted", async () => {
    const api = throttle("api", { pinned: 1 });
    const ask = task("ask", { throttle: { use: api, key: () => "c" } }, () => {});
    const { permits } = await full([ask]);
    expect(permits).toHaveLength(2);
    await queue.enqueueMany("ask", many(3));
    await queue.pass(5_000);
    expect(await queue.count(sql`status = 'pending' and retry_count = 0 and deaths = 0`)).toBe(3);
    for (const permit of permits) permit.release("success");
    await queue.until("all done", async () => (await queue.count(sql`status = 'completed'`)) === 3);
  });
});
