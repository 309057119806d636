import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Validator } from "@seriousme/openapi-schema-validator";
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../base/clock.ts";
import { abort, type ErrorCode, errorCodes } from "../base/errors.ts";
import { silentLogger } from "../base/log.ts";
import { until } from "../base/contract/movable-clock.ts";
import { durable, later } from "../durable/index.ts";
import { taskOptionNames } from "../protocol/task-options.ts";
import { prepareTask } from "../tasks/enqueue/options.ts";
import { flow } from "../flows/flow.ts";
import { unrecoverable } from "../flows/decide/thrown.ts";
import { task } from "../tasks/task.ts";
import { agent } from "../sessions/agents/agent.ts";
import { connect, type Flotilla } from "../runtime/connect.ts";
import { hook } from "../runtime/hooks/hook.ts";
import type { Pod } from "../runtime/pod.ts";
import { machinesOf } from "../runtime/flows.ts";
import { startPod } from "../runtime/start-pod.ts";
import type { Database } from "../store/database.ts";
import { insertBulk } from "../bulk/sql.ts";
import { openStore } from "../store/open.ts";
import { storeThrottle } from "../throttles/contract/shares-stored.ts";
import { createApp } from "./app.ts";
import { statusOf } from "./errors.ts";
import { createMetrics } from "./metrics/metrics.ts";
import { allSpecs, openApi } from "./openapi.ts";
import { createEventStreams } from "./event-streams.ts";

type Operation = {
  operationId: string;
  responses: Record<string, { $ref?: string; content?: Record<string, unknown> }>;
};
type Document = {
  paths: Record<string, Record<string, Operation>>;
  components: {
    schemas: Record<string, { enum?: string[]; properties?: Record<string, Bounded> }>;
  };
};
type Bounded = { minimum?: number; maximum?: number; maxLength?: number; maxItems?: number };

const document = openApi({ version: "1.2.3" }) as Document;
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
);

let folder: string;
let flotilla: Flotilla;
let pod: Pod;
let database: Database;
let app: ReturnType<typeof createApp>;
let mended = false;
const streams = createEventStreams(systemClock, 1024 * 1024);
const open = { count: 0 };
const release: (() => void)[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-openapi-"));
  const store = `sqlite:${join(folder, "test.db")}`;
  flotilla = connect(store);
  const flaky = task("flaky", { attempts: 1 }, () => {
    if (!mended) throw abort("no paper");
    return { printed: true };
  });
  const slow = task("slow", {}, () => new Promise<void>((resolve) => release.push(resolve)));
  const parcel = flow("parcel", { version: 1 })
    .to("wrap", () => ({ wrapped: true }))
    .end();
  const order = flow("order", { version: 2, queue: { name: "shop", limit: 5 } })
    .to("reserve", { attempts: 1 }, ({ input }) => {
      if (input === "bad") throw unrecoverable("no such item", { by: "user" });
      return { reserved: true };
    })
    .signal("approve", { timeoutMs: 60_000 })
    .children("parcels", () => [[parcel, 1]])
    .finally(() => {})
    .end();
  const compaction = { fn: () => "little" };
  const helper = agent("helper", { compaction }, async function* (context) {
    const wait = async (_input: object, _options: object) => later({ signal: "approve" });
    const { look } = durable(context, { tools: { look: { execute: wait } } }).tools;
    const toolCallId = "c";
    yield { type: "tool-input-available", toolCallId, toolName: "look", input: {} } as const;
    const output = await look.execute({}, { toolCallId });
    yield { type: "tool-output-available", toolCallId, output } as const;
  });
  const use = [flaky, slow, order, parcel, helper];
  // Beats come often so that states are seen soon; a busy machine must not be taken for a blocked loop.
  const beats = { heartbeatMs: 50, deadAfterMs: 30_000, stallBeats: 10_000 };
  pod = await startPod({ store, use, log: silentLogger, changes: {}, ...beats });
  database = await openStore(store);
  app = createApp({
    flotilla,
    streams: {
      ...streams,
      open(...given) {
        open.count++;
        return streams.open(...given);
      },
    },
    apiKeys: [],
    hooks: [hook("any", { verify: () => ({ id: "1" }), handle: () => null })],
    metrics: createMetrics(),
    machines: machinesOf(use),
    isStopping: () => false,
    clock: systemClock,
    log: silentLogger,
  });
});
afterAll(async () => {
  for (const each of release) each();
  await pod.stop();
  await database.close();
  await flotilla.close();
  rmSync(folder, { recursive: true, force: true });
});

describe("the OpenAPI document", () => {
  test("is valid OpenAPI 3.1", async () => {
    const validator = new Validator();
    expect(await validator.validate(structuredClone(document))).toEqual({ valid: true });
    expect(validator.version).toBe("3.1");
  });

  test("has every route that is registered, and no other", () => {
    const registered = app.routes
      // The pages of the sign-in are for people.
      .filter(({ method, path }) => method !== "ALL" && !path.startsWith("/sign-"))
      .map(({ method, path }) => `${method} ${path.replaceAll(/:(\w+)/g, "{$1}")}`);
    const told = operations.map(({ method, path }) => `${method.toUpperCase()} ${path}`);
    expect(told.toSorted()).toEqual(registered.toSorted());
    const ids = operations.map(({ operation }) => operation.operationId);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test("names codes that exist, each under its status, and a list of all", () => {
    expect(document.components.schemas["ErrorCode"]!.enum).toEqual(errorCodes);
    for (const { path, method, operation } of operations) {
      for (const [status, response] of Object.entries(operation.responses)) {
        const text = JSON.stringify(response.$ref ? find(response.$ref) : response);
        const codes = [...text.matchAll(/"enum":\[([^\]]*)\]/g)]
          .flatMap(([, list]) => JSON.parse(`[${list}]`) as ErrorCode[])
          .filter((each) => typeof each === "string");
        for (const code of codes) {
          expect(errorCodes, `${method} ${path}`).toContain(code);
          const statuses = [statusOf(code), statusOf(code, { quota: "turnsAtOnce" })];
          expect(statuses.map(String)).toContain(status);
        }
      }
    }
  });
});

describe("the options of a task", () => {
  const { properties } = document.components.schemas["EnqueueOptions"]!;

  test("are those that there are, without what only programs can give", () => {
    expect(Object.keys(properties!)).toEqual(taskOptionNames);
  });

  test.each(Object.entries(properties!).flatMap(([name, schema]) => edgesOf(name, schema)))(
    "have the bounds that enqueueing has: $name $what",
    ({ name, value, fits: isFit }) => {
      const parts = { ids: { next: () => "id" }, maxPayloadBytes: 100 };
      const options = { ...(name === "uniqueForMs" && { key: "k" }), [name]: value };
      const outcome = () => {
        try {
          return prepareTask("mail", null, options, parts);
        } catch (error) {
          return error;
        }
      };
      expect(outcome()).toMatchObject(isFit ? { name: "mail" } : { code: "invalid_option" });
    },
  );
});

describe("what routes answer", () => {
  test("fits what they declare, from the first to the last of them", async () => {
    const { ask, seen } = asking();
    const post = (path: string, body?: unknown) => ask("post", path, body);

    const { taskId } = await post("/v1/tasks", {
      name: "mail",
      options: { key: "k", tenant: "a" },
    });
    await post("/v1/tasks", { name: "mail", options: { key: "k", tenant: "a" } });
    await post("/v1/tasks", {
      name: "mail",
      options: { key: "k", tenant: "a", onDuplicate: "replace" },
    });
    await post("/v1/tasks/bulk", [{ name: "flaky" }, { name: "flaky" }, { name: "no spaces" }, 7]);
    const graph = await post("/v1/tasks/graph", {
      tasks: [
        { ref: "first", name: "slow" },
        { ref: "second", name: "mail", after: ["first"], options: { priority: 3 } },
      ],
    });
    await until("a task that runs", () => release.length > 0);
    await until(
      "two that have failed",
      async () => (await flotilla.tasks.stats()).byStatus.failed === 2,
    );
    await ask("get", `/v1/tasks/${graph.tasks.first.taskId}`);
    for (const id of [graph.tasks.first.taskId, graph.tasks.second.taskId, taskId]) {
      await ask("get", `/v1/tasks/${id}/why`);
    }
    await post(`/v1/tasks/${taskId}/cancel`);
    await post(`/v1/tasks/${taskId}/retry`);
    await post(`/v1/tasks/${taskId}/cancel`);
    await post(`/v1/tasks/${taskId}/resume`, { forget: [] });
    const { taskId: waiting } = await flotilla.enqueue("slow", 1, { delayMs: 3_600_000 });
    await ask("get", `/v1/tasks/${waiting}/steps`);
    await ask("get", `/v1/tasks/${waiting}/why`);
    await post(`/v1/tasks/${waiting}/signals`, { name: "go", payload: 1 });
    await flotilla.tasks.cancel(waiting);
    await post(`/v1/tasks/${graph.tasks.first.taskId}/cancel`);
    await ask("get", `/v1/tasks/${taskId}/events`);

    const started = await post("/v1/runs", { flow: "order", input: 1, options: { key: "k" } });
    await post("/v1/runs", { flow: "order", input: 1, options: { key: "k" } });
    const other = await post("/v1/runs", { flow: "order", input: "bad" });
    const { runId: alone } = await post("/v1/runs", { flow: "nobodys" });
    const doing = (type: string) => async () => {
      const run = await flotilla.runs.get(started.runId);
      return run?.doing?.type === type;
    };
    await until("a run that waits for a signal", doing("waiting_for_signal"));
    await until("one that has failed", async () => {
      return (await flotilla.runs.get(other.runId))?.status === "failed";
    });
    for (const id of [started.runId, other.runId, alone]) await ask("get", `/v1/tasks/${id}/why`);
    await ask("get", "/v1/approvals");
    await post(`/v1/runs/${alone}/signals`, { name: "any", payload: { by: "ada" }, id: "1" });
    await ask("get", `/v1/runs/${alone}/signals`);
    const shown = [started.runId, other.runId].map((runId) => `runs/${runId}`);
    for (const path of ["runs?limit=2", ...shown, "flows", "flows/order", "flows/order/machine"]) {
      await ask("get", `/v1/${path}`);
    }
    await post(`/v1/runs/${other.runId}/resume`, {});
    await post(`/v1/runs/${started.runId}/signals`, { name: "approve" });
    await until("one that is done", async () => {
      return (await flotilla.runs.get(started.runId))?.status === "completed";
    });
    await post(`/v1/runs/${alone}/cancel`);
    for (const rest of ["", "/history", "/history?limit=2&after=1"]) {
      await ask("get", `/v1/runs/${started.runId}${rest}`);
    }
    await ask("get", `/v1/tasks/${started.runId}`);

    await ask("put", "/v1/schedules/nightly", {
      name: "mail",
      pattern: "0 3 * * *",
      zone: "Europe/Berlin",
      options: { priority: 2, tenant: "a" },
    });
    for (const path of ["", "/nightly"]) await ask("get", `/v1/schedules${path}`);
    for (const verb of ["fire", "pause", "resume"]) await post(`/v1/schedules/nightly/${verb}`);
    await ask("get", "/v1/schedules/nightly/firings");
    await ask("delete", "/v1/schedules/nightly");

    const { groups } = await ask("get", "/v1/dlq/groups?limit=5");
    const groupAt = `/v1/dlq/groups/${groups[0].group}`;
    await post(`${groupAt}/resolve`);
    await post(`${groupAt}/ignore`, { untilMs: 4_000_000_000_000 });
    await ask("get", "/v1/dlq/groups?state=ignored");
    await post(`${groupAt}/reopen`);
    await ask("get", "/v1/dlq/tasks?limit=1");
    const failed = await ask("get", "/v1/tasks?status=failed&limit=1");
    await post("/v1/dlq/discard", { taskId: failed.tasks[0].taskId });
    await post("/v1/pause", { name: "flaky", reason: "no paper" });
    const { redriveId } = await post("/v1/dlq/redrives", { name: "flaky", maxStep: 2 });
    await ask("get", "/v1/dlq/redrives");
    await post(`/v1/dlq/redrives/${redriveId}/cancel`);
    await ask("get", `/v1/dlq/redrives/${redriveId}`);
    const nothing = { action: "retry", filter: { name: "none" }, reason: "a test" };
    await post("/v1/bulk/preview", nothing);
    const { bulkId } = await post("/v1/bulk", nothing);
    await ask("get", "/v1/bulk?limit=2");
    await ask("get", `/v1/bulk/${bulkId}`);
    const named = await post("/v1/bulk", { action: "retry", filter: { ids: [taskId, "none"] } });
    await ask("get", `/v1/bulk/${named.bulkId}/outcomes`);
    // The leader leaves it to a later release, which knows its group.
    const later = {
      action: "retry",
      filter: { group: "g999-79ef601d010c6cb2" },
      options: {},
      payload: null,
      reason: null,
      createdBy: null,
      matched: 0,
      isExact: true,
    } as const;
    await database.write(insertBulk("later", later));
    await post("/v1/bulk/later/stop");
    await ask("get", "/v1/pauses");
    mended = true;
    await post("/v1/resume", { name: "flaky" });

    await ask("put", "/v1/limits", { scope: "tenant/a", limit: 3 });
    await ask("put", "/v1/limits", { scope: "key/mail/one", limit: null });
    await ask("get", "/v1/limits");
    await ask("get", "/v1/limits?scope=tenant%2Fa");
    await ask("get", "/v1/tenants");

    await storeThrottle(database, {
      name: "openai",
      key: "gpt",
      bound: 20,
      stats: { p95Ms: 812, firstTokenP95Ms: 90, meanMs: 400, meanCost: 1 },
      pods: { a: { share: 3, inFlight: 2, waiting: 1 } },
    });
    await ask("get", "/v1/throttles");
    await post("/v1/throttles/openai/pin", { limit: 3, key: "gpt" });
    await ask("get", "/v1/throttles/openai?key=gpt");
    await post("/v1/throttles/openai/unpin", { key: "gpt" });
    await ask("get", "/v1/throttles/openai/events?key=gpt&limit=1");
    await ask("get", "/v1/throttles/openai/holders");

    const settings = { url: "https://agents.example/chat" };
    await post("/v1/agents", { name: "remote", settings });
    await ask("put", "/v1/agents/remote", { settings, ifRevision: 1 });
    for (const path of ["/v1/agents", "/v1/agents/remote"]) await ask("get", path);
    await ask("delete", "/v1/agents/remote");
    const { key } = await post("/v1/keys", { name: "ci", role: "operator", tenant: "a" });
    await post(`/v1/keys/${key.keyId}/rotate`, { overlapMs: 0 });
    await ask("delete", `/v1/keys/${key.keyId}`);
    await ask("get", "/v1/keys");
    const { signIn } = await flotilla.signIns.create({
      keyName: "ci",
      role: "viewer",
      tenant: null,
      verbs: ["fleet:read"],
      origin: "https://ops.example",
      address: "10.0.0.1",
    });
    await ask("get", "/v1/sign-ins");
    await ask("delete", `/v1/sign-ins/${signIn.signInId}`);
    await ask("get", "/v1/quotas?tenant=a");
    await ask("get", "/v1/series?subject=task:mail");
    await ask("get", "/v1/series/subjects?kind=task");
    await ask("get", "/v1/changes?limit=5");
    await post("/v1/tokens/revocations", { jti: "one" });
    await post("/v1/tokens/revocations", { user: "ada" });
    await ask("get", "/v1/tokens/revocations");
    await askAboutSessions(ask, post);

    for (const each of release) each();
    await post("/v1/tasks", { name: "flaky" });
    await until(
      "one that is done",
      async () => (await flotilla.tasks.stats()).byStatus.completed > 0,
    );
    for (const path of [
      "pods",
      "fleet",
      "stats",
      "depth",
      "audit",
      "tasks",
      "openapi.json",
      "docs/limits.md",
    ]) {
      await ask("get", `/v1/${path}`);
    }
    for (const path of ["/", "/health/live", "/health/ready", "/metrics"]) await ask("get", path);
    await post("/v1/hooks/any", {});
    await post(`/v1/pods/${pod.podId}/drain`);
    await post(`/v1/pods/${pod.podId}/undrain`);

    const missing = allSpecs.filter((spec) => !seen.has(spec.operationId));
    expect(missing.map((spec) => spec.operationId)).toEqual([]);
  });

  test("is declared where they refuse, too", async () => {
    const { ask } = asking();
    const refusals: [string, string, unknown, ErrorCode][] = [
      ["post", "/v1/tasks", { name: "no spaces" }, "invalid_option"],
      ["post", "/v1/tasks", { name: "mail", options: { after: ["nobody"] } }, "not_found"],
      [
        "post",
        "/v1/tasks/graph",
        { tasks: [{ ref: "a", name: "x", after: ["a"] }] },
        "dependency_cycle",
      ],
      ["post", "/v1/tasks/bulk", { name: "mail" }, "invalid_input"],
      ["get", "/v1/tasks?limit=0", undefined, "invalid_option"],
      ["get", "/v1/tasks/none", undefined, "not_found"],
      ["get", "/v1/tasks/none/events", undefined, "not_found"],
      ["post", "/v1/tasks/none/cancel", undefined, "not_found"],
      ["post", "/v1/runs", { flow: "no spaces" }, "invalid_option"],
      ["post", "/v1/runs", { flow: "order", options: { attempts: 2 } }, "invalid_option"],
      ["post", "/v1/runs", { flow: "order", options: { after: ["nobody"] } }, "not_found"],
      ["post", "/v1/keys", { name: "ci", role: "root" }, "invalid_option"],
      ["post", "/v1/keys", { name: "ci", role: "admin", tenant: "a" }, "invalid_option"],
      ["delete", "/v1/keys/none", undefined, "not_found"],
      ["post", "/v1/keys/none/rotate", undefined, "not_found"],
      ["delete", "/v1/sign-ins/none", undefined, "not_found"],
      ["post", "/v1/tokens/revocations", { jti: "a", expiresAtMs: 1 }, "invalid_option"],
      ["get", "/v1/runs?status=done", undefined, "invalid_option"],
      ["get", "/v1/runs/none", undefined, "not_found"],
      ["get", "/v1/runs/none/history", undefined, "not_found"],
      ["get", "/v1/flows/none", undefined, "not_found"],
      ["get", "/v1/runs/none/signals", undefined, "not_found"],
      ["post", "/v1/runs/none/signals", { name: "approve" }, "not_found"],
      ["post", "/v1/runs/none/signals", { name: "no spaces" }, "invalid_option"],
      ["post", "/v1/runs/none/cancel", undefined, "not_found"],
      ["post", "/v1/runs/none/resume", { as: 0 }, "invalid_option"],
      ["put", "/v1/schedules/bad", { name: "mail", pattern: "x" }, "invalid_schedule"],
      ["post", "/v1/schedules/none/fire", undefined, "not_found"],
      ["post", "/v1/dlq/redrives", {}, "invalid_option"],
      ["post", "/v1/dlq/groups/g2-79ef601d010c6cb2/resolve", undefined, "not_found"],
      ["post", "/v1/dlq/groups/none/reopen", undefined, "invalid_option"],
      ["post", "/v1/dlq/groups/g2-79ef601d010c6cb2/ignore", { untilMs: 1 }, "invalid_option"],
      ["post", "/v1/dlq/discard", { taskId: "none" }, "not_found"],
      ["post", "/v1/bulk", { action: "cancel", filter: {} }, "invalid_option"],
      ["post", "/v1/bulk/preview", { action: "cancel", filter: { nme: "x" } }, "invalid_option"],
      ["get", "/v1/bulk/none", undefined, "not_found"],
      ["get", "/v1/bulk/none/outcomes", undefined, "not_found"],
      ["post", "/v1/bulk/none/stop", undefined, "not_found"],
      ["post", "/v1/pods/none/drain", undefined, "not_found"],
      ["post", "/v1/pods/none/undrain", undefined, "not_found"],
      ["post", "/v1/pause", { reasn: "x" }, "invalid_option"],
      ["put", "/v1/limits", { scope: "nonsense", limit: 1 }, "invalid_option"],
      ["put", "/v1/limits", { scope: "tenant/a", limit: 0 }, "invalid_option"],
      ["get", "/v1/limits?scope=nonsense", undefined, "invalid_option"],
      ["post", "/v1/sessions", { agents: "helper" }, "invalid_input"],
      ["get", "/v1/sessions?status=gone", undefined, "invalid_option"],
      ["get", "/v1/sessions/none", undefined, "not_found"],
      ["delete", "/v1/sessions/none", undefined, "not_found"],
      ["put", "/v1/sessions/none/metadata", { metadata: 1 }, "not_found"],
      ["put", "/v1/sessions/none/members", { addUsers: ["ada"] }, "not_found"],
      ["post", "/v1/sessions/none/archive", undefined, "not_found"],
      ["post", "/v1/sessions/none/unarchive", undefined, "not_found"],
      ["post", "/v1/sessions/none/compact", undefined, "not_found"],
      ["get", "/v1/sessions/none/messages", undefined, "not_found"],
      ["post", "/v1/sessions/none/messages", { parts: [] }, "invalid_input"],
      ["post", "/v1/sessions/none/messages", { parts: [{ type: "x" }], author: "a" }, "not_found"],
      ["post", "/v1/sessions/none/regenerate", {}, "not_found"],
      ["post", "/v1/sessions/none/stop", undefined, "not_found"],
      ["post", "/v1/sessions/none/read", { user: "ada", seq: 1 }, "not_found"],
      ["get", "/v1/sessions/none/export", undefined, "not_found"],
      ["get", "/v1/sessions/none/events", undefined, "not_found"],
      ["get", "/v1/sessions/none/events?lastSeq=-1", undefined, "invalid_option"],
      ["post", "/v1/agui/helper", { threadId: "", runId: "r", messages: [] }, "invalid_option"],
      ["get", "/v1/streams/sessions/none", undefined, "not_found"],
      ["get", "/v1/streams/sessions/none?offset=1", undefined, "invalid_option"],
      ["get", "/v1/watch?topics=nothing", undefined, "invalid_input"],
      ["get", "/v1/watch", undefined, "invalid_option"],
      ["get", "/v1/changes?after=nonsense", undefined, "invalid_option"],
      ["get", "/v1/changes?after=a.1.1", undefined, "cursor_expired"],
      ["get", "/v1/inbox?limit=0", undefined, "invalid_option"],
      ["get", "/v1/throttles?cursor=nonsense", undefined, "invalid_option"],
      ["get", "/v1/throttles/none", undefined, "not_found"],
      ["post", "/v1/throttles/none/pin", { limit: 1 }, "not_found"],
      ["post", "/v1/throttles/none/unpin", { kee: "" }, "invalid_option"],
    ];
    for (const [method, path, body, code] of refusals) {
      expect((await ask(method, path, body)).error?.code, `${method} ${path}`).toBe(code);
    }
  });
});

type Ask = ReturnType<typeof asking>["ask"];

async function askAboutSessions(ask: Ask, post: (path: string, body?: unknown) => Promise<any>) {
  const users = ["ada"];
  const { sessionId } = await post("/v1/sessions", {
    users,
    agents: ["helper"],
    metadata: { a: 1 },
  });
  const at = `/v1/sessions/${sessionId}`;
  const message = { id: "m", author: "ada", parts: [{ type: "text", text: "what is new?" }] };
  await post(`${at}/messages`, message);
  await post(`${at}/messages`, message);
  const answer = await until("an answer", async () => {
    const { entries } = await ask("get", `${at}/messages?after=1`);
    return entries[0];
  });
  const { messageId } = answer;
  await post(`${at}/signals`, { author: "ada", name: "approve", payload: { ok: true }, id: "s" });
  await post(`${at}/tool-results`, {
    author: "ada",
    messageId,
    results: [{ toolCallId: "c", output: 1 }],
  });
  await post(`${at}/regenerate`, { messageId });
  await post(`${at}/stop`);
  await post(`${at}/read`, { user: "ada", seq: 1 });
  await post(`${at}/compact`);
  const { sessionId: fork } = await post(`${at}/fork`, { atSeq: 1, users });
  const edit = { id: "edited", messageId: "m", parts: message.parts, author: "ada", users };
  await post(`/v1/sessions/${fork}/fork`, { atSeq: 1, users });
  await post(`${at}/messages`, { ...message, id: "another" });
  await post(`${at}/edit`, { ...edit, messageId: "another" });
  await ask("get", `${at}/forks?limit=5`);
  await post(`${at}/wakes`, { key: "tea", afterMs: 3_600_000, author: "ada" });
  await ask("get", `${at}/wakes`);
  await ask("delete", `${at}/wakes/tea`);
  const { url } = await ask("post", `${at}/files`, "bytes", "application/octet-stream");
  const hash = url.slice("flotilla-file:".length);
  await ask("get", `${at}/files/${hash}`);
  const doc = await ask("post", "/v1/files", "bytes", "application/octet-stream");
  const { taskId: withFile } = await post("/v1/tasks", { name: "mail", input: { doc } });
  await ask("get", `/v1/tasks/${withFile}/files/${hash}`);
  const { path: opened } = await post(`${at}/file-access`);
  await ask("get", `${opened}${hash}`);
  await ask("put", `${at}/metadata`, { metadata: [], ifVersion: 1 });
  await ask("put", `${at}/members`, { addUsers: ["bob"], agents: ["helper"] });
  await ask("get", `/v1/streams${at.slice(3)}`);
  const said = [{ id: "said", role: "user", content: "what is new?" }];
  await post("/v1/agui/helper", { threadId: "thread", runId: "run", messages: said });
  const about = [at, `${at}/export`, `${at}/turns?limit=5`, `${at}/tasks`, `${at}/owner`];
  for (const path of ["/v1/sessions?user=bob&status=active", ...about]) {
    await ask("get", path);
  }
  await ask("get", "/v1/inbox?user=ada");
  await post("/v1/tickets");
  for (const verb of ["archive", "unarchive"]) await post(`${at}/${verb}`);
  // What goes on for ever is ended from this side, and answers whole then.
  const ended = open.count;
  const following = [
    ask("get", `${at}/events`),
    ask("get", "/v1/inbox/events?user=ada"),
    ask("get", "/v1/watch?topics=overview,pods"),
  ];
  await until("all streams", () => open.count === ended + following.length);
  streams.end();
  await Promise.all(following);
  await ask("delete", at);
}

/** Values at the edges of what a schema takes, and right beyond. */
function edgesOf(name: string, { minimum, maximum, maxLength, maxItems }: Bounded) {
  const edge = (what: string, value: unknown, isFit: boolean) => ({
    name,
    what,
    value,
    fits: isFit,
  });
  const text = (length: number) => "x".repeat(length);
  const ids = (length: number) => Array.from({ length }, (_, at) => `task-${at}`);
  return [
    ...(minimum === undefined
      ? []
      : [edge("least", minimum, true), edge("less", minimum - 1, false)]),
    ...(maximum === undefined
      ? []
      : [edge("most", maximum, true), edge("more", maximum + 1, false)]),
    ...(maxLength === undefined
      ? []
      : [edge("longest", text(maxLength), true), edge("longer", text(maxLength + 1), false)]),
    ...(maxItems === undefined
      ? []
      : [edge("fullest", ids(maxItems), true), edge("fuller", ids(maxItems + 1), false)]),
  ];
}

/** Asks the server, and holds each answer to what the document says of its route and status. */
function asking() {
  const seen = new Set<string>();
  const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: false });
  ajv.addSchema(closed(document) as object, "doc");

  // oxlint-disable-next-line typescript/no-explicit-any
  const ask = async (
    method: string,
    path: string,
    body?: unknown,
    bodyType = "application/json",
  ): Promise<any> => {
    const answer = await app.request(path, {
      method,
      headers: { Host: "localhost", "Content-Type": bodyType },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const type = answer.headers.get("content-type")!.split(";")[0]!;
    const value: unknown = type === "application/json" ? await answer.json() : await answer.text();
    const at = operations.find((each) => each.method === method && fits(each.path, path))!;
    const response = at.operation.responses[answer.status];
    const what = `${method} ${path} answers ${answer.status}: ${JSON.stringify(value)}`;
    expect({ what, declared: response !== undefined }).toEqual({ what, declared: true });
    const home =
      response!.$ref ?? `#/paths/${pointer(at.path)}/${method}/responses/${answer.status}`;
    const validate = ajv.compile({ $ref: `doc${home}/content/${pointer(type)}/schema` });
    const errors = validate(value) ? [] : validate.errors;
    expect({ what, errors }).toEqual({ what, errors: [] });
    if (answer.ok) seen.add(at.operation.operationId);
    return value;
  };
  return { ask, seen };
}

/** Whether a path is of a template; one that is spelled out goes before one with a name. */
function fits(template: string, path: string): boolean {
  const plain = path.split("?")[0]!;
  if (document.paths[plain]) return template === plain;
  return new RegExp(`^${template.replaceAll(/\{\w+\}/g, "[^/]+")}$`).test(plain);
}

function pointer(step: string): string {
  return encodeURIComponent(step.replaceAll("~", "~0").replaceAll("/", "~1"));
}

function find(ref: string): unknown {
  const steps = ref.slice(2).split("/");
  return steps.reduce<any>((at, step) => at[step], document);
}

/** The same, but an object may hold nothing that isn't declared: clients needn't mind, we do. */
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed);
  if (typeof schema !== "object" || schema === null) return schema;
  const entries = Object.entries(schema).map(([key, value]) => [key, closed(value)]);
  const isObject = "properties" in schema && (schema as { type?: string }).type === "object";
  return { ...Object.fromEntries(entries), ...(isObject && { additionalProperties: false }) };
}
