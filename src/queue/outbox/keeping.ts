import { hasCode } from "../../base/errors.ts";
import type { Finishing } from "../finishing.ts";
import { untilMended } from "../resend.ts";
import type { Outbox } from "./outbox.ts";

/** The same way out, but what the store doesn't take at once is kept on this machine until it does. */
export function keepingIn(outbox: Outbox, finishing: Finishing, signal: AbortSignal): Finishing {
  return {
    ...finishing,
    async store(finish, how) {
      outbox.watch(finish);
      try {
        const finished = await finishing.store(finish, how);
        if (finished.type === "woken") outbox.again(finish);
        else outbox.done(finish);
        return finished;
      } catch (error) {
        // What is refused for good would be refused again. All else is for the next process to send.
        const mayPass = signal.aborted || hasCode(error, "closed", ...untilMended);
        if (!mayPass) outbox.done(finish);
        throw error;
      }
    },
  };
}
