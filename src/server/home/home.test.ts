import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { flow } from "../../flows/flow.ts";
import { connect } from "../../runtime/connect.ts";
import { version } from "../../runtime/version.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { appHarness, openTestStore } from "../contract/app-harness.ts";
import { startTestServer } from "../contract/test-server.ts";
import { findDocs } from "./home.ts";

// What browsers send for a page.
const Accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const key = "a-key-of-16-chars-or-more";
const order = flow("order", { version: 1 }).signal("approval", {}).end();
const helper = agent("helper", async function* () {
  yield "hello";
});

const testStore = openTestStore();
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-home-"));
  mkdirSync(join(folder, "chat"));
  writeFileSync(join(folder, "chat/index.html"), "<!doctype html><title>Chat</title>");
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("/ without keys, on this machine", () => {
  test("shows a browser what the server is and what is in its store, and programs the same", async () => {
    const pages = { "/chat": join(folder, "chat") };
    await using server = await startTestServer({ use: [order, helper], server: { pages } });
    const { flotilla, url } = server;
    await flotilla.enqueueMany("mail", [1, 2, 3], { delayMs: 60_000 });
    const { runId } = await flotilla.runs.start(order, null);
    await flotilla.sessions.create(helper, { sessionId: "first" });
    await until("a run that waits", async () => {
      const run = await flotilla.runs.get(runId);
      return run?.doing?.type === "waiting_for_signal";
    });

    const answer = await fetch(url, { headers: { Accept } });
    const page = await answer.text();
    expect(answer.status).toBe(200);
    expect(answer.headers.get("content-type")).toBe("text/html; charset=utf-8");
    for (const part of [`version ${version()}`, "on SQLite", "3 delayed", "1 up", "1 idle"])
      expect(page).toContain(part);
    expect(page).toContain(`${url}/v1/runs/${runId}/signals`);
    const links = [...page.matchAll(/href="(\/[^"]*)"/g)].map(([, path]) => path!);
    expect(links).toEqual(
      expect.arrayContaining(["/chat/", "/v1/openapi.json", "/metrics", "/v1/docs/quickstart.md"]),
    );
    for (const path of links) expect([path, (await fetch(url + path)).status]).toEqual([path, 200]);

    for (const type of ["*/*", "application/json", "application/json, text/html;q=0.5"]) {
      const told = await fetch(url, { headers: { Accept: type } });
      expect(told.headers.get("content-type")).toBe("application/json");
      expect(await told.json()).toMatchObject({
        name: "flotilla",
        version: version(),
        store: "sqlite",
        links: { chat: "/chat/", api: "/v1/openapi.json" },
        overview: {
          tasks: { delayed: 3, failed: 0 },
          runs: { waiting_for_signal: 1, running: 0 },
          sessions: { all: 1, busy: 0 },
          pods: { up: 1, down: 0 },
          waiting: [{ runId, flow: "order", signal: "approval" }],
        },
      });
    }
    const docs = await fetch(`${url}/v1/docs/quickstart.md`);
    expect(docs.headers.get("content-type")).toBe("text/plain; charset=utf-8");
    expect(await docs.text()).toMatch(/^# /);
    for (const page of ["nothing.md", "..%2Fpackage.json", "decisions", "constructor"])
      expect((await fetch(`${url}/v1/docs/${page}`)).status).toBe(404);
    const sent = await fetch(url, { method: "POST" });
    expect(sent.status).toBe(404);
  });

  test("is a page that runs and loads nothing, and that no other page may hold", async () => {
    await using server = await startTestServer();
    const { headers } = await fetch(server.url, { headers: { Accept } });
    const policy = headers.get("content-security-policy")!;
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toMatch(/script-src|unsafe|https?:|\*/);
    expect(Object.fromEntries(headers)).toMatchObject({
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "x-frame-options": "DENY",
      vary: "Accept",
    });
  });

  test.each([
    { Host: "evil.example" },
    { Host: "localhost", "Sec-Fetch-Site": "cross-site" },
    { Host: "localhost", "X-Forwarded-For": "10.0.0.1" },
  ])("shows nothing of the store to what isn't a program of this machine: %j", async (headers) => {
    const { get } = appHarness(testStore.flotilla);
    const told = await get("/", headers);
    expect(Object.keys(told.body)).toEqual(["name", "links", "advice"]);
    const page = await get("/", { ...headers, Accept });
    expect(page.body).not.toMatch(/version|In the store|openapi|\/docs/);
  });

  test("escapes what it repeats", async () => {
    const { get } = appHarness(testStore.flotilla);
    const page = await get("/", { Host: "<img src=x>&", Accept });
    expect(page.body).toContain("&lt;img src=x&gt;&amp;");
    expect(page.body).not.toContain("<img");
  });

  test("shows that the store can't be read, and not where it is", async () => {
    await using nowhere = connect(`sqlite:${join(folder, "missing.db")}`, { create: false });
    const { get } = appHarness(nowhere);
    expect(await get("/")).toMatchObject({ status: 200, body: { trouble: "store_missing" } });
    const page = await get("/", { Accept });
    expect(page.body).toContain("store_missing");
    expect(page.body).not.toContain(folder);
  });

  test("reads the store once for all requests within a moment", async () => {
    let looks = 0;
    const depth = () => {
      looks++;
      return testStore.flotilla.pages.depth();
    };
    const { get } = appHarness({
      ...testStore.flotilla,
      pages: { ...testStore.flotilla.pages, depth },
    });
    await Promise.all(Array.from({ length: 20 }, () => get("/")));
    await get("/", { Accept });
    expect(looks).toBe(1);
  });

  test("and the routes that the overview reads keep to the connections for pages", async () => {
    const refuse = () => Promise.reject(new Error("an ordinary connection is used"));
    const { flotilla } = testStore;
    const { get } = appHarness({
      ...flotilla,
      pods: refuse,
      sessionCounts: refuse,
      approvals: refuse,
      tasks: { ...flotilla.tasks, depth: refuse },
      runs: { ...flotilla.runs, doing: refuse },
      throttles: { ...flotilla.throttles, list: refuse },
      schedules: { ...flotilla.schedules, list: refuse },
      bulk: { ...flotilla.bulk, list: refuse },
      deadLetters: { ...flotilla.deadLetters, redrives: refuse },
    });
    expect((await get("/")).body).toHaveProperty("overview");
    const lists = ["approvals", "bulk", "depth", "dlq/redrives", "pods", "schedules", "throttles"];
    for (const list of lists)
      expect([list, (await get(`/v1/${list}`)).status]).toEqual([list, 200]);
  });
});

describe("/ with keys", () => {
  const apiKeys = [key, { key: `${key}-of-acme`, tenant: "acme" }];
  const ask = (headers: Record<string, string>) =>
    appHarness(testStore.flotilla, { apiKeys }).get("/", headers);

  test("shows strangers its name and what to do", async () => {
    const told = await ask({});
    expect(told).toMatchObject({ status: 200, body: { name: "flotilla" } });
    expect(told.body.advice).toContain("Authorization: Bearer <key>");
    expect(Object.keys(told.body)).toEqual(["name", "links", "advice"]);
    expect(Object.keys(told.body.links)).toEqual(["signIn", "live", "ready"]);
    const page = await ask({ Accept });
    expect(page.body).toContain("Authorization: Bearer &lt;key&gt;");
    expect(page.body).not.toMatch(/version|In the store|openapi|metrics/);
  });

  test("shows an administrator all of it, and a key of less no more than strangers", async () => {
    const all = await ask({ Authorization: `Bearer ${key}` });
    expect(all.body.caller.verbs).toContain("admin");
    expect(all.body).toMatchObject({ store: "sqlite", overview: { tasks: { ready: 0 } } });
    const some = await ask({ Authorization: `Bearer ${key}-of-acme` });
    expect(Object.keys(some.body)).toEqual(["name", "links", "caller"]);
    expect(some.body.caller).toMatchObject({ kind: "server", tenant: "acme" });
    expect(some.body.caller.verbs).not.toContain("fleet:read");
  });

  test("leads to docs that are there, and to none where a bundler left them out", () => {
    expect([...findDocs().keys()]).toEqual(expect.arrayContaining(["quickstart.md", "tasks.md"]));
    expect(findDocs(pathToFileURL(join(folder, "nowhere/"))).size).toBe(0);
  });

  test("refuses a key that is wrong", async () => {
    const wrong = await ask({ Authorization: `Bearer ${key}x`, Accept });
    expect(wrong).toMatchObject({ status: 401, body: { error: { code: "unauthorized" } } });
  });
});
