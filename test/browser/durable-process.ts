/**
 * The config of processes that make the answers of a durable agent, and of the one that pages are served
 * by, which has no agent.
 */
import { appendFileSync, existsSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { isStepCount, streamText, tool, type UIMessage } from "ai";
import { agent, defineConfig, textOf } from "flotilla";
import { durable, type Interrupted } from "flotilla/durable";
import { simulatedModel } from "flotilla/testing";
import { z } from "zod";
import { firstWords, lastWords, type Order, secondWords, wordMs } from "./durable-order.ts";

const pages = JSON.parse(process.env["PAGES"] ?? "{}") as Record<string, string>;
const folder = process.env["GATES"] ?? "";

/** Tells the test that an answer is here, and waits until it may go on. */
async function pass(place: string, { chat, holds }: Order): Promise<void> {
  appendFileSync(join(folder, `${chat}.places`), `${place}\n`);
  while (holds === place && !existsSync(join(folder, `${chat}.open`))) await sleep(10);
}

const clerk = agent<UIMessage>("clerk", (context) => {
  const asked = context.messages.findLast(({ role }) => role === "user")!;
  const order = JSON.parse(textOf(asked)) as Order;
  let words = 0;
  const model = simulatedModel({
    wordMs,
    clock: {
      after(delayMs, callback) {
        if (context.attempt === 1 && ++words === order.pausesAt) return () => {};
        const timer = setTimeout(() => callback(), delayMs);
        return () => clearTimeout(timer);
      },
    },
    answers: async ({ toolResults, soFar }) => {
      await pass(`call ${toolResults + 1}`, order);
      words = 0;
      if (toolResults === 0) return { text: firstWords, tools: [["weather", {}]] };
      if (toolResults === 1) return { text: secondWords, tools: [["book", {}]] };
      const done = soFar === undefined ? 0 : soFar.trim().split(/\s+/).length;
      return { text: lastWords(context.attempt).slice(done).join("") };
    },
  });
  const doing = (name: string) =>
    tool({
      inputSchema: z.object({}),
      execute: async () => {
        await pass(name, order);
        return `${name} is done`;
      },
    });
  const tools = { weather: doing("weather"), book: doing("book") };
  const options = { ...(order.interrupted && { interrupted: order.interrupted as Interrupted }) };
  return streamText({
    ...durable(context, { model, tools, stopWhen: isStepCount(5) }, options),
    prompt: "go",
    abortSignal: context.signal,
  });
});

export default defineConfig({
  use: process.env["ROLE"] === "agent" ? [clerk] : [],
  server: { pages },
  // A pod that was killed is to be missed soon, and one that merely stands still for seconds isn't.
  heartbeatMs: 1_000,
  deadAfterMs: 8_000,
  shutdownMs: 2_000,
  pressure: false,
  dataDir: false,
});
