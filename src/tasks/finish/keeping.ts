import { hasCode } from "../../base/errors.ts";
import type { Finished, Finishing } from "./finish-writer.ts";
import { untilMended } from "../../store/retry.ts";
import type { Finish } from "../sql/finish.ts";
import type { Outbox } from "./outbox.ts";

/** The same way out, but what the store doesn't take at once is kept on this machine until it does. */
export function keepingIn(outbox: Outbox, finishing: Finishing, signal: AbortSignal): Finishing {
  const seen = (finish: Finish, finished: Finished) => {
    if (finished.type === "woken") outbox.again(finish);
    else outbox.done(finish);
  };
  const refused = (finish: Finish, error: unknown) => {
    // What is refused for good would be refused again. All else is for the next process to send.
    const mayPass = signal.aborted || hasCode(error, "closed", ...untilMended);
    if (!mayPass) outbox.done(finish);
  };
  return {
    ...finishing,
    async store(finish, how) {
      outbox.watch(finish);
      try {
        const finished = await finishing.store(finish, how);
        seen(finish, finished);
        return finished;
      } catch (error) {
        refused(finish, error);
        throw error;
      }
    },
    put(finish, onFinished, onError) {
      outbox.watch(finish);
      finishing.put(
        finish,
        (finished) => {
          seen(finish, finished);
          onFinished(finished);
        },
        (error) => {
          refused(finish, error);
          onError(error);
        },
      );
    },
  };
}
