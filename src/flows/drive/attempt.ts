import { FlotillaError } from "../../base/errors.ts";
import { encodeJson, type Json } from "../../base/json.ts";
import { type Logger, withFields } from "../../base/log.ts";
import type { Step, Steps, StepWrite } from "../../steps/model.ts";
import { throttleScopeOf } from "../../tasks/claim/throttle.ts";
import type { StepResult } from "../../tasks/finish/finish-writer.ts";
import type { HandlerFiles } from "../../tasks/files/task-files.ts";
import { thrownText } from "../../tasks/finish/outcome.ts";
import { signalOf, stopError } from "../../tasks/run/attempt.ts";
import { isThenable } from "../../tasks/run/execute.ts";
import { runAround } from "../../tasks/run/middleware.ts";
import { attemptSteps, type StepOwner } from "../../tasks/run/steps.ts";
import type { TaskStep } from "../../tasks/sql/steps.ts";
import { runInThrottleScope } from "../../throttles/scope.ts";
import type { RunEvent } from "../decide/event.ts";
import { createHandoff, type Handoff, readReturned } from "../decide/returned.ts";
import type { RunError, State } from "../decide/run.ts";
import { classifyThrown } from "../decide/thrown.ts";
import type { CallablePart, Machine } from "../machine.ts";
import type { DriverHost, TaskAttempt } from "../../tasks/model.ts";

/** The context of every function of a flow. */
export type RunContext<Input, Env> = {
  readonly input: Input;
  /** What the initializers returned, merged. They run again on every pod that continues the run. */
  readonly env: Env;
  readonly runId: string;
  readonly flow: string;
  readonly version: number;
  /** The name of the transition or finalizer. */
  readonly transition: string;
  /** 1 on the first attempt of this transition. */
  readonly attempt: number;
  /** Rises with every claim; pass it to systems that can refuse an older one. */
  readonly token: number;
  /** Fires on timeout, cancel, shutdown, and when another pod has claimed the run. */
  readonly signal: AbortSignal;
  /** Stores how far the attempt is, for observers and for the next attempt. The newest value wins. */
  readonly progress: (value: Json) => void;
  /** The progress saved last, by this attempt or one before it; null where there is none. */
  readonly lastProgress: () => Promise<Json>;
  /** Reads the files that the run's input refers to, and stores others, for its state and its output. */
  readonly files: HandlerFiles;
  readonly log: Logger;
};

/** What transitions and finalizers have, and functions that only plan don't. */
type Stepping = {
  /**
   * Calls a function once and stores what it returns, so that a later attempt at this transition gets the
   * stored value instead of calling it again. Attempts and deaths count from the last stored step.
   */
  readonly step: Step;
};

/** The context of a transition. */
export type TransitionContext<Input, Env, State, Handoff> = RunContext<Input, Env> &
  Stepping & {
    /** What earlier transitions returned, merged, as it comes from the store. */
    readonly state: State;
    /** `return handoff(output)` ends the run here, successfully. */
    readonly handoff: Handoff;
  };

/** The context of a function that only plans: how long to sleep, which children to start. */
export type PlanContext<Input, Env, State> = RunContext<Input, Env> & { readonly state: State };

/** The context of an initializer. */
export type InitContext<Input> = Pick<
  RunContext<Input, never>,
  "input" | "runId" | "flow" | "version" | "signal" | "log"
>;

/** How a run is about to end, for its finalizers. */
export type Outcome<Output> =
  | { readonly type: "completed"; readonly output: Output }
  | { readonly type: "failed"; readonly error: RunError }
  | { readonly type: "cancelled"; readonly reason: string | null };

/** The context of a finalizer. The run may have ended before the state was complete. */
export type FinalizerContext<Input, Env, State, Output> = RunContext<Input, Env> &
  Stepping & {
    readonly state: Partial<State>;
    readonly outcome: Outcome<Output>;
  };

/** One attempt at a transition or finalizer. */
export type TransitionAttempt = {
  readonly running: TaskAttempt;
  readonly parts: DriverHost;
  readonly version: number;
  readonly transition: string;
  readonly attempt: number;
  readonly input: unknown;
  readonly env: unknown;
  readonly state: unknown;
  /** Only for finalizers. */
  readonly outcome: unknown;
  /** The trace of its run, for the log. */
  readonly traceId: string | undefined;
  readonly handoff: Handoff;
  /** What stores its steps. Undefined for functions that only plan. */
  readonly steps: StepStore | undefined;
  /** Set once it has ended. Later progress is ignored, and no step begins. */
  over: boolean;
};

/** What stores the steps of one attempt. */
export type StepStore = Pick<StepOwner, "names" | "hasRows" | "onCommitted"> & {
  store(write: StepWrite, part: string): Promise<StepResult>;
  toStep(write: StepWrite, part: string): TaskStep;
};

const abandoned = Symbol("abandoned");

export function createAttempt(
  fields: Omit<TransitionAttempt, "handoff" | "over">,
): TransitionAttempt {
  return { ...fields, handoff: createHandoff(), over: false };
}

/**
 * Calls a function of a flow. Never throws or rejects: errors become events. It ends when the function
 * does, or when the attempt is abandoned because the function ignored its signal. What an abandoned
 * function returns is ignored.
 */
export async function runAttempt(
  machine: Machine,
  part: CallablePart,
  attempt: TransitionAttempt,
): Promise<RunEvent> {
  const { running, parts } = attempt;
  begin(attempt, part.tries.timeoutMs);
  try {
    const context = new AttemptContext(attempt);
    const run = () =>
      machine.interceptors.length > 0
        ? runAround(machine.interceptors, context, part.run)
        : part.run(context);
    const scope = parts.throttles && throttleScopeOf(running, parts.throttles);
    const called = scope ? runInThrottleScope(scope, run) : run();
    const value = isThenable(called) ? await unlessAbandoned(attempt, called) : called;
    if (value === abandoned || !(await areSettled(attempt, true))) {
      return stopEventOf(attempt, part) ?? { type: "interrupted" };
    }
    const refused = refusalOf(attempt, part);
    if (refused) return refused;
    const state = attempt.state as State;
    return await readReturned(machine, {
      part,
      state,
      value,
      handoffCalled: attempt.handoff.called(),
      maxStateBytes: parts.maxResultBytes,
    });
  } catch (thrown) {
    await areSettled(attempt, false);
    const threw = { type: "threw", thrown: classifyThrown(thrown) } as const;
    return refusalOf(attempt, part) ?? stopEventOf(attempt, part) ?? threw;
  } finally {
    attempt.over = true;
    // Steps that have ended are stored before the outcome, which would close the transition for them.
    if (running.steps?.storing) await running.steps.whenStored();
    end(attempt);
  }
}

/** Waits for the steps that the function has not awaited. False if it is abandoned meanwhile. */
async function areSettled(attempt: TransitionAttempt, returned: boolean): Promise<boolean> {
  const { steps } = attempt.running;
  if (steps === undefined) return true;
  return (await unlessAbandoned(attempt, steps.settle(returned))) !== abandoned;
}

/**
 * The event of an attempt one of whose steps was refused. What its function makes of that doesn't count:
 * it would be based on something that did not happen.
 */
function refusalOf(attempt: TransitionAttempt, part: CallablePart): RunEvent | undefined {
  const { steps } = attempt.running;
  if (!steps?.refused) return undefined;
  const stopped = stopEventOf(attempt, part);
  if (stopped) return stopped;
  if (steps.changed) return { type: "step_changed", message: thrownText(steps.changed) };
  return { type: "interrupted" };
}

/** Runs the initializers, before the first function of a run on this pod. */
export async function initialize(
  machine: Machine,
  attempt: TransitionAttempt,
  timeoutMs: number,
): Promise<{ env: object } | { event: RunEvent }> {
  const { running, parts, input, version } = attempt;
  begin(attempt, timeoutMs);
  const env = {};
  try {
    for (const make of machine.initializers) {
      const context = {
        input,
        version,
        runId: running.claim.taskId,
        flow: running.claim.name,
        signal: signalOf(running),
        log: withFields(parts.log, fieldsOf(attempt)),
      };
      const made = await unlessAbandoned(attempt, (async () => make(context) as unknown)());
      if (made === abandoned) {
        return { event: stopEvent(attempt, timeoutMs) ?? { type: "interrupted" } };
      }
      Object.assign(env, made);
    }
    return { env };
  } catch (thrown) {
    const threw = { type: "threw", thrown: classifyThrown(thrown) } as const;
    return { event: stopEvent(attempt, timeoutMs) ?? threw };
  } finally {
    end(attempt);
  }
}

function begin({ running, parts }: TransitionAttempt, timeoutMs: number): void {
  // The stop reason of an earlier attempt doesn't apply to this one.
  if (running.stopReason === "timeout" || running.stopReason === "cancel") {
    running.stopReason = undefined;
    running.controller = undefined;
  }
  running.startedMs = parts.clock.monotonic();
  running.timeoutMs = timeoutMs;
  running.actAtMs = running.startedMs + timeoutMs;
  parts.watch(running.actAtMs);
}

function end({ running }: TransitionAttempt): void {
  running.actAtMs = Infinity;
  running.abandon = undefined;
  running.steps = undefined;
  if (running.stopReason === undefined) running.controller = undefined;
}

function unlessAbandoned(
  attempt: TransitionAttempt,
  called: PromiseLike<unknown>,
): Promise<unknown> {
  return new Promise((resolve, reject) => {
    attempt.running.abandon = () => resolve(abandoned);
    called.then(resolve, reject);
  });
}

function stopEventOf(attempt: TransitionAttempt, part: CallablePart): RunEvent | undefined {
  return stopEvent(attempt, part.tries.timeoutMs);
}

/** The event of an attempt that was stopped without a result. */
function stopEvent({ running }: TransitionAttempt, timeoutMs: number): RunEvent | undefined {
  switch (running.stopReason) {
    case "timeout":
      return { type: "timed_out", timeoutMs };
    case "cancel":
      return { type: "cancel_requested", reason: null };
    case "shutdown":
    case "claim_lost":
      return { type: "interrupted" };
    case undefined:
      return undefined;
  }
}

/**
 * The context of a function. Most functions read little of it, so the rest is created on access. Its
 * functions need no `this`, because contexts are destructured.
 */
class AttemptContext implements RunContext<unknown, unknown> {
  readonly input: unknown;
  readonly env: unknown;
  readonly state: unknown;
  readonly outcome: unknown;
  readonly runId: string;
  readonly flow: string;
  readonly version: number;
  readonly transition: string;
  readonly attempt: number;
  readonly token: number;
  readonly handoff: Handoff["handoff"];
  readonly #attempt: TransitionAttempt;
  #signal: AbortSignal | undefined;

  constructor(attempt: TransitionAttempt) {
    const { running } = attempt;
    this.input = attempt.input;
    this.env = attempt.env;
    this.state = attempt.state;
    this.outcome = attempt.outcome;
    this.runId = running.claim.taskId;
    this.flow = running.claim.name;
    this.version = attempt.version;
    this.transition = attempt.transition;
    this.attempt = attempt.attempt;
    this.token = running.claim.token;
    this.handoff = attempt.handoff.handoff;
    this.#attempt = attempt;
  }

  get signal(): AbortSignal {
    const { running, over } = this.#attempt;
    // After this attempt another one of the same claim may run, and that one has a signal of its own.
    this.#signal ??= over ? AbortSignal.abort(stopError(running)) : signalOf(running);
    return this.#signal;
  }

  get progress(): (value: Json) => void {
    const attempt = this.#attempt;
    const { progress } = attempt.parts;
    return (value) => {
      if (!attempt.over) progress.save(attempt.running, encodeJson("progress", value));
    };
  }

  get lastProgress(): () => Promise<Json> {
    const { running, parts } = this.#attempt;
    return () => parts.progress.last(running);
  }

  get files(): HandlerFiles {
    return this.#attempt.parts.files.ofTask(this.runId);
  }

  get step(): Step {
    return stepsOf(this.#attempt).step;
  }

  get log(): Logger {
    return logOf(this.#attempt);
  }
}

function logOf(attempt: TransitionAttempt): Logger {
  return withFields(attempt.parts.log, fieldsOf(attempt));
}

/** The steps of an attempt. */
function stepsOf(attempt: TransitionAttempt): Steps {
  const { running, parts, steps: stored, transition } = attempt;
  if (stored === undefined) {
    throw new FlotillaError(
      "invalid_option",
      `"${transition}" only plans, and has no steps: do the work in a transition before it`,
    );
  }
  if (attempt.over) {
    throw new FlotillaError("closed", `this attempt at "${transition}" has ended: it has no steps`);
  }
  if (running.steps) return running.steps;
  const { names, hasRows, onCommitted } = stored;
  const owner: StepOwner = {
    // Steps keep the first name of a renamed transition, so that their keys stay the same.
    part: names.at(-1)!,
    names,
    keyOwner: () => `${running.claim.taskId}/${owner.part}`,
    hasRows,
    isOver: () => attempt.over,
    log: () => logOf(attempt),
    store: (write) => stored.store(write, owner.part),
    toStep: (write) => stored.toStep(write, owner.part),
    ...(onCommitted && { onCommitted }),
  };
  running.steps = attemptSteps(running, parts, owner);
  return running.steps;
}

function fieldsOf({
  running,
  parts,
  version,
  transition,
  attempt,
  traceId,
}: Pick<
  TransitionAttempt,
  "running" | "parts" | "version" | "transition" | "attempt" | "traceId"
>) {
  const { claim } = running;
  return {
    run_id: claim.taskId,
    flow: claim.name,
    run_version: version,
    transition,
    attempt,
    token: claim.token,
    pod: parts.podId,
    ...(traceId !== undefined && { trace_id: traceId }),
  };
}
