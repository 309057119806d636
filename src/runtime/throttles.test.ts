import { describe, expect, test } from "vitest";
import { FlotillaError } from "../base/errors.ts";
import { eventLoopTurns } from "../base/contract/movable-clock.ts";
import { task } from "../tasks/task.ts";
import type { Database } from "../store/database.ts";
import type { Statement } from "../store/sql.ts";
import { throttle } from "../throttles/throttle.ts";
import { shareWithProcess } from "../throttles/scope.ts";
import { type Pod, type PodEvent } from "./pod.ts";
import type { TaskHandler } from "../tasks/model.ts";
import { virtualPods } from "./contract/virtual-pods.ts";

const second = 1_000;

/** Pods on one store and one clock, with what each of them sends. */
async function openFleet() {
  const { clock, database, outcome, ...fleet } = await virtualPods();

  return {
    clock,
    outcome,
    async start(use: readonly TaskHandler[], { enlisted = false } = {}) {
      const sent: Statement[] = [];
      const events: PodEvent[] = [];
      const own: Database = {
        ...database,
        read: (statement) => (sent.push(statement), database.read(statement)),
        write: (statements) => (sent.push(...statements), database.write(statements)),
      };
      const pod = await fleet.start(
        { use },
        {
          through: own,
          onEvent: (event) => events.push(event),
          ...(enlisted && { shareThrottles: shareWithProcess }),
        },
      );
      const aboutThrottles = () =>
        sent.filter((statement) => JSON.stringify(statement).includes('"table":"throttle'));
      return { pod, events, aboutThrottles };
    },
    close: fleet.stop,
    [Symbol.asyncDispose]() {
      return this.close();
    },
  };
}

describe("a pod's throttles", () => {
  test("cost no statement where there are none, whether it leads or works", async () => {
    await using fleet = await openFleet();
    const plain = task("plain", {}, ({ input }) => input);
    const { pod, aboutThrottles } = await fleet.start([plain]);
    await fleet.outcome(pod.waitFor(await pod.enqueue(plain, 1)));
    await fleet.clock.advance(100 * second);
    expect(pod.leader).toBe(pod.podId);
    await fleet.outcome(pod.stop());
    expect(aboutThrottles()).toEqual([]);
  });

  test("are learned by the pod that leads, also if it has none itself", async () => {
    await using fleet = await openFleet();
    const leading = await fleet.start([]);
    const api = throttle("learned");
    const ask = task("ask", { throttle: api }, () =>
      api.run(() => new Promise((resolve) => fleet.clock.after(50, () => resolve(null)))),
    );
    const { pod, events } = await fleet.start([ask]);
    expect(pod.leader).toBe(leading.pod.podId);
    const { bound: before } = (await fleet.outcome(begun(fleet, pod, ask)))!;
    await fleet.clock.advance(20 * second);
    const view = (await pod.throttles.get("learned"))!;
    expect(view.bound).toBeGreaterThan(before);
    expect(view.outcomes.success).toBeGreaterThan(100);
    expect(leading.events.map(({ type }) => type)).toContain("bound");
    expect(leading.events.map(({ type }) => type)).not.toContain("share");
    expect(events.map(({ type }) => type)).toContain("share");
    expect(pod.throttles.here()).toMatchObject([{ name: "learned", mode: "hybrid" }]);
  });

  test("go back to the others when it stops, after its handlers have ended", async () => {
    await using fleet = await openFleet();
    const api = throttle("given back", { pinned: 4 });
    const held: number[] = [];
    const ask = task("ask", { throttle: api }, () =>
      api.run(async () => {
        await new Promise<void>((resolve) => void fleet.clock.after(2 * second, resolve));
        held.push((await looking.pod.throttles.get("given back"))!.pods[0]!.share);
      }),
    );
    const { pod } = await fleet.start([ask]);
    const looking = await fleet.start([]);
    await pod.enqueue(ask, 1);
    await fleet.clock.advance(second);
    await fleet.outcome(pod.stop());
    expect(held[0]).toBeGreaterThan(0);
    expect((await looking.pod.throttles.get("given back"))!.pods[0]).toMatchObject({ share: 0 });
  });

  test("are used by its own handlers, also where several pods live in one process", async () => {
    await using fleet = await openFleet();
    const api = throttle("several", { pinned: 4 });
    const seen: unknown[] = [];
    const plain = task("plain", {}, () => api.run(() => void seen.push(api.snapshot())));
    const { pod: first } = await fleet.start([plain], { enlisted: true });
    const { pod: second_ } = await fleet.start([], { enlisted: true });
    await fleet.outcome(first.waitFor(await first.enqueue(plain, 1)));
    expect(seen).toMatchObject([{ name: "several", mode: "hybrid", inFlight: 1 }]);
    expect(first.throttles.here()).toHaveLength(1);
    expect(second_.throttles.here()).toEqual([]);
  });

  test("are used outside of handlers where it is the only pod of its process, until it stops", async () => {
    await using fleet = await openFleet();
    const api = throttle("outside", { mode: "local" });
    const { pod } = await fleet.start([], { enlisted: true });
    await api.run(() => {});
    expect(pod.throttles.here()).toMatchObject([{ outcomes: { success: 1 } }]);
    await fleet.outcome(pod.stop());
    await api.run(() => {});
    expect(pod.throttles.here()).toMatchObject([{ outcomes: { success: 1 } }]);
  });

  test("are refused at its start where handlers declare one in two ways", async () => {
    await using fleet = await openFleet();
    const handlers = [1, 2].map((max) =>
      task(`ask-${max}`, { throttle: throttle("twice", { max }) }, () => {}),
    );
    const starting = fleet.start(handlers);
    await expect(starting).rejects.toThrow(FlotillaError);
    await expect(starting).rejects.toThrow(/declared twice/);
  });
});

/** Gives a pod a backlog, and what is known of the throttle when the first calls are made. */
async function begun(fleet: Awaited<ReturnType<typeof openFleet>>, pod: Pod, ask: TaskHandler) {
  await pod.enqueueMany(
    ask,
    Array.from({ length: 1_000 }, (_, nth) => nth),
  );
  for (;;) {
    await fleet.clock.advance(100);
    await eventLoopTurns();
    const view = await pod.throttles.get("learned");
    if (view) return view;
  }
}
