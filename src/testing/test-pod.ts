import { FlotillaError } from "../base/errors.ts";
import { isFlow } from "../flows/drive/drive.ts";
import type { Ids } from "../base/ids.ts";
import type { Logger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import type { Clock } from "../base/clock.ts";
import { startHeartbeat } from "../pods/heartbeat.ts";
import { assemblePod, type Pod } from "../runtime/pod.ts";
import type { PodSettings } from "../runtime/config.ts";
import { isAgent } from "../runtime/handlers.ts";
import { lazyService } from "../sessions/lazy-service.ts";
import type { SessionService } from "../sessions/service.ts";
import type { Database } from "../store/database.ts";
import { shareWithProcess } from "../throttles/scope.ts";
import { createAnswering, mortalAgent } from "./scripted-agent.ts";
import {
  type CrashPoint,
  type Life,
  mortalClock,
  mortalDatabase,
  mortalFlow,
  mortalHandler,
} from "./crash.ts";

/** A pod of a test. */
export type TestPod = {
  readonly podId: string;
  readonly alive: boolean;
  /** How many tasks it runs. */
  readonly running: number;
  /** The leader, as far as this pod knows. */
  readonly leader: string | undefined;
  /** The session service of this pod. */
  readonly sessionService: SessionService;
  /** Whether an agent on this pod is answering in this session. */
  answering(sessionId: string): boolean;
  /** Resolves when it has crashed or stopped. */
  readonly gone: Promise<void>;
  crash(): void;
  /** Stops it like a deploy. It waits by the test's clock, so `advance` meanwhile. */
  stop(): Promise<void>;
};

export type TestPodParts = {
  store: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  log: Logger;
  reach: (point: CrashPoint, pod: TestPod) => void;
};

/** A real pod whose heartbeat runs on the test's clock instead of a thread. */
export async function startTestPod(settings: PodSettings, parts: TestPodParts): Promise<TestPod> {
  let alive = true;
  let pod: Pod | undefined;
  let unshare: (() => void) | undefined;
  let aliveReports = 0;
  let abandonedUpTo = 0;
  const answering = createAnswering();
  const gone = Promise.withResolvers<void>();
  const life: Life = {
    get alive() {
      return alive;
    },
    reach: (point) => parts.reach(point, testPod),
  };
  const clock = mortalClock(parts.clock, life);
  const database = mortalDatabase(parts.store, life);
  const podId = parts.ids.next();
  const testPod: TestPod = {
    podId,
    sessionService: lazyService(() => {
      const service = alive ? pod?.sessionService : undefined;
      if (service) return service;
      throw new FlotillaError("closed", "this pod isn't alive, or serves no sessions");
    }),
    answering: (sessionId) => alive && answering.has(sessionId),
    gone: gone.promise,
    get alive() {
      return alive;
    },
    get running() {
      return alive ? (pod?.running ?? 0) : 0;
    },
    get leader() {
      return pod?.leader;
    },
    crash() {
      alive = false;
      unshare?.();
      gone.resolve();
    },
    async stop() {
      if (!alive) return;
      await pod?.stop();
      alive = false;
      gone.resolve();
    },
  };
  const use = settings.use.map((each) =>
    isAgent(each)
      ? mortalAgent(each, life, answering)
      : isFlow(each)
        ? mortalFlow(each, life)
        : mortalHandler(each, life),
  );
  pod = await assemblePod(
    { ...settings, use },
    {
      podId,
      database,
      clock,
      random: parts.random,
      ids: parts.ids,
      log: parts.log,
      startHeartbeat: (hooks) =>
        startHeartbeat({
          ...hooks,
          database,
          clock,
          signs: { aliveCount: () => aliveReports, abandonedUpTo: () => abandonedUpTo },
          onStall: testPod.crash,
        }),
      shareThrottles: (throttles) => (unshare = shareWithProcess(throttles)),
      reportAlive: () => void aliveReports++,
      abandonCallsUpTo: (call) => {
        abandonedUpTo = call;
      },
    },
  );
  await settings.onStart?.(pod);
  return testPod;
}
