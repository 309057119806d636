import { decidedCodes, hasCode, messageOf, storeAwayCodes } from "../../base/errors.ts";
import { callUntilAnswered } from "../../store/retry.ts";
import type { Command, CommandResult } from "../conversation/command.ts";
import type { Header } from "../conversation/header.ts";
import type { WhileAway } from "./files.ts";
import type { Control, RunnerParts } from "./parts.ts";

type WorkReport = Extract<
  Command,
  {
    type:
      | "turn_finished"
      | "turn_released"
      | "turn_steps"
      | "turn_hearing"
      | "work_begun"
      | "turn_waiting"
      | "compaction_finished"
      | "compaction_failed";
  }
>;

/**
 * Reports the outcome of work to the session's owner, and retries until it is stored, because a model was
 * paid for it. Rejects only if the owner refuses it for good.
 */
export function reportToOwner(
  { ask, clock, random, log }: Pick<RunnerParts, "ask" | "clock" | "random" | "log">,
  { tenant, sessionId }: Pick<Header, "tenant" | "sessionId">,
  command: WorkReport,
  signal: AbortSignal,
): Promise<CommandResult> {
  return callUntilAnswered(() => ask(tenant, sessionId, command, { signal }), {
    clock,
    random,
    signal,
    mayRetry: (error) => !hasCode(error, "closed", "unsupported", ...decidedCodes),
    onFailed({ error, tries }) {
      const fields = { session: sessionId, command: command.type, tries, error: messageOf(error) };
      log.warn(fields, "turn report not stored yet, retrying");
    },
  });
}

/**
 * Reads until the store responds: a short outage is no reason for an answer to fail. Returns undefined if
 * the work is aborted meanwhile.
 */
export async function readUntilAvailable<Found>(
  parts: Pick<RunnerParts, "clock" | "random">,
  { signal }: Pick<Control, "signal">,
  read: () => Promise<Found>,
): Promise<Found | undefined> {
  if (signal.aborted) return undefined;
  try {
    return await readWhileAway(parts, { signal })(read);
  } catch (error) {
    if (signal.aborted && hasCode(error, "cancelled", ...storeAwayCodes)) return undefined;
    throw error;
  }
}

/**
 * The same for what an agent asks for while it works: it waits as long as its call goes on, and isn't taken
 * for idle.
 */
export function readWhileAway(
  { clock, random }: Pick<RunnerParts, "clock" | "random">,
  { signal, touch }: { readonly signal: AbortSignal; readonly touch?: () => void },
): WhileAway {
  const retry = { clock, random, signal, codes: storeAwayCodes, ...(touch && { onFailed: touch }) };
  return (read) => callUntilAnswered(read, retry);
}
