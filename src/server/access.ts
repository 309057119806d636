import { createHash, timingSafeEqual } from "node:crypto";
import type { MiddlewareHandler } from "hono";
import { FlotillaError } from "../base/errors.ts";

/**
 * Who may call. With keys: whoever has one. Without: programs on this machine, and only they. A web
 * page that somebody has open is on this machine too, so it must not get in by a foreign name that
 * points here (DNS rebinding) nor by a request across sites.
 */
export function requireAccess(keys: readonly string[]): MiddlewareHandler {
  const hashes = keys.map(hash);
  return async (c, next) => {
    const headers = c.req.raw.headers;
    if (hashes.length > 0) checkKey(headers, hashes);
    else {
      checkHost(headers);
      checkSite(headers);
    }
    await next();
  };
}

/** Refuses to listen where strangers could call without a key. */
export function checkListening(host: string, keys: readonly string[]): void {
  if (keys.length > 0 || isLoopback(host)) return;
  throw new FlotillaError(
    "invalid_option",
    `${host} can be reached from other machines, and no credentials are configured: set server.apiKeys in the config or FLOTILLA_API_KEYS (16 characters or more each, separated by commas), or listen on 127.0.0.1`,
  );
}

export function isLoopback(host: string): boolean {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, "$1");
  return name === "localhost" || name === "::1" || /^127(?:\.\d{1,3}){3}$/.test(name);
}

function checkKey(headers: Headers, hashes: readonly Buffer[]): void {
  const given = /^Bearer +(\S+)$/i.exec(headers.get("authorization") ?? "")?.[1];
  if (given === undefined) {
    throw new FlotillaError(
      "unauthorized",
      "send one of the server's keys: `Authorization: Bearer <key>`",
    );
  }
  const hashed = hash(given);
  // Every key is compared, in full, so that the time taken tells nothing.
  const matches = hashes.filter((each) => timingSafeEqual(each, hashed));
  if (matches.length === 0) throw new FlotillaError("unauthorized", "the key isn't known here");
}

function checkHost(headers: Headers): void {
  const host = headers.get("host") ?? "";
  if (isLoopback(withoutPort(host))) return;
  throw new FlotillaError(
    "forbidden",
    `this server listens on loopback only, and was called as ${JSON.stringify(host.slice(0, 80))}: call it as localhost, or configure server.apiKeys`,
  );
}

function checkSite(headers: Headers): void {
  const site = headers.get("sec-fetch-site");
  const origin = headers.get("origin");
  const sameSite = site === null || site === "same-origin" || site === "none";
  if (sameSite && (origin === null || origin === `http://${headers.get("host")}`)) return;
  throw new FlotillaError(
    "forbidden",
    "requests from other web pages are refused: configure server.apiKeys and send a key",
  );
}

function withoutPort(host: string): string {
  return host.replace(/:\d*$/, "");
}

function hash(key: string): Buffer {
  return createHash("sha256").update(key).digest();
}
