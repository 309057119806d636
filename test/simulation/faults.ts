/**
 * What goes wrong and when. Each seed picks a few kinds of trouble, so that some runs have one kind
 * alone and others a mixture: what hides among many faults shows among few.
 */
import { sql, table } from "../../src/store/sql.ts";
import type { Network } from "./link.ts";
import { heartOf, type SimPod } from "./pod.ts";
import { noTroubles, type Troubles, type World } from "./world.ts";

export type FaultsOptions = {
  network: Network;
  pods: () => readonly SimPod[];
  untilMs: number;
  deadAfterMs: number;
  /** Pods are told to stop, and nothing else goes wrong. */
  onlyStops?: boolean;
  /** How likely a pod stands still while a step is on its way. Default 0. */
  pausedAtStep?: number;
};

const hourMs = 3_600_000;

/** Starts the troubles of this seed, and ends them all at `untilMs`. */
export function startFaults(world: World, options: FaultsOptions): void {
  const { scheduler, frozen, storeClock } = world;
  const { network, untilMs, deadAfterMs, onlyStops = false, pausedAtStep = 0 } = options;
  world.troubles = onlyStops ? noTroubles : { ...drawTroubles(world), pausedAtStep };
  let latestOffsetMs = 0;

  const anyPod = (): SimPod | undefined => {
    const living = options.pods().filter((pod) => pod.alive);
    return living.length > 0 ? world.pick(living) : undefined;
  };
  const freeze = (who: string) => {
    const durationMs = world.between(500, deadAfterMs * 2.5);
    const mode = world.pick(["hang", "refuse"] as const);
    scheduler.note(`writes of ${who} freeze for ${durationMs}, ${mode}`);
    const lastMs = frozen.get(who)?.untilMs ?? 0;
    frozen.set(who, { untilMs: Math.max(lastMs, scheduler.nowMs + durationMs), mode });
    return durationMs;
  };
  const freezeOne = (nameOf: (pod: SimPod) => string) => {
    const pod = anyPod();
    if (!pod) return;
    const durationMs = freeze(nameOf(pod));
    pod.troubledUntilMs = Math.max(pod.troubledUntilMs, scheduler.nowMs + durationMs + 1_500);
  };
  const step = () => world.pick([-1, 1]) * world.between(1_000, hourMs);

  const timed: Readonly<Record<string, () => void>> = {
    "fault: crash": () => anyPod()?.crash("crashed"),
    "fault: pause": () => anyPod()?.pause(world.between(500, deadAfterMs * 2.5)),
    "fault: block": () => anyPod()?.block(world.between(500, deadAfterMs * 2.5)),
    "fault: freeze all": () => void freeze("*"),
    "fault: freeze one": () => freezeOne((pod) => pod.podId),
    "fault: freeze a heart": () => freezeOne((pod) => heartOf(pod.podId)),
    "fault: stop": () => {
      const pod = anyPod();
      if (pod?.started) pod.stop();
    },
    "fault: wall clock step": () => anyPod()?.stepWall(step()),
    "fault: store clock step": () => {
      storeClock.offsetMs += step();
      latestOffsetMs = Math.max(latestOffsetMs, storeClock.offsetMs);
      scheduler.note(`the store's clock is off by ${storeClock.offsetMs}`);
    },
    "fault: hint in vain": () => network.hint(),
    // What pruning does to a pod that was away for a day; it must come back with its next beat. By
    // then nothing that it had sent before is still on its way.
    "fault: pod forgotten": () => {
      const pod = anyPod();
      if (!pod || world.onTheWay.get(pod.podId)) return;
      scheduler.note(`${pod.podId} is forgotten`);
      // Its beats until now are forgotten with it: pods that haven't seen them can't any more.
      pod.lastBeatMs = -Infinity;
      pod.forgotten = true;
      void world.store.database.write([
        sql`delete from ${table("pod")} where pod_id = ${pod.podId}`,
      ]);
    },
  };

  for (const [name, strike] of Object.entries(timed)) {
    if (onlyStops ? name !== "fault: stop" : !world.chance(0.4)) continue;
    const everyMs = onlyStops ? 2_000 : world.between(3_000, 15_000);
    const loop = () => {
      if (scheduler.nowMs >= untilMs) return;
      world.count(name);
      strike();
      scheduler.after(world.between(everyMs / 4, everyMs * 2), loop);
    };
    scheduler.after(world.between(1_000, everyMs), loop);
  }

  scheduler.after(untilMs, () => {
    scheduler.note("the faults stop");
    world.troubles = noTroubles;
    frozen.clear();
    // What was made due by a clock that ran ahead would otherwise be waited for.
    storeClock.offsetMs = latestOffsetMs;
    for (const pod of options.pods()) pod.goOn();
  });
}

function drawTroubles(world: World): Omit<Troubles, "pausedAtStep"> {
  const share = (most: number) => (world.chance(0.4) ? (world.between(1, 10) / 10) * most : 0);
  return {
    delayMs: world.pick([3, 30, 150, 500]),
    slow: share(0.03),
    refused: share(0.08),
    lostBefore: share(0.05),
    lostAfter: share(0.05),
    late: share(0.05),
    doubled: share(0.05),
    crashBefore: share(0.01),
    crashAfter: share(0.02),
    hintLost: share(0.5),
    hintLate: share(0.3),
  };
}
