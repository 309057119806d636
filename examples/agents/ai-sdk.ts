// An agent behind a URL with the AI SDK, in Hono. A scripted model stands in for one that needs a key.
// prints: helper: It rains at sea. (after calling weather)
// prints: stopped after: One sheep, two sheep,
import { createAdaptorServer } from "@hono/node-server";
import { convertToModelMessages, stepCountIs, streamText, tool, type UIMessage } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { agent, startPod, textOf } from "flotilla";
import { createAgentHandler } from "flotilla/agent";
import { Hono } from "hono";
import type { AddressInfo } from "node:net";
import { z } from "zod";

const secret = `whsec_${Buffer.from("a secret of thirty-two characters").toString("base64")}`;
const weather = tool({
  description: "How the weather is",
  inputSchema: z.object({ at: z.string() }),
  execute: async ({ at }) => `rain at ${at}`,
});

const handler = createAgentHandler<UIMessage>({
  secret,
  answer: async ({ messages, signal }) =>
    streamText({
      model: scriptedModel(),
      messages: await convertToModelMessages(messages),
      tools: { weather },
      stopWhen: stepCountIs(3),
      // Fires when the user stops the answer, so that nobody pays for what nobody reads.
      abortSignal: signal,
    }),
});
// In Next.js this is all of app/api/agent/route.ts: export const POST = handler;
const app = new Hono().post("/agent", (c) => handler(c.req.raw));
const server = createAdaptorServer({ fetch: app.fetch });
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/agent`;

const helper = agent("helper", { url, secret, allowPrivate: true });
await using pod = await startPod({ store: "sqlite:ai-sdk.db", use: [helper] });
const chat = await pod.sessions.create(helper, { user: "ada" });
const reply = await chat.ask("How is the weather at sea?");
const called = reply.parts.find(({ type }) => type.startsWith("tool-"));
console.log(`${reply.author}: ${textOf(reply)} (after calling ${called?.type.slice(5)})`);

const { seq } = await chat.send("Count sheep.");
for await (const event of chat.events({ after: seq })) {
  if (event.type === "chunk" && event.chunk["delta"] === "two sheep,") await chat.stop();
  if (event.type !== "entry" || event.entry.role !== "assistant") continue;
  console.log(`${event.entry.outcome} after: ${textOf(event.entry)}`);
  break;
}
server.close();

/** Calls a tool when it is asked about the weather, and says what came of it; else it counts without end. */
function scriptedModel(): MockLanguageModelV4 {
  return new MockLanguageModelV4({
    async doStream({ prompt, abortSignal }) {
      const last = JSON.stringify(prompt.at(-1));
      if (last.includes("Count")) return { stream: sheep(abortSignal) as never };
      const asks = {
        type: "tool-call",
        toolCallId: "c1",
        toolName: "weather",
        input: '{"at":"sea"}',
      };
      const parts = last.includes("rain at sea")
        ? [...says("It rains at sea."), finish("stop")]
        : [asks, finish("tool-calls")];
      return { stream: convertArrayToReadableStream(parts) as never };
    },
  });
}

function sheep(signal: AbortSignal | undefined): ReadableStream<object> {
  return new ReadableStream({
    start(controller) {
      controller.enqueue({ type: "text-start", id: "1" });
      for (const delta of ["One sheep, ", "two sheep,"]) {
        controller.enqueue({ type: "text-delta", id: "1", delta });
      }
      signal?.addEventListener("abort", () => controller.error(signal.reason));
    },
  });
}

function says(text: string): object[] {
  return [
    { type: "text-start", id: "1" },
    { type: "text-delta", id: "1", delta: text },
    { type: "text-end", id: "1" },
  ];
}

function finish(unified: string): object {
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  };
  return { type: "finish", finishReason: { unified, raw: unified }, usage };
}
