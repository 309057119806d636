import { FlotillaError } from "../../base/errors.ts";
import type { Verb } from "../../protocol/verbs.ts";

/** Who asks, for which tenant, and what they may do. */
export type Caller = {
  /** A `server` has a key, a `user` a token, and `local` is a program on a machine without credentials. */
  readonly kind: "server" | "user" | "local";
  readonly tenant: string;
  /** Of a user: who it is. Of the others: whom they act for, where they say so. */
  readonly user?: string;
  /** Which of the keys it is, of a `server`. */
  readonly keyId?: string;
  /** What the config calls that key, where it has a name. */
  readonly keyName?: string;
  readonly verbs: ReadonlySet<Verb>;
  /** The only sessions that a token is good for, where it names some. */
  readonly sessions?: ReadonlySet<string>;
  readonly expiresAtMs?: number;
};

export function may(caller: Caller, verb: Verb): boolean {
  return caller.verbs.has(verb) || caller.verbs.has("admin");
}

export function requireVerb(caller: Caller, verb: Verb): void {
  if (may(caller, verb)) return;
  const what = caller.kind === "user" ? "this token" : "this key";
  throw new FlotillaError("forbidden", `${what} doesn't allow \`${verb}\``, { details: { verb } });
}

/** Whether a task or run is of a tenant that the caller may look at: an administrator sees all of them. */
export function canSee(caller: Caller, { tenant }: { readonly tenant: string }): boolean {
  return may(caller, "admin") || caller.tenant === tenant;
}

/** Who speaks on a server without credentials, where a program doesn't say so. */
export const localUser = "local";

/** Whose inbox or read mark is meant. */
export function userOf(caller: Caller): string {
  if (caller.user !== undefined) return caller.user;
  if (caller.kind === "local") return localUser;
  throw new FlotillaError(
    "invalid_input",
    "say for which user: `Flotilla-User: <id>`, or `?user=<id>` where there is such a parameter",
  );
}

/** The same wherever a session isn't the caller's to see, so that nobody learns which ones there are. */
export function noSession(sessionId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no session ${sessionId.slice(0, 80)}`);
}

const maxNameChars = 500;

/**
 * What a user or a tenant can be called. Databases refuse some text and change other, and neither may make
 * two names of one.
 */
export function isName(value: unknown): value is string {
  const fits = typeof value === "string" && value !== "" && value.length <= maxNameChars;
  return fits && !value.includes("\0") && value.isWellFormed();
}

export const nameRule = `text of 1 to ${maxNameChars} characters`;

/**
 * A name that came in a header. Headers carry little more than ASCII, so whatever is more is
 * percent-encoded, as in an address; bytes as they are could be one text or another.
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
