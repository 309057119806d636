import { contentionMs } from "../../base/backoff.ts";
import { sleep } from "../../base/clock.ts";
import { hasCode, messageOf } from "../../base/errors.ts";
import type { Answer as CommandAnswer, Command } from "../conversation/command.ts";
import type { Header } from "../conversation/header.ts";
import { decided } from "../log/decided.ts";
import type { RunnerParts } from "./parts.ts";

type Told = Extract<
  Command,
  {
    type:
      | "turn_finished"
      | "turn_released"
      | "work_begun"
      | "turn_waiting"
      | "compaction_finished"
      | "compaction_failed";
  }
>;

/** What can't be helped by asking again. */
const definite = ["closed", "unsupported", ...decided] as const;

/**
 * Tells the session's owner what became of its work, for as long as that isn't heard: a model was paid
 * for it. Rejects where it was refused for good.
 */
export async function tell(
  { ask, clock, random, log }: Pick<RunnerParts, "ask" | "clock" | "random" | "log">,
  { tenant, sessionId }: Pick<Header, "tenant" | "sessionId">,
  command: Told,
  signal: AbortSignal,
): Promise<CommandAnswer> {
  for (let tries = 1; ; tries++) {
    try {
      return await ask(tenant, sessionId, command, { signal });
    } catch (error) {
      if (signal.aborted || hasCode(error, ...definite)) throw error;
      const fields = { session: sessionId, tries, error: messageOf(error) };
      log.warn(fields, `${command.type} isn't stored yet`);
    }
    await sleep(clock, contentionMs(tries, random), signal);
  }
}
