import { AsyncLocalStorage } from "node:async_hooks";
import type { IncomingMessage, ServerResponse } from "node:http";
import process from "node:process";
import { getRequestListener } from "@hono/node-server";
import type { Context, Hono } from "hono";
import { type Clock, systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { checkOptions } from "../../base/options.ts";
import { systemRandom } from "../../base/random.ts";
import { redactingLogger } from "../../redaction/log.ts";
import { createRedactor, type Redact } from "../../redaction/redactor.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { machinesOf } from "../../runtime/flows.ts";
import { handlersByName, type Usable } from "../../runtime/handlers.ts";
import { defaultLogger } from "../../runtime/process.ts";
import { checkServer, type Login } from "../../runtime/server-config.ts";
import { refusalIn } from "../admission/admission.ts";
import { createCallerLimits } from "../admission/caller-limits.ts";
import { createIncomingBodies } from "../admission/incoming-bytes.ts";
import { createApp } from "../app.ts";
import { createAuthenticator } from "../auth/authenticate.ts";
import { checkLocal, isLoopbackAddress } from "../auth/origins.ts";
import { openPeerCheck, type PeerCheck, type PeerCheckOptions } from "../auth/peer-user.ts";
import { createEventStreams, defaultBufferBytes, type EventStreams } from "../event-streams.ts";
import { type Dashboard, openDashboard } from "../home/dashboard.ts";
import { createSerializer } from "../serializer.ts";
import { createWatchHub, type WatchHub } from "../watch/hub.ts";
import { type MountedPath, mountedPathOf } from "./mounted-path.ts";
import { asksForPage, refuseMounted } from "./refusal.ts";

/**
 * Who a request comes from, as the host app knows it: nothing for a caller that it doesn't know, or an
 * answer for browsers that open a page, such as a redirect to the app's own sign-in. It gets the request
 * without its body, and what the host has besides: the `req` of Express, the `env` of Hono.
 */
export type HostLogin<Host> = (request: Request, host: Host) => Known | Promise<Known>;

type Known = Login | Response | null | undefined;

export type DashboardOptions<Host = unknown> = {
  /** Default: none. Then it answers this machine alone, and nothing at all in production. */
  login?: HostLogin<Host> | undefined;
  /** The `use` of the pods' config: payloads are checked, and flows are drawn as they are declared. */
  use?: readonly Usable[] | undefined;
  /** The `redact` of the pods' config. */
  redact?: Redact | undefined;
  /** Other origins whose pages may act, as `https://app.example.com`. Default none. */
  origins?: readonly string[] | undefined;
  /** Where it is mounted, if the host neither takes that off the path nor says so. Default: found out. */
  basePath?: string | undefined;
  /** The largest payload. Default 256 KiB, as of `connect`. */
  maxPayloadBytes?: number | undefined;
  log?: Logger | undefined;
};

/** What a route of Next's app router is called with besides the request. */
export type RouteContext = { readonly params: unknown };

/** With the one by which browsers ask whether a page of another origin may act. */
type NextMethod = "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "OPTIONS";

export type RouteHandler = (request: Request, context: RouteContext) => Promise<Response>;

/** The dashboard as handlers of a host app. Nothing is opened before the first request. */
export type MountedDashboard<Host = unknown> = {
  /** For Hono, and for every server of `Request` and `Response`. */
  readonly fetch: (
    request: Request,
    ...rest: unknown extends Host ? [host?: unknown, ...unknown[]] : [host: Host, ...unknown[]]
  ) => Promise<Response>;
  /** For Express, Connect and `node:http`. */
  readonly node: (request: IncomingMessage & Host, response: ServerResponse) => void;
  /** For a file `route.ts` in a folder `[[...path]]` of Next's app router. */
  readonly next: Readonly<Record<NextMethod, RouteHandler>>;
  /** Ends live pages, so that the host's server can close. */
  readonly close: () => void;
};

/** What is different in tests. */
export type MountParts = {
  /** The folder of the built dashboard. Default: where the package has it. */
  folder?: string | undefined;
  isProduction?: boolean | undefined;
  peers?: PeerCheckOptions | undefined;
  clock?: Clock | undefined;
};

/** What a host tells of a request. */
type Told = {
  readonly host: unknown;
  readonly env: NodeMessages;
  readonly original?: string | undefined;
  readonly segments?: number | undefined;
};

type NodeMessages = {
  incoming?: IncomingMessage;
  outgoing?: ServerResponse;
  /** Set by Next, which drops `Content-Encoding` of what its routes answer, and compresses it itself. */
  isRecoded?: true;
};

/** What the login of a request gets, and what it gave in place of a caller. */
type LoginCall = { readonly host: unknown; readonly url: string; answer?: Response };

type Started = {
  readonly app: Hono;
  readonly streams: EventStreams;
  readonly hub: WatchHub;
  /** Of a mount without a login, on Linux. */
  readonly checkPeer: PeerCheck | undefined;
};

const known = ["login", "use", "redact", "origins", "basePath", "maxPayloadBytes", "log"];
const closedInProduction =
  "the dashboard is closed: in production it needs to know who calls, so give `dashboard(flotilla, { login })` a function that says so";
const localOnly =
  "without a login the dashboard answers browsers and programs of this user on this machine alone: give `dashboard(flotilla, { login })` a function that says who calls";
const notBuilt =
  "the dashboard isn't built here: run `npm run build` in the checkout of flotilla, or install the package";

/**
 * The dashboard in an app of one's own, at any path: `app.use("/ops", dashboard(flotilla, { login }).node)`.
 * It brings the routes that it needs, and takes no port.
 */
export function dashboard<Host = unknown>(
  flotilla: Flotilla,
  options: DashboardOptions<Host> = {},
): MountedDashboard<Host> {
  return mountDashboard(flotilla, options, {});
}

/** The same with parts of a test's own. */
export function mountDashboard<Host = unknown>(
  flotilla: Flotilla,
  options: DashboardOptions<Host>,
  parts: MountParts,
): MountedDashboard<Host> {
  checkOptions("dashboard", options, known);
  const { login, use = [], redact, origins = [], basePath, maxPayloadBytes } = options;
  checkServer({ origins });
  if (login !== undefined && typeof login !== "function")
    throw invalid("login must be a function of a request that gives { user, role } or nothing");
  if (basePath !== undefined && !/^(?:\/[^/?#]+)+$/.test(basePath))
    throw invalid(`basePath must be a path like /ops, not ${JSON.stringify(basePath)}`);
  const { clock = systemClock } = parts;
  const { isProduction = process.env["NODE_ENV"] === "production" } = parts;
  const redactor = createRedactor(redact);
  const contracts = handlersByName(use);
  const machines = machinesOf(use);
  const calls = new AsyncLocalStorage<LoginCall>();
  let starting: Promise<Started> | undefined;
  let isClosed = false;

  const ask = async (request: Request): Promise<Login | null> => {
    const call = calls.getStore()!;
    const found = await login!(new Request(call.url, request), call.host as Host);
    if (!isAnswer(found)) return found ?? null;
    call.answer = found;
    return null;
  };

  const start = async (): Promise<Started> => {
    const log = redactingLogger(options.log ?? defaultLogger("warn"), redactor);
    const authenticator = createAuthenticator(
      { apiKeys: [], origins, ...(login && { login: ask }) },
      { clock, random: systemRandom, log, credentials: flotilla.credentials },
    );
    await authenticator.ready;
    const streams = createEventStreams(clock, defaultBufferBytes, authenticator);
    const serializer = createSerializer({ redactor, contracts, machines });
    const sources = { pages: flotilla.pages, deadLetters: () => flotilla.deadLetters, machines };
    const hub = createWatchHub({ ...sources, serializer, clock, log });
    const app = createApp({
      flotilla,
      apiKeys: [],
      origins,
      dashboard: guarded(openDashboard(parts.folder), () => calls.getStore()?.answer),
      isMounted: true,
      authenticator,
      streams,
      hub,
      limits: createCallerLimits(clock),
      bodies: createIncomingBodies(),
      contracts,
      machines,
      redactor,
      serializer,
      isStopping: () => isClosed,
      ...(maxPayloadBytes !== undefined && { maxPayloadBytes }),
      clock,
      log,
    });
    const checkPeer = login ? undefined : await openPeerCheck(parts.peers);
    return { app, streams, hub, checkPeer };
  };

  /** Why a request is refused before anything looks at it. */
  const refusalOf = async (
    request: Request,
    { incoming }: NodeMessages,
    { checkPeer }: Started,
  ): Promise<FlotillaError | undefined> => {
    if (isClosed) return new FlotillaError("closed", "the server is stopping: call another one");
    if (login) return undefined;
    if (isProduction) return new FlotillaError("forbidden", closedInProduction);
    return (await isOfThisUser(request, incoming, checkPeer, origins))
      ? undefined
      : new FlotillaError("forbidden", localOnly);
  };

  const answer = async (request: Request, told: Told): Promise<Response> => {
    starting ??= start();
    // What failed for now may succeed for the next request.
    starting.catch(() => (starting = undefined));
    const started = await starting;
    const refusal = await refusalOf(request, told.env, started);
    if (refusal) return refuseMounted(request, refusal);
    const url = new URL(request.url);
    const { original = url.pathname, segments } = told;
    const isPage = asksForPage(request);
    const mountedPath = mountedPathOf({ seen: url.pathname, original, segments, basePath, isPage });
    url.pathname = original;
    const env: NodeMessages & { mountedPath: MountedPath } = { ...told.env, mountedPath };
    return calls.run({ host: told.host, url: url.href }, async () =>
      started.app.fetch(request, env),
    );
  };

  const listener = getRequestListener(
    (request, { incoming, outgoing }) => {
      const env = { incoming, outgoing } as NodeMessages;
      return answer(request, { host: incoming, env, original: originalOf(env.incoming) });
    },
    { overrideGlobalObjects: false },
  );
  const route: RouteHandler = async (request, { params }) =>
    answer(request, {
      host: { params },
      env: { isRecoded: true },
      segments: segmentsIn(await params),
    });

  return {
    fetch: (request, ...[host]) => {
      const env = nodeMessagesIn(host);
      return answer(request, { host, env, original: originalOf(env.incoming) });
    },
    node: (request, response) => {
      keepReadBody(request);
      void listener(request, response);
    },
    next: { GET: route, HEAD: route, POST: route, PUT: route, DELETE: route, OPTIONS: route },
    close: () => {
      isClosed = true;
      void starting?.then(({ streams, hub }) => {
        streams.end();
        hub.close();
      });
    },
  };
}

/** Shows the dashboard to callers that are known, and to others why not. */
function guarded(dashboard: Dashboard | undefined, answer: () => Response | undefined): Dashboard {
  return {
    async page(c: Context) {
      const refusal = refusalIn(c);
      if (refusal) return answer() ?? refuseMounted(c.req.raw, refusal);
      return (
        dashboard?.page(c) ?? refuseMounted(c.req.raw, new FlotillaError("unavailable", notBuilt))
      );
    },
    file: async (c) => dashboard?.file(c),
  };
}

/** Whether a request without credentials comes from this machine and its user, and from no other site's page. */
async function isOfThisUser(
  { headers }: Request,
  incoming: IncomingMessage | undefined,
  checkPeer: PeerCheck | undefined,
  origins: readonly string[],
): Promise<boolean> {
  if (!incoming || !isLoopbackAddress(incoming.socket.remoteAddress)) return false;
  try {
    checkLocal(
      { header: (name) => headers.get(name) ?? undefined, headerNames: () => headers.keys() },
      origins,
    );
  } catch {
    return false;
  }
  return checkPeer === undefined || (await checkPeer(incoming.socket)) === "same";
}

/** An answer may be of another realm, or of a server that has a class of its own for them. */
function isAnswer(found: Known): found is Response {
  return typeof found === "object" && found !== null && "status" in found && "headers" in found;
}

/** Hono on Node gives both sides of the connection along. */
function nodeMessagesIn(host: unknown): NodeMessages {
  const { incoming, outgoing } = (host ?? {}) as NodeMessages;
  return incoming?.socket && outgoing ? { incoming, outgoing } : {};
}

/** The path as the host was given it. */
function originalOf(incoming: IncomingMessage | undefined): string | undefined {
  const sent = (incoming as { originalUrl?: string } | undefined)?.originalUrl ?? incoming?.url;
  if (sent === undefined) return undefined;
  const whole = sent.startsWith("/") ? `http://host${sent}` : sent;
  return URL.canParse(whole) ? new URL(whole).pathname : undefined;
}

/** How many folders the catch-all part of a route stands for: it is the one that is a list. */
function segmentsIn(params: unknown): number {
  const lists = Object.values(params ?? {}).filter((each) => Array.isArray(each));
  return (lists[0] as unknown[] | undefined)?.length ?? 0;
}

/** A parser of the host, such as `express.json()`, has read the body before: it is sent on as it was read. */
function keepReadBody(request: IncomingMessage): void {
  const { rawBody, body } = request as { rawBody?: unknown; body?: unknown };
  if (!request.readableDidRead || rawBody instanceof Buffer || body === undefined) return;
  const isText = typeof body === "string" || body instanceof Uint8Array;
  const value = Buffer.from((isText ? body : JSON.stringify(body)) as string);
  Object.defineProperty(request, "rawBody", { value, configurable: true });
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", `dashboard: ${message}`);
}
