/** A pod that does nothing but call: its limiter, its share, and at times the leader's learning. */
import { silentLogger } from "../../../src/base/log.ts";
import { createFleetLearning } from "../../../src/throttles/shares/fleet-learning.ts";
import { createShares } from "../../../src/throttles/shares/shares.ts";
import { createThrottleRegistry } from "../../../src/throttles/registry.ts";
import { createLane, laneClock } from "../lane.ts";
import type { Network } from "../link.ts";
import type { SimPod } from "../pod.ts";
import { startOfTimeMs, type World } from "../world.ts";
import type { Answer, Downstream } from "./downstream.ts";
import { declared } from "./settings.ts";

export type CallingPod = SimPod & {
  readonly limit: number;
  /** When its last call began, in true time. */
  readonly calledMs: number;
  readonly wanting: number;
};

export type CallingPodOptions = {
  readonly podId: string;
  readonly downstream: Downstream;
  /** How many calls it makes at once, if it may. */
  readonly demand: () => number;
  readonly leads: () => boolean;
  readonly isGone: ((host: string) => boolean) | undefined;
  readonly onGone: () => void;
};

const beatMs = 1_000;

export function startCallingPod(
  world: World,
  network: Network,
  options: CallingPodOptions,
): CallingPod {
  const { scheduler } = world;
  const { podId, downstream } = options;
  const lane = createLane(scheduler);
  const random = world.fork();
  const startMs = world.between(0, 1_000_000);
  let wallOffsetMs = 0;
  let goneMs: number | undefined;
  let stopping = false;
  let calledMs = scheduler.nowMs;
  let wanting = 0;
  const wallMs = () => startOfTimeMs + scheduler.nowMs + wallOffsetMs;
  const clock = laneClock(scheduler, lane, { wallMs, startMs });

  const gone = (why: string) => {
    if (goneMs !== undefined) return;
    goneMs = scheduler.nowMs;
    lane.kill();
    scheduler.note(`${podId} is gone: ${why}`);
    options.onGone();
  };
  const database = network.connect({
    who: podId,
    lane,
    crash: () => gone("crashed at a request"),
  });
  const shares = createShares({
    podId,
    database,
    clock,
    random,
    log: silentLogger,
    host: podId,
    isGone: options.isGone,
  });
  const throttles = createThrottleRegistry({
    clock,
    random,
    shared: true,
    onLimiter: (limiter) => shares.add(limiter),
  });
  const limiter = throttles.of(declared);
  const learning = createFleetLearning({ database, clock, log: silentLogger });

  const callOnce = async (): Promise<void> => {
    wanting++;
    const permit = await limiter.acquire().catch(() => undefined);
    wanting--;
    if (!permit) return;
    calledMs = scheduler.nowMs;
    await new Promise<void>((resolve) => {
      const call = downstream.call(podId, (answer) =>
        lane.enter(() => {
          permit.release(limiter.outcomeOf(permit, responseTo(answer)));
          resolve();
        }),
      );
      permit.signal.addEventListener("abort", () => {
        call.end();
        permit.release("timeout");
        resolve();
      });
    });
  };
  let calling = 0;
  const keepCalling = (): void => {
    while (!stopping && calling < options.demand()) {
      calling++;
      void callOnce().then(() => {
        calling--;
      });
    }
    clock.after(world.between(20, 100), keepCalling);
  };
  const beat = (): void => {
    if (options.leads()) {
      world.count("throttle: a leader's pass");
      void learning.pass();
    }
    clock.after(beatMs, beat);
  };
  keepCalling();
  beat();

  return {
    podId,
    names: [],
    slots: 0,
    end: new Promise(() => {}),
    lastBeatMs: 0,
    troubledUntilMs: -1,
    clock,
    started: true,
    running: undefined,
    enter: lane.enter,
    stoppingMs: undefined,
    get alive() {
      return goneMs === undefined;
    },
    get goneMs() {
      return goneMs;
    },
    get limit() {
      return limiter.snapshot().limit;
    },
    get calledMs() {
      return calledMs;
    },
    get wanting() {
      return wanting;
    },
    crash: gone,
    pause(durationMs) {
      scheduler.note(`${podId} pauses for ${durationMs}`);
      lane.hold(durationMs);
    },
    block(durationMs) {
      lane.hold(durationMs);
    },
    stop() {
      if (stopping) return;
      stopping = true;
      scheduler.note(`${podId} is told to stop`);
      void shares.stop().then(() => {
        limiter.close();
        gone("stopped");
      });
    },
    stepWall(byMs) {
      wallOffsetMs += byMs;
    },
    goOn() {
      lane.release();
    },
  };
}

const statuses = { success: 200, throttled: 429, timeout: 504, server_error: 500, ignored: 400 };

/** As much of a response as the limiter looks at. */
function responseTo({ kind, headers }: Answer) {
  return {
    status: statuses[kind],
    headers: { get: (name: string): string | null => headers?.[name] ?? null },
  };
}
