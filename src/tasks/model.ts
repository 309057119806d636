import type { Span } from "@opentelemetry/api";
import type { Backoff } from "../base/backoff.ts";
import type { Clock } from "../base/clock.ts";
import type { Ids } from "../base/ids.ts";
import type { Json } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import type { Schema } from "../base/schema.ts";
import type { ModelTotal, Prices } from "../base/usage.ts";
import type { Steps, TaskSteps } from "../steps/model.ts";
import type { ReadSteps } from "../steps/reader.ts";
import type { Database } from "../store/database.ts";
import type { ThrottleDeclaration } from "../throttles/declaration.ts";
import type { Limiter } from "../throttles/limiter/limiter.ts";
import type { HeldPermit } from "../throttles/limiter/permit.ts";
import type { Priority } from "../throttles/limiter/priority.ts";
import type { ThrottleRegistry } from "../throttles/registry.ts";
import type { Concurrency, NamedQueue } from "./concurrency/limits.ts";
import type { HandlerFiles, TaskFiles } from "./files/task-files.ts";
import type { FinishResult, FinishWriter } from "./finish/finish-writer.ts";
import type { Claim, SetAsideTask, Task, TaskError } from "./rows.ts";
import type { Finish } from "./sql/finish.ts";

/**
 * The types that know each other: a handler may have the driver of a flow, which gets an attempt,
 * which has its handler. They are in one file, so that no two files import each other.
 */

/** What a handler is called with. */
export type TaskContext<Input> = {
  readonly input: Input;
  readonly taskId: string;
  readonly name: string;
  /** 1 for the first attempt, and for the first after a stored step. */
  readonly attempt: number;
  /** How often it has thrown `snooze`, which does not count as an attempt. */
  readonly snoozes: number;
  /**
   * The schedule's time that it was created for, however late it runs; undefined without a
   * schedule.
   */
  readonly scheduledAtMs: number | undefined;
  /** Grows with every claim. Pass it to systems that can reject writes with an older token. */
  readonly token: number;
  /**
   * The version of the code that has stored the task's first step: this one's if none is stored yet, 0 if
   * it had none.
   */
  readonly begunBy: number;
  /** Aborts on timeout, cancel, shutdown, and when another pod has the task. */
  readonly signal: AbortSignal;
  /** Publishes the task's progress. The newest value wins; it is stored a few times a second. */
  readonly progress: (value: Json) => void;
  /** The tasks that this one was enqueued after, as they are now, in the given order. */
  readonly parents: () => Promise<Task[]>;
  /** The last saved progress, of this attempt or an earlier one; null if there is none. */
  readonly lastProgress: () => Promise<Json>;
  /**
   * Completes the task in your own transaction on the same database, and returns the result: your
   * writes and the completion commit together or not at all. It throws if another pod has the task
   * by now, so that you roll back. What the handler returns afterwards is not stored.
   */
  readonly complete: <Result>(tx: unknown, result: Result) => Promise<Result>;
  /**
   * Calls a function once and stores what it returns, so that a later attempt gets the stored value
   * instead of calling it again. Attempts and deaths count from the last stored step.
   */
  readonly step: TaskSteps;
  /** Reads the files that the payload refers to, and stores others. */
  readonly files: HandlerFiles;
  readonly log: Logger;
};

/** A task's name and types, without its code: safe to import anywhere. */
export type TaskContract<Input = any, Parsed = any, Output = any> = {
  readonly name: string;
  readonly input: Schema<Input, Parsed> | undefined;
  readonly output: Schema<any, Output> | undefined;
  readonly concurrency?: Concurrency;
  /** The named queue whose limit it counts against, together with others. */
  readonly queue?: NamedQueue | undefined;
  /** True for a flow, whose stored rows are runs. */
  readonly isFlow?: true;
};

/** The contract of a flow, which is started and not enqueued. */
export type FlowContract<Input = any, Parsed = any, Output = any> = TaskContract<
  Input,
  Parsed,
  Output
> & { readonly isFlow: true };

/** A contract together with its code. Goes into `use`. */
export type TaskHandler<Input = any, Parsed = any, Output = any> = TaskContract<
  Input,
  Parsed,
  Output
> & {
  readonly options: {
    readonly attempts: number;
    readonly timeoutMs: number;
    readonly backoff: Backoff;
    readonly slots?: number;
    readonly progress?: "store" | "local";
  };
  readonly throttle?: TaskThrottle;
  /** The version of its code. */
  readonly version?: number;
  /** The handler of the follow-up after it fails for good. */
  readonly onFailure?: TaskHandler;
  readonly run: (context: TaskContext<Parsed>) => unknown;
  /** For a flow: its version, and the driver of its runs in place of `run`. */
  readonly flow?: { readonly version: number; readonly drive: FlowDriver };
};

/** A handler's throttle after validation. */
export type TaskThrottle = {
  readonly declared: ThrottleDeclaration;
  readonly key: string | ((input: unknown) => string);
  readonly priority: Priority | undefined;
  readonly estimate: number | ((input: unknown) => number) | undefined;
};

/**
 * What a task of a throttled name was claimed with: a permit, or the reason why it cannot run now.
 */
export type Throttled =
  | {
      readonly limiter: Limiter;
      readonly permit: HeldPermit;
      readonly priority: Priority | undefined;
      /** True once the handler owns the permit and releases it. */
      handedOver: boolean;
    }
  | { readonly refused: AttemptOutcome };

/** The progress of attempts, kept until it is stored. */
export type TaskProgress = {
  save(attempt: TaskAttempt, value: string): void;
  /** The last saved value, of this attempt or an earlier one; null if there is none. */
  last(attempt: TaskAttempt): Promise<Json>;
  isUnsaved(attempt: TaskAttempt): boolean;
  /** Stores the last progress of an attempt that may be followed by another. */
  leave(attempt: TaskAttempt): Promise<void>;
  forget(attempt: TaskAttempt): void;
  /** Forgets local progress once the task has ended or another pod continues it. */
  finished(attempt: TaskAttempt, finished: FinishedAttempt): void;
  stop(): void;
};

/** Why a running attempt is stopped. */
export type StopReason = "timeout" | "cancel" | "shutdown" | "claim_lost";

/** One attempt in progress on this pod. */
export type TaskAttempt = {
  readonly claim: Claim;
  readonly handler: TaskHandler;
  /** When the current work began: the attempt, or the transition of a run. */
  startedMs: number;
  /** When the answer with its claim came, by the monotonic clock. */
  readonly answeredMs: number;
  /** When the handler or driver was called, and when the outcome came, by the same clock. */
  beganMs: number;
  endedMs: number;
  /** The timeout of that work. */
  timeoutMs: number;
  /** When the worker must act on it next: at its timeout, then at the end of its grace. */
  actAtMs: number;
  /** The last `wake` read, which a later decision must not miss. */
  wake: number;
  /** How often the driver has written this run. 0 for a task. */
  runSeq: number;
  stopReason: StopReason | undefined;
  /** True once the handler or driver was called. */
  begun: boolean;
  /**
   * Set once, when the worker has accepted the outcome; a handler that settles later changes
   * nothing.
   */
  ended: boolean;
  /** Set once the handler has called `complete` with a transaction of its own. */
  completing: boolean;
  controller: AbortController | undefined;
  /** True once the driver of a run knows of its cancel, so that it is reported only once. */
  cancelSeen: boolean;
  /**
   * Called when the work did not stop within its grace. Only set where the flow's driver ends the
   * attempt.
   */
  abandon: (() => void) | undefined;
  /** Only set when the program traces. */
  span: Span | undefined;
  /** Only set when its name is throttled. */
  throttled: Throttled | undefined;
  /** Set with its first step. */
  steps: Steps | undefined;
  /** True if a transaction of the handler may hold the task's row, so that others need not wait. */
  rowHeld: boolean;
};

/** What a pod provides to the driver of a flow's runs. */
export type DriverHost = AttemptParts & {
  clock: Clock;
  random: Random;
  ids: Ids;
  finishWriter: Pick<FinishWriter, "put">;
  progress: Pick<TaskProgress, "forget" | "isUnsaved" | "leave">;
  /** Aborts when there is no more time to wait for the store. */
  signal: AbortSignal;
  /** True when the pod stops, so that a stored run is released instead of continued. */
  stopping: () => boolean;
  /** Must be called when the attempt's `actAtMs` has changed. */
  watch: (atMs: number) => void;
  onEvent: (event: WorkerEvent) => void;
};

/** A run was driven as far as possible and its state is stored, or could not be stored. */
export type DriveResult =
  | ({ readonly type: "driven" } & FinishedAttempt)
  | { readonly type: "not_stored"; readonly error: unknown };

/** Drives a claimed run from transition to transition. Never rejects. */
export type FlowDriver = (attempt: TaskAttempt, parts: DriverHost) => Promise<DriveResult>;

export type AttemptParts = {
  database: Database;
  progress: Pick<TaskProgress, "last" | "save">;
  log: Logger;
  podId: string;
  maxResultBytes: number;
  middleware: readonly Middleware[];
  /** The pod's own registry, if it has one. */
  throttles?: ThrottleRegistry | undefined;
  /** What the steps of tasks need. */
  steps: StepHost;
  files: Pick<TaskFiles, "ofTask" | "takeResult">;
};

/** What a pod provides to the steps of its tasks. */
export type StepHost = {
  clock: Clock;
  random: Random;
  /** Makes the ids of children. */
  ids: Ids;
  /** How long a function may take to settle after its signal has aborted. */
  graceMs: number;
  readSteps: ReadSteps;
  storeStep: FinishWriter["storeStep"];
  /** True when the pod stops, so that a task is left to another pod before its next step. */
  stopping: () => boolean;
  onEvent: (event: WorkerEvent) => void;
  /** What models cost, for budgets. */
  prices?: Prices | undefined;
};

/**
 * Calls the next middleware, and after the last one the handler. Resolves with what that returns.
 */
export type Next = () => Promise<unknown>;

/**
 * Wraps every handler. It calls `next` once and awaits it. What it returns is the result, and what
 * it throws counts as thrown by the handler.
 */
export type Middleware = (context: TaskContext<unknown>, next: Next) => unknown;

export type TaskOutcome =
  | "completed"
  | "retry"
  | "failed"
  | "cancelled"
  | "released"
  | "snoozed"
  | "lost";

export type TransitionOutcome =
  | "completed"
  | "retry"
  | "failed"
  | "cancelled"
  | "parked"
  /** Released unchanged: the pod stops, or a read of the store failed. */
  | "interrupted"
  /** Another pod has the run, and this pod's outcome is not stored. */
  | "lost";

/** Events of a worker, for metrics. */
export type WorkerEvent =
  | { readonly type: "claimed"; readonly tasks: number; readonly tookMs: number }
  | { readonly type: "claim_failed"; readonly code: string; readonly waitMs: number }
  | {
      readonly type: "ended";
      readonly name: string;
      readonly outcome: TaskOutcome;
      readonly tookMs: number;
      /** From when it was due until its handler was called; undefined if that isn't known. */
      readonly waitedMs?: number | undefined;
      /** From the call of its handler to the outcome; undefined if it wasn't called. */
      readonly ranMs?: number | undefined;
    }
  | {
      /** A transition or finalizer of a run was executed or waited, and its outcome is stored. */
      readonly type: "transition";
      readonly flow: string;
      readonly transition: string;
      readonly outcome: TransitionOutcome;
      readonly tookMs: number;
    }
  /** A step of a task was run and is stored, or was answered from the journal. */
  | { readonly type: "step"; readonly name: string; readonly outcome: "stored" | "answered" }
  /** A model was called in a step, or `saved`: a stored step has answered for it. */
  | ({ readonly type: "tokens"; readonly saved: boolean } & ModelTotal)
  /** A run was written for the first time and is at its first transition. */
  | { readonly type: "run_begun"; readonly flow: string }
  /** The run cannot be read, and an operator has to inspect it. */
  | { readonly type: "run_set_aside"; readonly flow: string; readonly reason: string }
  | {
      readonly type: "run_ended";
      readonly flow: string;
      readonly status: "completed" | "failed" | "cancelled";
      /** Since its start, by the store's clock. */
      readonly tookMs: number;
    };

export type FinishedAttempt = { readonly finish: Finish; readonly finished: FinishResult };

/** How an attempt ended on its pod. */
export type AttemptOutcome =
  | { readonly type: "returned"; readonly result: string }
  | { readonly type: "threw"; readonly thrown: unknown }
  | { readonly type: "timed_out"; readonly timeoutMs: number }
  | { readonly type: "cancelled" }
  /** Not the task's fault: it is released uncounted, at once or after a delay. */
  | { readonly type: "interrupted"; readonly delayMs?: number }
  /** Its steps wait for a time, a signal or children. */
  | {
      readonly type: "parked";
      readonly delayMs: number | null;
      /** The name of the signal, or what the keys of the children begin with. */
      readonly awaits: string | null;
      readonly children?: Finish["children"];
    }
  /** A stored step can't answer: nothing changes until the task is resumed. */
  | { readonly type: "set_aside"; readonly why: SetAsideTask }
  /** The handler was not called, because a dependency did not complete. */
  | { readonly type: "unmet"; readonly error: TaskError };
