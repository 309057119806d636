import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { gather, violations } from "../tasks/checkers.ts";
import { createHistory, type History } from "../history.ts";
import { startsIn } from "../ledger.ts";
import type { PodProcess } from "../pod-handle.ts";
import { producerViolations } from "../tasks/producer-checkers.ts";
import { pauseFor, until } from "../until.ts";
import { networkFaults, shortTimeouts } from "./network-faults.ts";
import { openScene, openTasks, type Scene } from "./harness.ts";

const limits = { heartbeatMs: 100, deadAfterMs: 800 };
// Faults of this network end connections, after which two beats without a sign are enough.
const connectionLimits = { deadAfterMs: 2 * limits.heartbeatMs };
describe("a network that", () => {
  let scene: Scene;
  let far: PodProcess;
  const history = createHistory();

  beforeAll(async () => {
    scene = await openScene({ timeouts: shortTimeouts });
    const config = { ...limits, slots: 20, pollMs: 200 };
    far = await scene.start({ names: ["work", "rare"], config });
    await scene.fleet.start({ config });
  });
  afterAll(() => scene.close());

  test.each(Object.entries(networkFaults))(
    "%s loses nothing acked and doubles nothing, and pods and producers go on",
    async (_, fault) => {
      const { fleet, proxy, producer } = scene;
      const ackedBefore = acked(history);
      const startedBefore = startsOn(scene, far);
      const producing = keepProducing(scene, history);
      await until("the far pod works", () => startsOn(scene, far) > startedBefore);

      await fault(proxy);

      const goesOn = () => noted(history, () => producer.enqueue("work", { ms: 0 }));
      await until("the producer goes on", goesOn);
      // The far pod alone knows this task, so that it must have come back for it to be done.
      const rare = await noted(history, () => fleet.flotilla.enqueue("rare", { ms: 0 }));
      expect(await fleet.flotilla.waitFor(rare!.taskId, { timeoutMs: 90_000 })).toMatchObject({
        pod: far.podId,
      });
      await until("more is acked", () => acked(history) > ackedBefore + 10);
      await producing.stop();
      await until("every task has ended", async () => (await openTasks(fleet)) === 0);

      const seen = await gather(fleet, connectionLimits);
      const evidence = { ...seen, history: history.operations, snapshots: [] };
      expect(violations(evidence)).toEqual([]);
      expect(producerViolations(evidence)).toEqual([]);
      // What completes a task is one run of it, whatever else was tried.
      const completed = seen.transitions.filter(({ to }) => to === "completed");
      expect(new Set(completed.map(({ task }) => task)).size).toBe(completed.length);
      expect(far.alive).toBe(true);
    },
  );
});

function noted(history: History, enqueue: () => Promise<{ taskId: string }>) {
  return history.note({ kind: "enqueue" }, enqueue, ({ taskId }) => [taskId]);
}

function acked({ operations }: History): number {
  return operations.filter(({ type }) => type === "ok").length;
}

/** Enqueues through the bad network all the time, and notes what it is told. */
function keepProducing({ producer }: Scene, history: History) {
  let stopped = false;
  const calls: Promise<unknown>[] = [];
  const produce = async (): Promise<void> => {
    while (!stopped) {
      calls.push(noted(history, () => producer.enqueue("work", { ms: 30 })));
      await pauseFor(20);
    }
  };
  const producing = produce();
  return {
    async stop(): Promise<void> {
      stopped = true;
      await producing;
      await Promise.all(calls);
    },
  };
}

function startsOn({ fleet }: Scene, { podId }: PodProcess): number {
  return startsIn(fleet.ledger()).filter(({ pod }) => pod === podId).length;
}
