import { setTimeout as sleep } from "node:timers/promises";
import { abort, task } from "flotilla";
import { z } from "zod";

/** Quick work that always succeeds. */
export const thumbnail = task(
  "thumbnail",
  { input: z.object({ image: z.string() }), output: z.object({ bytes: z.number() }) },
  async ({ signal }) => {
    await sleep(20 + Math.random() * 80, undefined, { signal });
    return { bytes: Math.round(2_000 + Math.random() * 8_000) };
  },
);

/** Slow work that shows how far it is. Watch it with `flotilla tasks show <id>`. */
export const transcribe = task(
  "transcribe",
  { input: z.object({ minutes: z.number().int().positive() }) },
  async ({ input, progress, signal }) => {
    for (let minute = 1; minute <= input.minutes; minute++) {
      await sleep(300, undefined, { signal });
      progress({ minute, of: input.minutes });
    }
    return { words: input.minutes * 130 };
  },
);

/** Calls something unreliable: fails two times in five, and is tried again until it works. */
export const rates = task(
  "rates",
  { input: z.object({ currency: z.string() }), attempts: 6, backoff: { baseMs: 500 } },
  async ({ input, signal }) => {
    await sleep(50 + Math.random() * 100, undefined, { signal });
    if (Math.random() < 0.4) throw new Error(`the bank didn't answer for ${input.currency}`);
    return { rate: Number((0.5 + Math.random()).toFixed(4)) };
  },
);

/** Sometimes meets an input that no further attempt would help, and says so. */
export const invoice = task(
  "invoice",
  { input: z.object({ customer: z.string() }) },
  async ({ input, signal }) => {
    await sleep(100, undefined, { signal });
    if (Math.random() < 0.15) throw abort(`customer ${input.customer} has no address`);
    return { sent: true };
  },
);
