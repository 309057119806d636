import { task, throttle } from "flotilla";
import { testFlotilla } from "flotilla/testing";
import { describe, expect, test } from "vitest";

describe("a throttle under test", () => {
  test("is shared by pods on the test's clock, which are never above its limit", async () => {
    const api = throttle("api", { pinned: 4 });
    let now = 0;
    let peak = 0;
    const pods = new Set<string>();
    const ask = task("ask", { throttle: api }, () =>
      api.run(async () => {
        peak = Math.max(peak, ++now);
        await new Promise<void>((resolve) => void t.clock.after(500, resolve));
        now--;
      }),
    );
    await using t = await testFlotilla({ use: [ask], pods: 2 });
    const tasks = await t.enqueueMany(
      ask,
      Array.from({ length: 60 }, () => null),
    );

    for (let step = 0; step < 20; step++) {
      await t.advance(1_000);
      for (const pod of (await t.throttles.get("api"))?.pods ?? []) {
        if (pod.inFlight > 0) pods.add(pod.podId);
      }
    }

    for (const { taskId } of tasks)
      expect(await t.tasks.get(taskId)).toMatchObject({ failures: 0, status: "completed" });
    expect(peak).toBe(4);
    expect(pods).toEqual(new Set(t.pods.map(({ podId }) => podId)));
  });

  test("learns what a downstream takes, in moments", async () => {
    const api = throttle("learning");
    let now = 0;
    const ask = task("ask", { throttle: api, attempts: 100 }, () =>
      api.run(async () => {
        if (now >= 10) throw Object.assign(new Error("too many"), { status: 429 });
        now++;
        await new Promise<void>((resolve) => void t.clock.after(100, resolve));
        now--;
      }),
    );
    await using t = await testFlotilla({ use: [ask] });
    await t.enqueueMany(
      ask,
      Array.from({ length: 5_000 }, () => null),
    );
    await t.advance(60_000);

    const { bound, outcomes } = (await t.throttles.get("learning"))!;
    expect(bound).toBeGreaterThanOrEqual(8);
    expect(bound).toBeLessThanOrEqual(12);
    expect(outcomes.throttled / outcomes.success).toBeLessThan(0.05);
    await t.throttles.pin("learning", 1);
    expect(await t.throttles.get("learning")).toMatchObject({ bound: 1, pinned: 1 });
  });

  test("gives the permits of a pod that has crashed to others, once its calls must be over", async () => {
    const api = throttle("crashed", {
      pinned: 1,
      callTimeoutMs: 5_000,
      graceMs: 0,
      leaseMs: 10_000,
    });
    let ran = 0;
    const ask = task("ask", { throttle: api }, () => api.run(() => void ran++));
    await using t = await testFlotilla({ use: [ask] });
    t.crashAfter("started");
    const enqueued = await t.enqueue(ask, null);
    await t.advance(2_000);
    await t.startPod();
    await t.advance(8_000);
    expect(ran).toBe(0);
    await t.advance(20_000);
    expect(await t.result(enqueued)).toBeNull();
    expect(ran).toBe(1);
  });
});
