import { agent, startPod } from "flotilla";
import { expect, test } from "vitest";
import { silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/movable-clock.contract.ts";
import { createMetrics } from "../../src/server/metrics.ts";
import { temporaryFile } from "../../src/store/kinds.contract.ts";
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
