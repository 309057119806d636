/**
 * A crash at every await: one order with its children, on a pod that dies at its n-th request to the store,
 * before it is sent or once it is answered. Another takes its place, and all comes to the same end.
 */
import type { Database } from "../../../src/store/database.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { createRuns } from "../../../src/flows/runs.ts";
import { createTasks } from "../../../src/tasks/tasks.ts";
import { createSimDisk } from "../disk.ts";
import { createLane, laneClock } from "../lane.ts";
import { createNetwork } from "../link.ts";
import { type SimPod, startSimPod } from "../pod.ts";
import { createWorld, startOfTimeMs, type Violation } from "../world.ts";
import { createCalls, type Calls } from "./calls.ts";
import { createFlowChecker } from "./checker.ts";
import { flowNames, flowsOf, type Input } from "./machines.ts";

export type CrashPoint = { readonly at: number; readonly when: "answered" | "sent" };

export type Ended = {
  readonly violations: readonly Violation[];
  /** How many requests the pod made that was to crash. */
  readonly requests: number;
  /** How each run ended, and what its functions added to the state. */
  readonly runs: readonly string[];
  readonly crashed: boolean;
};

/** Every place at which a pod that makes so many requests can die. */
export function crashPoints(requests: number): CrashPoint[] {
  return Array.from({ length: requests }, (_, nth) => nth + 1).flatMap((at): CrashPoint[] => [
    { at, when: "sent" },
    { at, when: "answered" },
  ]);
}

const limitMs = 120_000;
const kid: Input = { op: 1, fates: {}, sleepMs: 0, kids: [] };
const order: Input = {
  op: 1,
  fates: { charge: { kind: "flaky", times: 1, workMs: 2 } },
  sleepMs: 300,
  kids: [
    { flow: "parcel", input: kid },
    { flow: "plain", input: kid },
  ],
};

export async function runCrashPoint(point?: CrashPoint): Promise<Ended> {
  const world = await createWorld(1, { keepTrace: false });
  const { scheduler } = world;
  let calls: Calls;
  const checker = createFlowChecker(world, { calls: () => calls, onMoved() {} });
  calls = createCalls(world, (call) => checker.judgeCall(call));
  const network = createNetwork(world, checker);
  let podsMade = 0;
  let requests = 0;
  let crashed = false;

  const crashing = (database: Database, crash: () => void): Database => {
    const die = (): Promise<never> => {
      crashed = true;
      crash();
      return new Promise(() => {});
    };
    const counted = <Answer>(ask: () => Promise<Answer>): Promise<Answer> => {
      const isIt = ++requests === point?.at;
      if (isIt && point?.when === "sent") return die();
      return isIt ? ask().then(die, die) : ask();
    };
    return {
      ...database,
      read: (statement) => counted(() => database.read(statement)),
      write: (statements, options) => counted(() => database.write(statements, options)),
    };
  };
  const start = (): void => {
    const podId = `p${++podsMade}`;
    checker.versionOf.set(podId, 1);
    startSimPod(world, network, checker as { pods: Map<string, SimPod> }, {
      podId,
      names: flowNames,
      settings: { slots: 4, pollMs: 500, heartbeatMs: 1_000, deadAfterMs: 4_000 },
      disk: createSimDisk(world),
      schedules: [],
      handlersFor: (pod) => flowsOf(1, calls.perform(pod, 1)),
      ...(podsMade === 1 && { through: crashing }),
      onGone: () => void scheduler.after(50, start),
    });
  };
  const lane = createLane(scheduler);
  const clock = laneClock(scheduler, lane, {
    wallMs: () => startOfTimeMs + scheduler.nowMs,
    startMs: 0,
  });
  const random = world.fork();
  const database = network.connect({ who: "c1", lane });
  const parts = { database, clock, random, ids: uuidv7(clock, random) };
  const runs = createRuns(createTasks(parts), parts);
  const { runId } = await inWorld(runs.start("order", order));
  await inWorld(runs.signal(runId, "approval", { good: true }, { id: "s1" }));
  start();

  const isEnded = (id: string) =>
    ["completed", "failed", "cancelled"].includes(checker.rows.get(id)?.["status"]);
  await scheduler.runUntil(
    () => world.violations.length > 0 || scheduler.nowMs > limitMs || isEnded(runId),
  );
  const ended = [...checker.rows.values()].map((row) => {
    const state = Object.keys(JSON.parse(row["state"] ?? "{}") as object);
    return `${row["name"]} ${row["status"]} ${state.join()}`;
  });
  await world.store.database.close();
  return { violations: world.violations, requests, runs: ended.toSorted(), crashed };

  async function inWorld<Answer>(work: Promise<Answer>): Promise<Answer> {
    let done = false;
    void work.finally(() => (done = true));
    await scheduler.runUntil(() => done);
    return work;
  }
}
