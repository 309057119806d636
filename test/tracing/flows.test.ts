import { DatabaseSync } from "node:sqlite";
import { context, trace } from "@opentelemetry/api";
import { AlwaysOffSampler } from "@opentelemetry/sdk-trace";
import { connect, flow, type Flotilla, type Pod, startPod } from "flotilla";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { silentLogger } from "../../src/base/log.ts";
import { temporaryFile } from "../../src/store/contract/kinds.ts";
import { registerSdk, type Told } from "./sdk.ts";

let place: ReturnType<typeof temporaryFile>;
let flotilla: Flotilla;
let db: DatabaseSync;
let spans: Told[];
let unregister: () => void;
let pod: Pod | undefined;

beforeEach(async () => {
  place = temporaryFile();
  flotilla = connect(`sqlite:${place.path}`);
  await flotilla.ping();
  db = new DatabaseSync(place.path, { timeout: 30_000 });
  [spans, unregister] = [[], () => {}];
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
const userSpan = (name: string) =>
  trace.getTracer("the program").startActiveSpan(name, (span) => span.end());

const backoff = { baseMs: 1, maxMs: 1 };
const empty = flow("empty", { version: 1 })
  .to("only", () => {})
  .end();
const order = flow("order", { version: 4, backoff })
  .init(() => {
    userSpan("warming up");
    return {};
  })
  .to("reserve", () => userSpan("asking the shop"))
  .to("pay", ({ attempt }) => {
    if (attempt === 1) throw new Error("declined");
  })
  .sleep("cool", 1)
  .signal("approval")
  .finally("tidy", () => {})
  .end();
const broken = flow("broken", { version: 1, attempts: 1 })
  .to("burn", () => {
    throw new Error("out of paper");
  })
  .end();
const parents = flow("parents", { version: 1 })
  .children("each", () => [
    [empty, null],
    [empty, null],
  ])
  .end();
let turning = 0;
const endless = flow("endless", { version: 1 })
  .to("turn", async ({ signal }) => {
    turning++;
    await new Promise((_, reject) => signal.addEventListener("abort", reject));
  })
  .end();

const work = async () => {
  const use = [empty, order, broken, parents, endless];
  const paces = { pollMs: 50, graceMs: 100, shutdownMs: 100 };
  pod = await startPod({ store: `sqlite:${place.path}`, use, log: silentLogger, ...paces });
};
const stored = (runId: string) =>
  db.prepare("select trace from flotilla_task where task_id = ?").get(runId)!["trace"];
const waiting = (runId: string) =>
  until("its wait", async () => {
    const { doing } = (await flotilla.runs.get(runId))!;
    return doing?.type === "waiting_for_signal";
  });
const spansOf = (name: string) => spans.filter((span) => span.name === name);
const spanOf = (name: string) => until(`the span ${name}`, () => spansOf(name)[0]);
const ids = (text: unknown) => String(text).split("-").slice(1, 3);

describe("a run", () => {
  test("of an empty transition is a span below its start, with one for the transition", async () => {
    register();
    await work();
    const { runId } = await flotilla.runs.start(empty, null);
    const run = await spanOf("run empty");
    const [start] = spansOf("start empty");
    expect(start).toMatchObject({
      kind: "PRODUCER",
      attributes: { "messaging.operation.name": "start", "messaging.message.id": runId },
    });
    expect(run).toMatchObject({
      kind: "CONSUMER",
      status: "UNSET",
      traceId: start!.traceId,
      parentId: start!.spanId,
    });
    expect(run.attributes).toEqual({
      "messaging.system.name": "flotilla",
      "messaging.destination.name": "empty",
      "messaging.operation.name": "run",
      "messaging.operation.type": "process",
      "messaging.message.id": runId,
      "messaging.client.id": pod!.podId,
      "flotilla.run.id": runId,
      "flotilla.run.token": 1,
      "flotilla.run.outcome": "completed",
      "flotilla.flow.name": "empty",
      "flotilla.flow.version": 1,
    });
    expect(spansOf("transition empty/only")).toEqual([
      expect.objectContaining({
        kind: "INTERNAL",
        status: "UNSET",
        traceId: run.traceId,
        parentId: run.spanId,
        attributes: {
          "messaging.client.id": pod!.podId,
          "flotilla.run.id": runId,
          "flotilla.run.token": 1,
          "flotilla.flow.name": "empty",
          "flotilla.flow.version": 1,
          "flotilla.transition.name": "only",
          "flotilla.transition.attempt": 1,
          "flotilla.transition.outcome": "completed",
        },
      }),
    ]);
    expect(ids(stored(runId))).toEqual([run.traceId, run.spanId]);
    expect(spans).toHaveLength(3);
  });

  test("is one span over retries and waits, and all its attempts are children of it", async () => {
    register();
    await work();
    const { runId } = await flotilla.runs.start(order, null);
    await waiting(runId);
    await flotilla.runs.signal(runId, "approval", null);
    await flotilla.runs.wait(runId);
    await spanOf("transition order/tidy");
    const run = await spanOf("run order");
    expect(spansOf("run order")).toHaveLength(1);
    expect(run).toMatchObject({ attributes: { "flotilla.run.outcome": "completed" } });
    const [start] = spansOf("start order");
    expect(run).toMatchObject({ traceId: start!.traceId, parentId: start!.spanId });
    const children = spans.filter(({ name }) => name.startsWith("transition"));
    for (const child of children) {
      expect(child).toMatchObject({ traceId: run.traceId, parentId: run.spanId });
    }
    const became = children.map(({ attributes }) =>
      ["name", "attempt", "outcome"].map((each) => attributes[`flotilla.transition.${each}`]),
    );
    expect(became).toEqual([
      ["reserve", 1, "completed"],
      ["pay", 1, "retry"],
      ["pay", 2, "completed"],
      ["cool", 1, "parked"],
      ["cool", 1, "completed"],
      ["approval", 1, "parked"],
      ["approval", 1, "completed"],
      ["tidy", 1, "completed"],
    ]);
    const [, retried, paid] = children;
    expect(retried).toMatchObject({ status: "ERROR", exceptions: ["declined"] });
    expect(paid).toMatchObject({ status: "UNSET", exceptions: [] });
    // What the program traces within a transition, or an initializer for it, is a child of it.
    const [reserve] = children;
    expect(spansOf("asking the shop")).toEqual([
      expect.objectContaining({ traceId: run.traceId, parentId: reserve!.spanId }),
    ]);
    expect(spansOf("warming up")[0]).toMatchObject({ parentId: reserve!.spanId });
  });

  test("that fails carries its error, as does the transition that it failed of", async () => {
    register();
    await work();
    await flotilla.runs.start(broken, null);
    const failed = { status: "ERROR", exceptions: ["out of paper"] };
    expect(await spanOf("run broken")).toMatchObject({
      ...failed,
      attributes: { "flotilla.run.outcome": "failed", "error.type": "handler_failed" },
    });
    expect(await spanOf("transition broken/burn")).toMatchObject({
      ...failed,
      attributes: { "flotilla.transition.outcome": "failed" },
    });
  });

  test("that was started by another one is below the transition that started it", async () => {
    register();
    await work();
    await flotilla.runs.wait(await flotilla.runs.start(parents, null));
    const [parent] = spansOf("transition parents/each");
    await until("both children", () => spansOf("run empty").length === 2);
    for (const child of spansOf("run empty")) {
      expect(child).toMatchObject({ traceId: parent!.traceId, parentId: parent!.spanId });
    }
  });

  test("that its pod gives back goes on in the same trace, and is exported when it ends", async () => {
    register();
    await work();
    turning = 0;
    const { runId } = await flotilla.runs.start(endless, null);
    await until("its attempt", () => turning === 1);
    await pod!.stop();
    const [transition] = spansOf("transition endless/turn");
    expect(transition!.attributes["flotilla.transition.outcome"]).toBe("interrupted");
    expect(spansOf("run endless")).toEqual([]);
    await work();
    await until("its next attempt", () => turning === 2);
    await flotilla.runs.cancel(runId);
    const run = await spanOf("run endless");
    expect(run.attributes["flotilla.run.outcome"]).toBe("cancelled");
    expect(spansOf("transition endless/turn")[1]).toMatchObject({
      attributes: { "flotilla.transition.outcome": "cancelled" },
    });
    for (const each of spansOf("transition endless/turn")) {
      expect(each).toMatchObject({ traceId: run.traceId, parentId: run.spanId });
    }
    expect(spansOf("run endless")).toHaveLength(1);
  });

  test("that is retried after its end is in the same trace, and its span isn't exported again", async () => {
    register();
    await work();
    const { runId } = await flotilla.runs.start(broken, null);
    const run = await spanOf("run broken");
    await flotilla.tasks.retry(runId);
    await until("its retry", () => spansOf("transition broken/burn").length === 2);
    await flotilla.runs.wait(runId).catch(() => {});
    await pod!.stop();
    for (const each of spansOf("transition broken/burn")) {
      expect(each).toMatchObject({ traceId: run.traceId, parentId: run.spanId });
    }
    expect(spansOf("run broken")).toHaveLength(1);
  });

  test("over several claims is a root span where nothing traced its start, and keeps the states of others", async () => {
    register();
    await work();
    db.exec("insert into flotilla_task (name) values ('parents')");
    const run = await spanOf("run parents");
    expect(run.parentId).toBeUndefined();
    expect(await spanOf("transition parents/each")).toMatchObject({
      traceId: run.traceId,
      parentId: run.spanId,
    });
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const given = { traceparent, tracestate: "vendor=1,other=2" };
    const { runId } = await flotilla.runs.start(parents, null, { trace: given });
    await flotilla.runs.wait(runId);
    await until("its span", () => spansOf("run parents").length === 2);
    expect(spansOf("run parents")[1]).toMatchObject({ state: given.tracestate });
    expect(spansOf("run empty").at(-1)).toMatchObject({ state: given.tracestate });
  });

  test("of a row that was made by hand begins a trace of its own, whatever its pod was started in", async () => {
    register();
    await trace.getTracer("the program").startActiveSpan("start", async (span) => {
      await work();
      span.end();
    });
    db.exec("insert into flotilla_task (name, trace) values ('empty', 'nonsense')");
    const run = await spanOf("run empty");
    expect(run.parentId).toBeUndefined();
    expect(run.traceId).not.toBe((await spanOf("start")).traceId);
    expect(await spanOf("transition empty/only")).toMatchObject({ parentId: run.spanId });
  });

  test("isn't recorded where its start was left out by sampling, wherever it runs", async () => {
    register({ sampler: new AlwaysOffSampler() });
    const { runId } = await flotilla.runs.start(empty, null);
    unregister();
    register();
    await work();
    await flotilla.runs.wait(runId);
    expect(stored(runId)).toMatch(/-00$/);
    await flotilla.runs.start(empty, null);
    await spanOf("run empty");
    expect(spans.map(({ name }) => name)).toEqual([
      "start empty",
      "transition empty/only",
      "run empty",
    ]);
  });
});

describe("a program that traces nothing, or badly", () => {
  test("stores nothing, and passes on the context that it was given", async () => {
    await work();
    const plain = await flotilla.runs.start(parents, null);
    await flotilla.runs.wait(plain);
    expect(stored(plain.runId)).toBeNull();
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const given = await flotilla.runs.start(parents, null, { trace: { traceparent } });
    await flotilla.runs.wait(given);
    const { runs } = await flotilla.runs.list({ parent: given.runId });
    const all = [given.runId, ...runs.map(({ runId }) => runId)];
    expect(all.map(stored)).toEqual([traceparent, traceparent, traceparent]);
  });

  test("whose later pods trace has runs that began without in a trace too", async () => {
    await work();
    const { runId } = await flotilla.runs.start(order, null);
    await waiting(runId);
    await pod!.stop();
    register();
    await work();
    await flotilla.runs.signal(runId, "approval", null);
    await flotilla.runs.wait(runId);
    const run = await spanOf("run order");
    expect(await spanOf("transition order/approval")).toMatchObject({ parentId: run.spanId });
    expect(ids(stored(runId))).toEqual([run.traceId, run.spanId]);
  });

  test("loses spans to an SDK that throws, but no run", async () => {
    register({ broken: true });
    await work();
    const { runId } = await flotilla.runs.start(parents, null);
    await flotilla.runs.wait(runId);
    expect(await flotilla.runs.get(runId)).toMatchObject({ status: "completed", deaths: 0 });
  });

  test("loses no run to a context manager that throws either", async () => {
    register();
    context.disable();
    const active = context.active();
    context.setGlobalContextManager({
      active: () => active,
      with() {
        throw new Error("a context manager of somebody's");
      },
      bind: (_, target) => target,
      enable() {
        return this;
      },
      disable() {
        return this;
      },
    });
    await work();
    const { runId } = await flotilla.runs.start(parents, null);
    await flotilla.runs.wait(runId);
    expect(await flotilla.runs.history(runId)).not.toContainEqual(
      expect.objectContaining({ type: "error" }),
    );
    expect(await flotilla.runs.get(runId)).toMatchObject({ status: "completed", deaths: 0 });
  });
});
