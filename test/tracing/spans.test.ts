import { DatabaseSync } from "node:sqlite";
import { trace } from "@opentelemetry/api";
import { AlwaysOffSampler } from "@opentelemetry/sdk-trace";
import { connect, type Flotilla, type Pod, startPod, task } from "flotilla";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { silentLogger } from "../../src/base/log.ts";
import { createApp } from "../../src/server/app.ts";
import { createMetrics } from "../../src/server/metrics/metrics.ts";
import { temporaryFile } from "../../src/store/contract/kinds.ts";
import { run } from "../command.ts";
import { registerSdk, type Told } from "./sdk.ts";

const parent = {
  traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
  tracestate: "vendor=1",
};
const apiKey = "a-key-for-tracing";
const carried = `${parent.traceparent} vendor=1`;

let place: ReturnType<typeof temporaryFile>;
let flotilla: Flotilla;
let db: DatabaseSync;
let spans: Told[];
let unregister: () => void;
let pod: Pod | undefined;
let logged: object[];

beforeEach(async () => {
  place = temporaryFile();
  flotilla = connect(`sqlite:${place.path}`);
  await flotilla.ping();
  db = new DatabaseSync(place.path, { timeout: 30_000 });
  [spans, logged, unregister] = [[], [], () => {}];
});
afterEach(async () => {
  await pod?.stop();
  pod = undefined;
  unregister();
  db.close();
  await flotilla.close();
  await place.remove();
});

const register = (options?: Parameters<typeof registerSdk>[1]) => {
  unregister = registerSdk((span) => spans.push(span), options);
};
const mail = task("mail").handle(async ({ log }) => log.info({}, "on its way"));
const broken = task("broken").handle({ attempts: 1 }, async () => {
  throw new Error("out of paper");
});
const work = async () => {
  const log = { ...silentLogger, info: (fields: object) => logged.push(fields) };
  pod = await startPod({ store: `sqlite:${place.path}`, use: [mail, broken], log });
};
const stored = (taskId: string) =>
  db.prepare("select trace from flotilla_task where task_id = ?").get(taskId)!["trace"];
const spanOf = (name: string) =>
  until(`the span ${name}`, () => spans.find((span) => span.name === name));
const ids = (text: unknown) => String(text).split("-").slice(1, 3);

describe("without an SDK", () => {
  test("nothing is stored", async () => {
    const { taskId } = await flotilla.enqueue(mail, null);
    const [second] = await flotilla.enqueueMany(mail, [null, null]);
    expect([stored(taskId), stored(second!.taskId)]).toEqual([null, null]);
  });

  test("a context that the caller has is passed on, and named in the logs", async () => {
    const { taskId } = await flotilla.enqueue(mail, null, { trace: parent });
    expect(stored(taskId)).toBe(carried);
    await work();
    await flotilla.waitFor(taskId);
    expect(logged).toContainEqual(
      expect.objectContaining({ task: taskId, trace_id: "4bf92f3577b34da6a3ce929d0e0e4736" }),
    );
  });

  test.each([{ traceparent: "nonsense" }, { tracestate: "a=b" }, { traceparent: 7 as never }, {}])(
    "a context that isn't one is left out: %j",
    async (given) => {
      const { taskId } = await flotilla.enqueue(mail, null, { trace: given });
      expect(stored(taskId)).toBeNull();
    },
  );

  test("a command takes over the context of its caller", async () => {
    const { stdout } = await run(["enqueue", "mail", "--store", `sqlite:${place.path}`], {
      cwd: place.folder,
      env: { TRACEPARENT: parent.traceparent, TRACESTATE: parent.tracestate },
    });
    expect(stored(stdout.trim())).toBe(carried);
  });
});

describe("an enqueue", () => {
  test("is a span whose context is stored with the task", async () => {
    register();
    const { taskId } = await flotilla.enqueue(mail, null, { key: "a" });
    expect(spans).toEqual([
      expect.objectContaining({
        name: "enqueue mail",
        kind: "PRODUCER",
        status: "UNSET",
        attributes: {
          "messaging.system.name": "flotilla",
          "messaging.destination.name": "mail",
          "messaging.operation.name": "enqueue",
          "messaging.operation.type": "send",
          "messaging.message.id": taskId,
          "flotilla.task.created": true,
        },
      }),
    ]);
    expect(ids(stored(taskId))).toEqual([spans[0]!.traceId, spans[0]!.spanId]);
    await flotilla.enqueue(mail, null, { key: "a" });
    expect(spans[1]!.attributes).toMatchObject({ "flotilla.task.created": false });
    // The task belongs to the trace that made it.
    expect(ids(stored(taskId))).toEqual([spans[0]!.traceId, spans[0]!.spanId]);
  });

  test("of many is one span for all of them", async () => {
    register();
    const made = await flotilla.enqueueMany(mail, [null, null, null]);
    expect(spans).toHaveLength(1);
    expect(spans[0]!.attributes).toMatchObject({ "messaging.batch.message_count": 3 });
    const contexts = made.map(({ taskId }) => ids(stored(taskId)));
    expect(contexts).toEqual(made.map(() => [spans[0]!.traceId, spans[0]!.spanId]));
  });

  test("within a transaction of the caller's is traced too", async () => {
    register();
    db.exec("begin");
    const { taskId } = await flotilla.enqueue(mail, null, { tx: db });
    db.exec("commit");
    expect(ids(stored(taskId))).toEqual([spans[0]!.traceId, spans[0]!.spanId]);
  });

  test("that is refused has the reason", async () => {
    register();
    await expect(flotilla.enqueue(mail, null, { priority: 1_000 })).rejects.toThrow("priority");
    expect(spans[0]).toMatchObject({
      status: "ERROR",
      attributes: { "error.type": "invalid_option" },
      exceptions: [expect.stringContaining("priority")],
    });
  });

  test("belongs to the context it was given, unless a span is active", async () => {
    register();
    await flotilla.enqueue(mail, null, { trace: parent });
    expect(spans[0]).toMatchObject({
      traceId: "4bf92f3577b34da6a3ce929d0e0e4736",
      parentId: "00f067aa0ba902b7",
      state: "vendor=1",
    });
    await trace.getTracer("the program").startActiveSpan("request", async (span) => {
      await flotilla.enqueue(mail, null, { trace: parent });
      expect(spans[1]).toMatchObject({ parentId: span.spanContext().spanId });
      span.end();
    });
  });

  test("over HTTP takes over the caller's headers", async () => {
    const parts = {
      flotilla,
      apiKeys: [apiKey],
      metrics: createMetrics(),
      isStopping: () => false,
    };
    const app = createApp({ ...parts, clock: systemClock, log: silentLogger });
    const post = async () => {
      const answer = await app.request("/v1/tasks", {
        method: "POST",
        headers: {
          "content-type": "application/json",
          authorization: `Bearer ${apiKey}`,
          ...parent,
        },
        body: JSON.stringify({ name: "mail" }),
      });
      return ((await answer.json()) as { taskId: string }).taskId;
    };
    expect(stored(await post())).toBe(carried);
    register();
    const taskId = await post();
    expect(spans[0]).toMatchObject({ name: "enqueue mail", parentId: "00f067aa0ba902b7" });
    expect(stored(taskId)).toBe(
      `00-4bf92f3577b34da6a3ce929d0e0e4736-${spans[0]!.spanId}-01 vendor=1`,
    );
  });
});

describe("a run", () => {
  test("is a span with its attempt, its pod and its outcome", async () => {
    register();
    await work();
    const { taskId } = await flotilla.enqueue(mail, null);
    const run = await spanOf("run mail");
    expect(run).toMatchObject({ kind: "CONSUMER", status: "UNSET", parentId: spans[0]!.spanId });
    expect(run.attributes).toEqual({
      "messaging.system.name": "flotilla",
      "messaging.destination.name": "mail",
      "messaging.operation.name": "run",
      "messaging.operation.type": "process",
      "messaging.message.id": taskId,
      "messaging.client.id": pod!.podId,
      "flotilla.task.attempt": 1,
      "flotilla.task.deaths": 0,
      "flotilla.task.token": 1,
      "flotilla.task.outcome": "completed",
    });
    expect(logged).toContainEqual(
      expect.objectContaining({ task: taskId, trace_id: run.traceId, attempt: 1 }),
    );
  });

  test("has a span for each step that runs, and an event for each that is answered", async () => {
    register();
    let attempts = 0;
    const digest = task("digest", { backoff: { baseMs: 1 } }, async ({ step }) => {
      await step("read", { key: "a" }, async (read) => read.step("model", async () => 1));
      attempts++;
      await step("write", () => {
        if (attempts === 1) throw new Error("out of ink");
      });
    });
    pod = await startPod({ store: `sqlite:${place.path}`, use: [digest], log: silentLogger });
    await flotilla.waitFor(await flotilla.enqueue(digest, null));
    const runs = () => spans.filter(({ name }) => name === "run digest");
    await until("both attempts", () => runs().length === 2);
    const steps = spans.filter(({ name }) => name.startsWith("step "));
    expect(steps.map(({ name, attributes }) => [name, attributes["flotilla.step.key"]])).toEqual([
      ["step model", "read[a]/model"],
      ["step read", "read[a]"],
      ["step write", "write"],
      ["step write", "write"],
    ]);
    const [model, read, broken, written] = steps as [Told, Told, Told, Told];
    const [first, second] = runs() as [Told, Told];
    expect([model.parentId, read.parentId]).toEqual([read.spanId, first.spanId]);
    expect(broken).toMatchObject({
      status: "ERROR",
      exceptions: ["out of ink"],
      parentId: first.spanId,
    });
    expect(written).toMatchObject({ status: "UNSET", parentId: second.spanId });
    expect([first.events, second.events]).toEqual([[], ["step answered read[a]"]]);
  });

  test("that fails carries its error", async () => {
    register();
    await work();
    await flotilla.enqueue(broken, null);
    expect(await spanOf("run broken")).toMatchObject({
      status: "ERROR",
      exceptions: ["out of paper"],
      attributes: { "flotilla.task.outcome": "failed", "error.type": expect.any(String) },
    });
  });

  test.each([
    ["no trace", null],
    ["nonsense", "nonsense"],
    ["a trace that ends too early", parent.traceparent.slice(0, 40)],
    ["far too much", "x".repeat(100_000)],
  ])("of a row that was made by hand with %s begins a trace of its own", async (_, text) => {
    register();
    await work();
    db.prepare("insert into flotilla_task (name, trace) values ('mail', ?)").run(text);
    expect(await spanOf("run mail")).toMatchObject({ parentId: undefined });
  });

  test("has nothing in its spans that the config's `redact` hides", async () => {
    register();
    const leaking = task("leaking").handle({ attempts: 1 }, async ({ step }) => {
      await step("look at MINE-123456", () => 1);
      throw new Error("no entry for MINE-123456 and Bearer abc123def456");
    });
    const redact = [/\bMINE-\d{6}\b/];
    const settings = { use: [leaking], log: silentLogger, redact };
    pod = await startPod({ store: `sqlite:${place.path}`, ...settings });
    const { taskId } = await flotilla.enqueue(leaking, null);
    await expect(flotilla.waitFor(taskId)).rejects.toThrow("MINE-123456");
    expect(await spanOf("run leaking")).toMatchObject({
      exceptions: ["no entry for [redacted] and Bearer [redacted]"],
    });
    expect(await spanOf("step look at [redacted]")).toMatchObject({
      attributes: { "flotilla.step.key": "look at [redacted]" },
    });
    expect(JSON.stringify(spans)).not.toMatch(/MINE-123456|abc123def456/);
  });

  test("isn't part of whatever trace its pod was started in", async () => {
    register();
    await trace.getTracer("the program").startActiveSpan("start", async (span) => {
      await work();
      span.end();
    });
    db.prepare("insert into flotilla_task (name) values ('mail')").run();
    const run = await spanOf("run mail");
    expect(run.parentId).toBeUndefined();
    expect(run.traceId).not.toBe((await spanOf("start")).traceId);
  });

  test("isn't recorded where its enqueue was left out by sampling, wherever it runs", async () => {
    register({ sampler: new AlwaysOffSampler() });
    const { taskId } = await flotilla.enqueue(mail, null);
    expect(stored(taskId)).toMatch(/-00$/);
    unregister();
    register();
    await work();
    await flotilla.waitFor(taskId);
    await flotilla.enqueue(mail, null);
    await spanOf("run mail");
    expect(spans.map((span) => span.name)).toEqual(["enqueue mail", "run mail"]);
  });

  test("is worth more than its span: an SDK that throws costs no task", async () => {
    register({ broken: true });
    await work();
    const { taskId } = await flotilla.enqueue(mail, null, { trace: parent });
    expect(stored(taskId)).toBe(carried);
    await flotilla.waitFor(taskId);
    expect(await flotilla.tasks.get(taskId)).toMatchObject({ status: "completed", deaths: 0 });
  });
});
