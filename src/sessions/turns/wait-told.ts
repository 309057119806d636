import { messageOf } from "../../base/errors.ts";
import type { Header, Turn } from "../conversation/header.ts";
import type { Control, RunnerParts } from "./parts.ts";
import { tell } from "./tell.ts";

export type WaitTold = {
  /** Whether the turn waits for a permit now. */
  set(waits: boolean): void;
  stop(): void;
};

/**
 * Tells the session's owner that a turn waits for a permit of its agent's throttle, and that it no longer
 * does, so that the session's state shows it. The turn waits for neither. Each time has a higher count, and
 * the owner takes only a higher one: what comes late or twice changes nothing. A count that never arrives
 * is made good by the next one, or by the end of the attempt, which ends the wait in any case.
 */
export function tellWaits(
  parts: Pick<RunnerParts, "ask" | "clock" | "random" | "log">,
  header: Pick<Header, "tenant" | "sessionId">,
  { epoch, attempt }: Pick<Turn, "epoch" | "attempt">,
  control: Control,
): WaitTold {
  let count = 0;
  let last = new AbortController();

  const say = async (signal: AbortSignal): Promise<void> => {
    const command = { type: "turn_waiting", epoch, attempt, count } as const;
    try {
      const told = await tell(parts, header, command, signal);
      // The turn is another's now; once it has ended here, that it is over is no news.
      if (told.done === false && !signal.aborted) control.end({ keep: false });
    } catch (error) {
      // An owner of an earlier release doesn't know it, and shows the turn as one that is answered.
      if (signal.aborted) return;
      const fields = { session: header.sessionId, epoch, attempt, error: messageOf(error) };
      parts.log.debug(fields, "that a turn waits for a permit wasn't stored");
    }
  };

  return {
    set(waits) {
      if (waits === (count % 2 === 1)) return;
      count++;
      last.abort();
      last = new AbortController();
      // What ends the turn ends its wait.
      if (!control.signal.aborted) void say(AbortSignal.any([last.signal, control.signal]));
    },
    stop: () => last.abort(),
  };
}
