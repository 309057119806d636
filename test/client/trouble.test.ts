import { SignJWT } from "jose";
import { afterEach, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { type Client, type ClientOptions, createClient } from "../../src/client/index.ts";
import { viewOf } from "../../src/protocol/view.ts";
import { startTestServer, type TestServerOptions } from "../../src/server/contract/test-server.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { type Proxy, startProxy } from "./proxy.ts";

const counting = agent("counting", async function* () {
  for (let n = 0; n < 200; n++) {
    yield `${n} `;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
});
const secret = "a secret of thirty-two characters or more";
const tokenFor = (seconds: number, user = "ada") =>
  new SignJWT({ sub: user, exp: Math.floor(Date.now() / 1_000) + seconds })
    .setProtectedHeader({ alg: "HS256" })
    .sign(new TextEncoder().encode(secret));

type Server = Awaited<ReturnType<typeof startTestServer>>;
const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanUps.splice(0).toReversed()) await each();
});

async function start(options: TestServerOptions = {}): Promise<{ server: Server; proxy: Proxy }> {
  const server = await startTestServer({ use: [counting], ...options });
  cleanUps.push(() => server[Symbol.asyncDispose]());
  const proxy = await startProxy(server.url);
  cleanUps.push(() => proxy.close());
  return { server, proxy };
}
function open(options: ClientOptions): Client {
  const client = createClient(options);
  cleanUps.push(() => client.close());
  return client;
}
const logOf = async (server: Server, id: string) =>
  (await server.sessions.entries("default", id, { after: 0, limit: 1_000 })).entries;

describe("a client with network errors", () => {
  test("sees an answer to its end, however often the connection is cut", async () => {
    const { server, proxy } = await start();
    await server.sessions.create("default", {
      sessionId: "s",
      agents: ["counting"],
      users: ["ada"],
    });
    const session = open({ url: proxy.url, user: "ada" }).session("s");
    const seqs: number[] = [];
    session.on((event) => event.type === "entry" && seqs.push(event.entry.seq));
    await session.send("count");
    for (let cuts = 0; cuts < 10; cuts++) {
      await until("some of it", () => session.get().status === "live");
      proxy.cut();
      await until("the loss", () => session.get().status !== "live");
      if (cuts % 3 === 0) void session.send(`still there? ${cuts}`, { id: `q${cuts}` });
    }
    await until("the end", () => {
      const { state, status, unsent, messages } = session.get();
      const answers = messages.filter(({ role }) => role === "assistant");
      return (
        status === "live" && state.state === "idle" && unsent.length === 0 && answers.length > 1
      );
    });
    const log = await logOf(server, "s");
    expect(session.get().messages).toEqual(viewOf(log));
    expect(seqs).toEqual(log.map(({ seq }) => seq));
    const asked = log.filter(({ role }) => role === "user").map(({ messageId }) => messageId);
    expect(asked.slice(1)).toEqual(["q0", "q3", "q6", "q9"]);
  });

  test("waits for a server that is away, and sends then what is queued", async () => {
    const { server, proxy } = await start();
    await server.sessions.create("default", { sessionId: "s", users: ["ada"] });
    proxy.isUp = false;
    const client = open({ url: proxy.url, user: "ada" });
    const session = client.session("s");
    session.subscribe(() => {});
    const sent = session.send("hello", { id: "m" });
    await until("a try that failed", () => client.connection.get().status === "waiting");
    expect(session.get()).toMatchObject({ status: "away", unsent: [{ id: "m" }] });
    proxy.isUp = true;
    client.reconnect();
    expect(await sent).toEqual({ seq: 1, messageId: "m", duplicate: false });
  });

  test("gets all of a long history, once and in order", async () => {
    const { server } = await start();
    await server.sessions.create("default", { sessionId: "s", users: ["ada"] });
    const count = 10_000;
    for (let at = 0; at < count; at += 500) {
      const parts = [{ type: "text", text: `number ${at}` }];
      const page = Array.from({ length: 500 }, () =>
        server.sessions.send("default", "s", { author: "bob", parts }),
      );
      await Promise.all(page);
    }
    const client = open({ url: server.url, user: "ada" });
    const seqs: number[] = [];
    for await (const event of client.session("s").events()) {
      if (event.type === "entry") seqs.push(event.entry.seq);
      if (seqs.length === count) break;
    }
    expect(seqs).toEqual(Array.from({ length: count }, (_, at) => at + 1));
    expect(client.session("s").get().messages).toHaveLength(count);
    const rest: number[] = [];
    for await (const event of client.session("s").events({ after: count - 2 })) {
      if (event.type === "entry") rest.push(event.entry.seq);
      if (rest.length === 2) break;
    }
    expect(rest).toEqual([count - 1, count]);
  });

  test("comes back where it was cut off because it reads too slowly", async () => {
    const { server, proxy } = await start({ server: { socketBufferBytes: 64 * 1024 } });
    await server.sessions.create("default", { sessionId: "s", users: ["ada"] });
    const session = open({ url: proxy.url, user: "ada" }).session("s");
    let losses = 0;
    session.on(({ type }) => type === "away" && losses++);
    await until("live", () => session.get().status === "live");
    proxy.isHeldUp = true;
    const parts = [{ type: "text", text: "x".repeat(100_000) }];
    for (let n = 0; n < 100; n++)
      await server.sessions.send("default", "s", { author: "bob", parts });
    proxy.isHeldUp = false;
    await until(
      "all of it",
      () => session.get().lastSeq === 100 && session.get().status === "live",
    );
    expect(losses).toBeGreaterThan(0);
    expect(session.get().messages).toHaveLength(100);
  });
});

describe("a client's token", () => {
  /** A fourth of it is left when the next is asked for, which a busy machine needs to bring it. */
  const lifeSeconds = 8;

  test("is renewed on the open connection, before it expires", async () => {
    const { server } = await start({ server: { tokens: { secret } } });
    let asked = 0;
    const client = open({
      url: server.url,
      token: () => {
        asked++;
        return tokenFor(lifeSeconds);
      },
    });
    const states: string[] = [];
    client.connection.subscribe(() => states.push(client.connection.get().status));
    client.inbox().subscribe(() => {});
    await until("three tokens", () => asked === 3);
    expect(states).toEqual(["connecting", "open"]);
    expect(client.connection.get()).toMatchObject({ user: "ada" });
  });

  test("that expires because no other could be had is replaced when the connection is", async () => {
    const { server } = await start({ server: { tokens: { secret } } });
    let asked = 0;
    const client = open({
      url: server.url,
      token() {
        if (++asked === 2) throw new Error("the sign-in is away");
        return tokenFor(asked === 1 ? lifeSeconds : 600);
      },
    });
    const states: string[] = [];
    client.connection.subscribe(() => states.push(client.connection.get().status));
    const inbox = client.inbox();
    inbox.subscribe(() => {});
    await until(
      "another connection",
      () => states.filter((state) => state === "open").length === 2,
    );
    await until("the inbox again", () => inbox.get().status === "live");
    expect(states).toEqual(["connecting", "open", "connecting", "open"]);
  });

  test("that isn't good is reported, and nothing is sent until another is there", async () => {
    const { server } = await start({ server: { tokens: { secret } } });
    await server.sessions.create("default", { sessionId: "s", users: ["ada"] });
    let token = "not.a.token";
    const client = open({ url: server.url, token: () => token });
    const sending = client.session("s").send("hello", { id: "m" });
    await expect(sending).rejects.toMatchObject({ code: "unauthorized" });
    expect(client.connection.get()).toMatchObject({
      status: "refused",
      error: { code: "unauthorized", message: expect.stringContaining("reconnect()") as string },
    });
    await expect(client.session("s").send("again")).rejects.toMatchObject({ code: "unauthorized" });
    token = await tokenFor(600);
    client.session("s").subscribe(() => {});
    client.reconnect();
    await until("live", () => client.session("s").get().status === "live");
    expect(await client.session("s").send("hello", { id: "m" })).toMatchObject({ seq: 1 });
  });

  test("that a subprotocol can't carry is exchanged for a ticket", async () => {
    const key = "a/key=with(odd)characters";
    const { server } = await start({ server: { apiKeys: [key] } });
    const client = open({ url: server.url, token: key, user: "ada", tenant: "acme" });
    client.inbox().subscribe(() => {});
    await until("the inbox", () => client.inbox().get().status === "live");
    expect(client.connection.get()).toEqual({ status: "open", tenant: "acme", user: "ada" });
  });
});
