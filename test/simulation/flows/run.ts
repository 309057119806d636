/** One seed: pods of several versions, clients that start runs, troubles, a time of quiet, the verdict. */
import { sleep } from "../../../src/base/clock.ts";
import { task } from "../../../src/tasks/task.ts";
import { sql, table } from "../../../src/store/sql.ts";
import { createDeaths } from "../deaths.ts";
import { createSimDisk } from "../disk.ts";
import { startFaults } from "../faults.ts";
import { createNetwork } from "../link.ts";
import { type SimPod, startSimPod, stopLimits } from "../pod.ts";
import { type Report, reportOn } from "../report.ts";
import { judgeRequests } from "../requests.ts";
import { createWorld, type World } from "../world.ts";
import { createCalls, type Calls } from "./calls.ts";
import { createFlowChecker, type FlowChecker, type Moved } from "./checker.ts";
import { type FlowClients, startFlowClients } from "./clients.ts";
import { errand, flowNames, flowsOf, type Input, type Version } from "./machines.ts";

const heartbeatMs = 1_000;
const deadAfterMs = 4_000;
// All that may still be to do when the faults stop is done well within this time.
const quietLimitMs = 240_000;

export async function runFlowSeed(seed: number, { keepTrace = false } = {}): Promise<Report> {
  const world = await createWorld(seed, { keepTrace });
  const { scheduler } = world;
  let clients: FlowClients;
  let calls: Calls;
  const checker: FlowChecker = createFlowChecker(world, {
    calls: () => calls,
    onMoved(moved) {
      clients.onMoved(moved);
      if (!isQuiet()) pauseAtClaim(moved);
    },
  });
  const steps = seed % 8 === 3 ? checker.steps : undefined;
  calls = createCalls(world, (call) => checker.judgeCall(call), steps);
  const network = createNetwork(world, checker);
  const deaths = createDeaths(world, {
    seed,
    heartbeatMs,
    deadAfterMs,
    pods: () => checker.pods,
  });
  const faultsMs = world.between(8_000, 16_000);
  const slots = world.between(2, 6);
  const pollMs = world.pick([500, 1_000, 2_000]);
  const disk = createSimDisk(world);
  const pods: SimPod[] = [];
  let podsMade = 0;
  const isQuiet = () => scheduler.nowMs >= faultsMs;
  const mixed = world.pick([[1], [1, 1, 2], [1, 1, 2], [1, 2], [1, 2, 3], [2, 3]] as Version[][]);

  /** Most that can go wrong with a claim goes wrong where its pod falls silent right behind it. */
  const pauses = world.chance(0.4) ? 0.03 : 0;
  const pauseAtClaim = ({ row, before }: Moved): void => {
    if (row["status"] !== "claimed" || before?.["status"] === "claimed") return;
    if (!world.chance(pauses)) return;
    world.count("fault: pause at a claim");
    const pod = checker.pods.get(row["claimed_by"]);
    const soonMs = world.between(0, world.troubles.delayMs * 3);
    scheduler.after(soonMs, () => pod?.alive && pod.pause(world.between(3_000, 9_000)));
  };

  const fill = (place: number): void => {
    const version = isQuiet() ? 3 : world.pick(mixed);
    const podId = `p${++podsMade}`;
    checker.versionOf.set(podId, version);
    pods[place] = startSimPod(world, network, checker as { pods: Map<string, SimPod> }, {
      podId,
      thisProcess: deaths.processOf(podId),
      connection: deaths.connectionOf(podId),
      names: [...flowNames, errand],
      settings: { slots, pollMs, heartbeatMs, deadAfterMs },
      disk,
      schedules: [],
      handlersFor: (pod) => [
        ...flowsOf(version, calls.perform(pod, version)),
        task(errand, {}, () => sleep(pod.clock, 20)),
      ],
      onGone(why) {
        const stoppingMs = pods[place]?.stoppingMs ?? 0;
        // A write that the faults refused is sent again up to five seconds later, and a stop may end before.
        const isWaiting = scheduler.nowMs < faultsMs + 5_500;
        const hadTime = scheduler.nowMs - stoppingMs < stopLimits.shutdownMs || !isWaiting;
        if (why === "stopped" && stoppingMs > faultsMs && hadTime) void judgeLeft(world, podId);
        scheduler.after(world.between(100, 3_000), () => fill(place));
      },
    });
  };
  const places = world.between(2, 4);
  for (let place = 0; place < places; place++) {
    scheduler.after(place === 0 ? 0 : world.between(0, 2_000), () => fill(place));
  }
  clients = startFlowClients(world, network, {
    checker: () => checker,
    untilMs: faultsMs,
    gapMs: world.between(400, 1_800),
  });
  startFaults(world, { network, pods: () => pods.filter(Boolean), untilMs: faultsMs, deadAfterMs });
  // The last deploy: all pods are told to stop, one after the other, and come back as the newest.
  for (let place = 0; place < places; place++) {
    scheduler.after(faultsMs + 1_000 + place * world.between(500, 4_000), () => {
      const pod = pods[place];
      if (pod?.alive && pod.started) pod.stop();
      else pod?.crash("replaced");
    });
  }

  const allEnded = () => {
    for (const row of checker.rows.values()) {
      if (row["status"] === "pending" || row["status"] === "claimed") return false;
    }
    return clients.open === 0 && checker.errands.size === 0;
  };
  await scheduler.runUntil(
    () =>
      world.violations.length > 0 ||
      scheduler.nowMs > faultsMs + quietLimitMs ||
      (scheduler.nowMs > faultsMs + 2_000 && allEnded()),
  );
  if (world.violations.length === 0) await judgeEnd(world, checker, calls, clients);
  clients.close();
  return reportOn(seed, world);
}

/** A pod that stops while nothing is wrong gives back all that it has. */
async function judgeLeft(world: World, podId: string): Promise<void> {
  const left = await world.store.database.read(
    sql`select task_id, name from ${table("task")}
      where status = 'claimed' and claimed_by = ${podId}`,
  );
  for (const row of left) {
    world.violate("shutdown", `${podId} has stopped and holds ${row["task_id"].slice(-6)}`);
  }
}

async function judgeEnd(
  world: World,
  checker: FlowChecker,
  calls: Calls,
  clients: FlowClients,
): Promise<void> {
  const { violate } = world;
  const rows = await world.store.database.read(sql`select * from ${table("task")}`);
  for (const row of rows) {
    const what = `${row["name"]} ${row["task_id"].slice(-6)}`;
    if (row["status"] === "claimed")
      violate("T12", `${what} is with ${row["claimed_by"]} for ever`);
    if (row["status"] === "pending") {
      violate("F6", `${what} waits for ever at ${row["cursor"]}, parked ${row["parked"]}`);
    }
    if (row["name"] === errand) continue;
    // What is noted as done was done.
    const known = checker.histories.known.get(row["task_id"]);
    const returned = calls.of(row["task_id"]).filter((call) => call.returned).length;
    if (known && known.calls > returned) {
      violate("F1", `${what}: ${known.calls} completions are noted, ${returned} calls returned`);
    }
  }
  await checker.signals.judgeEnd();
  const asked = rows
    .filter((row) => row["parent_id"] === null)
    .map((row) => ({ op: (JSON.parse(row["payload"]) as Input).op, row }));
  judgeRequests(world, clients.history, asked);
}
