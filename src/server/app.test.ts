import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { silentLogger } from "../base/log.ts";
import { task } from "../tasks/task.ts";
import { connect, type Flotilla } from "../runtime/connect.ts";
import { startPod } from "../runtime/start-pod.ts";
import type { AppParts } from "./app.ts";
import { appHarness, openTestStore } from "./contract/app-harness.ts";
import type { TaskContract } from "../tasks/model.ts";

const key = "a-key-of-16-chars-or-more";

const testStore = openTestStore();

const server = (parts: Partial<AppParts> = {}) => appHarness(testStore.flotilla, parts);

describe("tasks over HTTP", () => {
  test("what no pod that is up works on is answered with `noWorker`", async () => {
    const { post } = server();
    const { store, flotilla } = testStore;
    const lone = { noWorker: true, created: true };
    expect((await post("/v1/tasks", { name: "gret" })).body).toMatchObject(lone);
    expect((await post("/v1/runs", { flow: "gret" })).body).toMatchObject(lone);
    const graph = { tasks: [{ ref: "a", name: "gret" }] };
    const made = await post("/v1/tasks/graph", graph);
    expect(made.body).toMatchObject({ tasks: { a: lone } });
    const many = await post("/v1/tasks/bulk", [{ name: "gret" }, { name: "grot" }, { name: "" }]);
    expect(many.body).toMatchObject({ created: 2, noWorker: ["gret", "grot"] });
    const greet = task("greet", {}, async () => "hello");
    await using _ = await startPod({ store, use: [greet], log: silentLogger, dataDir: false });
    const served = (await post("/v1/tasks", { name: "greet" })).body;
    expect(served).toMatchObject({ noWorker: false, created: true });
    expect(await flotilla.waitFor(served.taskId)).toBe("hello");
  });

  test("one is stored, listed and shown with its events", async () => {
    const { post, get } = server();
    const options = { priority: 5, delayMs: 60_000, attempts: 2, tenant: "acme", key: "k" };
    const made = await post("/v1/tasks", { name: "mail", input: { to: "ada" }, options });
    expect(made).toMatchObject({ status: 201, body: { created: true } });
    const { taskId } = made.body;
    expect(await post("/v1/tasks", { name: "mail", input: { to: "bob" }, options })).toMatchObject({
      status: 200,
      body: { taskId, created: false },
    });

    const expected = {
      taskId,
      name: "mail",
      tenant: "acme",
      priority: 5,
      maxAttempts: 2,
      key: "k",
      payload: { to: "ada" },
      status: "pending",
    };
    expect(await get(`/v1/tasks/${taskId}`)).toMatchObject({
      status: 200,
      body: { task: expected, events: [] },
    });
    expect((await get("/v1/tasks?name=mail&status=pending&tenant=acme")).body).toMatchObject({
      tasks: [expected],
      next: null,
    });
    expect((await get("/v1/tasks?tenant=other")).body).toEqual({
      tasks: [],
      next: null,
      lookedBackTo: null,
    });
  });

  test("pages follow one another by the cursor", async () => {
    const { get } = server();
    await testStore.flotilla.enqueueMany("mail", [1, 2, 3]);
    const first = await get("/v1/tasks?limit=2");
    const second = await get(`/v1/tasks?limit=2&cursor=${first.body.next}`);
    const payloads = [...first.body.tasks, ...second.body.tasks].map((each) => each.payload);
    expect(payloads).toEqual([3, 2, 1]);
    expect(second.body.next).toBe(null);
  });

  test("one is cancelled, and started over", async () => {
    const { post, get } = server();
    const { taskId } = (await post("/v1/tasks", { name: "mail" })).body;
    const cancel = await post(`/v1/tasks/${taskId}/cancel`);
    expect(cancel).toMatchObject({ status: 200, body: { status: "cancelled" } });
    expect((await post(`/v1/tasks/${taskId}/retry`)).status).toBe(200);
    expect((await post(`/v1/tasks/${taskId}/retry`)).status).toBe(409);
    const { task: shown, events } = (await get(`/v1/tasks/${taskId}`)).body;
    expect(shown.status).toBe("pending");
    expect(events.map((event: { type: string }) => event.type)).toEqual([
      "cancel_requested",
      "retried",
    ]);
  });
});

describe("what is refused, and nothing stored", () => {
  const mail = task("mail", { input: z.object({ to: z.string() }) });
  const contracts = new Map<string, TaskContract>([["mail", mail]]);
  const deep = `${"[".repeat(65)}${"]".repeat(65)}`;

  test.each([
    ["an input that fails its schema", { name: "mail", input: { to: 5 } }, 400, "invalid_input"],
    ["a missing input with a schema", { name: "mail" }, 400, "invalid_input"],
    ["a body without a name", { input: 1 }, 400, "invalid_input"],
    ["a name that isn't text", { name: 7 }, 400, "invalid_input"],
    ["a name no task can have", { name: "no spaces" }, 400, "invalid_option"],
    ["a misspelt field", { name: "other", inptu: 1 }, 400, "invalid_option"],
    ["a misspelt option", { name: "other", options: { priorty: 1 } }, 400, "invalid_option"],
    [
      "an option out of range",
      { name: "other", options: { priority: 1e9 } },
      400,
      "invalid_option",
    ],
    ["an option that is null", { name: "other", options: { key: null } }, 400, "invalid_option"],
    ["a transaction", { name: "other", options: { tx: {} } }, 400, "invalid_option"],
    ["a NUL", { name: "other", input: "\u0000" }, 400, "payload_not_storable"],
    ["half a surrogate pair", '{"name":"x","input":"\\ud800"}', 400, "payload_not_storable"],
    ["what wasn't shown", { name: "x", input: { key: "[redacted]" } }, 400, "invalid_input"],
    ["an input nested too deep", `{"name":"x","input":${deep}}`, 400, "payload_too_deep"],
    [
      "an input nested absurdly deep",
      `{"name":"x","input":${"[".repeat(200_000)}${"]".repeat(200_000)}}`,
      400,
      "payload_too_deep",
    ],
    ["an input too large", { name: "x", input: "é".repeat(140_000) }, 413, "payload_too_large"],
    ["a body too large", { name: "x", input: "a".repeat(600_000) }, 413, "payload_too_large"],
    ["what isn't JSON", "{", 400, "invalid_input"],
    [
      "what isn't UTF-8",
      Buffer.from(`{"name":"x","input":"\xff"}`, "latin1"),
      400,
      "invalid_input",
    ],
    [
      "a body padded out of proportion",
      `{"name":"x"}${" ".repeat(600_000)}`,
      413,
      "payload_too_large",
    ],
    ["what isn't an object", "[1]", 400, "invalid_input"],
  ])("%s", async (_, body, status, code) => {
    const { post } = server({ contracts });
    const answer = await post("/v1/tasks", body);
    expect(answer).toMatchObject({ status, body: { error: { code } } });
    expect(answer.body.error.message).not.toBe("");
    expect(answer.body.error.details).toBeTypeOf("object");
    expect((await testStore.flotilla.tasks.stats()).byStatus.pending).toBe(0);
  });

  test("the nearest name is suggested", async () => {
    const { post, get } = server();
    const option = await post("/v1/tasks", { name: "x", options: { delayms: 1 } });
    expect(option.body.error).toMatchObject({
      message: "options: unknown option `delayms`, did you mean `delayMs`?",
      details: { option: "delayms", suggestion: "delayMs" },
    });
    const filter = await get("/v1/tasks?statsu=pending");
    expect(filter.body.error.message).toContain("did you mean `status`?");
  });

  test("a body that isn't declared as JSON", async () => {
    const { post } = server();
    const text = await post("/v1/tasks", `{"name":"x"}`, { "Content-Type": "text/plain" });
    expect(text).toMatchObject({ status: 415, body: { error: { code: "unsupported" } } });
    const charset = { "Content-Type": "application/json; charset=utf-8" };
    expect((await post("/v1/tasks", `{"name":"x"}`, charset)).status).toBe(201);
  });

  test.each([
    ["/v1/tasks?limit=0", 400, "invalid_option"],
    ["/v1/tasks?limit=many", 400, "invalid_option"],
    ["/v1/tasks?status=done", 400, "invalid_option"],
    ["/v1/tasks/nowhere", 404, "not_found"],
    ["/v1/task", 404, "not_found"],
  ])("GET %s", async (path, status, code) => {
    expect(await server().get(path)).toMatchObject({ status, body: { error: { code } } });
  });

  test("other methods on a known route, in the same shape", async () => {
    const answer = await server().send("DELETE", "/v1/tasks");
    expect(answer).toMatchObject({ status: 404, body: { error: { code: "not_found" } } });
  });

  test("an unexpected error is an error without its story", async () => {
    const broken: Flotilla = {
      ...testStore.flotilla,
      tasks: {
        ...testStore.flotilla.tasks,
        list: () => Promise.reject(new Error("secret")),
      },
    };
    const answer = await server({ flotilla: broken }).get("/v1/tasks");
    expect(answer).toMatchObject({ status: 500, body: { error: { code: "internal" } } });
    expect(JSON.stringify(answer.body)).not.toContain("secret");
  });
});

describe("who may call", () => {
  test("with keys, callers that have one", async () => {
    const { get } = server({ apiKeys: ["another-key-of-16-chars", key] });
    for (const path of ["/v1/tasks", "/v1/nowhere", "/metrics"]) {
      expect(await get(path)).toMatchObject({
        status: 401,
        body: { error: { code: "unauthorized" } },
      });
      const wrong = { Authorization: `Bearer ${key}x` };
      expect((await get(path, wrong)).status).toBe(401);
      const headers = { Authorization: `Bearer ${key}`, Host: "flotilla.example" };
      expect((await get(path, headers)).status).not.toBe(401);
    }
    expect((await get("/health/live")).status).toBe(200);
    expect((await get("/health/ready")).status).toBe(200);
  });

  test.each([
    ["localhost:8080", 200],
    ["127.0.0.1", 200],
    ["127.8.9.1:80", 200],
    ["[::1]:8080", 200],
    ["LOCALHOST", 200],
    ["evil.example:8080", 403],
    ["localhost.evil.example", 403],
    ["127.0.0.1.evil.example", 403],
    ["10.0.0.1", 403],
    ["", 403],
  ])("without keys, callers that name this machine by its own name: %j", async (Host, status) => {
    const { get } = server();
    expect((await get("/v1/tasks", { Host })).status).toBe(status);
    expect((await get("/metrics", { Host })).status).toBe(status);
  });

  test.each([
    [{ Origin: "http://localhost:8080" }, 200],
    [{ "Sec-Fetch-Site": "same-origin" }, 200],
    [{ "Sec-Fetch-Site": "none" }, 200],
    [{ Origin: "https://evil.example" }, 403],
    [{ Origin: "http://localhost:3000" }, 403],
    [{ Origin: "null" }, 403],
    [{ "Sec-Fetch-Site": "cross-site" }, 403],
    [{ "Sec-Fetch-Site": "same-site" }, 403],
  ])("without keys, no pages of other sites: %j", async (headers, status) => {
    const answer = await server().get("/v1/tasks", { Host: "localhost:8080", ...headers });
    expect(answer.status).toBe(status);
  });
});

describe("health", () => {
  test("is ready when the store can be written, and was", async () => {
    const { get } = server();
    expect(await get("/health/ready")).toMatchObject({ status: 200, body: { status: "ready" } });
    expect((await get("/health/live")).body).toEqual({ status: "live" });
  });

  test("a pod that is stopping lives, but isn't ready", async () => {
    const { get } = server({ isStopping: () => true });
    expect(await get("/health/ready")).toMatchObject({
      status: 503,
      body: { status: "not ready", reason: "stopping" },
    });
    expect((await get("/health/live")).status).toBe(200);
  });

  test("a store that can't be reached is the reason, without its path", async () => {
    const nowhere = connect(`sqlite:${join(testStore.folder, "missing.db")}`, { create: false });
    const answer = await server({ flotilla: nowhere }).get("/health/ready");
    expect(answer).toMatchObject({ status: 503, body: { reason: "store_missing" } });
    expect(JSON.stringify(answer.body)).not.toContain(testStore.folder);
  });
});

describe("text that no store can hold", () => {
  test("is the id of nothing and no filter, and doesn't get to the store", async () => {
    const away = () => Promise.reject(new Error("the store was asked"));
    const { flotilla } = testStore;
    const tasks = { ...flotilla.tasks, get: away, list: away, cancel: away };
    const app = server({ flotilla: { ...flotilla, tasks } });
    const notFound = { status: 404, body: { error: { code: "not_found" } } };
    for (const id of ["%00", "a%00b"]) {
      expect(await app.get(`/v1/tasks/${id}`)).toMatchObject(notFound);
      expect(await app.post(`/v1/tasks/${id}/cancel`)).toMatchObject(notFound);
    }
    expect(await app.get("/v1/tasks?name=a%00b")).toMatchObject({
      status: 400,
      body: { error: { code: "invalid_option", message: expect.stringContaining("name") } },
    });
  });
});
