import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { agent, type UrlAgentOptions } from "../agents/agent.ts";
import { type AgentNetwork, createAgentNetwork } from "./network.ts";
import {
  events,
  createRunnerHarness,
  saying,
  type RunnerHarness,
  serve,
  sse,
  replyText,
} from "../contract/turns-harness.ts";

const quick = { backoff: { baseMs: 1, jitter: 0 } };
const scenes: RunnerHarness[] = [];
let servers: AsyncDisposableStack;
beforeEach(() => {
  servers = new AsyncDisposableStack();
});
afterEach(async () => {
  for (const scene of scenes.splice(0)) await scene.runner.stop({ waitMs: 0 });
  await servers.disposeAsync();
});

async function sceneWith(
  handle: Parameters<typeof serve>[0],
  options: Partial<UrlAgentOptions> = {},
  sceneOptions: Parameters<typeof createRunnerHarness>[1] = {},
) {
  const server = servers.use(await serve(handle));
  const spec = agent("helper", { url: server.url, allowPrivate: true, ...quick, ...options });
  const scene = createRunnerHarness(spec, sceneOptions);
  scenes.push(scene);
  return { ...scene, server };
}

/** The real network, which says how much has been read. */
function countingNetwork() {
  const real = createAgentNetwork();
  let count = 0;
  const network: AgentNetwork = {
    ...real,
    async post(sent) {
      const received = await real.post(sent);
      async function* counted() {
        for await (const piece of received.body) {
          yield piece;
          count += piece.length;
        }
      }
      return { ...received, body: counted() };
    },
  };
  return { network, bytes: () => count };
}

const fine = (text = "hello") => events({ type: "start" }, ...saying(text), { type: "finish" });

describe("an agent at a URL", () => {
  test("answers with server-sent events", async () => {
    const { answer, live } = await sceneWith((response) => {
      response.writeHead(200, sse).end(`: stream-open\n\n${fine()}data: [DONE]\n\n`);
    });
    expect(await answer()).toMatchObject({
      outcome: "completed",
      parts: [{ type: "text", text: "hello", state: "done" }],
      tokens: 2,
    });
    expect(live.flatMap(({ chunks }) => chunks)).toEqual([
      { type: "start", messageId: "answer" },
      ...saying("hello"),
      { type: "finish" },
    ]);
  });

  test("answers with lines of JSON", async () => {
    const { answer } = await sceneWith((response) => {
      const lines = [{ type: "start" }, ...saying("grüße 🚢"), { type: "finish" }];
      const body = Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
      response.writeHead(200, { "content-type": "application/x-ndjson" });
      // Cut in the middle of a character.
      const cut = body.indexOf("🚢") + 2;
      response.write(body.subarray(0, cut));
      response.end(body.subarray(cut));
    });
    expect(replyText(await answer())).toBe("grüße 🚢");
  });

  test.each([
    ["HTML", { "content-type": "text/html" }, "<html>not found</html>", "agent_invalid"],
    ["another type", { "content-type": "text/plain" }, fine(), "agent_invalid"],
    ["no type", {}, fine(), "agent_invalid"],
    ["a whole JSON", { "content-type": "application/json" }, "{}", "agent_invalid"],
    ["compressed bytes", { ...sse, "content-encoding": "gzip" }, "x", "agent_invalid"],
    ["lines that aren't JSON", sse, "data: hello\n\n", "agent_invalid"],
    ["chunks that are none", sse, "data: [1]\n\n", "agent_invalid"],
    [
      "a chunk of what never began",
      sse,
      events({ type: "text-delta", id: "t", delta: "x" }),
      "agent_invalid",
    ],
    ["an error of its own", sse, events({ type: "error", errorText: "no model" }), "agent_failed"],
  ])("that answers with %s has failed, and isn't called again", async (_, headers, body, code) => {
    const { answer, server } = await sceneWith((response) => {
      response.writeHead(200, headers as Record<string, string>).end(body);
    });
    expect(await answer()).toMatchObject({ outcome: "failed", parts: [], error: { code } });
    expect(server.requests).toHaveLength(1);
  });

  test.each([
    ["a redirect", 1, 302, { location: "http://169.254.169.254/latest/meta-data" }],
    ["a permanent redirect", 1, 308, { location: "http://127.0.0.1:1/" }],
    ["400", 1, 400, {}],
    ["404", 1, 404, {}],
    ["410", 1, 410, {}],
    ["408", 3, 408, {}],
    ["429", 3, 429, {}],
    ["500", 3, 500, {}],
    ["503", 3, 503, {}],
  ])("that answers with %s is called so often: %i", async (_, asked, status, headers) => {
    const { answer, server } = await sceneWith((response) => {
      response.writeHead(status, { ...sse, ...headers } as Record<string, string>).end("no");
    });
    const reply = await answer();
    expect(reply).toMatchObject({ outcome: "failed", error: { code: "agent_refused" } });
    expect(reply.error?.message).toContain(String(status));
    expect(server.requests).toHaveLength(asked);
  });

  test("can't say what a call waits for, which the pod would believe", async () => {
    const schema = { type: "string", pattern: "^(a+)+$" };
    const flotilla = { later: { signal: "go", schema } };
    const providerMetadata = { flotilla, other: { kept: true } };
    const call = { toolName: "x", providerMetadata };
    const { answer, live } = await sceneWith((response) => {
      const chunks = [
        { type: "start" },
        { type: "tool-input-available", toolCallId: "a", input: {}, ...call },
        { type: "tool-input-start", toolCallId: "b", ...call },
        { type: "tool-input-available", toolCallId: "b", toolName: "x", input: {} },
        { type: "tool-input-available", toolCallId: "c", toolName: "x", input: {} },
        { type: "tool-approval-request", toolCallId: "c", approvalId: "d" },
        { type: "tool-approval-response", approvalId: "d", approved: true, providerMetadata },
        { type: "finish" },
      ];
      response.writeHead(200, sse).end(events(...chunks));
    });
    const { outcome, parts } = await answer();
    expect(outcome).toBe("completed");
    expect(parts.map(({ callProviderMetadata }) => callProviderMetadata)).toEqual(
      parts.map(() => ({ other: { kept: true } })),
    );
    expect(JSON.stringify(live)).not.toContain("later");
  });

  test("that sends nothing at all is called again, then has failed", async () => {
    const { answer, server } = await sceneWith(
      (response) => void response.writeHead(200, sse).end(),
    );
    expect(await answer()).toMatchObject({ outcome: "failed", error: { code: "agent_died" } });
    expect(server.requests).toHaveLength(3);
  });

  test("that can't be reached has failed, and no user learns where it is", async () => {
    const { answer, server, logged } = await sceneWith(() => {});
    await server[Symbol.asyncDispose]();
    const reply = await answer();
    expect(reply.error).toEqual({
      code: "agent_unreachable",
      message: "cannot reach the agent",
    });
    expect(JSON.stringify(logged)).toContain("ECONNREFUSED");
  });

  test("that hangs up in the middle of a line has its answer cut, and closed properly", async () => {
    const { answer, live } = await sceneWith((response) => {
      response.writeHead(200, sse);
      response.write(events({ type: "start" }, ...saying("one").slice(0, 2)));
      response.write('data: {"type":"text-del', () => response.end());
    });
    expect(await answer()).toMatchObject({
      outcome: "cut",
      parts: [{ type: "text", text: "one", state: "done" }],
      error: { code: "agent_died" },
    });
    expect(live.flatMap(({ chunks }) => chunks).slice(-2)).toEqual([
      { type: "text-end", id: "t" },
      { type: "error", errorText: "the agent disconnected before its answer ended" },
    ]);
  });

  test("whose connection breaks has its answer cut, and isn't called again", async () => {
    const { answer, server } = await sceneWith((response) => {
      response.writeHead(200, sse);
      response.write(events(...saying("one").slice(0, 2)), () => {
        setTimeout(() => response.destroy(), 20);
      });
    });
    expect(await answer()).toMatchObject({ outcome: "cut", error: { code: "agent_died" } });
    expect(server.requests).toHaveLength(1);
  });

  test("that ends without a finish has its answer cut", async () => {
    const { answer } = await sceneWith((response) => {
      response.writeHead(200, sse).end(events({ type: "start" }, ...saying("one")));
    });
    expect(await answer()).toMatchObject({ outcome: "cut", error: { code: "agent_died" } });
  });

  test("whose line never ends is cut off at a limit", async () => {
    const { answer, server } = await sceneWith((response) => {
      response.writeHead(200, sse);
      response.write("data: ");
      const more = () => {
        while (!response.destroyed && response.write("x".repeat(65_536)));
        if (!response.destroyed) response.once("drain", more);
      };
      more();
    });
    expect(await answer()).toMatchObject({
      outcome: "failed",
      error: { code: "answer_too_large" },
    });
    await until("the connection is closed", () => server.open() === 0);
  });

  test("whose answer grows without end is cut at a limit, with what fits", async () => {
    const { answer } = await sceneWith(
      (response) => {
        response.writeHead(200, sse);
        response.write(events({ type: "text-start", id: "t" }));
        const more = () => {
          const piece = events({ type: "text-delta", id: "t", delta: "x".repeat(1_000) });
          while (!response.destroyed && response.write(piece));
          if (!response.destroyed) response.once("drain", more);
        };
        more();
      },
      {},
      { maxReplyBytes: 100_000 },
    );
    const reply = await answer();
    expect(reply).toMatchObject({ outcome: "cut", error: { code: "answer_too_large" } });
    expect(replyText(reply).length).toBeGreaterThan(90_000);
    expect(JSON.stringify(reply.parts).length).toBeLessThan(100_000);
  });

  test("may call 10,000 tools, and no more than a message can hold", async () => {
    const { answer } = await sceneWith((response) => {
      response.writeHead(200, sse);
      for (let call = 0; call < 10_100; call++) {
        const toolCallId = `call-${call}`;
        const input = { type: "tool-input-available", toolCallId, toolName: "look", input: 1 };
        response.write(events(input));
      }
      response.end(events({ type: "finish" }));
    });
    const reply = await answer();
    expect(reply).toMatchObject({ outcome: "cut", error: { code: "answer_too_large" } });
    expect(reply.parts.length).toBeGreaterThan(1_000);
    expect(reply.parts.length).toBeLessThanOrEqual(10_000);
  });

  test("whose text isn't UTF-8, or that no database stores, has it repaired", async () => {
    const { answer, live } = await sceneWith((response) => {
      response.writeHead(200, sse);
      response.write(events({ type: "text-start", id: "t" }));
      response.write(Buffer.from('data: {"type":"text-delta","id":"t","delta":"a'));
      response.write(Buffer.from([0xff, 0xc3]));
      response.write('b\\u0000c\\ud800d"}\n\n');
      response.end(events({ type: "text-end", id: "t" }, { type: "finish" }));
    });
    const reply = await answer();
    expect(reply).toMatchObject({ outcome: "completed" });
    expect(replyText(reply)).toMatch(/^a\ufffd+b\ufffdc\ufffdd$/);
    expect(JSON.stringify(live)).toContain(JSON.stringify(replyText(reply)));
  });

  test("whose first tries fail has its answer, under one webhook id, after its Retry-After", async () => {
    const clock = movableClock();
    const { begin, reply, server } = await sceneWith(
      (response, _, count) => {
        if (count === 1) response.writeHead(429, { "retry-after": "7" }).end();
        else response.writeHead(200, sse).end(fine("at last"));
      },
      {},
      { clock },
    );
    await begin();
    const answered = reply();
    await until("the first try", () => server.requests.length === 1);
    await until("the wait", () => clock.timers === 1);
    await clock.advance(6_999);
    expect(server.requests).toHaveLength(1);
    await clock.advance(1);
    await until("the second try", async () => {
      await clock.advance(1);
      return server.requests.length === 2;
    });
    expect(await answered).toMatchObject({ outcome: "completed" });
    const ids = server.requests.map(({ headers }) => headers["webhook-id"]);
    expect(new Set(ids).size).toBe(1);
  });

  test("that sends something now and then, but never ends, is cut at its deadline", async () => {
    const clock = movableClock();
    let write: ((text: string) => void) | undefined;
    const { begin, reply, server, live } = await sceneWith(
      (response) => {
        response.writeHead(200, sse);
        write = (text) => void response.write(text);
      },
      { idleTimeoutMs: 30_000, deadlineMs: 300_000 },
      { clock },
    );
    await begin();
    await until("the request", () => write);
    write!(events({ type: "text-start", id: "t" }));
    const heard = () => live.flatMap(({ chunks }) => chunks).length;
    for (let said = 0; said < 15; said++) {
      const before = heard();
      write!(events({ type: "text-delta", id: "t", delta: "." }));
      await until("it is heard", async () => {
        await clock.advance(0);
        return heard() > before;
      });
      await clock.advance(20_000);
    }
    expect(await reply()).toMatchObject({
      outcome: "cut",
      parts: [{ text: ".".repeat(15), state: "done" }],
      error: { code: "agent_late" },
    });
    await until("the connection is closed", () => server.open() === 0);
  });

  test("that sends nothing for too long is called again, also while it drips an endless line", async () => {
    const clock = movableClock();
    const { network, bytes } = countingNetwork();
    let write: ((text: string) => void) | undefined;
    const { begin, reply, server } = await sceneWith(
      (response) => {
        response.writeHead(200, sse);
        write = (text) => void response.write(text);
      },
      { retries: 2 },
      { clock, network },
    );
    await begin();
    for (let tries = 1; tries <= 2; tries++) {
      await until("the request", async () => {
        await clock.advance(1);
        return server.requests.length === tries;
      });
      for (let dripped = 0; dripped < 3; dripped++) {
        const before = bytes();
        write!("data: x");
        await until("it has come", () => bytes() > before);
        await clock.advance(10_000);
      }
    }
    expect(await reply()).toMatchObject({ outcome: "failed", error: { code: "agent_silent" } });
    expect(server.requests).toHaveLength(2);
  });

  test("that sends comments while it thinks isn't silent", async () => {
    const clock = movableClock();
    const { network, bytes } = countingNetwork();
    let response: Parameters<Parameters<typeof serve>[0]>[0] | undefined;
    const { begin, reply } = await sceneWith(
      (given) => {
        response = given.writeHead(200, sse);
      },
      {},
      { clock, network },
    );
    await begin();
    await until("the request", () => response);
    for (let said = 0; said < 6; said++) {
      const before = bytes();
      response!.write(": keep-alive\n\n");
      await until("it has come", () => bytes() > before);
      await clock.advance(20_000);
    }
    response!.end(fine());
    expect(await reply()).toMatchObject({ outcome: "completed" });
  });

  test("that never hangs up has answered once it has sent its finish", async () => {
    const clock = movableClock();
    const { begin, reply, live, server } = await sceneWith(
      (response) => void response.writeHead(200, sse).write(fine()),
      {},
      { clock },
    );
    await begin();
    await until("the answer", async () => {
      await clock.advance(1);
      return live.flatMap(({ chunks }) => chunks).some(({ type }) => type === "finish");
    });
    await clock.advance(5_000);
    expect(await reply()).toMatchObject({ outcome: "completed" });
    await until("the connection is closed", () => server.open() === 0);
  });
});
