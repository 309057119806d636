import { withFields } from "../../base/log.ts";
import { signalOf } from "../../tasks/run/attempt.ts";
import { isThenable } from "../../tasks/run/execute.ts";
import { runAround } from "../../tasks/run/middleware.ts";
import { sceneOf } from "../../tasks/claim/throttle.ts";
import { runHandler as runInScene } from "../../throttles/scope.ts";
import type { Happened } from "../decide/event.ts";
import type { Callable, Machine } from "../machine.ts";
import { readReturned } from "../decide/returned.ts";
import type { State } from "../decide/run.ts";
import { type Attempt, AttemptContext, fieldsOf } from "./run-context.ts";
import { classify } from "../decide/thrown.ts";

/**
 * Calls a function of a flow. Never throws or rejects: whatever comes of it has happened. It ends when the
 * function does, or when that was told to stop and didn't; what it returns after that isn't heard.
 */
export async function makeAttempt(
  machine: Machine,
  part: Callable,
  attempt: Attempt,
): Promise<Happened> {
  const { running, parts } = attempt;
  begin(attempt, part.tries.timeoutMs);
  try {
    const context = new AttemptContext(attempt);
    const run = () =>
      machine.interceptors.length > 0
        ? runAround(machine.interceptors, context, part.run)
        : part.run(context);
    const scene = parts.throttles && sceneOf(running, parts.throttles);
    const called = scene ? runInScene(scene, run) : run();
    const value = isThenable(called) ? await unlessAbandoned(attempt, called) : called;
    if (value === abandoned) return stoppedAs(attempt, part) ?? { type: "interrupted" };
    const state = attempt.state as State;
    return await readReturned(machine, {
      part,
      state,
      value,
      handoffCalled: attempt.handoff.called(),
      maxStateBytes: parts.maxResultBytes,
    });
  } catch (thrown) {
    return stoppedAs(attempt, part) ?? { type: "threw", thrown: classify(thrown) };
  } finally {
    attempt.over = true;
    end(attempt);
  }
}

/** Makes what initializers make. They run before the first function of a run on a pod. */
export async function initialize(
  machine: Machine,
  attempt: Attempt,
  timeoutMs: number,
): Promise<{ env: object } | { happened: Happened }> {
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
        return { happened: stoppedBy(attempt, timeoutMs) ?? { type: "interrupted" } };
      }
      Object.assign(env, made);
    }
    return { env };
  } catch (thrown) {
    const threw = { type: "threw", thrown: classify(thrown) } as const;
    return { happened: stoppedBy(attempt, timeoutMs) ?? threw };
  } finally {
    end(attempt);
  }
}

const abandoned = Symbol("abandoned");

function begin({ running, parts }: Attempt, timeoutMs: number): void {
  // What an earlier attempt was stopped for isn't this one's concern.
  if (running.stopped === "timeout" || running.stopped === "cancel") {
    running.stopped = undefined;
    running.controller = undefined;
  }
  running.startedMs = parts.clock.monotonic();
  running.timeoutMs = timeoutMs;
  running.actAtMs = running.startedMs + timeoutMs;
  parts.watch(running.actAtMs);
}

function end({ running }: Attempt): void {
  running.actAtMs = Infinity;
  running.abandon = undefined;
  if (running.stopped === undefined) running.controller = undefined;
}

function unlessAbandoned(attempt: Attempt, called: PromiseLike<unknown>): Promise<unknown> {
  return new Promise((resolve, reject) => {
    attempt.running.abandon = () => resolve(abandoned);
    called.then(resolve, reject);
  });
}

function stoppedAs(attempt: Attempt, part: Callable): Happened | undefined {
  return stoppedBy(attempt, part.tries.timeoutMs);
}

/** What it means that an attempt was told to stop and hasn't returned anything. */
function stoppedBy({ running }: Attempt, timeoutMs: number): Happened | undefined {
  switch (running.stopped) {
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
