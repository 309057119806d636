import type { Context, Hono } from "hono";
import { actAs } from "../../audit/actor.ts";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { addressIn, bodyOf, refusalIn } from "../admission/admission.ts";
import { addressRange } from "../admission/caller-limits.ts";
import { type Authenticator, authRequestIn, callerOf } from "../auth/authenticate.ts";
import type { Caller } from "../auth/caller.ts";
import { cookiesIn, emptyCookies, ownOriginOf, setCookie } from "../auth/cookie.ts";
import { isLoopbackHost } from "../auth/origins.ts";
import { publicErrorOf, retryAfterHeader, statusOf } from "../errors.ts";
import { actorIn, contentTypeOf, readRequestBody } from "../route.ts";
import { type PageView, type ShownRefusal, signInHeaders, signInPage } from "./page.ts";
import { createWrongKeys } from "./wrong-keys.ts";

type SignInParts = {
  flotilla: Pick<Flotilla, "signIns">;
  authenticator: Authenticator;
  isStopping: () => boolean;
  /** Served over HTTPS by this process itself. */
  secure?: boolean | undefined;
  clock: Clock;
  log: Logger;
};

/** What a browser sends in the form. */
type Form = { readonly key: string; readonly next: string };

export const signInPath = "/sign-in";
export const signOutPath = "/sign-out";
// Relative, so that they hold where a proxy takes a prefix off the path.
const links = { signIn: "sign-in", signOut: "sign-out" };

// A key and a path.
const maxFormBytes = 8_192;
const maxNextChars = 2_000;
const home = "/";
const tooManyStatus = 429;
// As long as keys of the store: such a key is let in also where an address, which all browsers behind a proxy
// share, has tried too many, because it can't be found by trying.
const unguessable = 43;

/**
 * The page on which a browser gives a key once and gets a cookie for it. It has no script, so that a plain
 * form is all that is sent, and only by this page: a browser names the origin of every form.
 */
export function mountSignIn(app: Hono, parts: SignInParts): void {
  const { authenticator, flotilla } = parts;
  const wrongKeys = createWrongKeys(parts);

  app.get(signInPath, async (c) => {
    const next = ownPath(c.req.query("next"));
    const view = await viewFor(c, parts, next);
    // A cookie that no longer counts is taken away. One that was never known may be of another server.
    const refusal = refusalIn(c);
    if (refusal && isEnded(refusal))
      for (const each of emptyCookies) c.header("Set-Cookie", each, { append: true });
    return show(c, 200, view);
  });

  app.post(signInPath, (c: Context) =>
    answered(c, "Not signed in", async () => {
      const origin = ownOriginOf(authRequestIn(c));
      if (parts.isStopping()) throw stopping();
      const { key, next } = await formIn(c);
      c.set("next", next);
      if (authenticator.isOpen) return c.redirect(next, 303);
      const range = addressRange(addressIn(c) ?? "");
      const tried = key.length < unguessable ? wrongKeys.begin(range) : undefined;
      const caller = await callerOfKey(c, authenticator, key).catch((error: unknown) => {
        // That a key can't be checked now doesn't make it wrong.
        const isWrong = hasCode(error, "unauthorized");
        if (!isWrong) tried?.takeBack();
        else {
          wrongKeys.note();
          if (!tried) wrongKeys.begin(range);
        }
        throw error;
      });
      tried?.takeBack();
      c.set("caller", caller);
      const before = await authenticator.signIn(authRequestIn(c));
      const bind = authenticator.bindingOf(caller);
      const { credential } = caller;
      const { signIn, text } = await actAs(actorIn(c), () =>
        flotilla.signIns.create({
          keyName: keyNameOf(caller),
          role: caller.role ?? null,
          tenant: caller.keyTenant ?? null,
          verbs: caller.verbs,
          origin,
          address: addressIn(c) ?? null,
          replaces: before?.text,
          ...(credential?.kind === "key" && { keyId: credential.keyId }),
          ...(bind && { bind }),
        }),
      );
      c.header("Set-Cookie", setCookie(origin, text, signIn.expiresAtMs - signIn.createdAtMs));
      return c.redirect(next, 303);
    }),
  );

  app.post(signOutPath, (c: Context) =>
    answered(c, "Not signed out", async () => {
      const origin = ownOriginOf(authRequestIn(c));
      const found = await authenticator.signIn(authRequestIn(c));
      const { signInId } = found ?? {};
      if (signInId !== undefined) await flotilla.signIns.end(signInId, { owner: { signInId } });
      c.header("Set-Cookie", setCookie(origin, "", 0));
      return c.redirect(links.signIn, 303);
    }),
  );
}

/**
 * A path of this server to go on to, in the form that browsers read it; anything else, such as what they
 * would read as another host, is `/`.
 */
export function ownPath(next: string | undefined): string {
  const base = "http://own.invalid";
  if (next === undefined || next.length > maxNextChars || !next.startsWith("/")) return home;
  if (!URL.canParse(next, base)) return home;
  const { origin, pathname, search, hash } = new URL(next, base);
  // A path of dots may become one that begins with two slashes.
  const isOwn = origin === base && !/^\/[/\\]/.test(pathname);
  return isOwn ? pathname + search + hash : home;
}

async function viewFor(
  c: Context,
  { authenticator, secure = false }: SignInParts,
  next: string,
): Promise<PageView> {
  if (authenticator.isOpen) return { type: "open", next };
  const caller: Caller | undefined = callerOf(c);
  if (caller?.kind === "user" && caller.user !== undefined)
    return { type: "by-app", user: caller.user, next };
  const isSignedIn = caller?.credential?.kind === "sign-in";
  const found = isSignedIn ? await authenticator.signIn(authRequestIn(c)) : undefined;
  if (caller && found) {
    const { role, keyTenant: tenant } = caller;
    const { expiresAtMs } = found;
    return { type: "signed-in", key: keyNameOf(caller), role, tenant, expiresAtMs, next };
  }
  if (!secure && isReadable(c)) return { type: "insecure", host: c.req.header("host") ?? "" };
  const refusal = refusalIn(c);
  const isOfCookie = cookiesIn(authRequestIn(c)).length > 0;
  const isShown = refusal && isOfCookie && (refusal.code !== "unauthorized" || isEnded(refusal));
  return { type: "form", next, ...(isShown && { refusal: refusalFor(refusal) }) };
}

/**
 * Whether others on the way could read a key that is typed here. Browsers send `Sec-Fetch-Site` only to
 * addresses that are safe from that, also where a proxy ends HTTPS; older ones don't send it at all, and
 * then the proxy's word is taken: all that it opens is the form, whose sending is checked again.
 */
function isReadable(c: Context): boolean {
  const isSafe =
    isLoopbackHost(c.req.header("host") ?? "") ||
    c.req.header("sec-fetch-site") !== undefined ||
    c.req.header("x-forwarded-proto") === "https";
  return !isSafe;
}

/** The caller that a key stands for. Tokens are for programs, which send them with each request. */
async function callerOfKey(c: Context, authenticator: Authenticator, key: string): Promise<Caller> {
  const caller = await authenticator.caller({ ...authRequestIn(c), bearer: key });
  if (caller.kind === "server") return caller;
  throw new FlotillaError("unauthorized", "a user's token is no key");
}

function keyNameOf({ keyName, keyId }: Caller): string {
  return keyName ?? `#${keyId}`;
}

async function formIn(c: Context): Promise<Form> {
  if (contentTypeOf(c) !== "application/x-www-form-urlencoded")
    throw new FlotillaError("unsupported", "send the page's form; programs send their key instead");
  const bytes = await readRequestBody(c, maxFormBytes);
  const fields = new URLSearchParams(new TextDecoder().decode(bytes));
  return { key: (fields.get("key") ?? "").trim(), next: ownPath(fields.get("next") ?? undefined) };
}

/** Shows what a person can do something about; the rest is answered, and logged, as on every route. */
async function answered(
  c: Context,
  failure: string,
  answer: () => Promise<Response>,
): Promise<Response> {
  try {
    return await answer();
  } catch (error) {
    if (!(error instanceof FlotillaError)) throw error;
    const isLater = hasCode(error, "overloaded", "unavailable", "closed");
    if (statusOf(error.code) >= 500 && !isLater) throw error;
    const status = isTooManyTries(error) ? tooManyStatus : statusOf(error.code);
    if (isLater) c.header("Retry-After", retryAfterHeader(error));
    if (status === 401) c.header("WWW-Authenticate", "Bearer");
    return show(c, status, { type: "form", next: nextIn(c), refusal: refusalFor(error, failure) });
  }
}

/** Where the form said to go on. */
function nextIn(c: Context): string {
  return (c.get("next") as string | undefined) ?? home;
}

function refusalFor(error: FlotillaError, failure = "Not signed in"): ShownRefusal {
  const said = sentence(publicErrorOf(error).message);
  if (isTooManyTries(error)) return { what: "Too many tries", advice: said };
  if (error.code !== "unauthorized") return { what: failure, advice: said };
  if (isEnded(error)) return { what: "Signed out", advice: said };
  return {
    what: "This key isn't accepted",
    advice:
      "It is unknown here, or it was revoked or has expired. Check that you have copied all of it, or ask an administrator for another one.",
  };
}

/** Wrong keys came too often. Only then is it known how long to wait. */
function isTooManyTries({ code, retryAfterMs }: FlotillaError): boolean {
  return code === "overloaded" && retryAfterMs !== undefined;
}

/** Whether a sign-in is refused that there was. */
function isEnded({ details }: FlotillaError): boolean {
  return details?.["signIn"] !== undefined;
}

function sentence(message: string): string {
  return `${message.slice(0, 1).toUpperCase()}${message.slice(1)}.`;
}

function stopping(): FlotillaError {
  return new FlotillaError("closed", "the server is stopping: try again in a moment");
}

async function show(c: Context, status: number, view: PageView): Promise<Response> {
  const page = await signInPage(view, links);
  const bytes = Buffer.from(page);
  return c.body(bodyOf(c, bytes), status as 200, { ...signInHeaders });
}
