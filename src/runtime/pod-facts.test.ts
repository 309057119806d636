import { describe, expect, test } from "vitest";
import { movableClock } from "../base/contract/movable-clock.ts";
import type { Prices } from "../base/usage.ts";
import { minuteMs } from "../base/durations.ts";
import { snooze } from "../base/errors.ts";
import { flow } from "../flows/flow.ts";
import { leaderAmong, storedPods } from "../pods/pods.ts";
import { maxPulseBytes } from "../pods/pulse.ts";
import { pulsesOf } from "../pods/sql.ts";
import { createSeriesReader } from "../series/series.ts";
import type { Statement } from "../store/sql.ts";
import { task } from "../tasks/task.ts";
import { throttle } from "../throttles/throttle.ts";
import type { Usable } from "./handlers.ts";
import { type Pod } from "./pod.ts";
import { virtualPods } from "./contract/virtual-pods.ts";

/** Pods on one store and one clock, with all that reaches the store. */
async function openFleet() {
  const sent: (readonly Statement[])[] = [];
  const { clock, memory, database, outcome, ...fleet } = await virtualPods({
    // Begins with a minute.
    clock: movableClock(1_800_000_000_000),
    stepMs: 50,
    watch: (store) => ({
      ...store,
      read: (statement, options) => (sent.push([statement]), store.read(statement, options)),
      write: (statements, options) => (sent.push(statements), store.write(statements, options)),
    }),
  });
  return {
    clock,
    outcome,
    database,
    sent,
    aboutSeries: () =>
      sent.filter((statements) =>
        statements.some((each) => /"table":"series"/.test(JSON.stringify(each.parts))),
      ),
    start: (use: readonly Usable[], more: { prices?: Prices } = {}): Promise<Pod> =>
      fleet.start({ use, ...more }, { readMemory: () => 64_000_000 }),
    async series(subject: string) {
      const { points } = await createSeriesReader({ database: memory, clock }).read({ subject });
      return points;
    },
    leader: async () => leaderAmong(await storedPods(memory)),
    pulses: async () => (await storedPods(memory)).map(({ pulse }) => pulse),
    [Symbol.asyncDispose]: fleet.stop,
  };
}

const wait = (fleet: { clock: ReturnType<typeof movableClock> }, forMs: number) =>
  new Promise((resolve) => fleet.clock.after(forMs, () => resolve(null)));

describe("what a pod counts", () => {
  test("is in the series a minute later: outcomes, waits and durations of its tasks", async () => {
    await using fleet = await openFleet();
    const work = task("work", {}, () => wait(fleet, 1_000));
    const broken = task("broken", { attempts: 1 }, () => {
      throw new Error("no");
    });
    const pod = await fleet.start([work, broken]);
    const first = await pod.enqueue(work, null);
    const second = await pod.enqueue(work, null, { delayMs: 5_000 });
    await pod.enqueue(broken, null);
    await fleet.outcome(pod.waitFor(first));
    await fleet.outcome(pod.waitFor(second));
    await fleet.clock.advance(minuteMs);
    const [point] = await fleet.series("task:work");
    expect(point).toMatchObject({
      counts: { completed: 2 },
      run: { count: 2 },
      wait: { count: 2 },
    });
    expect(point!.run!.sumMs).toBeGreaterThanOrEqual(2_000);
    expect(point!.run!.sumMs).toBeLessThan(2_500);
    // A task waits from when it is due.
    expect(point!.wait!.sumMs).toBeLessThan(3_000);
    expect(await fleet.series("task:broken")).toMatchObject([{ counts: { failed: 1 } }]);
    expect(await fleet.series("task")).toMatchObject([{ counts: { completed: 2, failed: 1 } }]);
    expect(await fleet.series(`pod:${pod.podId}`)).toMatchObject([
      { counts: { claimed: 3, ended: 3 }, gauges: { memoryBytes: 64_000_000 } },
    ]);
  });

  test("is of runs and their transitions, and of throttles, too", async () => {
    await using fleet = await openFleet();
    const api = throttle("api");
    const order = flow("order", { version: 1 })
      .to("pay", () => ({ paid: true }))
      .sleep("cool", 5_000)
      .end();
    const ask = task("ask", { throttle: api }, () => api.run(() => wait(fleet, 1_000)));
    const pod = await fleet.start([order, ask]);
    const run = await pod.runs.start(order, null);
    const asked = await pod.enqueue(ask, null);
    await fleet.outcome(pod.waitFor(run.runId));
    await fleet.outcome(pod.waitFor(asked));
    await fleet.clock.advance(minuteMs);
    expect(await fleet.series("flow:order")).toMatchObject([
      { counts: { begun: 1, completed: 1 }, run: { count: 1 } },
    ]);
    expect(await fleet.series("flow:order pay")).toMatchObject([{ counts: { completed: 1 } }]);
    // The sleep counts for as long as it was, and that it began has no duration of its own.
    const [cool] = await fleet.series("flow:order cool");
    expect(cool).toMatchObject({ counts: { parked: 1, completed: 1 }, run: { count: 1 } });
    expect(cool!.run!.p50Ms).toBeGreaterThan(2_000);
    const [point] = await fleet.series("throttle:api");
    expect(point).toMatchObject({ counts: { success: 1 }, run: { count: 1 } });
    expect(point!.gauges["bound"]).toBeGreaterThan(0);
    expect(point!.gauges["inFlight"]).toBeGreaterThan(0);
  });

  test("is of the tokens and the money of a throttle's calls, minute by minute", async () => {
    await using fleet = await openFleet();
    const api = throttle("api");
    const usage = () => ({ inputTokens: 1_000, cachedInputTokens: 200, outputTokens: 10 });
    const ask = task("ask", {}, ({ input }) => {
      const model = {
        provider: "any",
        modelId: input as string,
        doGenerate: async () => ({ usage: usage() }),
      };
      return api
        .middleware()
        .wrapGenerate({ model, params: {} })
        .then(() => null);
    });
    const prices = { small: { input: 2, output: 10, cached: 1 } };
    const pod = await fleet.start([ask], { prices });
    for (const model of ["small", "small", "unpriced"])
      await fleet.outcome(pod.waitFor(await pod.enqueue(ask, model)));
    await fleet.clock.advance(minuteMs);
    await fleet.outcome(pod.waitFor(await pod.enqueue(ask, "small")));
    await fleet.clock.advance(minuteMs);
    const cost = 800 * 2 + 200 * 1 + 10 * 10;
    expect((await fleet.series("throttle:api")).map(({ counts }) => counts)).toMatchObject([
      { inputTokens: 3_000, outputTokens: 30, cachedTokens: 600, costMillionths: 2 * cost },
      { inputTokens: 1_000, outputTokens: 10, cachedTokens: 200, costMillionths: cost },
    ]);
  });

  test("is how long the oldest task of a name waits, as the leader sees it once a minute", async () => {
    await using fleet = await openFleet();
    const pod = await fleet.start([task("work", {}, () => null)]);
    await fleet.clock.advance(minuteMs);
    await pod.enqueue("unknown", null);
    await pod.enqueue("later", null, { delayMs: 60 * minuteMs });
    await fleet.clock.advance(3 * minuteMs);
    const waits = (await fleet.series("task:unknown")).map(({ gauges }) => gauges["oldestMs"]!);
    expect(waits.length).toBeGreaterThanOrEqual(2);
    for (const [at, waitMs] of waits.entries()) {
      if (at === 0) continue;
      // Each minute it has waited for a minute longer, give or take the beat that it was read with.
      expect(waitMs - waits[at - 1]!).toBeGreaterThan(minuteMs - 10_000);
      expect(waitMs - waits[at - 1]!).toBeLessThan(minuteMs + 10_000);
    }
    expect((await fleet.series("task")).at(-1)!.gauges["oldestMs"]).toBe(waits.at(-1));
    expect(await fleet.series("task:later")).toEqual([]);
  });

  test("costs an idle pod nothing: no statement, and no pulse beside its heartbeat", async () => {
    await using fleet = await openFleet();
    await fleet.start([task("work", {}, () => null)]);
    await fleet.clock.advance(2 * minuteMs);
    const isBeat = ([first]: readonly Statement[]) => first!.strings.join("").includes("pulse");
    expect(fleet.aboutSeries().filter((statements) => !isBeat(statements))).toEqual([]);
    // Each goes with the read that follows every beat.
    const beats = fleet.sent.filter(isBeat);
    expect(beats.map(({ length }) => length)).toEqual(beats.map(() => 2));
  });

  test("is counted of the minute in which a pod stops", async () => {
    await using fleet = await openFleet();
    const work = task("work", {}, () => null);
    const pod = await fleet.start([work]);
    await fleet.outcome(pod.waitFor(await pod.enqueue(work, null)));
    await fleet.outcome(pod.stop());
    expect(await fleet.series("task:work")).toMatchObject([{ counts: { completed: 1 } }]);
  });
});

describe("a pod's pulse", () => {
  test("is in its row with its next heartbeat: totals, what it holds, and since when", async () => {
    await using fleet = await openFleet();
    let end = () => {};
    const long = task(
      "long",
      {},
      () => new Promise<null>((resolve) => (end = () => resolve(null))),
    );
    const later = task("later", { attempts: 1 }, ({ snoozes }) => {
      if (snoozes === 0) throw snooze(60_000);
      return null;
    });
    const pod = await fleet.start([long, later]);
    await pod.enqueue(later, null);
    const { taskId } = await pod.enqueue(long, null);
    await fleet.clock.advance(3_000);
    const [pulse] = await fleet.pulses();
    expect(pulse).toEqual({
      claimed: 2,
      ended: { snoozed: 1 },
      chunks: 0,
      lagMs: 0,
      memoryBytes: 64_000_000,
      held: 1,
      leadsSinceMs: expect.any(Number),
      throttles: [],
      running: [{ taskId, startedAtMs: expect.any(Number) }],
      logs: [],
    });
    const running = await pod.tasks.get(taskId);
    expect(running).toMatchObject({
      status: "claimed",
      startedAtMs: pulse!.running[0]!.startedAtMs,
    });
    end();
    const ended = await fleet.outcome(pod.tasks.settled(taskId));
    expect(ended.startedAtMs).toBe(running!.startedAtMs);
    await fleet.clock.advance(3_000);
    expect(await fleet.pulses()).toMatchObject([{ ended: { completed: 1 }, held: 0, running: [] }]);
  });

  test("stays within its bytes with the busiest throttles and any number of tasks", async () => {
    await using fleet = await openFleet();
    const api = throttle("a-throttle-with-a-long-name".repeat(3), { initial: 100 });
    const ask = task("ask", {}, ({ input }) =>
      api.run(() => wait(fleet, 60_000), { key: `a key ${JSON.stringify(input).repeat(10)}` }),
    );
    const pod = await fleet.start([ask]);
    for (let of = 0; of < 40; of++) await pod.enqueue(ask, of);
    await fleet.clock.advance(5_000);
    const stored = await fleet.database.read(pulsesOf([pod.podId]));
    expect(Buffer.byteLength(stored[0]!["pulse"] as string)).toBeLessThanOrEqual(maxPulseBytes);
    const [pulse] = await fleet.pulses();
    expect(pulse!.held).toBe(40);
    expect(pulse!.running.length).toBeGreaterThan(0);
  });

  test("says which pod leads, and since when; another one says so after it has left", async () => {
    await using fleet = await openFleet();
    const work = task("work", {}, () => null);
    const first = await fleet.start([work]);
    await fleet.clock.advance(2_000);
    const second = await fleet.start([work]);
    await fleet.clock.advance(3_000);
    expect(await fleet.leader()).toBe(first.podId);
    const [before] = await fleet.pulses();
    expect(before!.leadsSinceMs).toBe(1_800_000_000_000);
    await fleet.outcome(first.stop());
    await fleet.clock.advance(3_000);
    expect(await fleet.leader()).toBe(second.podId);
    const [, after] = await fleet.pulses();
    expect(after!.leadsSinceMs).toBeGreaterThan(before!.leadsSinceMs!);
  });
});
