import type { Clock } from "../base/clock.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import { trimEnd } from "../base/trim-end.ts";
import type { AgentHandler } from "./handler.ts";
import type { Fetch } from "./network.ts";
import { createRefusal, type Refusal, refuse } from "./refusal.ts";
import { resumingFetch } from "./resuming-fetch.ts";
import { bodyOfRequest } from "./verify.ts";

export type AgUiHandlerOptions = {
  /** Where Flotilla's server is, such as `https://flotilla.example`. */
  url: string;
  /** The agent that answers. */
  agent: string;
  /** A key of the server that may act for users. It stays here. */
  apiKey: string;
  /** Who asks, as your app knows them: by a cookie, say. Undefined is refused. */
  user: (request: Request) => AgUiUser | undefined | PromiseLike<AgUiUser | undefined>;
  /** The maximum size of a request. Default 4 MiB, as the server has it. */
  maxBytes?: number;
  /** How long to try to reach the server again, while nothing comes. Default a minute. */
  timeoutMs?: number;
  /** Default: the network's. */
  fetch?: Fetch;
  clock?: Clock;
};

/** A user's id, or with the tenant where the key is of none. */
export type AgUiUser = string | { readonly user: string; readonly tenant: string };

const optionNames = ["url", "agent", "apiKey", "user", "maxBytes", "timeoutMs", "fetch", "clock"];
const bytesByDefault = 4 * 1024 * 1024;

/**
 * Sessions of a Flotilla server as an agent of AG-UI, in your own app: it knows who asks, and the server who
 * is a member. A connection to the server that is cut is gone on with, and so is one to the page, where the
 * page asks with `resumingFetch`.
 */
export function createAgUiHandler(options: AgUiHandlerOptions): AgentHandler {
  checkOptions("createAgUiHandler", options, optionNames);
  const { url, agent, apiKey, user, maxBytes = bytesByDefault, timeoutMs, fetch, clock } = options;
  if (typeof user !== "function") throw invalid("user must be a function");
  for (const [name, value] of Object.entries({ url, agent, apiKey })) {
    // An unset environment variable must not become the word `undefined` in a header.
    if (typeof value !== "string" || value === "") throw invalid(`${name} must be a text`);
  }
  if (!URL.canParse(url) || !/^https?:/.test(url)) throw invalid(`url is no address: ${url}`);
  checkNumber("createAgUiHandler: maxBytes", maxBytes, { min: 1, max: 1024 * 1024 * 1024 });
  const address = `${trimEnd(url, (each) => each === "/")}/v1/agui/${encodeURIComponent(agent)}`;
  const ask = resumingFetch({
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(fetch && { fetch }),
    ...(clock && { clock }),
  });

  return async (request) => {
    const refusal = refusalOf(request);
    if (refusal) return refuse(refusal);
    const who = await user(request);
    const named = typeof who === "string" ? { user: who } : who;
    if (!named?.user) return refuse(createRefusal(401, "unauthorized", "nobody is signed in"));
    const body = await bodyOfRequest(request, maxBytes);
    if (typeof body !== "string") return refuse(body);
    const lastId = request.headers.get("last-event-id");
    const headers = {
      authorization: `Bearer ${apiKey}`,
      "content-type": "application/json",
      accept: "text/event-stream",
      "flotilla-user": encodeURIComponent(named.user),
      ...("tenant" in named && { "flotilla-tenant": encodeURIComponent(named.tenant) }),
      ...(lastId && { "last-event-id": lastId }),
    };
    try {
      const { signal } = request;
      const answer = await ask(address, { method: "POST", headers, body, signal });
      return passedOn(answer);
    } catch (error) {
      console.error("flotilla/agent:", messageOf(error));
      const message = "the server can't be reached";
      return refuse(createRefusal(503, "unavailable", message));
    }
  };
}

function refusalOf(request: Request): Refusal | undefined {
  if (request.method !== "POST") {
    const message = `an agent is called by POST, not ${request.method}`;
    return createRefusal(405, "invalid_input", message);
  }
  // A page of another site can send a form with the user's cookies, but no JSON.
  const type = (request.headers.get("content-type") ?? "").split(";")[0]!.trim().toLowerCase();
  if (type === "application/json") return undefined;
  return createRefusal(400, "invalid_input", "send `Content-Type: application/json`");
}

/** Of the server's headers, those that say how to read the body and when to come again. */
function passedOn({ status, headers, body }: Response): Response {
  const names = ["content-type", "cache-control", "retry-after", "x-accel-buffering"];
  const kept = names.flatMap((name) => {
    const value = headers.get(name);
    return value === null ? [] : [[name, value] as [string, string]];
  });
  return new Response(body, { status, headers: kept });
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", `createAgUiHandler: ${message}`);
}
