import { FlotillaError, hasCode, messageOf } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { Finished, Finishing } from "./finishing.ts";
import { untilMended } from "./resend.ts";
import type { Running } from "./run.ts";
import { completion, type Ending, settle } from "./settle.ts";
import type { Finish } from "./statements/finish.ts";
import { notCommitted } from "./within.ts";

export type Conclusion = { readonly finish: Finish; readonly finished: Finished };

const lost: Finished = { type: "lost" };

/** Decides what an ending means and stores it; decides again where the row has been woken since. */
export function createConcluding({ finishing, random }: { finishing: Finishing; random: Random }) {
  const storeAs = async (run: Running, ending: Ending): Promise<Conclusion> => {
    for (let decided = ending; ;) {
      const claim = { ...run.claim, wake: run.wake };
      const finish = settle(claim, decided, run.handler.options, random);
      const finished = run.stopped === "claim_lost" ? lost : await finishing.store(finish);
      if (finished.type !== "woken") return { finish, finished };
      run.wake = finished.wake;
      if (finished.cancelRequested) decided = { type: "cancelled" };
    }
  };

  /**
   * A result that the store refuses for good, as it may what its encoding doesn't have, would leave the
   * task with this pod for ever. It has failed then, and says so.
   */
  const storeOrFail = async (run: Running, ending: Ending): Promise<Conclusion> => {
    try {
      return await storeAs(run, ending);
    } catch (error) {
      if (ending.type !== "returned" || hasCode(error, "closed", ...untilMended)) throw error;
      const message = `the store refused the result of "${run.claim.name}": ${messageOf(error)}`;
      const thrown = new FlotillaError("payload_not_storable", message, { cause: error });
      return storeAs(run, { type: "threw", thrown });
    }
  };

  /** Where the handler's own transaction has completed the task, that is how it ended. */
  const committed = async ({ claim }: Running): Promise<Conclusion | undefined> => {
    const row = (await finishing.look([claim.taskId])).get(claim.taskId);
    if (row?.["status"] !== "completed" || Number(row["claim_token"]) !== claim.token) return;
    return { finish: completion(claim, ""), finished: { type: "stored" } };
  };

  return async (run: Running, ending: Ending): Promise<Conclusion> => {
    if (!run.completing) return storeOrFail(run, ending);
    const seen = await committed(run);
    if (seen) return seen;
    // It was rolled back, or is open yet; then this write waits for it, and is refused if it commits.
    const thrown = ending.type === "returned" ? notCommitted(run.claim.name) : undefined;
    const conclusion = await storeAs(run, thrown ? { type: "threw", thrown } : ending);
    const late = conclusion.finished.type === "lost" ? await committed(run) : undefined;
    return late ?? conclusion;
  };
}
