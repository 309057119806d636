import crypto from "node:crypto";
import type { Context } from "hono";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import { type Random, drawBytes, systemRandom } from "../../base/random.ts";
import type { Credential, Credentials, KnownKey } from "../../keys/credentials.ts";
import { type Role, sessionVerbs, type Verb, verbs, verbsOfRole } from "../../protocol/verbs.ts";
import type { ApiKey, LoginHook, ServerConfig, TokenConfig } from "../../runtime/server-config.ts";
import { type Caller, requireName, nameInHeader } from "./caller.ts";
import { checkCookieRequest, cookiesIn, hostRefusal, isSecureOrigin } from "./cookie.ts";
import { createLogin } from "./login.ts";
import { checkLocal } from "./origins.ts";

export type AcceptedCredentials = {
  apiKeys: readonly ApiKey[];
  tokens?: TokenConfig | undefined;
  /** The host app's own sign-in. */
  login?: LoginHook | undefined;
  /** `"store"`: callers need credentials also where the config has none. */
  keys?: ServerConfig["keys"];
  origins?: readonly string[] | undefined;
};

type AuthenticatorParts = {
  clock: Clock;
  random?: Random;
  log?: Logger;
  /** Keys of the store, and revoked tokens. Without it there are none. */
  credentials?: Credentials | undefined;
};

/** The parts of a request that carry credentials. */
export type AuthRequest = {
  header(name: string): string | undefined;
  /** The names of all headers, in lower case. */
  headerNames(): Iterable<string>;
  /** A token that isn't in the Authorization header. */
  bearer?: string | undefined;
  ticket?: string | undefined;
  /** The user that a program acts for, where it can't send the header. */
  user?: string | undefined;
  /** Default `GET`. */
  method?: string | undefined;
  /** The address that was requested, or its path. */
  url?: string | undefined;
  /** It asks for a socket. */
  isSocket?: boolean | undefined;
};

/** The sign-in of a request's cookie. */
export type SignInFound = {
  readonly signInId: string;
  /** The address at which it counts. */
  readonly origin: string;
  readonly expiresAtMs: number;
  /** The text of the cookie. */
  readonly text: string;
};

export type Authenticator = {
  /** Resolves to the caller; rejects where the credentials are missing or invalid. */
  caller(authRequest: AuthRequest): Promise<Caller>;
  /** Why a caller is refused by now: its credential was revoked, or has expired. Undefined while it isn't. */
  refusalOf(caller: Caller): FlotillaError | undefined;
  /** Calls back once, when the caller's credential is revoked or has ended. The returned function ends it. */
  watch(caller: Caller, onEnd: (refusal: FlotillaError) => void): () => void;
  /** A request that came in another way, such as a frame, shows that the caller's sign-in isn't idle. */
  use(caller: Caller): void;
  /** The sign-in whose cookie a request has, whatever it is for; undefined where none counts. */
  signIn(authRequest: AuthRequest): Promise<SignInFound | undefined>;
  /** Proves which key of the config a sign-in was made with, given its cookie. Undefined for other keys. */
  bindingOf(caller: Caller): ((text: string) => string) | undefined;
  /** Programs on this machine need no credentials. */
  readonly isOpen: boolean;
  readonly tickets: Tickets;
  /** Settles when tokens can be verified; rejects where they never can, as with an invalid JWKS. */
  readonly ready: Promise<unknown>;
};

type Tickets = {
  issue(caller: Caller): { ticket: string; expiresAtMs: number };
  /** Returns the caller of a ticket, once. */
  redeem(ticket: string): Caller | undefined;
};

/** A key's tenant and permissions. */
type KeyHolder = {
  /** Identifies the key without revealing it. */
  readonly id?: string;
  readonly name?: string;
  /** Absent: the key may act for any tenant that a request names. */
  readonly tenant?: string;
  readonly role?: Role;
  readonly verbs: ReadonlySet<Verb>;
  /** Of a key in the store. */
  readonly credential?: Credential;
};

type CookieAnswer =
  | {
      readonly signIn: SignInFound;
      readonly holder: KeyHolder;
      /** Of a key in the store. */
      readonly keyId: string | undefined;
    }
  | { readonly signIn?: undefined; readonly refusal: FlotillaError | undefined };

type Keyring = {
  /** The holder of a key. */
  holderOf(presented: string): KeyHolder | undefined;
  /**
   * Proves which key a sign-in was made with, given the text of its cookie. What is stored says nothing
   * about the key without that text, which isn't stored.
   */
  binding(keyId: string): ((text: string) => string) | undefined;
  boundTo(text: string, binding: string | undefined): KeyHolder | undefined;
};

const administrator: KeyHolder = { role: "admin", verbs: new Set(verbs) };
const ticketTtlMs = 30_000;
const ticketBytes = 32;
// More sockets than a user's browser ever opens at once.
const maxTicketsPerUser = 100;
// A program passes its tickets on to many users.
const maxTicketsPerKey = 10_000;
const maxTickets = 100_000;

/**
 * Authenticates callers. With keys, tokens or a sign-in configured, a caller needs one of them or a key of
 * the store. Without, only programs on this machine may call.
 */
export function createAuthenticator(
  { apiKeys, tokens, login, keys, origins = [] }: AcceptedCredentials,
  { clock, random = systemRandom, log = silentLogger, credentials }: AuthenticatorParts,
): Authenticator {
  const keyring = createKeyring(apiKeys);
  // Loaded only where tokens are configured, because the JWT library takes a while to load.
  const verifier =
    tokens && import("./tokens.ts").then((loaded) => loaded.createTokenVerifier(tokens, clock));
  const tickets = createTickets(clock, random);
  const isOpen = isOpenServer({ apiKeys, tokens, login, keys });
  const signedIn = login && createLogin(login, { origins, clock, log });
  // An open server needs no keys of the store, and reads them only when a caller sends one.
  const ready = Promise.all([verifier, isOpen ? undefined : credentials?.ready()]);
  ready.catch(() => {});

  const refusalOf = ({ credential, expiresAtMs }: Caller) => {
    if (expiresAtMs !== undefined && clock.now() >= expiresAtMs)
      return new FlotillaError(
        "unauthorized",
        "the token or the sign-in has expired: get a new one",
      );
    return credential && credentials?.refusalOf(credential);
  };
  const accepted = (caller: Caller): Caller => {
    const refusal = refusalOf(caller);
    if (refusal) throw refusal;
    return caller;
  };

  /** The sign-in of a cookie with its key; else why there is none, where a cookie was meant as one. */
  const signInIn = async (authRequest: AuthRequest): Promise<CookieAnswer> => {
    let refusal: FlotillaError | undefined;
    for (const { text, isSecure } of cookiesIn(authRequest)) {
      try {
        const known = await credentials?.signInOf(text);
        if (!known || isSecureOrigin(known.origin) !== isSecure) continue;
        refusal = hostRefusal(authRequest, known.origin);
        if (refusal) continue;
        const { key, binding, ...signIn } = known;
        const holder = key ? holderOfStored(key) : keyring.boundTo(text, binding);
        if (holder) return { signIn: { ...signIn, text }, holder, keyId: key?.keyId };
        refusal = new FlotillaError(
          "unauthorized",
          "the sign-in's key is no longer in the config: sign in again",
          { details: { signIn: "key" } },
        );
      } catch (error) {
        if (!hasCode(error, "unauthorized")) throw error;
        refusal = error;
      }
    }
    return { refusal };
  };

  const callerOfSignIn = async (
    authRequest: AuthRequest,
  ): Promise<Caller | FlotillaError | undefined> => {
    const found = await signInIn(authRequest);
    if (!found.signIn) return found.refusal;
    const { signIn, holder, keyId } = found;
    checkCookieRequest(authRequest, signIn.origin);
    const { signInId } = signIn;
    credentials?.useSignIn(signInId);
    const credential = {
      kind: "sign-in",
      signInId,
      ...(keyId !== undefined && { keyId }),
    } as const;
    return callerOfKey({ ...holder, credential }, "server", authRequest);
  };

  return {
    tickets,
    ready,
    isOpen,
    refusalOf,
    use({ credential }) {
      if (credential?.kind === "sign-in") credentials?.useSignIn(credential.signInId);
    },
    signIn: async (authRequest) => (await signInIn(authRequest)).signIn,
    bindingOf: ({ kind, credential, keyId = "" }) =>
      kind === "server" && credential === undefined ? keyring.binding(keyId) : undefined,
    watch({ credential }, onEnd) {
      return (credential && credentials?.watch(credential, onEnd)) ?? (() => {});
    },
    async caller(authRequest) {
      const { ticket } = authRequest;
      if (ticket !== undefined) {
        const caller = tickets.redeem(ticket);
        if (caller) return accepted(caller);
        throw new FlotillaError(
          "unauthorized",
          "the ticket was used already or has expired: get a new one",
        );
      }
      if (isOpen) {
        checkLocal(authRequest, origins);
        // Such a caller needs no key. One that is sent counts all the same, with no more than it allows.
        const key = await credentials?.keyOf(bearerOf(authRequest) ?? "");
        if (key) return callerOfKey(holderOfStored(key), "server", authRequest);
        return callerOfKey(administrator, "local", authRequest);
      }
      const bearer = bearerOf(authRequest);
      if (bearer === undefined) {
        const bySignIn = await callerOfSignIn(authRequest);
        if (bySignIn && !(bySignIn instanceof FlotillaError)) return bySignIn;
        if (signedIn) return callerOfUser(await signedIn(authRequest), authRequest);
        if (bySignIn) throw bySignIn;
        throw new FlotillaError(
          "unauthorized",
          "send one of the server's keys, or a user's token: `Authorization: Bearer <key>`",
        );
      }
      const holder = keyring.holderOf(bearer);
      if (holder) return callerOfKey(holder, "server", authRequest);
      const stored = await credentials?.keyOf(bearer);
      if (stored) return callerOfKey(holderOfStored(stored), "server", authRequest);
      // A JWT has three parts with dots between; anything else was meant as a key.
      if (verifier && bearer.split(".").length === 3) {
        const verify = await verifier;
        return accepted(callerOfUser(await verify(bearer), authRequest));
      }
      throw new FlotillaError(
        "unauthorized",
        "unknown API key: send one of server.apiKeys, or one that `flotilla keys create` has made",
      );
    },
  };
}

/** Whether programs on this machine may call without credentials: the server accepts none. */
export function isOpenServer({
  apiKeys = [],
  tokens,
  login,
  keys,
}: Partial<AcceptedCredentials>): boolean {
  return apiKeys.length === 0 && !tokens && !login && keys === undefined;
}

/** Authenticates a request and stores its caller for `callerOf`. */
export async function callerIn(c: Context, { caller }: Authenticator): Promise<Caller> {
  const found = await caller(authRequestIn(c));
  c.set("caller", found);
  return found;
}

export function authRequestIn(c: Context): AuthRequest {
  const { headers } = c.req.raw;
  return {
    header: (name) => headers.get(name) ?? undefined,
    headerNames: () => headers.keys(),
    method: c.req.method,
    url: c.req.url,
  };
}

export function callerOf(c: Context): Caller {
  return c.get("caller") as Caller;
}

function bearerOf({ header, bearer }: AuthRequest): string | undefined {
  return bearer ?? /^Bearer +(\S+)$/i.exec(header("authorization") ?? "")?.[1];
}

/** Headers of a program's request name the tenant and user that it acts for. */
function callerOfKey(
  holder: KeyHolder,
  kind: "server" | "local",
  authRequest: AuthRequest,
): Caller {
  const { tenant: named, user } = claimedNames(authRequest);
  if (holder.tenant !== undefined && named !== undefined && named !== holder.tenant)
    throw new FlotillaError("forbidden", "this key belongs to another tenant");
  return {
    kind,
    tenant: holder.tenant ?? named ?? "default",
    verbs: holder.verbs,
    ...(holder.tenant === undefined && looksAfterFleet(holder.verbs) && { allTenants: true }),
    ...(holder.role !== undefined && { role: holder.role }),
    ...(holder.id !== undefined && { keyId: holder.id }),
    ...(holder.name !== undefined && { keyName: holder.name }),
    ...(holder.tenant !== undefined && { keyTenant: holder.tenant }),
    ...(holder.credential && { credential: holder.credential }),
    ...(user !== undefined && { user }),
  };
}

/**
 * A token or a sign-in determines its user, and its tenant unless it is for all; headers that name others
 * are a mistake of the caller.
 */
function callerOfUser(caller: Caller, authRequest: AuthRequest): Caller {
  const { tenant = caller.tenant, user = caller.user } = claimedNames(authRequest);
  if (user === caller.user && tenant === caller.tenant) return caller;
  if (user === caller.user && caller.allTenants) {
    // What a role allows holds everywhere; a user has sessions and an inbox of its own in its tenant alone.
    const allowed = [...caller.verbs].filter((verb) => !sessionVerbs.includes(verb));
    return { ...caller, tenant, isElsewhere: true, verbs: new Set(allowed) };
  }
  throw new FlotillaError("forbidden", "this user is another one, or of another tenant");
}

function looksAfterFleet(allowed: ReadonlySet<Verb>): boolean {
  return allowed.has("admin") || allowed.has("fleet:read") || allowed.has("fleet:operate");
}

function claimedNames({ header, user }: AuthRequest) {
  return {
    tenant: nameInHeader("Flotilla-Tenant", header("flotilla-tenant")),
    user: nameInHeader("Flotilla-User", header("flotilla-user")) ?? requireName("user", user),
  };
}

/** The keys of the config. Keeps only hashes. */
function createKeyring(apiKeys: readonly ApiKey[]): Keyring {
  const keys = apiKeys.map((each, at) => ({
    hash: hashOf(each),
    holder: { ...holderOf(each), id: String(at) },
  }));
  // Compare every key in full, so that the time taken reveals nothing.
  const find = (isIt: (hashed: Buffer) => boolean) =>
    keys.filter((each) => isIt(each.hash))[0]?.holder;
  const proof = (hashed: Buffer, text: string) =>
    crypto.createHmac("sha256", text).update(hashed).digest();
  return {
    holderOf(presented) {
      if (keys.length === 0) return undefined;
      const hashed = hash(presented);
      return find((each) => crypto.timingSafeEqual(each, hashed));
    },
    binding(keyId) {
      const key = keys.find(({ holder }) => holder.id === keyId);
      return key && ((text) => proof(key.hash, text).toString("hex"));
    },
    boundTo(text, binding = "") {
      const bound = Buffer.from(binding, "hex");
      return find((each) => {
        const proven = proof(each, text);
        return proven.length === bound.length && crypto.timingSafeEqual(proven, bound);
      });
    },
  };
}

function hashOf(apiKey: ApiKey): Buffer {
  const { key = "", hash: hashed = key } = typeof apiKey === "string" ? { key: apiKey } : apiKey;
  const hex = /^sha256:([0-9a-f]{64})$/i.exec(hashed)?.[1];
  return hex === undefined ? hash(hashed) : Buffer.from(hex, "hex");
}

function holderOf(apiKey: ApiKey): KeyHolder {
  if (typeof apiKey === "string") return administrator;
  const { name, tenant, role, verbs: chosen, admin } = apiKey;
  const isAdmin = admin ?? (tenant === undefined && chosen === undefined && role === undefined);
  const byRole = role && [...verbsOfRole[role], ...(chosen ?? [])];
  const allowed = isAdmin ? verbs : (byRole ?? chosen ?? sessionVerbs);
  // An administrator acts for all tenants, so a key of one tenant never gets `admin`.
  const isOfTenant = tenant !== undefined;
  const granted = new Set(isOfTenant ? allowed.filter((verb) => verb !== "admin") : allowed);
  const granting = granted.has("admin") ? "admin" : role === "admin" ? undefined : role;
  return {
    ...(name !== undefined && { name }),
    ...(isOfTenant && { tenant }),
    ...(granting !== undefined && { role: granting }),
    verbs: granted,
  };
}

function holderOfStored({ keyId, name, role, tenant, verbs: allowed }: KnownKey): KeyHolder {
  return {
    id: keyId,
    name,
    role,
    ...(tenant !== undefined && { tenant }),
    verbs: allowed,
    credential: { kind: "key", keyId },
  };
}

function hash(text: string): Buffer {
  return crypto.hash("sha256", text, "buffer");
}

/**
 * A ticket stands for a caller in the URL of a socket, for clients that can't send headers. URLs end up
 * in logs, so a ticket is valid once, for a short time, and only in the process that issued it.
 */
function createTickets(clock: Clock, random: Random): Tickets {
  /** Oldest first. */
  const issued = new Map<string, { caller: Caller; untilMs: number }>();
  /** How many unused tickets count against each quota. */
  const openCounts = new Map<string, number>();

  const consume = (ticket: string): Caller | undefined => {
    const caller = issued.get(ticket)?.caller;
    if (!caller) return undefined;
    issued.delete(ticket);
    for (const { owner } of quotasOf(caller)) {
      const left = openCounts.get(owner)! - 1;
      if (left > 0) openCounts.set(owner, left);
      else openCounts.delete(owner);
    }
    return caller;
  };
  const dropExpired = () => {
    for (const [ticket, { untilMs }] of issued) {
      if (untilMs > clock.monotonic()) return;
      consume(ticket);
    }
  };

  return {
    issue(caller) {
      dropExpired();
      const shares = quotasOf(caller);
      const isTaken = shares.some(({ owner, max }) => (openCounts.get(owner) ?? 0) >= max);
      if (isTaken || issued.size >= maxTickets) {
        throw new FlotillaError("overloaded", "too many tickets wait to be used: try again soon", {
          retryAfterMs: 1_000,
        });
      }
      for (const { owner } of shares) openCounts.set(owner, (openCounts.get(owner) ?? 0) + 1);
      const ticket = Buffer.from(drawBytes(random, ticketBytes)).toString("hex");
      issued.set(ticket, { caller, untilMs: clock.monotonic() + ticketTtlMs });
      return { ticket, expiresAtMs: clock.now() + ticketTtlMs };
    },
    redeem(ticket) {
      dropExpired();
      return consume(ticket);
    },
  };
}

/** The quotas that a ticket counts against: its user, and the key that requests it for any user. */
function quotasOf(caller: Caller): { owner: string; max: number }[] {
  const { kind, user, keyId = "" } = caller;
  // A user of all tenants may name any of them.
  const tenant = kind === "user" && caller.allTenants ? "" : caller.tenant;
  // NUL separates the parts, because no name contains it.
  const ofUser = { owner: [kind, keyId, tenant, user].join("\0"), max: maxTicketsPerUser };
  const ofKey = { owner: [kind, keyId].join("\0"), max: maxTicketsPerKey };
  if (kind === "user") return [ofUser];
  return user === undefined ? [ofKey] : [ofKey, ofUser];
}
