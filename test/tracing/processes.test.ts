import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openTracedPods, stores, type TracedPods } from "./traced-pods.ts";

describe.each(stores)("on $name, a task enqueued here and run in another process", ({ place }) => {
  let pods: TracedPods;
  beforeEach(async () => {
    pods = await openTracedPods(place, "./pod-process.ts");
  });
  afterEach(() => pods.close());

  const request = (name: string) =>
    pods.request(async () => (await pods.flotilla.enqueue(name, null)).taskId);

  test("is one trace, from the request to what the handler does", async () => {
    await pods.startPod();
    const taskId = await request("mail");
    const [run] = await pods.spans("run mail", 1);
    const [enqueue, root] = pods.here;
    expect(root).toMatchObject({ name: "request", parentId: undefined });
    expect(enqueue).toMatchObject({
      name: "enqueue mail",
      kind: "PRODUCER",
      traceId: root!.traceId,
      parentId: root!.spanId,
    });
    expect(run).toMatchObject({
      kind: "CONSUMER",
      traceId: root!.traceId,
      parentId: enqueue!.spanId,
      attributes: { "messaging.message.id": taskId, "flotilla.task.outcome": "completed" },
    });
    expect(pods.there.find((span) => span.name === "look up")).toMatchObject({
      traceId: root!.traceId,
      parentId: run!.spanId,
    });
  });

  test("stays one trace over a retry, with the error where it was thrown", async () => {
    await pods.startPod();
    await request("flaky");
    const [first, second] = await pods.spans("run flaky", 2);
    const enqueue = pods.here[0]!;
    expect(first).toMatchObject({
      traceId: enqueue.traceId,
      parentId: enqueue.spanId,
      status: "ERROR",
      exceptions: ["not yet"],
      attributes: { "flotilla.task.attempt": 1, "flotilla.task.outcome": "retry" },
    });
    expect(second).toMatchObject({
      traceId: enqueue.traceId,
      parentId: enqueue.spanId,
      status: "UNSET",
      exceptions: [],
      attributes: { "flotilla.task.attempt": 2, "flotilla.task.outcome": "completed" },
    });
  });

  test("stays one trace though the pod that ran it was killed", async () => {
    const first = await pods.startPod();
    await request("deadly");
    await pods.told("deadly");
    await pods.kill(first);
    await pods.startPod();
    const [run] = await pods.spans("run deadly", 1);
    const enqueue = pods.here[0]!;
    expect(run).toMatchObject({
      traceId: enqueue.traceId,
      parentId: enqueue.spanId,
      attributes: {
        "flotilla.task.attempt": 1,
        "flotilla.task.deaths": 1,
        "flotilla.task.token": 2,
        "flotilla.task.outcome": "completed",
      },
    });
  });
});
