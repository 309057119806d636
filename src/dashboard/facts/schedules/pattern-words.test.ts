import { describe, expect, test } from "vitest";
import { timesOf } from "../../../schedules/times.ts";
import { patternWords } from "./pattern-words.ts";

const cron = (pattern: string, zone = "UTC") => patternWords({ pattern, zone, everyMs: null });
const every = (everyMs: number) => patternWords({ pattern: null, zone: null, everyMs });

describe("a pattern in words", () => {
  test.each([
    ["* * * * *", "every minute"],
    ["*/5 * * * *", "every 5 minutes"],
    ["0-59/15 * * * *", "every 15 minutes"],
    ["0,30 * * * *", "every 30 minutes"],
    ["0 * * * *", "every hour"],
    ["1 * * * *", "every hour, 1 minute past"],
    ["20 */6 * * *", "every 6 hours, 20 minutes past, UTC"],
    ["0 3 * * *", "every day at 03:00, UTC"],
    ["5 3,15 * * *", "every day at 03:05 and 15:05, UTC"],
    ["0 */12 * * *", "every day at 00:00 and 12:00, UTC"],
    ["0 9-17 * * 1-5", "every hour from 09:00 to 17:00, Monday to Friday, UTC"],
    ["*/15 9-17 * * MON-FRI", "every 15 minutes from 09:00 to 17:45, Monday to Friday, UTC"],
    ["0 9 * * 6,7", "on Sunday and Saturday at 09:00, UTC"],
    ["0 0 * * sun", "every Sunday at 00:00, UTC"],
    ["0 0 * * 1,3,5", "on Monday, Wednesday and Friday at 00:00, UTC"],
    ["0 0 1 * *", "on the 1st of every month at 00:00, UTC"],
    ["0 0 2,3,13,22 * *", "on the 2nd, 3rd, 13th and 22nd of every month at 00:00, UTC"],
    ["0 6 1-7 1,7 *", "on the 1st to 7th of January and July at 06:00, UTC"],
    ["0 0 13 * 5", "on the 13th of every month and every Friday at 00:00, UTC"],
    ["0 0 * 6-8 *", "every day in June to August at 00:00, UTC"],
    ["0 0 * dec fri", "every Friday in December at 00:00, UTC"],
    ["* * * * 0-6", "every minute"],
  ])("of five fields: %s is %s", (pattern, words) => {
    expect(cron(pattern)).toBe(words);
  });

  test.each([
    ["* * * * * *", "every second"],
    ["*/10 * * * * *", "every 10 seconds"],
    ["0 0 3 * * *", "every day at 03:00, UTC"],
    ["30 0 3 * * *", "every day at 03:00:30, UTC"],
    ["0 0 12 1 1 * 2027", "on the 1st of January at 12:00, in 2027, UTC"],
    ["0 */5 * * * * 2027,2028", "every 5 minutes, in 2027 and 2028, UTC"],
  ])("with seconds and years: %s is %s", (pattern, words) => {
    expect(cron(pattern)).toBe(words);
  });

  test("of a nickname is what it stands for", () => {
    expect(cron("@hourly")).toBe("every hour");
    expect(cron("@Daily")).toBe("every day at 00:00, UTC");
    expect(cron("@weekly")).toBe("every Sunday at 00:00, UTC");
    expect(cron("@monthly")).toBe("on the 1st of every month at 00:00, UTC");
    expect(cron("@yearly")).toBe("on the 1st of January at 00:00, UTC");
  });

  test("names the zone where it matters", () => {
    expect(cron("0 3 * * *", "Europe/Berlin")).toBe("every day at 03:00, Europe/Berlin");
    expect(cron("* * * * *", "Europe/Berlin")).toBe("every minute");
    expect(cron("* * * * 1", "Europe/Berlin")).toBe("every minute, every Monday, Europe/Berlin");
  });

  test("of an interval", () => {
    expect(every(1_000)).toBe("every second");
    expect(every(90_000)).toBe("every 90 seconds");
    expect(every(300_000)).toBe("every 5 minutes");
    expect(every(3_600_000)).toBe("every hour");
    expect(every(129_600_000)).toBe("every 36 hours");
    expect(every(7 * 86_400_000)).toBe("every 7 days");
    expect(every(1_500)).toBe("every 1,500 milliseconds");
  });

  test.each([
    "*/7 * * * *",
    "0 0 L * *",
    "0 0 15W * *",
    "0 0 * * 5#2",
    "5/10 * * * *",
    "? * * * *",
    "0 0 1 * +1",
    "1,2,3,5,8,13,21 * * * *",
    "* 1,3 * * *",
    "0 0 25 * * * 1-9999",
    "* * * *",
    "a b c d e",
    "60 * * * *",
    "5-1 * * * *",
    "1-2-3 * * * *",
    "*/0 * * * *",
    "<img src=x onerror=alert(1)>",
    "__proto__",
    "constructor",
    "",
    ",,,, * * * *",
    `${"1,".repeat(500)}1 * * * *`,
  ])("is the pattern itself where words would blur it: %s", (pattern) => {
    expect(cron(pattern)).toBe(`${pattern}, UTC`);
  });

  test("means the times that the server fires at", () => {
    const from = Date.parse("2026-11-18T00:00:00Z");
    const firstOf = (pattern: string) => new Date(timesOf(pattern, "UTC").next(from)!);
    // Both ways to say Sunday, the order of days, and either of two kinds of days.
    expect(firstOf("0 9 * * 7").getUTCDay()).toBe(0);
    expect(firstOf("0 9 * * MON").getUTCDay()).toBe(1);
    expect(firstOf("0 9 * 1 *").getUTCMonth()).toBe(0);
    expect(firstOf("0 0 13 * 5").toISOString()).toBe("2026-11-20T00:00:00.000Z");
    expect(firstOf("30 0 3 * * *").toISOString()).toBe("2026-11-18T03:00:30.000Z");
  });
});
