// The web process: it stores tasks and shows how they stand, and runs none of them.
// node examples/web/server.ts, and beside it: npx flotilla work --config examples/web/flotilla.config.ts
import process from "node:process";
import { serve } from "@hono/node-server";
import { connect, FlotillaError } from "flotilla";
import { Hono } from "hono";
import { store, summarize } from "./contracts.ts";

const flotilla = connect(store);

const app = new Hono()
  .post("/summaries", async (c) => {
    // A client that sends its request again with the same header gets the same task.
    const key = c.req.header("idempotency-key");
    const made = await flotilla.enqueue(summarize, await c.req.json(), key ? { key } : {});
    return c.json(made, 202, { location: `/summaries/${made.taskId}` });
  })
  .get("/summaries/:taskId", async (c) => {
    const found = await flotilla.tasks.get(c.req.param("taskId"));
    if (!found) return c.json({ error: "no such summary" }, 404);
    const result = found.status === "completed" ? found.result : null;
    return c.json({ status: found.status, result });
  })
  .onError((error, c) => {
    const refused = error instanceof FlotillaError && error.code === "invalid_input";
    return c.json({ error: refused ? error.message : "something went wrong" }, refused ? 400 : 500);
  });

const server = serve({ fetch: app.fetch, port: Number(process.env["PORT"] ?? 3000) }, ({ port }) =>
  console.log(`listens on http://localhost:${port}`),
);

process.once("SIGTERM", () => server.close(() => void flotilla.close()));
