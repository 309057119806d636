import { backoffMs } from "../../base/backoff.ts";
import { sleep } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import type { Driven, DriveParts, Running } from "../../tasks/run/attempt.ts";
import type { Finished } from "../../tasks/finish/finish-writer.ts";
import { untilMended } from "../../store/retry.ts";
import type { RunFinish } from "../../tasks/sql/runs.ts";
import type { Telling } from "./report.ts";

const refusedAgain = { baseMs: 1_000, maxMs: 60_000 };

/** The way of a run's writes to the store. */
export function createSending(running: Running, parts: DriveParts, tell: Telling) {
  const { clock, random } = parts;

  /** Nobody else writes what this claim has come to, so it is sent for as long as nobody knows what became of it. */
  const send = async (finish: RunFinish): Promise<Finished> => {
    for (let tries = 1; ; tries++) {
      try {
        return await new Promise((resolve, reject) => parts.finishing.put(finish, resolve, reject));
      } catch (error) {
        if (parts.signal.aborted || !hasCode(error, ...untilMended)) throw error;
        await sleep(clock, backoffMs(tries, random, refusedAgain), parts.signal);
      }
    }
  };
  const put = (finish: RunFinish) => {
    const { progress } = parts;
    // What another attempt may ask for is stored first; what belongs to what is done never is.
    if (!finish.run.moved && progress.isUnsaved(running)) {
      return progress.leave(running).then(() => send(finish));
    }
    progress.forget(running);
    return send(finish);
  };

  /** Gives the run back as it is; where even that is refused, again later. */
  const leave = async (finish: RunFinish): Promise<Driven> => {
    for (let tries = 1; ; tries++) {
      try {
        return { type: "driven", finish, finished: await put(finish) };
      } catch (error) {
        if (parts.signal.aborted || hasCode(error, "closed", ...untilMended)) throw error;
        tell.stuck(error);
        await sleep(clock, backoffMs(tries, random, refusedAgain), parts.signal);
      }
    }
  };

  return { put, leave };
}
