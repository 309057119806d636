import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { agent } from "../../sessions/agents/agent.ts";
import type { SessionView } from "../../sessions/service.ts";
import { throttle } from "../../throttles/throttle.ts";
import { type SocketClient, dial, textMessage, startTestServer } from "../contract/test-server.ts";

const echo = agent("echo", ({ messages }) => {
  const last = messages.at(-1)!.parts[0] as { text?: string };
  return `you said: ${last.text}`;
});

/** Its calls end one after the other, each when it is told to. */
const ends: (() => void)[] = [];
const model = throttle("model-of-one", { pinned: 1 });
const patient = agent("patient", { throttle: model }, async () => {
  await new Promise<void>((resolve) => void ends.push(resolve));
  return "at last";
});

/** Its answers end where they are stopped. */
let holding = 0;
const held = agent("held", ({ signal }) => {
  holding++;
  return new Promise<string>((_, reject) =>
    signal.addEventListener("abort", () => reject(signal.reason as Error)),
  );
});

let server: Awaited<ReturnType<typeof startTestServer>>;
const clients: SocketClient[] = [];

beforeAll(async () => {
  server = await startTestServer({ use: [echo, patient, held] });
});
afterEach(() => {
  for (const client of clients.splice(0)) client.socket.terminate();
});
afterAll(() => server[Symbol.asyncDispose]());

const open = async (user = "ada") => {
  const client = await dial(`${server.socketUrl}?user=${user}`);
  clients.push(client);
  return client;
};

let sessions = 0;
const session = async (agents: string[] = [], users = ["ada"]) => {
  const sessionId = `s${++sessions}`;
  await server.sessions.create("default", { sessionId, agents, users });
  return sessionId;
};

describe("a socket", () => {
  test("sends hello, and answers a ping", async () => {
    const client = await open();
    expect(await client.find("hello")).toEqual({
      type: "hello",
      protocol: 1,
      tenant: "default",
      user: "ada",
      maxFrameBytes: 2 * 256 * 1024 + 16 * 1024,
    });
    expect(await client.request({ type: "ping" })).toMatchObject({ type: "pong" });
  });

  test("follows a session: what there was, what is written, the answer as it is made", async () => {
    const id = await session(["echo"]);
    const client = await open();
    expect(await client.request({ type: "join", session: id, lastSeq: 0 })).toMatchObject({
      type: "joined",
      session: id,
      lastSeq: 0,
      state: { state: "idle" },
    });
    const ack = await client.request({
      type: "send",
      session: id,
      message: textMessage("hi", "m-1"),
    });
    expect(ack).toMatchObject({ type: "ack", seq: 1, messageId: "m-1" });
    const entries = await until("the answer", () => {
      const got = client.frames.flatMap((frame) => (frame.type === "entries" ? frame.entries : []));
      return got.length === 2 && got;
    });
    expect(entries).toMatchObject([
      { seq: 1, role: "user", author: "ada", messageId: "m-1" },
      { seq: 2, role: "assistant", author: "echo", outcome: "completed" },
    ]);
    await client.find("chunks");
    await client.find("state", ({ state }) => state.state === "idle");
  });

  test("shows that a turn waits for a permit until it has one, as HTTP does", async () => {
    const [first, second] = [await session(["patient"]), await session(["patient"])];
    const client = await open();
    await client.request({ type: "send", session: first, message: textMessage("hi") });
    await until("the first has the permit", () => ends.length === 1);
    await client.request({ type: "join", session: second, lastSeq: 0 });
    await client.request({ type: "send", session: second, message: textMessage("me too") });

    const get = async <Body>(path: string): Promise<Body> =>
      (await (await fetch(`${server.url}/v1/${path}`)).json()) as Body;
    const stateOf = async () => (await get<SessionView>(`sessions/${second}`)).state;
    const listed = async () => {
      const page = await get<{ sessions: SessionView[] }>("sessions?state=waiting");
      return page.sessions.map(({ sessionId }) => sessionId);
    };
    const waits = await client.find("state", ({ state }) => state.state === "waiting");
    expect(waits).toMatchObject({ session: second, state: { agent: "patient", attempt: 1 } });
    const { chunks } = await client.find("chunks", (each) => each.session === second);
    expect(chunks).toMatchObject([{ type: "data-waiting", transient: true, data: { ahead: 0 } }]);
    expect(await stateOf()).toEqual(waits.state);
    expect(await listed()).toEqual([second]);
    const late = await (await open()).request({ type: "join", session: second, lastSeq: 0 });
    expect(late).toMatchObject({ type: "joined", state: { state: "waiting" } });

    const shown = () =>
      client.frames.flatMap((frame) => (frame.type === "state" ? frame.state.state : []));
    ends[0]!();
    await until("the second has the permit", () => ends.length === 2);
    await until("it waits no more", () => shown().at(-1) === "catching_up");
    expect(await stateOf()).toEqual({ ...waits.state, state: "catching_up" });
    expect(await listed()).toEqual([]);
    ends[1]!();
    await until("it has ended", () => shown().at(-1) === "idle");
    expect(shown().slice(-3)).toEqual(["waiting", "catching_up", "idle"]);
  });

  test("goes on from the last seq, without a gap and in order, while others write", async () => {
    const id = await session();
    const writer = await open();
    for (let n = 1; n <= 30; n++) {
      await writer.request({ type: "send", session: id, message: textMessage(`${n}`) });
    }
    const reader = await open("bob");
    reader.send({ type: "join", ref: "j", session: id, lastSeq: 10 });
    for (let n = 31; n <= 60; n++) {
      writer.send({ type: "send", ref: n, session: id, message: textMessage(`${n}`) });
    }
    await until("all of them", () => reader.seqs(id).at(-1) === 60);
    expect(reader.seqs(id)).toEqual(Array.from({ length: 50 }, (_, at) => 11 + at));
  });

  test("keeps the order in which one connection wrote to one session", async () => {
    const id = await session();
    const client = await open();
    const frames = Array.from({ length: 50 }, (_, n) => ({
      type: "send",
      ref: n,
      session: id,
      message: textMessage(`${n}`, `m-${n}`),
    }));
    client.send(frames.slice(0, 25));
    for (const frame of frames.slice(25)) client.send(frame);
    await until("all acks", () => client.frames.filter(({ type }) => type === "ack").length === 50);
    const { entries } = await server.sessions.entries("default", id, { limit: 100 });
    expect(entries.map(({ messageId }) => messageId)).toEqual(frames.map((_, n) => `m-${n}`));
    const acks = client.frames.filter((frame) => frame.type === "ack");
    expect(acks.map(({ seq }) => seq)).toEqual(acks.map(({ ref }) => Number(ref) + 1));
  });

  test("stores a message once, however often and over which connection it is sent", async () => {
    const id = await session();
    const first = await open();
    const one = await first.request({
      type: "send",
      session: id,
      message: textMessage("hi", "same"),
    });
    const second = await open();
    const again = await second.request({
      type: "send",
      session: id,
      message: textMessage("hi", "same"),
    });
    expect(one).toMatchObject({ type: "ack", seq: 1 });
    expect(one.duplicate).toBeUndefined();
    expect(again).toMatchObject({ type: "ack", seq: 1, duplicate: true });
  });

  test("sends what came up in one turn of the event loop as one message", async () => {
    const id = await session();
    const client = await open();
    await client.find("hello");
    client.messages.length = 0;
    client.send(Array.from({ length: 20 }, (_, ref) => ({ type: "ping", ref })));
    await client.find("pong", ({ ref }) => ref === 19);
    expect(client.messages).toHaveLength(1);
    expect(id).not.toBe("");
  });

  test("reports a position that is ahead of the log, and begins anew", async () => {
    const id = await session();
    const client = await open();
    await client.request({ type: "send", session: id, message: textMessage("only one") });
    await client.request({ type: "join", session: id, lastSeq: 7 });
    expect(await client.find("reset")).toMatchObject({ session: id, reason: "ahead" });
    await until("all from the start", () => client.seqs(id).length === 1);
  });

  test("joined again, replaces what it followed; left, gets no more", async () => {
    const id = await session();
    const client = await open();
    await client.request({ type: "join", session: id, lastSeq: 0 });
    await client.request({ type: "join", session: id, lastSeq: 0 });
    await client.request({ type: "send", session: id, message: textMessage("once") });
    await until("the entry", () => client.seqs(id).length > 0);
    expect(await client.request({ type: "leave", session: id })).toMatchObject({
      type: "left",
      reason: "asked",
    });
    await client.request({ type: "send", session: id, message: textMessage("unheard") });
    await client.request({ type: "ping" });
    expect(client.seqs(id)).toEqual([1]);
  });

  test("left before it was joined, gets that answer too", async () => {
    const client = await open();
    const both = [
      { type: "join", ref: 1, session: "nowhere", lastSeq: 0 },
      { type: "leave", ref: 2, session: "nowhere" },
    ];
    client.socket.send(JSON.stringify(both));
    await until("both answers", () => client.frames.length === 3);
    expect(client.frames.slice(1)).toMatchObject([
      { type: "error", ref: 1, code: "cancelled" },
      { type: "left", ref: 2, reason: "asked" },
    ]);
  });

  test("opened without a token, needs no other", async () => {
    const client = await open();
    expect(await client.request({ type: "token", token: "a.b.c" })).toMatchObject({
      type: "error",
      code: "conflict",
    });
  });

  test("gets the deletion of a session", async () => {
    const id = await session();
    const client = await open();
    await client.request({ type: "join", session: id, lastSeq: 0 });
    await server.sessions.remove("default", id);
    expect(await client.find("left")).toMatchObject({ session: id, reason: "deleted" });
    expect(client.isOpen).toBe(true);
  });

  test("stops an answer, regenerates one, and stores what was read", async () => {
    const id = await session(["echo"]);
    const client = await open();
    await client.request({ type: "join", session: id, lastSeq: 0 });
    await client.request({ type: "send", session: id, message: textMessage("hi") });
    await until("the answer", () => client.seqs(id).includes(2));
    expect(await client.request({ type: "stop", session: id })).toMatchObject({ done: false });
    expect(await client.request({ type: "read", session: id, seq: 2 })).toMatchObject({ seq: 2 });
    expect(await client.request({ type: "regenerate", session: id })).toMatchObject({
      type: "ack",
    });
    await until("another answer", () => client.seqs(id).includes(3));
  });

  test("stores who has stopped an answer, as HTTP does", async () => {
    const id = await session(["held"], ["ada", "bea"]);
    const client = await open("bea");
    const stops = async () => {
      const { entries } = await server.sessions.entries("default", id, {});
      return entries.filter(({ kind }) => kind === "stop");
    };
    const begun = async (count: number) => {
      await client.request({ type: "send", session: id, message: textMessage("go") });
      await until("the answer is begun", () => holding === count);
    };
    await begun(1);
    expect(await client.request({ type: "stop", session: id })).toMatchObject({ done: true });
    await begun(2);
    const headers = { "Flotilla-User": "ada" };
    const stopped = await fetch(`${server.url}/v1/sessions/${id}/stop`, {
      method: "POST",
      headers,
    });
    expect(await stopped.json()).toMatchObject({ done: true });
    expect(await stops()).toMatchObject([
      { author: "bea", role: "user", stop: { epoch: 1, by: "user" } },
      { author: "ada", role: "user", stop: { epoch: 2, by: "user" } },
    ]);
  });

  test("answers a request for the inbox that another frame overtakes", async () => {
    const client = await open();
    client.send([
      { type: "inbox", ref: "first" },
      { type: "inbox", ref: "second" },
      { type: "inbox_leave", ref: "third" },
      { type: "inbox", ref: "fourth" },
    ]);
    await client.find("inbox", ({ ref }) => ref === "fourth");
    const refused = client.frames.filter(({ type }) => type === "error");
    expect(refused).toMatchObject([
      { ref: "first", code: "cancelled" },
      { ref: "second", code: "cancelled" },
    ]);
    await client.find("ack", ({ ref }) => ref === "third");
  });

  test("follows an inbox", async () => {
    const client = await open("carol");
    expect(await client.request({ type: "inbox" })).toMatchObject({ type: "inbox", sessions: [] });
    const id = await session([], ["carol", "dave"]);
    const writer = await open("dave");
    await writer.request({ type: "send", session: id, message: textMessage("psst") });
    const changed = await client.find("inbox_changed", (frame) =>
      frame.sessions.some(({ unread }) => unread === 1),
    );
    expect(changed.sessions[0]).toMatchObject({ sessionId: id, preview: "psst" });
    expect(await client.request({ type: "inbox_leave" })).toMatchObject({ type: "ack" });
  });

  test("gets the shutdown of the server, and is closed", async () => {
    await using other = await startTestServer();
    const client = await dial(other.socketUrl);
    await other.leave();
    expect(await client.closed()).toMatchObject({ code: 1001 });
    await expect(dial(other.socketUrl)).rejects.toMatchObject({ status: 503, code: "closed" });
  });
});
