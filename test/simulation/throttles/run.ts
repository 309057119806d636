/** One seed: pods that call one downstream, their troubles, a time of quiet, and the verdict. */
import {
  changeShares,
  getDemands,
  getShares,
  getThrottles,
  putReports,
  toSharedRow,
} from "../../../src/throttles/shares/sql.ts";
import { toThrottleStats } from "../../../src/throttles/shares/fleet-learning.ts";
import type { Statement } from "../../../src/store/sql.ts";
import { startFaults } from "../faults.ts";
import { nothingSeen } from "../fences.ts";
import { createNetwork, type Watcher } from "../link.ts";
import { type Report, reportOn } from "../report.ts";
import { createWorld, type World } from "../world.ts";
import { createDownstream, type Downstream } from "./downstream.ts";
import { type CallingPod, startCallingPod } from "./pod.ts";
import { leaseMs, longestMs, place } from "./settings.ts";
import { createSweep, type Sweep } from "./sweep.ts";

const deadAfterMs = 4_000;
// Pods that are well have gone by a new bound within this time, also where all of them change at once.
const settledMs = 5_000;
// By then what dead pods held has expired for all observers, and shares have settled.
const quietMs = 2 * (leaseMs + longestMs) + 20_000;

// Headers that say wrongly that nothing remains are no longer believed by the end of the quiet, and the
// slowest true ones allow twice as many calls.
const lastMs = 10_000;
const fewestCalls = 10;

export async function runThrottleSeed(seed: number, { keepTrace = false } = {}): Promise<Report> {
  const made = await createWorld(seed, { keepTrace });
  let downstream: Downstream;
  const machines = new Map<string, number>();
  const pods: CallingPod[] = [];
  const all = new Map<string, CallingPod>();
  const canTell = made.chance(0.3);
  const sweep = createSweep(made, {
    downstream: () => downstream,
    isForgiven: (podId) => canTell && all.get(podId)?.alive === false,
  });
  const { world, checker } = watched(made, sweep);
  const { scheduler } = world;
  downstream = createDownstream(world, { onCall: () => sweep.look() });
  const network = createNetwork(world, checker);
  const faultsMs = world.between(15_000, 40_000);
  const places = world.pick([1, 2, 3, 4, 6, 8, 12, 32]);
  const hungry = world.between(1, 30);
  let podsMade = 0;
  // Without a leader the row stays at a revision for seconds, and a late write may still land.
  const leaderless = world.chance(0.2);
  let leaders = new Set<number>(leaderless ? [] : [0]);
  let quiet = false;

  const fill = (at: number): void => {
    const podId = `p${++podsMade}`;
    machines.set(podId, at % 2);
    let demand = world.between(0, hungry);
    const pod = startCallingPod(world, network, {
      podId,
      downstream,
      demand: () => demand,
      leads: () => (quiet ? pods.find((pod) => pod?.alive)?.podId === podId : leaders.has(at)),
      isGone: canTell
        ? (host) => machines.get(host) === at % 2 && all.get(host)?.alive === false
        : undefined,
      onGone() {
        if (!quiet) scheduler.after(world.between(100, 12_000), () => fill(at));
      },
    });
    pods[at] = pod;
    all.set(podId, pod);
    // Some rest for just so long that they give their share back, and want it again at once.
    const naps = world.chance(0.4);
    const wander = (): void => {
      if (!pod.alive) return;
      if (quiet) demand = hungry;
      else if (naps) demand = demand > 0 ? 0 : hungry;
      else demand = world.pick([0, 0, 1, hungry, world.between(0, hungry)]);
      const forMs = !naps ? [500, 15_000] : demand > 0 ? [200, 2_000] : [5_000, 8_000];
      scheduler.after(world.between(forMs[0]!, forMs[1]!), wander);
    };
    scheduler.after(world.between(500, 15_000), wander);
  };
  for (let at = 0; at < places; at++) {
    scheduler.after(at === 0 ? 0 : world.between(0, 10_000), () => fill(at));
  }
  const moves = (): void => {
    if (quiet) return;
    const some = () => world.between(0, places - 1);
    leaders = new Set(leaderless ? [] : world.pick([[], [some()], [some()], [some(), some()]]));
    if (leaders.size === 0) world.count("throttle: no leader");
    if (leaders.size === 2) world.count("throttle: two lead");
    if (world.chance(0.3)) downstream.capacity = world.between(1, 40);
    scheduler.after(world.between(2_000, 15_000), moves);
  };
  scheduler.after(world.between(2_000, 10_000), moves);
  startFaults(world, {
    network,
    pods: () => pods.filter(Boolean),
    untilMs: faultsMs,
    deadAfterMs,
  });
  if (world.chance(0.2)) world.troubles = { ...world.troubles, late: 0.3 };
  scheduler.after(faultsMs, () => {
    quiet = true;
    // The downstream has noticed by now which callers are gone, and makes room for others.
    for (const call of downstream.calls) if (!all.get(call.podId)?.alive) call.end();
  });

  const endMs = faultsMs + quietMs;
  const before = { ended: 0, throttled: 0 };
  scheduler.after(endMs - lastMs, () => {
    before.ended = downstream.ended;
    before.throttled = downstream.throttled;
  });
  await scheduler.runUntil(() => world.violations.length > 0 || scheduler.nowMs > endMs);
  if (world.violations.length === 0) judgeQuiet(world, sweep, pods, hungry);
  if (world.violations.length === 0) judgeCalls(world, pods, downstream, before);
  if (world.violations.length === 0) await judgeCounts(world, downstream);
  return reportOn(seed, world);
}

// A statement is known by its template, which is the same object every time it is made.
const change = changeShares(place, 0, "").strings;
const isChange = ({ strings }: Statement) => strings === change;
const report = putReports([
  { ...place, podId: "", seq: 0, demand: 0, inFlight: 0, waiting: 0, callsWaiting: 0, totals: "" },
]).strings;
const isReport = ({ strings }: Statement) => strings === report;

/** Checks the row after every commit, in the same moment. */
function watched(world: World, sweep: Sweep): { world: World; checker: Watcher } {
  const { store } = world;
  let who = "";
  const commit: typeof store.commit = async (statements) => {
    const done = await store.commit(statements);
    if (statements.some(isChange) && done.tables[0]!.length === 0) {
      world.count("fence: share, revision");
    }
    if (statements.some(isReport)) {
      for (const each of await store.database.read(getDemands([place]))) {
        sweep.reported(each["pod_id"] as string, Number(each["seq"]));
      }
    }
    const [row] = await store.database.read(getShares([place]));
    sweep.committed(row && toSharedRow(row), who);
    return done;
  };
  // There are no tasks here to be judged.
  const checker: Watcher = {
    async before(committer) {
      who = committer;
      return nothingSeen;
    },
    async after() {},
  };
  return {
    world: Object.assign(world, { store: { ...store, commit } }),
    checker,
  };
}

/** Unused permits are back, and every pod that wants to call does. */
function judgeQuiet(world: World, sweep: Sweep, pods: readonly CallingPod[], hungry: number): void {
  const { row } = sweep;
  const living = pods.filter((pod) => pod?.alive);
  const wanting = living.filter((pod) => pod.wanting > 0);
  if (!row || wanting.length === 0) return;
  const ids = new Set(living.map(({ podId }) => podId));
  const lost = Object.keys(row.shares).filter((podId) => !ids.has(podId));
  if (lost.length > 0) world.violate("H1", `${lost.join()} is gone and holds a share for ever`);
  const held = sweep.held(row);
  const late = sweep.boundsWithin(settledMs);
  const most = Math.max(...late);
  if (held > most) world.violate("H1", `${held} are held of ${most}, for long`);
  // A few pods can't use a high bound: each has only so many calls to make.
  const least = Math.min(...late, living.length * hungry);
  // Some are between two pods, since they go round.
  if (held < least * 0.9 - 2) {
    world.violate("H1", `${held} of ${least} are held, and ${wanting.length} pods wait`);
  }
}

/** Whatever headers say, calls are made, and not many more than are answered. */
function judgeCalls(
  world: World,
  pods: readonly CallingPod[],
  downstream: Downstream,
  before: { readonly ended: number; readonly throttled: number },
): void {
  if (!pods.some((pod) => pod?.alive && pod.wanting > 0)) return;
  const ended = downstream.ended - before.ended;
  const throttled = downstream.throttled - before.throttled;
  if (ended < fewestCalls) world.violate("H1", `pods wait, and ${ended} calls ended at last`);
  if (throttled > fewestCalls && throttled > ended / 2) {
    world.violate("H1", `${throttled} of ${ended} calls were refused at last`);
  }
}

/** No call is counted twice, however often its report was sent and whichever pod led. */
async function judgeCounts(world: World, downstream: Downstream): Promise<void> {
  const [row] = await world.store.database.read(getThrottles([place]));
  if (!row) return;
  const { outcomes } = toThrottleStats(row["stats"] as string);
  const counted = Object.values(outcomes).reduce((sum, count) => sum + count, 0);
  if (counted > downstream.ended) {
    world.violate("samples", `${counted} calls were counted, and ${downstream.ended} have ended`);
  }
}
