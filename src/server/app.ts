import { Hono } from "hono";
import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { defaultMaxBytes } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import type { DeadLetters } from "../deadletters/client.ts";
import type { TaskContract } from "../queue/task.ts";
import type { Flotilla } from "../runtime/connect.ts";
import { requireAccess } from "./access.ts";
import { refuse } from "./errors.ts";
import type { Metrics } from "./metrics.ts";
import { parseEnqueue, parseFilter } from "./parse.ts";
import { createReadiness } from "./ready.ts";
import { scheduleRoutes } from "./routes/schedules.ts";
import { bulkRoutes } from "./routes/bulk.ts";
import { deadLetterRoutes } from "./routes/dead-letters.ts";

export type AppParts = {
  flotilla: Flotilla;
  /** Who may call. Empty: only programs on this machine. */
  apiKeys: readonly string[];
  /** Tasks whose input is checked before it is stored. */
  contracts?: ReadonlyMap<string, TaskContract>;
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
  const { flotilla, apiKeys, contracts, metrics, clock, log } = parts;
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

  app.get("/health/live", (c) => c.json({ status: "live" }));
  app.get("/health/ready", async (c) => {
    const found = await readiness();
    if (found.ready) return c.json({ status: "ready" });
    return c.json({ status: "not ready", reason: found.reason }, 503, { "Retry-After": "1" });
  });

  app.use("/metrics", access);
  app.get("/metrics", async (c) => {
    const text = await metrics.collect({ depth: () => flotilla.depth(), clock, log });
    return c.body(text, 200, { "Content-Type": metrics.contentType });
  });

  app.use("/v1/*", access);
  app.post("/v1/tasks", async (c) => {
    const { name, input, options } = await parseEnqueue(c, maxBytes);
    const task = contracts?.get(name) ?? { name, input: undefined, output: undefined };
    const [traceparent, tracestate] = [c.req.header("traceparent"), c.req.header("tracestate")];
    const trace = { traceparent, tracestate };
    const enqueued = await flotilla.enqueue(task, input, { ...options, trace });
    return c.json(enqueued, enqueued.created ? 201 : 200);
  });
  bulkRoutes(app, { ...parts, maxRowBytes: maxBytes });
  app.get("/v1/tasks", async (c) => c.json(await flotilla.list(parseFilter(c))));
  app.get("/v1/tasks/:id", async (c) => {
    const taskId = c.req.param("id");
    const [task, events] = await Promise.all([flotilla.get(taskId), flotilla.events(taskId)]);
    if (!task) {
      throw new FlotillaError("not_found", `there is no task ${taskId.slice(0, 80)}`);
    }
    return c.json({ task, events });
  });
  app.post("/v1/tasks/:id/cancel", async (c) => {
    const status = await flotilla.cancel(c.req.param("id"));
    if (status === "finished") {
      throw new FlotillaError("conflict", "the task has ended already and can't be cancelled");
    }
    return c.json({ status }, status === "cancelled" ? 200 : 202);
  });
  app.post("/v1/tasks/:id/retry", async (c) => {
    await flotilla.retry(c.req.param("id"));
    return c.json({ status: "pending" });
  });
  scheduleRoutes(app, { flotilla, contracts, maxBytes });
  deadLetterRoutes(app, { deadLetters: parts.deadLetters ?? (() => flotilla.deadLetters) });
  return app;
}
