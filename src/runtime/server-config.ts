import { FlotillaError } from "../base/errors.ts";
import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";
import { type Role, roles, type Verb, verbs } from "../protocol/verbs.ts";
import { checkHooks, type Hook } from "./hooks/hook.ts";
import { checkQuotas, type QuotaConfig } from "./quota-config.ts";

export type ServerConfig = {
  /** Default `127.0.0.1`. Any other address needs `apiKeys`, `tokens`, `keys` or `login`. */
  host?: string;
  /** Default 8080; 0 takes a free one. */
  port?: number;
  /** Keys for `Authorization: Bearer <key>`. At least 16 characters each. */
  apiKeys?: readonly ApiKey[];
  /**
   * `"store"`: every caller needs a key, programs on this machine too, and those that `flotilla keys create`
   * has made are enough. Default: needed where there are `apiKeys` or `tokens`; keys of the store are
   * accepted beside them.
   */
  keys?: "store" | undefined;
  /** How tokens of users are verified. Without it tokens are refused. */
  tokens?: TokenConfig;
  /** Serves HTTPS on both ports. Files that change are read again. */
  tls?: TlsConfig;
  /**
   * Who a request without a key or a token comes from, by the app's own sign-in, such as a cookie; null
   * if it doesn't know. It gets the request without its body, and has 5 seconds.
   */
  login?: LoginHook;
  /** Other origins whose pages may call and open sockets, as `https://app.example.com`. Default none. */
  origins?: readonly string[];
  /** Built single-page apps to serve, by path: `{ "/chat": "web/dist" }`. They are public. */
  pages?: Readonly<Record<string, string>>;
  /** `false` shows a plain page at `/` instead of the dashboard. */
  dashboard?: false | undefined;
  /** Serves `/health/…` and `/metrics` too, so that a flood on `port` fails no probe. Default none. */
  adminPort?: number;
  /** Connections at once, including sockets. Default 10,000. */
  maxConnections?: number;
  /** Of these, connections of unauthenticated callers. Default half of them, 128 at least. */
  maxAnonymous?: number;
  /** The same per address. Default a fifth of `maxAnonymous`, 64 at least. */
  maxAnonymousPerAddress?: number;
  /**
   * Requests per second of a user, of a key, and of an address of unauthenticated callers; bursts may be
   * twice that. Default 100, 10,000 and 1,000.
   */
  requestsPerSecond?: PerCaller;
  /** Their concurrent requests. Default 64, 1,024 and 1,024. A user may have as many connections. */
  requestsAtOnce?: PerCaller;
  /**
   * What each tenant may use over all servers and pods: requests, sessions, turns and stored bytes. The
   * config of all pods needs the same. Default: no quotas.
   */
  quotas?: QuotaConfig;
  /** Deliveries of other services that speak in sessions, at `/v1/hooks/<name>`. Default none. */
  hooks?: readonly Hook[];
  /** Unread bytes of all responses, sockets and streams included. Default 256 MiB. */
  unreadBytes?: number;
  /** The same per caller. Default 16 MiB. */
  unreadBytesPerCaller?: number;
  /** How long a response that isn't read is kept, per MiB. Default 30,000. */
  unreadMs?: number;
  /** Unread bytes of one socket, before a slow reader is disconnected. Default 1 MiB. */
  socketBufferBytes?: number;
  /** Frames per second that one socket may send; bursts may be twice that. Default 100. */
  framesPerSecond?: number;
};

/** Limits of callers, by how they authenticate. */
export type PerCaller = { user?: number; key?: number; address?: number };

export type LoginHook = (request: Request) => Login | null | Promise<Login | null>;

/** A person that has signed in to the host app, and what that person may do here. */
export type Login = {
  user: string;
  role: Role;
  /** The only tenant whose tasks, runs and sessions it looks after. Default: all. */
  tenant?: string;
  /** Whether it may see payloads, as with `payloads:read`. Default false; an `admin` may. */
  payloads?: boolean;
};

/** A key in plain text, its hash (`sha256:<hex>`), or either with what it may do. */
export type ApiKey =
  | string
  | {
      /** At least 16 characters. */
      key?: string;
      /** Instead of the key: `sha256:` and the SHA-256 of its text in hexadecimal. */
      hash?: string;
      /** For logs. */
      name?: string;
      /** The only tenant that it may act for. Default: any tenant that a request names. */
      tenant?: string;
      /** What it may do with the fleet, or with a tenant's part of it. `verbs` adds to that. */
      role?: Role;
      /** What it may do. Default: what its role allows; everything; or with a tenant all about sessions. */
      verbs?: readonly Verb[];
      /** Whether it may do everything, for all tenants. Default: with no tenant, role or verbs. */
      admin?: boolean;
    };

/** The paths of PEM files. */
export type TlsConfig = {
  key: string;
  /** The certificate, followed by those between it and the root. */
  cert: string;
};

/** Exactly one of `secret`, `jwks` and `jwksUrl`. */
export type TokenConfig = {
  /** Shared with the issuer of the tokens, for HS256. At least 32 characters. */
  secret?: string;
  /** The issuer's public keys, or their URL. */
  jwks?: { readonly keys: readonly Readonly<Record<string, unknown>>[] };
  jwksUrl?: string;
  issuer?: string;
  audience?: string;
  /** Default HS256 with a secret, otherwise RS256, ES256 and EdDSA. */
  algorithms?: readonly string[];
  /** The names of the claims. */
  claims?: {
    /** Default `tenant`; a token without it is for the tenant `default`. */
    tenant?: string;
    /** Default `sub`. */
    user?: string;
    /** Default `verbs`, a list, or else `scope`, a string. */
    verbs?: string;
    /** Default `sessions`: the only sessions that the token is valid for. */
    sessions?: string;
    /** Such as `role`. Without it tokens have no roles, because other services have their own there. */
    role?: string;
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

/** Refuses invalid options of the server. */
export function checkServer(server: ServerConfig | undefined): void {
  if (!server) return;
  checkOptions("config.server", server, [
    "host",
    "apiKeys",
    "keys",
    "tokens",
    "tls",
    "login",
    "origins",
    "pages",
    "dashboard",
    "quotas",
    "hooks",
    ...Object.keys(numbers),
    ...perCaller,
  ]);
  for (const [name, range] of Object.entries(numbers)) {
    const value = server[name as keyof typeof numbers];
    if (value !== undefined) checkNumber(`server.${name}`, value, range);
  }
  for (const name of perCaller) checkPerCaller(`server.${name}`, server[name]);
  if (server.quotas !== undefined) checkQuotas(server.quotas);
  if (server.keys !== undefined) checkChoice("server.keys", server.keys, ["store"]);
  if (server.hooks !== undefined) checkHooks(server.hooks);
  for (const key of server.apiKeys ?? []) checkKey(key);
  if (server.dashboard !== undefined && server.dashboard !== false)
    throw invalid("server.dashboard can only be false: without it the dashboard is served at /");
  if (server.tokens) checkTokens(server.tokens);
  if (server.tls) checkTls(server.tls);
  if (server.login !== undefined && typeof server.login !== "function")
    throw invalid("server.login must be a function of a request that gives { user, role } or null");
  for (const origin of server.origins ?? []) checkOrigin(origin);
  for (const [prefix, folder] of Object.entries(server.pages ?? {})) checkPage(prefix, folder);
}

function checkPerCaller(what: string, limits: PerCaller = {}): void {
  checkOptions(what, limits, ["user", "key", "address"]);
  for (const [name, value] of Object.entries(limits)) {
    if (value !== undefined) checkNumber(`${what}.${name}`, value, countRange);
  }
}

function checkKey(entry: ApiKey): void {
  if (typeof entry === "string") return checkKeyText(entry);
  const known = ["key", "hash", "name", "tenant", "role", "verbs", "admin"];
  checkOptions("server.apiKeys", entry, known);
  const { key, hash, name, tenant, role } = entry;
  if ((key === undefined) === (hash === undefined))
    throw invalid("server.apiKeys: an entry needs a `key` or its `hash`, and not both");
  if (hash !== undefined && !hashed.test(hash))
    throw invalid("server.apiKeys: a hash is `sha256:` and 64 hexadecimal digits");
  if (key !== undefined) checkKeyText(key);
  if (name !== undefined && (typeof name !== "string" || name === ""))
    throw invalid("server.apiKeys: a name must be a non-empty string");
  if (tenant !== undefined && (typeof tenant !== "string" || tenant === ""))
    throw invalid("server.apiKeys: a tenant must be a non-empty string");
  for (const verb of entry.verbs ?? []) checkChoice("server.apiKeys: a verb", verb, verbs);
  if (role !== undefined) checkChoice("server.apiKeys: a role", role, roles);
  if (role !== undefined && role !== "admin" && (entry.admin || entry.verbs?.includes("admin")))
    throw invalid(`server.apiKeys: a key is ${role} or an administrator, and not both`);
  const isAdmin = entry.admin === true || role === "admin" || entry.verbs?.includes("admin");
  if (tenant !== undefined && isAdmin)
    throw invalid(
      "server.apiKeys: an administrator acts for all tenants: leave out `tenant`, or name another `role`, or `verbs`",
    );
}

function checkKeyText(key: unknown): void {
  if (typeof key !== "string" || key.length < keyChars)
    throw invalid(`server.apiKeys: a key must have at least ${keyChars} characters`);
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
    "role",
  ]);
  const { secret, jwks, jwksUrl, algorithms } = tokens;
  if ([secret, jwks, jwksUrl].filter((each) => each !== undefined).length !== 1)
    throw invalid("server.tokens needs one of `secret`, `jwks` and `jwksUrl`");
  if (secret !== undefined && (typeof secret !== "string" || secret.length < secretChars))
    throw invalid(`server.tokens.secret must have at least ${secretChars} characters`);
  if (jwksUrl !== undefined && !isPrivateWay(jwksUrl))
    throw invalid(
      "server.tokens.jwksUrl must begin with https://, or with http:// on this machine: over plain HTTP an attacker could replace the keys",
    );
  // Mixing both kinds would let a public key be used as a shared secret.
  const allowed = secret === undefined ? keyAlgorithms : secretAlgorithms;
  for (const each of algorithms ?? []) checkChoice("server.tokens.algorithms: each", each, allowed);
  if (algorithms?.length === 0) throw invalid("server.tokens.algorithms must name at least one");
}

function checkTls(tls: TlsConfig): void {
  checkOptions("server.tls", tls, ["key", "cert"]);
  for (const name of ["key", "cert"] as const) {
    const path: unknown = tls[name];
    if (typeof path !== "string" || path === "" || path.startsWith("-----BEGIN"))
      throw invalid(`server.tls.${name} must be the path of a PEM file`);
  }
}

/** Whether no machine in between can change the response. */
function isPrivateWay(url: unknown): boolean {
  if (typeof url !== "string" || !URL.canParse(url)) return false;
  const { protocol, hostname } = new URL(url);
  const isHere = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/.test(hostname);
  return protocol === "https:" || (protocol === "http:" && isHere);
}

function checkOrigin(origin: string): void {
  if (/^https?:\/\/[^/?#\s]+$/.test(origin)) return;
  throw invalid(
    `server.origins: ${JSON.stringify(origin)} isn't an origin: use a scheme, a host and perhaps a port, as in https://app.example.com`,
  );
}

function checkPage(prefix: string, folder: unknown): void {
  if (!/^(?:\/[\w-]+)+$/.test(prefix))
    throw invalid(
      `server.pages: ${JSON.stringify(prefix)} isn't a path like /chat, of letters, digits, _ and -`,
    );
  if (/^\/(?:v\d+|metrics|health|sign-in|sign-out)(?:\/|$)/.test(prefix))
    throw invalid(
      `server.pages: ${prefix} is used by the server's own routes: choose another path`,
    );
  if (typeof folder !== "string" || folder === "")
    throw invalid(`server.pages: ${prefix} must be mapped to the path of a folder`);
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}
