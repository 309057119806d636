import { Hono } from "hono";
import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { defaultMaxBytes } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import type { DeadLetters } from "../deadletters/client.ts";
import type { Machine } from "../flow/machine.ts";
import type { TaskContract } from "../queue/task.ts";
import type { Flotilla } from "../runtime/connect.ts";
import { requireAccess } from "./access.ts";
import { refuse } from "./errors.ts";
import type { Metrics } from "./metrics.ts";
import { createReadiness } from "./ready.ts";
import { mount } from "./route.ts";
import { bulkRoutes } from "./routes/bulk.ts";
import { deadLetterRoutes } from "./routes/dead-letters.ts";
import { fleetRoutes } from "./routes/fleet.ts";
import { gateRoutes } from "./routes/gates.ts";
import { runRoutes } from "./routes/runs.ts";
import { scheduleRoutes } from "./routes/schedules.ts";
import { taskRoutes } from "./routes/tasks.ts";
import { throttleRoutes } from "./routes/throttles.ts";

export type AppParts = {
  flotilla: Flotilla;
  /** Who may call. Empty: only programs on this machine. */
  apiKeys: readonly string[];
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

/** Every route, without the listening. */
export function createApp(parts: AppParts): Hono {
  const { flotilla, apiKeys, contracts, log } = parts;
  const { maxPayloadBytes = defaultMaxBytes } = parts;
  const readiness = createReadiness({ ...parts, ping: () => flotilla.ping() });
  const access = requireAccess(apiKeys);
  const maxBytes = maxPayloadBytes * bodyFactor + envelopeBytes;
  const app = new Hono();

  app.onError((error, c) => refuse(c, error, log));
  app.notFound((c) => {
    const { method, path } = c.req;
    const shown = path.slice(0, 200);
    return refuse(c, new FlotillaError("not_found", `there is no route ${method} ${shown}`), log);
  });
  app.use(async (c, next) => {
    await next();
    c.header("Cache-Control", "no-store");
    c.header("X-Content-Type-Options", "nosniff");
  });

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
  ];
  for (const each of routes) mount(app, each);
  return app;
}
