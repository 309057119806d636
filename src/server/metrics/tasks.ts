import { messageOf } from "../../base/errors.ts";
import type { Depth } from "../../tasks/inspect/depth.ts";
import { createScrapeCache } from "./scrape-cache.ts";
import type { Instruments, ScrapeParts } from "./instruments.ts";

// Callers choose names too, and every name is a series that the scraper keeps for long.
const otherNames = "other";
const states = ["ready", "delayed", "waiting", "blocked", "alone", "running", "failed"] as const;

/** The depth of the queue, read from the store at a scrape. */
export function createDepthGauges(make: Instruments, names: readonly string[]) {
  const depth = make.gauge(
    "flotilla_queue_depth",
    "Tasks in the store by task and state: ready to be claimed, delayed until their time, waiting for other tasks, blocked by a limit, waiting to run alone, running, failed. Counted up to 10,000 per task and state, at most every 2 seconds; tasks of other programs are `other`",
    ["name", "state"],
  );
  const oldest = make.gauge(
    "flotilla_queue_oldest_seconds",
    "How long the oldest due task has waited, by task, among the 100 oldest of each priority; 0 where none is due",
    ["name"],
  );
  const known = new Set(names);
  const show = (found: Depth): void => {
    depth.reset();
    oldest.reset();
    for (const name of [...known, otherNames]) {
      for (const state of states) depth.set({ name, state }, 0);
      oldest.set({ name }, 0);
    }
    let oldestOtherMs = 0;
    for (const [seenName, of] of found) {
      const name = known.has(seenName) ? seenName : otherNames;
      for (const state of states) depth.inc({ name, state }, of[state]);
      if (name === seenName) oldest.set({ name }, of.oldestMs / 1_000);
      else oldestOtherMs = Math.max(oldestOtherMs, of.oldestMs);
    }
    if (oldestOtherMs > 0) oldest.set({ name: otherNames }, oldestOtherMs / 1_000);
  };

  return createScrapeCache(async ({ depth: read, log }: ScrapeParts) => {
    try {
      show(await read());
    } catch (error) {
      // Missing series are better than wrong ones; the others are still served.
      depth.reset();
      oldest.reset();
      log.warn({ error: messageOf(error) }, "reading the queue for /metrics failed");
    }
  });
}
