import { task, type Tasks } from "flotilla";
import { z } from "zod";
import { summary } from "./model.ts";
import { invoice, rates, thumbnail, transcribe } from "./tasks.ts";

const everyMs = 1_000;

// A link that an earlier run left behind may be claimed before this one has started.
let start: (tasks: Tasks) => void;
const started = new Promise<Tasks>((resolve) => (start = resolve));

/**
 * A task that keeps the demo going: it enqueues some work, and itself for the next second. The chain
 * lives in the store, so it goes on after a restart. Each link is named by its second; however many
 * chains are started, by several pods or restarts, they meet in the same link and become one.
 */
export const producer = task(
  "producer",
  { input: z.object({ second: z.number().int() }), attempts: 1_000 },
  async ({ input: { second } }) => {
    const flotilla = await started;
    await flotilla.enqueueMany(thumbnail, [
      { image: `cat-${second}.jpg` },
      { image: `dog-${second}.jpg` },
    ]);
    await flotilla.enqueue(rates, { currency: ["eur", "usd", "yen"][second % 3]! });
    if (second % 2 === 0) await flotilla.enqueue(invoice, { customer: `c${second % 1_000}` });
    if (second % 4 === 0) await flotilla.enqueue(transcribe, { minutes: 5 + (second % 10) });
    // More at once than the model takes.
    if (second % 10 === 0) {
      const pages = Array.from({ length: 60 }, (_, page) => ({ page: `${second}-${page}` }));
      await flotilla.enqueueMany(summary, pages);
    }
    await produceFrom(flotilla, Math.max(second + 1, thisSecond()));
  },
);

/** Starts the chain, or joins the one that is there. */
export async function startProducing({ tasks }: { readonly tasks: Tasks }): Promise<void> {
  start(tasks);
  await produceFrom(tasks, thisSecond() + 1);
}

async function produceFrom(tasks: Tasks, second: number): Promise<void> {
  const delayMs = Math.max(0, second * everyMs - Date.now());
  await tasks.enqueue(producer, { second }, { key: `second-${second}`, delayMs, priority: 10 });
}

const thisSecond = () => Math.floor(Date.now() / everyMs);
