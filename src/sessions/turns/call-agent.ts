import { backoffMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { UsageLedger } from "../../base/usage.ts";
import type { HeldPermit, QueuePosition, ThrottledCall } from "../../throttles/limiter/permit.ts";
import { acquirePermit } from "../../throttles/run.ts";
import { runInThrottleScope } from "../../throttles/scope.ts";
import type { Answer } from "./answer.ts";
import { AgentFailure, failureOf, timedOut } from "./failure.ts";
import { errorChunkFailure } from "./call-function.ts";
import type { Control, RunnerParts } from "./parts.ts";
import type { AgentSpec } from "../agents/spec.ts";
import type { AnswerStream } from "./call-url.ts";

/** How long an agent may take to close its stream after its final chunk. */
const graceMs = 5_000;
/** How long an aborted agent may go on before a warning is logged. */
const leaveMs = 5_000;
/** After this many chunks the event loop gets a turn, however fast the agent sends. */
const chunksPerTurn = 512;

type AgentCall = {
  readonly spec: Pick<AgentSpec, "name" | "throttle" | "idleTimeoutMs" | "deadlineMs">;
  /** By `clock.monotonic`; undefined until the first try begins. */
  deadlineAtMs: number | undefined;
  readonly answer: Answer;
  readonly control: Control;
  /** Counts the tokens of its calls to models. */
  readonly usage?: UsageLedger;
  /** Calls the agent. */
  readonly open: (signal: AbortSignal, limits: AnswerLimits) => Promise<AnswerStream>;
  /** Waits for the steps of the try that has ended. */
  readonly settle?: (returned: boolean) => Promise<void>;
  readonly onChunk: () => void;
  /** Called with the position in the queue for a permit; with undefined once it no longer waits. */
  readonly onWaiting: (at: QueuePosition | undefined) => void;
};

type Parts = Pick<RunnerParts, "clock" | "log" | "throttles">;

type TryParts = Pick<RunnerParts, "clock" | "random" | "log" | "throttles">;

/**
 * Calls an agent until it answers or another try is useless. Chunks that were sent cannot be taken back,
 * so there is no further try once an answer has begun. Returns the failure of the last try.
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
    log.warn({ agent: spec.name, code, tries, error: messageOf(cause) }, "agent call failed");
    const waitMs = Math.max(failure.retryAfterMs ?? 0, backoffMs(tries, random, backoff));
    const inTime = clock.monotonic() + waitMs < (call.deadlineAtMs ?? Infinity);
    if (answer.begun || !failure.retryable || tries >= retries || !inTime) return failure;
    answer.reset();
    await sleep(clock, waitMs, control.signal).catch(() => {});
    if (control.signal.aborted) return undefined;
  }
}

/**
 * Calls an agent once, under a permit of its throttle, and reads its whole answer. Resolves when the
 * answer ended well, which includes an `abort` chunk. Rejects with the error otherwise.
 */
function callAgent(parts: Parts, call: AgentCall): Promise<void> {
  const { throttle, deadlineMs } = call.spec;
  const { throttles } = parts;
  const { signal } = call.control;
  const priority = "interactive";
  const { usage } = call;
  return runInThrottleScope({ throttles, priority, usage }, async () => {
    if (!throttle) return receiveAnswer(parts, call, undefined);
    const { onWaiting } = call;
    const options = { signal, priority, maxWaitMs: deadlineMs, onWaiting } as const;
    const { declared, key } = throttle;
    const permit = await acquirePermit(declared, key, options).finally(() => onWaiting(undefined));
    const untilTaken = holdUntilTaken(permit);
    const given = { limiter: throttles.of(declared, key), permit, onTaken: untilTaken.taken };
    return runInThrottleScope({ throttles, priority, usage, permits: [given] }, () =>
      receiveAnswer(parts, call, untilTaken),
    );
  });
}

type AnswerPermit = Pick<ThrottledCall, "signal" | "firstToken">;

/**
 * The permit of an answer, until the agent makes a call of the same throttle: that call takes it over, and
 * later ones need permits of their own. So none is held while tools run.
 */
function holdUntilTaken(permit: HeldPermit): AnswerPermit & { taken(): void } {
  const ends = new AbortController();
  let isTaken = false;
  const { signal } = permit;
  signal.addEventListener("abort", () => isTaken || ends.abort(signal.reason), { once: true });
  return {
    signal: ends.signal,
    firstToken() {
      if (!isTaken) permit.firstToken();
    },
    taken() {
      isTaken = true;
    },
  };
}

class GraceOver extends Error {}

async function receiveAnswer(
  parts: Parts,
  call: AgentCall,
  permit: AnswerPermit | undefined,
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
    onIdle: () =>
      end(timedOut("agent_silent", `the agent sent nothing for ${spec.idleTimeoutMs} ms`)),
    onDeadline: () =>
      end(timedOut("agent_late", `the agent took longer than ${spec.deadlineMs} ms`)),
    onGrace: () => end(new GraceOver()),
  });
  const opening = call.open(request.signal, limits);
  const settle = async (returned: boolean): Promise<void> => {
    if (call.settle && !interrupt.broken) await interrupt.race(call.settle(returned));
  };
  try {
    const pieces = await interrupt.race(opening);
    await readChunks(pieces);
    await settle(true);
    checkOutcome(pieces);
  } catch (error) {
    // What runs may end and be stored before another pod goes on.
    if (control.leaving) await settle(false).catch(() => {});
    request.abort(error);
    await settle(false).catch(() => {});
    abandon(parts, spec.name, opening);
    // An answer that was aborted after it began counts as a successful call.
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
      // The answer is complete; the agent only did not close the stream.
      if (!(error instanceof GraceOver)) throw error;
      abandon(parts, spec.name, opening);
    }
  }

  function checkOutcome({ endsByItself, cause }: AnswerStream): void {
    const { outcome } = answer;
    if (outcome.type === "error")
      throw errorChunkFailure(outcome.errorText, cause?.(), clock.now());
    if (outcome.type !== "none" || endsByItself) return;
    throw new AgentFailure("agent_died", "the agent disconnected before its answer ended", {
      retryable: true,
    });
  }
}

/** Aborts the agent without waiting for it, because it may never react. */
function abandon({ clock, log }: Parts, agent: string, opening: Promise<AnswerStream>): void {
  const cancel = clock.after(leaveMs, () => {
    log.warn({ agent }, "agent ignores its abort signal, abandoned");
  });
  void opening
    .then(({ chunks }) => chunks.return?.())
    .catch((error: unknown) =>
      log.debug({ agent, error: messageOf(error) }, "agent failed after its abort"),
    )
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

/** What an agent tells about its silence. */
export type AnswerLimits = {
  /** Data has arrived. */
  touch(): void;
  /** True while a step runs: silence doesn't count then. */
  busy(isBusy: boolean): void;
};

type TimeLimits = AnswerLimits & {
  /** True once the final chunk has arrived: from then on only the grace period counts. */
  ending(isEnding: boolean): void;
  clear(): void;
};

type TimeLimitsOptions = {
  readonly clock: Clock;
  readonly idleMs: number;
  /** By `clock.monotonic`. */
  readonly deadlineAtMs: number;
  readonly graceMs: number;
  onIdle(): void;
  onDeadline(): void;
  /** Called instead of the others once the final chunk has arrived. */
  onGrace(): void;
};

/** Limits how long an answer may take between its chunks, and in all. Calls one callback, once. */
function watchLimits(options: TimeLimitsOptions): TimeLimits {
  const { clock, idleMs, deadlineAtMs, graceMs } = options;
  let touchedMs = clock.monotonic();
  let graceAtMs: number | undefined;
  let cancel: (() => void) | undefined;
  let isBusy = false;
  let isCleared = false;

  // A timer for every chunk would cost more than the chunk, so one that fires too early is set again.
  const ring = (): void => {
    const nowMs = clock.monotonic();
    const idleAtMs = isBusy ? Infinity : touchedMs + idleMs;
    const dueMs = Math.min(deadlineAtMs, graceAtMs ?? idleAtMs);
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
    busy(isBusyNow) {
      isBusy = isBusyNow;
      if (isBusy || isCleared) return;
      touchedMs = clock.monotonic();
      cancel?.();
      ring();
    },
    ending(isEnding) {
      if (isEnding === (graceAtMs !== undefined)) return;
      graceAtMs = isEnding ? clock.monotonic() + graceMs : undefined;
      cancel?.();
      ring();
    },
    clear() {
      isCleared = true;
      cancel?.();
    },
  };
}

type Interrupt = {
  /** Settles as the promise does, or rejects as soon as `break` is called. One call at a time. */
  race<Value>(promise: PromiseLike<Value>): Promise<Value>;
  /** Rejects the current and all later calls of `race`. The first reason stays. */
  break(reason: unknown): void;
  readonly broken: boolean;
};

/**
 * Lets a sequence of waits be cut short. Unlike `Promise.race` with one shared promise, it keeps no
 * reference to waits that are over, of which an answer has one per chunk.
 */
function createInterrupt(): Interrupt {
  let cut: { readonly reason: unknown } | undefined;
  let rejectNow: ((reason: unknown) => void) | undefined;
  return {
    race(promise) {
      return new Promise((resolve, reject) => {
        // Handles the rejection even after `break`, so that it is never unhandled.
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
