import { backoffMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { ThrottledCall } from "../../throttles/limiter/permit.ts";
import type { QueuePosition } from "../../throttles/limiter/wait-queue.ts";
import { runUnderPermit } from "../../throttles/run.ts";
import { runInThrottleScope } from "../../throttles/scope.ts";
import type { AgentSpec } from "../agents/agent.ts";
import type { Answer } from "./answer.ts";
import { AgentFailure, failureOf, timedOut } from "./failure.ts";
import { type AnswerStream, errorChunkFailure } from "./call-function.ts";
import type { Control, RunnerParts } from "./parts.ts";

/** An agent that has said how its answer ended may take so long to end it. */
const graceMs = 5_000;
/** One that was told to end may take so long before that is worth a line in the log. */
const leaveMs = 5_000;
/** After so many chunks everything else has its turn, whoever sends them. */
const chunksPerTurn = 512;

type AgentCall = {
  readonly spec: Pick<AgentSpec, "name" | "throttle" | "idleTimeoutMs" | "deadlineMs">;
  /** Of `clock.monotonic`; undefined until the first try begins. */
  deadlineAtMs: number | undefined;
  readonly answer: Answer;
  readonly control: Control;
  /** Asks the agent. */
  readonly open: (signal: AbortSignal, touch: () => void) => Promise<AnswerStream>;
  readonly onChunk: () => void;
  /** Told where it stands in line for a permit; undefined once it doesn't wait any more. */
  readonly onWaiting: (at: QueuePosition | undefined) => void;
};

type Parts = Pick<RunnerParts, "clock" | "log" | "throttles">;

/**
 * Asks an agent once, under a permit of its throttle, and takes in all that it says. Resolves when it
 * ended well, which may have been by an `abort` of its own; rejects with whatever went wrong.
 */
function callAgent(parts: Parts, call: AgentCall): Promise<void> {
  const { throttle, deadlineMs } = call.spec;
  const { signal } = call.control;
  const priority = "interactive";
  return runInThrottleScope({ throttles: parts.throttles, priority }, () => {
    if (!throttle) return receiveAnswer(parts, call, undefined);
    const { onWaiting } = call;
    const options = { signal, priority, maxWaitMs: deadlineMs, onWaiting } as const;
    const { declared, key } = throttle;
    const begin = (permit: ThrottledCall) => {
      onWaiting(undefined);
      return receiveAnswer(parts, call, permit);
    };
    return runUnderPermit(declared, key, begin, options).finally(() => onWaiting(undefined));
  });
}

class GraceOver extends Error {}

async function receiveAnswer(
  parts: Parts,
  call: AgentCall,
  permit: ThrottledCall | undefined,
): Promise<void> {
  const { clock } = parts;
  const { spec, answer, control } = call;
  call.deadlineAtMs ??= clock.monotonic() + spec.deadlineMs;
  const request = new AbortController();
  const interrupt = createInterrupt();
  const end = (reason: unknown) => {
    interrupt.break(reason);
    request.abort(reason);
  };
  const stopForwarding = forwardAborts([control.signal, permit?.signal], end);
  const limits = watchLimits({
    clock,
    idleMs: spec.idleTimeoutMs,
    deadlineAtMs: call.deadlineAtMs,
    graceMs,
    onIdle: () => end(timedOut("agent_silent", `nothing came for ${spec.idleTimeoutMs} ms`)),
    onDeadline: () => end(timedOut("agent_late", `it took longer than ${spec.deadlineMs} ms`)),
    onGrace: () => end(new GraceOver()),
  });
  const opening = call.open(request.signal, limits.touch);
  try {
    const pieces = await interrupt.race(opening);
    await readChunks(pieces);
    checkOutcome(pieces);
  } catch (error) {
    request.abort(error);
    abandon(parts, spec.name, opening);
    // Whoever was served until somebody wanted no more was served well.
    if (control.signal.aborted && answer.begun) return;
    throw error;
  } finally {
    limits.clear();
    stopForwarding();
  }

  async function readChunks({ chunks }: AnswerStream): Promise<void> {
    try {
      for (let count = 1; ; count++) {
        const next = await interrupt.race(chunks.next());
        if (next.done === true) return;
        limits.touch();
        answer.push(next.value);
        if (answer.begun) permit?.firstToken();
        call.onChunk();
        limits.ending(answer.outcome.type !== "none");
        if (count % chunksPerTurn === 0) await interrupt.race(sleep(clock, 0));
      }
    } catch (error) {
      // It has said all that it had to, and just didn't hang up.
      if (!(error instanceof GraceOver)) throw error;
      abandon(parts, spec.name, opening);
    }
  }

  function checkOutcome({ endsByItself, cause }: AnswerStream): void {
    const { outcome } = answer;
    if (outcome.type === "error")
      throw errorChunkFailure(outcome.errorText, cause?.(), clock.now());
    if (outcome.type !== "none" || endsByItself) return;
    throw new AgentFailure("agent_died", "the agent went away before its answer ended", {
      retryable: true,
    });
  }
}

/** Tells the agent that nobody listens any more, without waiting for it: it may never hear of it. */
function abandon({ clock, log }: Parts, agent: string, opening: Promise<AnswerStream>): void {
  const cancel = clock.after(leaveMs, () => {
    log.warn({ agent }, "an agent goes on though its signal has fired; it is left behind");
  });
  void opening
    .then(({ chunks }) => chunks.return?.())
    .catch((error: unknown) => log.debug({ agent, error: messageOf(error) }, "an agent was ended"))
    .finally(cancel);
}

function forwardAborts(
  signals: readonly (AbortSignal | undefined)[],
  end: (reason: unknown) => void,
): () => void {
  const undo = signals.map((signal) => {
    if (!signal) return undefined;
    const onAbort = () => end(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    return () => signal.removeEventListener("abort", onAbort);
  });
  return () => {
    for (const each of undo) each?.();
  };
}

type TryParts = Pick<RunnerParts, "clock" | "random" | "log" | "throttles">;

/**
 * Asks an agent until it answers, or until asking again is of no use. What it has said can't be unsaid:
 * once anything of an answer is there, there is no further try. Gives what went wrong with the last one.
 */
export async function callWithRetries(
  parts: TryParts,
  call: AgentCall,
  { retries, backoff }: Pick<AgentSpec, "retries" | "backoff">,
): Promise<AgentFailure | undefined> {
  const { clock, random, log } = parts;
  const { spec, answer, control } = call;
  for (let tries = 1; ; tries++) {
    const failure = await callAgent(parts, call).then(
      () => undefined,
      (error: unknown) => failureOf(error),
    );
    if (failure === undefined || control.signal.aborted) return undefined;
    const { code, cause = failure } = failure;
    log.warn({ agent: spec.name, code, tries, error: messageOf(cause) }, "an agent gave no answer");
    const waitMs = Math.max(failure.retryAfterMs ?? 0, backoffMs(tries, random, backoff));
    const inTime = clock.monotonic() + waitMs < (call.deadlineAtMs ?? Infinity);
    if (answer.begun || !failure.retryable || tries >= retries || !inTime) return failure;
    answer.reset();
    await sleep(clock, waitMs, control.signal).catch(() => {});
    if (control.signal.aborted) return undefined;
  }
}

type TimeLimits = {
  /** Something has come. */
  touch(): void;
  /** Whether it has said how it ended: then it is only waited for so long, whatever comes. */
  ending(isEnding: boolean): void;
  clear(): void;
};

type TimeLimitsOptions = {
  readonly clock: Clock;
  readonly idleMs: number;
  /** Of `clock.monotonic`. */
  readonly deadlineAtMs: number;
  readonly graceMs: number;
  onIdle(): void;
  onDeadline(): void;
  /** Told in place of the others once it has said how it ended. */
  onGrace(): void;
};

/** How long an answer may take between its pieces, and in all. Told of one of them, once. */
function watchLimits(options: TimeLimitsOptions): TimeLimits {
  const { clock, idleMs, deadlineAtMs, graceMs } = options;
  let touchedMs = clock.monotonic();
  let graceAtMs: number | undefined;
  let cancel: (() => void) | undefined;

  // A timer for every piece would cost more than the piece, so one that rings too early is set again.
  const ring = (): void => {
    const nowMs = clock.monotonic();
    const dueMs = Math.min(deadlineAtMs, graceAtMs ?? touchedMs + idleMs);
    if (nowMs < dueMs) cancel = clock.after(dueMs - nowMs, ring);
    else if (graceAtMs !== undefined) options.onGrace();
    else if (nowMs >= deadlineAtMs) options.onDeadline();
    else options.onIdle();
  };
  ring();
  return {
    touch() {
      touchedMs = clock.monotonic();
    },
    ending(isEnding) {
      if (isEnding === (graceAtMs !== undefined)) return;
      graceAtMs = isEnding ? clock.monotonic() + graceMs : undefined;
      cancel?.();
      ring();
    },
    clear: () => cancel?.(),
  };
}

type Interrupt = {
  /** What the promise gives, or rejects as soon as it is broken. One at a time. */
  race<Value>(promise: PromiseLike<Value>): Promise<Value>;
  /** Rejects whoever waits, and whoever will. The first reason stays. */
  break(reason: unknown): void;
  readonly broken: boolean;
};

/**
 * Lets one wait after another be cut short. Unlike `Promise.race` with one promise for all of them, it
 * keeps nothing of the waits that are over, of which an answer has one for each chunk.
 */
function createInterrupt(): Interrupt {
  let cut: { readonly reason: unknown } | undefined;
  let rejectNow: ((reason: unknown) => void) | undefined;
  return {
    race(promise) {
      return new Promise((resolve, reject) => {
        // Also where nobody waits for it any more, what it rejects with is somebody's.
        promise.then(resolve, reject);
        if (cut) return reject(cut.reason);
        rejectNow = reject;
      });
    },
    break(reason) {
      if (cut) return;
      cut = { reason };
      rejectNow?.(reason);
    },
    get broken() {
      return cut !== undefined;
    },
  };
}
