import { abort, schedule, snooze, task, type TaskShortcuts } from "flotilla";
import { testFlotilla } from "flotilla/testing";
import { describe, expect, test } from "vitest";

const hourMs = 3_600_000;
const echo = task("echo", {}, ({ input }) => input);

describe("time in a test", () => {
  test("fires schedules, over weeks as well", async () => {
    const times: string[] = [];
    const scheduled: (number | undefined)[] = [];
    const report = task("report", {}, ({ scheduledAtMs }) => {
      times.push(new Date(t.clock.now()).toISOString());
      scheduled.push(scheduledAtMs);
    });
    const weekly = schedule("weekly", { task: report, pattern: "30 3 * * 1", zone: "UTC" });
    await using t = await testFlotilla({ use: [report], schedules: [weekly] });

    await t.advance(21 * 24 * hourMs);

    expect(times.map((each) => each.slice(0, 19))).toEqual([
      "2026-01-05T03:30:00",
      "2026-01-12T03:30:00",
      "2026-01-19T03:30:00",
    ]);
    // Handlers are told the time itself, however long after it they run.
    const [first, second, third] = [5, 12, 19].map((day) => Date.UTC(2026, 0, day, 3, 30));
    expect(scheduled).toEqual([first, second, third]);
    await t.schedules.pause("weekly");
    await t.advance(7 * 24 * hourMs);
    expect(times).toHaveLength(3);
    const { taskId } = await t.schedules.fire("weekly");
    await t.settled(taskId);
    await t.waitFor(await t.enqueue(report, null));
    expect(scheduled.slice(3)).toEqual([undefined, undefined]);
  });

  test("passes for a task whose steps wait, without a word of the test", async () => {
    const patient = task("patient", {}, async ({ step }) => {
      await step.sleep("night", 8 * hourMs);
      const [said] = await step.children("echo", [[echo, "hello"]]);
      return said as string;
    });
    await using t = await testFlotilla({ use: [patient, echo] });
    const beganMs = t.clock.now();
    expect(await t.run(patient, null)).toBe("hello");
    expect(t.clock.now() - beganMs).toBeGreaterThanOrEqual(8 * hourMs);
  });

  test("leaps over nothing that a test or a handler waits for", async () => {
    const seen: number[] = [];
    const timely = task("timely", { timeoutMs: 10 * hourMs }, () => {
      return new Promise<void>((resolve) => {
        t.clock.after(90_000, () => {
          seen.push(t.clock.monotonic());
          resolve();
        });
      });
    });
    await using t = await testFlotilla({ use: [timely] });
    await t.enqueue(timely, null, { delayMs: hourMs });
    t.clock.after(2 * hourMs, () => seen.push(t.clock.monotonic()));
    const startedMs = t.clock.monotonic();

    await t.advance(3 * hourMs);

    expect(seen).toHaveLength(2);
    expect(seen[0]! - startedMs).toBeGreaterThanOrEqual(hourMs + 90_000);
    expect(seen[0]! - startedMs).toBeLessThan(hourMs + 95_000);
    expect(seen[1]! - startedMs).toBe(2 * hourMs);
    expect(t.clock.monotonic() - startedMs).toBe(3 * hourMs);
  });

  test("ends a handler that never settles when its timeout has passed, not after a leap", async () => {
    const stuck = task("stuck", { timeoutMs: 60_000, attempts: 1 }, () => new Promise(() => {}));
    await using t = await testFlotilla({ use: [stuck], graceMs: 1_000 });
    const { taskId } = await t.enqueue(stuck, null);
    await t.advance(hourMs);
    const failed = await t.tasks.get(taskId);
    expect(failed).toMatchObject({ status: "failed", error: { code: "timeout" } });
    expect(failed!.updatedAtMs - failed!.createdAtMs).toBeLessThan(70_000);
  });

  test("doesn't keep a dead pod's task: a leap waits until it was recovered", async () => {
    await using t = await testFlotilla({ use: [echo], pods: 2 });
    t.crashAfter("started");
    const { taskId } = await t.enqueue(echo, 1);
    await t.advance(24 * hourMs);
    const done = await t.tasks.get(taskId);
    expect(done).toMatchObject({ status: "completed", deaths: 1 });
    expect(done!.updatedAtMs - done!.createdAtMs).toBeLessThan(20_000);
  });
});

describe("what a test can wait for", () => {
  test("a state that has passed already", async () => {
    const twice = task(
      "twice",
      { backoff: { baseMs: hourMs, jitter: 0 } },
      ({ attempt, snoozes }) => {
        if (snoozes === 0) throw snooze(hourMs);
        if (attempt === 1) throw new Error("not yet");
        return "done";
      },
    );
    await using t = await testFlotilla({ use: [twice] });
    const enqueued = await t.enqueue(twice, null);

    expect(await t.reached(enqueued, "snoozed")).toMatchObject({ status: "pending", snoozes: 1 });
    expect(await t.reached(enqueued, "retried")).toMatchObject({ status: "pending", failures: 1 });
    expect(await t.result(enqueued)).toBe("done");

    for (const state of ["claimed", "snoozed", "retried", "completed"] as const) {
      expect(await t.reached(enqueued, state)).toMatchObject({ status: "completed" });
    }
    await expect(t.reached(enqueued, "failed")).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringContaining("was never failed"),
    });
  });

  test("an end that came before the task was started over", async () => {
    let broken = true;
    const fragile = task("fragile", {}, () => {
      if (broken) throw abort("out of paper");
      return "printed";
    });
    await using t = await testFlotilla({ use: [fragile] });
    const { taskId } = await t.enqueue(fragile, null);
    await t.reached(taskId, "failed");
    broken = false;
    await t.tasks.retry(taskId);
    expect(await t.result(taskId)).toBe("printed");
    expect(await t.reached(taskId, "failed")).toMatchObject({ status: "completed" });
  });

  test("any condition that it can read, until the real limit", async () => {
    await using t = await testFlotilla({ use: [echo] });
    const { taskId } = await t.enqueue(echo, 1, { delayMs: 24 * hourMs });
    await t.until(async () => (await t.tasks.get(taskId))!.status === "completed");

    await using hasty = await testFlotilla({ use: [echo], realLimitMs: 20 });
    await expect(hasty.until(() => false)).rejects.toMatchObject({ code: "timeout" });
    expect(Number.isFinite(hasty.clock.monotonic())).toBe(true);
  });
});

describe("everything else works as it does on a real store", () => {
  test("tasks that wait for others get what those gave", async () => {
    const sum = task("sum", {}, async ({ parents }) => {
      const ended = await parents();
      return ended.reduce(
        (all, each) => all + (each.status === "completed" ? Number(each.result) : 0),
        0,
      );
    });
    await using t = await testFlotilla({ use: [echo, sum] });
    const made = await t.enqueueGraph([
      { ref: "one", task: echo, input: 1 },
      { ref: "two", task: echo, input: 2 },
      { ref: "sum", task: sum, input: null, after: ["one", "two"] },
    ]);
    expect(await t.result(made.sum)).toBe(3);
  });

  test("limits, pauses and tenants hold tasks up", async () => {
    const release: (() => void)[] = [];
    const call = task("call", { concurrency: { limit: 1, key: () => "one" } }, () => {
      return new Promise<void>((resolve) => release.push(resolve));
    });
    await using t = await testFlotilla({ use: [call, echo] });
    await t.enqueueMany(call, [1, 2]);
    await t.advance(5_000);
    expect(release).toHaveLength(1);
    await t.tasks.limits.set("key/call/one", 2);
    await t.advance(5_000);
    expect(release).toHaveLength(2);
    for (const each of release) each();

    await t.tasks.pause("echo");
    const { taskId } = await t.enqueue(echo, 1);
    await t.advance(60_000);
    expect(await t.tasks.get(taskId)).toMatchObject({ status: "pending" });
    await t.tasks.resume("echo");
    expect(await t.result(taskId)).toBe(1);
  });

  test("all tasks that match a filter are retried at once", async () => {
    let works = false;
    const flaky = task("flaky", { attempts: 1 }, () => {
      if (!works) throw new Error("not yet");
    });
    await using t = await testFlotilla({ use: [flaky] });
    const made = await t.enqueueMany(flaky, [1, 2, 3]);
    for (const each of made) expect(await t.settled(each)).toMatchObject({ status: "failed" });
    works = true;
    const { bulkId } = await t.bulk.start({ action: "retry", filter: { status: "failed" } });
    await t.until(async () => (await t.bulk.get(bulkId))!.state === "done");
    expect(await t.bulk.get(bulkId)).toMatchObject({ done: 3, skipped: 0 });
    for (const each of made) expect(await t.settled(each)).toMatchObject({ status: "completed" });
  });

  test("failed tasks are grouped, redriven step by step, and followed up", async () => {
    let broken = true;
    const followed: unknown[] = [];
    const print = task(
      "print",
      { attempts: 1, onFailure: ({ input }) => void followed.push(input.error.message) },
      () => {
        if (broken) throw new Error("out of paper");
      },
    );
    await using t = await testFlotilla({ use: [print] });
    for (const { taskId } of await t.enqueueMany(print, [1, 2, 3])) await t.settled(taskId);
    await t.until(() => followed.length === 3);
    const { groups } = await t.deadLetters.groups();
    expect(groups).toMatchObject([{ name: "print", tasks: 3 }]);

    broken = false;
    const { redriveId } = await t.deadLetters.redrive({ group: groups[0]!.group });
    await t.until(async () => (await t.deadLetters.getRedrive(redriveId))!.state === "done");
    expect((await t.tasks.stats()).byName["print"]).toMatchObject({ completed: 3, failed: 0 });
  });

  test("middleware and `onStart` of the config are in effect", async () => {
    const order: string[] = [];
    await using t = await testFlotilla({
      use: [task("work", {}, () => void order.push("handler"))],
      middleware: [
        async (_, next) => {
          order.push("before");
          return next();
        },
      ],
      onStart: async ({ tasks }) => void (await tasks.enqueue("work", null)),
    });
    await t.until(() => order.length === 2);
    expect(order).toEqual(["before", "handler"]);
  });

  test("a pod crashes after the third task that it has finished", async () => {
    await using t = await testFlotilla({ use: [echo], slots: 1, target: 1 });
    const crash = t.crashAfter("finished", { times: 3 });
    await t.enqueueMany(echo, [1, 2, 3, 4, 5]);
    await t.advance(60_000);
    expect(crash.pod).toBe(t.pods[0]);
    expect((await t.tasks.stats()).byStatus).toMatchObject({ completed: 3 });
    await t.startPod();
    await t.advance(60_000);
    expect((await t.tasks.stats()).byStatus).toMatchObject({ completed: 5 });
  });

  test("a point that there isn't is refused, with those there are", async () => {
    await using t = await testFlotilla({ use: [echo] });
    expect(() => t.crashAfter("comitted" as "finished")).toThrow(
      "must be one of claimed, started, chunk, ran, finished, step_ran, step_stored, later, stored",
    );
  });

  test("code that takes a producer takes what a test has", async () => {
    const signUp = async (flotilla: TaskShortcuts) =>
      flotilla.waitFor(await flotilla.enqueue(echo, "ada"));
    await using t = await testFlotilla({ use: [echo] });
    expect(await signUp(t)).toBe("ada");
  });
});
