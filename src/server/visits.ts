import type { IncomingMessage, ServerResponse } from "node:http";
import type { Context, MiddlewareHandler } from "hono";
import { FlotillaError } from "../base/errors.ts";
import { type Authenticator, callerIn } from "./auth/authenticate.ts";
import type { Anonymous } from "./anonymous.ts";
import {
  type Account,
  accountOf,
  accountOfAddress,
  type CallerLimits,
  type Visit,
} from "./caller-limits.ts";

/** Holds requests to the limits of their callers, from their beginning until their answers are sent. */
export type Visits = {
  /** For routes that need credentials: finds out who calls. */
  readonly known: MiddlewareHandler;
  /** For what answers anybody. */
  readonly unknown: MiddlewareHandler;
  /** For what answers anybody, and tells more to a caller that is known. */
  readonly either: MiddlewareHandler;
};

export type VisitParts = {
  authenticator: Authenticator;
  limits: CallerLimits;
  anonymous?: Pick<Anonymous, "identify"> | undefined;
};

/** What the request came by; nothing of it where there is no connection. */
type Carried = { incoming?: IncomingMessage; outgoing?: ServerResponse };

export function createVisits({ authenticator, limits, anonymous }: VisitParts): Visits {
  const visiting =
    (accountFor: (c: Context) => Promise<Account>): MiddlewareHandler =>
    async (c, next) => {
      const { outgoing } = carriedBy(c);
      let visit: Visit | undefined;
      let isGone = false;
      const leave = () => {
        isGone = true;
        visit?.leave();
      };
      // Listened for at once: the client may leave while it is found out who it is.
      outgoing?.once("close", leave);
      visit = limits.enter(await accountFor(c));
      if (isGone) visit.leave();
      c.set("visit", visit);
      try {
        await next();
      } finally {
        if (!outgoing) leave();
      }
    };

  const accountOfKnown = async (c: Context): Promise<Account> => {
    const { incoming } = carriedBy(c);
    const caller = await callerIn(c, authenticator);
    if (incoming) anonymous?.identify(incoming.socket);
    return accountOf(caller);
  };
  const accountOfUnknown = (c: Context): Account =>
    accountOfAddress(carriedBy(c).incoming?.socket.remoteAddress);

  return {
    known: visiting(async (c) => {
      try {
        return await accountOfKnown(c);
      } catch (error) {
        // Guesses of keys and tokens are counted with what else comes from there.
        limits.count(accountOfUnknown(c));
        throw error;
      }
    }),
    unknown: visiting(async (c) => accountOfUnknown(c)),
    either: visiting(async (c) => {
      try {
        return await accountOfKnown(c);
      } catch (error) {
        if (!(error instanceof FlotillaError)) throw error;
        c.set("refusal", error);
        return accountOfUnknown(c);
      }
    }),
  };
}

/** Why it isn't known who calls, after `either`; undefined where it is. */
export function refusalIn(c: Context): FlotillaError | undefined {
  return c.get("refusal") as FlotillaError | undefined;
}

/** So many bytes of an answer wait to be read. Throws `overloaded` where a read is refused for it. */
export function answering(c: Context, bytes: number): void {
  const visit = c.get("visit") as Visit | undefined;
  const { outgoing } = carriedBy(c);
  const isRead = c.req.method === "GET" || c.req.method === "HEAD";
  visit?.answer(bytes, { isRead, cut: () => outgoing?.destroy() });
}

function carriedBy(c: Context): Carried {
  return (c.env ?? {}) as Carried;
}
