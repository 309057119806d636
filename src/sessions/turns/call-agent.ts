import { sleep } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { runHere } from "../../throttles/run.ts";
import { runHandler } from "../../throttles/scope.ts";
import type { InLine } from "../../throttles/limiter/wait-queue.ts";
import type { Call } from "../../throttles/limiter/permit.ts";
import type { AgentSpec } from "../agents/spec.ts";
import type { Answer } from "./answer.ts";
import { AgentFailure, timedOut } from "./failure.ts";
import { type Pieces, saidItself } from "./given.ts";
import { createInterrupt } from "./interrupt.ts";
import { watchLimits } from "./limits.ts";
import type { Control, RunnerParts } from "./parts.ts";

/** An agent that has said how its answer ended may take so long to end it. */
const graceMs = 5_000;
/** One that was told to end may take so long before that is worth a line in the log. */
const leaveMs = 5_000;
/** After so many chunks everything else has its turn, whoever sends them. */
const chunksPerTurn = 512;

export type AgentCall = {
  readonly spec: Pick<AgentSpec, "name" | "throttle" | "idleTimeoutMs" | "deadlineMs">;
  /** Of `clock.monotonic`; undefined until the first try begins. */
  deadlineAtMs: number | undefined;
  readonly answer: Answer;
  readonly control: Control;
  /** Asks the agent. */
  readonly open: (signal: AbortSignal, touch: () => void) => Promise<Pieces>;
  readonly onChunk: () => void;
  /** Told where it stands in line for a permit; undefined once it doesn't wait any more. */
  readonly onWaiting: (at: InLine | undefined) => void;
};

type Parts = Pick<RunnerParts, "clock" | "log" | "throttles">;

/**
 * Asks an agent once, under a permit of its throttle, and takes in all that it says. Resolves when it
 * ended well, which may have been by an `abort` of its own; rejects with whatever went wrong.
 */
export function callAgent(parts: Parts, call: AgentCall): Promise<void> {
  const { throttle, deadlineMs } = call.spec;
  const { signal } = call.control;
  const priority = "interactive";
  return runHandler({ throttles: parts.throttles, priority }, () => {
    if (!throttle) return listen(parts, call, undefined);
    const { onWaiting } = call;
    const asked = { signal, priority, maxWaitMs: deadlineMs, onWaiting } as const;
    const { declared, key } = throttle;
    const begin = (permit: Call) => {
      onWaiting(undefined);
      return listen(parts, call, permit);
    };
    return runHere(declared, key, begin, asked).finally(() => onWaiting(undefined));
  });
}

class GraceOver extends Error {}

async function listen(parts: Parts, call: AgentCall, permit: Call | undefined): Promise<void> {
  const { clock } = parts;
  const { spec, answer, control } = call;
  call.deadlineAtMs ??= clock.monotonic() + spec.deadlineMs;
  const asked = new AbortController();
  const interrupt = createInterrupt();
  const end = (reason: unknown) => {
    interrupt.break(reason);
    asked.abort(reason);
  };
  const unfollow = follow([control.signal, permit?.signal], end);
  const limits = watchLimits({
    clock,
    idleMs: spec.idleTimeoutMs,
    deadlineAtMs: call.deadlineAtMs,
    graceMs,
    onIdle: () => end(timedOut("agent_silent", `nothing came for ${spec.idleTimeoutMs} ms`)),
    onDeadline: () => end(timedOut("agent_late", `it took longer than ${spec.deadlineMs} ms`)),
    onGrace: () => end(new GraceOver()),
  });
  const opening = call.open(asked.signal, limits.touch);
  try {
    const pieces = await interrupt.race(opening);
    await takeIn(pieces);
    settle(pieces);
  } catch (error) {
    asked.abort(error);
    leave(parts, spec.name, opening);
    // Whoever was served until somebody wanted no more was served well.
    if (control.signal.aborted && answer.begun) return;
    throw error;
  } finally {
    limits.clear();
    unfollow();
  }

  async function takeIn({ chunks }: Pieces): Promise<void> {
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
      leave(parts, spec.name, opening);
    }
  }

  function settle({ endsByItself, cause }: Pieces): void {
    const { outcome } = answer;
    if (outcome.type === "error") throw saidItself(outcome.errorText, cause?.(), clock.now());
    if (outcome.type !== "none" || endsByItself) return;
    throw new AgentFailure("agent_died", "the agent went away before its answer ended", {
      retryable: true,
    });
  }
}

/** Tells the agent that nobody listens any more, without waiting for it: it may never hear of it. */
function leave({ clock, log }: Parts, agent: string, opening: Promise<Pieces>): void {
  const cancel = clock.after(leaveMs, () => {
    log.warn({ agent }, "an agent goes on though its signal has fired; it is left behind");
  });
  void opening
    .then(({ chunks }) => chunks.return?.())
    .catch((error: unknown) => log.debug({ agent, error: messageOf(error) }, "an agent was ended"))
    .finally(cancel);
}

function follow(
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
