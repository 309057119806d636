import { Hono } from "hono";
import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { createSemaphore } from "../base/semaphore.ts";
import { defaultMaxBytes } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import type { DeadLetters } from "../dead-letters/dead-letters.ts";
import type { Machine } from "../flows/machine.ts";
import type { TaskContract } from "../tasks/task.ts";
import type { Flotilla } from "../runtime/connect.ts";
import type { ApiKey } from "../runtime/server-config.ts";
import type { SessionService } from "../sessions/service.ts";
import type { AnonymousConnections } from "./admission/anonymous-connections.ts";
import type { IncomingBodies } from "./admission/incoming-bytes.ts";
import { type Authenticator, createAuthenticator } from "./auth/authenticate.ts";
import { createMembers, type Members } from "./auth/members.ts";
import { allowOrigins } from "./auth/origins.ts";
import { createErrorResponder } from "./errors.ts";
import { createCallerLimits, type CallerLimits } from "./admission/caller-limits.ts";
import type { Metrics } from "./metrics/metrics.ts";
import { mountPages, type StaticPage } from "./pages.ts";
import { createReadiness } from "./readiness.ts";
import { mount, type Route } from "./route.ts";
import { agentRoutes } from "./api/agents.ts";
import { bulkRoutes, taskRoutes } from "./api/tasks.ts";
import { deadLetterRoutes } from "./api/dead-letters.ts";
import { fleetRoutes } from "./api/fleet.ts";
import { limitRoutes } from "./api/limits.ts";
import { homeRoutes } from "./home/home.ts";
import { runRoutes } from "./api/runs.ts";
import { scheduleRoutes } from "./api/schedules.ts";
import { sessionStreamRoutes } from "./api/session-streams.ts";
import { sessionRoutes } from "./api/sessions.ts";
import { throttleRoutes } from "./api/throttles.ts";
import { createEventStreams, type EventStreams, defaultBufferBytes } from "./event-streams.ts";
import { createRequestAdmission } from "./admission/admission.ts";

export type AppParts = {
  flotilla: Flotilla;
  /** Who may call. Empty: only programs on this machine. */
  apiKeys: readonly ApiKey[];
  /** Web pages of other sites that may call. */
  origins?: readonly string[];
  /** Pages that are served beside the routes. */
  pages?: readonly StaticPage[];
  /** What tells who calls, if not `apiKeys` alone. */
  authenticator?: Authenticator;
  /** Where sessions are asked about, if not through `flotilla`. */
  sessions?: SessionService;
  members?: Members;
  /** Where answers are kept that go on until they are ended. */
  streams?: EventStreams;
  /** What callers may ask of this process. */
  limits?: CallerLimits;
  /** What callers are in the middle of sending. */
  bodies?: IncomingBodies;
  /** Told when the caller of a connection is known. */
  anonymous?: Pick<AnonymousConnections, "identify">;
  /** Tasks whose input is checked before it is stored. */
  contracts?: ReadonlyMap<string, TaskContract>;
  /** Flows whose machines are shown. */
  machines?: readonly Machine[];
  /** Where failed tasks are asked about, if not through `flotilla`. */
  deadLetters?: () => DeadLetters;
  metrics: Metrics;
  isStopping: () => boolean;
  maxPayloadBytes?: number;
  clock: Clock;
  log: Logger;
};

// Text may arrive escaped (`\u00e9`) at twice its size, and the options need some room too.
const bodyFactor = 2;
const overheadBytes = 16 * 1024;
// Reads of lists in one process, of which each caller has a share.
const maxConcurrentPages = 8;
const pageWaitMs = 30_000;

/** The longest body of one task or message, and the longest frame of a socket. */
export function maxFrameBytes(maxPayloadBytes = defaultMaxBytes): number {
  return maxPayloadBytes * bodyFactor + overheadBytes;
}

export type AdminParts = Pick<AppParts, "flotilla" | "metrics" | "isStopping" | "clock" | "log"> & {
  authenticator: Authenticator;
};

/** Health and metrics alone, for a port that callers from outside don't reach. */
export function createAdminApp(parts: AdminParts): Hono {
  const { flotilla, authenticator, isStopping, clock } = parts;
  const app = emptyApp(parts);
  const readiness = createReadiness({ ...parts, ping: () => flotilla.ping() });
  const limits = createCallerLimits(clock);
  app.use("/metrics", createRequestAdmission({ authenticator, limits }).known);
  const isOfAdmin = ({ spec: { path } }: Route) => !path.startsWith("/v1/");
  const mounted = {
    isStopping,
    pageSemaphore: createSemaphore(maxConcurrentPages, { clock, waitMs: pageWaitMs }),
  };
  for (const each of fleetRoutes({ ...parts, readiness }).filter(isOfAdmin))
    mount(app, each, mounted);
  return app;
}

/** An app without routes, which says so. */
function emptyApp(parts: { log: Logger; clock: Clock }): Hono {
  const app = new Hono();
  const refuse = createErrorResponder(parts);
  app.onError((error, c) => refuse(c, error));
  app.notFound((c) => {
    const { method, path } = c.req;
    const shortPath = path.slice(0, 200);
    return refuse(c, new FlotillaError("not_found", `there is no route ${method} ${shortPath}`));
  });
  return app;
}

/** Every route, without the listening. */
export function createApp(parts: AppParts): Hono {
  const { flotilla, apiKeys, contracts, clock, log } = parts;
  const { sessions = flotilla.sessionService } = parts;
  const { members = createMembers(sessions, clock) } = parts;
  const { authenticator = createAuthenticator({ apiKeys }, { clock }) } = parts;
  const { streams = createEventStreams(clock, defaultBufferBytes) } = parts;
  const readiness = createReadiness({ ...parts, ping: () => flotilla.ping() });
  const { limits = createCallerLimits(clock) } = parts;
  const visits = createRequestAdmission({ ...parts, authenticator, limits });
  const maxBytes = maxFrameBytes(parts.maxPayloadBytes);
  const pageSemaphore = createSemaphore(maxConcurrentPages, { clock, waitMs: pageWaitMs });
  const app = emptyApp(parts);

  for (const { prefix } of parts.pages ?? []) app.use(`${prefix}/*`, visits.unknown);
  mountPages(app, parts.pages ?? []);
  app.use(async (c, next) => {
    await next();
    c.header("Cache-Control", "no-store");
    c.header("X-Content-Type-Options", "nosniff");
  });

  app.use("/v1/*", allowOrigins(parts.origins ?? []));
  app.use("/", visits.either);
  app.use("/metrics", visits.known);
  app.use("/v1/*", visits.known);
  const pagePaths = (parts.pages ?? []).map(({ prefix }) => prefix);
  const routes = [
    ...homeRoutes({ flotilla, machines: parts.machines, pagePaths, clock, log }),
    ...fleetRoutes({ ...parts, readiness }),
    ...taskRoutes({ flotilla, contracts, maxBytes }),
    ...bulkRoutes({ flotilla, contracts, maxRowBytes: maxBytes }),
    ...runRoutes({ flotilla, contracts, machines: parts.machines, maxBytes }),
    ...scheduleRoutes({ flotilla, contracts, maxBytes }),
    ...deadLetterRoutes({ deadLetters: parts.deadLetters ?? (() => flotilla.deadLetters) }),
    ...limitRoutes({ flotilla }),
    ...throttleRoutes({ flotilla }),
    ...agentRoutes({ flotilla }),
    ...sessionRoutes({ sessions, members, maxBytes }),
    ...sessionStreamRoutes({
      sessions,
      members,
      streams,
      pageSemaphore,
      authenticator,
      clock,
      log,
    }),
  ];
  const mounted = { isStopping: parts.isStopping, pageSemaphore };
  for (const each of routes) mount(app, each, mounted);
  return app;
}
