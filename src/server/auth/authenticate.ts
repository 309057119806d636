import type { Context } from "hono";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { systemRandom, type Random } from "../../base/random.ts";
import { verbs } from "../../protocol/frames.ts";
import type { ApiKey, TokenConfig } from "../../runtime/server-config.ts";
import { checkLocal } from "./origins.ts";
import type { Caller } from "./caller.ts";
import { createKeyring, type KeyHolder } from "./keys.ts";
import { checkName, nameInHeader } from "./names.ts";
import { createTickets, type Tickets } from "./tickets.ts";

export type Credentials = {
  apiKeys: readonly ApiKey[];
  tokens?: TokenConfig | undefined;
  origins?: readonly string[] | undefined;
};

/** What of a request says who makes it. */
export type Asking = {
  header(name: string): string | undefined;
  /** Of all headers that came, in lower case. */
  headerNames(): Iterable<string>;
  /** A token that came otherwise than in the header. */
  bearer?: string | undefined;
  ticket?: string | undefined;
  /** Whom a program acts for, where it has no header to say so in. */
  user?: string | undefined;
};

export type Authenticator = {
  /** Who asks; rejects where that can't be told. */
  caller(asking: Asking): Promise<Caller>;
  readonly tickets: Tickets;
  /** Settles when tokens can be checked; rejects where they never can, as of keys that are none. */
  readonly ready: Promise<unknown>;
};

/**
 * Tells who calls. With keys or tokens: whoever has one. Without: programs on this machine, and only
 * they.
 */
export function createAuthenticator(
  { apiKeys, tokens, origins = [] }: Credentials,
  { clock, random = systemRandom }: { clock: Clock; random?: Random },
): Authenticator {
  const holderOf = createKeyring(apiKeys);
  // Few servers check tokens, and what does it takes a while to load.
  const verifier =
    tokens && import("./tokens.ts").then((loaded) => loaded.createTokenVerifier(tokens, clock));
  const ready = Promise.resolve(verifier);
  ready.catch(() => {});
  const tickets = createTickets(clock, random);
  const isOpen = apiKeys.length === 0 && !verifier;

  return {
    tickets,
    ready,
    async caller(asking) {
      const { ticket } = asking;
      if (ticket !== undefined) {
        const caller = tickets.redeem(ticket);
        if (caller) return caller;
        throw new FlotillaError("unauthorized", "the ticket was used already, or is too old");
      }
      if (isOpen) {
        checkLocal(asking, origins);
        return acting({ verbs: new Set(verbs) }, "local", asking);
      }
      const bearer = bearerOf(asking);
      const holder = holderOf(bearer);
      if (holder) return acting(holder, "server", asking);
      // Three parts with dots between make a token; anything else was meant to be a key.
      if (verifier && bearer.split(".").length === 3) {
        const verify = await verifier;
        return matching(await verify(bearer), asking);
      }
      throw new FlotillaError("unauthorized", "the key isn't known here");
    },
  };
}

/** Finds out who makes a request, for `callerOf`. */
export async function callerIn(c: Context, { caller }: Authenticator): Promise<Caller> {
  const { headers } = c.req.raw;
  const found = await caller({
    header: (name) => headers.get(name) ?? undefined,
    headerNames: () => headers.keys(),
  });
  c.set("caller", found);
  return found;
}

export function callerOf(c: Context): Caller {
  return c.get("caller") as Caller;
}

function bearerOf({ header, bearer }: Asking): string {
  const given = bearer ?? /^Bearer +(\S+)$/i.exec(header("authorization") ?? "")?.[1];
  if (given !== undefined) return given;
  throw new FlotillaError(
    "unauthorized",
    "send one of the server's keys, or a user's token: `Authorization: Bearer <key>`",
  );
}

/** A program says in headers for which tenant and user it acts. */
function acting(holder: KeyHolder, kind: "server" | "local", asking: Asking): Caller {
  const { tenant: named, user } = namesIn(asking);
  if (holder.tenant !== undefined && named !== undefined && named !== holder.tenant)
    throw new FlotillaError("forbidden", "this key is of another tenant");
  return {
    kind,
    tenant: holder.tenant ?? named ?? "default",
    verbs: holder.verbs,
    ...(holder.id !== undefined && { keyId: holder.id }),
    ...(holder.name !== undefined && { keyName: holder.name }),
    ...(user !== undefined && { user }),
  };
}

/** A token says itself who it is of; a request that says otherwise is a mistake somewhere. */
function matching(caller: Caller, asking: Asking): Caller {
  const { tenant = caller.tenant, user = caller.user } = namesIn(asking);
  if (tenant === caller.tenant && user === caller.user) return caller;
  throw new FlotillaError("forbidden", "this token is of another tenant or user");
}

function namesIn({ header, user }: Asking) {
  return {
    tenant: nameInHeader("Flotilla-Tenant", header("flotilla-tenant")),
    user: nameInHeader("Flotilla-User", header("flotilla-user")) ?? checkName("user", user),
  };
}
