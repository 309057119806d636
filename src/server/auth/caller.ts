import type { Actor } from "../../audit/actor.ts";
import { FlotillaError } from "../../base/errors.ts";
import { isStorable } from "../../base/options.ts";
import type { Credential } from "../../keys/credentials.ts";
import { leastRole, type Role, type Verb } from "../../protocol/verbs.ts";

/** Who calls, for which tenant, and with which permissions. */
export type Caller = {
  /**
   * A `server` has a key, a `user` a token or a sign-in of the host app; `local` is a program on this
   * machine without credentials.
   */
  readonly kind: "server" | "user" | "local";
  readonly tenant: string;
  /** Looks after all tenants: `tenant` only says whose sessions and agents this request is about. */
  readonly allTenants?: true;
  /** A user that names another tenant than its own, where a user of the same name is another one. */
  readonly isElsewhere?: true;
  /** The role of its key, token or sign-in, where that has one. */
  readonly role?: Role;
  /** Of a `user`: itself. Of the others: the user they act for, where they name one. */
  readonly user?: string;
  /** It uses the sessions that `user` is a member of, and no others, whatever its verbs allow. */
  readonly isOnlyForUser?: true;
  /** Of a `server`: identifies its key. */
  readonly keyId?: string;
  /** The key's name in the config, where it has one. */
  readonly keyName?: string;
  /** The only tenant that its key acts for, where it has one. */
  readonly keyTenant?: string;
  readonly verbs: ReadonlySet<Verb>;
  /** The only sessions that a token allows, where it names some. */
  readonly sessions?: ReadonlySet<string>;
  readonly expiresAtMs?: number;
  /** What it was authenticated with, where that can be revoked. */
  readonly credential?: Credential;
};

/** What a route or a frame needs of its caller. */
export type Access = {
  readonly verb: Verb;
  /** Instead of `verb`: allows it in all sessions of the tenant, the caller's own or not. */
  readonly or?: "fleet:read" | "fleet:operate";
  /** Its handler holds it to the tenant of a caller that has one. Else such a caller is refused. */
  readonly ofTenant?: true;
};

/** The user of a program that names none, on a server without credentials. */
export const localUser = "local";
const maxNameChars = 500;
export const nameRule = `text of 1 to ${maxNameChars} characters`;

export function may({ verbs }: Caller, verb: Verb): boolean {
  if (verbs.has(verb) || verbs.has("admin")) return true;
  // A caller that may not look at the fleet reads only what is its own, and reads that whole.
  return verb === "payloads:read" && !verbs.has("fleet:read") && !verbs.has("fleet:operate");
}

/** Whether the caller may use sessions that it isn't a member of, by this verb. */
export function mayInAll(
  caller: Caller,
  verb: "sessions:any" | NonNullable<Access["or"]>,
): boolean {
  return !caller.isOnlyForUser && may(caller, verb);
}

export function requireVerb(caller: Caller, verb: Verb, or?: Access["or"]): void {
  if (may(caller, verb) || (or !== undefined && may(caller, or))) return;
  const role = leastRole(or ?? verb);
  const needed = or === undefined ? ", which the role" : ", or the role";
  const byRole = role === undefined ? "" : `${needed} \`${role}\`${or === undefined ? " has" : ""}`;
  const message = `${nameOf(caller)} may not do that: it needs \`${verb}\`${byRole}`;
  const details = { verb, ...(role !== undefined && { role }) };
  throw new FlotillaError("forbidden", message, { details });
}

/** Refuses a caller without the verb, and one of a single tenant where all tenants are concerned. */
export function requireAccess(caller: Caller, { verb, or, ofTenant }: Access): void {
  requireVerb(caller, verb, or);
  const concernsAll = verb === "fleet:read" || verb === "fleet:operate";
  if (!concernsAll || ofTenant || onlyTenant(caller) === undefined) return;
  throw new FlotillaError(
    "forbidden",
    `this is about all tenants, and ${nameOf(caller)} is of one: it needs the same role without a tenant`,
    { details: { verb } },
  );
}

const actorKinds = { server: "key", user: "user", local: "local" } as const;

/** A caller as the audit names it, with the address of its connection and the id that it gave its act. */
export function actorOf(
  caller: Caller,
  { address, actId }: { address?: string | undefined; actId?: string | undefined },
): Actor {
  const { kind, tenant, keyId, keyName } = caller;
  const user = caller.user ?? (kind === "local" ? localUser : undefined);
  const role = caller.role ?? roleOf(caller);
  return {
    kind: actorKinds[kind],
    tenant,
    // A key without a name is told by its place in the config.
    ...(kind === "server" && { keyName: keyName ?? `#${keyId}` }),
    ...(user !== undefined && { user }),
    ...(role !== undefined && { role }),
    ...(address !== undefined && { address }),
    ...(actId !== undefined && { actId }),
  };
}

/** The role whose rights a key has that was given verbs instead of one. */
function roleOf(caller: Caller): Role | undefined {
  return caller.kind !== "local" && may(caller, "fleet:operate") ? "operator" : undefined;
}

/** The one tenant whose tasks and runs the caller may see; undefined where it may see those of all. */
export function onlyTenant(caller: Caller): string | undefined {
  return caller.allTenants || may(caller, "admin") ? undefined : caller.tenant;
}

/** The tenant that a request is held to, by its caller or by its own choice. */
export function heldTenant(caller: Caller, requested: string | undefined): string | undefined {
  const only = onlyTenant(caller);
  if (only === undefined || requested === undefined || requested === only) return only ?? requested;
  throw new FlotillaError("forbidden", `${nameOf(caller)} is of another tenant`);
}

/** Whether a task or run is of a tenant that the caller may see. */
export function canSee(caller: Caller, { tenant }: { readonly tenant: string | null }): boolean {
  const only = onlyTenant(caller);
  return only === undefined || only === tenant;
}

/** The user whose inbox or read mark is meant. */
export function userOf(caller: Caller): string {
  if (caller.user !== undefined) return caller.user;
  if (caller.kind === "local") return localUser;
  throw new FlotillaError(
    "invalid_input",
    "the user is missing: send `Flotilla-User: <id>`, or `?user=<id>` where the route takes it",
  );
}

/** The same error for a missing session and a forbidden one, so that callers can't probe for ids. */
export function noSession(sessionId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no session ${sessionId.slice(0, 80)}`);
}

/**
 * Whether a user or a tenant may have this name. Databases refuse some text and alter other text, which
 * could make one name of two.
 */
export function isName(value: unknown): value is string {
  const fits = typeof value === "string" && value !== "" && value.length <= maxNameChars;
  return fits && isStorable(value);
}

/**
 * A name from a header. Headers carry little more than ASCII, so other characters must be
 * percent-encoded; the encoding of raw bytes would be ambiguous.
 */
export function nameInHeader(header: string, value: string | undefined): string | undefined {
  if (value === undefined) return undefined;
  const name = decoded(value);
  if (name !== undefined) return requireName(header, name);
  throw new FlotillaError(
    "invalid_input",
    `${header} must be percent-encoded, as encodeURIComponent does it: \`Zo%C3%AB\`, and \`%25\` for %`,
  );
}

export function requireName(what: string, name: string | undefined): string | undefined {
  if (name === undefined || isName(name)) return name;
  throw new FlotillaError("invalid_input", `${what} must be ${nameRule}`);
}

function nameOf({ kind }: Caller): string {
  return kind === "user" ? "this user" : "this key";
}

function decoded(value: string): string | undefined {
  if (/[^ -~]/.test(value)) return undefined;
  try {
    return decodeURIComponent(value);
  } catch {
    return undefined;
  }
}
