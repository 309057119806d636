import process from "node:process";
import { Hono } from "hono";
import { systemClock } from "../../base/clock.ts";
import { listen } from "../serve.ts";

/** A server in a process of its own, which a test starts with few file descriptors. */
if (process.send) {
  const app = new Hono().get("/", (c) => c.text("hello"));
  const { port } = await listen(app, { host: "127.0.0.1", port: 0, clock: systemClock });
  process.send(port);
  process.on("disconnect", () => process.exit(0));
}
