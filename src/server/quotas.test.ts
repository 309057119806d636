import { SignJWT } from "jose";
import { expect, test } from "vitest";
import { movableClock, until } from "../base/contract/movable-clock.ts";
import { agent } from "../sessions/agents/agent.ts";
import type { SessionService } from "../sessions/service.ts";
import { temporaryFile } from "../store/contract/kinds.ts";
import { quotasContract } from "./contract/quotas.ts";
import { dial, startTestServer, textMessage } from "./contract/test-server.ts";

quotasContract("a SQLite file", async () => {
  const { path, remove } = temporaryFile();
  return { store: `sqlite:${path}`, remove };
});

test("what a connection was closed over goes on counting until it is stored", async () => {
  const secret = "a secret of thirty-two characters or more";
  const clock = movableClock(Date.now());
  const storing = Promise.withResolvers<void>();
  let sends = 0;
  const slow = (real: SessionService): SessionService => ({
    ...real,
    async send(...message) {
      if (sends++ === 0) await storing.promise;
      return real.send(...message);
    },
  });
  await using server = await startTestServer({
    server: { tokens: { secret }, quotas: { perTenant: { turnsAtOnce: 1 } } },
    use: [agent("held", ({ signal }) => new Promise((_, reject) => (signal.onabort = reject)))],
    sessions: slow,
    clock,
  });
  const token = await new SignJWT({ sub: "ada", tenant: "acme" })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime(4_102_444_800)
    .sign(new TextEncoder().encode(secret));
  const headers = { Authorization: `Bearer ${token}` };
  const named = { agents: ["held"], users: ["ada"] };
  for (const sessionId of ["first", "second"])
    await server.sessions.create("acme", { sessionId, ...named });
  const begin = (session: string) => ({ type: "send", session, message: textMessage("hi") });

  const leaving = await dial(server.socketUrl, { headers });
  leaving.send({ ref: "r", ...begin("first") });
  await until("the message to be under way", () => sends === 1);
  leaving.socket.terminate();
  await leaving.closed();
  const other = await dial(server.socketUrl, { headers });
  const answer = other.request(begin("second"));
  let isAnswered = false;
  void answer.then(() => (isAnswered = true));
  await until("the answer", async () => {
    // A read of counts that takes two seconds by this clock is given up, and the message is let in.
    await clock.advance(100);
    await new Promise((resolve) => setTimeout(resolve, 20));
    return isAnswered;
  });
  expect(await answer).toMatchObject({ type: "error", code: "overloaded" });
  storing.resolve();
  await until("the turn", async () => {
    const { state } = (await server.sessions.get("acme", "first")).state;
    return state === "catching_up";
  });
  await server.sessions.stop("acme", "first");
  other.close();
});

test("a wake that is due now, and what is said anew in a fork, count as turns", async () => {
  const secret = "a secret of thirty-two characters or more";
  const verbs = ["sessions:read", "sessions:write", "sessions:create"];
  await using server = await startTestServer({
    server: { tokens: { secret }, quotas: { perTenant: { turnsAtOnce: 1 } } },
    use: [agent("held", ({ signal }) => new Promise((_, reject) => (signal.onabort = reject)))],
  });
  const token = await new SignJWT({ sub: "ada", tenant: "acme", verbs })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime(4_102_444_800)
    .sign(new TextEncoder().encode(secret));
  const named = { agents: ["held"], users: ["ada"] };
  for (const sessionId of ["busy", "quiet"])
    await server.sessions.create("acme", { sessionId, ...named });
  const parts = [{ type: "text", text: "hello" }];
  const post = async (path: string, body: object) => {
    const answer = await fetch(`${server.url}/v1/sessions/${path}`, {
      method: "POST",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    return answer.status === 429 ? "refused" : answer.status;
  };
  expect(await post("busy/messages", { id: "said", parts })).toBe(201);
  await until("the turn", async () => {
    const { state } = (await server.sessions.get("acme", "busy")).state;
    return state === "catching_up";
  });
  const soon = [
    { key: "k", afterMs: 59_000 },
    { key: "k", at: 0 },
    { key: "k", at: new Date().toISOString() },
    { key: "k", cron: "* * * * *" },
  ];
  for (const wake of soon) expect(await post("quiet/wakes", wake)).toBe("refused");
  expect(await post("quiet/wakes", { key: "k", afterMs: 3_600_000 })).toBe(201);
  // The parent is in a turn already, but its fork is not.
  for (const id of [undefined, "said", "new"]) {
    const edit = { ...(id !== undefined && { id }), messageId: "said", parts };
    expect([id, await post("busy/edit", edit)]).toEqual([id, "refused"]);
  }
  await server.sessions.stop("acme", "busy");
});
