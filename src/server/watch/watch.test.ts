import { request, type IncomingMessage } from "node:http";
import { isDeepStrictEqual } from "node:util";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { beat } from "../../pods/sql.ts";
import { applyPatch, type WatchData, type WatchEvent } from "../../protocol/watch.ts";
import { openStore } from "../../store/open.ts";
import { sql, table } from "../../store/sql.ts";
import { dial, startTestServer, type TestServer } from "../contract/test-server.ts";

const admin = "a-key-of-an-administrator";
const viewer = "a-key-that-looks-after-all";
const acme = "a-key-that-looks-after-acme";
const clock = movableClock();
let server: TestServer;
const ends: (() => void)[] = [];

beforeAll(async () => {
  server = await startTestServer({
    clock,
    server: {
      apiKeys: [
        { key: admin, role: "admin" },
        { key: viewer, role: "viewer" },
        { key: acme, role: "viewer", tenant: "acme" },
      ],
      socketBufferBytes: 128 * 1024,
    },
  });
});
afterEach(() => {
  for (const end of ends.splice(0)) end();
});
afterAll(() => server[Symbol.asyncDispose]());

const bearer = (key: string) => ({ Authorization: `Bearer ${key}` });

/** What events make of the topics that they are of. */
function gather() {
  const events: WatchEvent[] = [];
  const data: Record<string, WatchData> = {};
  return {
    events,
    data,
    take(event: WatchEvent) {
      events.push(event);
      if (event.type === "snapshot") data[event.topic] = event.data;
      if (event.type === "patch") data[event.topic] = applyPatch(data[event.topic]!, event.patch);
    },
  };
}

/** Watches by server-sent events. */
function follow(topics: string, key = viewer) {
  const gathered = gather();
  const state = { isOver: false, status: 0, errors: [] as { code: string }[] };
  const sent = request(`${server.url}/v1/watch?topics=${topics}`, { headers: bearer(key) });
  ends.push(() => sent.destroy());
  let text = "";
  const answer = new Promise<IncomingMessage>((resolve) => {
    sent.on("response", (got) => {
      state.status = got.statusCode!;
      got.setEncoding("utf8").on("data", (more: string) => {
        text += more;
        const blocks = text.split("\n\n");
        text = blocks.pop()!;
        for (const block of blocks) {
          const [, name, json] = /^event: (\w+)\ndata: (.*)$/s.exec(block) ?? [];
          if (name === "error") state.errors.push(JSON.parse(json!) as { code: string });
          else if (name !== undefined) gathered.take(JSON.parse(json!) as WatchEvent);
        }
      });
      got.on("close", () => (state.isOver = true)).on("error", () => {});
      resolve(got);
    });
  });
  sent.on("error", () => (state.isOver = true)).end();
  return { ...gathered, state, answer };
}

/** Watches by a socket. */
async function connectSocket(key = viewer) {
  const gathered = gather();
  const client = await dial(server.socketUrl, { headers: bearer(key) });
  ends.push(() => client.socket.terminate());
  client.socket.on("message", (bytes: Buffer) => {
    for (const frame of JSON.parse(bytes.toString()) as { type: string }[])
      if (["snapshot", "patch", "trouble"].includes(frame.type)) gathered.take(frame as WatchEvent);
  });
  return { ...gathered, client };
}

const enqueue = async (name: string, input: unknown, options = {}) =>
  (await server.flotilla.enqueue(name, input, options)).taskId;
const fetched = (path: string, key = viewer) =>
  fetch(`${server.url}${path}`, { headers: bearer(key) });

/** Lets the server read again, until something is there. */
const untilRead = (what: string, condition: () => unknown) =>
  until(what, async () => {
    if (condition()) return true;
    await clock.advance(1_000);
    return condition();
  });

const sums = (completed: number) => ({ claimed: 9, ended: completed + 1 });

describe("watching over HTTP", () => {
  test("brings what there is and then what changes, as server-sent events", async () => {
    const reader = follow("overview,pods");
    await until("both", () => reader.events.length >= 2);
    const { headers } = await reader.answer;
    expect(headers).toMatchObject({
      "content-type": "text/event-stream",
      "cache-control": "no-store, no-transform",
      "x-accel-buffering": "no",
    });
    expect(reader.data["overview"]).toMatchObject({ pods: { up: 1, down: 0 } });
    await enqueue("unhandled", 1);
    const names = () => reader.data["overview"]!["names"] as Record<string, { ready: number }>;
    await untilRead("the task", () => names()["unhandled"]?.ready === 1);
    expect(Object.keys(reader.data["pods"]!["pods"] as WatchData)).toEqual([server.pod.podId]);
    const shown = (await (await fetched("/v1/depth")).json()) as { names: WatchData };
    expect(Object.keys(reader.data["overview"]!["names"] as WatchData)).toEqual(
      Object.keys(shown.names),
    );
  });

  test("tells what pods have claimed and ended, which moves on where counts are at their bound", async () => {
    const reader = follow("overview");
    const totals = () => reader.data["overview"]!["totals"];
    await until("a snapshot", () => reader.events.length > 0);
    expect(totals()).toEqual({ claimed: 0, ended: 0 });
    const database = await openStore(`sqlite:${server.path}`);
    const pulse = (completed: number) =>
      JSON.stringify({ claimed: 9, ended: { completed, failed: 1 } });
    for (const completed of [3, 4]) {
      await database.write([beat("elsewhere", "{}", 0, { pulse: pulse(completed) })]);
      await untilRead("the pulse", () => isDeepStrictEqual(totals(), sums(completed)));
    }
    await database.write([sql`delete from ${table("pod")} where pod_id = 'elsewhere'`]);
    await database.close();
    expect(totals()).toEqual(sums(4));
  });

  test("shows content, shapes or nothing of a task, as the caller may see it", async () => {
    const taskId = await enqueue("secretive", { to: "ada@example.com" }, { tenant: "other" });
    const readers = [admin, viewer, acme].map((key) =>
      follow(`task:${taskId},tasks:${taskId}`, key),
    );
    await until("all", () => readers.every(({ events }) => events.length >= 2));
    const [whole, shape] = readers.map(({ data }) => JSON.stringify(data));
    expect(whole).toContain("ada@example.com");
    expect(shape).toMatch(/"payload":"object, 1 key, \d+ bytes"/);
    expect(shape).not.toContain("ada@example.com");
    expect(readers[2]!.data).toEqual({
      [`task:${taskId}`]: { task: null, links: null },
      [`tasks:${taskId}`]: { tasks: {} },
    });
  });

  test("costs the store for twenty readers, of both doors, what it costs for one", async () => {
    const pods = vi.spyOn(server.flotilla.pages, "fleet");
    onTestFinished(() => pods.mockRestore());
    const readers = Array.from({ length: 10 }, () => follow("pods"));
    const sockets = await Promise.all(Array.from({ length: 10 }, () => connectSocket()));
    for (const { client } of sockets) await client.request({ type: "watch", topics: ["pods"] });
    const all = [...readers, ...sockets];
    await untilRead("all of them", () => all.every(({ data }) => data["pods"]));
    const before = pods.mock.calls.length;
    let seconds = 0;
    await until("three reads", async () => {
      seconds++;
      await clock.advance(1_000);
      // A real read, on another thread.
      await until("its end", () =>
        pods.mock.settledResults.every(({ type }) => type !== "incomplete"),
      );
      return pods.mock.calls.length - before >= 3;
    });
    expect(pods.mock.calls.length - before).toBeLessThanOrEqual(Math.ceil(seconds / 0.8));
  });

  test("goes on over a store that was away, which it tells its readers of", async () => {
    const reader = follow("pods");
    await until("a snapshot", () => reader.data["pods"]);
    const away = new FlotillaError("store_unavailable", "connect ECONNREFUSED 10.0.0.7:5432");
    const pods = vi.spyOn(server.flotilla.pages, "fleet").mockRejectedValue(away);
    onTestFinished(() => pods.mockRestore());
    await untilRead("the trouble", () => reader.events.at(-1)!.type === "trouble");
    expect(reader.events.at(-1)).toMatchObject({ topic: "pods", code: "store_unavailable" });
    expect(JSON.stringify(reader.events)).not.toContain("10.0.0.7");
    pods.mockRestore();
    await untilRead("the way on", () => reader.events.at(-1)!.type !== "trouble");
    const types = reader.events.map(({ type }) => type);
    expect(types[types.lastIndexOf("trouble") + 1]).toBe("snapshot");
  });

  test("is refused by the status: topics that aren't, or that the caller may not see", async () => {
    const refused = async (topics: string, key = viewer) => {
      const answer = await fetched(`/v1/watch?topics=${topics}`, key);
      const { error } = (await answer.json()) as { error: { code: string; message: string } };
      return [answer.status, error.code];
    };
    expect(await refused("nothing")).toEqual([400, "invalid_input"]);
    expect(await refused("overview,task")).toEqual([400, "invalid_input"]);
    expect(await refused("audit")).toEqual([403, "forbidden"]);
    expect(await refused("overview", acme)).toEqual([403, "forbidden"]);
    expect(await refused("failures,pods", acme)).toEqual([403, "forbidden"]);
    const many = Array.from({ length: 17 }, (_, at) => `task:${at}`).join();
    expect(await refused(many)).toEqual([400, "invalid_input"]);
  });

  test("ends when the key is revoked", async () => {
    const { key, text } = await server.flotilla.keys.create({ name: "page", role: "viewer" });
    const reader = follow("pods", text);
    const socket = await connectSocket(text);
    await socket.client.request({ type: "watch", topics: ["pods"] });
    await until("both", () => reader.events.length > 0 && socket.events.length > 0);
    await server.flotilla.keys.revoke(key.keyId);
    await until("the end", () => reader.state.isOver);
    expect(reader.state.errors).toMatchObject([{ code: "unauthorized" }]);
    expect(await socket.client.closed()).toMatchObject({ code: 4401 });
  });

  test("cuts off a reader that doesn't read, and reads on for the others", async () => {
    const key = "the-long-one";
    const put = (at: number) =>
      enqueue(
        "long",
        { at, text: String(at).padEnd(240_000, "x") },
        { key, onDuplicate: "replace" },
      );
    const taskId = await put(0);
    const slow = follow(`task:${taskId}`, admin);
    const fast = await connectSocket(admin);
    await fast.client.request({ type: "watch", topics: [`task:${taskId}`] });
    const seen = () => {
      const task = fast.data[`task:${taskId}`]?.["task"] as { payload: { at: number } } | undefined;
      return task?.payload.at;
    };
    await until("both", () => slow.events.length > 0 && seen() === 0);
    const paused = (await slow.answer).pause();
    let wasCut = false;
    paused.once("close", () => (wasCut = true));
    for (let at = 1; at <= 50; at++) {
      await put(at);
      await untilRead(`the change ${at}`, () => seen() === at);
    }
    paused.resume();
    await until("the end", () => slow.state.isOver);
    expect(wasCut).toBe(true);
    expect(slow.events.length).toBeLessThan(50);
    expect(fast.client.isOpen).toBe(true);
  });
});

describe("watching over a socket", () => {
  test("gives the same events, until other topics or none are watched", async () => {
    const { client, events, data } = await connectSocket();
    const reader = follow("pods");
    expect(await client.request({ type: "watch", topics: ["pods"] })).toMatchObject({
      type: "ack",
    });
    await until("a snapshot", () => data["pods"] && reader.data["pods"]);
    expect(Object.keys(data["pods"]!["pods"] as WatchData)).toEqual([server.pod.podId]);
    expect(await client.request({ type: "watch", topics: ["failures"] })).toMatchObject({
      type: "ack",
    });
    await until("the other", () => data["failures"]);
    const before = events.length;
    expect(await client.request({ type: "watch", topics: [] })).toMatchObject({ type: "ack" });
    await enqueue("later", 1);
    await clock.advance(5_000);
    expect(events).toHaveLength(before);
  });

  test("refuses a frame with a topic that the caller may not see, and keeps to those before", async () => {
    const { client, data, events } = await connectSocket();
    await client.request({ type: "watch", topics: ["overview"] });
    await until("a snapshot", () => data["overview"]);
    expect(await client.request({ type: "watch", topics: ["audit"] })).toMatchObject({
      type: "error",
      code: "forbidden",
    });
    const before = events.length;
    await enqueue("unhandled", 1);
    await untilRead("the change", () => events.length > before);
    expect(data["audit"]).toBeUndefined();
  });

  test.each([{ topics: "pods" }, { topics: [1] }, {}, { topics: [""] }])(
    "refuses %j",
    async (fields) => {
      const { client } = await connectSocket();
      expect(await client.request({ type: "watch", ...fields })).toMatchObject({
        type: "error",
        code: "invalid_input",
        details: { what: "topics" },
      });
    },
  );
});
