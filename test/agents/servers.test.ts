import { convertToModelMessages, streamText, type UIMessage as SdkMessage } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { type AgentHandlerOptions, createAgentHandler } from "flotilla/agent";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { headersOf } from "../../src/agent/contract/requests.ts";
import { silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { textOf } from "../../src/protocol/message.ts";
import type { Pod } from "../../src/runtime/pod.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { temporaryFile } from "../../src/store/contract/kinds.ts";
import { type Serving, servers } from "./servers.ts";

const secretOf = (byte: number) => `whsec_${Buffer.alloc(32, byte).toString("base64")}`;
const secret = secretOf(1);
const quick = { backoff: { baseMs: 1, maxMs: 2 }, retries: 2, allowPrivate: true } as const;

type Behind = Partial<AgentHandlerOptions> & Pick<AgentHandlerOptions, "answer">;
let errors: ReturnType<typeof vi.spyOn>;
beforeEach(() => {
  errors = vi.spyOn(console, "error").mockImplementation(() => {});
});
afterEach(() => errors.mockRestore());

describe.each(Object.keys(servers))("an agent behind %s, called by a pod", (name) => {
  const { path, remove } = temporaryFile();
  const agents = new Map<string, Behind>();
  const asked: string[] = [];
  let serving: Serving;
  let pod: Pod;

  // One server and one pod; which of these agents is meant says the name that it is asked by.
  const define = (agentName: string, behind: Behind, signing: string | string[] = secret) => {
    agents.set(agentName, behind);
    return agent(agentName, { ...quick, url: `${serving.url}?${agentName}`, secret: signing });
  };

  beforeAll(async () => {
    serving = await servers[name]!(async (request) => {
      const behind = agents.get(new URL(request.url).search.slice(1))!;
      asked.push(request.headers.get("webhook-id") ?? "");
      return createAgentHandler({ secret, ...behind })(request);
    });
    const use = [
      define("echo", {
        async *answer({ messages, user, sessionId, agent: called, epoch, attempt, seq }) {
          yield `${user} said `;
          yield { type: "data-asked", data: { sessionId, called, epoch, attempt, seq } };
          yield textOf(messages.at(-1)!);
        },
      }),
      define("model", {
        answer: async ({ messages, signal }) =>
          streamText({
            model: modelThat("from a model"),
            abortSignal: signal,
            messages: await convertToModelMessages(messages as unknown as SdkMessage[]),
          }),
      }),
      define("wrong", { answer: () => "never" }, secretOf(2)),
      define("rotated", { secret: [secretOf(3), secretOf(2)], answer: () => "hello" }, secretOf(2)),
      define("rotating", { answer: () => "hello" }, [secretOf(2), secret]),
      define("old", {
        clock: { now: () => Date.now() + 600_000, monotonic: () => 0, after: () => () => {} },
        answer: () => "never",
      }),
      define("small", { maxBytes: 50_000, answer: () => "hello" }),
      define("throws", {
        async *answer() {
          yield "so far";
          throw new Error("hunter2");
        },
      }),
      define("flaky", {
        answer({ webhookId }) {
          if (asked.filter((id) => id === webhookId).length === 1) throw new Error("not yet");
          return "at the second try";
        },
      }),
      define("endless", {
        async *answer({ signal }) {
          yield "counting";
          await new Promise((resolve) => signal.addEventListener("abort", resolve));
          left++;
        },
      }),
    ];
    pod = await startPod({ store: `sqlite:${path}`, use, log: silentLogger, dataDir: false });
  });
  afterAll(async () => {
    await pod.stop();
    await serving[Symbol.asyncDispose]();
    await remove();
  });
  beforeEach(() => void asked.splice(0));
  let left = 0;

  const ask = async (agentName: string, said = "hello") => {
    const chat = await pod.sessions.create(agentName, { user: "ada" });
    return { chat, reply: await chat.ask(said) };
  };

  test("answers, and gets the request", async () => {
    const { chat, reply } = await ask("echo", "grüße 🚢");
    expect(reply.outcome).toBe("completed");
    expect(textOf(reply)).toBe("ada said grüße 🚢");
    const data = { sessionId: chat.sessionId, called: "echo", epoch: 1, attempt: 1, seq: 1 };
    expect(reply.parts[1]).toMatchObject({ type: "data-asked", data });
    expect(asked).toHaveLength(1);
  });

  test("answers with a model of the AI SDK", async () => {
    expect(textOf((await ask("model")).reply)).toBe("from a model");
  });

  test.each(["wrong", "old"])("refuses what isn't signed as it must be: %s", async (which) => {
    const { reply } = await ask(which);
    expect(reply.outcome).toBe("failed");
    const message = "the agent answered with the status 401";
    expect(reply.error).toEqual({ code: "agent_refused", message });
    expect(asked).toHaveLength(1);
  });

  test("refuses what was changed on its way", async () => {
    const body = JSON.stringify({ text: "pay 1" });
    const headers = headersOf({ body });
    const changed = body.replace("1", "1000");
    const url = `${serving.url}?echo`;
    const response = await fetch(url, { method: "POST", headers, body: changed });
    expect(response.status).toBe(401);
    expect(await response.json()).toMatchObject({ error: { code: "unauthorized" } });
  });

  test.each(["rotated", "rotating"])("answers while secrets change: %s", async (which) => {
    expect(textOf((await ask(which)).reply)).toBe("hello");
  });

  test("refuses what is too large, and answers the next", async () => {
    const { reply } = await ask("small", "x".repeat(250_000));
    expect(reply.error).toMatchObject({
      code: "agent_refused",
      message: expect.stringContaining("413"),
    });
    expect(textOf((await ask("small")).reply)).toBe("hello");
  });

  test("that throws half-way keeps what it sent, and no user learns why", async () => {
    const { reply } = await ask("throws");
    expect(reply.outcome).toBe("cut");
    expect(textOf(reply)).toBe("so far");
    expect(reply.error).toEqual({ code: "agent_failed", message: "An error occurred." });
    expect(String(errors.mock.calls[0]![1])).toContain("hunter2");
  });

  test("that throws before its first chunk is called again, by the same id", async () => {
    const { reply } = await ask("flaky");
    expect(textOf(reply)).toBe("at the second try");
    expect(asked).toHaveLength(2);
    expect(new Set(asked).size).toBe(1);
  });

  test("is aborted when its answer is no longer wanted", async () => {
    const before = left;
    const chat = await pod.sessions.create("endless", { user: "ada" });
    const { seq } = await chat.send("count");
    for await (const event of chat.events({ after: seq })) {
      if (event.type === "chunk" && event.chunk.type === "text-delta") await chat.stop();
      if (event.type !== "entry" || event.entry.role !== "assistant") continue;
      expect(event.entry.outcome).toBe("stopped");
      break;
    }
    await until("it has learned of it", () => left === before + 1);
    expect(errors).not.toHaveBeenCalled();
  });
});

function modelThat(said: string): MockLanguageModelV4 {
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  };
  const parts = [
    { type: "stream-start", warnings: [] },
    { type: "text-start", id: "1" },
    { type: "text-delta", id: "1", delta: said },
    { type: "text-end", id: "1" },
    { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage },
  ];
  return new MockLanguageModelV4({
    doStream: async () => ({ stream: convertArrayToReadableStream(parts) as never }),
  });
}
