import { trace } from "@opentelemetry/api";
import { agent, type Pod, startPod } from "flotilla";
import { SignJWT } from "jose";
import { afterEach, beforeEach, expect, test } from "vitest";
import { silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { dial, startTestServer } from "../../src/server/contract/test-server.ts";
import { temporaryFile } from "../../src/store/contract/kinds.ts";
import { registerSdk, type Told } from "./sdk.ts";

const echo = agent("echo", () => {
  trace.getTracer("the program").startActiveSpan("asking a model", (span) => span.end());
  return "a secret answer";
});
const plain = agent("plain", () => "hello");
const broken = agent("broken", { retries: 1 }, () => {
  throw new Error("a secret reason");
});

let holding: Promise<void>;
let slowTurns: number;
const slow = agent("slow", async () => {
  slowTurns++;
  await holding;
  return "at last";
});

let place: ReturnType<typeof temporaryFile>;
let pod: Pod | undefined;
let spans: Told[];
let unregister: () => void;

beforeEach(() => {
  place = temporaryFile();
  spans = [];
  slowTurns = 0;
});
afterEach(async () => {
  await pod?.stop();
  pod = undefined;
  unregister();
  await place.remove();
});

const start = async (options?: Parameters<typeof registerSdk>[1]) => {
  unregister = registerSdk((span) => spans.push(span), options);
  const store = `sqlite:${place.path}`;
  pod = await startPod({ store, use: [echo, plain, broken, slow], log: silentLogger });
  return pod.sessions.create([echo, plain, broken, slow], { user: "ada" });
};
const request = <Answer>(act: () => Promise<Answer>): Promise<Answer> =>
  trace.getTracer("the program").startActiveSpan("request", async (span) => {
    const answer = await act();
    span.end();
    return answer;
  });
const spanOf = (name: string) =>
  until(`the span ${name}`, () => spans.find((span) => span.name === name));

test("each attempt at an answer is a span, with how it ended and nothing of the messages", async () => {
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
    "flotilla.pod.id": pod!.podId,
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

test("a turn is traced below the span that has sent its message, also where it has waited", async () => {
  const chat = await start();
  const held = Promise.withResolvers<void>();
  holding = held.promise;
  const first = await request(() => chat.send("one", { to: "slow" }));
  await until("its turn", () => slowTurns === 1);
  await request(() => chat.send("two", { to: "slow" }));
  held.resolve();
  await until("both turns", () => spans.filter(({ name }) => name === "turn slow").length === 2);
  const requests = spans.filter(({ name }) => name === "request");
  const turns = spans.filter(({ name }) => name === "turn slow");
  expect(turns.map(({ traceId, parentId }) => [traceId, parentId])).toEqual(
    requests.map(({ traceId, spanId }) => [traceId, spanId]),
  );
  const again = await request(() => chat.regenerate());
  expect(again.seq).toBeGreaterThan(first.seq);
  await until(
    "the third turn",
    () => spans.filter(({ name }) => name === "turn slow").length === 3,
  );
  expect(spans.findLast(({ name }) => name === "turn slow")!.parentId).toBe(
    spans.findLast(({ name }) => name === "request")!.spanId,
  );
});

test("a context that is given counts where no span is active, and one that isn't valid is none", async () => {
  const chat = await start();
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  await chat.ask("hi", { to: "plain", trace: { traceparent, tracestate: "vendor=1" } });
  expect(await spanOf("turn plain")).toMatchObject({
    traceId: "4bf92f3577b34da6a3ce929d0e0e4736",
    parentId: "00f067aa0ba902b7",
    state: "vendor=1",
  });
  await chat.ask("hi", { to: "echo", trace: { traceparent: "nonsense" } });
  expect((await spanOf("turn echo")).parentId).toBeUndefined();
});

test("an SDK that throws costs a span, and no answer", async () => {
  const chat = await start({ broken: true });
  expect(await chat.ask("hi", { to: "plain" })).toMatchObject({ outcome: "completed" });
});

test("a user's token puts no turn below a span, neither over HTTP nor in a frame", async () => {
  unregister = registerSdk((span) => spans.push(span));
  const secret = "a secret of more than thirty-two characters";
  const apiKey = "a-key-of-more-than-16-characters";
  const tokens = { secret };
  await using server = await startTestServer({
    use: [plain],
    server: { apiKeys: [apiKey], tokens },
  });
  const { sessionId } = await server.sessions.create("default", {
    agents: ["plain"],
    users: ["ada"],
  });
  const token = await new SignJWT({ sub: "ada", tenant: "default" })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime(4_102_444_800)
    .sign(new TextEncoder().encode(secret));
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-000000000000000a-01";
  const parents = () => spans.filter(({ name }) => name === "turn plain").map((t) => t.parentId);
  // A span ends before its answer is stored.
  const turns = async (count: number) => {
    await until(`turn ${count}`, () => (parents().length === count ? true : undefined));
    await until("its answer", async () => {
      const { entries } = await server.sessions.entries("default", sessionId, {});
      return entries.filter(({ role }) => role === "assistant").length === count || undefined;
    });
  };

  const parts = [{ type: "text", text: "hi" }];
  const post = (path: string, body: object, bearer: string) =>
    fetch(`${server.url}/v1/sessions/${sessionId}/${path}`, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        Authorization: `Bearer ${bearer}`,
        traceparent,
      },
      body: JSON.stringify(body),
    });
  expect((await post("messages", { parts }, token)).status).toBe(201);
  await turns(1);
  expect((await post("regenerate", {}, token)).status).toBe(202);
  await turns(2);
  const client = await dial(server.socketUrl, { headers: { Authorization: `Bearer ${token}` } });
  const frame = { session: sessionId, trace: { traceparent } };
  await client.request({ type: "send", ...frame, message: { parts } });
  await turns(3);
  await client.request({ type: "regenerate", ...frame });
  await turns(4);
  client.close();
  expect((await post("messages", { parts, author: "ada" }, apiKey)).status).toBe(201);
  await turns(5);
  expect(parents()).toEqual([undefined, undefined, undefined, undefined, "000000000000000a"]);
});

test("a turn is below the context that came with its message over HTTP, or in a frame", async () => {
  unregister = registerSdk((span) => spans.push(span));
  await using server = await startTestServer({ use: [plain] });
  const { sessionId } = await server.sessions.create("default", { agents: ["plain"] });
  const trace = (spanId: string) => `00-4bf92f3577b34da6a3ce929d0e0e4736-${spanId}-01`;
  const parents = () => spans.filter(({ name }) => name === "turn plain").map((t) => t.parentId);
  // A span ends before its answer is stored.
  const turns = async (count: number) => {
    await until(`turn ${count}`, () => (parents().length === count ? true : undefined));
    await until("its answer", async () => {
      const { entries } = await server.sessions.entries("default", sessionId, {});
      return entries.filter(({ role }) => role === "assistant").length === count || undefined;
    });
  };

  const parts = [{ type: "text", text: "hi" }];
  const post = (path: string, body: object, spanId: string) =>
    fetch(`${server.url}/v1/sessions/${sessionId}/${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", traceparent: trace(spanId) },
      body: JSON.stringify(body),
    });
  expect((await post("messages", { parts, author: "ada" }, "000000000000000a")).status).toBe(201);
  await turns(1);
  expect((await post("regenerate", {}, "000000000000000b")).status).toBe(202);
  await turns(2);
  const client = await dial(server.socketUrl);
  const frame = { session: sessionId, trace: { traceparent: trace("000000000000000c") } };
  await client.request({ type: "send", ...frame, message: { parts } });
  await turns(3);
  await client.request({ type: "send", session: sessionId, trace: 7, message: { parts } });
  await turns(4);
  client.close();
  expect(parents()).toEqual([
    "000000000000000a",
    "000000000000000b",
    "000000000000000c",
    undefined,
  ]);
});
