import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { FlotillaError } from "../../base/errors.ts";
import { flow } from "../../flows/flow.ts";
import { sensitive } from "../../redaction/sensitive.ts";
import { task } from "../../tasks/task.ts";
import type { Tasks } from "../../tasks/tasks.ts";
import { startTestServer } from "../contract/test-server.ts";

const admin = "a-key-of-16-chars-or-more";
const acmes = "a-key-of-an-acme-viewer-1";
const viewer = "a-key-of-a-viewer-of-all";
const reader = "a-key-that-reads-payloads";

const order = flow("order", { version: 1 }).signal("approval", {}).end();
const paid = z.object({ card: sensitive(z.string()), id: z.number() });
const pay = task("pay", { input: paid }, () => {});

let server: Awaited<ReturnType<typeof startTestServer>>;
let taskIds: string[];

beforeAll(async () => {
  server = await startTestServer({
    use: [order, pay],
    server: {
      apiKeys: [
        admin,
        { key: acmes, role: "viewer", tenant: "acme" },
        { key: viewer, role: "viewer" },
        { key: reader, verbs: ["fleet:read", "payloads:read"] },
      ],
    },
  });
  const { flotilla } = server;
  taskIds = [];
  for (const tenant of ["acme", "other"]) {
    for (const id of [1, 2]) {
      const input = { order: { id, note: "it's 100%" }, password: "hunter2" };
      const made = await flotilla.enqueue("mail", input, { tenant, key: `k${id}` });
      taskIds.push(made.taskId);
    }
  }
});
afterAll(() => server[Symbol.asyncDispose]());

const get = async (key: string, path: string) => {
  const answer = await fetch(`${server.url}${path}`, {
    headers: { Authorization: `Bearer ${key}` },
  });
  // oxlint-disable-next-line typescript/no-explicit-any
  return { status: answer.status, body: (await answer.json()) as any };
};
const idsOf = ({ body }: { body: { tasks: { taskId: string }[] } }) =>
  body.tasks.map(({ taskId }) => taskId);
const newest = () => taskIds.toReversed();

describe("a list over HTTP", () => {
  test("takes the filters of a list, and says how far it was searched", async () => {
    const whole = await get(admin, "/v1/tasks");
    expect(whole).toMatchObject({ status: 200, body: { next: null, lookedBackTo: null } });
    expect(idsOf(whole)).toEqual(newest());
    const [last] = newest();
    const { tasks } = whole.body as { tasks: { createdAtMs: number }[] };
    const first = await get(admin, "/v1/tasks?limit=1");
    expect(first.body).toMatchObject({ lookedBackTo: tasks[0]!.createdAtMs });
    expect(idsOf(first)).toEqual([last]);
    expect(idsOf(await get(admin, "/v1/tasks?name=mail&key=k2&tenant=acme"))).toEqual([taskIds[1]]);
    expect(idsOf(await get(admin, "/v1/tasks?status=pending&sinceMs=1"))).toEqual(newest());
    expect(idsOf(await get(admin, "/v1/tasks?untilMs=1"))).toEqual([]);
    for (const nothing of ["pod=p", "session=s", "run=r", "scope=key/mail/k", "status=failed"]) {
      expect(await get(admin, `/v1/tasks?${nothing}`)).toMatchObject({
        status: 200,
        body: { tasks: [], next: null },
      });
    }
    const runs = await get(admin, "/v1/runs?key=k&pod=p&sinceMs=1&untilMs=2");
    expect(runs.body).toEqual({ runs: [], next: null, lookedBackTo: null });
  });

  test("holds a caller of one tenant to it, whatever it filters by, and refuses cursors of others", async () => {
    expect(idsOf(await get(acmes, "/v1/tasks?key=k1&name=mail"))).toEqual([taskIds[0]]);
    const { body } = await get(viewer, "/v1/tasks?limit=1");
    expect(await get(acmes, `/v1/tasks?limit=1&cursor=${body.next}`)).toMatchObject({
      status: 400,
      body: { error: { message: expect.stringContaining("cursor must be the `next`") } },
    });
  });

  test("finds tasks by a value of their payload, for callers that may see payloads", async () => {
    const query = "/v1/tasks?name=mail&sinceMs=1&payload.order.id=1";
    for (const key of [admin, reader]) {
      expect(idsOf(await get(key, query))).toEqual([taskIds[2], taskIds[0]]);
    }
    const note = encodeURIComponent("it's 100%");
    expect(idsOf(await get(reader, `${query}&payload.order.note=${note}`))).toHaveLength(2);
    expect(idsOf(await get(reader, `${query}&payload.order.note=other`))).toEqual([]);
    expect(idsOf(await get(reader, '/v1/tasks?name=mail&sinceMs=1&payload.order.id="1"'))).toEqual(
      [],
    );
    for (const key of [viewer, acmes]) {
      expect(await get(key, query)).toMatchObject({
        status: 403,
        body: { error: { code: "forbidden", details: { verb: "payloads:read" } } },
      });
    }
  });

  test("can't be searched by what is shown to no caller", async () => {
    for (const query of ["name=mail&payload.password=hunter2", "name=pay&payload.card=4242"]) {
      expect(await get(reader, `/v1/tasks?sinceMs=1&${query}`)).toMatchObject({
        status: 403,
        body: { error: { message: expect.stringContaining("isn't shown to callers") } },
      });
    }
    expect((await get(reader, "/v1/tasks?sinceMs=1&name=pay&payload.id=7")).status).toBe(200);
  });

  test("is dropped when its caller hangs up", async () => {
    const tasks = server.flotilla.tasks as { list: Tasks["list"] };
    const { list } = tasks;
    const [asked, dropped] = [Promise.withResolvers<void>(), Promise.withResolvers<boolean>()];
    tasks.list = ({ signal } = {}) =>
      new Promise((_, reject) => {
        signal!.addEventListener("abort", () => {
          dropped.resolve(true);
          reject(new FlotillaError("cancelled", "its caller has hung up"));
        });
        asked.resolve();
      });
    const leaving = new AbortController();
    const headers = { Authorization: `Bearer ${admin}` };
    const answer = fetch(`${server.url}/v1/tasks`, { headers, signal: leaving.signal });
    const hungUp = answer.then(
      () => false,
      () => true,
    );
    await asked.promise;
    leaving.abort();
    expect(await hungUp).toBe(true);
    expect(await dropped.promise).toBe(true);
    tasks.list = list;
  });

  const deep = Array.from({ length: 50 }, () => "a").join(".");
  test.each([
    [`name=${"x".repeat(10_000)}`, "name must be"],
    ["colour=red", "unknown option `colour`"],
    ["payload=7", "payload needs a path: write payload.<path>=<value>"],
    ["payload.id=7", "payload needs `name` and `sinceMs`"],
    ["name=a&sinceMs=1&payload.__proto__=7", "must be a path"],
    ["name=a&sinceMs=1&payload.constructor.__proto__=7", "must be a path"],
    ["name=a&sinceMs=1&payload.a%22b=7", "must be a path"],
    ["name=a&sinceMs=1&payload.a%25=7", "must be a path"],
    [`name=a&sinceMs=1&payload.${deep}=7`, "must be a path of 1 to 5 names"],
    ["name=a&sinceMs=1&payload.id=9007199254740993", "within 2^53"],
    ["sinceMs=yesterday", "sinceMs must be a whole number"],
    ["cursor=made-up", "cursor must be the `next` of an earlier page"],
    ["session=s&run=r", "session and run can't be combined"],
  ])("is refused with a sentence for ?%s", async (query, message) => {
    const answer = await get(admin, `/v1/tasks?${query}`);
    expect(answer.status).toBe(400);
    expect(answer.body.error).toMatchObject({
      code: "invalid_option",
      message: expect.stringContaining(message),
    });
  });

  test("counts to a bound, and all where that is asked for", async () => {
    for (const path of ["/v1/stats", "/v1/stats?exact=true"]) {
      expect((await get(admin, path)).body).toMatchObject({
        byStatus: { pending: 4 },
        atLeast: [],
      });
    }
    expect((await get(admin, "/v1/stats?exact=maybe")).status).toBe(400);
    expect((await get(admin, "/v1/flows")).body.flows).toMatchObject([
      { flow: "order", atLeast: false },
    ]);
  });
});
