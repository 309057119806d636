import { Hono } from "hono";
import { getPath } from "hono/utils/url";
import type { Clock } from "../base/clock.ts";
import { FlotillaError, tooManyReads } from "../base/errors.ts";
import { createSemaphore } from "../base/semaphore.ts";
import { defaultMaxBytes } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import type { DeadLetters } from "../dead-letters/dead-letters.ts";
import type { Machine } from "../flows/machine.ts";
import type { Redactor } from "../redaction/redactor.ts";
import type { Flotilla } from "../runtime/connect.ts";
import type { Hook } from "../runtime/hooks/hook.ts";
import type { ApiKey } from "../runtime/server-config.ts";
import type { SessionService } from "../sessions/service.ts";
import type { AnonymousConnections } from "./admission/anonymous-connections.ts";
import type { IncomingBodies } from "./admission/incoming-bytes.ts";
import { type Authenticator, createAuthenticator } from "./auth/authenticate.ts";
import { createMembers, type Members } from "./auth/members.ts";
import { allowOrigins } from "./auth/origins.ts";
import { createErrorResponder } from "./errors.ts";
import { createCallerLimits, type CallerLimits } from "./admission/caller-limits.ts";
import type { TenantQuotas } from "./admission/tenant-quotas.ts";
import type { Metrics } from "./metrics/metrics.ts";
import { mountPages, type StaticPage } from "./pages.ts";
import { createReadiness } from "./readiness.ts";
import { mount, type Route } from "./route.ts";
import { createSerializer, type Serializer } from "./serializer.ts";
import { mountSignIn, signInPath, signOutPath } from "./sign-in/sign-in.ts";
import { agentRoutes } from "./api/agents.ts";
import { bulkRoutes } from "./api/acts/bulk.ts";
import { enqueueRowsRoutes, taskRoutes } from "./api/tasks.ts";
import { deadLetterRoutes } from "./api/dead-letters.ts";
import { fleetRoutes } from "./api/fleet.ts";
import { keyRoutes } from "./api/access/keys.ts";
import { quotaRoutes } from "./api/access/quotas.ts";
import { limitRoutes } from "./api/limits.ts";
import {
  type Dashboard,
  mountDashboardFiles,
  mountDashboardPages,
  mountedPathIn,
} from "./home/dashboard.ts";
import { fileAdmission, fileRoutes, openFilesPath } from "./files/files.ts";
import { homeRoutes } from "./home/home.ts";
import { hookAdmission, hookRoutes, hooksPath } from "./hooks/hooks.ts";
import { runRoutes } from "./api/runs.ts";
import { scheduleRoutes } from "./api/schedules.ts";
import { signInRoutes } from "./api/access/sign-ins.ts";
import { sessionStreamRoutes } from "./api/session-streams.ts";
import { sessionRoutes } from "./api/sessions.ts";
import { agUiRoutes } from "./protocols/ag-ui.ts";
import { durableStreamRoutes, refuseStreamWrites } from "./protocols/durable-streams.ts";
import { throttleRoutes } from "./api/throttles.ts";
import { createEventStreams, type EventStreams, defaultBufferBytes } from "./event-streams.ts";
import { createRequestAdmission } from "./admission/admission.ts";
import { createUploads } from "./admission/uploads.ts";
import type { TaskContract } from "../tasks/model.ts";
import { createWatchHub, type WatchHub } from "./watch/hub.ts";
import { changeRoutes } from "./watch/changes.ts";
import { watchRoutes } from "./watch/watch.ts";

export type AppParts = {
  flotilla: Flotilla;
  /** Keys of callers. Empty: only programs on this machine may call. */
  apiKeys: readonly ApiKey[];
  /** Origins of web pages that may call. */
  origins?: readonly string[];
  /** Static pages that are served in addition to the routes. */
  pages?: readonly StaticPage[];
  /** What browsers get at `/` and at paths that nothing else answers. Without it, a plain page at `/`. */
  dashboard?: Dashboard | undefined;
  /**
   * It is mounted in a host app, which signs callers in: without a sign-in, metrics and probes of its own,
   * and its pages tell why a caller is refused.
   */
  isMounted?: boolean;
  /** Default: one that checks `apiKeys`. */
  authenticator?: Authenticator;
  /** Default: that of `flotilla`. */
  sessions?: SessionService;
  members?: Members;
  /** Keeps endless answers. */
  streams?: EventStreams;
  /** Reads what pages watch. */
  hub?: WatchHub;
  /** Limits per caller. */
  limits?: CallerLimits;
  /** Quotas of tenants. Default: none. */
  quotas?: TenantQuotas | undefined;
  /** Counts bodies that are still arriving. */
  bodies?: IncomingBodies;
  /** Called when the caller of a connection is authenticated. */
  anonymous?: Pick<AnonymousConnections, "identify">;
  /** Tasks whose input is checked before it is stored. */
  contracts?: ReadonlyMap<string, TaskContract>;
  /** Deliveries of other services that speak in sessions. */
  hooks?: readonly Hook[] | undefined;
  /** Flows whose parts are shown. */
  machines?: readonly Machine[];
  /** Takes secrets out of answers. Default: one without rules of a config. */
  redactor?: Redactor;
  /** What all answers pass. Default: one with `redactor`, `contracts` and `machines`. */
  serializer?: Serializer;
  /** Default: that of `flotilla`. */
  deadLetters?: () => DeadLetters;
  /** Whether sessions go on without the store. Default: as `flotilla` knows it. */
  hasStreamLogs?: (() => boolean) | undefined;
  /** What `/metrics` shows. Without it there is no such route. */
  metrics?: Metrics;
  /** It is served over HTTPS: browsers are told not to try HTTP. */
  secure?: boolean;
  isStopping: () => boolean;
  maxPayloadBytes?: number;
  clock: Clock;
  log: Logger;
};

export type AdminParts = Pick<AppParts, "flotilla" | "metrics" | "isStopping" | "clock" | "log"> & {
  authenticator: Authenticator;
};

// JSON may escape text (`\u00e9`) to twice its size, and the options take some bytes too.
const bodyFactor = 2;
const overheadBytes = 16 * 1024;
// Concurrent reads of lists in one process, shared fairly among callers.
const maxConcurrentPages = 8;
const pageWaitMs = 30_000;
const strictTransport = `max-age=${365 * 24 * 3600}`;

/** The app with every route; `listen` serves it. */
export function createApp(parts: AppParts): Hono {
  const { flotilla, apiKeys, contracts, clock, log } = parts;
  const { sessions = flotilla.sessionService } = parts;
  const { members = createMembers(sessions, clock) } = parts;
  const { authenticator = createAuthenticator({ apiKeys }, { clock }) } = parts;
  const { streams = createEventStreams(clock, defaultBufferBytes, authenticator) } = parts;
  const { serializer = createSerializer(parts) } = parts;
  const { deadLetters = () => flotilla.deadLetters } = parts;
  const sources = { pages: flotilla.pages, deadLetters };
  const { hub = createWatchHub({ ...sources, serializer, clock, log }) } = parts;
  const readiness = createReadiness({ ...parts, ping: () => flotilla.ping() });
  const { limits = createCallerLimits(clock), quotas } = parts;
  const admission = createRequestAdmission({ ...parts, authenticator, limits });
  const maxBytes = maxFrameBytes(parts.maxPayloadBytes);
  const uploads = createUploads();
  const pageSemaphore = createSemaphore(maxConcurrentPages, {
    clock,
    waitMs: pageWaitMs,
    late: tooManyReads,
  });
  const app = emptyApp(parts);

  if (parts.secure) {
    app.use(async (c, next) => {
      await next();
      c.header("Strict-Transport-Security", strictTransport);
    });
  }
  for (const { prefix } of parts.pages ?? []) app.use(`${prefix}/*`, admission.unknown);
  mountPages(app, parts.pages ?? []);
  const { dashboard, isMounted = false } = parts;
  if (dashboard) mountDashboardFiles(app, dashboard, admission.unknown);
  app.use(async (c, next) => {
    await next();
    // A host that compresses answers would hold back the events of an endless one.
    const isEndless = c.res.headers.get("content-type")?.startsWith("text/event-stream");
    // What a route answers with a hash as its name never changes, and it says itself who may keep it.
    if (!/immutable$|^private, no-cache$/.test(c.res.headers.get("cache-control") ?? ""))
      c.header("Cache-Control", isEndless ? "no-store, no-transform" : "no-store");
    c.header("X-Content-Type-Options", "nosniff");
    // The next request of a stopping server's client is better sent to another one.
    if (parts.isStopping()) c.header("Connection", "close");
  });

  app.use("/v1/*", allowOrigins(parts.origins ?? []));
  for (const path of ["/", signInPath, signOutPath]) app.use(path, admission.either);
  app.use("/metrics", admission.known);
  const { hooks = [] } = parts;
  const admitHook = hookAdmission(hooks, admission);
  const admitReader = fileAdmission(flotilla.files, admission);
  app.use("/v1/*", (c, next) => {
    const { path } = c.req;
    if (path.startsWith(hooksPath)) return admitHook(c, next);
    return (path.startsWith(openFilesPath) ? admitReader : admission.known)(c, next);
  });
  const pagePaths = (parts.pages ?? []).map(({ prefix }) => prefix);
  const routes = [
    ...homeRoutes({
      flotilla,
      machines: parts.machines,
      pagePaths,
      dashboard,
      isMounted,
      signInPath: authenticator.isOpen || isMounted ? undefined : signInPath,
      clock,
      log,
    }),
    ...fleetRoutes({ ...parts, readiness }),
    ...taskRoutes({ flotilla, contracts, maxBytes }),
    ...enqueueRowsRoutes({ flotilla, contracts, maxRowBytes: maxBytes }),
    ...bulkRoutes({ flotilla, contracts, maxBytes }),
    ...runRoutes({ flotilla, contracts, machines: parts.machines, maxBytes }),
    ...scheduleRoutes({ flotilla, contracts, maxBytes }),
    ...deadLetterRoutes({ deadLetters, pages: flotilla.pages }),
    ...limitRoutes({ flotilla }),
    ...throttleRoutes({ flotilla }),
    ...agentRoutes({ flotilla }),
    ...keyRoutes({ flotilla }),
    ...signInRoutes({ flotilla }),
    ...quotaRoutes({ flotilla, quotas }),
    ...watchRoutes({ hub, streams }),
    ...changeRoutes({ flotilla, streams, log }),
    ...sessionRoutes({
      sessions,
      pages: flotilla.pages,
      members,
      quotas,
      contracts,
      uploads,
      clock,
      maxBytes,
    }),
    ...fileRoutes({
      files: flotilla.files,
      tasks: flotilla.tasks,
      sessions,
      members,
      uploads,
      clock,
      log,
    }),
    ...hookRoutes({ hooks, sessions, quotas, clock, log }),
    ...agUiRoutes({ sessions, members, quotas, streams, serializer, clock, log }),
    ...durableStreamRoutes({
      sessions,
      members,
      streams,
      serializer,
      pageSemaphore,
      clock,
      log,
    }),
    ...sessionStreamRoutes({
      sessions,
      members,
      streams,
      serializer,
      pageSemaphore,
      authenticator,
      clock,
      log,
    }),
  ];
  const shared = { serializer, pageSemaphore };
  const isServed = ({ spec: { path } }: Route) =>
    !isMounted || path === "/" || path.startsWith("/v1/");
  for (const each of routes.filter(isServed)) mount(app, each, shared);
  refuseStreamWrites(app);
  if (!isMounted) mountSignIn(app, { ...parts, authenticator });
  const admitted = isMounted ? admission.either : admission.unknown;
  if (dashboard) mountDashboardPages(app, dashboard, admitted);
  return app;
}

/** Health and metrics alone, for a port that isn't public. */
export function createAdminApp(parts: AdminParts): Hono {
  const { flotilla, authenticator, clock } = parts;
  const app = emptyApp(parts);
  const readiness = createReadiness({ ...parts, ping: () => flotilla.ping() });
  const limits = createCallerLimits(clock);
  app.use("/metrics", createRequestAdmission({ authenticator, limits }).known);
  const isOfAdmin = ({ spec: { path } }: Route) => !path.startsWith("/v1/");
  const mounted = {
    serializer: createSerializer(),
    pageSemaphore: createSemaphore(maxConcurrentPages, {
      clock,
      waitMs: pageWaitMs,
      late: tooManyReads,
    }),
  };
  for (const each of fleetRoutes({ ...parts, readiness }).filter(isOfAdmin))
    mount(app, each, mounted);
  return app;
}

/** The longest body of one task or message, and the longest frame of a socket. */
export function maxFrameBytes(maxPayloadBytes = defaultMaxBytes): number {
  return maxPayloadBytes * bodyFactor + overheadBytes;
}

/** An app without routes that answers `not_found`. */
function emptyApp(parts: { log: Logger; clock: Clock }): Hono {
  const app = new Hono({
    getPath: (request, { env } = {}) => {
      const mountedPath = mountedPathIn({ env });
      return getPath(
        mountedPath ? ({ url: `http://inside${mountedPath.inside}` } as Request) : request,
      );
    },
  });
  const refuse = createErrorResponder(parts);
  app.onError((error, c) => refuse(c, error));
  app.notFound((c) => {
    const { method, path } = c.req;
    const shortPath = path.slice(0, 200);
    return refuse(c, new FlotillaError("not_found", `there is no route ${method} ${shortPath}`));
  });
  return app;
}
