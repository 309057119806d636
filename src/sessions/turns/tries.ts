import { backoffMs } from "../../base/backoff.ts";
import { sleep } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { AgentSpec } from "../agents/spec.ts";
import { type AgentCall, callAgent } from "./call-agent.ts";
import { type AgentFailure, failureOf } from "./failure.ts";
import type { RunnerParts } from "./parts.ts";

type TryParts = Pick<RunnerParts, "clock" | "random" | "log" | "throttles">;

/**
 * Asks an agent until it answers, or until asking again is of no use. What it has said can't be unsaid:
 * once anything of an answer is there, there is no further try. Gives what went wrong with the last one.
 */
export async function tryAgent(
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
