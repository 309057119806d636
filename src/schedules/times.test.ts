import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FlotillaError } from "../base/errors.ts";
import { nextTime, timesOf } from "./times.ts";

const at = (iso: string) => Date.parse(iso);
const iso = (ms: number | null) => (ms === null ? null : new Date(ms).toISOString().slice(0, 19));

/** The next times after a moment, as they are in UTC. */
function upcoming(pattern: string, zone: string, after: string, count: number): (string | null)[] {
  const times = timesOf(pattern, zone);
  const found: (string | null)[] = [];
  for (let next = times.next(at(after)); found.length < count; next = times.next(next)) {
    found.push(iso(next));
    if (next === null) break;
  }
  return found;
}

describe("the next time", () => {
  test.each([
    ["* * * * *", "UTC", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00"],
    ["* * * * *", "UTC", "2026-03-01T10:00:59.999Z", "2026-03-01T10:01:00"],
    ["*/15 9-17 * * MON-FRI", "UTC", "2026-03-06T17:45:00Z", "2026-03-09T09:00:00"],
    ["0 3 * * *", "Europe/Berlin", "2026-01-10T00:00:00Z", "2026-01-10T02:00:00"],
    ["0 3 * * *", "Europe/Berlin", "2026-07-10T00:00:00Z", "2026-07-10T01:00:00"],
    ["0 3 * * *", "+02:00", "2026-01-10T00:00:00Z", "2026-01-10T01:00:00"],
    ["30 * * * * *", "UTC", "2026-03-01T10:00:00Z", "2026-03-01T10:00:30"],
    ["0 0 L * *", "UTC", "2028-02-01T00:00:00Z", "2028-02-29T00:00:00"],
    ["0 0 * * FRI#L", "UTC", "2026-05-01T00:00:00Z", "2026-05-29T00:00:00"],
    ["0 0 29 2 *", "UTC", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00"],
    ["0 12 13 * FRI", "UTC", "2026-03-01T00:00:00Z", "2026-03-06T12:00:00"],
    ["0 12 13 * +FRI", "UTC", "2026-04-01T00:00:00Z", "2026-11-13T12:00:00"],
    ["0 0 0 1 1 * 2030", "UTC", "2026-03-01T00:00:00Z", "2030-01-01T00:00:00"],
    ["@daily", "America/New_York", "2026-03-01T10:00:00Z", "2026-03-02T05:00:00"],
    ["@every 300000", "UTC", "2026-03-01T10:02:03Z", "2026-03-01T10:05:00"],
    ["@every 300000", "UTC", "2026-03-01T10:05:00Z", "2026-03-01T10:10:00"],
  ])("of %s in %s after %s is %s", (pattern, zone, after, expected) => {
    expect(iso(nextTime(pattern, zone, at(after)))).toBe(expected);
  });

  test.each([
    ["0 0 30 2 *", "a day that no month has"],
    ["0 0 0 1 1 * 2020", "a year that is over"],
  ])("isn't there for %s, %s", (pattern) => {
    expect(nextTime(pattern, "UTC", at("2026-03-01T00:00:00Z"))).toBe(null);
  });

  // Berlin goes from 02:00 to 03:00 on March 29 (at 01:00 UTC) and from 03:00 to 02:00 on October 25
  // (at 01:00 UTC), New York from 02:00 to 03:00 on March 8 (at 07:00 UTC) and back on November 1 (at
  // 06:00 UTC).
  const berlin = "Europe/Berlin";
  const newYork = "America/New_York";
  test.each<[string, string, string, string, string[]]>([
    [
      "a fixed time in the hour that is left out comes right after it, once",
      "30 2 * * *",
      berlin,
      "2026-03-28T00:00:00Z",
      ["2026-03-28T01:30:00", "2026-03-29T01:00:00", "2026-03-30T00:30:00"],
    ],
    [
      "a fixed time in the hour that is left out comes right after it, once",
      "30 2 * * *",
      newYork,
      "2026-03-07T00:00:00Z",
      ["2026-03-07T07:30:00", "2026-03-08T07:00:00", "2026-03-09T06:30:00"],
    ],
    [
      "a fixed time in the hour that comes twice comes in the first",
      "30 2 * * *",
      berlin,
      "2026-10-24T12:00:00Z",
      ["2026-10-25T00:30:00", "2026-10-26T01:30:00"],
    ],
    [
      "a fixed time in the hour that comes twice comes in the first",
      "30 1 * * *",
      newYork,
      "2026-10-31T12:00:00Z",
      ["2026-11-01T05:30:00", "2026-11-02T06:30:00"],
    ],
    [
      "what comes every hour comes every hour when one is left out",
      "0 * * * *",
      berlin,
      "2026-03-28T23:30:00Z",
      ["2026-03-29T00:00:00", "2026-03-29T01:00:00", "2026-03-29T02:00:00"],
    ],
    [
      "what comes every hour comes every hour when one comes twice",
      "0 * * * *",
      newYork,
      "2026-11-01T04:30:00Z",
      ["2026-11-01T05:00:00", "2026-11-01T06:00:00", "2026-11-01T07:00:00"],
    ],
    [
      "what comes every half hour goes on through the hour that comes twice",
      "*/30 * * * *",
      berlin,
      "2026-10-25T00:00:00Z",
      [
        "2026-10-25T00:30:00",
        "2026-10-25T01:00:00",
        "2026-10-25T01:30:00",
        "2026-10-25T02:00:00",
        "2026-10-25T02:30:00",
      ],
    ],
    [
      "what comes at several hours skips one that is left out",
      "30 1,2,3 * * *",
      newYork,
      "2026-03-08T00:00:00Z",
      ["2026-03-08T06:30:00", "2026-03-08T07:30:00", "2026-03-09T05:30:00"],
    ],
    [
      "midnight stays midnight",
      "0 0 * * *",
      berlin,
      "2026-10-24T00:00:00Z",
      ["2026-10-24T22:00:00", "2026-10-25T23:00:00", "2026-10-26T23:00:00"],
    ],
  ])("where the clocks change: %s (%s, %s)", (_, pattern, zone, after, expected) => {
    expect(upcoming(pattern, zone, after, expected.length)).toEqual(expected);
  });

  test("rises without end, and leaves out none, whatever the pattern, the zone and the season", () => {
    const patterns = ["* * * * *", "*/7 * * * *", "30 2 * * *", "0 */3 * * *", "15 1,2,3 * * SUN"];
    const zones = [berlin, newYork, "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"];
    const changes = ["2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25"];
    fc.assert(
      fc.property(
        fc.constantFrom(...patterns),
        fc.constantFrom(...zones),
        fc.constantFrom(...changes),
        fc.integer({ min: -20 * 60, max: 20 * 60 }),
        (pattern, zone, day, minutes) => {
          const times = timesOf(pattern, zone);
          let beforeMs = at(`${day}T02:00:00Z`) + minutes * 60_000;
          for (let step = 0; step < 5; step++) {
            const nextMs = times.next(beforeMs)!;
            expect(nextMs).toBeGreaterThan(beforeMs);
            // From anywhere in between it is the same, and from there on it is the last.
            expect(times.next(Math.floor((beforeMs + nextMs) / 2))).toBe(nextMs);
            expect(times.next(nextMs - 1)).toBe(nextMs);
            expect(times.last(nextMs)).toBe(nextMs);
            expect(times.last(nextMs + 999)).toBe(nextMs);
            beforeMs = nextMs;
          }
        },
      ),
      { numRuns: 150, seed: 1 },
    );
  });
});

describe("what is no schedule", () => {
  const refusal = (pattern: string, zone = "UTC") => {
    try {
      timesOf(pattern, zone);
    } catch (error) {
      expect(error).toBeInstanceOf(FlotillaError);
      const { code, message, details } = error as FlotillaError;
      return { code, message, details };
    }
    return undefined;
  };

  test.each([
    ["61 * * * *", "minute", "61"],
    ["0 25 * * *", "hour", "25"],
    ["0 0 1 13 *", "month", "13"],
    ["0 0 * * MOO", "day of week", "MOO"],
    ["0 0 32 * *", "day of month", "32"],
    ["60 0 0 1 1 *", "second", "60"],
    ["*/0 * * * *", "minute", "*/0"],
    ["0 0 0 1 1 * year", "year", "year"],
  ])("%s is refused for its %s", (pattern, field, value) => {
    const refused = refusal(pattern);
    expect(refused).toMatchObject({ code: "invalid_schedule", details: { pattern, field, value } });
    expect(refused!.message).toContain(field);
    expect(refused!.message).toContain(value);
  });

  test.each([
    ["", "0 fields"],
    ["* * *", "3 fields"],
    ["* * * * * * * *", "8 fields"],
    ["2030-01-23T00:00:00", "1 fields"],
    ["@reboot", "there is no @reboot"],
    ["@every 10", "1000 to"],
    ["@every soon", "milliseconds"],
    ["x".repeat(201), "200 characters"],
  ])("%s is refused: %s", (pattern, why) => {
    expect(refusal(pattern)).toMatchObject({ code: "invalid_schedule" });
    expect(refusal(pattern)!.message).toContain(why);
  });

  test.each(["Mars/Phobos", "", "Z", "a".repeat(101)])("a zone can't be %s", (zone) => {
    const refused = refusal("* * * * *", zone);
    expect(refused).toMatchObject({ code: "invalid_schedule", details: { zone } });
    expect(refused!.message).toContain("time zone");
  });
});
