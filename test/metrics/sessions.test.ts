import { agent, startPod } from "flotilla";
import { expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { createMetrics } from "../../src/server/metrics/metrics.ts";
import { temporaryFile } from "../../src/store/contract/kinds.ts";
import { parseExposition, valueOf } from "./exposition.ts";

const echo = agent("echo", () => "hello");
const broken = agent("broken", { retries: 1 }, () => {
  throw new Error("no model today");
});

test("a scrape shows what became of answers, what was stored, and which logs are owned", async () => {
  const { path, remove } = temporaryFile();
  const metrics = createMetrics({ pod: () => undefined });
  const config = { store: `sqlite:${path}`, use: [echo, broken], log: silentLogger };
  const pod = await startPod(config, { onEvent: metrics.observe });
  const chat = await pod.sessions.create([echo, broken], { user: "ada" });
  await chat.ask("one");
  await chat.ask("two", { to: "broken" });
  const value = async (series: string, ...labels: string[]) =>
    valueOf(parseExposition(await metrics.registry.metrics()), series, ...labels);

  await until("its log is owned", async () => (await value("flotilla_session_logs_owned")) === 1);
  const turns = "flotilla_turns_total";
  expect(await value(turns, `agent="echo"`, `outcome="completed"`)).toBe(1);
  expect(await value(turns, `agent="broken"`, `outcome="failed"`)).toBe(1);
  expect(await value("flotilla_turns_running")).toBe(0);
  expect(await value("flotilla_turn_first_chunk_seconds_count", `agent="echo"`)).toBe(1);
  expect(await value("flotilla_turn_chunks_total", `agent="echo"`)).toBeGreaterThan(0);
  expect(await value("flotilla_session_entries_total")).toBe(4);
  expect(await value("flotilla_session_records_total")).toBeGreaterThanOrEqual(4);
  expect(await value("flotilla_session_commit_seconds_count")).toBe(
    await value("flotilla_session_records_total"),
  );
  await pod.stop();
  await remove();
});

test("a scrape shows subscribers, what is kept for them, which turns wait, and which sockets were cut", async () => {
  const { path, remove } = temporaryFile();
  const gate = Promise.withResolvers<string>();
  const slow = agent("slow", () => gate.promise);
  const sessions = { maxTurns: 1 };
  const config = { store: `sqlite:${path}`, use: [slow], log: silentLogger, sessions };
  const pod = await startPod(config);
  const metrics = createMetrics({ pod: () => pod });
  const value = async (series: string, ...labels: string[]) => {
    const depth = async () => new Map();
    const text = await metrics.collect({ depth, clock: systemClock, log: silentLogger });
    return valueOf(parseExposition(text), series, ...labels);
  };
  expect(await value("flotilla_session_subscribers")).toBe(0);
  const [one, two] = [await pod.sessions.create(slow), await pod.sessions.create(slow)];
  const leave = new AbortController();
  const follow = async (chat: typeof one) => {
    for await (const event of chat.events({ signal: leave.signal })) void event;
  };
  const following = [follow(one), follow(one), follow(two)];
  await until("they follow", async () => (await value("flotilla_session_subscribers")) === 3);
  expect(await value("flotilla_sessions_followed")).toBe(2);
  await one.send("hello");
  await two.send("hello");
  await until("one turn waits", async () => (await value("flotilla_turns_waiting")) === 1);
  expect(await value("flotilla_session_ring_bytes")).toBeGreaterThan(0);
  for (const state of ["under_way", "waiting"]) {
    expect(await value("flotilla_session_cold_reads", `state="${state}"`)).toBe(0);
  }
  gate.resolve("done");
  await until("no turn waits", async () => (await value("flotilla_turns_waiting")) === 0);
  leave.abort();
  await Promise.all(following);

  metrics.observe({ type: "sockets", open: 7 });
  metrics.observe({ type: "socket_cut", why: "slow" });
  expect(await value("flotilla_sockets")).toBe(7);
  expect(await value("flotilla_sockets_cut_total", `reason="slow"`)).toBe(1);
  expect(await value("flotilla_sockets_cut_total", `reason="silent"`)).toBe(0);
  await pod.stop();
  await remove();
});
