import { encodeJson, type Json } from "../../base/json.ts";
import { type Logger, withFields } from "../../base/log.ts";
import { throttleScopeOf } from "../../tasks/claim/throttle.ts";
import { signalOf, stopError } from "../../tasks/run/attempt.ts";
import { isThenable } from "../../tasks/run/execute.ts";
import { runAround } from "../../tasks/run/middleware.ts";
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
  readonly log: Logger;
};

/** The context of a transition. */
export type TransitionContext<Input, Env, State, Handoff> = RunContext<Input, Env> & {
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
export type FinalizerContext<Input, Env, State, Output> = RunContext<Input, Env> & {
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
  /** Set once it has ended. Later progress is ignored. */
  over: boolean;
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
    if (value === abandoned) return stopEventOf(attempt, part) ?? { type: "interrupted" };
    const state = attempt.state as State;
    return await readReturned(machine, {
      part,
      state,
      value,
      handoffCalled: attempt.handoff.called(),
      maxStateBytes: parts.maxResultBytes,
    });
  } catch (thrown) {
    return stopEventOf(attempt, part) ?? { type: "threw", thrown: classifyThrown(thrown) };
  } finally {
    attempt.over = true;
    end(attempt);
  }
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

  get log(): Logger {
    const { parts } = this.#attempt;
    return withFields(parts.log, fieldsOf(this.#attempt));
  }
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
