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
// More than a user's browser ever opens sockets with at once.
const ticketsPerUser = 100;
// Of a program that names no user, and gives them to many.
const ticketsPerProgram = 10_000;
const ticketsMost = 100_000;

/**
 * Tickets stand for a caller in the address of a socket, for those who can't send headers. A URL ends up
 * in logs, so a ticket is good once, for a moment, and in the process that gave it.
 */
export function createTickets(clock: Clock, random: Random): Tickets {
  /** In the order in which they were given, so the oldest is first. */
  const given = new Map<string, { caller: Caller; untilMs: number }>();
  /** How many wait to be used, by whose they are. */
  const waiting = new Map<string, number>();

  const take = (ticket: string): Caller | undefined => {
    const caller = given.get(ticket)?.caller;
    if (!caller) return undefined;
    given.delete(ticket);
    const owner = ownerOf(caller);
    const left = waiting.get(owner)! - 1;
    if (left > 0) waiting.set(owner, left);
    else waiting.delete(owner);
    return caller;
  };
  const forget = () => {
    for (const [ticket, { untilMs }] of given) {
      if (untilMs > clock.monotonic()) return;
      take(ticket);
    }
  };

  return {
    issue(caller) {
      forget();
      const owner = ownerOf(caller);
      const own = waiting.get(owner) ?? 0;
      const most = caller.user === undefined ? ticketsPerProgram : ticketsPerUser;
      if (own >= most || given.size >= ticketsMost) {
        throw new FlotillaError("overloaded", "too many tickets wait to be used: try again soon", {
          retryAfterMs: 1_000,
        });
      }
      waiting.set(owner, own + 1);
      const words = Array.from({ length: 8 }, () => random.uint32().toString(16).padStart(8, "0"));
      const ticket = words.join("");
      given.set(ticket, { caller, untilMs: clock.monotonic() + ticketMs });
      return { ticket, expiresAtMs: clock.now() + ticketMs };
    },
    redeem(ticket) {
      forget();
      return take(ticket);
    },
  };
}

/** Neither part holds the character between them: no name may. */
function ownerOf({ kind, tenant, user = "" }: Caller): string {
  return `${kind}\0${tenant}\0${user}`;
}
