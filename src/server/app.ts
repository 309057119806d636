import { Hono } from "hono";
import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { defaultMaxBytes } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import type { DeadLetters } from "../deadletters/client.ts";
import type { Machine } from "../flow/machine.ts";
import type { TaskContract } from "../queue/task.ts";
import type { Flotilla } from "../runtime/connect.ts";
import type { ApiKey } from "../runtime/server-config.ts";
import type { SessionService } from "../session/service.ts";
import { type Authenticator, createAuthenticator, requireCaller } from "./auth/authenticate.ts";
import { createMembers, type Members } from "./auth/members.ts";
import { allowOrigins } from "./cors.ts";
import { createRefusals } from "./errors.ts";
import type { Metrics } from "./metrics.ts";
import { mountPages, type Page } from "./pages/pages.ts";
import { createReadiness } from "./ready.ts";
import { mount } from "./route.ts";
import { agentRoutes } from "./routes/agents.ts";
import { bulkRoutes } from "./routes/bulk.ts";
import { deadLetterRoutes } from "./routes/dead-letters.ts";
import { fleetRoutes } from "./routes/fleet.ts";
import { gateRoutes } from "./routes/gates.ts";
import { runRoutes } from "./routes/runs.ts";
import { scheduleRoutes } from "./routes/schedules.ts";
import { sessionStreamRoutes } from "./routes/session-streams.ts";
import { sessionRoutes } from "./routes/sessions.ts";
import { taskRoutes } from "./routes/tasks.ts";
import { throttleRoutes } from "./routes/throttles.ts";
import { createStreams, type Streams, usualBufferBytes } from "./streams.ts";

export type AppParts = {
  flotilla: Flotilla;
  /** Who may call. Empty: only programs on this machine. */
  apiKeys: readonly ApiKey[];
  /** Web pages of other sites that may call. */
  origins?: readonly string[];
  /** Pages that are served beside the routes. */
  pages?: readonly Page[];
  /** What tells who calls, if not `apiKeys` alone. */
  authenticator?: Authenticator;
  /** Where sessions are asked about, if not through `flotilla`. */
  sessions?: SessionService;
  members?: Members;
  /** Where answers are kept that go on until they are ended. */
  streams?: Streams;
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
const envelopeBytes = 16 * 1024;

/** The longest body of one task or message, and the longest frame of a socket. */
export function frameBytes(maxPayloadBytes = defaultMaxBytes): number {
  return maxPayloadBytes * bodyFactor + envelopeBytes;
}

/** Every route, without the listening. */
export function createApp(parts: AppParts): Hono {
  const { flotilla, apiKeys, contracts, clock, log } = parts;
  const { sessions = flotilla.sessionService } = parts;
  const { members = createMembers(sessions, clock) } = parts;
  const { authenticator = createAuthenticator({ apiKeys }, { clock }) } = parts;
  const { streams = createStreams(clock, usualBufferBytes) } = parts;
  const readiness = createReadiness({ ...parts, ping: () => flotilla.ping() });
  const access = requireCaller(authenticator);
  const maxBytes = frameBytes(parts.maxPayloadBytes);
  const app = new Hono();

  const refuse = createRefusals({ log, clock });
  app.onError((error, c) => refuse(c, error));
  app.notFound((c) => {
    const { method, path } = c.req;
    const shown = path.slice(0, 200);
    return refuse(c, new FlotillaError("not_found", `there is no route ${method} ${shown}`));
  });
  mountPages(app, parts.pages ?? []);
  app.use(async (c, next) => {
    await next();
    c.header("Cache-Control", "no-store");
    c.header("X-Content-Type-Options", "nosniff");
  });

  app.use("/v1/*", allowOrigins(parts.origins ?? []));
  app.use("/metrics", access);
  app.use("/v1/*", access);
  const routes = [
    ...fleetRoutes({ ...parts, readiness }),
    ...taskRoutes({ flotilla, contracts, maxBytes }),
    ...bulkRoutes({ flotilla, contracts, maxRowBytes: maxBytes }),
    ...runRoutes({ flotilla, contracts, machines: parts.machines, maxBytes }),
    ...scheduleRoutes({ flotilla, contracts, maxBytes }),
    ...deadLetterRoutes({ deadLetters: parts.deadLetters ?? (() => flotilla.deadLetters) }),
    ...gateRoutes({ flotilla }),
    ...throttleRoutes({ flotilla }),
    ...agentRoutes({ flotilla }),
    ...sessionRoutes({ sessions, members, maxBytes }),
    ...sessionStreamRoutes({ sessions, members, streams, authenticator, clock, log }),
  ];
  for (const each of routes) mount(app, each, parts.isStopping);
  return app;
}
