import { setTimeout } from "node:timers/promises";
import { agent } from "../../src/sessions/agents/agent.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { SignJWT } from "jose";
import { expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { createMetrics } from "../../src/server/metrics/metrics.ts";
import { serve } from "../../src/server/serve.ts";
import { connect } from "../../src/runtime/connect.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { startChaosProxy } from "../crash/postgres/chaos-proxy.ts";

const secret = "a secret of more than thirty-two characters";

/** Longer than any one try takes, and well within the time that calls have. */
const awayMs = 7_000;

const asking = agent("asking", async function* ({ messages, signal }) {
  const text = String(messages.at(-1)?.parts[0]?.["text"]);
  if (text === "hold") {
    yield "on it";
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    return;
  }
  yield { type: "tool-input-available", toolCallId: "c", toolName: "weather", input: {} };
});

test("S10: on a Postgres that is away for seconds, whatever a user sends to a session is done when it is back", async () => {
  const { url: direct, remove } = await temporaryDatabase();
  const proxy = await startChaosProxy(direct);
  const url = proxy.through(direct);
  const log = silentLogger;
  const pod = await startPod({
    store: url,
    use: [asking],
    log,
    dataDir: false,
    deadAfterMs: 60_000,
  });
  const flotilla = connect(url);
  const server = await serve({
    flotilla,
    sessions: pod.sessionService!,
    machines: [],
    metrics: createMetrics(),
    isStopping: () => false,
    maxPayloadBytes: 256 * 1024,
    clock: systemClock,
    log,
    server: { host: "127.0.0.1", port: 0, tokens: { secret } },
  });
  const token = await new SignJWT({ sub: "ada", tenant: "default" })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime(4_102_444_800)
    .sign(new TextEncoder().encode(secret));
  const ask = (method: string, path: string, body?: object) =>
    fetch(`${server.url}/v1/sessions${path}`, {
      method,
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      ...(body && { body: JSON.stringify(body) }),
    });
  const service = pod.sessionService!;
  const make = async () => {
    const made = await service.create("default", { agents: ["asking"], users: ["ada"] });
    return made.sessionId;
  };
  const say = (id: string, text: string) =>
    ask("POST", `/${id}/messages`, { parts: [{ type: "text", text }] });
  const answerIn = (id: string) =>
    until("an answer", async () => {
      const { entries } = await service.entries("default", id, {});
      return entries.find(({ role }) => role === "assistant")?.messageId;
    });

  const [told, again, running, quiet] = [await make(), await make(), await make(), await make()];
  for (const id of [told, again]) expect((await say(id, "go")).status).toBe(201);
  expect((await say(running, "hold")).status).toBe(201);
  const answer = await answerIn(told);
  await answerIn(again);
  // What the server remembers of members is too old by then.
  await setTimeout(5_100);
  await proxy.refuse();
  const results = [{ toolCallId: "c", output: "rain" }];
  const asked = [
    ask("POST", `/${told}/tool-results`, { messageId: answer, results }),
    ask("POST", `/${again}/regenerate`, {}),
    ask("POST", `/${running}/stop`),
    say(quiet, "hello"),
  ];
  let read: number | undefined;
  const reading = ask("GET", `/${quiet}`).then(({ status }) => (read = status));
  let settled = 0;
  for (const each of asked) void each.then(() => settled++);
  // Reads don't wait.
  await Promise.all([setTimeout(awayMs), reading]);
  expect([settled, read]).toEqual([0, 503]);
  await proxy.accept();
  const statuses = (await Promise.all(asked)).map(({ status }) => status);
  expect(statuses).toEqual([201, 202, 202, 201]);

  await server.close();
  await flotilla.close();
  await pod.stop();
  await proxy.close();
  await remove();
});
