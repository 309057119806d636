import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SignJWT } from "jose";
import { afterEach, expect, test, vi } from "vitest";
import type { Logger } from "../../base/log.ts";
import { movableClock, eventLoopTurns, until } from "../../base/contract/movable-clock.ts";
import type { ServerConfig } from "../../runtime/server-config.ts";
import type { FeedEvent, Sink } from "../../sessions/service.ts";
import { defaultAnonymousLimits } from "./anonymous-connections.ts";
import {
  type SocketClient,
  dial,
  startTestServer,
  type TestServerOptions,
} from "../contract/test-server.ts";

const secret = "a secret of thirty-two characters or more";
const key = "a-key-of-16-chars-or-more";
const otherKey = "another-key-of-16-chars";
const credentials = { tokens: { secret }, apiKeys: [key, otherKey] };

const mib = 1024 * 1024;
const maxPayloadBytes = 16 * mib;
// More than a connection takes that isn't read.
const large = "x".repeat(10 * mib);

const sockets: Socket[] = [];
const clients: SocketClient[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const client of clients.splice(0)) client.socket.terminate();
});

const start = (server: ServerConfig, options: TestServerOptions = {}) =>
  startTestServer({ ...options, server: { ...credentials, ...server } });

const tokenOf = (user: string) =>
  new SignJWT({ sub: user, tenant: "acme", verbs: ["sessions:read", "sessions:create"] })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime(4_102_444_800)
    .sign(new TextEncoder().encode(secret));

/** A connection of its own, of which nothing is read before it is told to. */
function unread(port: number) {
  const socket = connect(port, "127.0.0.1");
  sockets.push(socket);
  let isClosed = false;
  let isAnswered = false;
  let text = "";
  socket.on("error", () => {});
  socket.on("close", () => (isClosed = true));
  return {
    socket,
    get isClosed() {
      return isClosed;
    },
    /** What was read since `head`. */
    get text() {
      return text;
    },
    /** Once its answer has begun to come; no more of it is read. */
    async answered() {
      socket.on("readable", () => (isAnswered = true));
      await until("an answer", () => isAnswered);
    },
    ask: (path: string, bearer: string, times = 1) =>
      socket.write(
        `GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${bearer}\r\n\r\n`.repeat(
          times,
        ),
      ),
    /** Reads until there is a head. */
    async head(): Promise<string> {
      socket.on("data", (data: Buffer) => (text += data.toString("latin1")));
      return until("a head", () => /^HTTP[^]*?\r\n\r\n/.exec(text)?.[0]);
    },
  };
}

const ask = (url: string, path: string, bearer?: string, init: RequestInit = {}) =>
  fetch(`${url}${path}`, {
    ...init,
    headers: {
      ...(bearer !== undefined && { Authorization: `Bearer ${bearer}` }),
      "Content-Type": "application/json",
    },
  });

test("a caller that leaves answers unread gets no more, others do, and what isn't read is cut", async () => {
  const clock = movableClock();
  await using server = await start({ unreadBytesPerCaller: 12 * mib }, { clock, maxPayloadBytes });
  const { taskId } = await server.flotilla.enqueue("nobody", large);
  const path = `/v1/tasks/${taskId}`;

  const slow = unread(server.port);
  slow.ask(path, key);
  await slow.answered();
  const refused = await ask(server.url, path, key);
  expect(refused.status).toBe(503);
  expect(refused.headers.get("retry-after")).toBe("1");
  expect(await refused.json()).toMatchObject({ error: { code: "overloaded" } });
  expect((await ask(server.url, "/v1/tasks?limit=1", otherKey)).status).toBe(200);

  // 30 s for each MiB that was begun.
  await clock.advance(10 * 30_000);
  expect(slow.isClosed).toBe(false);
  await clock.advance(35_000);
  slow.socket.removeAllListeners("readable");
  await slow.head();
  await until("the connection to be cut", () => slow.isClosed);
  expect(slow.text.length).toBeLessThan(10 * mib);
  await until("room again", async () => {
    const answer = await ask(server.url, path, key);
    await answer.arrayBuffer();
    return answer.status === 200;
  });
});

test("an answer that is read slowly isn't cut, however long that takes", async () => {
  const clock = movableClock();
  await using server = await start({ unreadMs: 1_000 }, { clock, maxPayloadBytes });
  const { taskId } = await server.flotilla.enqueue("nobody", large);
  const slow = unread(server.port);
  slow.ask(`/v1/tasks/${taskId}`, key);
  let read = 0;
  for (const upTo of Array.from({ length: 10 }, (_, n) => n * mib)) {
    await until("a part of it", () => {
      while (read < upTo) {
        const more = slow.socket.read() as Buffer | null;
        if (!more) return false;
        read += more.length;
      }
      return true;
    });
    // Ten seconds would be enough for all of it, were it not for what is read meanwhile.
    await clock.advance(3_000);
  }
  slow.socket.on("data", (more: Buffer) => (read += more.length));
  await until("the rest", () => read >= 10 * mib);
  expect(slow.isClosed).toBe(false);
});

test("answers that wait to be read are bounded over all callers, and callers that read theirs get them", async () => {
  await using server = await start(
    { unreadBytes: 25 * mib, unreadBytesPerCaller: 64 * mib },
    { maxPayloadBytes },
  );
  const { taskId } = await server.flotilla.enqueue("nobody", large);
  const path = `/v1/tasks/${taskId}`;
  const [eve, other] = [unread(server.port), unread(server.port)];
  for (const each of [eve, other]) {
    each.ask(path, key);
    await each.answered();
  }
  // One that would hold as much as those.
  const third = unread(server.port);
  third.ask(path, key);
  expect(await third.head()).toMatch(/^HTTP\/1.1 503 [^]*retry-after: 1/i);

  const answer = await ask(server.url, path, otherKey);
  expect(answer.status).toBe(200);
  expect((await answer.arrayBuffer()).byteLength).toBeGreaterThan(10 * mib);
  const body = JSON.stringify({ name: "nobody", input: 1 });
  const done = await ask(server.url, "/v1/tasks", otherKey, { method: "POST", body });
  expect(done.status).toBe(201);
  // Of what its caller left unread the oldest was given up for that.
  for (const each of [eve, other]) {
    each.socket.removeAllListeners("readable");
    await each.head();
  }
  await until("the oldest to be cut", () => eve.isClosed);
  await until("the other to be read", () => other.text.length > 10 * mib);
  expect(eve.text.length).toBeLessThan(10 * mib);
});

test("files of a page take no slots, however many are left unread", async () => {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-page-"));
  writeFileSync(join(folder, "index.html"), "<p>hello");
  writeFileSync(join(folder, "large.bin"), large);
  await using server = await start({ pages: { "/chat": folder }, unreadBytesPerCaller: mib });
  rmSync(folder, { recursive: true });
  for (let n = 0; n < 4; n++) {
    const slow = unread(server.port);
    slow.ask("/chat/large.bin", "");
    await slow.answered();
  }
  const answer = await ask(server.url, "/chat/large.bin");
  expect(answer.status).toBe(200);
  expect(Buffer.from(await answer.arrayBuffer()).equals(Buffer.from(large))).toBe(true);
});

/** Sinks of all that joins a session, at a server that allows much on each connection. */
async function watched(limits: ServerConfig) {
  const sinks: Sink<FeedEvent>[] = [];
  const server = await start(
    { socketBufferBytes: 512 * mib, ...limits },
    {
      sessions: (real) => ({
        ...real,
        join(tenant, session, place, sink) {
          sinks.push(sink);
          return real.join(tenant, session, place, sink);
        },
      }),
    },
  );
  await server.sessions.create("acme", { sessionId: "long", users: ["eve"] });
  let index = 0;
  const chunk = { type: "text-delta", id: "t", delta: "x".repeat(100_000) };
  /** Tells all of them the same; false of one that takes no more. */
  const tell = async () => {
    index++;
    const event = { type: "chunks", epoch: 1, attempt: 1, index, chunks: [chunk] } as const;
    const taken = sinks.map((sink) => sink.push(event));
    await eventLoopTurns(1);
    return taken;
  };
  return { server, sinks, tell };
}

test.each(["a program's sockets", "a user's streams"])(
  "what waits for %s is bounded over all of them, and one is cut",
  async (what) => {
    const { server, sinks, tell } = await watched({ unreadBytesPerCaller: 6 * mib });
    await using _ = server;
    const headers = { authorization: `Bearer ${key}`, "flotilla-tenant": "acme" };
    const eve = await tokenOf("eve");
    for (let n = 0; n < 3; n++) {
      if (what === "a user's streams") {
        const reader = unread(server.port);
        reader.ask("/v1/sessions/long/events", eve);
        await reader.answered();
      } else {
        const client = await dial(server.socketUrl, { headers });
        await client.request({ type: "join", session: "long", lastSeq: 0 });
        client.socket.pause();
        clients.push(client);
      }
      await until("it to be joined", () => sinks.length === n + 1);
    }
    let told = 0;
    let taken = [true];
    // The network takes some megabytes of each.
    while (taken.every(Boolean) && told++ < 1_000) taken = await tell();
    expect(taken.filter(Boolean)).toHaveLength(2);
    expect(told).toBeLessThan(1_000);
  },
);

test("exports that aren't read count, and what goes over is cut without an error on the console", async () => {
  const printed = vi.spyOn(console, "error");
  const held = Promise.withResolvers<void>();
  await using server = await start(
    { unreadBytesPerCaller: 11 * mib },
    {
      maxPayloadBytes,
      sessions: (real) => ({
        ...real,
        async entries(tenant, session, place) {
          if (session === "paged" && place?.after === 1) await held.promise;
          return real.entries(tenant, session, place);
        },
      }),
    },
  );
  const say = async (session: string, texts: string[]) => {
    await server.sessions.create("acme", { sessionId: session, users: ["eve"] });
    for (const text of texts) {
      const parts = [{ type: "text", text } as const];
      await server.sessions.send("acme", session, { author: "eve", parts });
    }
  };
  await say("long", [large]);
  // What doesn't fit into the first page comes in the next.
  await say("paged", ["first", "x".repeat(2 * mib)]);
  const eve = await tokenOf("eve");
  const path = (session: string) => `/v1/sessions/${session}/export`;
  const whole = await ask(server.url, path("long"), eve);
  expect((await whole.text()).split("\n").filter(Boolean)).toHaveLength(2);

  const paged = unread(server.port);
  paged.ask(path("paged"), eve);
  expect(await paged.head()).toMatch(/^HTTP\/1.1 200/);
  await until("its first page", () => paged.text.includes("first"));
  const slow = unread(server.port);
  slow.ask(path("long"), eve);
  await slow.answered();
  const refused = await ask(server.url, path("long"), eve);
  expect(refused.status).toBe(503);
  expect(refused.headers.get("retry-after")).toBe("1");

  // With its second page the caller would hold too much.
  held.resolve();
  await until("it to be cut", () => paged.isClosed);
  expect(paged.text).not.toContain('"seq":2');
  expect(slow.isClosed).toBe(false);
  expect(printed).not.toHaveBeenCalled();
  printed.mockRestore();
});

test("requests and sockets of one user under way are bounded, and those of others go on", async () => {
  let release = () => {};
  const gate = new Promise<void>((resolve) => (release = resolve));
  let waiting = 0;
  await using server = await start(
    { requestsAtOnce: { user: 5 } },
    {
      sessions: (real) => ({
        ...real,
        async list(...asked) {
          waiting++;
          await gate;
          return real.list(...asked);
        },
      }),
    },
  );
  const [eve, ada] = [await tokenOf("eve"), await tokenOf("ada")];
  const socket = await dial(server.socketUrl, { headers: { authorization: `Bearer ${eve}` } });
  const held = Array.from({ length: 4 }, () => ask(server.url, "/v1/sessions", eve));
  await until("them to be under way", () => waiting === 4);
  const refused = await ask(server.url, "/v1/sessions/none", eve);
  expect(refused.status).toBe(503);
  expect(refused.headers.get("retry-after")).toBe("1");
  const another = dial(server.socketUrl, { headers: { authorization: `Bearer ${eve}` } });
  await expect(another).rejects.toMatchObject({ status: 503, code: "overloaded" });
  expect((await ask(server.url, "/v1/sessions/none", ada)).status).toBe(404);

  release();
  for (const each of held) expect((await each).status).toBe(200);
  await until("room again", async () => {
    const answer = await ask(server.url, "/v1/sessions/none", eve);
    await answer.arrayBuffer();
    return answer.status === 404;
  });
  socket.close();
});

test("requests whose clients have hung up count until their work has ended", async () => {
  let release = () => {};
  const gate = new Promise<void>((resolve) => (release = resolve));
  let asked = 0;
  await using server = await start(
    { requestsAtOnce: { user: 4 } },
    {
      sessions: (real) => ({
        ...real,
        async get(...given) {
          asked++;
          await gate;
          return real.get(...given);
        },
      }),
    },
  );
  const [eve, ada] = [await tokenOf("eve"), await tokenOf("ada")];
  for (let n = 1; n <= 4; n++) {
    const gone = unread(server.port);
    gone.ask(`/v1/sessions/s${n}`, eve);
    await until("it to be under way", () => asked === n);
    gone.socket.destroy();
  }
  await eventLoopTurns(20);
  expect((await ask(server.url, "/v1/sessions?limit=1", eve)).status).toBe(503);
  expect((await ask(server.url, "/v1/sessions?limit=1", ada)).status).toBe(200);
  release();
  await until("room again", async () => {
    const answer = await ask(server.url, "/v1/sessions?limit=1", eve);
    await answer.arrayBuffer();
    return answer.status === 200;
  });
});

test("requests that wait behind others on a connection are over with it", async () => {
  // What is left unread is bounded too, but that isn't what is looked at here.
  const limits = { requestsAtOnce: { key: 4 }, unreadBytesPerCaller: 256 * mib };
  await using server = await start(limits, { maxPayloadBytes });
  const { taskId } = await server.flotilla.enqueue("nobody", large);
  const status = async () => {
    const answer = await ask(server.url, "/v1/tasks/none", key);
    await answer.arrayBuffer();
    return answer.status;
  };
  const gone = unread(server.port);
  gone.ask(`/v1/tasks/${taskId}`, key, 4);
  await until("them to be under way", async () => (await status()) === 503);
  gone.socket.destroy();
  const room = await until("room for four again", async () => {
    const found = await Promise.all(Array.from({ length: 4 }, status));
    return found.every((each) => each === 404);
  });
  expect(room).toBe(true);
});

test("pages that one caller requests wait behind one another, not those of others behind them", async () => {
  const order: string[] = [];
  let release = () => {};
  const gate = new Promise<void>((resolve) => (release = resolve));
  await using server = await start(
    {},
    {
      sessions: (real) => ({
        ...real,
        async list(tenant, options) {
          order.push(options?.user ?? "");
          await gate;
          return real.list(tenant, options);
        },
      }),
    },
  );
  const [eve, ada] = [await tokenOf("eve"), await tokenOf("ada")];
  const held = Array.from({ length: 40 }, () => ask(server.url, "/v1/sessions", eve));
  await until("as many as are read at once", () => order.length === 8);
  await until("the rest to wait", async () => {
    const { status } = await ask(server.url, "/v1/sessions/none", eve);
    return status === 404;
  });
  const left = unread(server.port);
  left.ask("/v1/sessions", await tokenOf("bob"));
  held.push(ask(server.url, "/v1/sessions", ada));
  await ask(server.url, "/v1/sessions/none", ada);
  left.socket.destroy();
  await eventLoopTurns(20);
  release();
  for (const each of held) expect((await each).status).toBe(200);
  // Behind those under way, and one more of the long line for each place at most.
  expect(order.indexOf("ada")).toBeLessThan(24);
  // A client that has left isn't read for.
  expect(order).not.toContain("bob");
});

test("a user, a key and an address have a rate each, and get a time to retry", async () => {
  const clock = movableClock();
  const requestsPerSecond = { user: 2, key: 3, address: 4 };
  await using server = await start({ requestsPerSecond }, { clock });
  const [eve, ada] = [await tokenOf("eve"), await tokenOf("ada")];
  const statuses = async (bearer: string, times: number) => {
    const found: number[] = [];
    for (let n = 0; n < times; n++) {
      found.push((await ask(server.url, "/v1/sessions?limit=1&user=x", bearer)).status);
    }
    return found;
  };
  const list = (status: number, times: number) => Array.from({ length: times }, () => status);
  expect(await statuses(eve, 5)).toEqual([...list(403, 4), 503]);
  expect(await statuses(ada, 1)).toEqual([403]);
  expect(await statuses(key, 7)).toEqual([...list(200, 6), 503]);
  expect(await statuses(otherKey, 1)).toEqual([200]);
  expect(await statuses("wrong-key-of-16-chars", 9)).toEqual([...list(401, 8), 503]);
  const headers = { authorization: "Bearer wrong-key-of-16-chars" };
  await expect(dial(server.socketUrl, { headers })).rejects.toMatchObject({ status: 503 });
  // A caller that says who it is isn't counted by its address, nor is a probe.
  expect(await statuses(otherKey, 1)).toEqual([200]);
  for (let n = 0; n < 20; n++) expect((await ask(server.url, "/health/live")).status).toBe(200);

  await clock.advance(1_000);
  expect(await statuses(eve, 3)).toEqual([403, 403, 503]);
  expect(await statuses("wrong-key-of-16-chars", 1)).toEqual([401]);
});

test("anonymous connections are bounded, and leave slots for authenticated ones", async () => {
  const limits = { maxAnonymous: 8, maxAnonymousPerAddress: 6, adminPort: 0 };
  await using server = await start(limits);
  const known = await dial(server.socketUrl, { headers: { authorization: `Bearer ${key}` } });
  clients.push(known);

  const flood = Array.from({ length: 20 }, () => unread(server.port));
  await until(
    "the rest to be turned away",
    () => flood.filter((each) => each.isClosed).length === 14,
  );
  expect((await fetch(`${server.adminUrl}/health/live`)).status).toBe(200);
  expect(known.isOpen).toBe(true);
  const [first] = flood.filter((each) => !each.isClosed);
  first!.ask("/v1/tasks?limit=1", key);
  expect(await first!.head()).toMatch(/^HTTP\/1.1 200/);
  // It isn't one of them any more, so that one more may come.
  const next = unread(server.port);
  next.ask("/v1/tasks?limit=1", otherKey);
  expect(await next.head()).toMatch(/^HTTP\/1.1 200/);
});

test("connections of one user leave slots for those of others, however many are authenticated", async () => {
  const limits = { maxConnections: 16, maxAnonymous: 8, requestsAtOnce: { user: 4 } };
  await using server = await start(limits);
  const [eve, ada] = [await tokenOf("eve"), await tokenOf("ada")];
  const open = async (token: string) => {
    const connection = unread(server.port);
    connection.ask("/v1/sessions/none", token);
    expect(await connection.head()).toMatch(/^HTTP\/1.1 404/);
    return connection;
  };
  const kept: ReturnType<typeof unread>[] = [];
  for (let n = 0; n < 16; n++) kept.push(await open(eve));
  expect((await open(ada)).isClosed).toBe(false);
  // Four are hers, and the others are among those that may be of any caller.
  await until("the rest to be ended", () => kept.filter((each) => !each.isClosed).length <= 12);
});

test("where silent connections take all slots, a fresh one that authenticates gets in", async () => {
  await using server = await start({ maxAnonymous: 4, maxAnonymousPerAddress: 4 });
  const silent = Array.from({ length: 4 }, () => unread(server.port));
  await until("them to be open", () => silent.every(({ socket }) => !socket.connecting));
  for (let n = 0; n < 3; n++) {
    const fresh = unread(server.port);
    fresh.ask("/v1/tasks?limit=1", key);
    expect(await fresh.head()).toMatch(/^HTTP\/1.1 200/);
  }
  // One gave its place to the first, and the others to those after it.
  await until("the oldest to be ended", () => silent[0]!.isClosed);
});

test("a small server leaves slots for connections that have yet to authenticate", () => {
  expect(defaultAnonymousLimits(10)).toEqual({ max: 10, maxPerAddress: 10 });
  expect(defaultAnonymousLimits(200)).toEqual({ max: 128, maxPerAddress: 64 });
  expect(defaultAnonymousLimits(10_000)).toEqual({ max: 5_000, maxPerAddress: 1_000 });
  expect(defaultAnonymousLimits(10_000, 8)).toEqual({ max: 8, maxPerAddress: 8 });
});

test("sockets that are refused for overload are logged, a line for all", async () => {
  const lines: object[] = [];
  const note = (fields: object) => void lines.push(fields);
  const log: Logger = { debug() {}, info() {}, warn: note, error: note };
  const clock = movableClock();
  await using server = await start({ requestsPerSecond: { key: 1 } }, { clock, log });
  const headers = { authorization: `Bearer ${key}` };
  for (let n = 0; n < 2; n++) (await dial(server.socketUrl, { headers })).close();
  for (let n = 0; n < 5; n++) {
    const refused = dial(server.socketUrl, { headers });
    await expect(refused).rejects.toMatchObject({ status: 503 });
  }
  expect(lines).toEqual([{ code: "overloaded", refused: 1 }]);
});

test("health and metrics can have a port of their own, which answers nothing else", async () => {
  await using server = await start({ adminPort: 0 });
  const url = server.adminUrl!;
  expect((await ask(url, "/health/live")).status).toBe(200);
  await until("it to be ready", async () => (await ask(url, "/health/ready")).status === 200);
  expect((await ask(url, "/metrics")).status).toBe(401);
  expect((await ask(url, "/metrics", key)).status).toBe(200);
  expect((await ask(url, "/v1/tasks", key)).status).toBe(404);
  expect((await ask(server.url, "/health/live")).status).toBe(200);
  await server.close();
  await expect(ask(url, "/health/live")).rejects.toThrow("fetch failed");
});
