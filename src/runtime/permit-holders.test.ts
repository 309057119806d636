import { describe, expect, test } from "vitest";
import { movableClock } from "../base/contract/movable-clock.ts";
import { silentLogger } from "../base/log.ts";
import { seededRandom } from "../base/random.ts";
import { createMemoryBus } from "../bus/memory-bus.ts";
import { runWithOrigin } from "../pods/unhandled-errors.ts";
import { beat } from "../pods/sql.ts";
import { migrate } from "../store/migrate.ts";
import { memoryDatabase } from "../store/sqlite/inline.ts";
import type { TaskHandler } from "../tasks/model.ts";
import { task } from "../tasks/task.ts";
import { createThrottleRegistry } from "../throttles/registry.ts";
import { runInThrottleScope } from "../throttles/scope.ts";
import { throttle } from "../throttles/throttle.ts";
import { createPermitHolders, servePermits } from "./permit-holders.ts";
import { virtualPods } from "./contract/virtual-pods.ts";

const api = throttle("api", { initial: 10 });
const turn = {
  by: "agent",
  from: { id: "session-1", what: "session" },
  fields: { session: "session-1", tenant: "acme", agent: "helper", epoch: 3, attempt: 1 },
  log: silentLogger,
} as const;

/** Pods that hold permits, on a bus that loses what it is told to lose. */
async function openFleet(isLost: (to: string) => boolean = () => false) {
  const clock = movableClock();
  const database = memoryDatabase(clock);
  await migrate(database);
  const memory = createMemoryBus({
    carry: ({ to }, arrive) => {
      if (isLost(to)) return "lost";
      return queueMicrotask(arrive);
    },
  });
  const random = seededRandom(1);
  return {
    clock,
    /** A pod with a row, and with a bus unless it is from before. */
    async pod(podId: string, { serves = true } = {}) {
      const throttles = createThrottleRegistry({ clock, random });
      const bus = memory.connect(podId, { clock });
      if (serves) servePermits(bus, { throttles, clock });
      await database.write([beat(podId, "{}", 0)]);
      return {
        throttles,
        /** Holds a permit until it is told to end. */
        hold(key = "", origin?: Parameters<typeof runWithOrigin>[0]) {
          const ended = Promise.withResolvers<void>();
          const call = () =>
            runInThrottleScope({ throttles }, () => api.run(() => ended.promise, { key }));
          void (origin ? runWithOrigin(origin, call) : call());
          return ended.resolve;
        },
      };
    },
    row: (podId: string) => database.write([beat(podId, "{}", 0)]),
    async ask(name: string, options = {}) {
      const bus = memory.connect("asker", { clock });
      const { holders } = createPermitHolders({ database, bus: () => bus });
      const asked = holders(name, options);
      let isOver = false;
      void asked.catch(() => {}).finally(() => (isOver = true));
      while (!isOver) await clock.advance(100);
      return asked;
    },
  };
}

describe("who holds permits", () => {
  test("is said of tasks, turns and other code on every pod, the longest held first", async () => {
    const fleet = await openFleet();
    const [one, two] = [await fleet.pod("pod-1"), await fleet.pod("pod-2")];
    one.hold("", turn);
    await fleet.clock.advance(1_000);
    two.hold("gpt");
    const end = two.hold();
    await fleet.clock.advance(1_000);
    const found = await fleet.ask("api");
    expect(found).toMatchObject({
      inFlight: 3,
      answered: ["pod-1", "pod-2"],
      unanswered: [],
      permits: [
        {
          podId: "pod-1",
          key: "",
          holder: {
            what: "turn",
            id: "session-1",
            tenant: "acme",
            name: "helper",
            epoch: 3,
            attempt: 1,
          },
        },
        { podId: "pod-2", key: "gpt", holder: null },
        { podId: "pod-2", key: "", holder: null },
      ],
    });
    const [first, second] = found.permits;
    expect(second!.sinceMs - first!.sinceMs).toBe(1_000);
    expect((await fleet.ask("api", { key: "gpt" })).permits).toHaveLength(1);
    end();
    await fleet.clock.advance(0);
    expect(await fleet.ask("api")).toMatchObject({ inFlight: 2 });
    expect(await fleet.ask("other")).toMatchObject({ inFlight: 0, permits: [] });
  });

  test("is asked again where an envelope was lost, and no pod that is silent is left out of the answer", async () => {
    let losses = 1;
    const fleet = await openFleet((to) => to === "pod-1" && losses-- > 0);
    const pod = await fleet.pod("pod-1");
    pod.hold();
    await fleet.pod("pod-old", { serves: false });
    await fleet.row("pod-silent");
    const found = await fleet.ask("api");
    expect(found).toMatchObject({ inFlight: 1, answered: ["pod-1"] });
    expect(found.unanswered).toEqual([
      { podId: "pod-old", reason: "its release doesn't answer this" },
      { podId: "pod-silent", reason: "no answer within 3000 ms" },
    ]);
  });

  test("is bounded: no more are listed than were asked for, and all are counted", async () => {
    const fleet = await openFleet();
    const pod = await fleet.pod("pod-1");
    for (let each = 0; each < 5; each++) pod.hold();
    const found = await fleet.ask("api", { limit: 2 });
    expect(found.permits).toHaveLength(2);
    expect(found.inFlight).toBe(5);
    await expect(fleet.ask("api", { limit: 1_001 })).rejects.toMatchObject({
      code: "invalid_option",
    });
    await expect(fleet.ask("a\0b")).rejects.toMatchObject({ code: "invalid_option" });
  });

  test("is known of a task from its claim on, also where no pod has sessions", async () => {
    const { clock, outcome, ...fleet } = await virtualPods();
    const start = (use: readonly TaskHandler[]) => fleet.start({ use, sessions: false });
    const ended = Promise.withResolvers<void>();
    const calls = task("calls", { throttle: api }, () => ended.promise);
    const plain = task("plain", {}, () => api.run(() => ended.promise));
    const pods = [await start([calls, plain]), await start([])];
    const { taskId: claimed } = await outcome(pods[0]!.enqueue(calls, 1));
    const { taskId: called } = await outcome(pods[0]!.enqueue(plain, 1));
    await clock.advance(5_000);
    const { permits, unanswered } = await outcome(pods[1]!.throttles.holders("api"));
    expect(unanswered).toEqual([]);
    expect(permits.map(({ podId }) => podId)).toEqual([pods[0]!.podId, pods[0]!.podId]);
    expect(permits.map(({ holder }) => holder)).toEqual(
      expect.arrayContaining([
        { what: "task", id: claimed, name: "calls" },
        { what: "task", id: called, name: "plain" },
      ]),
    );
    ended.resolve();
    await fleet.stop();
  });
});
