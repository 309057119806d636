import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";

/** The wrong keys of the last minute that came to the page of this process, by address. */
export type WrongKeys = {
  /**
   * Counts a key as wrong until it is known to be right, so that many at once are no way around the limit.
   * Throws `overloaded` after too many.
   */
  begin(address: string): { takeBack(): void };
  /** A key was wrong. Says in the log how many were, once a minute at most. */
  note(): void;
};

type Try = { readonly atMs: number };

const maxWrong = 10;
const withinMs = 60_000;
// Above it the address that has tried least recently is forgotten.
const maxAddresses = 10_000;

type WrongKeysParts = { clock: Pick<Clock, "monotonic">; log: Pick<Logger, "warn"> };

export function createWrongKeys({ clock, log }: WrongKeysParts): WrongKeys {
  /** Least recently used first. */
  const tries = new Map<string, Set<Try>>();
  let noted = 0;
  let loggedMs = -Infinity;

  return {
    begin(address) {
      const nowMs = clock.monotonic();
      const own = tries.get(address) ?? new Set();
      for (const each of own) if (nowMs - each.atMs >= withinMs) own.delete(each);
      const [oldest] = own;
      if (oldest && own.size >= maxWrong) {
        const retryAfterMs = oldest.atMs + withinMs - nowMs;
        throw new FlotillaError(
          "overloaded",
          `${maxWrong} wrong keys came from this address within a minute: try again in ${Math.ceil(retryAfterMs / 1_000)} seconds`,
          { retryAfterMs },
        );
      }
      const begun = { atMs: nowMs };
      tries.delete(address);
      tries.set(address, own.add(begun));
      if (tries.size > maxAddresses) tries.delete(tries.keys().next().value!);
      return { takeBack: () => void own.delete(begun) };
    },
    note() {
      noted++;
      const nowMs = clock.monotonic();
      if (nowMs - loggedMs < withinMs) return;
      log.warn({ refused: noted }, "wrong keys at the sign-in page");
      loggedMs = nowMs;
      noted = 0;
    },
  };
}
