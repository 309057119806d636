import { existsSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "flotilla";
import { echo, guide } from "./agents.ts";
import { summary } from "./model.ts";
import { order, orders } from "./order.ts";
import { producer, startProducing } from "./producer.ts";
import { invoice, rates, thumbnail, transcribe } from "./tasks.ts";
import { librarian, prices, receiveVisitors, visit, visits } from "./visitors.ts";

// Built by `npm start`; other commands do without it.
const chat = join(import.meta.dirname, "../chat/dist");

/**
 * What `npm start` runs: tasks of several kinds, enqueued for as long as it runs, a model behind a
 * throttle, a schedule of orders that wait to be approved, and agents to talk to, which visitors do. So
 * every page of the dashboard has something to show.
 */
export default defineConfig({
  // Beside this file, so that a demo started again goes on with the tasks it had.
  store: `sqlite:${join(import.meta.dirname, "demo.db")}`,
  use: [
    thumbnail,
    transcribe,
    rates,
    invoice,
    summary,
    producer,
    order,
    visit,
    guide,
    echo,
    librarian,
  ],
  schedules: [orders, visits],
  prices,
  async onStart(pod) {
    receiveVisitors(pod);
    await startProducing(pod);
  },
  server: { pages: existsSync(join(chat, "index.html")) ? { "/chat": chat } : {} },
  slots: 20,
  // Long enough to look at what happened, short enough to run for weeks.
  retentionMs: 15 * 60_000,
});
