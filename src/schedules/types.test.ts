import { expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import { task } from "../tasks/task.ts";
import type { Schedules } from "./schedules.ts";
import { schedule, type ScheduleDeclaration } from "./schedule.ts";

const report = task("report", { input: z.object({ full: z.boolean() }) });
const bare = task("bare");
const pattern = "0 3 * * *";

/** Never called: what it says is checked by the compiler. */
async function typed(schedules: Schedules): Promise<void> {
  const declared = schedule("a", { task: report, input: { full: true }, pattern, zone: "UTC" });
  expectTypeOf(declared).toEqualTypeOf<ScheduleDeclaration>();
  await schedules.put(declared);
  await schedules.put("a", { task: report, input: { full: true }, everyMs: 1_000 });
  await schedules.put("a", { task: report, input: { full: true }, pattern, missed: "all" });
  // @ts-expect-error the input doesn't fit
  schedule("a", { task: report, input: { full: "yes" }, pattern });
  // @ts-expect-error the input is missing
  schedule("a", { task: report, pattern });
  // @ts-expect-error the input doesn't fit here either
  await schedules.put("a", { task: report, input: {}, pattern });
  // @ts-expect-error it comes by a pattern or every so often, not both
  schedule("a", { task: report, input: { full: true }, pattern, everyMs: 1_000 });
  // @ts-expect-error an interval has no zone
  schedule("a", { task: report, input: { full: true }, everyMs: 1_000, zone: "UTC" });
  // @ts-expect-error there is no such policy
  schedule("a", { task: report, input: { full: true }, pattern, missed: "twice" });
  // @ts-expect-error the key is the schedule's
  schedule("a", { task: report, input: { full: true }, pattern, options: { key: "k" } });

  // What takes anything needs no input, and a name says nothing of it.
  schedule("a", { task: bare, pattern });
  schedule("a", { name: "report", input: { anything: 1 }, pattern });
  schedule("a", { name: "report", pattern, options: { priority: 1, attempts: 2, tenant: "t" } });

  const stored = await schedules.get("a");
  expectTypeOf(stored!.nextAtMs).toEqualTypeOf<number | null>();
  expectTypeOf(await schedules.upcoming("a")).toEqualTypeOf<number[]>();
  expectTypeOf(await schedules.remove("a")).toBeBoolean();
}

test("types hold for what they were written for", () => {
  expect(typed).toBeTypeOf("function");
});
