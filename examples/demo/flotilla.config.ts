import { existsSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "flotilla";
import { echo, guide } from "./agents.ts";
import { producer, startProducing } from "./producer.ts";
import { invoice, rates, thumbnail, transcribe } from "./tasks.ts";

// Built by `npm start`; other commands do without it.
const chat = join(import.meta.dirname, "../chat/dist");

/** What `npm start` runs: tasks of several kinds, enqueued for as long as it runs, and agents to talk to. */
export default defineConfig({
  // Beside this file, so that a demo started again goes on with the tasks it had.
  store: `sqlite:${join(import.meta.dirname, "demo.db")}`,
  use: [thumbnail, transcribe, rates, invoice, producer, guide, echo],
  onStart: startProducing,
  server: { pages: existsSync(join(chat, "index.html")) ? { "/chat": chat } : {} },
  slots: 20,
  // Long enough to look at what happened, short enough to run for weeks.
  retentionMs: 15 * 60_000,
});
