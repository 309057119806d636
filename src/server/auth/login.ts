import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { withTimeout } from "../../base/timeout.ts";
import { roles, verbsOfRole } from "../../protocol/verbs.ts";
import type { Login, LoginHook } from "../../runtime/server-config.ts";
import { asLogged } from "../errors.ts";
import { type Caller, isName, nameRule } from "./caller.ts";
import { checkOwnSite } from "./origins.ts";

/** The parts of a request that the hook gets. */
type LoginRequest = {
  header(name: string): string | undefined;
  headerNames(): Iterable<string>;
  method?: string | undefined;
  url?: string | undefined;
};

type LoginParts = { origins: readonly string[]; clock: Clock; log: Logger };

/** Why a hook gave no answer that can be used. */
type Trouble = "threw" | "took too long" | "gave nonsense" | "is under way too often";

const answerMs = 5_000;
// An open socket or stream ends by then, and its client signs in again: the app may have signed it out.
const validMs = 300_000;
// Who calls isn't known before, so no limit of a caller holds back a flood of requests from the app.
const maxAtOnce = 256;
// A flood of requests must not become a flood of log lines.
const logEveryMs = 10_000;
const safeMethods: readonly string[] = ["GET", "HEAD", "OPTIONS"];

/**
 * Asks the host app who calls. Its sign-in is usually a cookie, which browsers send along with whatever a
 * page of any site requests, so what changes something must come from an own page.
 */
export function createLogin(
  hook: LoginHook,
  { origins, clock, log }: LoginParts,
): (request: LoginRequest) => Promise<Caller> {
  let atOnce = 0;
  let refused = 0;
  let loggedMs = -Infinity;

  /** Logs no message of the hook, which may quote the cookie that it was given. */
  const fail = (trouble: Trouble, fields: Readonly<Record<string, string>>): FlotillaError => {
    refused++;
    if (clock.monotonic() - loggedMs >= logEveryMs) {
      log.error({ trouble, refused, ...fields }, "server.login failed");
      refused = 0;
      loggedMs = clock.monotonic();
    }
    const message = "cannot tell right now who calls: try again soon";
    return asLogged(new FlotillaError("unavailable", message));
  };

  return async (request) => {
    if (!safeMethods.includes(request.method ?? "GET")) checkOwnSite(request, origins);
    if (atOnce >= maxAtOnce) throw fail("is under way too often", { atOnce: String(atOnce) });
    const late = new AbortController();
    const given = requestOf(request, late.signal);
    let answer: unknown;
    atOnce++;
    try {
      const answered = Promise.resolve(hook(given));
      answer = await withTimeout(clock, answerMs, answered, () => new LateAnswer());
    } catch (error) {
      late.abort();
      if (error instanceof LateAnswer) throw fail("took too long", {});
      throw fail("threw", { error: error instanceof Error ? error.name : typeof error });
    } finally {
      atOnce--;
    }
    if (answer === null)
      throw new FlotillaError("unauthorized", "sign in first, or send a key or a token");
    const problem = problemOf(answer);
    if (problem !== undefined) throw fail("gave nonsense", { problem });
    return callerOfLogin(answer as Login, clock.now());
  };
}

function callerOfLogin({ user, role, tenant, payloads }: Login, nowMs: number): Caller {
  return {
    kind: "user",
    user,
    role,
    tenant: tenant ?? "default",
    ...(tenant === undefined && { allTenants: true }),
    verbs: new Set([...verbsOfRole[role], ...(payloads ? (["payloads:read"] as const) : [])]),
    expiresAtMs: nowMs + validMs,
  };
}

function problemOf(answer: unknown): string | undefined {
  if (typeof answer !== "object" || answer === null)
    return "it must give `{ user, role }`, or null for a caller that it doesn't know";
  const { user, role, tenant, payloads } = answer as Record<string, unknown>;
  if (!isName(user)) return `its user must be ${nameRule}`;
  if (!roles.some((each) => each === role)) return `its role must be one of ${roles.join(", ")}`;
  if (tenant !== undefined && !isName(tenant)) return `its tenant must be ${nameRule}`;
  if (payloads !== undefined && typeof payloads !== "boolean")
    return "its payloads must be true or false";
  if (role === "admin" && tenant !== undefined)
    return "an administrator acts for all tenants: leave out its tenant";
  return undefined;
}

/** The request as the host app knows it, without its body, which is the server's to read. */
function requestOf({ header, headerNames, method, url = "/" }: LoginRequest, signal: AbortSignal) {
  try {
    const headers = new Headers();
    for (const name of headerNames()) headers.set(name, header(name) ?? "");
    const address = new URL(url, `http://${header("host") ?? "localhost"}`);
    return new Request(address, { method: method ?? "GET", headers, signal });
  } catch (error) {
    throw new FlotillaError("invalid_input", "the request is malformed", { cause: error });
  }
}

class LateAnswer extends Error {}
