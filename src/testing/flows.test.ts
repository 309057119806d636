import { describe, expect, test } from "vitest";
import { abort } from "../base/errors.ts";
import { flow } from "../flows/flow.ts";
import { cancel } from "../flows/decide/thrown.ts";
import { schedule } from "../schedules/schedule.ts";
import { testFlotilla } from "./test-flotilla.ts";

describe("a run in a test", () => {
  test("goes on where it stopped after a crash at any point, and does nothing twice that was stored", async () => {
    for (const point of ["claimed", "started", "ran", "finished"] as const) {
      for (const times of [1, 2, 3]) {
        const ran: string[] = [];
        const three = flow("three", { version: 1 })
          .to("one", () => void ran.push("one"))
          .to("two", () => void ran.push("two"))
          .finally(() => void ran.push("last"))
          .end();
        await using t = await testFlotilla({ use: [three], pods: 2 });
        const crash = t.crashAfter(point, { times });
        const run = await t.runs.start(three, null);

        expect(await t.runs.wait(run), `${point} ${times}`).toEqual({});

        // A claim is made once, unless a pod dies; and no pod is missed once the run has ended.
        const isOver = point === "finished" && times === 3;
        const died = crash.pod === undefined || isOver ? 0 : 1;
        const history = await t.runs.history(run.runId);
        const completed = history.filter(({ type }) => type === "complete");
        expect(completed.map(({ transition }) => transition)).toEqual(["one", "two", "finally"]);
        expect(history.filter(({ type }) => type === "pod_died")).toHaveLength(died);
        // What had run without being stored runs again, and nothing else.
        const repeated = died === 1 && point === "ran" ? 1 : 0;
        expect(ran, `${point} ${times}`).toHaveLength(3 + repeated);
      }
    }
  });

  test("sleeps its whole time, in no time", async () => {
    const patient = flow("patient", { version: 1 })
      .sleep("rest", 30 * 24 * 3_600_000)
      .to("wake", () => ({ atMs: t.clock.now() }))
      .end();
    await using t = await testFlotilla({ use: [patient] });
    const startedMs = t.clock.now();
    const { atMs } = await t.runs.wait(await t.runs.start(patient, null));
    expect(atMs - startedMs).toBeGreaterThanOrEqual(30 * 24 * 3_600_000);
  });

  test("gets a signal, and shows what it waits for until then", async () => {
    const asking = flow("asking", { version: 1 }).signal("approval").end();
    await using t = await testFlotilla({ use: [asking] });
    const { runId } = await t.runs.start(asking, null);
    await t.until(async () => (await t.runs.get(runId))?.doing?.type === "waiting_for_signal");

    await t.runs.signal(runId, "approval", { by: "ada" });

    expect(await t.runs.wait(runId)).toEqual({ approval: { by: "ada" } });
  });

  test("rejects the waiting caller with why it gave nothing", async () => {
    const picky = flow("picky", { version: 1 })
      .to("look", ({ input }) => {
        throw input === "cancel" ? cancel("nobody wants it") : abort("it is broken");
      })
      .end();
    await using t = await testFlotilla({ use: [picky] });
    const failing = await t.runs.start(picky, "fail");
    const cancelled = await t.runs.start(picky, "cancel");

    await expect(t.runs.wait(failing)).rejects.toMatchObject({
      code: "task_failed",
      message: `run ${failing.runId} (picky) failed: it is broken`,
    });
    await expect(t.runs.wait(cancelled)).rejects.toMatchObject({
      code: "cancelled",
      message: `run ${cancelled.runId} (picky) was cancelled: nobody wants it`,
    });
  });

  test("is started by a schedule, in the queue of its flow", async () => {
    const report = flow("report", { version: 1, queue: { name: "reports", limit: 1 } })
      .to("write", ({ input }) => ({ written: input }))
      .end();
    const daily = schedule("daily", { task: report, input: "sales", everyMs: 3_600_000 });
    await using t = await testFlotilla({ use: [report], schedules: [daily] });

    await t.advance(2 * 3_600_000);

    const { runs } = await t.runs.list({ flow: "report" });
    expect(runs).toHaveLength(2);
    for (const { runId } of runs) {
      expect(await t.runs.wait(runId)).toEqual({ written: "sales" });
      expect(await t.tasks.get(runId)).toMatchObject({ scope: "queue/reports", flowVersion: 1 });
    }
  });
});
