import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { trace } from "@opentelemetry/api";
import { connect, type Flotilla } from "flotilla";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { built } from "../built.ts";
import { until } from "../../src/base/movable-clock.contract.ts";
import { temporaryDatabase, temporaryFile } from "../../src/store/kinds.contract.ts";
import type { FromPod } from "./pod-process.ts";
import { registerSdk, type Told } from "./sdk.ts";

const podFile = fileURLToPath(new URL("./pod-process.ts", import.meta.url));
const stores = [
  { name: "a SQLite file", place: () => ({ ...temporaryFile(), url: undefined }) },
  { name: "Postgres", place: temporaryDatabase },
];

describe.each(stores)("on $name, a task enqueued here and run in another process", ({ place }) => {
  let store: { url: string; remove: () => Promise<void> };
  let flotilla: Flotilla;
  let unregister: () => void;
  let here: Told[];
  let there: Told[];
  let news: string[];
  let children: ChildProcess[];

  beforeEach(async () => {
    const made = await place();
    store = { remove: made.remove, url: made.url ?? `sqlite:${made.path}` };
    [here, there, news, children] = [[], [], [], []];
    unregister = registerSdk((span) => here.push(span));
    flotilla = connect(store.url);
  });
  afterEach(async () => {
    unregister();
    for (const child of children) await kill(child);
    await flotilla.close();
    await store.remove();
  });

  const startPod = async (): Promise<ChildProcess> => {
    const child = fork(built.program(podFile), [store.url], { execArgv: [] });
    children.push(child);
    child.on("message", (message: FromPod) => {
      if ("span" in message) there.push(message.span);
      else news.push(message.running);
    });
    await until("the pod's start", () => news.includes("pod"));
    return child;
  };
  const kill = async (child: ChildProcess): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  };
  /** Enqueues within a span of the program's own, as a request would be. */
  const request = (name: string) =>
    trace.getTracer("the program").startActiveSpan("request", async (span) => {
      const { taskId } = await flotilla.enqueue(name, null);
      span.end();
      return taskId;
    });
  const ended = (name: string, count: number) =>
    until(`${count} spans ${name}`, () => {
      const found = there.filter((span) => span.name === name);
      return found.length === count ? found : undefined;
    });

  test("is one trace, from the request to what the handler does", async () => {
    await startPod();
    const taskId = await request("mail");
    const [run] = await ended("run mail", 1);
    const [enqueue, root] = here;
    expect(root).toMatchObject({ name: "request", parentId: undefined });
    expect(enqueue).toMatchObject({
      name: "enqueue mail",
      kind: "PRODUCER",
      traceId: root!.traceId,
      parentId: root!.spanId,
    });
    expect(run).toMatchObject({
      kind: "CONSUMER",
      traceId: root!.traceId,
      parentId: enqueue!.spanId,
      attributes: { "messaging.message.id": taskId, "flotilla.task.outcome": "completed" },
    });
    expect(there.find((span) => span.name === "look up")).toMatchObject({
      traceId: root!.traceId,
      parentId: run!.spanId,
    });
  });

  test("stays one trace over a retry, with the error where it was thrown", async () => {
    await startPod();
    await request("flaky");
    const [first, second] = await ended("run flaky", 2);
    const enqueue = here[0]!;
    expect(first).toMatchObject({
      traceId: enqueue.traceId,
      parentId: enqueue.spanId,
      status: "ERROR",
      exceptions: ["not yet"],
      attributes: { "flotilla.task.attempt": 1, "flotilla.task.outcome": "retry" },
    });
    expect(second).toMatchObject({
      traceId: enqueue.traceId,
      parentId: enqueue.spanId,
      status: "UNSET",
      exceptions: [],
      attributes: { "flotilla.task.attempt": 2, "flotilla.task.outcome": "completed" },
    });
  });

  test("stays one trace though the pod that ran it was killed", async () => {
    const first = await startPod();
    await request("deadly");
    await until("the first run", () => news.includes("deadly"));
    await kill(first);
    news = [];
    await startPod();
    const [run] = await ended("run deadly", 1);
    const enqueue = here[0]!;
    expect(run).toMatchObject({
      traceId: enqueue.traceId,
      parentId: enqueue.spanId,
      attributes: {
        "flotilla.task.attempt": 1,
        "flotilla.task.deaths": 1,
        "flotilla.task.token": 2,
        "flotilla.task.outcome": "completed",
      },
    });
  });
});
