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
// A program gives them to many users.
const ticketsPerKey = 10_000;
const ticketsMost = 100_000;

/**
 * Tickets stand for a caller in the address of a socket, for those who can't send headers. A URL ends up
 * in logs, so a ticket is good once, for a moment, and in the process that gave it.
 */
export function createTickets(clock: Clock, random: Random): Tickets {
  /** In the order in which they were given, so the oldest is first. */
  const given = new Map<string, { caller: Caller; untilMs: number }>();
  /** How many wait to be used, by whose they are and by which key asked for them. */
  const waiting = new Map<string, number>();

  const take = (ticket: string): Caller | undefined => {
    const caller = given.get(ticket)?.caller;
    if (!caller) return undefined;
    given.delete(ticket);
    for (const { owner } of sharesOf(caller)) {
      const left = waiting.get(owner)! - 1;
      if (left > 0) waiting.set(owner, left);
      else waiting.delete(owner);
    }
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
      const shares = sharesOf(caller);
      const isTaken = shares.some(({ owner, most }) => (waiting.get(owner) ?? 0) >= most);
      if (isTaken || given.size >= ticketsMost) {
        throw new FlotillaError("overloaded", "too many tickets wait to be used: try again soon", {
          retryAfterMs: 1_000,
        });
      }
      for (const { owner } of shares) waiting.set(owner, (waiting.get(owner) ?? 0) + 1);
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

/** What a ticket counts against: its user, and the key that asks for it, whichever users that names. */
function sharesOf({ kind, tenant, user, keyId = "" }: Caller): { owner: string; most: number }[] {
  // No part holds the character between them: no name may.
  const ofUser = { owner: [kind, keyId, tenant, user].join("\0"), most: ticketsPerUser };
  const ofKey = { owner: [kind, keyId].join("\0"), most: ticketsPerKey };
  if (kind === "user") return [ofUser];
  return user === undefined ? [ofKey] : [ofKey, ofUser];
}
