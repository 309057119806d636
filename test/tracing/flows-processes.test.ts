import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openTracedPods, stores, type TracedPods } from "./traced-pods.ts";

describe.each(stores)("on $name, a run whose pod is killed in the middle of it", ({ place }) => {
  let pods: TracedPods;
  beforeEach(async () => {
    pods = await openTracedPods(place, "./flow-process.ts");
  });
  afterEach(() => pods.close());

  /** Starts a run, and kills the pod that has it. */
  const killed = async (name: string): Promise<string> => {
    const first = await pods.startPod();
    const { runId } = await pods.request(() => pods.flotilla.runs.start(name, null));
    await pods.told("token 1");
    await pods.kill(first);
    return runId;
  };

  test("goes on in the same trace, below the span that the first pod began", async () => {
    const runId = await killed("voyage");
    const [request] = pods.here.filter(({ name }) => name === "request");
    const [before] = await pods.spans("transition voyage/leave", 1);
    await pods.startPod();
    await pods.flotilla.runs.wait(runId);
    const [after] = await pods.spans("transition voyage/land", 1);
    const [sailed] = await pods.spans("transition voyage/sail", 1);
    expect(before).toMatchObject({ traceId: request!.traceId });
    for (const span of [sailed, after]) {
      expect(span).toMatchObject({
        traceId: request!.traceId,
        parentId: before!.parentId,
        attributes: { "flotilla.run.id": runId, "flotilla.transition.outcome": "completed" },
      });
    }
    expect(before!.attributes["flotilla.run.token"]).toBe(1);
    expect(sailed!.attributes["flotilla.run.token"]).toBe(2);
    // A span of the program's within the first attempt was told before the kill, the other after it.
    const own = await pods.spans("setting sails", 2);
    expect(own.map(({ traceId }) => traceId)).toEqual([request!.traceId, request!.traceId]);
    expect(own[1]!.parentId).toBe(sailed!.spanId);
  });

  test("has one span of its own, which the pod that ends it exports from its real start", async () => {
    const runId = await killed("voyage");
    const [before] = await pods.spans("transition voyage/leave", 1);
    const start = pods.here.find(({ name }) => name === "start voyage")!;
    expect(pods.there.filter(({ name }) => name === "run voyage")).toEqual([]);
    await pods.startPod();
    await pods.flotilla.runs.wait(runId);
    const [run] = await pods.spans("run voyage", 1);
    expect(run).toMatchObject({
      kind: "CONSUMER",
      status: "UNSET",
      traceId: start.traceId,
      spanId: before!.parentId,
      parentId: start.spanId,
      attributes: { "flotilla.run.outcome": "completed", "flotilla.run.token": 2 },
    });
    expect(run!.state).toBeUndefined();
    // The row holds whole milliseconds.
    expect(run!.startMs).toBeLessThanOrEqual(before!.startMs);
    expect(run!.startMs).toBeGreaterThanOrEqual(Math.floor(start.startMs));
    const [landed] = await pods.spans("transition voyage/land", 1);
    expect(run!.endMs).toBeGreaterThanOrEqual(Math.floor(landed!.startMs));
  });

  test("before anything of it was stored is begun anew, in the same trace", async () => {
    const runId = await killed("wreck");
    const start = pods.here.find(({ name }) => name === "start wreck")!;
    await pods.startPod();
    await pods.flotilla.runs.wait(runId);
    const [run] = await pods.spans("run wreck", 1);
    expect(run).toMatchObject({ traceId: start.traceId, parentId: start.spanId });
    const [left] = await pods.spans("transition wreck/leave", 1);
    expect(left).toMatchObject({ traceId: start.traceId, parentId: run!.spanId });
  });
});
