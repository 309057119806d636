import { FlotillaError } from "../base/errors.ts";
import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";
import { type Verb, verbs } from "../protocol/verbs.ts";

export type ServerConfig = {
  /** Default `127.0.0.1`. Any other address needs `apiKeys` or `tokens`. */
  host?: string;
  /** Default 8080; 0 takes a free one. */
  port?: number;
  /** Who may call, by `Authorization: Bearer <key>`. At least 16 characters each. */
  apiKeys?: readonly ApiKey[];
  /** How tokens of users are checked. Without it there are none. */
  tokens?: TokenConfig;
  /** Web pages of other sites that may call and open sockets, as `https://app.example.com`. Default none. */
  origins?: readonly string[];
  /** Built single-page apps to serve, by where: `{ "/chat": "web/dist" }`. Anybody may read them. */
  pages?: Readonly<Record<string, string>>;
  /** Answers `/health/…` and `/metrics` too, so that a flood of the other port doesn't fail a probe. Default none. */
  adminPort?: number;
  /** Connections at once, sockets among them. Default 10,000. */
  maxConnections?: number;
  /** Of these, connections whose callers have not said who they are. Default half of them, 128 at least. */
  maxAnonymous?: number;
  /** The same of one address. Default a fifth of `maxAnonymous`, 64 at least. */
  maxAnonymousPerAddress?: number;
  /**
   * What a user, a key, and an address of callers that have not said who they are may ask for a second,
   * and twice that at once. Default 100, 10,000 and 1,000.
   */
  requestsPerSecond?: PerCaller;
  /** How many of their requests may be under way. Default 64, 1,024 and 1,024. A user has as many connections. */
  requestsAtOnce?: PerCaller;
  /** What may wait to be read of all answers, those on sockets and streams among them. Default 256 MiB. */
  unreadBytes?: number;
  /** The same of the answers to one caller. Default 16 MiB. */
  unreadBytesPerCaller?: number;
  /** How long an answer of which nothing is read is kept, for each MiB that it has. Default 30,000. */
  unreadMs?: number;
  /** What may wait for one connection that reads too slowly, before it is cut off. Default 1 MiB. */
  socketBufferBytes?: number;
  /** What one socket may send a second, and twice that at once. Default 100. */
  framesPerSecond?: number;
};

/** Limits of callers, by how they say who they are. */
export type PerCaller = { user?: number; key?: number; address?: number };

/** A key in plain, its hash (`sha256:<hex>`), or either with what it is for. */
export type ApiKey =
  | string
  | {
      /** At least 16 characters. */
      key?: string;
      /** Instead of the key: `sha256:` and the SHA-256 of its text in hexadecimal. */
      hash?: string;
      /** For people, in logs. */
      name?: string;
      /** The only tenant that it may act for. Default: whichever a request names. */
      tenant?: string;
      /** What it may do. Default: everything, or with a tenant all that concerns sessions. */
      verbs?: readonly Verb[];
      /** Whether it may do everything, for all tenants. Default: if it has neither a tenant nor verbs. */
      admin?: boolean;
    };

/** Exactly one of `secret`, `jwks` and `jwksUrl`. */
export type TokenConfig = {
  /** Shared with whoever makes the tokens, for HS256. At least 32 characters. */
  secret?: string;
  /** The public keys of whoever makes them, or where those are. */
  jwks?: { readonly keys: readonly Readonly<Record<string, unknown>>[] };
  jwksUrl?: string;
  issuer?: string;
  audience?: string;
  /** Default HS256 with a secret, otherwise RS256, ES256 and EdDSA. */
  algorithms?: readonly string[];
  /** Which claims say what. */
  claims?: {
    /** Default `tenant`; a token without it is of the tenant `default`. */
    tenant?: string;
    /** Default `sub`. */
    user?: string;
    /** Default `verbs`, a list, or else `scope`, as text. */
    verbs?: string;
    /** Default `sessions`: the only sessions that the token is good for. */
    sessions?: string;
  };
};

const secretAlgorithms = ["HS256", "HS384", "HS512"];
const keyAlgorithms = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519".split(
  " ",
);
const secretChars = 32;
const keyChars = 16;
const hashed = /^sha256:[0-9a-f]{64}$/i;

const portRange = { min: 0, max: 65_535 };
const countRange = { min: 1, max: 1_000_000 };
const numbers = {
  port: portRange,
  adminPort: portRange,
  maxConnections: countRange,
  maxAnonymous: countRange,
  maxAnonymousPerAddress: countRange,
  unreadBytes: { min: 1024 * 1024, max: 64 * 1024 ** 3 },
  unreadBytesPerCaller: { min: 1024 * 1024, max: 64 * 1024 ** 3 },
  unreadMs: { min: 100, max: 3_600_000 },
  socketBufferBytes: { min: 64 * 1024, max: 1024 ** 3 },
  framesPerSecond: countRange,
};
const perCaller = ["requestsPerSecond", "requestsAtOnce"] as const;

export function checkServer(server: ServerConfig | undefined): void {
  if (!server) return;
  checkOptions("config.server", server, [
    "host",
    "apiKeys",
    "tokens",
    "origins",
    "pages",
    ...Object.keys(numbers),
    ...perCaller,
  ]);
  for (const [name, range] of Object.entries(numbers)) {
    const value = server[name as keyof typeof numbers];
    if (value !== undefined) checkNumber(`server.${name}`, value, range);
  }
  for (const name of perCaller) checkPerCaller(`server.${name}`, server[name]);
  for (const key of server.apiKeys ?? []) checkKey(key);
  if (server.tokens) checkTokens(server.tokens);
  for (const origin of server.origins ?? []) checkOrigin(origin);
  for (const [prefix, folder] of Object.entries(server.pages ?? {})) checkPage(prefix, folder);
}

function checkPerCaller(what: string, given: PerCaller = {}): void {
  checkOptions(what, given, ["user", "key", "address"]);
  for (const [name, value] of Object.entries(given)) {
    if (value !== undefined) checkNumber(`${what}.${name}`, value, countRange);
  }
}

function checkKey(given: ApiKey): void {
  if (typeof given === "string") return checkKeyText(given);
  checkOptions("server.apiKeys", given, ["key", "hash", "name", "tenant", "verbs", "admin"]);
  const { key, hash, name, tenant } = given;
  if ((key === undefined) === (hash === undefined))
    throw invalid("server.apiKeys: an entry has a `key` or its `hash`, and not both");
  if (hash !== undefined && !hashed.test(hash))
    throw invalid("server.apiKeys: a hash is `sha256:` and 64 hexadecimal digits");
  if (key !== undefined) checkKeyText(key);
  if (name !== undefined && (typeof name !== "string" || name === ""))
    throw invalid("server.apiKeys: a name is text");
  if (tenant !== undefined && (typeof tenant !== "string" || tenant === ""))
    throw invalid("server.apiKeys: a tenant is text");
  for (const verb of given.verbs ?? []) checkChoice("server.apiKeys: a verb", verb, verbs);
  if (tenant !== undefined && (given.admin === true || given.verbs?.includes("admin")))
    throw invalid(
      "server.apiKeys: an administrator acts for all tenants: leave out `admin` or `tenant`, or name `verbs`",
    );
}

function checkKeyText(key: unknown): void {
  if (typeof key !== "string" || key.length < keyChars)
    throw invalid(`server.apiKeys: a key has at least ${keyChars} characters`);
  if (key.startsWith("sha256:") && !hashed.test(key))
    throw invalid("server.apiKeys: a hash is `sha256:` and 64 hexadecimal digits");
}

function checkTokens(tokens: TokenConfig): void {
  const known = ["secret", "jwks", "jwksUrl", "issuer", "audience", "algorithms", "claims"];
  checkOptions("server.tokens", tokens, known);
  checkOptions("server.tokens.claims", tokens.claims ?? {}, [
    "tenant",
    "user",
    "verbs",
    "sessions",
  ]);
  const { secret, jwks, jwksUrl, algorithms } = tokens;
  if ([secret, jwks, jwksUrl].filter((each) => each !== undefined).length !== 1)
    throw invalid("server.tokens needs one of `secret`, `jwks` and `jwksUrl`");
  if (secret !== undefined && (typeof secret !== "string" || secret.length < secretChars))
    throw invalid(`server.tokens.secret has at least ${secretChars} characters`);
  if (jwksUrl !== undefined && !isPrivateWay(jwksUrl))
    throw invalid(
      "server.tokens.jwksUrl is a URL that begins with https://, or with http:// on this machine: whoever can change the keys on their way makes tokens",
    );
  // An algorithm of the other kind would take a public key for a shared secret.
  const allowed = secret === undefined ? keyAlgorithms : secretAlgorithms;
  for (const each of algorithms ?? []) checkChoice("server.tokens.algorithms: each", each, allowed);
  if (algorithms?.length === 0) throw invalid("server.tokens.algorithms names at least one");
}

/** Whether no machine in between can change what comes from there. */
function isPrivateWay(url: unknown): boolean {
  if (typeof url !== "string" || !URL.canParse(url)) return false;
  const { protocol, hostname } = new URL(url);
  const isHere = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/.test(hostname);
  return protocol === "https:" || (protocol === "http:" && isHere);
}

function checkOrigin(origin: string): void {
  if (/^https?:\/\/[^/?#\s]+$/.test(origin)) return;
  throw invalid(
    `server.origins: ${JSON.stringify(origin)} isn't an origin, which has a scheme, a host and perhaps a port: https://app.example.com`,
  );
}

function checkPage(prefix: string, folder: unknown): void {
  if (!/^(?:\/[\w-]+)+$/.test(prefix))
    throw invalid(
      `server.pages: ${JSON.stringify(prefix)} isn't a path like /chat, of letters, digits, _ and -`,
    );
  if (/^\/(?:v\d+|metrics|health)(?:\/|$)/.test(prefix))
    throw invalid(`server.pages: ${prefix} is where the server's own routes are`);
  if (typeof folder !== "string" || folder === "")
    throw invalid(`server.pages: ${prefix} needs the folder of a built page, as text`);
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}
