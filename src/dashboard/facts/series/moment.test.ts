import { expect, test } from "vitest";
import { momentText, tickText } from "./moment.ts";

const local = (hours: number, minutes: number) => new Date(2026, 10, 8, hours, minutes).getTime();

test("a tick is a time, or the day that begins", () => {
  expect(tickText(local(14, 3))).toBe("14:03");
  expect(tickText(local(0, 0))).toBe("8 Nov");
});

test("a moment has both, and what is no time says so", () => {
  expect(momentText(local(0, 5))).toBe("8 Nov 00:05");
  expect(momentText(Number.NaN)).toBe("no time");
});
