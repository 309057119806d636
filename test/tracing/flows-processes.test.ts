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
    // The first pod took the run's span with it, and nobody makes a second one.
    expect(pods.there.filter(({ name }) => name === "run voyage")).toEqual([]);
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
