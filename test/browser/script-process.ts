/** The config of the server that pages are tested on: agents that do what they are told. */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { convertToModelMessages, isStepCount, streamText, tool, type UIMessage } from "ai";
import {
  agent,
  type AgentContext,
  type Chunk,
  defineConfig,
  flow,
  task,
  textOf,
  throttle,
} from "flotilla";
import { durable } from "flotilla/durable";
import { simulatedModel } from "flotilla/testing";
import { z } from "zod";
import { echo, guide } from "../../examples/demo/agents.ts";
import { transcribe } from "../../examples/demo/tasks.ts";

const pages = JSON.parse(process.env["PAGES"] ?? "{}") as Record<string, string>;
const gates = process.env["GATES"] ?? "";
const wordMs = 15;

/** Waits until the test has opened the gate of this name: a file that is there from then on. */
async function passed(gate: string, signal?: AbortSignal): Promise<void> {
  while (!existsSync(join(gates, gate))) await sleep(10, undefined, { ...(signal && { signal }) });
}

/**
 * Does what the last message says, a command in each line: `count 30` says words, `hold x` waits for a
 * gate, `say …` repeats text and `parts […]` brings chunks as they are.
 */
async function* follow({
  messages,
  signal,
  attempt,
}: AgentContext): AsyncGenerator<Chunk | string> {
  const asked = textOf(messages.findLast(({ role }) => role === "user") ?? { parts: [] });
  for (const line of asked.split("\n")) {
    const [, command, rest = ""] = /^(\w+) ?(.*)$/.exec(line) ?? [];
    if (command === "count") {
      for (let word = 1; word <= Number(rest); word++) {
        yield `${rest}.${word} `;
        await sleep(wordMs, undefined, { signal });
      }
    } else if (command === "hold") await passed(rest, signal);
    else if (command === "attempt") yield `attempt ${attempt} `;
    else if (command === "say") yield JSON.parse(rest) as string;
    else if (command === "parts") yield* JSON.parse(rest) as Chunk[];
    else yield `You said: ${line} `;
  }
}
const script = agent("script", follow);
/** One after the other. */
const narrow = agent("narrow", { throttle: throttle("narrow", { pinned: 1 }) }, follow);

/** A model that says of each file what it was given of it: type, size and hash. */
const viewer = agent<UIMessage>("viewer", async (context) => {
  const model = simulatedModel({
    answers: ({ prompt }) => {
      const { content } = prompt.findLast(({ role }) => role === "user")!;
      const parts = content as { type: string; mediaType: string; data: Uint8Array | string }[];
      const seen = parts.flatMap(({ type, mediaType, data }) => {
        if (type !== "file") return [];
        const bytes = typeof data === "string" ? Buffer.from(data, "base64") : data;
        const hash = createHash("sha256").update(bytes).digest("hex");
        return [`${mediaType} ${bytes.length} ${hash}`];
      });
      return { text: seen.join() };
    },
  });
  const messages = await convertToModelMessages([...context.messages]);
  return streamText({ ...durable(context, { model }), messages });
});

/** Looks something up until its gate is open, and then says what it was asked meanwhile. */
const steered = agent<UIMessage>("steered", { during: "steer" }, async (context) => {
  const model = simulatedModel({
    answers({ prompt, toolResults }) {
      const asked = prompt.filter(({ role }) => role === "user").map(({ content }) => content);
      const texts = (asked as { text: string }[][]).map(([part]) => part!.text);
      if (toolResults === 0) return { text: "I look. ", tools: [["look", {}]] };
      return { text: `Asked: ${texts.join(", ")}.` };
    },
  });
  const look = tool({
    inputSchema: z.object({}),
    execute: async () => {
      await passed(context.sessionId, context.signal);
      return "found";
    },
  });
  const settings = durable(context, { model, tools: { look }, stopWhen: isStepCount(3) });
  const messages = await convertToModelMessages([...context.messages]);
  return streamText({ ...settings, messages, abortSignal: context.signal });
});

/** Says how far it is, and ends once its gate is open. */
const gated = task("gated", {}, async ({ input, progress, signal }) => {
  progress({ step: 1, of: 2 });
  await passed(String((input as { gate: string }).gate), signal);
  return { steps: 2 };
});

/** Waits for an approval. */
const asking = flow("asking", { version: 1 })
  .signal("word", { schema: z.object({ by: z.string() }), timeoutMs: 3_600_000 })
  .to("thank", ({ state }) => ({ thanks: state.word.by }))
  .end();

export default defineConfig({
  use: [script, narrow, viewer, steered, guide, echo, transcribe, gated, asking],
  server: { pages },
  // A pod that was killed is to be missed soon, and one that merely stands still for seconds isn't.
  heartbeatMs: 1_000,
  deadAfterMs: 8_000,
  shutdownMs: 2_000,
  pressure: false,
  dataDir: false,
});
