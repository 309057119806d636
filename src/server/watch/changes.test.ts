import { request } from "node:http";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import type { RecordedChange } from "../../changes/change.ts";
import type { ChangePage } from "../../changes/changes.ts";
import { task } from "../../tasks/task.ts";
import { startTestServer, type TestServer } from "../contract/test-server.ts";

const viewer = "a-key-that-looks-after-all";
const acme = "a-key-that-looks-after-acme";
const app = "a-key-of-an-app";
let server: TestServer;
const ends: (() => void)[] = [];

beforeAll(async () => {
  server = await startTestServer({
    use: [task("mail", {}, () => "sent")],
    changes: {},
    server: {
      apiKeys: [
        { key: viewer, role: "viewer" },
        { key: acme, role: "viewer", tenant: "acme" },
        { key: app, verbs: ["sessions:read"] },
      ],
    },
  });
});
afterEach(() => {
  for (const end of ends.splice(0)) end();
});
afterAll(() => server[Symbol.asyncDispose]());

const ask = (query: string, key = viewer, headers: Record<string, string> = {}) =>
  fetch(`${server.url}/v1/changes${query}`, {
    headers: { Authorization: `Bearer ${key}`, ...headers },
  });
const page = async (query: string, key = viewer) =>
  (await (await ask(query, key)).json()) as ChangePage;
const run = async (tenant = "default") => {
  const { taskId } = await server.flotilla.enqueue("mail", {}, { tenant });
  await server.flotilla.waitFor(taskId);
  return taskId;
};

/** Follows by server-sent events. */
function follow(query: string, { key = viewer, headers = {} as Record<string, string> } = {}) {
  const seen: RecordedChange[] = [];
  const ids: string[] = [];
  const sent = request(`${server.url}/v1/changes${query}`, {
    headers: { Authorization: `Bearer ${key}`, ...headers },
  });
  ends.push(() => sent.destroy());
  let text = "";
  let isOpen = false;
  sent.on("response", (got) => {
    isOpen = true;
    got.setEncoding("utf8").on("data", (more: string) => {
      text += more;
      const blocks = text.split("\n\n");
      text = blocks.pop()!;
      for (const block of blocks) {
        const [, id, json] = /^id: (.*)\nevent: change\ndata: (.*)$/s.exec(block) ?? [];
        if (json === undefined) continue;
        ids.push(id!);
        seen.push(JSON.parse(json) as RecordedChange);
      }
    });
    got.on("error", () => {});
  });
  sent.on("error", () => {}).end();
  const opened = () => until("the answer", () => isOpen);
  return { seen, ids, opened, stop: () => sent.destroy() };
}

test("changes are pages, one after the other, of a caller's tenant alone", async () => {
  const taskId = await run();
  const other = await run("acme");
  const first = await page("?limit=1");
  expect(first).toMatchObject({ changes: [{ id: taskId, change: "created" }], more: true });
  const rest = await page(`?after=${first.cursor}&names=mail&kinds=task`);
  expect(rest.changes.map(({ id, change }) => [id, change])).toEqual([
    [taskId, "completed"],
    [other, "created"],
    [other, "completed"],
  ]);
  expect(rest.more).toBe(false);
  expect((await page(`?after=${rest.cursor}`)).changes).toEqual([]);
  const own = await page("", acme);
  expect(own.changes.map(({ id }) => id)).toEqual([other, other]);
  expect((await ask("?tenant=default", acme)).status).toBe(403);
  expect((await ask("", app)).status).toBe(403);
});

test("changes are followed by events, and go on behind the last id", async () => {
  const live = follow("?after=now", { headers: { Accept: "text/event-stream" } });
  await live.opened();
  const taskId = await run();
  await until("both events", () => live.seen.length === 2);
  expect(live.seen.map(({ id, change }) => [id, change])).toEqual([
    [taskId, "created"],
    [taskId, "completed"],
  ]);
  expect(live.ids).toEqual(live.seen.map(({ cursor }) => cursor));
  live.stop();
  const again = follow("?follow=true&after=now", { headers: { "Last-Event-ID": live.ids[0]! } });
  await until("the second event", () => again.seen.length === 1);
  expect(again.seen[0]).toMatchObject({ id: taskId, change: "completed" });
});

test("a cursor that is too old, or no cursor, is refused before a stream begins", async () => {
  const cases = [
    ["?after=nonsense", 400, "invalid_option"],
    ["?kinds=tasks", 400, "invalid_option"],
    ["?after=another-life.1.0", 410, "cursor_expired"],
  ] as const;
  for (const [query, status, code] of cases) {
    const answer = await ask(query, viewer, { Accept: "text/event-stream" });
    expect(answer.status).toBe(status);
    expect(await answer.json()).toMatchObject({ error: { code } });
  }
});
