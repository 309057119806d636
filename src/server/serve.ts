import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { getRequestListener } from "@hono/node-server";
import type { Hono } from "hono";
import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { uuidv7 } from "../base/ids.ts";
import { silentLogger } from "../base/log.ts";
import { systemRandom } from "../base/random.ts";
import { redactingLogger } from "../redaction/log.ts";
import { shareRedactor } from "../redaction/redactor.ts";
import type { ServerConfig } from "../runtime/server-config.ts";
import {
  type AnonymousConnections,
  createAnonymousConnections,
  defaultAnonymousLimits,
} from "./admission/anonymous-connections.ts";
import { createCallerLimits, defaultAtOnce } from "./admission/caller-limits.ts";
import { createIncomingBodies } from "./admission/incoming-bytes.ts";
import { createTenantQuotas } from "./admission/tenant-quotas.ts";
import { type AppParts, createAdminApp, createApp, maxFrameBytes } from "./app.ts";
import { createAuthenticator, isOpenServer } from "./auth/authenticate.ts";
import { createMembers } from "./auth/members.ts";
import { openPeerCheck, type PeerCheck, type PeerCheckOptions } from "./auth/peer-user.ts";
import { type ErrorBody, isWaitedFor, retryAfterHeader, statusOf } from "./errors.ts";
import { createEventStreams, defaultBufferBytes } from "./event-streams.ts";
import { openDashboard } from "./home/dashboard.ts";
import type { Metrics } from "./metrics/metrics.ts";
import { openPages } from "./pages.ts";
import { createSerializer } from "./serializer.ts";
import { refuseUpgrade } from "./socket/handshake.ts";
import { createSockets, type Sockets } from "./socket/sockets.ts";
import { type Certificate, openCertificate } from "./tls.ts";
import { createWatchHub } from "./watch/hub.ts";

export type ServeParts = Omit<
  AppParts,
  | "authenticator"
  | "members"
  | "streams"
  | "hub"
  | "serializer"
  | "limits"
  | "quotas"
  | "hooks"
  | "bodies"
  | "anonymous"
  | "apiKeys"
  | "origins"
  | "pages"
  | "dashboard"
  | "isMounted"
  | "metrics"
  | "secure"
> & {
  metrics: Metrics;
  /** The server's config, with a host and a port. */
  server: ServerConfig & { host: string; port: number };
  /** How users of this machine are distinguished. Default: by the kernel's tables. */
  peers?: PeerCheckOptions;
  /** The folder of the built dashboard. Default: where the package has it. */
  dashboardFolder?: string | undefined;
  /** The most bytes of bodies that are still arriving. Default 256 MiB. */
  bodyBytes?: number | undefined;
};

export type ListeningServer = {
  readonly url: string;
  readonly port: number;
  /** Serves health and metrics, where they have a port of their own. */
  readonly adminUrl?: string;
  /** Ends sockets and streams, so that their clients reconnect elsewhere; requests are still answered. */
  leave(): Promise<void>;
  /** Takes no new connections, lets requests under way end, then cuts what is left. */
  close(): Promise<void>;
};

export type ListenOptions = {
  host: string;
  /** 0 takes a free one. */
  port: number;
  clock: Clock;
  /** Connections at once, sockets among them. Default 10,000. */
  maxConnections?: number | undefined;
  /** Handles upgrades to WebSocket. Without it they are answered like any request. */
  sockets?: Pick<Sockets, "upgrade" | "close"> | undefined;
  /** Counts connections until their callers are authenticated. Without it they have no limit of their own. */
  anonymous?: Pick<AnonymousConnections, "add" | "identify"> | undefined;
  /** Ends endless answers. */
  endStreams?: (() => void) | undefined;
  /** Serves HTTPS with it. */
  certificate?: Certificate | undefined;
  /** On a server without keys: allows only processes of the same user. */
  checkPeer?: PeerCheck | undefined;
};

// A client that sends its request byte by byte holds a connection no longer than this.
const headersTimeoutMs = 10_000;
const requestTimeoutMs = 30_000;
// Of an upload: as long as storing it may take.
const uploadTimeoutMs = 20 * 60_000;
const handshakeTimeoutMs = 10_000;
// Load balancers keep an idle connection for 60 seconds as a rule, and would send on one that is being closed.
const keepAliveTimeoutMs = 75_000;
export const defaultMaxConnections = 10_000;
const closeTimeoutMs = 5_000;
// Pipelined requests are held in memory, even before their callers are authenticated.
const maxPipelined = 256;

/** The whole server: routes and sockets on one port, health and metrics optionally on another as well. */
export async function serve(given: ServeParts): Promise<ListeningServer> {
  const log = redactingLogger(given.log, given.redactor);
  const parts = { ...given, log };
  const { flotilla, sessions = flotilla.sessionService, clock } = parts;
  const {
    host,
    port,
    adminPort,
    maxConnections,
    apiKeys = [],
    keys,
    tokens,
    tls,
    login,
    origins = [],
  } = parts.server;
  const { socketBufferBytes: bufferBytes = defaultBufferBytes, framesPerSecond } = parts.server;
  const authenticator = createAuthenticator(
    { apiKeys, keys, tokens, login, origins },
    { clock, random: systemRandom, log, credentials: flotilla.credentials },
  );
  const pages = await openPages(parts.server.pages);
  const dashboard =
    parts.server.dashboard === false ? undefined : openDashboard(parts.dashboardFolder);
  await authenticator.ready;
  const members = createMembers(sessions, clock);
  const streams = createEventStreams(clock, bufferBytes, authenticator);
  const limits = createCallerLimits(clock, parts.server);
  const maxTotal = maxConnections ?? defaultMaxConnections;
  const defaults = defaultAnonymousLimits(maxTotal, parts.server.maxAnonymous);
  const { maxAnonymousPerAddress: maxPerAddress = defaults.maxPerAddress } = parts.server;
  // A user has no use for more connections than requests at once.
  const maxPerUser = parts.server.requestsAtOnce?.user ?? defaultAtOnce.user;
  const anonymous = createAnonymousConnections({ max: defaults.max, maxPerAddress, maxPerUser });
  const bodies = createIncomingBodies(parts.bodyBytes);
  const serializer = createSerializer(parts);
  const { deadLetters = () => flotilla.deadLetters } = parts;
  const sources = { pages: flotilla.pages, deadLetters, machines: parts.machines };
  const hub = createWatchHub({ ...sources, serializer, clock, log });
  const onEvent = parts.metrics.observe;
  const quotas =
    parts.server.quotas &&
    createTenantQuotas({
      config: parts.server.quotas,
      counter: flotilla.quotas,
      sessions,
      serverId: uuidv7(clock, systemRandom).next(),
      clock,
      log,
      onRefused: onEvent,
    });
  const shown = { streams, serializer, hub };
  const used = { authenticator, members, ...shown, limits, quotas, bodies, anonymous };
  const certificate = tls && (await openCertificate(tls, { clock, log }));
  const secure = tls !== undefined;
  const { hooks } = parts.server;
  const app = createApp({ ...parts, ...used, apiKeys, origins, hooks, pages, dashboard, secure });
  const sockets = createSockets({
    sessions,
    members,
    serializer,
    authenticator,
    hub,
    origins,
    limits,
    quotas,
    bodies,
    anonymous,
    maxFrameBytes: maxFrameBytes(parts.maxPayloadBytes),
    bufferBytes,
    framesPerSecond,
    clock,
    log,
    onEvent,
  });
  const endStreams = () => streams.end();
  const isOpen = isOpenServer({ apiKeys, tokens, login, keys });
  const needsStored = !isOpen && isOpenServer({ apiKeys, tokens, login });
  if (needsStored && (await flotilla.credentials.ready()) === 0) {
    const advice = "make one with `flotilla keys create <name> --role admin`";
    log.warn({ advice }, "the store has no keys yet, so that every request is refused");
  }
  const checkPeer = isOpen ? await openPeerCheck(parts.peers) : undefined;
  if (isOpen && !checkPeer) {
    const advice = "every user of this machine may call: configure server.apiKeys to prevent it";
    log.warn({ advice }, "cannot check which user calls a server without keys");
  }
  const common = { host, clock, checkPeer, certificate };
  const listening: ListeningServer[] = [];
  const unshare = parts.redactor ? shareRedactor(parts.redactor) : () => {};
  const close = async () => {
    certificate?.close();
    hub.close();
    await Promise.all(listening.map((each) => each.close()));
    unshare();
    await quotas?.close();
  };
  try {
    await quotas?.start();
    const main = await listen(app, {
      ...common,
      port,
      maxConnections,
      sockets,
      anonymous,
      endStreams,
    });
    listening.push(main);
    if (adminPort === undefined) return { ...main, close };
    const admin = createAdminApp({ ...parts, authenticator });
    const adminServer = await listen(admin, { ...common, port: adminPort });
    listening.push(adminServer);
    return { ...main, adminUrl: adminServer.url, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Serves the app over HTTP, or over HTTPS with a certificate. */
export async function listen(app: Hono, options: ListenOptions): Promise<ListeningServer> {
  const { host, port, clock, sockets, anonymous, endStreams, checkPeer, certificate } = options;
  const handle = getRequestListener(app.fetch, { overrideGlobalObjects: false });
  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    const { socket } = request;
    const before = unanswered.get(socket) ?? 0;
    if (before >= maxPipelined) return void socket.destroy();
    unanswered.set(socket, before + 1);
    response.once("close", () => {
      unanswered.set(socket, unanswered.get(socket)! - 1);
      // Once the last answer is sent, a closing server needn't wait for this connection.
      if (closing) server.closeIdleConnections();
    });
    boundBody(request, clock);
    if (!checkPeer) return void handle(request, response);
    void refusalOf(request.socket).then((error) =>
      error ? refuseRequest(response, error) : handle(request, response),
    );
  };
  const server = openServer(certificate, answer);
  const unanswered = new WeakMap<Socket, number>();
  // A connection stays with its process, so one check is enough for all of its requests.
  const refusals = new WeakMap<Socket, Promise<FlotillaError | undefined>>();
  const refusalOf = (socket: Socket): Promise<FlotillaError | undefined> => {
    const known = refusals.get(socket);
    if (known || !checkPeer) return known ?? Promise.resolve(undefined);
    const checking = checkPeer(socket).then((peer) =>
      peer === "same" ? undefined : peerRefusal(peer),
    );
    refusals.set(socket, checking);
    return checking;
  };
  server.on("checkContinue", (request: IncomingMessage, response: ServerResponse) => {
    // Behind answers that are still to be sent, Node puts it into the middle of the one that it is for.
    if ((unanswered.get(request.socket) ?? 0) === 0) response.writeContinue();
    answer(request, response);
  });
  let closing = false;
  server.maxConnections = options.maxConnections ?? defaultMaxConnections;
  if (sockets && !checkPeer) server.on("upgrade", sockets.upgrade);
  else if (sockets) {
    server.on("upgrade", (request, socket: Socket, head) => {
      // No other listener is attached yet, and an error without a listener ends the process.
      socket.on("error", () => {});
      void refusalOf(socket).then((error) =>
        error ? refuseUpgrade(socket, error, silentLogger) : sockets.upgrade(request, socket, head),
      );
    });
  }
  if (anonymous) countAnonymous(server, anonymous, certificate !== undefined);

  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(listenError(error, options)));
    server.listen({ host, port }, resolve);
  });
  // A connection that can't be accepted, for lack of file descriptors, is lost; the others stay.
  server.on("error", () => {});
  const { address, family, port: boundPort } = server.address() as AddressInfo;
  const urlHost = family === "IPv6" ? `[${address}]` : address;
  const leave = async () => {
    endStreams?.();
    await sockets?.close();
  };
  return {
    url: `${certificate ? "https" : "http"}://${urlHost}:${boundPort}`,
    port: boundPort,
    leave,
    close: async () => {
      closing = true;
      const cancel = clock.after(closeTimeoutMs, () => server.closeAllConnections());
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeIdleConnections();
      await leave();
      await closed;
      cancel();
    },
  };
}

const uploadPath = /\/v1\/(?:sessions\/[^/]+\/)?files$/;

/** Ends a connection whose request takes too long to arrive. Node bounds only the longest of them. */
function boundBody(request: IncomingMessage, clock: Clock): void {
  const { headers, method, url = "", socket } = request;
  const hasBody = headers["content-length"] !== undefined || "transfer-encoding" in headers;
  const isUpload = method === "POST" && uploadPath.test(url.split("?", 1)[0]!);
  if (!hasBody || isUpload) return;
  const cancel = clock.after(requestTimeoutMs, () => {
    if (!request.complete) socket.destroy();
  });
  request.once("close", cancel);
}

function openServer(
  certificate: Certificate | undefined,
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Server {
  const limits = {
    headersTimeout: headersTimeoutMs,
    // Of uploads; `boundBody` ends all others sooner.
    requestTimeout: uploadTimeoutMs,
    keepAliveTimeout: keepAliveTimeoutMs,
    connectionsCheckingInterval: 1_000,
  };
  if (!certificate) return createServer(limits, answer);
  const handshake = { handshakeTimeout: handshakeTimeoutMs, ...certificate.current };
  const server = createSecureServer({ ...limits, ...handshake }, answer);
  certificate.onChange((pair) => server.setSecureContext(pair));
  return server;
}

/**
 * With TLS a connection has two sockets: the first is there at once, and requests come on the second, after
 * the handshake.
 */
function countAnonymous(
  server: Server,
  anonymous: Pick<AnonymousConnections, "add" | "identify">,
  secure: boolean,
): void {
  if (!secure) return void server.on("connection", anonymous.add);
  const endsOf = ({ remoteAddress, remotePort }: Socket) => `${remoteAddress} ${remotePort}`;
  const shaking = new Map<string, Socket>();
  server.on("connection", (socket: Socket) => {
    anonymous.add(socket);
    const ends = endsOf(socket);
    shaking.set(ends, socket);
    socket.once("close", () => {
      if (shaking.get(ends) === socket) shaking.delete(ends);
    });
  });
  server.on("secureConnection", (socket: TLSSocket) => {
    const first = shaking.get(endsOf(socket));
    if (first) anonymous.identify(first);
    shaking.delete(endsOf(socket));
    anonymous.add(socket);
  });
}

function peerRefusal(peer: "other" | "unknown"): FlotillaError {
  if (peer === "unknown") {
    const message =
      "this server has no keys and can't check right now which user calls: try again soon";
    return new FlotillaError("unavailable", message);
  }
  return new FlotillaError(
    "forbidden",
    "this server has no keys and only answers programs of the user that started it: configure server.apiKeys",
  );
}

function refuseRequest(response: ServerResponse, error: FlotillaError): void {
  const { code, message } = error;
  const status = statusOf(code);
  const headers = {
    "Content-Type": "application/json",
    "Cache-Control": "no-store",
    Connection: "close",
    ...(isWaitedFor(status) && { "Retry-After": retryAfterHeader(error) }),
  };
  const body: ErrorBody = { error: { code, message, details: {} } };
  response.writeHead(status, headers).end(JSON.stringify(body));
}

function listenError(error: NodeJS.ErrnoException, { host, port }: ListenOptions): FlotillaError {
  const advice: Record<string, string> = {
    EADDRINUSE: "something listens there already: choose another with --port, or 0 for a free one",
    EACCES: "this user may not use that port: choose one above 1023 with --port",
    EADDRNOTAVAIL: "this machine has no such address: check --host",
    ENOTFOUND: "there is no such host: check --host",
  };
  const code = error.code ?? "";
  return new FlotillaError(
    code === "EADDRINUSE" ? "conflict" : "invalid_option",
    `can't listen on ${host}:${port}: ${advice[code] ?? error.message}`,
    { cause: error },
  );
}
