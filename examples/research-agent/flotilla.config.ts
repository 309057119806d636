import { join } from "node:path";
import { defineConfig } from "flotilla";
import { researcher, scanning } from "./agents.ts";

/** The whole server: the agent, the task that it waits for, and a page to talk to it. */
export default defineConfig({
  store: `sqlite:${join(import.meta.dirname, "research.db")}`,
  use: [researcher, scanning],
  server: { pages: { "/research": join(import.meta.dirname, "page") } },
});
