import { Hono } from "hono";
import { SignJWT } from "jose";
import { request } from "node:http";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { movableClock, until } from "../base/contract/movable-clock.ts";
import { textMessage, startTestServer } from "./contract/test-server.ts";
import { createEventStreams } from "./event-streams.ts";

const secret = "a secret of thirty-two characters or more";
const key = "a-key-of-16-chars-or-more";
const clock = movableClock();
let server: Awaited<ReturnType<typeof startTestServer>>;
let leaves = 0;
const ends: (() => void)[] = [];

beforeAll(async () => {
  server = await startTestServer({
    clock,
    server: { apiKeys: [key], tokens: { secret }, socketBufferBytes: 128 * 1024 },
    sessions: (real) => ({
      ...real,
      join(...given) {
        const joined = real.join(...given);
        return { ready: joined.ready, leave: () => (leaves++, joined.leave()) };
      },
    }),
  });
});
afterEach(() => {
  for (const end of ends.splice(0)) end();
});
afterAll(() => server[Symbol.asyncDispose]());

type Event = { id?: string; event: string; data: any };

/** Reads events as a browser does, until they end. */
function follow(path: string, headers: Record<string, string> = {}) {
  const events: Event[] = [];
  let comments = 0;
  let text = "";
  const state = { isOver: false, status: 0 };
  const authorization = headers["Authorization"] ?? `Bearer ${key}`;
  const sent = request(`${server.url}${path}`, {
    headers: { ...headers, Authorization: authorization },
  });
  ends.push(() => sent.destroy());
  const answer = new Promise<import("node:http").IncomingMessage>((resolve) => {
    sent.on("response", (got) => {
      state.status = got.statusCode!;
      got.setEncoding("utf8").on("data", (more: string) => {
        text += more;
        const blocks = text.split("\n\n");
        text = blocks.pop()!;
        for (const block of blocks) {
          if (block.startsWith(":")) comments++;
          else events.push(parsed(block));
        }
      });
      got.on("close", () => (state.isOver = true)).on("error", () => {});
      resolve(got);
    });
  });
  sent.on("error", () => (state.isOver = true)).end();
  return {
    events,
    answer,
    get comments() {
      return comments;
    },
    get isOver() {
      return state.isOver;
    },
    seqs: () =>
      events
        .filter(({ event }) => event === "entries")
        .flatMap(({ data }) => data.entries.map(({ seq }: { seq: number }) => seq)),
    end: () => sent.destroy(),
  };
}

function parsed(block: string): Event {
  const fields = Object.fromEntries(
    block.split("\n").map((line) => line.split(/: (.*)/s).slice(0, 2) as [string, string]),
  );
  return { ...fields, data: JSON.parse(fields["data"]!) } as Event;
}

let sessions = 0;
const session = async (count = 0, text = "hi") => {
  const sessionId = `s${++sessions}`;
  await server.sessions.create("default", { sessionId, users: ["ada"] });
  for (let n = 0; n < count; n++) await say(sessionId, text);
  return sessionId;
};
const say = (sessionId: string, text: string) =>
  server.sessions.send("default", sessionId, { author: "bob", parts: textMessage(text).parts });

describe("server-sent events of a session", () => {
  test("bring what there was, then what happens, each with the id to go on from", async () => {
    const id = await session(3);
    const reader = follow(`/v1/sessions/${id}/events?lastSeq=1`);
    await until("the two", () => reader.seqs().length === 2);
    await say(id, "more");
    await until("the third", () => reader.seqs().length === 3);
    expect(reader.seqs()).toEqual([2, 3, 4]);
    expect(reader.events[0]).toMatchObject({
      event: "joined",
      data: { type: "joined", session: id, lastSeq: 3 },
    });
    const ids = reader.events.filter(({ event }) => event === "entries").map((each) => each.id);
    expect(ids.at(-1)).toBe("4");
    const { headers } = await reader.answer;
    expect(headers).toMatchObject({
      "content-type": "text/event-stream",
      "cache-control": "no-store, no-transform",
    });
  });

  test("go on from the id that a browser brings back, not from the address", async () => {
    const id = await session(5);
    const path = `/v1/sessions/${id}/events?lastSeq=1`;
    const reader = follow(path, { "Last-Event-ID": "4" });
    await until("the last", () => reader.seqs().length > 0);
    expect(reader.seqs()).toEqual([5]);
  });

  test("report a position ahead of the log, and refuse one that can't be", async () => {
    const id = await session(2);
    const reader = follow(`/v1/sessions/${id}/events?lastSeq=99`);
    await until("all of it", () => reader.seqs().length === 2);
    expect(reader.events.map(({ event }) => event)).toContain("reset");
    for (const lastSeq of ["-1", "1e400", '"1"', "9007199254740993", "x"]) {
      const bad = follow(`/v1/sessions/${id}/events?lastSeq=${encodeURIComponent(lastSeq)}`);
      expect((await bad.answer).statusCode).toBe(400);
    }
    const bad = follow(`/v1/sessions/${id}/events`, { "Last-Event-ID": "-1" });
    expect((await bad.answer).statusCode).toBe(400);
  });

  test("send keep-alives, and end when their reader leaves", async () => {
    const id = await session();
    const reader = follow(`/v1/sessions/${id}/events`);
    await until("the beginning", () => reader.events.length > 0);
    const before = reader.comments;
    await clock.advance(15_000);
    await until("a comment", () => reader.comments > before);
    const left = leaves;
    reader.end();
    await until("the session to be left", () => leaves === left + 1);
    const timers = clock.timers;
    await clock.advance(60_000);
    expect(clock.timers).toBe(timers);
  });

  test("end with the session", async () => {
    const id = await session();
    const reader = follow(`/v1/sessions/${id}/events`);
    await until("the beginning", () => reader.events.length > 0);
    await server.sessions.remove("default", id);
    await until("the end", () => reader.isOver);
    expect(reader.events.at(-1)).toMatchObject({ event: "deleted", data: { session: id } });
  });

  test("end when the token does", async () => {
    const id = await session();
    const bearer = await new SignJWT({ sub: "ada", exp: Math.floor(clock.now() / 1_000) + 5 })
      .setProtectedHeader({ alg: "HS256" })
      .sign(new TextEncoder().encode(secret));
    const reader = follow(`/v1/sessions/${id}/events`, { Authorization: `Bearer ${bearer}` });
    await until("the beginning", () => reader.events.length > 0);
    await clock.advance(10_000);
    await until("the end", () => reader.isOver);
    expect(reader.events.map(({ event }) => event)).toEqual(["joined"]);
  });

  test("end for a user who is removed, with what happens next", async () => {
    const id = await session();
    const bearer = await new SignJWT({ sub: "ada", exp: Math.floor(clock.now() / 1_000) + 600 })
      .setProtectedHeader({ alg: "HS256" })
      .sign(new TextEncoder().encode(secret));
    const reader = follow(`/v1/sessions/${id}/events`, { Authorization: `Bearer ${bearer}` });
    await until("the beginning", () => reader.events.length > 0);
    await server.sessions.changeMembers("default", id, { removeUsers: ["ada"] });
    await clock.advance(30_000);
    await say(id, "she is gone");
    await until("the end", () => reader.isOver);
    expect(reader.events.at(-1)).toMatchObject({ event: "error", data: { code: "not_found" } });
  });

  test("cut off a reader that doesn't read, who then goes on without a gap", async () => {
    const id = await session();
    const reader = follow(`/v1/sessions/${id}/events`);
    await until("the beginning", () => reader.events.length > 0);
    (await reader.answer).pause();
    const left = leaves;
    let written = 0;
    while (leaves === left && written < 2_000) {
      written++;
      await say(id, "x".repeat(60_000));
    }
    expect(leaves).toBe(left + 1);
    (await reader.answer).resume();
    await until("the end", () => reader.isOver);
    const got = reader.seqs();
    const again = follow(`/v1/sessions/${id}/events`, { "Last-Event-ID": `${got.length}` });
    await until("the rest", () => got.length + again.seqs().length === written);
    expect([...got, ...again.seqs()]).toEqual(Array.from({ length: written }, (_, n) => n + 1));
  });
});

test("server-sent events of an inbox are a snapshot, then changes", async () => {
  const reader = follow("/v1/inbox/events?user=eve");
  await until("a snapshot", () => reader.events.length > 0);
  expect(reader.events[0]).toEqual({ event: "snapshot", data: { sessions: [] } });
  const { sessionId } = await server.sessions.create("default", { users: ["eve"] });
  await say(sessionId, "psst");
  await until("the message", () =>
    reader.events.some(({ event, data }) => event === "changed" && data.sessions[0].unread === 1),
  );
});

test("a stream that is cut as it begins leaves no timer, and begins nothing", async () => {
  const standing = movableClock();
  const streams = createEventStreams(standing, 128 * 1024);
  let begun = 0;
  const app = new Hono().get("/", (c) => {
    c.set("slot" as never, { stream: () => false } as never);
    c.set("caller" as never, { expiresAtMs: standing.now() + 60_000 } as never);
    return c.body(streams.open(c, () => (begun++, () => {})));
  });
  const answer = await app.request("/");
  await expect(answer.text()).rejects.toThrow("too slow");
  expect([begun, standing.timers]).toEqual([0, 0]);
});

test("a stream that is asked for by HEAD, whose answer has no body, begins nothing", async () => {
  const standing = movableClock();
  const streams = createEventStreams(standing, 128 * 1024);
  let begun = 0;
  const app = new Hono().get("/", (c) => {
    c.set("caller" as never, { expiresAtMs: standing.now() + 60_000 } as never);
    return c.body(streams.open(c, () => (begun++, () => {})));
  });
  expect((await app.request("/", { method: "HEAD" })).status).toBe(200);
  expect([begun, standing.timers]).toEqual([0, 0]);
});

test("streams end when the server does, which needn't wait for them", async () => {
  await using other = await startTestServer();
  const { sessionId } = await other.sessions.create("default", {});
  const answer = await fetch(`${other.url}/v1/sessions/${sessionId}/events`);
  let text = "";
  const ended = (async () => {
    for await (const bytes of answer.body!) text += Buffer.from(bytes).toString();
  })();
  const begun = await until("the beginning", () => text.includes("event: joined"));
  expect(begun).toBe(true);
  await other.close();
  await ended;
});
