import { FlotillaError } from "../../base/errors.ts";
import { isLoopbackHost } from "./origins.ts";

/** The parts of a request that tell which page has sent it. */
export type CookieRequest = {
  header(name: string): string | undefined;
  /** Default `GET`. */
  method?: string | undefined;
  /** It asks for a socket. */
  isSocket?: boolean | undefined;
};

export type CookieText = { readonly text: string; readonly isSecure: boolean };

// With this prefix browsers take it only over HTTPS and from this host itself, for all of its paths.
const secureName = "__Host-flotilla";
// On loopback there is only plain HTTP, over which browsers take no `Secure` cookie.
const plainName = "flotilla";
const form = /^[\w-]{43}$/;
const safeMethods: readonly string[] = ["GET", "HEAD", "OPTIONS"];
// A name in the DNS has 253 characters at most.
const maxOriginChars = 300;

/** The cookies of sign-ins in a request. What is malformed, or there twice, is none. */
export function cookiesIn({ header }: Pick<CookieRequest, "header">): CookieText[] {
  const given = new Map<string, string[]>();
  for (const each of (header("cookie") ?? "").split(";")) {
    const at = each.indexOf("=");
    const name = each.slice(0, Math.max(0, at)).trim();
    if (name !== secureName && name !== plainName) continue;
    given.set(name, [...(given.get(name) ?? []), each.slice(at + 1).trim()]);
  }
  return [secureName, plainName].flatMap((name) => {
    const [text = "", ...others] = given.get(name) ?? [];
    return others.length === 0 && form.test(text) ? [{ text, isSecure: name === secureName }] : [];
  });
}

/** Whether a sign-in at this origin has its cookie under the name that only HTTPS can set. */
export function isSecureOrigin(origin: string): boolean {
  return origin.startsWith("https://");
}

/** The header that gives a browser its cookie, or takes it away. */
export function setCookie(origin: string, text: string, maxAgeMs: number): string {
  const [name, secure] = isSecureOrigin(origin) ? [secureName, "; Secure"] : [plainName, ""];
  const maxAge = Math.max(0, Math.floor(maxAgeMs / 1_000));
  return `${name}=${text}; Path=/; Max-Age=${maxAge}; HttpOnly${secure}; SameSite=Strict`;
}

/** The headers that take both away. */
export const emptyCookies = [setCookie("https://", "", 0), setCookie("http://", "", 0)];

/**
 * The origin of the server's own page that has sent a form. Browsers name it with every form, and no page
 * can name another. A sign-in at it is safe from being read on the way.
 */
export function ownOriginOf({ header }: Pick<CookieRequest, "header">): string {
  const origin = header("origin") ?? "";
  const host = header("host") ?? "";
  checkOwnOrigin({ header }, [`https://${host}`, `http://${host}`]);
  if (origin.length > maxOriginChars)
    throw new FlotillaError("invalid_input", "the name of this server is too long for a sign-in");
  if (isSecureOrigin(origin) || isLoopbackHost(host)) return origin;
  throw new FlotillaError(
    "forbidden",
    `over plain HTTP others on the way can read the key: sign in at https://${host}, or on the machine of the server`,
  );
}

/** Why a sign-in doesn't count here: a request under another name of the server may be led here by others. */
export function hostRefusal(
  { header }: Pick<CookieRequest, "header">,
  origin: string,
): FlotillaError | undefined {
  const host = header("host") ?? "";
  if (origin === `https://${host}` || origin === `http://${host}`) return undefined;
  return new FlotillaError(
    "forbidden",
    `the sign-in was made at ${origin}, and this is ${JSON.stringify(host.slice(0, 80))}: sign in here`,
  );
}

/**
 * Refuses what another site may have made a browser send with its cookie: what changes something or opens
 * a socket names the own origin. A change also names its act, in a header that no form can send.
 */
export function checkCookieRequest(request: CookieRequest, origin: string): void {
  const { header, method = "GET", isSocket = false } = request;
  const changes = !safeMethods.includes(method);
  if (changes || isSocket) checkOwnOrigin(request, [origin]);
  if (changes && header("flotilla-action") === undefined) {
    throw new FlotillaError(
      "forbidden",
      "what changes something by a sign-in needs `Flotilla-Action: <id>`, with an id of its own for each act, such as a UUID",
    );
  }
}

function checkOwnOrigin({ header }: Pick<CookieRequest, "header">, own: readonly string[]): void {
  const origin = header("origin");
  const site = header("sec-fetch-site");
  const isOwnSite = site === undefined || site === "same-origin" || site === "none";
  if (isOwnSite && origin !== undefined && own.includes(origin)) return;
  const from =
    origin === undefined ? "a request without `Origin`" : JSON.stringify(origin.slice(0, 80));
  throw new FlotillaError(
    "forbidden",
    `by a sign-in only pages of this server itself change something, not ${from}: send a key, and let a proxy pass on \`Host\` and \`Origin\``,
  );
}
