import { trace } from "@opentelemetry/api";
import { agent, type Pod, startPod } from "flotilla";
import { afterEach, beforeEach, expect, test } from "vitest";
import { silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/movable-clock.contract.ts";
import { temporaryFile } from "../../src/store/kinds.contract.ts";
import { registerSdk, type Told } from "./sdk.ts";

const echo = agent("echo", () => {
  trace.getTracer("the program").startActiveSpan("asking a model", (span) => span.end());
  return "a secret answer";
});
const plain = agent("plain", () => "hello");
const broken = agent("broken", { retries: 1 }, () => {
  throw new Error("a secret reason");
});

let place: ReturnType<typeof temporaryFile>;
let pod: Pod;
let spans: Told[];
let unregister: () => void;

beforeEach(() => {
  place = temporaryFile();
  spans = [];
});
afterEach(async () => {
  await pod.stop();
  unregister();
  await place.remove();
});

const start = async (options?: Parameters<typeof registerSdk>[1]) => {
  unregister = registerSdk((span) => spans.push(span), options);
  const store = `sqlite:${place.path}`;
  pod = await startPod({ store, use: [echo, plain, broken], log: silentLogger });
  return pod.sessions.create([echo, plain, broken], { user: "ada" });
};
const spanOf = (name: string) =>
  until(`the span ${name}`, () => spans.find((span) => span.name === name));

test("each attempt at an answer is a span, which says how it ended and nothing of what was said", async () => {
  const chat = await start();
  await chat.ask("a secret question");
  await chat.ask("a secret question", { to: "broken" });
  const turn = await spanOf("turn echo");
  expect(turn).toMatchObject({ kind: "INTERNAL", parentId: undefined, status: "UNSET" });
  expect(turn.attributes).toEqual({
    "flotilla.session.id": chat.sessionId,
    "flotilla.session.tenant": "default",
    "flotilla.agent.name": "echo",
    "flotilla.turn.epoch": 1,
    "flotilla.turn.attempt": 1,
    "flotilla.turn.trigger": "submit",
    "flotilla.turn.outcome": "completed",
    "flotilla.turn.chunks": expect.any(Number),
    "flotilla.pod.id": pod.podId,
  });
  // What the agent does is traced below it.
  expect(await spanOf("asking a model")).toMatchObject({
    traceId: turn.traceId,
    parentId: turn.spanId,
  });
  const failed = await spanOf("turn broken");
  expect(failed).toMatchObject({ status: "ERROR", exceptions: [] });
  expect(failed.attributes).toMatchObject({
    "flotilla.turn.epoch": 2,
    "flotilla.turn.outcome": "failed",
    "error.type": "agent_failed",
  });
  expect(failed.traceId).not.toBe(turn.traceId);
  expect(JSON.stringify(spans)).not.toContain("secret");
});

test("an SDK that throws costs a span, and no answer", async () => {
  const chat = await start({ broken: true });
  expect(await chat.ask("hi", { to: "plain" })).toMatchObject({ outcome: "completed" });
});
