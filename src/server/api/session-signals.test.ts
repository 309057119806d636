import { SignJWT } from "jose";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { until } from "../../base/contract/movable-clock.ts";
import { durable, later } from "../../durable/index.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { dial, type SocketClient, startTestServer } from "../contract/test-server.ts";

const secret = "a secret of thirty-two characters or more";
const key = "a-key-of-16-chars-or-more";
const viewerKeys = { acme: "a-key-of-a-viewer-of-acme", zeta: "a-key-of-a-viewer-of-zeta" };
let server: Awaited<ReturnType<typeof startTestServer>>;
const sockets: SocketClient[] = [];

/** Waits for a signal, as tools of durable agents do. */
const guide = agent("guide", async function* (context) {
  const isReported = context.messages
    .at(-1)!
    .parts.some(({ state }) => state === "output-available");
  if (isReported) return yield "thank you";
  const schema = z.object({ ok: z.boolean() });
  const wait = async (_input: object, _options: object) => later({ signal: "approve", schema });
  const { ask } = durable(context, { tools: { ask: { execute: wait } } }).tools;
  const toolCallId = "c";
  yield { type: "tool-input-available", toolCallId, toolName: "ask", input: {} } as const;
  const output = await ask.execute({}, { toolCallId });
  yield { type: "tool-output-available", toolCallId, output } as const;
});

/** Asks for an approval before it pays. */
const payer = agent("payer", async function* ({ messages }) {
  const isDecided = messages.at(-1)!.parts.some(({ state }) => state === "approval-responded");
  if (isDecided) return yield "paid";
  const toolCallId = "p";
  yield {
    type: "tool-input-available",
    toolCallId,
    toolName: "pay",
    input: { to: "eve" },
  } as const;
  yield { type: "tool-approval-request", toolCallId, approvalId: "a" } as const;
});

beforeAll(async () => {
  const viewers = Object.entries(viewerKeys).map(
    ([tenant, ofViewer]) => ({ key: ofViewer, role: "viewer", tenant }) as const,
  );
  server = await startTestServer({
    use: [guide, payer],
    server: { tokens: { secret }, apiKeys: [key, ...viewers] },
  });
});
afterEach(() => {
  for (const each of sockets.splice(0)) each.socket.terminate();
});
afterAll(() => server[Symbol.asyncDispose]());

const token = (user: string, claims: Record<string, unknown> = {}) =>
  new SignJWT({ sub: user, tenant: "acme", ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(secret));

/** A session of ada's whose agent waits for the signal. */
async function waiting(name = "guide"): Promise<string> {
  const made = await server.sessions.create("acme", { agents: [name], users: ["ada"] });
  const { sessionId } = made;
  const parts = [{ type: "text", text: "go" }];
  await server.sessions.send("acme", sessionId, { author: "ada", parts });
  await until("it waits", async () => {
    const { lastSeq, state } = await server.sessions.get("acme", sessionId);
    return lastSeq === 2 && state.state === "idle";
  });
  return sessionId;
}

const entriesOf = async (sessionId: string) =>
  (await server.sessions.entries("acme", sessionId, {})).entries;
const answered = (sessionId: string) =>
  until("it goes on", async () => (await entriesOf(sessionId))[3]);

describe("a signal over HTTP", () => {
  const post = async (bearer: string, sessionId: string, body: unknown, more = {}) => {
    const answer = await fetch(`${server.url}/v1/sessions/${sessionId}/signals`, {
      method: "POST",
      headers: {
        Authorization: `Bearer ${bearer}`,
        "Content-Type": "application/json",
        ...more,
      },
      body: JSON.stringify(body),
    });
    // oxlint-disable-next-line typescript/no-explicit-any
    return { status: answer.status, body: (await answer.json()) as any };
  };
  const refusal = (status: number, code: string) => ({ status, body: { error: { code } } });

  test("is the output of the call, once, with its sender as author", async () => {
    const sessionId = await waiting();
    const ada = await token("ada");
    const signal = { name: "approve", payload: { ok: true }, id: "click" };
    expect(await post(ada, sessionId, signal)).toEqual({
      status: 201,
      body: { seq: 3, duplicate: false },
    });
    expect(await post(ada, sessionId, signal)).toEqual({
      status: 200,
      body: { seq: 3, duplicate: true },
    });
    const last = await answered(sessionId);
    expect(last.parts[0]).toMatchObject({ state: "output-available", output: { ok: true } });
    expect((await entriesOf(sessionId))[2]).toMatchObject({ kind: "tool_result", author: "ada" });
    expect(await post(ada, sessionId, { ...signal, id: "again" })).toMatchObject(
      refusal(409, "conflict"),
    );
  });

  const approvalsOf = (sessionId: string) => async (bearer: string) => {
    const answer = await fetch(`${server.url}/v1/approvals?limit=1000`, {
      headers: { Authorization: `Bearer ${bearer}` },
    });
    // oxlint-disable-next-line typescript/no-explicit-any
    const { approvals } = (await answer.json()) as any;
    return approvals.filter((each: { id: string }) => each.id === sessionId);
  };

  test("is no matter for a call that is to be approved, which waits for a person until then", async () => {
    const sessionId = await waiting("payer");
    const list = approvalsOf(sessionId);
    const [found] = await list(viewerKeys.acme);
    expect(found).toMatchObject({
      what: "session",
      name: "payer",
      calls: [{ tool: "pay", toolCallId: "p", approvalId: "a" }],
    });
    expect(JSON.stringify(found)).not.toContain("eve");
    const [{ messageId }] = found.calls;
    const results = [{ toolCallId: "p", approved: true, approvalId: "a" }];
    await server.sessions.toolResult("acme", sessionId, { author: "ada", messageId, results });
    await answered(sessionId);
    expect(await list(key)).toEqual([]);
  });

  test("is among what waits for a person until it was sent, to callers of that tenant", async () => {
    const sessionId = await waiting();
    const list = approvalsOf(sessionId);
    const found = {
      what: "session",
      tenant: "acme",
      name: "guide",
      signal: null,
      calls: [{ tool: "ask", toolCallId: "c", signal: "approve" }],
    };
    expect(await list(key)).toMatchObject([found]);
    expect(await list(viewerKeys.acme)).toMatchObject([found]);
    expect(await list(viewerKeys.zeta)).toEqual([]);
    await post(await token("ada"), sessionId, { name: "approve", payload: { ok: true } });
    await answered(sessionId);
    expect(await list(key)).toEqual([]);
  });

  test("is refused by its schema, with what is wrong, and without a name", async () => {
    const sessionId = await waiting();
    const ada = await token("ada");
    const wrong = await post(ada, sessionId, { name: "approve", payload: { ok: "yes" } });
    expect(wrong).toMatchObject(refusal(400, "invalid_input"));
    expect(wrong.body.error.message).toContain("ok");
    expect(await post(ada, sessionId, { payload: 1 })).toMatchObject(refusal(400, "invalid_input"));
    expect((await entriesOf(sessionId)).length).toBe(2);
  });

  test("of strangers is refused as their messages are, and a program names the author", async () => {
    const sessionId = await waiting();
    const signal = { name: "approve", payload: { ok: true } };
    expect(await post(await token("bob"), sessionId, signal)).toMatchObject(
      refusal(404, "not_found"),
    );
    const reader = await token("ada", { verbs: ["sessions:read"] });
    expect((await post(reader, sessionId, signal)).status).toBe(403);
    const other = await token("ada", { tenant: "other" });
    expect(await post(other, sessionId, signal)).toMatchObject(refusal(404, "not_found"));
    const named = { ...signal, author: "bob" };
    expect((await post(await token("ada"), sessionId, named)).status).toBe(403);
    expect((await entriesOf(sessionId)).length).toBe(2);
    const sent = await post(key, sessionId, named, { "Flotilla-Tenant": "acme" });
    expect(sent.status).toBe(201);
    expect((await entriesOf(sessionId))[2]).toMatchObject({ author: "bob" });
  });
});

describe("a signal over a socket", () => {
  const open = async (user: string) => {
    const headers = { Authorization: `Bearer ${await token(user)}` };
    const client = await dial(server.socketUrl, { headers });
    sockets.push(client);
    return client;
  };

  test("is acked with its entry, and again under the same id", async () => {
    const session = await waiting();
    const client = await open("ada");
    const frame = { type: "signal", session, name: "approve", payload: { ok: true }, id: "s" };
    expect(await client.request(frame)).toMatchObject({ type: "ack", seq: 3 });
    expect(await client.request(frame)).toMatchObject({ type: "ack", seq: 3, duplicate: true });
    const second = await client.request({ ...frame, id: "t" });
    expect(second).toMatchObject({ type: "error", code: "conflict" });
    const last = await answered(session);
    expect(last.parts[0]).toMatchObject({ output: { ok: true } });
  });

  test("is refused by its schema, without a name, and of strangers", async () => {
    const session = await waiting();
    const client = await open("ada");
    const ask = (frame: object) => client.request({ type: "signal", session, ...frame });
    expect(await ask({ name: "approve", payload: 5 })).toMatchObject({ code: "invalid_input" });
    expect(await ask({ payload: 5 })).toMatchObject({ type: "error", code: "invalid_input" });
    const stranger = await open("bob");
    const frame = { type: "signal", session, name: "approve", payload: { ok: true } };
    expect(await stranger.request(frame)).toMatchObject({ code: "not_found" });
    expect((await entriesOf(session)).length).toBe(2);
  });
});
