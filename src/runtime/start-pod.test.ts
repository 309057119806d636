import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../base/log.ts";
import { until } from "../base/contract/movable-clock.ts";
import { task } from "../tasks/task.ts";
import type { PayloadCodec } from "../store/codec/codec.ts";
import { encryption } from "../store/codec/encryption.ts";
import { temporaryFile } from "../store/contract/kinds.ts";
import { flow } from "../flows/flow.ts";
import { connect } from "./connect.ts";
import { type PodEvent } from "./pod.ts";
import { startPod } from "./start-pod.ts";

let place: ReturnType<typeof temporaryFile>;
beforeEach(() => {
  place = temporaryFile();
});
afterEach(() => place.remove());

const double = task<number, number, number>("double", {}, ({ input }) => input * 2);
const settings = () => ({
  store: place.path,
  use: [double],
  log: silentLogger,
  heartbeatMs: 50,
  deadAfterMs: 30_000,
});

describe("a pod", () => {
  test("runs what others enqueue, leads when it is alone, and is down once it has stopped", async () => {
    const events: PodEvent[] = [];
    const pod = await startPod(settings(), { onEvent: (event) => events.push(event) });
    await using producer = connect(place.path);
    const enqueued = await producer.enqueue(double, 21);
    expect(await producer.waitFor(enqueued)).toBe(42);
    expect(await pod.waitFor(await pod.enqueue(double, 4))).toBe(8);
    await until("its lead", () => pod.leader === pod.podId);
    expect(await producer.pods()).toMatchObject([
      { podId: pod.podId, status: "up", metadata: { pid: process.pid } },
    ]);
    await pod.stop();
    await pod.stop();
    expect(await producer.pods()).toMatchObject([{ podId: pod.podId, status: "down" }]);
    // It waits for any other process that writes to the file at the same moment.
    const types = new Set(events.map((event) => event.type).filter((type) => type !== "contended"));
    expect(types).toEqual(new Set(["beat", "leading", "claimed", "ended"]));
    await expect(pod.enqueue(double, 1)).rejects.toMatchObject({ code: "closed" });
  });

  test("begins no runs from the moment that it begins to stop, while what runs is finished and stored", async () => {
    const { promise: finished, resolve: finish } = Promise.withResolvers<void>();
    const short = flow("short", { version: 1 })
      .to("one", () => finished)
      .to("two", () => ({ two: true }))
      .end();
    const pod = await startPod({ ...settings(), use: [short] });
    const { runId } = await pod.runs.start(short, null);
    await until("it runs", async () => (await pod.runs.get(runId))?.doing?.type === "running");
    const stopped = pod.stop();
    await expect(pod.runs.start(short, null)).rejects.toMatchObject({ code: "closed" });
    finish();
    await stopped;
    await expect(pod.runs.start(short, null)).rejects.toMatchObject({ code: "closed" });
    await using producer = connect(place.path);
    expect(await producer.runs.get(runId)).toMatchObject({ at: "two", attempt: 1, deaths: 0 });
    expect((await producer.runs.list()).runs).toHaveLength(1);
    await using next = await startPod({ ...settings(), use: [short] });
    expect(await next.runs.wait(runId)).toEqual({ two: true });
  });

  test("loses nothing to a listener that throws", async () => {
    const onEvent = () => {
      throw new Error("a mistake in the metrics");
    };
    await using pod = await startPod(settings(), { onEvent });
    const enqueued = await pod.enqueue(double, 4);
    expect(await pod.waitFor(enqueued, { timeoutMs: 90_000 })).toBe(8);
  });

  test("has an id of its own at every start", async () => {
    const ids = new Set<string>();
    for (let start = 0; start < 2; start++) {
      await using pod = await startPod(settings());
      ids.add(pod.podId);
    }
    expect(ids.size).toBe(2);
  });

  test("gives back what it runs when it is stopped", async () => {
    let started = false;
    const endless = task("endless", {}, ({ signal }) => {
      started = true;
      return new Promise((_, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason as Error));
      });
    });
    const pod = await startPod({ ...settings(), use: [endless], shutdownMs: 0 });
    const { taskId } = await pod.enqueue("endless", 1);
    await until("the attempt", () => started);
    await pod.stop();
    await using producer = connect(place.path);
    expect(await producer.tasks.get(taskId)).toMatchObject({ status: "pending", failures: 0 });
  });

  test("works only on what `only` names, and publishes why it claims no more", async () => {
    const endless = task("endless", { onFailure: () => {} }, ({ signal }) => {
      return new Promise((_, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason as Error));
      });
    });
    const use = [double, endless];
    const given = { ...settings(), use, only: ["endless"], slots: 1, pollMs: 20, shutdownMs: 0 };
    // On a busy machine the loop is late, which would be another reason.
    await using pod = await startPod({ ...given, pressure: false });
    await using producer = connect(place.path);
    const other = await producer.enqueue(double, 1);
    expect(pod.capacity).toEqual({ holds: 1, reasons: [] });
    expect(await producer.pods()).toMatchObject([
      {
        state: null,
        metadata: { names: ["endless", "endless:failed", "flotilla:wake"], followUps: ["endless"] },
      },
    ]);
    await producer.enqueue(endless, 1);
    const full = { holds: 1, reasons: [{ code: "full", text: "full: 1 of 1" }] };
    await expect.poll(async () => (await producer.pods())[0]!.state).toEqual(full);
    expect(pod.capacity).toEqual(full);
    expect(pod.state).toBe("full");
    expect(await producer.tasks.get(other.taskId)).toMatchObject({
      status: "pending",
      claimToken: 0,
    });
  });

  test("takes no more work when it is drained from outside, and does again when that is taken back", async () => {
    const ends: (() => void)[] = [];
    const slow = task("slow", {}, () => new Promise<void>((resolve) => ends.push(resolve)));
    await using pod = await startPod({ ...settings(), use: [slow], pollMs: 20 });
    await using producer = connect(place.path);
    const { podId } = pod;
    const drain = async () => (await producer.pods())[0]!.drain;
    const first = await producer.enqueue(slow, null);
    await until("the attempt", () => ends.length === 1);
    expect(await producer.drainPod(podId)).toMatchObject({ podId, drain: "draining" });
    await until("that it knows", () => pod.isDraining);
    const second = await producer.enqueue(slow, null);
    await until("its word", async () => (await producer.pods())[0]!.state?.drain === "draining");
    ends[0]!();
    await producer.waitFor(first);
    await until("its rest", async () => (await drain()) === "drained");
    expect(await producer.tasks.get(second.taskId)).toMatchObject({
      status: "pending",
      claimToken: 0,
      noWorker: true,
    });
    // It leads all the same.
    expect(pod.leader).toBe(podId);
    expect(await producer.undrainPod(podId)).toMatchObject({ podId, drain: null });
    await until("the second attempt", () => ends.length === 2);
    ends[1]!();
    await producer.waitFor(second);
    await expect(producer.drainPod("none")).rejects.toMatchObject({ code: "not_found" });
    await pod.stop();
    await expect(producer.drainPod(podId)).rejects.toMatchObject({ code: "conflict" });
  });

  test("logs once that secrets of stored agents are in plain text, where it has no codec", async () => {
    const codec = encryption({ keys: { one: "07".repeat(32) } });
    const warned = async (options: { codec?: PayloadCodec } = {}) => {
      const lines: object[] = [];
      const warn = (fields: object, message: string) => void lines.push({ ...fields, message });
      const pod = await startPod({ ...settings(), ...options, log: { ...silentLogger, warn } });
      await pod.stop();
      return lines;
    };
    await using producer = connect(place.path);
    const url = "https://agent.example/chat";
    await producer.agents.create("default", "open", { settings: { url } });
    expect(await warned()).toEqual([]);
    for (const name of ["first", "second"]) {
      const headers = { Authorization: "a-secret-of-the-agent" };
      await producer.agents.create("default", name, { settings: { url, headers } });
    }
    expect(await warned({ codec })).toEqual([]);
    expect(await warned()).toEqual([
      {
        agents: 2,
        advice: expect.stringContaining("configure `codec`"),
        message: "secrets of stored agents are in plain text",
      },
    ]);
  });

  test("doesn't start on a store that it can't use, and leaves nothing open", async () => {
    await using producer = connect(place.path);
    await producer.tasks.stats();
    const store = `${place.path}/nowhere`;
    await expect(startPod({ ...settings(), store })).rejects.toMatchObject({
      code: "store_missing",
    });
    await expect(startPod({ ...settings(), slotss: 1 } as object)).rejects.toMatchObject({
      code: "invalid_option",
    });
    expect(await producer.pods()).toEqual([]);
  });
});
