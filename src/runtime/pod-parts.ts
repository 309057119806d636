import type { Clock } from "../base/clock.ts";
import type { Ids } from "../base/ids.ts";
import type { Logger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import type { DeadLetters } from "../dead-letters/dead-letters.ts";
import type { Runs } from "../flows/runs.ts";
import type { IndexFiles } from "../dead-letters/index-files.ts";
import type { Heartbeat, HeartbeatOptions } from "../pods/heartbeat.ts";
import type { Tasks, TaskShortcuts } from "../tasks/tasks.ts";
import type { LocalProgress } from "../tasks/run/local-progress.ts";
import type { OutboxDisk } from "../tasks/finish/outbox.ts";
import type { Pressure } from "../tasks/claim/capacity.ts";
import type { PodState } from "../tasks/run/pod-status.ts";
import type { Worker, WorkerEvent } from "../tasks/run/worker.ts";
import type { Schedules } from "../schedules/schedules.ts";
import type { Fired } from "../schedules/fire.ts";
import type { Database, StoreEvent } from "../store/database.ts";
import type { SessionLoad } from "../sessions/start.ts";
import type { SessionService } from "../sessions/service.ts";
import type { Sessions } from "../sessions/sessions.ts";
import type { LogEvent } from "../sessions/log/ownership.ts";
import type { AgentNetwork } from "../sessions/turns/network.ts";
import type { TurnEvent } from "../sessions/turns/parts.ts";
import type { ThrottleRegistry } from "../throttles/registry.ts";
import type { ThisProcess } from "./process.ts";
import type { PodThrottlesClient, ThrottleEvent } from "./throttles.ts";

/** Everything a pod touches of the outside. Production and simulation bring their own. */
export type PodParts = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  log: Logger;
  /** Starts the heartbeat, on a thread or, in simulations, on virtual time. */
  startHeartbeat: (options: HeartbeatHooks) => Heartbeat;
  reportAlive: () => void;
  abandonCallsUpTo: (call: number) => void;
  /** Looks how hard this process has it. Without it the pod's capacity is what it is. */
  readPressure?: () => Pressure;
  /** Where endings are kept that the store can't take now. Without it, in memory alone. */
  outboxDisk?: OutboxDisk;
  localProgress?: LocalProgress;
  /** Where the view of failed tasks is kept. Without it, in memory. */
  views?: IndexFiles;
  /** Tells which processes of this machine are gone. Without it nobody is known to be. */
  thisProcess?: ThisProcess | undefined;
  /** The way to agents at URLs. Without it, the network of this machine. */
  agentNetwork?: AgentNetwork;
  /** Lets code of this process that is outside of handlers use the pod's permits, until it is undone. */
  enlist?: (throttles: ThrottleRegistry) => () => void;
  onEvent?: (event: PodEvent) => void;
  /** Told of a name that a task was enqueued under here and that no pod which is up works on. */
  onNoWorker?: (name: string) => void;
};

export type HeartbeatHooks = Pick<
  HeartbeatOptions,
  "podId" | "heartbeatMs" | "stallBeats" | "onBeat" | "onError" | "metadata"
>;

export type PodEvent =
  | WorkerEvent
  | StoreEvent
  | ThrottleEvent
  | TurnEvent
  | LogEvent
  | { readonly type: "beat"; readonly lagMs: number }
  | { readonly type: "beat_failed" }
  | ({ readonly type: "fired" } & Fired)
  | {
      readonly type: "leading";
      readonly podId: string | undefined;
      /** How long the leader before had been silent, if it fell silent. */
      readonly silentMs?: number;
    }
  | {
      readonly type: "recovered";
      readonly tasks: number;
      /** For each pod that held some: from its last beat until they were given back. */
      readonly silencesMs: readonly number[];
    };

/** One running Flotilla process: it claims and runs tasks, and can be asked everything about them. */
export type Pod = TaskShortcuts & {
  readonly tasks: Tasks;
  readonly podId: string;
  readonly deadLetters: DeadLetters;
  readonly runs: Runs;
  readonly schedules: Schedules;
  readonly throttles: PodThrottlesClient;
  readonly sessions: Sessions;
  /** What the server asks through; null where the pod serves no sessions. */
  readonly sessionService: SessionService | null;
  /** What it has to do for sessions right now; undefined while there are none. */
  sessionLoad(): SessionLoad | undefined;
  /** The pod that this one takes for the leader. */
  readonly leader: string | undefined;
  readonly running: number;
  readonly state: Worker["state"];
  /** How many tasks it takes on at most right now, and everything that keeps it from claiming more. */
  readonly capacity: PodState;
  /** Stops claiming, lets running tasks end, gives the rest back, says goodbye. Can be called again. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};
