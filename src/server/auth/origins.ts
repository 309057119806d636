import type { MiddlewareHandler } from "hono";
import { FlotillaError } from "../../base/errors.ts";
import type { ServerConfig } from "../../runtime/server-config.ts";

type HeaderSource = {
  header(name: string): string | undefined;
  /** In lower case. */
  headerNames(): Iterable<string>;
};

// Headers that proxies add. A forwarded request may come from anywhere.
const forwarding = /^(?:forwarded|via|x-real-ip)$|^x-forwarded/;
// How long a browser caches a preflight.
const preflightMaxAgeSeconds = 600;
const allowedHeaders = [
  "Authorization",
  "Content-Type",
  "If-Match",
  "If-None-Match",
  "Last-Event-ID",
  "Flotilla-Action",
  "Flotilla-Tenant",
  "Flotilla-User",
];
// What pages of other origins may read of an answer, besides its body.
const exposedHeaders = [
  "ETag",
  "Retry-After",
  "Stream-Cursor",
  "Stream-Next-Offset",
  "Stream-Up-To-Date",
];

/**
 * Allows programs on this machine. A web page in a local browser runs on this machine too, so it must
 * not call under a foreign name that resolves here (DNS rebinding), nor across sites.
 */
export function checkLocal(
  { header, headerNames }: HeaderSource,
  origins: readonly string[],
): void {
  checkDirect(headerNames());
  checkHost(header);
  checkSite(header, origins);
}

/** Refuses to listen where other machines could call without credentials. */
export function checkListenHost(
  host: string,
  {
    apiKeys = [],
    tokens,
    login,
    keys,
  }: Pick<ServerConfig, "apiKeys" | "tokens" | "login" | "keys">,
): void {
  if (apiKeys.length > 0 || tokens || login || keys !== undefined || isLoopback(host)) return;
  throw new FlotillaError(
    "invalid_option",
    `${host} can be reached from other machines, and no credentials are configured: set server.apiKeys in the config or FLOTILLA_API_KEYS (16 characters or more each, separated by commas), or server.keys to "store" for keys that \`flotilla keys create\` makes, or listen on 127.0.0.1`,
  );
}

/**
 * Allows pages of the configured origins to call, with their token in a header. No answer allows
 * cookies to be sent along, so no such page reads what a signed-in user may.
 */
export function allowOrigins(origins: readonly string[]): MiddlewareHandler {
  return async (c, next) => {
    const origin = c.req.header("origin");
    if (origin === undefined || !origins.includes(origin)) return next();
    const isPreflight = c.req.method === "OPTIONS" && c.req.header("access-control-request-method");
    if (isPreflight) c.res = new Response(null, { status: 204 });
    else await next();
    c.header("Access-Control-Allow-Origin", origin);
    c.header("Vary", "Origin", { append: true });
    if (!isPreflight) return c.header("Access-Control-Expose-Headers", exposedHeaders.join(", "));
    c.header("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE");
    c.header("Access-Control-Allow-Headers", allowedHeaders.join(", "));
    c.header("Access-Control-Max-Age", String(preflightMaxAgeSeconds));
  };
}

/**
 * Whether a web page may open a socket: one of this server, or of a configured origin. Programs that
 * aren't pages send no origin, and need credentials like every caller.
 */
export function isOriginAllowed(
  origin: string | undefined,
  host: string | undefined,
  origins: readonly string[],
): boolean {
  if (origin === undefined || origins.includes(origin)) return true;
  return origin === `http://${host}` || origin === `https://${host}`;
}

/** Refuses what a page of another site has made a browser send, with the cookies of this one. */
export function checkOwnSite(
  { header }: Pick<HeaderSource, "header">,
  origins: readonly string[],
): void {
  const site = header("sec-fetch-site");
  const origin = header("origin");
  if (origin !== undefined && origins.includes(origin)) return;
  const isOwn = site === undefined || site === "same-origin" || site === "none";
  if (isOwn && isOriginAllowed(origin, header("host"), origins)) return;
  throw new FlotillaError(
    "forbidden",
    "requests from pages of other sites are refused: send a key or a token, or add the site to `origins`",
  );
}

/** Whether a `Host` names this machine to itself. */
export function isLoopbackHost(host: string): boolean {
  return isLoopback(withoutPort(host));
}

/** Whether the other end of a connection is on this machine. */
export function isLoopbackAddress(address: string | undefined): boolean {
  return address !== undefined && isLoopback(address.replace(/^::ffff:/i, ""));
}

function isLoopback(host: string): boolean {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, "$1");
  return name === "localhost" || name === "::1" || /^127(?:\.\d{1,3}){3}$/.test(name);
}

function checkDirect(names: Iterable<string>): void {
  const found = [...names].find((name) => forwarding.test(name));
  if (found === undefined) return;
  throw new FlotillaError(
    "forbidden",
    `this server has no keys and refuses requests that a proxy forwards (\`${found.slice(0, 80)}\`): configure server.apiKeys`,
  );
}

function checkHost(header: HeaderSource["header"]): void {
  const host = header("host") ?? "";
  if (isLoopbackHost(host)) return;
  throw new FlotillaError(
    "forbidden",
    `this server listens on loopback only, and was called as ${JSON.stringify(host.slice(0, 80))}: call it as localhost, or configure server.apiKeys`,
  );
}

function checkSite(header: HeaderSource["header"], origins: readonly string[]): void {
  const site = header("sec-fetch-site");
  const origin = header("origin");
  if (origin !== undefined && origins.includes(origin)) return;
  const sameSite = site === undefined || site === "same-origin" || site === "none";
  if (sameSite && isOriginAllowed(origin, header("host"), [])) return;
  throw new FlotillaError(
    "forbidden",
    "requests from other web pages are refused: configure server.apiKeys and send a key",
  );
}

function withoutPort(host: string): string {
  return host.replace(/:\d*$/, "");
}
