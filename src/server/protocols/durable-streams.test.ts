import { stream } from "@durable-streams/client";
import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import type { Entry } from "../../protocol/message.ts";
import { startCuttingProxy } from "../contract/cutting-proxy.ts";
import { startTestServer, textMessage, type TestServer } from "../contract/test-server.ts";

const secret = "a secret of thirty-two characters or more";
const key = "a-key-of-16-chars-or-more";
const clock = movableClock();
const auth = { Authorization: `Bearer ${key}` };
let server: TestServer;
let count = 0;

beforeAll(async () => {
  server = await startTestServer({ clock, server: { apiKeys: [key], tokens: { secret } } });
});
afterAll(() => server[Symbol.asyncDispose]());

type Asked = { method?: string; headers?: Record<string, string>; body?: string };

const say = (sessionId: string, text: string) =>
  server.sessions.send("default", sessionId, { author: "ada", parts: textMessage(text).parts });
const session = async (...texts: string[]) => {
  const sessionId = `s${++count}`;
  await server.sessions.create("default", { sessionId, users: ["ada"] });
  for (const text of texts) await say(sessionId, text);
  return sessionId;
};
const urlOf = (sessionId: string, search = "", base = server.url) =>
  `${base}/v1/streams/sessions/${sessionId}${search}`;
const ask = (sessionId: string, search = "", init: Asked = {}) =>
  fetch(urlOf(sessionId, search), { ...init, headers: { ...auth, ...init.headers } });
const nextOf = (answer: Response) => answer.headers.get("stream-next-offset")!;
const seqsOf = (entries: readonly Entry[]) => entries.map(({ seq }) => seq);
const tokenOf = (user: string, seconds = 3_600) =>
  new SignJWT({ tenant: "default" })
    .setProtectedHeader({ alg: "HS256" })
    .setSubject(user)
    .setExpirationTime(Math.floor(clock.now() / 1_000) + seconds)
    .sign(new TextEncoder().encode(secret));

describe("a session as a Durable Stream", () => {
  for (const live of ["sse", "long-poll"] as const) {
    test(`is followed by the protocol's own client by ${live}, each entry once through cut connections`, async () => {
      const id = await session("one", "two");
      await using cutting = await startCuttingProxy(server.url);
      const seen: Entry[] = [];
      let isOver = false;
      // By long-poll the client asks again by itself. Events that break off it tells of.
      const follow = async (offset: string): Promise<void> => {
        let next = offset;
        const following = await stream<Entry>({
          url: urlOf(id, "", cutting.url),
          headers: auth,
          offset,
          live,
          backoffOptions: { initialDelay: 5, maxDelay: 20, multiplier: 1 },
          warnOnHttp: false,
        });
        following.subscribeJson((batch) => {
          seen.push(...batch.items);
          next = batch.offset;
        });
        ends.push(() => following.cancel());
        await following.closed.catch(() => {});
        if (!isOver) await follow(next);
      };
      const ends: (() => void)[] = [];
      const followed = follow("-1");
      await until("what there was", () => seen.length === 2);
      for (let round = 3; round <= 6; round++) {
        await until("a connection", () => cutting.open > 0);
        cutting.cut();
        await say(id, `message ${round}`);
        await until("the next", () => seen.length >= round);
      }
      isOver = true;
      for (const end of ends) end();
      await followed;
      expect(seqsOf(seen)).toEqual([1, 2, 3, 4, 5, 6]);
      expect(seen.at(-1)).toMatchObject({ author: "ada", parts: textMessage("message 6").parts });
    });
  }

  test("is read in pages, each with the offset of the next, which order as text", async () => {
    const id = await session(...Array.from({ length: 12 }, (_, at) => `m${at}`));
    const offsets: string[] = [];
    for (const text of ["a", "b"]) {
      offsets.push(nextOf(await ask(id, "", { method: "HEAD" })));
      await say(id, text);
    }
    const late = await ask(id, `?offset=${offsets[0]}`);
    expect(seqsOf((await late.json()) as Entry[])).toEqual([13, 14]);
    expect([...offsets, nextOf(late)].toSorted()).toEqual([...offsets, nextOf(late)]);
    expect(late.headers.get("stream-up-to-date")).toBe("true");
    expect(await (await ask(id, "?offset=now")).json()).toEqual([]);
  });

  test.each([
    ["text", "?offset=first", 400, "invalid_option"],
    ["nothing", "?offset=", 400, "invalid_option"],
    ["a bare number", "?offset=1", 400, "invalid_option"],
    ["one behind the end", "?offset=0000000000000009_{incarnation}", 400, "invalid_option"],
    ["one of another log", "?offset=0000000000000001_gone", 410, "cursor_expired"],
    ["one that no number holds", "?offset=9999999999999999_{incarnation}", 400, "invalid_option"],
    ["two", "?offset=-1&offset=now", 400, "invalid_option"],
    ["a live one of another log", "?offset=0000000000000001_gone&live=sse", 410, "cursor_expired"],
    ["none with live", "?live=sse", 400, "invalid_option"],
    ["an unknown kind of live", "?offset=-1&live=yes", 400, "invalid_option"],
    ["a cursor that is text", "?offset=-1&live=sse&cursor=x", 400, "invalid_option"],
  ])("refuses as an offset: %s", async (_, search, status, code) => {
    const id = await session("hi");
    const incarnation = nextOf(await ask(id)).split("_")[1]!;
    const answer = await ask(id, search.replace("{incarnation}", incarnation));
    const { error } = (await answer.json()) as { error: { code: string; message: string } };
    expect([answer.status, error.code]).toEqual([status, code]);
    expect(error.message).toMatch(/offset|live|cursor/);
  });

  test.each(["POST", "PUT", "DELETE", "PATCH"])("takes no %s", async (method) => {
    const id = await session("hi");
    const answer = await ask(id, "", { method, ...(method !== "DELETE" && { body: "[1]" }) });
    expect([answer.status, answer.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
    expect((await server.sessions.get("default", id)).lastSeq).toBe(1);
  });

  test("is there for members alone, live ones until they are removed", async () => {
    const id = await session("hi");
    const as = async (user: string) => ({ Authorization: `Bearer ${await tokenOf(user)}` });
    for (const search of ["", "?offset=-1", "?offset=now&live=sse", "?offset=now&live=long-poll"]) {
      expect([search, (await ask(id, search, { headers: await as("bob") })).status]).toEqual([
        search,
        404,
      ]);
    }
    const headers = await as("ada");
    expect((await ask(id, "", { headers })).status).toBe(200);
    const polling = ask(id, "?offset=now&live=long-poll", { headers });
    const events = await ask(id, "?offset=now&live=sse", { headers });
    const members = { removeUsers: ["ada"], addUsers: ["bob"] };
    const changed = await fetch(`${server.url}/v1/sessions/${id}/members`, {
      method: "PUT",
      headers: { ...auth, "Content-Type": "application/json" },
      body: JSON.stringify(members),
    });
    expect(changed.status).toBe(200);
    await say(id, "a secret");
    expect(await events.text()).not.toContain("a secret");
    expect((await polling).status).toBe(404);
  });

  test("ends what is live with the credentials, and by HEAD waits for nothing", async () => {
    const id = await session("hi");
    const headers = { Authorization: `Bearer ${await tokenOf("ada", 10)}` };
    const polling = ask(id, "?offset=now&live=long-poll", { headers });
    const events = await ask(id, "?offset=now&live=sse", { headers });
    const head = await ask(id, "?offset=now&live=sse", { method: "HEAD", headers });
    expect([head.status, nextOf(head)]).toEqual([200, nextOf(await ask(id))]);
    const text = events.text();
    let isOver = false;
    void polling.finally(() => (isOver = true));
    await until("the end of both", async () => {
      await clock.advance(1_000);
      return isOver;
    });
    expect((await polling).status).toBe(204);
    expect(await text).toContain("upToDate");
  });

  test("of a deleted session isn't there any more, and who follows it is told", async () => {
    const id = await session("hi");
    const events = await ask(id, "?offset=-1&live=sse");
    await server.sessions.remove("default", id);
    await events.text();
    expect((await ask(id)).status).toBe(404);
  });
});
