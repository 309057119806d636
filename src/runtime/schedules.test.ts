import { describe, expect, test } from "vitest";
import { task } from "../tasks/task.ts";
import { schedule } from "../schedules/schedule.ts";
import { testFlotilla } from "../testing/test-flotilla.ts";
import { resolveConfig } from "./config.ts";

const secondMs = 1_000;
const minuteMs = 60 * secondMs;
const startMs = Date.parse("2026-03-01T10:00:00Z");

const beep = task("beep", {}, async ({ input }: { input: { loud: boolean } }) => input.loud);
const everyMinute = schedule("beep", {
  task: beep,
  input: { loud: true },
  pattern: "* * * * *",
});

describe("schedules of a config", () => {
  test("are stored when pods start, and their tasks run", async () => {
    await using t = await testFlotilla({ use: [beep], schedules: [everyMinute], pods: 3, startMs });
    expect((await t.schedules.list()).schedules).toMatchObject([{ name: "beep", revision: 1 }]);
    await t.advance(3 * minuteMs + secondMs);
    const { tasks } = await t.tasks.list({ name: "beep" });
    expect(tasks.map(({ status, key }) => ({ status, key })).toReversed()).toEqual(
      ["10:01", "10:02", "10:03"].map((time) => ({
        status: "completed",
        key: `schedule/beep/2026-03-01T${time}:00.000Z`,
      })),
    );
  });

  test("go on when the leader dies, and no time is fired twice or left out", async () => {
    await using t = await testFlotilla({ use: [beep], schedules: [everyMinute], pods: 2, startMs });
    await t.advance(minuteMs - 2 * secondMs);
    t.crash(t.pods.find((pod) => pod.podId === pod.leader)!);
    await t.advance(minuteMs);
    const keys = (await t.tasks.list({ name: "beep" })).tasks.map(({ key }) => key);
    expect(keys).toEqual(["schedule/beep/2026-03-01T10:01:00.000Z"]);
  });

  test("are as in the config after a deploy, and those that were paused stay paused", async () => {
    await using t = await testFlotilla({ use: [beep], schedules: [everyMinute], startMs });
    const before = schedule("beep", { task: beep, input: { loud: false }, pattern: "* * * * *" });
    await t.schedules.put(before);
    await t.schedules.pause("beep");
    await t.startPod();
    expect(await t.schedules.get("beep")).toMatchObject({
      input: { loud: true },
      revision: 3,
      state: "paused",
    });
  });

  test("of a task without a handler make tasks that wait", async () => {
    const unknown = schedule("lost", { name: "lost", pattern: "* * * * *" });
    await using t = await testFlotilla({ use: [beep], schedules: [unknown], startMs });
    await t.advance(minuteMs + secondMs);
    expect((await t.tasks.list({ name: "lost" })).tasks).toMatchObject([{ status: "pending" }]);
  });

  test("whose input doesn't fit keep the pod from starting", async () => {
    const bad = { ...everyMinute, input: "x".repeat(300_000) };
    await expect(testFlotilla({ use: [beep], schedules: [bad] })).rejects.toMatchObject({
      code: "payload_too_large",
    });
  });
});

describe("what is refused in a config", () => {
  test.each([
    [[everyMinute, everyMinute], `two have the id "beep"`],
    [[{ pattern: "* * * * *" }], "made by `schedule(…)`"],
    ["beep", "must be an array"],
    [Array.from({ length: 1_001 }, () => everyMinute), "1000 at most"],
  ])("schedules: %#", (schedules, message) => {
    expect(() => resolveConfig({ schedules: schedules as never })).toThrow(message);
  });

  test.each([
    [() => schedule("", { name: "a", pattern: "* * * * *" }), "invalid_schedule", "id"],
    [() => schedule("a b", { name: "a", pattern: "* * * * *" }), "invalid_schedule", "a b"],
    [
      () => schedule("x".repeat(201), { name: "a", pattern: "* * * * *" }),
      "invalid_schedule",
      "200",
    ],
    [() => schedule("a", { name: "a", pattern: "0 25 * * *" }), "invalid_schedule", `"a": "0 25`],
    [
      () => schedule("a", { name: "a", pattern: "* * * * *", zone: "Mars/Phobos" }),
      "invalid_schedule",
      "Mars/Phobos",
    ],
    [
      () => schedule("a", { name: "a" } as never),
      "invalid_schedule",
      "`pattern` and `everyMs`: neither",
    ],
    [() => schedule("a", { name: "a", everyMs: 10 }), "invalid_option", "everyMs"],
    [
      () => schedule("a", { pattern: "* * * * *" } as never),
      "invalid_option",
      "`task` and `name`: neither",
    ],
    [() => schedule("a", { name: "a b", pattern: "* * * * *" }), "invalid_option", "name"],
    [
      () => schedule("a", { name: "a", pattern: "* * * * *", missed: "never" as never }),
      "invalid_option",
      "missed",
    ],
    [
      () => schedule("a", { name: "a", patern: "* * * * *" } as never),
      "invalid_option",
      "did you mean `pattern`?",
    ],
    [
      () => schedule("a", { name: "a", everyMs: 1_000, options: { key: "k" } as never }),
      "invalid_option",
      "key",
    ],
  ])("a declaration: %#", (declare, code, message) => {
    expect(declare).toThrow(expect.objectContaining({ code }));
    expect(declare).toThrow(message);
  });
});
