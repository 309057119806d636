import { readFile } from "node:fs/promises";
import { setTimeout as realSleep } from "node:timers/promises";
import { abort, task } from "flotilla";
import { testFlotilla } from "flotilla/testing";
import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";

const greet = task("greet", {
  input: z.object({ name: z.string() }),
  output: z.object({ text: z.string(), at: z.date() }),
});
const greeter = greet.handle(async ({ input }) => ({
  text: `hello ${input.name}`,
  at: new Date(0),
}));

describe("a task under test", () => {
  test("is run and gives its result, typed as what JSON leaves of it", async () => {
    await using t = await testFlotilla({ use: [greeter] });

    const result = await t.run(greet, { name: "ada" });

    expect(result).toEqual({ text: "hello ada", at: "1970-01-01T00:00:00.000Z" });
    expectTypeOf(result).toEqualTypeOf<{ text: string; at: string }>();
    // @ts-expect-error the input has a name, which is text
    await expect(t.run(greet, { name: 1 })).rejects.toMatchObject({ code: "invalid_input" });
  });

  test("may await real files and real timers", async () => {
    const size = task("size", {}, async () => {
      await realSleep(30);
      return (await readFile(import.meta.filename)).byteLength;
    });
    await using t = await testFlotilla({ use: [size] });
    expect(await t.run(size, null)).toBeGreaterThan(100);
  });

  test("is tried again after its backoff, over which the clock is moved", async () => {
    const attempts: { attempt: number; atMs: number }[] = [];
    const flaky = task("flaky", { backoff: { baseMs: 60_000, jitter: 0 } }, ({ attempt }) => {
      attempts.push({ attempt, atMs: t.clock.now() });
      if (attempt < 3) throw new Error("not yet");
      return "done";
    });
    await using t = await testFlotilla({ use: [flaky] });

    expect(await t.run(flaky, null)).toBe("done");

    expect(attempts.map((each) => each.attempt)).toEqual([1, 2, 3]);
    expect(attempts[1]!.atMs - attempts[0]!.atMs).toBeGreaterThanOrEqual(60_000);
    expect(attempts[2]!.atMs - attempts[1]!.atMs).toBeGreaterThanOrEqual(120_000);
    const { tasks } = await t.tasks.list();
    expect((await t.tasks.events(tasks[0]!.taskId)).map((event) => event.type)).toEqual([
      "retry",
      "retry",
    ]);
  });

  test("that fails rejects with what went wrong, and can be retried", async () => {
    let broken = true;
    const fragile = task("fragile", {}, () => {
      if (broken) throw abort("out of paper");
      return "printed";
    });
    await using t = await testFlotilla({ use: [fragile] });
    const { taskId } = await t.enqueue(fragile, null);

    await expect(t.result({ taskId, created: true })).rejects.toMatchObject({
      code: "task_failed",
      message: expect.stringContaining("out of paper"),
    });
    broken = false;
    await t.tasks.retry(taskId);

    expect(await t.settled(taskId)).toMatchObject({ status: "completed", result: "printed" });
    expect((await t.tasks.stats()).byStatus).toMatchObject({ completed: 1, failed: 0 });
  });

  test("waits for its time", async () => {
    const starts: number[] = [];
    const later = task("later", {}, () => void starts.push(t.clock.monotonic()));
    await using t = await testFlotilla({ use: [later] });
    const { taskId } = await t.enqueue(later, null, { delayMs: 600_000 });

    await t.advance(599_999);
    expect(await t.tasks.get(taskId)).toMatchObject({ status: "pending" });
    await t.advance(1_001);

    expect(await t.tasks.get(taskId)).toMatchObject({ status: "completed" });
    expect(starts[0]).toBeGreaterThanOrEqual(600_000);
  });

  test("that never settles is failed by its timeout when the clock gets there", async () => {
    const stuck = task("stuck", { timeoutMs: 60_000, attempts: 1 }, () => new Promise(() => {}));
    await using t = await testFlotilla({ use: [stuck], graceMs: 1_000 });
    const { taskId } = await t.enqueue(stuck, null);

    await t.advance(59_000);
    expect(await t.tasks.get(taskId)).toMatchObject({ status: "claimed" });
    await t.advance(3_000);

    expect(await t.tasks.get(taskId)).toMatchObject({
      status: "failed",
      error: { code: "timeout" },
    });
  });

  test("that still runs after the real limit rejects with what to do instead", async () => {
    const stuck = task("stuck", {}, () => new Promise(() => {}));
    await using t = await testFlotilla({ use: [stuck], realLimitMs: 50 });
    await expect(t.run(stuck, null)).rejects.toThrow("use enqueue() and advance()");
  });

  test("without a handler rejects with that", async () => {
    await using t = await testFlotilla({ use: [greeter], realLimitMs: 50 });
    const { taskId } = await t.enqueue("unknown", null);
    await expect(t.settled(taskId)).rejects.toThrow("does a pod have its handler?");
  });

  test("is cancelled through its signal", async () => {
    const patient = task("patient", {}, ({ signal }) => {
      return new Promise((_, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason as Error));
      });
    });
    await using t = await testFlotilla({ use: [patient] });
    const { taskId } = await t.enqueue(patient, null);
    await t.advance(10);

    expect(await t.tasks.cancel(taskId)).toBe("cancelling");
    await t.advance(5_000);

    expect(await t.tasks.get(taskId)).toMatchObject({ status: "cancelled" });
  });
});

describe("a crash", () => {
  const charge = task("charge", { input: z.object({ cents: z.number() }) });
  const ledger: number[] = [];
  const charger = charge.handle(({ input, token }) => {
    ledger.push(token);
    return { charged: input.cents };
  });

  test.each([
    { point: "claimed" as const, tokens: [2] },
    { point: "started" as const, tokens: [2] },
    { point: "ran" as const, tokens: [1, 2] },
    { point: "finished" as const, tokens: [1] },
  ])("when a task was $point: another pod makes it complete", async ({ point, tokens }) => {
    ledger.length = 0;
    await using t = await testFlotilla({ use: [charger] });
    const crash = t.crashAfter(point);
    const { taskId } = await t.enqueue(charge, { cents: 5 });
    await t.advance(10);
    expect(crash.pod).toBe(t.pods[0]);
    expect(t.pods[0]!.alive).toBe(false);

    await t.startPod();
    await t.advance(10_000);

    expect(await t.tasks.get(taskId)).toMatchObject({
      status: "completed",
      result: { charged: 5 },
    });
    expect(ledger).toEqual(tokens);
  });

  test.each([
    { point: "step_ran" as const, calls: ["reserve", "reserve", "pay"] },
    { point: "step_stored" as const, calls: ["reserve", "pay"] },
  ])("when a step was at $point: only what wasn't stored runs again", async ({ point, calls }) => {
    const called: string[] = [];
    const order = task("order", {}, async ({ step }) => {
      await step("reserve", () => void called.push("reserve"));
      return step("pay", () => called.push("pay"));
    });
    await using t = await testFlotilla({ use: [order] });
    const crash = t.crashAfter(point);
    const { taskId } = await t.enqueue(order, null);
    await t.advance(10);
    expect(crash.pod).toBe(t.pods[0]);
    await t.startPod();
    await t.advance(10_000);
    expect(await t.tasks.get(taskId)).toMatchObject({ status: "completed" });
    expect(called).toEqual(calls);
  });

  test("in the middle of a handler: what it returns later goes nowhere", async () => {
    const release: ((value: string) => void)[] = [];
    const slow = task("slow", {}, () => new Promise<string>((resolve) => release.push(resolve)));
    await using t = await testFlotilla({ use: [slow] });
    const { taskId } = await t.enqueue(slow, null);
    await t.advance(10);

    t.crash(t.pods[0]!);
    release[0]!("from the dead");
    const second = await t.startPod();
    await t.advance(10_000);

    expect(await t.tasks.get(taskId)).toMatchObject({ status: "claimed", claimedBy: second.podId });
    expect((await t.tasks.events(taskId)).map((event) => event.type)).toEqual(["pod_died"]);
    release[1]!("from the living");
    expect(await t.settled(taskId)).toMatchObject({ result: "from the living", deaths: 1 });
  });

  test("of every pod: waiting for a task rejects as no pod is left", async () => {
    await using t = await testFlotilla({ use: [greeter], pods: 0 });
    await expect(t.run(greet, { name: "ada" })).rejects.toThrow("no pod is alive");
  });

  test("never comes to a pod that is stopped: it gives its tasks back at once", async () => {
    const polite = task("polite", {}, ({ signal }) => {
      return new Promise((_, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason as Error));
      });
    });
    await using t = await testFlotilla({ use: [polite], shutdownMs: 1_000 });
    const { taskId } = await t.enqueue(polite, null);
    await t.advance(10);

    const stopped = t.pods[0]!.stop();
    await t.advance(1_500);
    await stopped;

    expect(await t.tasks.get(taskId)).toMatchObject({ status: "pending", failures: 0, deaths: 0 });
  });
});
