import process from "node:process";
import {
  convertToModelMessages,
  generateText,
  isStepCount,
  streamText,
  tool,
  type UIMessage,
} from "ai";
import { agent, task } from "flotilla";
import { durable, later, stepOf } from "flotilla/durable";
import { z } from "zod";
import { lead, reader } from "./model.ts";

const book = z.object({ book: z.string() });

/** A library that takes its time. Pods may come and go meanwhile. */
export const scanning = task("scan", { input: book }, async ({ input, step }) => {
  await step.sleep("the library works", Number(process.env["SCAN_MS"] ?? 10_000));
  return { pages: 312, of: input.book };
});

const tools = {
  // An agent within a tool: its calls are steps within the tool's step.
  read: tool({
    inputSchema: z.object({ topic: z.string(), source: z.enum(["papers", "books"]) }),
    execute: async ({ topic, source }, options) => {
      const settings = durable(stepOf(options), { model: reader });
      const { text } = await generateText({ ...settings, prompt: `${topic} in ${source}` });
      return text;
    },
  }),
  // Its output comes when the task has ended. Until then the session is idle, and no pod waits.
  scan: tool({
    inputSchema: book,
    execute: (input) => later({ task: scanning, input, timeoutMs: 3_600_000 }),
  }),
  // A user has to approve it, and then it runs once: the key is the same in every attempt.
  publish: tool({
    inputSchema: z.object({ title: z.string() }),
    needsApproval: true,
    execute: async ({ title }, options) => ({ title, receipt: stepOf(options).key }),
  }),
};

export const researcher = agent<UIMessage>("researcher", async (context) => {
  const settings = { model: lead, tools, stopWhen: isStepCount(10) };
  return streamText({
    // What is stored counts, that of the readers too: no crash resets it.
    ...durable(context, settings, { budget: { calls: 12, tokens: 50_000 } }),
    messages: await convertToModelMessages([...context.messages]),
    abortSignal: context.signal,
  });
});
