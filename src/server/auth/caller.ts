import { FlotillaError } from "../../base/errors.ts";
import { isStorable } from "../../base/options.ts";
import type { Verb } from "../../protocol/verbs.ts";

/** Who calls, for which tenant, and with which permissions. */
export type Caller = {
  /** A `server` has a key, a `user` a token; `local` is a program on this machine without credentials. */
  readonly kind: "server" | "user" | "local";
  readonly tenant: string;
  /** Of a `user`: itself. Of the others: the user they act for, where they name one. */
  readonly user?: string;
  /** Of a `server`: identifies its key. */
  readonly keyId?: string;
  /** The key's name in the config, where it has one. */
  readonly keyName?: string;
  readonly verbs: ReadonlySet<Verb>;
  /** The only sessions that a token allows, where it names some. */
  readonly sessions?: ReadonlySet<string>;
  readonly expiresAtMs?: number;
};

/** The user of a program that names none, on a server without credentials. */
export const localUser = "local";
const maxNameChars = 500;
export const nameRule = `text of 1 to ${maxNameChars} characters`;

export function may(caller: Caller, verb: Verb): boolean {
  return caller.verbs.has(verb) || caller.verbs.has("admin");
}

export function requireVerb(caller: Caller, verb: Verb): void {
  if (may(caller, verb)) return;
  const what = caller.kind === "user" ? "this token" : "this key";
  throw new FlotillaError("forbidden", `${what} doesn't allow \`${verb}\``, { details: { verb } });
}

/** Whether a task or run is of a tenant that the caller may read; an administrator may read all. */
export function canSee(caller: Caller, { tenant }: { readonly tenant: string }): boolean {
  return may(caller, "admin") || caller.tenant === tenant;
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

function decoded(value: string): string | undefined {
  if (/[^ -~]/.test(value)) return undefined;
  try {
    return decodeURIComponent(value);
  } catch {
    return undefined;
  }
}
