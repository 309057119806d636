import type { Clock } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import type { Head, Log } from "./journal.ts";

/** What became of records and of takes, where it isn't an ordinary commit. */
export type LogOutcome =
  /** It isn't known whether a record was stored. */
  | { readonly type: "record_unknown" }
  /** A record of that kind is sent again. */
  | { readonly type: "record_resent" }
  /** Another pod's record is in the place of this pod's. */
  | { readonly type: "record_fenced" }
  /** A log was taken and all read that its owner needs, which took so long. */
  | { readonly type: "log_taken"; readonly tookMs: number };

/** The same log, which tells what becomes of what is asked of it. */
export function observedLog<Observed extends Pick<Log, "commit" | "take" | "recover">>(
  observed: Observed,
  { clock, onEvent }: { clock: Clock; onEvent: (event: LogOutcome) => void },
): Observed {
  /** The record of each log that may have been stored. */
  const doubts = new Map<number, string>();
  /** The last take of each log that is still to be read, and when it began. */
  const begun = new Map<number, { readonly life: string; readonly startedMs: number }>();
  const { commit, take, recover } = observed;
  return {
    ...observed,

    async commit(at, record) {
      const { logId } = at;
      if (doubts.get(logId) === record.recordId) onEvent({ type: "record_resent" });
      try {
        const result = await commit(at, record);
        doubts.delete(logId);
        if (result.type === "fenced") onEvent({ type: "record_fenced" });
        return result;
      } catch (error) {
        if (hasCode(error, "unknown_outcome")) {
          doubts.set(logId, record.recordId);
          onEvent({ type: "record_unknown" });
        } else doubts.delete(logId);
        throw error;
      }
    },

    async take(seen, owner) {
      const startedMs = clock.monotonic();
      const head = await take(seen, owner);
      if (head) begun.set(head.logId, { life: lifeOf(head), startedMs });
      return head;
    },

    async recover(head) {
      const recovered = await recover(head);
      const taken = begun.get(head.logId);
      if (taken?.life === lifeOf(head)) {
        begun.delete(head.logId);
        onEvent({ type: "log_taken", tookMs: clock.monotonic() - taken.startedMs });
      }
      return recovered;
    },
  };
}

function lifeOf({ logId, incarnation, term }: Head): string {
  return `${logId} ${incarnation} ${term}`;
}
