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

const podFile = fileURLToPath(new URL("./flow-process.ts", import.meta.url));
const stores = [
  { name: "a SQLite file", place: () => ({ ...temporaryFile(), url: undefined }) },
  { name: "Postgres", place: temporaryDatabase },
];

describe.each(stores)("on $name, a run whose pod is killed in the middle of it", ({ place }) => {
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
  /** Starts a run within a span of the program's own, as a request would, and kills the pod that has it. */
  const killed = async (name: string): Promise<string> => {
    const first = await startPod();
    const { runId } = await trace
      .getTracer("the program")
      .startActiveSpan("request", async (span) => {
        const started = await flotilla.runs.start(name, null);
        span.end();
        return started;
      });
    await until("the first claim", () => news.includes("token 1"));
    await kill(first);
    news = [];
    return runId;
  };
  const thereAre = (name: string, count: number) =>
    until(`${count} spans ${name}`, () => {
      const found = there.filter((span) => span.name === name);
      return found.length === count ? found : undefined;
    });

  test("goes on in the same trace, below the span that the first pod began", async () => {
    const runId = await killed("voyage");
    const [request] = here.filter(({ name }) => name === "request");
    const [before] = await thereAre("transition voyage/leave", 1);
    await startPod();
    await flotilla.runs.wait(runId);
    const [after] = await thereAre("transition voyage/land", 1);
    const [sailed] = await thereAre("transition voyage/sail", 1);
    expect(before).toMatchObject({ traceId: request!.traceId });
    for (const span of [sailed, after]) {
      expect(span).toMatchObject({
        traceId: request!.traceId,
        parentId: before!.parentId,
        attributes: { "flotilla.run.id": runId, "flotilla.transition.outcome": "completed" },
      });
    }
    expect(before!.attributes["flotilla.run.token"]).toBe(1);
    expect(sailed!.attributes["flotilla.run.token"]).toBe(2);
    // A span of the program's within the first attempt was told before the kill, the other after it.
    const own = await thereAre("setting sails", 2);
    expect(own.map(({ traceId }) => traceId)).toEqual([request!.traceId, request!.traceId]);
    expect(own[1]!.parentId).toBe(sailed!.spanId);
    // The first pod took the run's span with it, and nobody makes a second one.
    expect(there.filter(({ name }) => name === "run voyage")).toEqual([]);
  });

  test("before anything of it was stored is begun anew, in the same trace", async () => {
    const runId = await killed("wreck");
    const start = here.find(({ name }) => name === "start wreck")!;
    await startPod();
    await flotilla.runs.wait(runId);
    const [run] = await thereAre("run wreck", 1);
    expect(run).toMatchObject({ traceId: start.traceId, parentId: start.spanId });
    const [left] = await thereAre("transition wreck/leave", 1);
    expect(left).toMatchObject({ traceId: start.traceId, parentId: run!.spanId });
  });
});
