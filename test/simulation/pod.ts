/**
 * A whole pod, as production assembles it, on two simulated threads: the main one, and the
 * heartbeat's with a link of its own. It can be crashed, paused, blocked, stopped and lied to.
 */
import { uuidv7 } from "../../src/base/ids.ts";
import { type Logger, silentLogger } from "../../src/base/log.ts";
import type { Clock } from "../../src/base/clock.ts";
import { startHeartbeat } from "../../src/pods/heartbeat.ts";
import { gapOf } from "../../src/pods/liveness.ts";
import { assemblePod, type Pod } from "../../src/runtime/pod.ts";
import type { ServerConfig } from "../../src/runtime/server-config.ts";
import { resolveConfig } from "../../src/runtime/config.ts";
import type { Usable } from "../../src/runtime/handlers.ts";
import type { AheadLimits } from "../../src/tasks/claim/claim-ahead.ts";
import type { ThisProcess } from "../../src/runtime/process.ts";
import type { ScheduleDeclaration } from "../../src/schedules/schedule.ts";
import type { Journal } from "../../src/sessions/log/journal.ts";
import type { AgentNetwork } from "../../src/sessions/turns/network.ts";
import type { Database } from "../../src/store/database.ts";
import type { PodFacts } from "./checker.ts";
import { createLane, laneClock } from "./lane.ts";
import type { SimConnection } from "./deaths.ts";
import type { SimDisk } from "./disk.ts";
import type { Network } from "./link.ts";
import { schedules } from "./schedules.ts";
import { startOfTimeMs, type World } from "./world.ts";

export type SimPod = PodFacts & {
  readonly clock: Clock;
  /** What it offers to code in its process, once it has started. */
  readonly running: Pod | undefined;
  /** Resolves when it is gone. */
  readonly end: Promise<void>;
  /** Runs this on its main thread: now, or when that goes on. */
  enter(happen: () => void): void;
  crash(why: string): void;
  /** SIGSTOP, and SIGCONT later. */
  pause(durationMs: number): void;
  /** The event loop is blocked; the heartbeat's thread isn't. */
  block(durationMs: number): void;
  /** SIGTERM. */
  stop(): void;
  stepWall(byMs: number): void;
  /** Ends a pause or a block. */
  goOn(): void;
};

export type SimPodOptions = {
  podId: string;
  names: readonly string[];
  settings: {
    slots: number;
    pollMs: number;
    heartbeatMs: number;
    deadAfterMs: number;
    sessions?: { logs: number };
    server?: Pick<ServerConfig, "quotas">;
  };
  handlersFor: (pod: SimPod) => readonly Usable[];
  /** Those that it brings. Default: those of tasks. */
  schedules?: readonly ScheduleDeclaration[];
  /** Something between it and the store. */
  through?: (database: Database, crash: () => void) => Database;
  /** Something between it and the journal of its sessions. */
  throughJournal?: ((journal: Journal) => Journal) | undefined;
  /** The disk of the place that it runs at. */
  disk: SimDisk;
  /** How far it claims ahead of free slots. */
  ahead?: AheadLimits;
  log?: Logger;
  /** The way to agents at URLs. */
  network?: AgentNetwork;
  /** Tells which processes of its machine are gone. */
  thisProcess?: ThisProcess | undefined;
  /** The connection of its heartbeat, where the store shows which are open. */
  connection?: SimConnection | undefined;
  onGone: (why: string) => void;
};

export const stopLimits = { graceMs: 1_000, shutdownMs: 2_000 };

// On a slow link each write takes up to this time.
const usualMs = 500;
// A write that is lost or refused is repeated with growing waits, and one that is late lands in this time.
const hinderedMs = 8_000;

/** The name under which a pod's heartbeat alone can be frozen. */
export const heartOf = (podId: string) => `the heart of ${podId}`;

export function startSimPod(
  world: World,
  network: Network,
  checker: { readonly pods: Map<string, PodFacts>; stopped?(podId: string): void },
  options: SimPodOptions,
): SimPod {
  const { scheduler } = world;
  const { podId, names, connection } = options;
  const main = createLane(scheduler);
  const heart = createLane(scheduler);
  const random = world.fork();
  const startMs = world.between(0, 1_000_000);
  let wallOffsetMs = 0;
  let goneMs: number | undefined;
  let stoppingMs: number | undefined;
  let running: Pod | undefined;
  let breath = 0;
  let floor = 0;
  /** Until when troubles can keep it from giving back what it holds. */
  let hinderedUntilMs = -Infinity;
  const end = Promise.withResolvers<void>();

  const wallMs = () => startOfTimeMs + scheduler.nowMs + wallOffsetMs;
  const clock = laneClock(scheduler, main, { wallMs, startMs });
  const heartClock = laneClock(scheduler, heart, { wallMs, startMs });
  const troubled = (durationMs: number) => {
    pod.troubledUntilMs = Math.max(pod.troubledUntilMs, scheduler.nowMs + durationMs);
  };
  const hindered = (durationMs: number) => {
    hinderedUntilMs = Math.max(hinderedUntilMs, scheduler.nowMs + durationMs + hinderedMs);
  };
  const gone = (why: string) => {
    if (goneMs !== undefined) return;
    goneMs = scheduler.nowMs;
    main.kill();
    heart.kill();
    connection?.end();
    scheduler.note(`${podId} is gone: ${why}`);
    end.resolve();
    options.onGone(why);
  };
  const pod: SimPod = {
    podId,
    names,
    slots: options.settings.slots,
    end: end.promise,
    lastBeatMs: scheduler.nowMs,
    troubledUntilMs: -1,
    clock,
    get alive() {
      return goneMs === undefined;
    },
    get goneMs() {
      return goneMs;
    },
    get stoppingMs() {
      return stoppingMs;
    },
    get started() {
      return running !== undefined;
    },
    get running() {
      return running;
    },
    enter: main.enter,
    crash: gone,
    pause(durationMs) {
      scheduler.note(`${podId} pauses for ${durationMs}`);
      troubled(durationMs);
      hindered(durationMs);
      main.hold(durationMs);
      heart.hold(durationMs);
    },
    block(durationMs) {
      scheduler.note(`${podId} blocks for ${durationMs}`);
      hindered(durationMs);
      main.hold(durationMs);
    },
    stop() {
      scheduler.note(`${podId} is told to stop`);
      stoppingMs ??= scheduler.nowMs;
      void running?.stop().then(() => {
        if (hinderedUntilMs < stoppingMs!) {
          world.count("stop: unhindered");
          checker.stopped?.(podId);
        }
        gone("stopped");
      });
    },
    stepWall(byMs) {
      scheduler.note(`${podId} steps its clock by ${byMs}`);
      wallOffsetMs += byMs;
    },
    goOn() {
      main.release();
      heart.release();
    },
  };
  checker.pods.set(podId, pod);

  const settings = resolveConfig({
    ...options.settings,
    ...stopLimits,
    use: options.handlersFor(pod),
    schedules: options.schedules ?? schedules,
  });
  const crash = () => gone("crashed at a request");
  const connected = network.connect({
    who: podId,
    lane: main,
    crash,
    pause: (durationMs) => pod.pause(durationMs),
    onTrouble(durationMs) {
      if (durationMs > usualMs) hindered(durationMs);
    },
    onFrozen: () => hindered(0),
  });
  const database = options.through?.(connected, crash) ?? connected;
  const heartDatabase = network.connect({
    who: podId,
    alias: heartOf(podId),
    lane: heart,
    onTrouble(durationMs) {
      troubled(durationMs);
      connection?.end();
    },
  });
  // What the heartbeat's thread tells the main one arrives as a message.
  const toMain = (happen: () => void) => scheduler.after(0.01, () => main.enter(happen));
  let lastSeenMs: number | undefined;

  assemblePod(settings, {
    podId,
    database,
    clock,
    random,
    ids: uuidv7(clock, random),
    log: options.log ?? silentLogger,
    thisProcess: options.thisProcess,
    ...(options.network && { agentNetwork: options.network }),
    ...(options.throughJournal && { throughJournal: options.throughJournal }),
    startHeartbeat: (hooks) =>
      startHeartbeat({
        ...hooks,
        database: heartDatabase,
        clock: heartClock,
        signs: { aliveCount: () => breath, abandonedUpTo: () => floor },
        onBeat(seen) {
          const gapMs = lastSeenMs === undefined ? 0 : seen.atMs - lastSeenMs;
          if (gapMs > gapOf(settings)) world.count("fence: liveness, gap");
          lastSeenMs = seen.atMs;
          const shown = connection?.show(seen) ?? seen;
          toMain(() => hooks.onBeat(shown));
        },
        onError: (error) => toMain(() => hooks.onError(error)),
        onStall: () => gone("stalled"),
      }),
    outboxDisk: options.disk.attach(main),
    ...(options.ahead && { ahead: options.ahead }),
    // Tasks are few here, and a bulk is to have several batches.
    bulkBatchTasks: 2,
    reportAlive: () => void breath++,
    abandonCallsUpTo: (call) => {
      floor = call;
    },
    onEvent(event) {
      if (event.type === "leading" && event.podId === podId) scheduler.note(`${podId} leads`);
    },
  }).then(
    (assembled) => {
      running = assembled;
      scheduler.note(`${podId} has started`);
    },
    () => gone("couldn't start"),
  );
  return pod;
}
