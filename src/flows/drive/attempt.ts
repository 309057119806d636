import { encodeJson, type Json } from "../../base/json.ts";
import { type Logger, withFields } from "../../base/log.ts";
import { throttleScopeOf } from "../../tasks/claim/throttle.ts";
import { type DriverHost, type TaskAttempt, signalOf, stopError } from "../../tasks/run/attempt.ts";
import { isThenable } from "../../tasks/run/execute.ts";
import { runAround } from "../../tasks/run/middleware.ts";
import { runInThrottleScope } from "../../throttles/scope.ts";
import type { RunEvent } from "../decide/event.ts";
import { createHandoff, type Handoff, readReturned } from "../decide/returned.ts";
import type { RunError, State } from "../decide/run.ts";
import { classifyThrown } from "../decide/thrown.ts";
import type { CallablePart, Machine } from "../machine.ts";

/**
 * Calls a function of a flow. Never throws or rejects: whatever comes of it has happened. It ends when the
 * function does, or when that was told to stop and didn't; what it returns after that isn't heard.
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

/** Makes what initializers make. They run before the first function of a run on a pod. */
export async function initialize(
  machine: Machine,
  attempt: TransitionAttempt,
  timeoutMs: number,
): Promise<{ env: object } | { happened: RunEvent }> {
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
        return { happened: stopEvent(attempt, timeoutMs) ?? { type: "interrupted" } };
      }
      Object.assign(env, made);
    }
    return { env };
  } catch (thrown) {
    const threw = { type: "threw", thrown: classifyThrown(thrown) } as const;
    return { happened: stopEvent(attempt, timeoutMs) ?? threw };
  } finally {
    end(attempt);
  }
}

const abandoned = Symbol("abandoned");

function begin({ running, parts }: TransitionAttempt, timeoutMs: number): void {
  // What an earlier attempt was stopped for isn't this one's concern.
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

/** What it means that an attempt was told to stop and hasn't returned anything. */
function stopEvent({ running }: TransitionAttempt, timeoutMs: number): RunEvent | undefined {
  switch (running.stopReason) {
    case "timeout":
      return { type: "timed_out", timeoutMs };
    case "cancel":
      return { type: "cancel_asked", reason: null };
    case "shutdown":
    case "claim_lost":
      return { type: "interrupted" };
    case undefined:
      return undefined;
  }
}

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
  /** The trace that its run belongs to, for the log. */
  readonly traceId: string | undefined;
  readonly handoff: Handoff;
  /** Set once it has ended, however it ended: what it does later isn't heard. */
  over: boolean;
};

export function createAttempt(
  given: Omit<TransitionAttempt, "handoff" | "over">,
): TransitionAttempt {
  return { ...given, handoff: createHandoff(), over: false };
}

/**
 * What a function of a flow gets. Most look at little of it, so the rest is made when it is asked for; it
 * needs no `this`, because contexts are taken apart.
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
    // What runs by now under the same claim has a signal of its own.
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

/** What every function of a flow gets. */
export type RunContext<Input, Env> = {
  readonly input: Input;
  /** What the initializers returned, merged. It is made anew wherever the run goes on. */
  readonly env: Env;
  readonly runId: string;
  readonly flow: string;
  readonly version: number;
  /** The name of the transition or finalizer. */
  readonly transition: string;
  /** 1 on the first try of this transition. */
  readonly attempt: number;
  /** Rises with every claim; give it to systems that can refuse an older one. */
  readonly token: number;
  /** Fires on timeout, cancel, shutdown, and when another pod has the run. */
  readonly signal: AbortSignal;
  /** Shows others how far it is. The newest value wins. */
  readonly progress: (value: Json) => void;
  /** What was saved last, by this attempt or one before it; null where nothing was. */
  readonly lastProgress: () => Promise<Json>;
  readonly log: Logger;
};

/** What a transition gets. */
export type TransitionContext<Input, Env, State, Handoff> = RunContext<Input, Env> & {
  /** What earlier transitions returned, as it comes from the store. */
  readonly state: State;
  /** `return handoff(output)` ends the run here, successfully. */
  readonly handoff: Handoff;
};

/** What a function gets that only works something out: how long to sleep, which children to start. */
export type PlanContext<Input, Env, State> = RunContext<Input, Env> & { readonly state: State };

/** What an initializer gets. */
export type InitContext<Input> = Pick<
  RunContext<Input, never>,
  "input" | "runId" | "flow" | "version" | "signal" | "log"
>;

/** How a run is about to end, for its finalizers. */
export type Outcome<Output> =
  | { readonly type: "completed"; readonly output: Output }
  | { readonly type: "failed"; readonly error: RunError }
  | { readonly type: "cancelled"; readonly reason: string | null };

/** What a finalizer gets. The run may have ended before all of the state was there. */
export type FinalizerContext<Input, Env, State, Output> = RunContext<Input, Env> & {
  readonly state: Partial<State>;
  readonly outcome: Outcome<Output>;
};
