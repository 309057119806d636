import { describe, expect, test } from "vitest";
import { silentLogger } from "../../base/log.ts";
import { task } from "../../tasks/task.ts";
import { startPod } from "../../runtime/start-pod.ts";
import { appHarness, emailContracts, openTestStore } from "../contract/app-harness.ts";
import { createMetrics } from "../metrics/metrics.ts";

const testStore = openTestStore();

const ask = (method: string, path: string, body?: unknown) =>
  appHarness(testStore.flotilla, { contracts: emailContracts }).send(method, path, body);

const nightly = {
  name: "mail",
  input: { to: "ada" },
  pattern: "0 3 * * *",
  zone: "Europe/Berlin",
  options: { priority: 2 },
};

describe("schedules over HTTP", () => {
  test("are put, shown, listed, paused, resumed, fired and removed", async () => {
    const put = await ask("PUT", "/v1/schedules/nightly", nightly);
    expect(put).toMatchObject({
      status: 200,
      body: {
        schedule: {
          scheduleId: "nightly",
          pattern: "0 3 * * *",
          zone: "Europe/Berlin",
          missed: "once",
          state: "active",
          revision: 1,
          noWorker: true,
        },
      },
    });
    const shown = await ask("GET", "/v1/schedules/nightly");
    expect(shown.body.upcomingMs).toHaveLength(5);
    expect(shown.body.upcomingMs[0]).toBe(shown.body.schedule.nextAtMs);
    expect(await ask("GET", "/v1/schedules?limit=1")).toMatchObject({
      body: { schedules: [{ scheduleId: "nightly" }], next: null },
    });
    expect(await ask("POST", "/v1/schedules/nightly/pause")).toMatchObject({
      body: { schedule: { state: "paused" } },
    });
    expect(await ask("POST", "/v1/schedules/nightly/resume")).toMatchObject({
      body: { schedule: { state: "active" } },
    });
    const fired = await ask("POST", "/v1/schedules/nightly/fire");
    expect(fired.status).toBe(201);
    expect(await testStore.flotilla.tasks.get(fired.body.taskId)).toMatchObject({
      name: "mail",
      priority: 2,
    });
    expect(await ask("DELETE", "/v1/schedules/nightly")).toMatchObject({ status: 200 });
    expect(await ask("DELETE", "/v1/schedules/nightly")).toMatchObject({ status: 404 });
  });

  test.each<[string, unknown, number, string]>([
    ["a pattern", { ...nightly, pattern: "0 25 * * *" }, 400, "invalid_schedule"],
    ["a zone", { ...nightly, zone: "Mars/Phobos" }, 400, "invalid_schedule"],
    ["an input", { ...nightly, input: { to: 5 } }, 400, "invalid_input"],
    ["a policy", { ...nightly, missed: "never" }, 400, "invalid_option"],
    ["an option", { ...nightly, options: { key: "k" } }, 400, "invalid_option"],
    ["a field", { ...nightly, patern: "" }, 400, "invalid_option"],
    ["a name", { pattern: "* * * * *" }, 400, "invalid_input"],
    ["a time", { name: "mail", input: { to: "a" } }, 400, "invalid_schedule"],
  ])("refuse %s that makes no sense", async (_, body, status, code) => {
    expect(await ask("PUT", "/v1/schedules/bad", body)).toMatchObject({
      status,
      body: { error: { code } },
    });
    expect(await ask("GET", "/v1/schedules")).toMatchObject({ body: { schedules: [] } });
  });

  test("are refused with where a pattern is wrong", async () => {
    const { body } = await ask("PUT", "/v1/schedules/bad", { ...nightly, pattern: "0 25 * * *" });
    expect(body.error.details).toEqual({
      scheduleId: "bad",
      pattern: "0 25 * * *",
      field: "hour",
      value: "25",
    });
  });

  test.each([
    ["GET", ""],
    ["POST", "/pause"],
    ["POST", "/resume"],
    ["POST", "/fire"],
    ["DELETE", ""],
  ])("%s /v1/schedules/none%s finds nothing", async (method, rest) => {
    expect(await ask(method, `/v1/schedules/none${rest}`)).toMatchObject({ status: 404 });
  });

  test("know whether a pod would run their tasks", async () => {
    await ask("PUT", "/v1/schedules/nightly", nightly);
    const mail = task("mail", {}, () => {});
    const pod = await startPod({
      store: testStore.store,
      use: [mail],
      log: silentLogger,
    });
    expect(await ask("GET", "/v1/schedules/nightly")).toMatchObject({
      body: { schedule: { noWorker: false } },
    });
    await pod.stop();
  });

  test("are counted: what was fired, what was missed, and how late", async () => {
    const metrics = createMetrics();
    const fired = { type: "fired", scheduleId: "a" } as const;
    metrics.observe({ ...fired, tasks: 3, skipped: 0, lagMs: 20 });
    metrics.observe({ ...fired, tasks: 0, skipped: 4, lagMs: undefined });
    const text = await metrics.registry.metrics();
    expect(text).toContain("flotilla_schedules_fired_total 3\n");
    expect(text).toContain("flotilla_schedules_missed_total 4\n");
    expect(text).toContain("flotilla_schedule_lag_seconds_count 1\n");
    expect(text).toContain("flotilla_schedule_lag_seconds_sum 0.02\n");
  });
});
