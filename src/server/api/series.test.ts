import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { hourMs, minuteMs } from "../../base/durations.ts";
import { encodePulse } from "../../pods/pulse.ts";
import { beat } from "../../pods/sql.ts";
import { startOf } from "../../series/fold.ts";
import { storeCounts } from "../../series/sql.ts";
import type { Database } from "../../store/database.ts";
import { openStore } from "../../store/open.ts";
import { appHarness, openTestStore } from "../contract/app-harness.ts";

const testStore = openTestStore();
let database: Database;
beforeAll(async () => {
  await testStore.flotilla.tasks.stats();
  database = await openStore(testStore.store);
});
afterAll(() => database.close());

const get = (path: string) => appHarness(testStore.flotilla).get(path);
const put = (at: number, subject: string, counts: object) =>
  database.write(
    storeCounts([{ span: minuteMs, at, subject, pod: "pod-1", counts: JSON.stringify(counts) }]),
  );

describe("series over HTTP", () => {
  test("give the points of a subject, and leave gaps", async () => {
    const at = startOf(systemClock.now(), minuteMs) - 10 * minuteMs;
    const run = { sumMs: 300, buckets: [0, 0, 0, 0, 0, 0, 0, 3] };
    await put(at, "task:mail", { counts: { completed: 3 }, run });
    await put(at + 2 * minuteMs, "task:mail", { counts: { failed: 1 } });
    await put(at, "task:bill", { counts: { completed: 9 } });
    const query = `subject=task:mail&from=${at}&to=${at + hourMs}&step=minute`;
    expect(await get(`/v1/series?${query}`)).toMatchObject({
      status: 200,
      body: {
        subject: "task:mail",
        step: "minute",
        fromMs: at,
        toMs: at + hourMs,
        points: [
          {
            atMs: at,
            counts: { completed: 3 },
            gauges: {},
            wait: null,
            run: { count: 3, sumMs: 300, p50Ms: expect.any(Number), buckets: run.buckets },
          },
          { atMs: at + 2 * minuteMs, counts: { failed: 1 }, run: null },
        ],
      },
    });
    const back = await get(`/v1/series?subject=task:mail&to=${at + hourMs}&span=${hourMs}`);
    expect(back.body).toMatchObject({ fromMs: at, toMs: at + hourMs });
    expect(back.body.points).toHaveLength(2);
    const { body } = await get("/v1/series?subject=task:mail&step=hour");
    expect(body.points.length).toBeGreaterThan(0);
    expect(await get("/v1/series?subject=task:none")).toMatchObject({ body: { points: [] } });
  });

  test("list their subjects page by page", async () => {
    const at = startOf(systemClock.now(), minuteMs);
    for (const subject of ["task:a", "task:b", "throttle:x y"]) await put(at, subject, {});
    const first = await get("/v1/series/subjects?limit=2");
    expect(first.body).toEqual({
      subjects: [
        { subject: "task:a", lastAtMs: at },
        { subject: "task:b", lastAtMs: at },
      ],
      next: "task:b",
    });
    const second = await get("/v1/series/subjects?cursor=task:b");
    expect(second.body).toMatchObject({ subjects: [{ subject: "throttle:x y" }], next: null });
    const tasks = await get("/v1/series/subjects?kind=task");
    expect(tasks.body.subjects).toHaveLength(2);
  });

  test.each([
    "/v1/series",
    "/v1/series?subject=mail",
    "/v1/series?subject=task:mail&step=day",
    "/v1/series?subject=task:mail&from=0&to=99999999999999",
    "/v1/series?subject=task:mail&from=5&to=4",
    "/v1/series?subject=task:mail&from=yesterday",
    "/v1/series?subject=task:mail&from=5&span=60000",
    "/v1/series?subject=task:mail&span=0",
    "/v1/series?subject=task:mail&to=5&span=60000",
    `/v1/series?subject=task:mail&span=${1_501 * minuteMs}`,
    "/v1/series?subject=task:mail&since=1",
    `/v1/series?subject=task:${"x".repeat(1_100)}`,
    "/v1/series/subjects?kind=session",
    "/v1/series/subjects?limit=0",
  ])("refuse %s with what to do", async (path) => {
    const { status, body } = await get(path);
    expect(status).toBe(400);
    expect(["invalid_input", "invalid_option"]).toContain(body.error.code);
  });
});

test("pods are shown with their pulses", async () => {
  const running = [{ taskId: "task-1", startedAtMs: 5 }];
  const throttles = [{ name: "openai", key: "", inFlight: 3 }];
  const pulse = {
    claimed: 5,
    ended: { completed: 4 },
    chunks: 0,
    lagMs: 2,
    memoryBytes: 1_000,
    held: 1,
    leadsSinceMs: 7,
    throttles,
    running,
    logs: [{ logId: 2, bytes: 700, lagMs: 40 }],
  };
  await database.write([
    beat("pod-1", "{}", 0, { pulse: encodePulse(pulse) }),
    beat("pod-2", "{}", 0),
  ]);
  const { body } = await get("/v1/pods");
  expect(body.pods).toMatchObject([
    { podId: "pod-1", pulse, leads: true },
    { podId: "pod-2", pulse: null, leads: false },
  ]);
});
