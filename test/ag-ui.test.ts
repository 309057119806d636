import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { HttpAgent } from "@ag-ui/client";
import { agent } from "flotilla";
import {
  type AgUiHandlerOptions,
  createAgUiHandler,
  type Fetch,
  resumingFetch,
  toNode,
} from "flotilla/agent";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { movableClock, until } from "../src/base/contract/movable-clock.ts";
import { startCuttingProxy } from "../src/server/contract/cutting-proxy.ts";
import { startTestServer, type TestServer } from "../src/server/contract/test-server.ts";

const apiKey = "a-key-of-16-chars-or-more";
let server: TestServer;
let asked = 0;
let count = 0;
let steps = 0;
/** The agent goes on by one word for each. */
let gate = Promise.withResolvers<void>();

const teller = agent("teller", async function* () {
  asked++;
  yield { type: "reasoning-start", id: "r" };
  yield { type: "reasoning-delta", id: "r", delta: "Hm." };
  yield { type: "reasoning-end", id: "r" };
  for (const word of ["One, ", "two, ", "three."]) {
    yield word;
    const { promise } = gate;
    await promise;
    steps++;
  }
});
const goOn = () => {
  gate.resolve();
  gate = Promise.withResolvers();
};
const ends: (() => unknown)[] = [];

beforeAll(async () => {
  server = await startTestServer({ use: [teller], server: { apiKeys: [apiKey] } });
});
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});
afterAll(() => server[Symbol.asyncDispose]());

async function backend(options: Partial<AgUiHandlerOptions> = {}) {
  const handler = createAgUiHandler({
    url: server.url,
    agent: "teller",
    apiKey,
    user: (request) => (request.headers.get("cookie") === "who=ada" ? "ada" : undefined),
    ...options,
  });
  const http = createServer((request, response) => void toNode(handler)(request, response));
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  ends.push(async () => {
    http.closeAllConnections();
    await new Promise((resolve) => http.close(resolve));
  });
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}/`;
}

/** A page of AG-UI, with all that its client is told. */
function page(url: string, options: { fetch?: Fetch; headers?: Record<string, string> } = {}) {
  const { fetch, headers = { Cookie: "who=ada" } } = options;
  const threadId = `t-${++count}`;
  const client = new HttpAgent({ url, headers, threadId, ...(fetch && { fetch: fetch as never }) });
  client.addMessage({ id: `m-${++count}`, role: "user", content: "count" });
  const seen: string[] = [];
  const run = client.runAgent(
    {},
    {
      onEvent: ({ event }) =>
        void seen.push("delta" in event ? `${event.delta as string}` : event.type),
    },
  );
  run.catch(() => {});
  return { client, run, seen, threadId };
}
const whole = [
  "RUN_STARTED",
  "REASONING_START",
  "REASONING_MESSAGE_START",
  "Hm.",
  "REASONING_MESSAGE_END",
  "REASONING_END",
  "TEXT_MESSAGE_START",
  "One, ",
  "two, ",
  "three.",
  "TEXT_MESSAGE_END",
  "RUN_FINISHED",
];

const ways = {
  "to the server": async () => {
    const proxy = await startCuttingProxy(server.url);
    const headers = { Authorization: `Bearer ${apiKey}`, "Flotilla-User": "ada" };
    return { proxy, ...page(`${proxy.url}/v1/agui/teller`, { fetch: resumingFetch(), headers }) };
  },
  "from a web backend to the server": async () => {
    const proxy = await startCuttingProxy(server.url);
    return { proxy, ...page(await backend({ url: proxy.url })) };
  },
  "from a page to its web backend": async () => {
    const proxy = await startCuttingProxy(await backend());
    return { proxy, ...page(proxy.url, { fetch: resumingFetch() }) };
  },
};

test.each(Object.entries(ways))(
  "a connection %s that is cut is gone on with, and no event comes twice",
  async (_, start) => {
    const before = asked;
    const from = steps;
    const { proxy, run, seen, threadId } = await start();
    ends.push(() => proxy[Symbol.asyncDispose]());
    await until("the first word", () => seen.at(-1) === "One, ");
    proxy.cut();
    await until("it to be back", () => proxy.open > 0);
    goOn();
    await until("the second word", () => seen.at(-1) === "two, ");
    // What was said while nobody was there is told then.
    proxy.cut();
    goOn();
    await until("the last word", () => steps === from + 2);
    goOn();
    await run;
    expect(seen).toEqual(whole);
    expect(asked - before).toBe(1);
    const { entries } = await server.sessions.entries("default", threadId, {});
    expect(entries).toHaveLength(2);
    expect(entries[0]).toMatchObject({ author: "ada" });
  },
);

test("a run is gone on with from the id of any of its events, also when it is over", async () => {
  const url = `${server.url}/v1/agui/teller`;
  const body = JSON.stringify({
    threadId: "over",
    runId: "r",
    messages: [{ id: "over-1", role: "user", content: "count" }],
  });
  const ask = async (lastId?: string) => {
    const headers = {
      Authorization: `Bearer ${apiKey}`,
      "Flotilla-User": "ada",
      "Content-Type": "application/json",
      ...(lastId !== undefined && { "Last-Event-ID": lastId }),
    };
    return await fetch(url, { method: "POST", headers, body });
  };
  let isOver = false;
  const first = ask()
    .then((answer) => answer.text())
    .finally(() => (isOver = true));
  await until("its end", () => (goOn(), isOver));
  const all = eventsIn(await first);
  expect(all.at(-1)?.data).toContain("RUN_FINISHED");
  for (const [at, { id }] of all.entries()) {
    const rest = eventsIn(await (await ask(id)).text());
    expect(textOf([...all.slice(0, at + 1), ...rest])).toEqual(textOf(all));
  }
  const wrong = await ask("nonsense");
  expect([wrong.status, await wrong.text()]).toEqual([
    400,
    expect.stringContaining("Last-Event-ID"),
  ]);
  const other = await ask("77");
  expect([other.status, await other.text()]).toEqual([409, expect.stringContaining("conflict")]);
});

type Told = { id: string; data: string };
function eventsIn(text: string): Told[] {
  return text.split("\n\n").flatMap((block) => {
    const [, id, data] = /^id: (.*)\ndata: (.*)$/.exec(block) ?? [];
    return id === undefined || data === undefined ? [] : [{ id, data }];
  });
}
/** The events with the pieces of each text as one. */
function textOf(events: readonly Told[]): string {
  return events
    .map(({ data }) => JSON.parse(data) as { type: string; delta?: string })
    .map(({ type, delta }) => delta ?? `<${type}>`)
    .join("");
}

test("a web backend refuses users that its app doesn't know, and forms of other sites", async () => {
  const url = await backend();
  const body = JSON.stringify({ threadId: "no", runId: "r", messages: [] });
  const post = (headers: Record<string, string>, text = body) =>
    fetch(url, { method: "POST", headers, body: text });
  const json = { "Content-Type": "application/json" };
  expect((await post(json)).status).toBe(401);
  expect((await post({ "Content-Type": "text/plain", Cookie: "who=ada" })).status).toBe(400);
  expect((await fetch(url)).status).toBe(405);
  expect((await post({ ...json, Cookie: "who=ada" }, "x".repeat(5_000_000))).status).toBe(413);
  const wrong = await post({ ...json, Cookie: "who=ada" }, "{");
  expect([wrong.status, await wrong.json()]).toMatchObject([
    400,
    { error: { code: "invalid_input" } },
  ]);
  const spoofed = await post({ ...json, Cookie: "who=ada", "Flotilla-User": "bob" });
  expect(await spoofed.text()).toContain("RUN_FINISHED");
  expect(await server.sessions.get("default", "no")).toMatchObject({ users: ["ada"] });
  expect(() => createAgUiHandler({ url, agent: "teller", apiKey: "", user: () => "ada" })).toThrow(
    /apiKey/,
  );
  expect(() =>
    createAgUiHandler({ url: "nowhere", agent: "a", apiKey, user: () => "ada" }),
  ).toThrow(/url/);
});

test("a web backend lets its users choose their own sessions, and none of each other's", async () => {
  const url = await backend({
    user: (request) => /^who=(\w+)$/.exec(request.headers.get("cookie") ?? "")?.[1],
  });
  const threadId = "of-alice";
  const post = async (user: string, messages: readonly object[]) => {
    const headers = { "Content-Type": "application/json", Cookie: `who=${user}` };
    const body = JSON.stringify({ threadId, runId: `r-${++count}`, messages });
    const answer = await fetch(url, { method: "POST", headers, body });
    return { status: answer.status, text: await answer.text() };
  };
  const saying = (id: string) => [{ id, role: "user", content: "a secret of alice" }];
  let isOver = false;
  const alices = post("alice", saying("of-alice-1")).finally(() => (isOver = true));
  await until("its end", () => (goOn(), isOver));
  expect((await alices).text).toContain("RUN_FINISHED");
  const { sessions } = server;
  const { lastSeq } = await sessions.get("default", threadId);
  for (const messages of [[], saying("of-bob-1"), saying("of-alice-1")]) {
    const bobs = await post("bob", messages);
    expect(bobs).toMatchObject({ status: 409, text: expect.stringContaining("conflict") });
    expect(bobs.text).not.toMatch(/secret of alice|One|RUN_/);
  }
  expect(await sessions.get("default", threadId)).toMatchObject({ users: ["alice"], lastSeq });
  expect((await post("alice", [])).text).toContain("RUN_FINISHED");
});

const events = (text: string, init: ResponseInit = {}) =>
  new Response(text, { headers: { "content-type": "text/event-stream" }, ...init });

test("what ends without the end of its run is tried again for as long as it is told, and no longer", async () => {
  const clock = movableClock();
  const ids: (string | null)[] = [];
  const asking = resumingFetch({
    clock,
    timeoutMs: 10_000,
    fetch: (_, init) => {
      ids.push(new Headers(init?.headers).get("last-event-id"));
      if (ids.length > 1) return Promise.reject(new Error("away"));
      return Promise.resolve(
        events('id: 7\ndata: {"type":"RUN_STARTED"}\n\nid: 8\ndata: {"type":"CUT'),
      );
    },
  });
  const text = (await asking("http://x/")).text();
  text.catch(() => {});
  for (let second = 0; second < 30; second++) await clock.advance(1_000);
  await expect(text).rejects.toThrow("away");
  expect(ids.slice(0, 2)).toEqual([null, "7"]);
  expect(ids.length).toBeGreaterThan(3);
});

test.each([
  ["refused", 403, '{"error":{"code":"forbidden","message":"no more"}}', "forbidden"],
  ["gone", 404, "nothing", "unavailable"],
])(
  "a run that is %s when it is asked for again ends with an error",
  async (_, status, body, code) => {
    const answers = [
      events('id: 7\ndata: {"type":"RUN_STARTED"}\n\n'),
      new Response(body, { status }),
    ];
    const clock = movableClock();
    const asking = resumingFetch({ clock, fetch: () => Promise.resolve(answers.shift()!) });
    const text = (await asking("http://x/")).text();
    for (let second = 0; second < 3; second++) await clock.advance(1_000);
    expect(await text).toMatch(new RegExp(`RUN_STARTED[^]*"type":"RUN_ERROR","code":"${code}"`));
  },
);

test("events without places aren't told twice: the reader learns that they ended", async () => {
  const fetch = vi.fn<Fetch>(() => Promise.resolve(events('data: {"type":"RUN_STARTED"}\n\n')));
  const asking = resumingFetch({ fetch });
  await expect((await asking("http://x/")).text()).rejects.toThrow("ended before its run did");
  expect(fetch).toHaveBeenCalledTimes(1);
});

test("a connection that says nothing, not even that it is there, is asked for again", async () => {
  const clock = movableClock();
  let count = 0;
  const silent = (signal: AbortSignal) =>
    new ReadableStream<Uint8Array>({
      start(control) {
        control.enqueue(new TextEncoder().encode('id: 7\ndata: {"type":"RUN_STARTED"}\n\n'));
        signal.addEventListener("abort", () => control.error(new Error("dropped")));
      },
    });
  const asking = resumingFetch({
    clock,
    fetch: (_, init) => {
      const headers = { "content-type": "text/event-stream" };
      if (++count === 1) return Promise.resolve(new Response(silent(init!.signal!), { headers }));
      return Promise.resolve(events('id: 8\ndata: {"type":"RUN_FINISHED"}\n\n'));
    },
  });
  const text = (await asking("http://x/")).text();
  await clock.advance(44_000);
  expect(count).toBe(1);
  for (let second = 0; second < 4; second++) await clock.advance(1_000);
  expect(await text).toBe(
    'id: 7\ndata: {"type":"RUN_STARTED"}\n\nid: 8\ndata: {"type":"RUN_FINISHED"}\n\n',
  );
});
