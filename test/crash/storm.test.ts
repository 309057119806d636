import process from "node:process";
import { expect, test } from "vitest";
import { seededRandom } from "../../src/base/random.ts";
import { gather, violations } from "./checkers.ts";
import { createFleet, type Fleet } from "./harness.ts";
import { pauseFor, until } from "./until.ts";
import { createHistory, type History } from "./history.ts";
import { type Entry, monotonicMs, startsIn } from "./ledger.ts";
import { faultKinds, type Places, torment } from "./nemesis.ts";
import { producerViolations, type Snapshot } from "./producer-checkers.ts";
import { keepBusy, produce } from "./workload.ts";

const podCount = 4;
const tasksPerPod = 5_000;
const calmTasks = 8_000;
const stormMs = 14_000;
const deadAfterMs = 500;

const seed = Number(process.env["FLOTILLA_CRASH_SEED"] ?? Math.floor(Math.random() * 2 ** 32));

test("four pods and twenty thousand tasks keep every promise through kills, pauses and restarts", async () => {
  console.log(`FLOTILLA_CRASH_SEED=${seed}`);
  const fleet = await createFleet();
  const history = createHistory();
  // One pod doesn't know every task.
  const places: Places = Array.from({ length: podCount }, (_, at) => ({
    names: at === podCount - 1 ? ["work"] : ["work", "rare"],
    config: { heartbeatMs: 100, deadAfterMs, pollMs: 300, shutdownMs: 500, graceMs: 300 },
  }));
  const pods = await Promise.all(places.map((place) => fleet.start(place)));
  const sampling = sample(fleet, history);

  await calm(fleet, history);
  // Without faults nothing runs twice, unless this machine itself has paused a pod.
  const doubled = startsIn(fleet.ledger()).length - calmTasks;
  expect(doubled).toBeLessThanOrEqual(tally(fleet.ledger()).recovered);

  const storm = { count: podCount * tasksPerPod - calmTasks, overMs: stormMs };
  const busy = keepBusy(fleet.flotilla, history);
  const [harm] = await Promise.all([
    torment(fleet, pods, places, seededRandom(seed), { forMs: stormMs, deadAfterMs }),
    produce(fleet.flotilla, history, seededRandom(seed + 1), storm),
  ]);
  await busy.stop();
  const stoppedMs = monotonicMs();
  await until("every task has ended", async () => (await openTasks(fleet)) === 0);
  const quietMs = monotonicMs() - stoppedMs;
  await until("all agree on the oldest pod as leader", () => allFollowTheOldest(fleet));
  const snapshots = await sampling.stop();

  const evidence = {
    ...(await gather(fleet, { deadAfterMs })),
    history: history.operations,
    snapshots,
  };
  expect(violations(evidence)).toEqual([]);
  expect(producerViolations(evidence)).toEqual([]);

  const count = tally(evidence.ledger);
  console.log({ seed, quietMs: Math.round(quietMs), harm: harm.length, ...count });
  expect(new Set(harm)).toEqual(new Set(faultKinds));
  expect(history.operations.filter(({ type }) => type !== "ok").length).toBeLessThan(
    history.operations.length / 10,
  );
  // Otherwise the storm would have been too mild to show anything.
  expect(count.recovered).toBeGreaterThan(0);
  expect(count.lost).toBeGreaterThan(0);
  expect(count.retry).toBeGreaterThan(0);
  expect(count.failed).toBeGreaterThan(0);
  expect(count.cancelled).toBeGreaterThan(0);
  expect(evidence.rows.some(({ status }) => status === "cancelled")).toBe(true);
}, 240_000);

/** Tasks by the thousand while nothing goes wrong. */
async function calm(fleet: Fleet, history: History): Promise<void> {
  const half = Array.from({ length: calmTasks / 2 }, () => ({ ms: 0 }));
  const startedMs = monotonicMs();
  for (let part = 0; part < 2; part++) {
    await history.note(
      { kind: "enqueue" },
      () => fleet.flotilla.enqueueMany("work", half),
      (enqueued) => enqueued.map(({ taskId }) => taskId),
    );
  }
  await until("the calm tasks have ended", async () => (await openTasks(fleet)) === 0);
  console.log(`${calmTasks} tasks in ${Math.round(monotonicMs() - startedMs)} ms`);
}

async function openTasks(fleet: Fleet): Promise<number> {
  const [row] = await fleet.sql(
    "select count(*) as tasks from flotilla_step_tracker where status in ('pending', 'claimed')",
  );
  return row!["tasks"];
}

/** Counts the tasks now and then, all states in one look. */
function sample(fleet: Fleet, history: History) {
  const snapshots: Snapshot[] = [];
  let stopped = false;
  const look = async (): Promise<void> => {
    while (!stopped) {
      const acked = history.operations.filter(
        (each) => each.kind === "enqueue" && each.type === "ok",
      );
      const ackedBefore = new Set(acked.flatMap(({ tasks }) => tasks)).size;
      const { byStatus } = await fleet.flotilla.stats();
      snapshots.push({ ackedBefore, byStatus });
      await pauseFor(500);
    }
  };
  const looking = look();
  return {
    async stop(): Promise<Snapshot[]> {
      stopped = true;
      await looking;
      return snapshots;
    },
  };
}

/** L2: the oldest pod that beats leads, in everybody's eyes. */
async function allFollowTheOldest(fleet: Fleet): Promise<boolean> {
  const alive = new Set(fleet.pods.filter((pod) => pod.alive).map(({ podId }) => podId));
  const [oldest] = (
    await fleet.sql("select pod_id from flotilla_pod_health order by birth_timestamp, pod_id")
  ).filter((row) => alive.has(row["pod_id"]));
  const followed = new Map<string, string | null>();
  for (const entry of fleet.ledger()) {
    if (entry.event === "leading" && alive.has(entry.pod)) followed.set(entry.pod, entry.leader);
  }
  return [...alive].every((podId) => followed.get(podId) === oldest?.["pod_id"]);
}

function tally(ledger: readonly Entry[]) {
  const outcomes = {
    lost: 0,
    retry: 0,
    failed: 0,
    cancelled: 0,
    released: 0,
    recovered: 0,
    starts: 0,
  };
  for (const entry of ledger) {
    if (entry.event === "recovered") outcomes.recovered += entry.tasks;
    if (entry.event === "start") outcomes.starts++;
    if (entry.event === "ended") outcomes[entry.outcome as keyof typeof outcomes]++;
  }
  return outcomes;
}
