/** One seed: a small fleet, its clients, its troubles, a time of quiet, and the verdict. */
import type { Database } from "../../src/store/database.ts";
import { watchBounds } from "./bounds.ts";
import { type Checker, createChecker } from "./checker.ts";
import { createDeaths } from "./deaths.ts";
import { startFaults } from "./faults.ts";
import { createSimDisk, type SimDisk } from "./disk.ts";
import { createNetwork } from "./link.ts";
import { startOperators } from "./operators.ts";
import { type SimPod, startSimPod } from "./pod.ts";
import { judgeEnd } from "./verdict.ts";
import { attemptsOf, handlersFor, startClients, taskNames as plainNames } from "./workload.ts";
import { setLimits } from "./limits.ts";
import { startSignals, steppingNames } from "./stepping.ts";
import { type Report, reportOn } from "./report.ts";
import { staleLooks, throttledNames } from "./throttled.ts";
import { createWorld, type World } from "./world.ts";

const heartbeatMs = 1_000;
const deadAfterMs = 4_000;
// All that may still be to do when the faults stop is done well within this time.
const quietLimitMs = 240_000;

export async function runSeed(seed: number, { keepTrace = false } = {}): Promise<Report> {
  const world = await createWorld(seed, { keepTrace });
  const { scheduler } = world;
  // By the seed alone, as all that only some seeds have: what other seeds draw stays as it is.
  const steps = seed % 8 === 7;
  const taskNames = steps ? [...plainNames, ...steppingNames] : plainNames;
  await setLimits(world);
  const deaths = createDeaths(world, {
    seed,
    heartbeatMs,
    deadAfterMs,
    pods: () => checker.pods,
  });
  const checker: Checker = createChecker(world, {
    patienceMs: deaths.patienceMs,
    attemptsOf,
    onPending(taskId, name) {
      if (name === "waiting") sendSignals?.(taskId);
    },
  });
  const network = createNetwork(world, checker);
  const sendSignals = steps ? startSignals(world, network) : undefined;
  const faultsMs = world.between(12_000, 22_000);
  const slots = world.between(2, 6);
  const pollMs = world.pick([500, 1_000, 2_000]);
  // Tasks are rare here beside what a pod must end to claim ahead by itself.
  const ahead = { tasks: world.pick([0, slots, 3 * slots]), ms: 60_000 };
  const pods: SimPod[] = [];
  const disks: SimDisk[] = [];
  let podsMade = 0;

  const throttled = world.chance(0.25);
  // As behind a pooler through which no notification comes: pods find work by polling alone.
  const deaf = world.chance(0.15);
  const unthrottled = taskNames.filter((name) => !throttledNames.includes(name));
  // While all that a pod knows is throttled, it claims nothing at all until there are permits.
  const isApart = throttled && world.chance(0.7);
  const namesAt = (place: number): readonly string[] => {
    if (isApart && place === 0) return unthrottled;
    if (isApart && place === 1) return throttledNames;
    return place === 0 || world.chance(0.5) ? taskNames : taskNames.filter(() => world.chance(0.6));
  };

  /** Keeps one place of the fleet filled. The first place, or the first two, always know every task. */
  const fill = (place: number): void => {
    const names = namesAt(place);
    const podId = `p${++podsMade}`;
    const pod = startSimPod(world, network, checker, {
      podId,
      names,
      thisProcess: deaths.processOf(podId),
      connection: deaths.connectionOf(podId),
      settings: { slots, pollMs, heartbeatMs, deadAfterMs },
      ahead,
      disk: (disks[place] ??= createSimDisk(world)),
      handlersFor: (made) => handlersFor(world, checker, made, { throttled }),
      through(database) {
        const heard = deaf ? withoutHints(world, database) : database;
        const enter = (happen: () => void) => pods[place]!.enter(happen);
        return throttled ? staleLooks(world, heard, { untilMs: faultsMs, enter }) : heard;
      },
      onGone() {
        if (world.chance(0.1)) disks[place]!.lose();
        scheduler.after(world.between(100, 4_000), () => fill(place));
      },
    });
    pods[place] = pod;
  };
  // By the seed alone, as with clients in pods' processes: what other seeds draw stays as it is.
  const crowds = seed % 8 === 5;
  const places = world.between(2, 4);
  for (let place = 0; place < places; place++) {
    scheduler.after(place === 0 ? 0 : world.between(0, 2_000), () => fill(place));
  }
  const clients = startClients(world, network, {
    clients: 2,
    untilMs: faultsMs,
    gapMs: world.between(800, 2_500),
    crowds,
    steps,
    beside: seed % 4 === 2 ? () => pods.filter((pod) => pod?.alive) : undefined,
  });
  const operators = startOperators(world, network, {
    pauses: checker.pauses,
    untilMs: faultsMs,
    hasty: crowds,
    killed: seed % 8 === 3,
    bulks: seed % 8 === 6,
  });
  startFaults(world, {
    network,
    pods: () => pods.filter(Boolean),
    untilMs: faultsMs,
    deadAfterMs,
    // What a pod holds when it is told to stop is then given back for certain.
    onlyStops: seed % 16 === 13,
    ...(steps && { pausedAtStep: 0.03 }),
  });

  watchBounds(world, checker, { fromMs: faultsMs, throttled, isPaused: () => operators.open > 0 });

  const allEnded = () => {
    for (const { state } of checker.tasks.values()) {
      if (state.status === "pending" || state.status === "claimed") return false;
    }
    if (clients.open > 0 || operators.open > 0) return false;
    if (checker.redrives.open > 0 || checker.bulks.open > 0) return false;
    return disks.every(({ kept }) => kept === 0);
  };
  await scheduler.runUntil(
    () =>
      world.violations.length > 0 ||
      scheduler.nowMs > faultsMs + quietLimitMs ||
      (scheduler.nowMs > faultsMs && allEnded()),
  );
  // A place that was never filled has none.
  for (const { kept } of disks.filter(Boolean)) {
    if (kept > 0 && world.violations.length === 0) {
      world.violate("outbox", `${kept} endings are kept for ever`);
    }
  }
  if (world.violations.length === 0) await judgeEnd(world, checker, clients);
  operators.close();
  return reportOn(seed, world);
}

function withoutHints(world: World, database: Database): Database {
  world.count("fault: no hints at all");
  return { ...database, subscribe: () => () => {} };
}
