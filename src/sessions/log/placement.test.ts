import { expect, test } from "vitest";
import { sessionGroupOf, sessionGroups, logOf } from "./placement.ts";

test("a session stays in its group for ever", () => {
  // Worked out once: another answer would lose every session that is stored.
  expect(["", "a", "session-1", "Zürich 🙂"].map(sessionGroupOf)).toEqual([11, 39, 110, 52]);
});

test.each([
  ["counted up", (at: number) => `session-${at}`],
  ["ULIDs of one moment", (at: number) => `01JZZZZZZZZZZZZZZZZZZ${String(at).padStart(5, "0")}`],
  ["long, and different at their start", (at: number) => `${at}-of-a-tenant-with-a-long-name`],
  ["in another script", (at: number) => String.fromCodePoint(0x4e00 + at)],
])("ids that are %s spread evenly over the groups and the logs", (_, idOf) => {
  const each = 64;
  const sizes = Array.from({ length: sessionGroups }, () => 0);
  const logs = Array.from({ length: 16 }, () => 0);
  for (let at = 0; at < sessionGroups * each; at++) {
    sizes[sessionGroupOf(idOf(at))]!++;
    logs[logOf(idOf(at), 16)]!++;
  }
  // Chance alone gives a deviation of √64 = 8 in a group, and of 32 in a log of 1,024.
  expect(Math.min(...sizes)).toBeGreaterThan(each - 5 * 8);
  expect(Math.max(...sizes)).toBeLessThan(each + 5 * 8);
  expect(Math.min(...logs)).toBeGreaterThan(1_024 - 5 * 32);
  expect(Math.max(...logs)).toBeLessThan(1_024 + 5 * 32);
});

test("a group lies on one log, however many logs there are", () => {
  for (const logs of [1, 4, 16, 256]) {
    for (let at = 0; at < 1_000; at++) {
      expect(logOf(`s${at}`, logs)).toBe(sessionGroupOf(`s${at}`) % logs);
    }
  }
});
