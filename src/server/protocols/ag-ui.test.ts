import { HttpAgent, type Interrupt, type Message } from "@ag-ui/client";
import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import { textOf } from "../../protocol/message.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { startCuttingProxy } from "../contract/cutting-proxy.ts";
import { startTestServer, type TestServer } from "../contract/test-server.ts";

const key = "a-key-of-16-chars-or-more";
/** Of a program that looks after the fleet besides, and so isn't shown what members see. */
const watchingKey = "a-key-that-watches-the-fleet";
const watchingVerbs = [
  "sessions:read",
  "sessions:write",
  "sessions:create",
  "sessions:any",
  "fleet:read",
] as const;
const secret = "a secret of thirty-two characters or more";
const auth = { Authorization: `Bearer ${key}`, "Flotilla-User": "ada" };
let server: TestServer;
let count = 0;
let asked = 0;
let given: unknown;
/** What `slow` waits for after its first word. */
let gate = Promise.withResolvers<void>();

const echo = agent("echo", async function* ({ messages }) {
  asked++;
  given = messages.at(-1)?.metadata;
  yield `You said: `;
  yield textOf(messages.at(-1)!);
});
const slow = agent("slow", async function* () {
  asked++;
  yield "One, ";
  await gate.promise;
  yield "two.";
});
const mirror = agent("mirror", () => "I am another.");
const tooled = agent("tooled", function* ({ messages }): Generator<Chunk | string> {
  const parts = messages.at(-1)!.parts;
  const done = parts.find(({ toolCallId }) => toolCallId === "c-1");
  if (done) {
    yield done["state"] === "output-denied"
      ? "Then not."
      : `It is ${JSON.stringify(done["output"] ?? done["approval"])}.`;
    return;
  }
  const wants = textOf(messages.at(-1)!);
  yield "Let me see.";
  yield { type: "tool-input-available", toolCallId: "c-1", toolName: "look", input: { at: "x" } };
  if (wants === "buy")
    yield { type: "tool-approval-request", toolCallId: "c-1", approvalId: "p/1" };
  yield { type: "finish", finishReason: "tool-calls" };
});
const broken = agent("broken", { retries: 1 }, () => {
  throw new Error("no");
});

beforeAll(async () => {
  server = await startTestServer({
    use: [echo, mirror, slow, tooled, broken],
    server: { apiKeys: [key, { key: watchingKey, verbs: watchingVerbs }], tokens: { secret } },
  });
});
afterAll(() => server[Symbol.asyncDispose]());

const client = (name: string, options: { url?: string; threadId?: string } = {}) => {
  const { url = server.url, threadId = `t-${++count}` } = options;
  return new HttpAgent({ url: `${url}/v1/agui/${name}`, headers: auth, threadId });
};
const say = (to: HttpAgent, content: string) =>
  to.addMessage({ id: `m-${++count}`, role: "user", content });
const said = (messages: readonly Message[]) =>
  messages.map(({ role, content }) => `${role}: ${typeof content === "string" ? content : ""}`);
const entriesOf = async (threadId: string) =>
  (await server.sessions.entries("default", threadId, {})).entries;
const tokenOf = (user: string) =>
  new SignJWT({
    sub: user,
    tenant: "default",
    verbs: ["sessions:read", "sessions:write", "sessions:create"],
  })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(secret));
const post = (name: string, body: object, headers: object = auth) =>
  fetch(`${server.url}/v1/agui/${name}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(body),
  });

describe("a session as an agent of AG-UI", () => {
  test("is talked to by its own client, message by message, and is the same session for others", async () => {
    const ada = client("echo");
    say(ada, "hello");
    await ada.runAgent({ tools: [{ name: "look", description: "", parameters: {} }] });
    say(ada, "again");
    await ada.runAgent();
    expect(said(ada.messages)).toEqual([
      "user: hello",
      "assistant: You said: hello",
      "user: again",
      "assistant: You said: again",
    ]);
    const session = await server.sessions.get("default", ada.threadId);
    expect(session).toMatchObject({ agents: ["echo"], users: ["ada"], lastSeq: 4 });
    const [first] = await entriesOf(ada.threadId);
    expect(first).toMatchObject({
      author: "ada",
      metadata: { agUi: { tools: [{ name: "look" }] } },
    });
    expect(given).toBeDefined();
  });

  test("goes on through a cut connection: the same run again is the same turn, told whole", async () => {
    await using proxy = await startCuttingProxy(server.url);
    gate = Promise.withResolvers();
    const before = asked;
    const ada = client("slow", { url: proxy.url });
    say(ada, "count");
    const run = ada.runAgent({ runId: "run-1" });
    await until("the first word", () => said(ada.messages).at(-1) === "assistant: One, ");
    proxy.cut();
    await expect(run).rejects.toThrow(/terminated|fetch/);
    const again = ada.runAgent({ runId: "run-1" });
    await until("the connection", () => proxy.open > 0);
    gate.resolve();
    await again;
    expect(said(ada.messages)).toEqual(["user: count", "assistant: One, two."]);
    // Where it has ended meanwhile, it is told again.
    await ada.runAgent({ runId: "run-1" });
    expect(said(ada.messages)).toEqual(["user: count", "assistant: One, two."]);
    expect([asked - before, (await entriesOf(ada.threadId)).length]).toEqual([1, 2]);
  });

  test("is told what the agent says that it asked, and not what another one of the session does", async () => {
    gate = Promise.withResolvers();
    const ada = client("echo");
    const { threadId: sessionId } = ada;
    await server.sessions.create("default", {
      sessionId,
      agents: ["slow", "mirror", "echo"],
      users: ["ada"],
    });
    const parts = [{ type: "text", text: "and you?" }];
    for (const to of ["slow", "mirror"])
      await server.sessions.send("default", sessionId, { author: "ada", to, parts });
    say(ada, "hello");
    const run = ada.runAgent();
    await until("the message", async () => (await entriesOf(sessionId)).length === 3);
    gate.resolve();
    await run;
    // The newest that it was given is what the other one has said.
    expect(said(ada.messages)).toEqual(["user: hello", "assistant: You said: I am another."]);
  });

  test("takes no more results in a run than a session does, whatever they are of", async () => {
    const results = Array.from({ length: 101 }, (_, at) => ({
      id: `r-${at}`,
      role: "tool",
      toolCallId: `c-${at}`,
      content: "1",
    }));
    const calls = results.map(({ toolCallId: id }) => ({
      id,
      type: "function",
      function: { name: "look", arguments: "{}" },
    }));
    const messages = [{ id: "a", role: "assistant", toolCalls: calls }, ...results];
    const run = { threadId: `t-${++count}`, runId: "r", messages, tools: [], context: [] };
    const refused = await post("tooled", run);
    expect(refused.status).toBe(400);
    expect(await refused.text()).toContain("up to 100 results of calls");
  });

  test("hands calls to the client's own tools, and takes their results", async () => {
    const ada = client("tooled");
    say(ada, "look");
    let pending: readonly string[] = [];
    await ada.runAgent(
      {},
      {
        onRunFinishedEvent(event) {
          if (event.outcome === "success") pending = event.pendingToolCallIds;
        },
      },
    );
    expect(pending).toEqual(["c-1"]);
    ada.addMessage({ id: "result-1", role: "tool", toolCallId: "c-1", content: '{"degrees":21}' });
    await ada.runAgent({ runId: "run-2" });
    expect(said(ada.messages).at(-1)).toBe('assistant: It is {"degrees":21}.');
    const results = (await entriesOf(ada.threadId)).filter(({ kind }) => kind === "tool_result");
    expect(results).toMatchObject([
      { author: "ada", results: { results: [{ output: { degrees: 21 } }] } },
    ]);
  });

  test.each([
    ["approved", { status: "resolved", payload: { approved: true } }, true],
    ["denied", { status: "cancelled" }, false],
  ] as const)(
    "interrupts for an approval, and goes on when it is %s",
    async (_, answer, approved) => {
      const ada = client("tooled");
      say(ada, "buy");
      let interrupts: readonly Interrupt[] = [];
      await ada.runAgent(
        {},
        {
          onRunFinishedEvent(event) {
            if (event.outcome === "interrupt") interrupts = event.interrupts;
          },
        },
      );
      expect(interrupts).toMatchObject([{ toolCallId: "c-1" }]);
      await ada.runAgent({ resume: [{ interruptId: interrupts[0]!.id, ...answer }] });
      const results = (await entriesOf(ada.threadId)).filter(({ kind }) => kind === "tool_result");
      expect(results).toMatchObject([{ results: { results: [{ approvalId: "p/1", approved }] } }]);
      expect(said(ada.messages).at(-1)).toMatch(/^assistant: (?:It is|Then not)/);
    },
  );

  test("ends with an error where the agent fails, and as cancelled where it is stopped", async () => {
    const text = await (
      await post("broken", {
        threadId: "b",
        runId: "r",
        messages: [{ id: "1", role: "user", content: "x" }],
      })
    ).text();
    expect(text).toContain("RUN_ERROR");
    gate = Promise.withResolvers();
    const ada = client("slow");
    say(ada, "count");
    let outcome = "";
    const run = ada.runAgent({}, { onRunFinishedEvent: (event) => void ({ outcome } = event) });
    await until("the first word", () => said(ada.messages).at(-1) === "assistant: One, ");
    await server.sessions.stop("default", ada.threadId, { author: "ada", by: "user" });
    gate.resolve();
    await run;
    expect(outcome).toBe("cancelled");
  });

  test.each([
    ["no messages", { messages: "none" }, 400],
    ["no thread", { threadId: "" }, 400],
    ["content of another kind", { messages: [{ id: "1", role: "user", content: 7 }] }, 400],
    ["a reserved id", { messages: [{ id: "@1", role: "user", content: "x" }] }, 400],
    ["a result without its call", { messages: [{ id: "1", role: "tool", toolCallId: "no" }] }, 400],
    ["an interrupt that isn't", { resume: [{ interruptId: "%", status: "resolved" }] }, 400],
    [
      "a result of another's message",
      {
        messages: [
          { id: "no-such", role: "assistant", toolCalls: [{ id: "c-1" }] },
          { id: "1", role: "tool", toolCallId: "c-1", content: "x" },
        ],
      },
      404,
    ],
  ])("refuses %s", async (_, change, status) => {
    const body = { threadId: "hostile", runId: "r", messages: [], ...change };
    const answer = await post("echo", body);
    expect([answer.status, await answer.text()]).toEqual([
      status,
      expect.stringContaining("error"),
    ]);
  });

  describe("is there for members alone", () => {
    const callers = {
      "a key for all sessions that acts for a user": async () => auth,
      "a user's token": async () => ({ Authorization: `Bearer ${await tokenOf("ada")}` }),
    };
    const brought = {
      "a message": { messages: [{ id: "1", role: "user", content: "x" }] },
      nothing: { messages: [] },
      "a decision": {
        messages: [],
        resume: [{ interruptId: "m/c-1/p", status: "resolved", payload: true }],
      },
    };
    test.each(
      Object.keys(callers).flatMap((caller) => Object.keys(brought).map((what) => [caller, what])),
    )("%s brings %s to no session of others, and hears none", async (caller, what) => {
      const headers = await callers[caller as keyof typeof callers]();
      const sessionId = `t-${++count}`;
      const created = { sessionId, agents: ["echo"], users: ["bob"] };
      await server.sessions.create("default", created);
      const parts = [{ type: "text", text: "of bob's own" }];
      await server.sessions.send("default", sessionId, { author: "bob", parts });
      const hasAnswer = async () => (await entriesOf(sessionId)).length === 2;
      await until("the answer", hasAnswer);
      const run = { runId: "r", ...brought[what as keyof typeof brought] };
      const refused = await post("echo", { threadId: sessionId, ...run }, headers);
      const text = await refused.text();
      expect([refused.status, text]).toEqual([409, expect.stringContaining('"conflict"')]);
      expect(text).not.toContain("of bob's own");
      expect(await entriesOf(sessionId)).toHaveLength(2);
      expect((await server.sessions.get("default", sessionId)).users).toEqual(["bob"]);
      // Its own it has by the same credentials.
      const own = await post(
        "echo",
        { threadId: `t-${++count}`, runId: "r", messages: [] },
        headers,
      );
      expect(await own.text()).toContain("RUN_FINISHED");
    });

    test("a caller without credentials is refused before that", async () => {
      const none = await post("echo", { threadId: "any", runId: "r", messages: [] }, {});
      expect(none.status).toBe(401);
    });

    test("a run ends for a user who is removed, though its key may use all sessions", async () => {
      gate = Promise.withResolvers();
      const threadId = `t-${++count}`;
      const messages = [{ id: "1", role: "user", content: "count" }];
      const headers = { ...auth, Authorization: `Bearer ${watchingKey}` };
      const run = await post("slow", { threadId, runId: "r", messages }, headers);
      const removed = await fetch(`${server.url}/v1/sessions/${threadId}/members`, {
        method: "PUT",
        headers: { "Content-Type": "application/json", Authorization: `Bearer ${key}` },
        body: JSON.stringify({ removeUsers: ["ada"] }),
      });
      expect(removed.status).toBe(200);
      expect(await run.text()).toMatch(/"type":"RUN_ERROR".*"code":"not_found"/);
      gate.resolve();
    });
  });

  test("says nothing where there is nothing new, and follows what is being answered", async () => {
    const text = await (await post("echo", { threadId: "idle", runId: "r", messages: [] })).text();
    expect(text).toContain("RUN_STARTED");
    expect(text).toContain("RUN_FINISHED");
  });
});
