import { randomBytes } from "node:crypto";
import { connect as connectTcp, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { until } from "../../base/contract/movable-clock.ts";
import type { InboxEvent } from "../../sessions/service.ts";
import { filterInbox } from "../auth/members.ts";
import { type SocketClient, dial, textMessage, startTestServer } from "../contract/test-server.ts";

let server: Awaited<ReturnType<typeof startTestServer>>;
let session: string;
const clients: SocketClient[] = [];
const raws: Socket[] = [];

beforeAll(async () => {
  server = await startTestServer({ maxPayloadBytes: 64 * 1024 });
  ({ sessionId: session } = await server.sessions.create("default", { users: ["ada"] }));
});
afterEach(() => {
  for (const client of clients.splice(0)) client.socket.terminate();
  for (const raw of raws.splice(0)) raw.destroy();
});
afterAll(() => server[Symbol.asyncDispose]());

const open = async () => {
  const client = await dial(`${server.socketUrl}?user=ada`);
  clients.push(client);
  return client;
};

/** All other clients are still served. */
const expectServing = async () => {
  const other = await open();
  expect((await other.request({ type: "ping" })).type).toBe("pong");
};

describe("a frame that makes no sense is refused, and the connection goes on", () => {
  const send = (message: string) =>
    `{"type":"send","ref":1,"session":"$","message":{"parts":[${message}]}}`;
  const deep = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;

  test.each([
    ["no JSON", "{", "invalid_input"],
    ["no frame", "7", "invalid_input"],
    ["no type", `{"ref":1}`, "invalid_input"],
    ["no ref", `{"type":"ping"}`, "invalid_input"],
    ["a place of -1", `{"type":"join","ref":1,"session":"$","lastSeq":-1}`, "invalid_input"],
    ["a place of 1e400", `{"type":"join","ref":1,"session":"$","lastSeq":1e400}`, "invalid_input"],
    ['a place of "1"', `{"type":"join","ref":1,"session":"$","lastSeq":"1"}`, "invalid_input"],
    [
      "a place of 2^53+1",
      `{"type":"join","ref":1,"session":"$","lastSeq":9007199254740993}`,
      "invalid_input",
    ],
    ["no place", `{"type":"join","ref":1,"session":"$"}`, "invalid_input"],
    ["an unknown session", `{"type":"join","ref":1,"session":"x","lastSeq":0}`, "not_found"],
    ["a NUL", send(`{"type":"text","text":"\\u0000"}`), "payload_not_storable"],
    ["half a surrogate pair", send(`{"type":"text","text":"\\ud800"}`), "payload_not_storable"],
    ["65 levels", send(`{"type":"x","x":${deep(65)}}`), "payload_too_deep"],
    ["30,000 levels", send(`{"type":"x","x":${deep(30_000)}}`), "payload_too_deep"],
    [
      "more than a message may hold",
      send(`{"type":"text","text":"${"x".repeat(70_000)}"}`),
      "payload_too_large",
    ],
    [
      "fields of a prototype",
      `{"type":"send","ref":1,"__proto__":{"session":"$","message":{"parts":[]}}}`,
      "invalid_input",
    ],
    ["a session that is one", `{"type":"leave","ref":1,"session":{}}`, "invalid_input"],
    [
      "too many frames at once",
      `[${Array(201).fill(`{"type":"ping","ref":1}`).join(",")}]`,
      "invalid_input",
    ],
  ])("%s", async (_, text, code) => {
    const client = await open();
    client.send(text.replaceAll("$", session));
    const error = await client.find("error");
    expect(error).toMatchObject({ code });
    expect(error.message).not.toBe("");
    expect((await client.request({ type: "ping" })).type).toBe("pong");
    expect((await server.sessions.get("default", session)).lastSeq).toBe(0);
  });

  test("a frame that is binary", async () => {
    const client = await open();
    client.socket.send(Buffer.from(`{"type":"ping","ref":1}`));
    expect(await client.find("error")).toMatchObject({ code: "invalid_input" });
    expect((await client.request({ type: "ping" })).type).toBe("pong");
  });

  test("a key `__proto__` inside of a message, which is stored like any other", async () => {
    const { sessionId } = await server.sessions.create("default", {});
    const client = await open();
    const part = `{"type":"data-x","data":{"__proto__":{"polluted":true}}}`;
    client.send(`{"type":"send","ref":"p","session":"${sessionId}","message":{"parts":[${part}]}}`);
    await client.find("ack");
    await client.request({ type: "join", session: sessionId, lastSeq: 0 });
    await until("the entry", () => client.seqs(sessionId).length === 1);
    expect(client.messages.join()).toContain(part);
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });

  test("a message after the archive", async () => {
    const { sessionId } = await server.sessions.create("default", {});
    await server.sessions.archive("default", sessionId);
    const client = await open();
    const answer = await client.request({
      type: "send",
      session: sessionId,
      message: textMessage("hi"),
    });
    expect(answer).toMatchObject({ type: "error", code: "conflict" });
    expect(await client.request({ type: "join", session: sessionId, lastSeq: 0 })).toMatchObject({
      type: "joined",
    });
  });

  test("more sessions than one connection may follow", async () => {
    const client = await open();
    const ids = Array.from({ length: 101 }, (_, n) => `many-${n}`);
    for (const sessionId of ids) await server.sessions.create("default", { sessionId });
    client.send(ids.map((id, ref) => ({ type: "join", ref, session: id, lastSeq: 0 })));
    expect(await client.find("error")).toMatchObject({ ref: 100, code: "overloaded" });
    await until("the others", () => {
      return client.frames.filter(({ type }) => type === "joined").length === 100;
    });
  });
});

describe("what would fill the memory ends the connection, and nothing else", () => {
  test("a message larger than is taken", async () => {
    const client = await open();
    client.socket.send("x".repeat(2 * 64 * 1024 + 16 * 1024 + 1));
    expect(await client.closed()).toMatchObject({ code: 1009 });
    await expectServing();
  });

  test("a frame that claims to have a gigabyte", async () => {
    const raw = await rawSocket();
    // Final, text, masked, and a length of 2^30 in eight bytes; then a bit of it.
    raw.write(Buffer.from([0x81, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 1, 2, 3, 4]));
    raw.write(Buffer.alloc(1_024));
    expect(await closeCodeOf(raw)).toBe(1009);
    await expectServing();
  });

  test.each([
    ["that hold nothing", 0, 1008],
    ["that together are too much", 4_096, 1009],
  ])("endless fragments %s", async (_, bytes, code) => {
    const raw = await rawSocket();
    raw.on("error", () => {});
    const length = bytes < 126 ? [0x80 | bytes] : [0xfe, bytes >> 8, bytes & 0xff];
    const fragment = (first: number) =>
      Buffer.concat([Buffer.from([first, ...length, 0, 0, 0, 0]), Buffer.alloc(bytes, 0x20)]);
    raw.write(fragment(0x01));
    const next = fragment(0x00);
    for (let n = 0; n < 2_000 && !raw.destroyed; n++) raw.write(next);
    expect(await closeCodeOf(raw)).toBe(code);
    await expectServing();
  });

  test("frames faster than is allowed, by a client that ignores the refusals", async () => {
    const client = await open();
    const frames = Array.from({ length: 150 }, (_, ref) => ({ type: "ping", ref }));
    client.send(frames);
    client.send(frames);
    const error = await client.find("error");
    expect(error).toMatchObject({ code: "overloaded", retryAfterMs: expect.any(Number) });
    expect(client.isOpen).toBe(true);
    for (let n = 0; n < 20; n++) client.send(frames);
    expect(await client.closed()).toMatchObject({ code: 4429 });
    await expectServing();
  });

  test.each([
    ["no frames", 0],
    ["too many", 201],
  ])("messages without end that hold %s", async (_, length) => {
    const message = JSON.stringify(Array.from({ length }, () => 0));
    const client = await open();
    for (let n = 0; n < 2_000; n++) client.socket.send(message);
    expect(await client.closed()).toMatchObject({ code: 4429 });
    await expectServing();
  });

  test("pings without end", async () => {
    const client = await open();
    for (let n = 0; n < 2_000; n++) client.socket.ping("x".repeat(100));
    expect(await client.closed()).toMatchObject({ code: 4429 });
    await expectServing();
  });
});

/** A connection that is past the handshake, and speaks bytes. */
async function rawSocket(): Promise<Socket> {
  const raw = connectTcp(server.port, "127.0.0.1");
  raws.push(raw);
  const lines = [
    "GET /v1/socket?user=ada HTTP/1.1",
    "Host: localhost",
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    `Sec-WebSocket-Key: ${randomBytes(16).toString("base64")}`,
  ];
  raw.write(`${lines.join("\r\n")}\r\n\r\n`);
  await new Promise<void>((resolve, reject) => {
    raw.once("error", reject);
    raw.once("data", () => resolve());
  });
  return raw;
}

/** The code of the close frame, which is the last that comes. */
async function closeCodeOf(raw: Socket): Promise<number> {
  const chunks: Buffer[] = [];
  raw.on("data", (chunk: Buffer) => chunks.push(chunk));
  await until("a close frame", () => {
    const bytes = Buffer.concat(chunks);
    return bytes.lastIndexOf(0x88) >= 0 || raw.destroyed;
  });
  const bytes = Buffer.concat(chunks);
  return bytes.readUInt16BE(bytes.lastIndexOf(0x88) + 2);
}

test("an inbox that is old says as of when, in frames, events and pages", async () => {
  await using behind = await startTestServer({
    sessions: (real) => ({
      ...real,
      inbox(_tenant, _user, sink) {
        sink.push({ type: "snapshot", sessions: [], asOf: 123 });
        // Its age alone has changed, then nothing has.
        for (const asOf of [456, 456]) sink.push({ type: "changed", sessions: [], asOf });
        sink.push({ type: "changed", sessions: [] });
        return { ready: Promise.resolve(), leave: () => {} };
      },
    }),
  });
  const told = [
    { type: "inbox", sessions: [], asOf: 123 },
    { type: "inbox_changed", sessions: [], asOf: 456 },
    { type: "inbox_changed", sessions: [], asOf: 456 },
    { type: "inbox_changed", sessions: [] },
  ];
  const client = await dial(`${behind.socketUrl}?user=ada`);
  await client.request({ type: "inbox" });
  await client.request({ type: "ping" });
  const inboxes = client.frames.filter(({ type }) => type.startsWith("inbox"));
  expect(inboxes.map((frame) => ({ ...frame, ref: undefined }))).toEqual(told);
  const page = await fetch(`${behind.url}/v1/inbox?user=ada`);
  expect(await page.json()).toEqual({ sessions: [], next: null, asOf: 123 });
  const seen: InboxEvent[] = [];
  const caller = { sessions: new Set(["mine"]) } as unknown as Parameters<typeof filterInbox>[0];
  const sink = filterInbox(caller, { push: (event) => seen.push(event) > 0, fail: () => {} });
  for (const event of told.slice(1)) sink.push({ ...event, type: "changed" });
  expect(seen.map((event) => "asOf" in event && event.asOf)).toEqual([456, false]);
});

test("an error behind the server is reported with its code, and without its message", async () => {
  await using troubled = await startTestServer({
    sessions: (real) => ({
      ...real,
      send: () => Promise.reject(new FlotillaError("store_unavailable", "the store is away")),
      stop: () => Promise.reject(new Error("secret")),
      join: () => {
        throw new Error("secret");
      },
      inbox: () => {
        throw new FlotillaError("closed", "the pod has stopped");
      },
    }),
  });
  const client = await dial(`${troubled.socketUrl}?user=ada`);
  const codes = [];
  for (const frame of [
    { type: "send", session, message: textMessage("hi") },
    { type: "stop", session },
    { type: "join", session, lastSeq: 0 },
    { type: "inbox" },
  ]) {
    codes.push((await client.request(frame)).code);
  }
  expect(codes).toEqual(["store_unavailable", "internal", "internal", "closed"]);
  expect(client.messages.join()).not.toContain("secret");
  const answer = await fetch(`${troubled.url}/v1/inbox/events?user=ada`);
  expect(answer.status).toBe(503);
  expect((await client.request({ type: "ping" })).type).toBe("pong");
});
