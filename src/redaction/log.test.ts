import { describe, expect, test } from "vitest";
import { type Logger, silentLogger, withFields } from "../base/log.ts";
import { redactingLogger } from "./log.ts";
import { createRedactor, shareRedactor } from "./redactor.ts";

function noting() {
  const lines: unknown[][] = [];
  const at = (level: string) => (fields: object, message: string) =>
    void lines.push([level, fields, message]);
  const log: Logger = {
    debug: at("debug"),
    info: at("info"),
    warn: at("warn"),
    error: at("error"),
  };
  return { lines, log };
}

describe("a logger that redacts", () => {
  test("hides what the configs in use hide, where it is given none of them", () => {
    const { lines, log } = noting();
    const redacting = redactingLogger(log);
    const end = shareRedactor(createRedactor([/\bMINE-\d{6}\b/, "log.card"]));
    redacting.info({ card: 4711, note: "MINE-123456" }, "no MINE-123456");
    end();
    redacting.info({ card: 4711 }, "no MINE-123456");
    expect(lines).toEqual([
      ["info", { card: "[redacted]", note: "[redacted]" }, "no [redacted]"],
      ["info", { card: 4711 }, "no MINE-123456"],
    ]);
  });

  test("writes no secrets, neither in fields nor in messages", () => {
    const { lines, log } = noting();
    const redacting = withFields(redactingLogger(log), { pod: "p" });
    redacting.warn({ headers: { Authorization: "x" }, token: 7 }, "login with Bearer abc123def456");
    expect(lines).toEqual([
      [
        "warn",
        { pod: "p", headers: { Authorization: "[redacted]" }, token: 7 },
        "login with Bearer [redacted]",
      ],
    ]);
  });

  test("follows the config, and passes on what has no secrets", () => {
    const { lines, log } = noting();
    const redacting = redactingLogger(log, createRedactor(["log.customer", /c\d{3}/]));
    const fields = { task: "t" };
    redacting.info(fields, "plain");
    redacting.error({ customer: "ada" }, "of c123");
    expect(lines[0]![1]).toBe(fields);
    expect(lines[1]).toEqual(["error", { customer: "[redacted]" }, "of [redacted]"]);
  });

  test("is made once, reads nothing for lines that aren't written, and never throws", () => {
    const { lines, log } = noting();
    const leveled = { ...log, isLevelEnabled: (level: string) => level === "error" };
    const redacting = redactingLogger(leveled);
    expect(redactingLogger(redacting)).toBe(redacting);
    expect(redactingLogger(silentLogger)).toBe(silentLogger);
    const unreadable = {
      get field(): string {
        throw new Error("unreadable");
      },
    };
    redacting.debug(unreadable, "not written");
    redacting.error(unreadable, "written");
    expect(lines).toEqual([["error", { fields: "[redacted]" }, "written"]]);
  });
});
