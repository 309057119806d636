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
    await clock.advance(500);
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
