import { dirname } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { countDurationOf, countOf, encodeCounts } from "../src/series/counts.ts";
import { createRecorder } from "../src/series/recorder.ts";
import { storeCounts } from "../src/series/sql.ts";
import { startTestServer, type TestServer } from "../src/server/contract/test-server.ts";
import { openStore } from "../src/store/open.ts";
import { run as runIn } from "./command.ts";

const minuteMs = 60_000;
let server: TestServer;

beforeAll(async () => {
  server = await startTestServer();
  const database = await openStore(`sqlite:${server.path}`);
  const recorder = createRecorder();
  const nowMs = Math.floor(Date.now() / minuteMs) * minuteMs;
  for (const [minute, completed] of [5, 10, 20].entries()) {
    const tally = recorder.tally("task", "mail");
    countOf(tally, "completed", completed);
    if (minute === 1) countOf(tally, "failed", 2);
    countDurationOf(tally.run, 300);
    const rows = [...recorder.take()].map(([subject, counts]) => ({
      span: minuteMs,
      at: nowMs - (10 - minute) * minuteMs,
      subject,
      pod: "a",
      counts: encodeCounts(counts),
    }));
    await database.write(storeCounts(rows));
  }
  await database.close();
});
afterAll(() => server[Symbol.asyncDispose]());

describe.each([
  ["a store", () => ["--store", `sqlite:${server.path}`]],
  ["a server", () => ["--url", server.url]],
])("counts over time of %s", (_, at) => {
  const run = (...args: string[]) =>
    runIn(["series", ...args, ...at()], { cwd: dirname(server.path) });

  test("are a table with a bar for each minute", async () => {
    const { code, stdout } = await run("task:mail");
    expect(code).toBe(0);
    const lines = stdout.trimEnd().split("\n");
    expect(lines[0]).toMatch(/^minute +completed +failed +run p95 +completed$/);
    expect(lines[1]).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d +5 +\d+ ms +█{5}$/);
    expect(lines[2]).toMatch(/ 10 +2 +\d+ ms +█{10}$/);
    expect(lines[3]).toMatch(/ 20 +\d+ ms +█{20}$/);
    expect(lines).toHaveLength(4);
  });

  test("are JSON as the route gives them, and name their subjects", async () => {
    const { subject, points } = JSON.parse((await run("task:mail", "--json")).stdout);
    expect([subject, points.length, points[1].counts]).toEqual([
      "task:mail",
      3,
      { completed: 10, failed: 2 },
    ]);
    expect((await run("--kind", "task")).stdout).toMatch(/^subject +last\ntask +.*Z\ntask:mail +/);
    expect((await run("task:other")).stdout).toBe(
      "nothing was counted of task:other in that time\n",
    );
    const wrong = await run("mail");
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining("task:mail")]);
  });
});
