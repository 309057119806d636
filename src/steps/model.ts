import type { Clock } from "../base/clock.ts";
import type { FlotillaError } from "../base/errors.ts";
import type { Json, Jsonify } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import type { Schema } from "../base/schema.ts";
import type { ModelCallOptions } from "./model-calls.ts";
import type { Throttle } from "../throttles/throttle.ts";

/** What a step's function is called with. */
export type StepContext = {
  /** Steps within this step. They are forgotten in the write that stores this one. */
  readonly step: Step;
  /**
   * The same in every attempt, and different from that of every other step of every other task: a
   * key for downstreams that do nothing twice under one key. At most 255 printable characters.
   */
  readonly key: string;
  /** Aborts on the step's timeout, and with the signal of the attempt. */
  readonly signal: AbortSignal;
  readonly log: Logger;
  /**
   * Stores the step in your own transaction on the same database, and returns the result: your
   * writes and the step commit together or not at all. It throws if another pod has the task by
   * now, so that you roll back. What the function returns afterwards is not stored.
   */
  readonly store: <Result>(tx: unknown, result: Result) => Promise<Result>;
};

export type StepOptions<Result = unknown> = {
  /** Tells steps of one name apart that run at the same time. Up to 1,000 characters. */
  key?: string;
  /** Its hash is stored. If a later attempt gives another input, the step is refused. */
  input?: Json;
  /** How long its function may take before its signal aborts. Default 15 minutes. */
  timeoutMs?: number;
  /** It runs under a permit of this throttle. */
  throttle?: Throttle;
  /**
   * Its function is called at most once, whatever happens. If a pod died in it, `look` finds out
   * what became of it; without `look`, or if that gives undefined, the step throws
   * `unknown_outcome`.
   */
  once?: true | { look(context: StepContext): Promise<Result | undefined> | Result | undefined };
};

export type ForEachOptions<Item> = {
  /** The key of an item, by which its step is found again. */
  key: (item: Item, index: number) => string;
  /** How many run at the same time. Default 10. */
  atOnce?: number;
  /** Each item's function runs under a permit of this throttle. */
  throttle?: Throttle;
  /** How long the function of one item may take. Default 15 minutes. */
  timeoutMs?: number;
};

type Run<Result> = (context: StepContext) => Result | Promise<Result>;

/** What ends a loop: `done(result)` of its round. */
export type LoopDone<Result> = { readonly done: Result };

export type RoundContext = Omit<StepContext, "store"> & {
  /** Ends the loop with a result. */
  readonly done: <Result>(result: Result) => LoopDone<Result>;
};

/** Calls a function once and stores what it returns: a later attempt gets the stored value. */
export type Step = {
  <Result>(name: string, run: Run<Result>): Promise<Jsonify<Result>>;
  <Result>(name: string, options: StepOptions<Result>, run: Run<Result>): Promise<Jsonify<Result>>;
  /** One step per item, found again by its key. The results are in the order of the items. */
  forEach<Item, Result>(
    name: string,
    items: readonly Item[],
    options: ForEachOptions<Item>,
    run: (item: Item, context: StepContext) => Result | Promise<Result>,
  ): Promise<Jsonify<Result>[]>;
  /**
   * Calls `round` with the state that the last round returned, until one returns `done(result)`.
   * Each round stores its state and forgets its steps, so that a loop may go on for hours.
   */
  loop<State, Result>(
    name: string,
    first: State,
    round: (
      state: Jsonify<State>,
      context: RoundContext,
    ) => State | LoopDone<Result> | Promise<State | LoopDone<Result>>,
  ): Promise<Jsonify<Result>>;
};

/** What only the steps of a task can do: the task waits, and no pod, slot or memory is held meanwhile. */
export type StepWaits = {
  /** Waits this long, from the first time that it is called. */
  sleep(name: string, ms: number): Promise<void>;
  /** Waits for a signal of this name that is sent to the task, before or after this call. */
  signal<Payload = Json>(name: string, options?: StepSignalOptions<Payload>): Promise<Payload>;
  /** Starts tasks and runs of flows, and waits until all have ended. Their results are in order. */
  children<
    const Rows extends readonly StepChild[],
    const Failures extends "fail" | "keep" = "fail",
  >(
    name: string,
    list: Rows & FittingChildren<Rows>,
    options?: StepChildrenOptions<Failures>,
  ): Promise<ChildResults<Rows, Failures>>;
};

/** A task or a flow, without its code. */
export type ChildContract<Input = any, Output = any> = {
  readonly name: string;
  readonly input: Schema<Input, any> | undefined;
  readonly output: Schema<any, Output> | undefined;
};

export type StepChildOptions = {
  priority?: number;
  /** Default: the tenant of the task that starts it. */
  tenant?: string;
};

/** A child: the task or flow, its input, and options. */
export type StepChild = readonly [
  contract: ChildContract,
  input: unknown,
  options?: StepChildOptions,
];

export type StepChildrenOptions<Failures> = {
  /**
   * If a child fails or is cancelled. `fail`: the step fails when all have ended. `keep`: the result
   * says how each child ended. Default `fail`.
   */
  failures?: Failures;
  /**
   * How long to wait for all of them, from when they were started. Then the step throws `timeout`, and
   * they go on. Default: without a limit.
   */
  timeoutMs?: number;
};

/** How a child ended. */
export type StepChildOutcome<Output> =
  | { readonly status: "completed"; readonly output: Output }
  | {
      readonly status: "failed";
      readonly error: { readonly code: string; readonly message: string };
    }
  | { readonly status: "cancelled" };

/** Children whose inputs match their contracts. */
export type FittingChildren<Rows extends readonly StepChild[]> = {
  readonly [At in keyof Rows]: readonly [
    contract: Rows[At][0],
    input: Rows[At][0] extends ChildContract<infer Input, any> ? Input : never,
    options?: StepChildOptions,
  ];
};

export type ChildResults<Rows extends readonly StepChild[], Failures> = {
  -readonly [At in keyof Rows]: Failures extends "keep"
    ? StepChildOutcome<ChildResult<Rows[At][0]>>
    : ChildResult<Rows[At][0]>;
};

type ChildResult<Contract> =
  Contract extends ChildContract<any, infer Output> ? Jsonify<Output> : never;

export type StepSignalOptions<Payload> = {
  /** Signals that it refuses are dropped with a warning. */
  schema?: Schema<any, Payload>;
  /** How long to wait, from the first time that it is called. Default: without a limit. */
  timeoutMs?: number;
  /** What to return when that is over. Without it, the step throws `timeout`. */
  onTimeout?: { value: Payload };
};

/** The steps of a task. A round of a loop may wait as well; a step that runs can't. */
export type TaskSteps = StepWaits & {
  loop<State, Result>(
    name: string,
    first: State,
    round: (
      state: Jsonify<State>,
      context: Omit<RoundContext, "step"> & { readonly step: TaskSteps },
    ) => State | LoopDone<Result> | Promise<State | LoopDone<Result>>,
  ): Promise<Jsonify<Result>>;
} & Step;

/** What a parked owner waits for: a time, a signal of any name, children, or the first of these. */
export type StepPark = {
  readonly delayMs: number | null;
  readonly awaits: string | null;
  /** The keys of the steps whose children it waits for. */
  readonly children: readonly string[];
};

/** A child of a step, as it is now. `gone`: its row was deleted. */
export type StepChildState = { readonly taskId: string; readonly name: string } & (
  | { readonly status: "open" | "cancelled" | "gone" }
  | { readonly status: "completed"; readonly result: Json }
  | {
      readonly status: "failed";
      readonly error: { readonly code: string; readonly message: string };
    }
);

/** What an owner that can be parked provides. */
export type WaitHost = {
  /** The first signal of this name that no step has taken. */
  nextSignal(
    name: string,
  ): Promise<{ readonly signalId: string; readonly payload: Json } | undefined>;
  /** Makes the children of a step. What it returns stores them together with the step's row. */
  prepareChildren(
    key: string,
    list: readonly StepChild[],
  ): Promise<(write: StepWrite) => Promise<void>>;
  /** This many children of a step, in their order. */
  readChildren(key: string, count: number): Promise<StepChildState[]>;
};

/**
 * `done`: its value is what the function returned. `failed`: its value is an error that is thrown
 * again. `begun`: a step that is called at most once has been called. `round`: the state of a loop.
 * `wait`: how long a wait lasts, from when the row was stored, or how many children were started.
 */
export type StepKind = "done" | "failed" | "begun" | "round" | "wait";

/** A row of the journal. */
export type StoredStep = {
  readonly key: string;
  readonly seq: number;
  readonly kind: StepKind;
  readonly inputHash: string | null;
  /** Undefined if it is too large to be read together with all others. */
  readonly value: string | undefined;
  readonly bytes: number;
  /** How long ago it was stored, when it was read. */
  readonly ageMs: number;
};

/** A row to store. */
export type StepWrite = {
  readonly key: string;
  /** Numbers the writes of a journal, so that a resend is known from a later write of the key. */
  readonly seq: number;
  readonly kind: StepKind;
  readonly inputHash: string | null;
  readonly value: string;
  readonly tookMs: number;
  /** True if rows of steps within this one may be stored, which are deleted by the same write. */
  readonly forgets: boolean;
  /** The signal that it has taken, which no other step gets. */
  readonly takes?: string;
};

/** Where the steps of one owner are stored. */
export type StepJournal = {
  /** Reads all rows. Undefined if there can be none, as in a first attempt. */
  readonly read: (() => Promise<StoredStep[]>) | undefined;
  /** Reads a value that was too large to be read with the others. */
  readValue(key: string): Promise<string>;
  /** Waits for the store. Rejects with `claim_lost` if the owner is no longer this attempt's. */
  store(write: StepWrite): Promise<void>;
  storeWithin(tx: unknown, write: StepWrite): Promise<void>;
  /** Whether a row that was written in the caller's transaction is stored. */
  isStored(write: StepWrite): Promise<boolean>;
};

/** Records steps in traces. */
export type StepTrace = {
  /** Runs a step within a span of its own. */
  run<Result>(
    step: { readonly name: string; readonly path: string },
    call: () => Promise<Result>,
  ): Promise<Result>;
  answered(key: string): void;
};

/** The bounds of one owner's journal. */
export type StepLimits = {
  readonly maxSteps: number;
  readonly maxBytes: number;
  /** The largest value of one step. */
  readonly maxValueBytes: number;
};

/**
 * The steps of one attempt. Code runs again from its start in every attempt, and each step that is
 * stored answers from the journal by its key. Nothing is compared by position, so steps may run at
 * the same time and may be added, moved and removed between deploys.
 */
export type Steps = {
  readonly step: Step;
  /**
   * Takes what has come from outside while the code runs, such as a message. What was taken is stored, and a
   * later attempt takes the same: once it has asked for all steps that had ended before. Undefined if nothing
   * is there, and while stored steps are to be asked for. Not within a step, whose row would stand for it.
   */
  readonly take: (look: TakeLook) => Promise<Json | undefined>;
  /** How many rows this attempt has stored. */
  readonly stored: number;
  /** True once a step was refused because the attempt is to end: its result does not count then. */
  readonly refused: boolean;
  /** Why a stored step can't answer, if its owner is to be set aside for that. */
  readonly changed: FlotillaError | undefined;
  /** The keys of stored steps that an attempt that has returned did not ask for. */
  readonly unasked: readonly string[];
  /** What the attempt waits for, once it is to be parked. */
  readonly parked: StepPark | undefined;
  /** True while an ended step waits for the store. */
  readonly storing: boolean;
  /** Resolves when no ended step waits for the store any more. */
  whenStored(): Promise<void>;
  /** Waits for the steps that the owner's code has not awaited. No step begins after that. */
  settle(returned: boolean): Promise<void>;
};

/** Finds what can be taken. `store` resolves with false if it can't be any more. */
export type TakeLook = () => Promise<
  { readonly value: Json; readonly store: (write: StepWrite) => Promise<boolean> } | undefined
>;

export type StepsParts = {
  /** What the keys for downstreams begin with. It is asked for once the journal was read. */
  readonly ownerId: string;
  journal: StepJournal;
  limits: StepLimits;
  clock: Clock;
  log: () => Logger;
  /** The signal of the attempt. */
  signal: () => AbortSignal;
  /** The reason why no step may begin any more; undefined if one may. */
  refusal: () => FlotillaError | undefined;
  /** How long a function may take to settle after its signal has aborted. */
  graceMs: number;
  /** A step begins whose function may take this long. */
  onBegun?: (timeoutMs: number) => void;
  /** How many steps run now, with each change. */
  onRunning?: (running: number) => void;
  /** A step was run and stored, or answered from the journal. */
  onEnded?: (how: "stored" | "answered") => void;
  trace?: StepTrace;
  /** A step was written in a transaction of its function that was not committed, or not yet. */
  onUncommitted?: () => void;
  /** Only where the owner can be parked. */
  waits?: WaitHost;
  /** True if the owner is set aside when a stored step can't answer. */
  setsAside?: boolean;
  modelCalls?: ModelCallOptions;
  /** True if the owner takes what comes while the code runs. */
  takes?: boolean;
};

export const taskStepLimits = { maxSteps: 10_000, maxBytes: 16 * 1024 * 1024 } as const;

/** How deep steps are within steps. */
export const maxStepDepth = 8;
export const maxForEachItems = 10_000;
export const maxStepChildren = 1_000;
/** Larger values are read one by one, when they are asked for. */
export const maxReadTogetherBytes = 8 * 1024;
