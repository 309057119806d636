import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { until } from "../../../base/contract/movable-clock.ts";
import { sensitive } from "../../../redaction/sensitive.ts";
import { task } from "../../../tasks/task.ts";
import { startTestServer } from "../../contract/test-server.ts";

const operator = "a-key-of-an-operator-of-all";
const admin = "a-key-of-an-administrator";
const viewer = "a-key-of-a-viewer-of-all";
const acmes = "a-key-of-an-acme-operator";
const card = task("pay", { input: z.object({ card: sensitive(z.string()) }) }, () => {});

let server: Awaited<ReturnType<typeof startTestServer>>;
beforeAll(async () => {
  server = await startTestServer({
    use: [card],
    server: {
      apiKeys: [
        { key: operator, name: "ops", role: "operator" },
        { key: admin, role: "admin" },
        { key: viewer, role: "viewer" },
        { key: acmes, role: "operator", tenant: "acme" },
      ],
    },
  });
});
afterAll(() => server[Symbol.asyncDispose]());

const ask = async (key: string, method: string, path: string, body?: unknown, headers = {}) => {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${key}`,
      "Content-Type": "application/json",
      ...headers,
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  // oxlint-disable-next-line typescript/no-explicit-any
  return { status: answer.status, body: (await answer.json()) as any };
};
const delayed = async (name: string, count: number, tenant = "default") => {
  const options = { tenant, delayMs: 3_600_000 };
  const inputs = Array.from({ length: count }, (_, at) => at);
  return (await server.flotilla.tasks.enqueueMany(name, inputs, options)).map(
    ({ taskId }) => taskId,
  );
};
const ended = async (bulkId: string) =>
  until("the end of a bulk", async () => {
    const { body } = await ask(operator, "GET", `/v1/bulk/${bulkId}`);
    return body.state === "running" ? undefined : body;
  });

describe("a bulk over HTTP", () => {
  test("is previewed, started, followed and listed, and the same id is the same bulk", async () => {
    const taskIds = await delayed("wrong", 3);
    const request = { action: "cancel", filter: { name: "wrong" } };
    expect(await ask(viewer, "POST", "/v1/bulk/preview", request)).toEqual({
      status: 200,
      body: { matched: 3, isExact: true, sample: taskIds.toSorted() },
    });
    const click = { "Flotilla-Action": "click-1" };
    const start = () => ask(operator, "POST", "/v1/bulk", { ...request, reason: "wrong" }, click);
    const [first, second] = await Promise.all([start(), start()]);
    expect([first.status, second.status]).toEqual([202, 202]);
    expect(second.body.bulkId).toBe(first.body.bulkId);
    expect(first.body).toMatchObject({
      state: "running",
      matched: 3,
      createdBy: "key/ops",
      reason: "wrong",
    });
    expect(await ended(first.body.bulkId)).toMatchObject({ state: "done", done: 3 });
    for (const taskId of taskIds) {
      const { body } = await ask(viewer, "GET", `/v1/tasks/${taskId}`);
      expect(body.task.status).toBe("cancelled");
      expect(body.events.at(-1)).toMatchObject({ detail: { request: first.body.bulkId } });
    }
    const { body } = await ask(viewer, "GET", "/v1/bulk?limit=1");
    expect(body.bulks).toMatchObject([{ bulkId: first.body.bulkId }]);
    const done = await ask(operator, "POST", `/v1/bulk/${first.body.bulkId}/stop`);
    expect(done).toMatchObject({ status: 409, body: { error: { code: "conflict" } } });
    expect((await ask(operator, "GET", "/v1/bulk/none")).status).toBe(404);
  });

  test("that deletes needs an administrator", async () => {
    const request = { action: "delete", filter: { name: "wrong" } };
    expect(await ask(operator, "POST", "/v1/bulk", request)).toMatchObject({
      status: 403,
      body: { error: { details: { verb: "admin" } } },
    });
    const begun = await ask(admin, "POST", "/v1/bulk", request);
    expect(begun.status).toBe(202);
    // They ended a moment ago.
    expect(await ended(begun.body.bulkId)).toMatchObject({ state: "done", done: 0, refused: 3 });
  });

  test("is held to the tenant of its operator, and an empty filter is refused to each", async () => {
    const own = await delayed("shared", 2, "acme");
    const others = await delayed("shared", 2, "other");
    for (const key of [operator, acmes]) {
      for (const path of ["/v1/bulk", "/v1/bulk/preview"]) {
        const empty = await ask(key, "POST", path, { action: "cancel", filter: {} });
        expect(empty.status).toBe(400);
        expect(empty.body.error.message).toContain("the filter is empty");
      }
    }
    const elsewhere = { action: "cancel", filter: { tenant: "other" } };
    expect((await ask(acmes, "POST", "/v1/bulk", elsewhere)).status).toBe(403);
    expect((await ask(acmes, "POST", "/v1/bulk/preview", elsewhere)).status).toBe(403);
    const request = { action: "cancel", filter: { name: "shared" } };
    const begun = await ask(acmes, "POST", "/v1/bulk", request);
    expect(begun).toMatchObject({ status: 202, body: { filter: { tenant: "acme" }, matched: 2 } });
    expect(await ended(begun.body.bulkId)).toMatchObject({ done: 2 });
    const statuses = async (taskIds: readonly string[]) =>
      Promise.all(taskIds.map(async (id) => (await server.flotilla.tasks.get(id))!.status));
    expect(await statuses(own)).toEqual(["cancelled", "cancelled"]);
    expect(await statuses(others)).toEqual(["pending", "pending"]);

    const ofAll = await ask(operator, "POST", "/v1/bulk", request);
    expect(await ended(ofAll.body.bulkId)).toMatchObject({ done: 2 });
    const at = `/v1/bulk/${ofAll.body.bulkId}`;
    expect((await ask(acmes, "GET", at)).status).toBe(404);
    expect((await ask(acmes, "POST", `${at}/stop`)).status).toBe(404);
    const listed = await ask(acmes, "GET", "/v1/bulk");
    expect(listed.body.bulks).toMatchObject([{ bulkId: begun.body.bulkId }]);
    expect(listed.body.bulks).toHaveLength(1);
  });

  test("shows nothing of what its signal carries", async () => {
    const request = {
      action: "signal",
      filter: { name: "nothing" },
      signal: "go",
      payload: { card: "4111-1111" },
    };
    const begun = await ask(admin, "POST", "/v1/bulk", request);
    expect(begun.body).toMatchObject({ signal: "go" });
    await ended(begun.body.bulkId);
    for (const path of [`/v1/bulk/${begun.body.bulkId}`, "/v1/bulk", "/v1/audit"]) {
      expect(JSON.stringify((await ask(admin, "GET", path)).body)).not.toContain("4111");
    }
  });

  test("takes values of payloads from callers that may see them, and shows them to no other", async () => {
    const options = { delayMs: 3_600_000 };
    const inputs = [{ order: { id: 7 } }, { order: { id: 8 } }];
    const made = await server.flotilla.tasks.enqueueMany("ordered", inputs, options);
    const filter = { name: "ordered", sinceMs: 0, payload: { "order.id": 7 } };
    const request = { action: "cancel", filter };
    expect(await ask(admin, "POST", "/v1/bulk/preview", request)).toMatchObject({
      body: { matched: 1, sample: [made[0]!.taskId] },
    });
    for (const [key, path] of [
      [viewer, "/v1/bulk/preview"],
      [operator, "/v1/bulk/preview"],
      [operator, "/v1/bulk"],
    ] as const) {
      expect(await ask(key, "POST", path, request)).toMatchObject({
        status: 403,
        body: { error: { details: { verb: "payloads:read" } } },
      });
    }
    const hidden = { name: "pay", sinceMs: 0, payload: { card: "4242" } };
    expect(
      await ask(admin, "POST", "/v1/bulk/preview", { ...request, filter: hidden }),
    ).toMatchObject({
      status: 403,
      body: { error: { message: expect.stringContaining("isn't shown") } },
    });
    const click = { "Flotilla-Action": "click-payload" };
    const begun = await ask(admin, "POST", "/v1/bulk", request, click);
    expect(begun.body.filter).toEqual(filter);
    const other = { ...request, filter: { ...filter, payload: { "order.id": 8 } } };
    expect((await ask(admin, "POST", "/v1/bulk", other, click)).status).toBe(409);
    expect(await ended(begun.body.bulkId)).toMatchObject({ done: 1 });
    const seen = await ask(viewer, "GET", `/v1/bulk/${begun.body.bulkId}`);
    expect(seen.body.filter.payload).not.toEqual(filter.payload);
    expect(JSON.stringify(seen.body.filter)).not.toContain("7");
    const { body } = await ask(admin, "GET", "/v1/audit?action=bulk.start&limit=1");
    expect(body.entries[0].filter).toMatchObject({ name: "ordered", payload: ["order.id"] });
  });

  test("on ids is held to the tenant of its operator, and tells what became of each", async () => {
    const [own, second] = await delayed("picked", 2, "acme");
    const [others] = await delayed("picked", 1, "other");
    const request = { action: "cancel", filter: { ids: [own, others] } };
    expect((await ask(acmes, "POST", "/v1/bulk/preview", request)).body).toMatchObject({
      matched: 1,
      sample: [own],
    });
    const click = { "Flotilla-Action": "click-ids" };
    const begun = await ask(acmes, "POST", "/v1/bulk", request, click);
    expect(begun.body.filter).toEqual({ ids: [own, others], tenant: "acme" });
    const other = { action: "cancel", filter: { ids: [own, second] } };
    expect((await ask(acmes, "POST", "/v1/bulk", other, click)).status).toBe(409);
    const { bulkId } = begun.body;
    expect(await ended(bulkId)).toMatchObject({ done: 1 });
    expect(await ask(acmes, "GET", `/v1/bulk/${bulkId}/outcomes`)).toEqual({
      status: 200,
      body: {
        outcomes: [
          { taskId: own, outcome: "done", status: "cancelled" },
          { taskId: others, outcome: "gone", status: null },
        ],
      },
    });
    expect((await server.flotilla.tasks.get(others!))!.status).toBe("pending");
    const byOperator = await ask(operator, "POST", "/v1/bulk", request);
    const foreign = `/v1/bulk/${byOperator.body.bulkId}/outcomes`;
    expect((await ask(acmes, "GET", foreign)).status).toBe(404);
    expect((await ask(operator, "GET", "/v1/bulk/none/outcomes")).status).toBe(404);
    expect(await ended(byOperator.body.bulkId)).toMatchObject({ done: 1 });
    const { body } = await ask(admin, "GET", "/v1/audit?action=bulk.start&limit=1");
    expect(body.entries[0].filter).toMatchObject({ ids: [own, others], namedIds: 2 });
    const listed = await ask(acmes, "GET", `/v1/tasks?ids=${own},${others}`);
    expect(listed.body.tasks.map(({ taskId }: { taskId: string }) => taskId)).toEqual([own]);
  });

  test("is for the runs of one version", async () => {
    const { flotilla } = server;
    const { runId } = await flotilla.runs.start("nowhere", null);
    const of = (version: number) => ({ action: "cancel", filter: { name: "nowhere", version } });
    const matched = async (version: number) =>
      (await ask(viewer, "POST", "/v1/bulk/preview", of(version))).body.matched;
    expect([await matched(0), await matched(1)]).toEqual([1, 0]);
    const { body } = await ask(viewer, "GET", "/v1/tasks?name=nowhere&version=0");
    expect(body.tasks).toMatchObject([{ taskId: runId }]);
  });

  test.each([
    [{ filter: { name: "x" } }],
    [{ action: "cancel", filter: { ids: [] } }],
    [{ action: "cancel", filter: { ids: "a,b" } }],
    [{ action: "cancel", filter: { ids: Array.from({ length: 1_001 }, (_, at) => `${at}`) } }],
    [{ action: "cancel", filter: { ids: ["a"], run: "r" } }],
    [{ action: "cancel", filter: { name: "x", version: -1 } }],
    [{ action: "cancel", filter: { name: "x", sinceMs: 0, payload: { ["__proto__"]: 1, id: 7 } } }],
    [{ action: "cancel", filter: { name: "x", sinceMs: 0, payload: "id" } }],
    [{ action: "cancel", filter: { name: "x", payload: { id: 7 } } }],
    [{ action: "cancel", filter: { session: "s", run: "r" } }],
    [{ action: "explode", filter: { name: "x" } }],
    [{ action: "cancel", filter: { naem: "x" } }],
    [{ action: "cancel", filter: { name: "x".repeat(10_000) } }],
    [{ action: "cancel", filter: { "payload.__proto__": "x" } }],
    [{ action: "cancel", filter: { name: "x", status: "failed" } }],
    [{ action: "cancel", filter: "name" }],
    [{ action: "signal", filter: { name: "x" } }],
    [{ action: "resume", filter: { setAside: true }, as: 2 }],
    [{ action: "retry", filter: { group: "g2-nonsense" } }],
  ])("with a bad request is refused with a sentence: %j", async (request) => {
    const { status, body } = await ask(admin, "POST", "/v1/bulk", request);
    expect(status).toBe(400);
    expect(body.error.message.length).toBeGreaterThan(10);
  });
});
