import { connect, type Socket } from "node:net";
import { SignJWT } from "jose";
import { afterEach, expect, test } from "vitest";
import { movableClock, until } from "../base/movable-clock.contract.ts";
import type { ServerConfig } from "../runtime/server-config.ts";
import { dial, serving, type ServingOptions } from "./serving.contract.ts";

const secret = "a secret of thirty-two characters or more";
const key = "a-key-of-16-chars-or-more";
const otherKey = "another-key-of-16-chars";
const credentials = { tokens: { secret }, apiKeys: [key, otherKey] };

const mib = 1024 * 1024;
const maxPayloadBytes = 16 * mib;
// More than a connection takes that isn't read.
const large = "x".repeat(10 * mib);

const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

const start = (server: ServerConfig, options: ServingOptions = {}) =>
  serving({ ...options, server: { ...credentials, ...server } });

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
    /** Once its answer has begun to come; no more of it is read. */
    async answered() {
      socket.on("readable", () => (isAnswered = true));
      await until("an answer", () => isAnswered);
    },
    ask: (path: string, bearer: string) =>
      socket.write(
        `GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${bearer}\r\n\r\n`,
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
  await clock.advance(30_000);
  slow.socket.removeAllListeners("readable").resume();
  await until("the connection to be cut", () => slow.isClosed);
  await until("room again", async () => {
    const answer = await ask(server.url, path, key);
    await answer.arrayBuffer();
    return answer.status === 200;
  });
});

test("answers that wait to be read are bounded over all callers", async () => {
  await using server = await start({ unreadBytes: 12 * mib }, { maxPayloadBytes });
  const { taskId } = await server.flotilla.enqueue("nobody", large);
  const path = `/v1/tasks/${taskId}`;
  const slow = unread(server.port);
  slow.ask(path, key);
  await slow.answered();
  expect((await ask(server.url, path, otherKey)).status).toBe(503);
  slow.socket.destroy();
  await until("room again", async () => {
    const answer = await ask(server.url, path, otherKey);
    await answer.arrayBuffer();
    return answer.status === 200;
  });
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

test("a user, a key and an address have a rate each, and are told when to come back", async () => {
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
  // Whoever says who they are isn't counted by where they come from, nor is a probe.
  expect(await statuses(otherKey, 1)).toEqual([200]);
  for (let n = 0; n < 20; n++) expect((await ask(server.url, "/health/live")).status).toBe(200);

  await clock.advance(1_000);
  expect(await statuses(eve, 3)).toEqual([403, 403, 503]);
  expect(await statuses("wrong-key-of-16-chars", 1)).toEqual([401]);
});

test("connections that don't say who they are are bounded, and leave room for those that do", async () => {
  const limits = { maxAnonymous: 8, maxAnonymousPerAddress: 6, adminPort: 0 };
  await using server = await start(limits);
  const known = unread(server.port);
  known.ask("/v1/tasks?limit=1", key);
  expect(await known.head()).toMatch(/^HTTP\/1.1 200/);

  const flood = Array.from({ length: 20 }, () => unread(server.port));
  await until(
    "the rest to be turned away",
    () => flood.filter((each) => each.isClosed).length === 14,
  );
  expect((await fetch(`${server.adminUrl}/health/live`)).status).toBe(200);
  expect(known.isClosed).toBe(false);
  const [first] = flood.filter((each) => !each.isClosed);
  first!.ask("/v1/tasks?limit=1", key);
  expect(await first!.head()).toMatch(/^HTTP\/1.1 200/);
  // It isn't one of them any more, so that there is room for one.
  const next = unread(server.port);
  next.ask("/v1/tasks?limit=1", otherKey);
  expect(await next.head()).toMatch(/^HTTP\/1.1 200/);
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
