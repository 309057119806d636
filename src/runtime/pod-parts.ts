import type { Bus } from "../bus/bus.ts";
import type { Clock } from "../base/clock.ts";
import type { FlotillaError } from "../base/errors.ts";
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
import type { AheadLimits } from "../tasks/claim/claim-ahead.ts";
import type { PodState } from "../tasks/run/pod-status.ts";
import type { Worker, WorkerEvent } from "../tasks/run/worker.ts";
import type { Schedules } from "../schedules/schedules.ts";
import type { Fired } from "../schedules/fire.ts";
import type { Database, StoreEvent } from "../store/database.ts";
import type { AgentFacts } from "../sessions/conversation/command.ts";
import type { SessionLoad } from "../sessions/start.ts";
import type { SessionService } from "../sessions/service.ts";
import type { Sessions } from "../sessions/sessions.ts";
import type { ArchiveState } from "../sessions/log/archive/state.ts";
import type { Journal } from "../sessions/log/journal.ts";
import type { LogOutcome } from "../sessions/log/observed-log.ts";
import type { LogEvent } from "../sessions/log/ownership.ts";
import type { AgentNetwork } from "../sessions/turns/network.ts";
import type { TurnEvent } from "../sessions/turns/parts.ts";
import type { ThrottleRegistry } from "../throttles/registry.ts";
import type { LateStore } from "./logs/late-store.ts";
import type { LogSide, PlacedLogs } from "./logs/placed-logs.ts";
import type { PermitHoldersClient } from "./permit-holders.ts";
import type { ThisProcess } from "./process.ts";
import type { ThrottlesClient } from "../throttles/shares/admin.ts";
import type { ShareDocuments } from "../throttles/shares/documents.ts";
import type { ShareEvent } from "../throttles/shares/shares.ts";
import type { LimiterSnapshot } from "../throttles/limiter/stats.ts";

/** The events of a pod's throttles. */
export type ThrottleEvent =
  | ShareEvent
  | {
      /** This pod leads, and has learned another limit for all pods together. */
      readonly type: "bound";
      readonly name: string;
      readonly key: string;
      readonly bound: number;
      readonly epoch: number;
    };

export type PodThrottlesClient = ThrottlesClient &
  PermitHoldersClient & {
    /** Snapshots of all throttles and keys in use on this pod. */
    here(): LimiterSnapshot[];
  };

/** Everything outside that a pod uses. Production and simulation pass their own. */
export type PodParts = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  log: Logger;
  /** Connects to the other processes. Without it, envelopes are rows of the store. */
  connectBus?: (address: string) => Bus;
  /** The secret of the store, where it is known while the store is away. Default: read there. */
  readSecret?: () => Promise<string>;
  /** Starts the heartbeat, on a thread or, in simulations, on virtual time. */
  startHeartbeat: (options: HeartbeatHooks) => Heartbeat;
  reportAlive: () => void;
  abandonCallsUpTo: (call: number) => void;
  /** Reads this process's event-loop lag and memory. Without it the pod's capacity is constant. */
  readPressure?: () => Pressure;
  /** Reads the bytes of memory that this process uses. */
  readMemory?: () => number;
  /** Keeps results that can't be stored now. Without it they are only in memory. */
  outboxDisk?: OutboxDisk;
  /** How far the pod claims ahead of free slots. Without it, as far as is useful. */
  ahead?: AheadLimits;
  /** How many tasks one batch of a bulk has. Without it, 500. */
  bulkBatchTasks?: number;
  localProgress?: LocalProgress;
  /** Keeps the dead-letter index. Without it the index is only in memory. */
  views?: IndexFiles;
  /** Checks which processes of this machine are gone. Without it none is known to be. */
  thisProcess?: ThisProcess | undefined;
  /** The network to agents at URLs. Default: this machine's. */
  agentNetwork?: AgentNetwork;
  /** Opens the logs of sessions where they may be elsewhere than in the store. */
  openLogs?: (parts: PodLogsLinks) => PlacedLogs;
  /**
   * Refuses a pod that may not run beside others, once its own row is stored. What it is for begins only
   * after that.
   */
  checkOthers?: () => Promise<void>;
  /** The store, where it was away when the pod started: sessions go on meanwhile. */
  late?: Omit<LateStore, "database">;
  /** Where shares of throttles are where they aren't in the store. */
  shareDocuments?: ShareDocuments;
  /** Puts something between the pod and the journal of its sessions. Default: nothing. */
  throughJournal?: (journal: Journal) => Journal;
  /** Lets code outside handlers use the pod's permits. Returns a function that undoes it. */
  shareThrottles?: (throttles: ThrottleRegistry) => () => void;
  /** Whether a program with its own loop holds claims of this pod. Default: it has none. */
  holdsClaims?: () => boolean;
  onEvent?: (event: PodEvent) => void;
  /** Called with the name of a task that was enqueued here and that no live pod has a handler for. */
  onNoWorker?: (name: string) => void;
};

/** What logs of sessions need of the pod whose they are. */
export type PodLogsLinks = {
  readonly bus: Bus;
  readonly host: string | null;
  /** The agents in the pod's code. */
  readonly agents: Readonly<Record<string, AgentFacts>>;
  /** Called when the store has more of these sessions. */
  readonly onArchived: (sessionIds: ReadonlySet<string>) => void;
  /** Called when the store has tasks that were stored with messages. */
  readonly onEnqueued: () => void;
  /** The logs as they are in the store. */
  readonly openStored: () => LogSide;
  /** Called when the logs leave a place, and nothing is to be served from there. */
  readonly onLeave: () => void;
  /** Called when they can be taken in another place. */
  readonly onArrived: () => void;
};

export type HeartbeatHooks = Pick<
  HeartbeatOptions,
  | "podId"
  | "heartbeatMs"
  | "stallBeats"
  | "onBeat"
  | "onError"
  | "metadata"
  | "host"
  | "watchedTables"
>;

export type PodEvent =
  | WorkerEvent
  | StoreEvent
  | ThrottleEvent
  | TurnEvent
  | LogEvent
  | LogOutcome
  | { readonly type: "beat"; readonly atMs: number; readonly lagMs: number }
  | { readonly type: "beat_failed" }
  /** The store was away when the pod started, and can't be used by it now that it is back: the pod stops. */
  | { readonly type: "refused"; readonly error: FlotillaError }
  | ({ readonly type: "fired" } & Fired)
  | {
      readonly type: "leading";
      readonly podId: string | undefined;
      /** How long the last leader had been silent, if it fell silent. */
      readonly silentMs?: number;
    }
  | {
      readonly type: "recovered";
      readonly tasks: number;
      /** For each dead pod with claims: the time from its last beat to the recovery. */
      readonly silencesMs: readonly number[];
    };

/** A running pod: it claims and runs tasks, and has the clients for everything in the store. */
export type Pod = TaskShortcuts & {
  readonly tasks: Tasks;
  readonly podId: string;
  readonly deadLetters: DeadLetters;
  readonly runs: Runs;
  readonly schedules: Schedules;
  readonly throttles: PodThrottlesClient;
  readonly sessions: Sessions;
  /** The service behind the server's session routes; null where the pod serves no sessions. */
  readonly sessionService: SessionService | null;
  /** The pod's load by sessions; undefined while there are none. */
  sessionLoad(): SessionLoad | undefined;
  /** How far the store is behind the logs of sessions; undefined where it has them itself. */
  archiveState(): ArchiveState | undefined;
  /** The leader, as far as this pod knows. */
  readonly leader: string | undefined;
  readonly running: number;
  readonly state: Worker["state"];
  /** How many tasks it may hold right now, and all reasons why it doesn't claim more. */
  readonly capacity: PodState;
  /** Whether an operator wants it to take no more work, as of its last heartbeat. */
  readonly isDraining: boolean;
  /** Stops claiming, waits for running tasks, releases the rest, and marks the pod as left. Idempotent. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};
