import { connect as connectTcp } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import type { FeedEvent, SessionService, Sink } from "../../sessions/service.ts";
import { type SocketClient, dial, textMessage, startTestServer } from "../contract/test-server.ts";

const limitBytes = 128 * 1024;
let server: Awaited<ReturnType<typeof startTestServer>>;
const clients: SocketClient[] = [];
/** What the server was told by its sinks, and where they are. */
const sinks: Sink<FeedEvent>[] = [];
let leaves = 0;
/** How often a sink said that its reader is too slow. */
let cuts = 0;

/** The real service, watched: what joins and leaves is counted. */
const watched = (real: SessionService): SessionService => ({
  ...real,
  join(tenant, session, place, sink) {
    sinks.push(sink);
    const joined = real.join(tenant, session, place, {
      ...sink,
      push(event) {
        const isTaken = sink.push(event);
        if (!isTaken) cuts++;
        return isTaken;
      },
    });
    let left = false;
    return {
      ready: joined.ready,
      leave() {
        // Who is cut off leaves, and once more when the connection has ended.
        if (!left) leaves++;
        left = true;
        joined.leave();
      },
    };
  },
});

beforeAll(async () => {
  server = await startTestServer({ server: { socketBufferBytes: limitBytes }, sessions: watched });
});
afterEach(() => {
  for (const client of clients.splice(0)) client.socket.terminate();
});
afterAll(() => server[Symbol.asyncDispose]());

const open = async () => {
  const client = await dial(`${server.socketUrl}?user=ada`);
  clients.push(client);
  return client;
};

let sessions = 0;
const session = async (texts: readonly string[] = []) => {
  const sessionId = `s${++sessions}`;
  await server.sessions.create("default", { sessionId });
  await Promise.all(
    texts.map((text) =>
      server.sessions.send("default", sessionId, { author: "bob", parts: textMessage(text).parts }),
    ),
  );
  return sessionId;
};

describe("a client that doesn't read", () => {
  test("is cut off when more waits for it than is held, and resumes without a gap", async () => {
    const id = await session();
    const client = await open();
    await client.request({ type: "join", session: id, lastSeq: 0 });
    const text = "x".repeat(60_000);
    let written = 0;
    const write = async () => {
      written++;
      await server.sessions.send("default", id, { author: "bob", parts: textMessage(text).parts });
    };
    // Who is still told what was said before it came isn't cut off, but told no more until it reads.
    while (written < 3) {
      await write();
      await until("what is said", () => client.seqs(id).length === written);
    }
    client.socket.pause();
    const before = { cuts, leaves };
    // More than the network itself holds on both sides, in live events.
    while (cuts === before.cuts && written < 2_000) await write();
    expect(cuts).toBe(before.cuts + 1);
    client.socket.resume();
    const { code } = await client.closed();
    await until("its leave", () => leaves === before.leaves + 1);
    // The word of farewell comes through where what was before it could be read in time.
    expect([4408, 1006]).toContain(code);
    const got = client.seqs(id);
    expect(got).toEqual(got.map((_, at) => at + 1));
    const again = await open();
    await again.request({ type: "join", session: id, lastSeq: got.length });
    await until("the rest", () => got.length + again.seqs(id).length === written);
    expect([...got, ...again.seqs(id)]).toEqual(Array.from({ length: written }, (_, n) => n + 1));
  });

  test("has no more waiting for it than the limit, whatever happens in its sessions", async () => {
    const id = await session();
    const client = await open();
    await client.request({ type: "join", session: id, lastSeq: 0 });
    client.socket.pause();
    const sink = sinks.at(-1)!;
    const chunk = { type: "text-delta", id: "t", delta: "x".repeat(10_000) };
    let taken = 0;
    // The network takes some megabytes; from then on it waits here, and then no more is taken.
    while (
      taken < 100_000 &&
      sink.push({ type: "chunks", epoch: 1, attempt: 1, index: taken, chunks: [chunk] })
    ) {
      taken++;
      if (taken % 5 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    expect(taken).toBeLessThan(100_000);
    const state = { type: "state", state: { state: "idle" } } as const;
    for (let n = 0; n < 1_000; n++) expect(sink.push(state)).toBe(false);
    client.socket.resume();
    await client.closed();
  });

  test("gets a history far longer than the limit, page by page, once it reads", async () => {
    const text = "y".repeat(8_000);
    const id = await session(Array.from({ length: 300 }, () => text));
    const client = await open();
    client.send({ type: "join", ref: 1, session: id, lastSeq: 0 });
    client.socket.pause();
    await until("what fits", () => sinks.length > 0);
    client.socket.resume();
    await until("all of it", () => client.seqs(id).length === 300);
    expect(client.seqs(id)).toEqual(Array.from({ length: 300 }, (_, n) => n + 1));
    expect(client.isOpen).toBe(true);
  });

  test("but sends requests on and on, is cut off as well", async () => {
    const client = await open();
    client.socket.pause();
    const frames = Array.from({ length: 200 }, (_, n) => ({ type: "ping", ref: `${n}` }));
    for (let n = 0; n < 50; n++) client.send(frames);
    client.socket.resume();
    expect([4408, 4429]).toContain((await client.closed()).code);
  });
});

describe("connections that end", () => {
  test("leave nothing behind: not in their sessions, and not where they are counted", async () => {
    const id = await session();
    const begun = sinks.length;
    const before = leaves;
    for (let n = 0; n < 20; n++) {
      const client = await open();
      client.send({ type: "inbox", ref: "i" });
      await client.request({ type: "join", session: id, lastSeq: 0 });
      // Some say goodbye, some just go.
      if (n % 2 === 0) client.close();
      else client.socket.terminate();
    }
    await until("all to leave", () => leaves - before === sinks.length - begun);
    expect(leaves - before).toBe(20);
  });

  test("between the handshake and the answer harm no other connection", async () => {
    for (let n = 0; n < 20; n++) {
      const raw = connectTcp(server.port, "127.0.0.1");
      raw.on("error", () => {});
      const head = "GET /v1/socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n";
      const rest = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ";
      raw.write(`${head}${rest}AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`, () => raw.resetAndDestroy());
      await until("it to go", () => raw.destroyed);
    }
    const client = await open();
    expect((await client.request({ type: "ping" })).type).toBe("pong");
  });
});
