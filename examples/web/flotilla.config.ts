import { defineConfig } from "flotilla";
import { store, summarize } from "./contracts.ts";

const summarizer = summarize.handle({ attempts: 5 }, async ({ input }) => ({
  words: input.text.split(/\s+/).length,
}));

/** The worker: `npx flotilla work` runs it, on as many machines as there is work for. */
export default defineConfig({ store, use: [summarizer] });
