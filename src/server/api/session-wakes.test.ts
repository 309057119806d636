import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { createClient } from "../../client/client.ts";
import { textOf } from "../../protocol/message.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { startTestServer } from "../contract/test-server.ts";

const secret = "a secret of thirty-two characters or more";
const operatorKey = "an-operators-key-of-the-night";
const backendKey = "a-key-of-the-chats-own-backend";
let server: Awaited<ReturnType<typeof startTestServer>>;
const clock = agent("clock", ({ messages }) => `It is time: ${textOf(messages.at(-1)!)}`);

beforeAll(async () => {
  const apiKeys = [
    { key: operatorKey, role: "operator" as const },
    { key: backendKey, tenant: "acme" },
  ];
  server = await startTestServer({
    use: [clock],
    server: { tokens: { secret, claims: { role: "role" } }, apiKeys },
  });
});
afterAll(() => server[Symbol.asyncDispose]());

const tokenOf = (user: string, claims: Record<string, unknown> = {}) =>
  new SignJWT({ sub: user, tenant: "acme", ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(secret));
const clientOf = async (user: string) => {
  const token = await tokenOf(user);
  return createClient({ url: server.url, token: () => token });
};
const made = async () => {
  const { sessionId } = await server.sessions.create("acme", { agents: ["clock"], users: ["ada"] });
  return sessionId;
};

describe("a wake over HTTP", () => {
  test("fires while no client is there, and the answer is there for the next", async () => {
    const sessionId = await made();
    const page = await clientOf("ada");
    const set = await page.sessions.wake(sessionId, {
      key: "tea",
      afterMs: 500,
      message: "tea",
    });
    expect(set).toMatchObject({ key: "tea", seq: 1, duplicate: false });
    page.close();
    await until("it has fired", async () => {
      const { lastSeq, state } = await server.sessions.get("acme", sessionId);
      return lastSeq === 3 && state.state === "idle";
    });
    const again = await clientOf("ada");
    const session = again.session(sessionId);
    const stop = session.subscribe(() => {});
    await until("it is shown", () => session.get().messages.length === 1);
    expect(textOf(session.get().messages[0]!)).toBe("It is time: tea");
    expect(await again.sessions.wakes(sessionId)).toEqual([]);
    stop();
    again.close();
  });

  test("is listed, set again and cancelled by members, and by no others", async () => {
    const sessionId = await made();
    const ada = await clientOf("ada");
    const eve = await clientOf("eve");
    const wake = { key: "a/b c", cron: "0 9 * * *", timezone: "Europe/Berlin", id: "one" };
    const first = await ada.sessions.wake(sessionId, wake);
    expect(await ada.sessions.wake(sessionId, wake)).toEqual({ ...first, duplicate: true });
    const { cron, timezone } = wake;
    expect(await ada.sessions.wakes(sessionId)).toMatchObject([
      { key: "a/b c", author: "ada", agent: "clock", cron, timezone, setSeq: 1 },
    ]);
    const refused = { code: "not_found" };
    await expect(eve.sessions.wake(sessionId, wake)).rejects.toMatchObject(refused);
    await expect(eve.sessions.wakes(sessionId)).rejects.toMatchObject(refused);
    await expect(eve.sessions.cancelWake(sessionId, wake.key)).rejects.toMatchObject(refused);
    const wrong = ada.sessions.wake(sessionId, { key: "k", cron: "* * * * * *" });
    await expect(wrong).rejects.toMatchObject({ code: "invalid_option" });
    expect(await ada.sessions.cancelWake(sessionId, wake.key)).toBe(true);
    expect(await ada.sessions.cancelWake(sessionId, wake.key)).toBe(false);
    ada.close();
    eve.close();
  });

  test("is set in no user's name by an operator, who may list and cancel it", async () => {
    const sessionId = await made();
    const wake = { key: "tea", afterMs: 3_600_000, message: "in my name", author: "ada" };
    const ask = async (bearer: string, method: string, path = "", body?: object) => {
      const answer = await fetch(`${server.url}/v1/sessions/${sessionId}/wakes${path}`, {
        method,
        headers: {
          Authorization: `Bearer ${bearer}`,
          "Flotilla-Tenant": "acme",
          "Flotilla-User": "ada",
          ...(body && { "Content-Type": "application/json" }),
        },
        ...(body && { body: JSON.stringify(body) }),
      });
      return { status: answer.status, body: (await answer.json()) as object };
    };
    const writer = await tokenOf("eve", { role: "operator", verbs: ["sessions:write"] });
    expect((await ask(operatorKey, "POST", "", wake)).status).toBe(403);
    const { author: _, ...own } = wake;
    const eves = { Authorization: `Bearer ${writer}`, "Content-Type": "application/json" };
    const asEve = await fetch(`${server.url}/v1/sessions/${sessionId}/wakes`, {
      method: "POST",
      headers: eves,
      body: JSON.stringify(own),
    });
    expect(asEve.status).toBe(404);
    expect((await server.sessions.get("acme", sessionId)).lastSeq).toBe(0);
    // A program that may send messages for its users may set wakes for them.
    expect((await ask(backendKey, "POST", "", wake)).status).toBe(201);
    expect(await ask(operatorKey, "GET")).toMatchObject({
      status: 200,
      body: { wakes: [{ key: "tea", author: "ada" }] },
    });
    expect(await ask(operatorKey, "DELETE", "/tea")).toEqual({ status: 200, body: { done: true } });
  });

  test("has an id of its own: none of an agent's, and none of what else was said", async () => {
    const sessionId = await made();
    const ada = await clientOf("ada");
    const taken = { code: "invalid_input" };
    const wake = { key: "tea", afterMs: 3_600_000 };
    const id = "@wake/0";
    await expect(ada.sessions.wake(sessionId, { ...wake, id })).rejects.toMatchObject(taken);
    const { sessions } = server;
    const signal = { id, name: "s", author: "ada" };
    await expect(sessions.signal("acme", sessionId, signal)).rejects.toMatchObject(taken);
    await expect(sessions.regenerate("acme", sessionId, { id })).rejects.toMatchObject(taken);
    const results = [{ toolCallId: "c", output: 1 }];
    const result = { id, author: "ada", messageId: "m", results };
    await expect(sessions.toolResult("acme", sessionId, result)).rejects.toMatchObject(taken);
    const said = { id: "one", author: "ada", parts: [{ type: "text", text: "hello" }] };
    await sessions.send("acme", sessionId, said);
    const conflict = { code: "conflict" };
    await expect(ada.sessions.wake(sessionId, { ...wake, id: "one" })).rejects.toMatchObject(
      conflict,
    );
    await ada.sessions.wake(sessionId, { ...wake, id: "two" });
    const other = { ...wake, key: "coffee", id: "two" };
    await expect(ada.sessions.wake(sessionId, other)).rejects.toMatchObject(conflict);
    expect(await ada.sessions.wake(sessionId, { ...wake, id: "two" })).toMatchObject({
      duplicate: true,
    });
    ada.close();
  });
});
