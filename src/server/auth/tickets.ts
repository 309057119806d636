import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { Caller } from "./caller.ts";

export type Tickets = {
  issue(caller: Caller): { ticket: string; expiresAtMs: number };
  /** Whose ticket it is, once. */
  redeem(ticket: string): Caller | undefined;
};

const ticketMs = 30_000;
const ticketsMost = 10_000;

/**
 * Tickets stand for a caller in the address of a socket, for those who can't send headers. A URL ends up
 * in logs, so a ticket is good once, for a moment, and in the process that gave it.
 */
export function createTickets(clock: Clock, random: Random): Tickets {
  /** In the order in which they were given, so the oldest is first. */
  const given = new Map<string, { caller: Caller; untilMs: number }>();

  const forget = () => {
    for (const [ticket, { untilMs }] of given) {
      if (untilMs > clock.monotonic()) return;
      given.delete(ticket);
    }
  };

  return {
    issue(caller) {
      forget();
      if (given.size >= ticketsMost) {
        throw new FlotillaError("overloaded", "too many tickets wait to be used: try again soon", {
          retryAfterMs: 1_000,
        });
      }
      const words = Array.from({ length: 8 }, () => random.uint32().toString(16).padStart(8, "0"));
      const ticket = words.join("");
      given.set(ticket, { caller, untilMs: clock.monotonic() + ticketMs });
      return { ticket, expiresAtMs: clock.now() + ticketMs };
    },
    redeem(ticket) {
      forget();
      const found = given.get(ticket);
      given.delete(ticket);
      return found?.caller;
    },
  };
}
