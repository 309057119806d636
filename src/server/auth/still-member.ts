import type { Clock } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import type { Caller } from "./caller.ts";
import type { Members } from "./members.ts";

/** Looks whether somebody who follows a session still takes part in it. */
export type StillMember = {
  /** To be called when something happens. Asks only now and then. */
  look(): void;
  stop(): void;
};

export type StillMemberParts = {
  members: Members;
  clock: Clock;
  /** As it is now: a token may have been renewed. */
  caller: () => Caller;
  sessionId: string;
  onRemoved: (error: unknown) => void;
};

// Whoever was removed by way of another server may see what happens for as long, and one thing more.
const trustedMs = 30_000;

export function watchMember(parts: StillMemberParts): StillMember {
  const { members, clock, caller, sessionId, onRemoved } = parts;
  let checkedAtMs = clock.monotonic();
  const check = (forMs: number) => {
    checkedAtMs = clock.monotonic();
    members.checkAgain(caller(), sessionId, forMs)?.catch((error: unknown) => {
      // Trouble with looking isn't a reason to end what was allowed.
      if (hasCode(error, "not_found")) onRemoved(error);
    });
  };
  return {
    look() {
      if (clock.monotonic() - checkedAtMs >= trustedMs) check(trustedMs);
    },
    stop: members.watch(caller().tenant, sessionId, () => check(0)),
  };
}
