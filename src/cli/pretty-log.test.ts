import { Writable } from "node:stream";
import { describe, expect, test } from "vitest";
import type { LogLevel } from "./flags.ts";
import { prettyLogger } from "./pretty-log.ts";

const atMs = new Date(2026, 0, 2, 3, 4, 5).getTime();

describe("a log for people", () => {
  test("is one line per event, ids shortened, with no control characters", () => {
    const { log, lines } = logged("info");
    const task = "01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e";
    log.warn(
      { task, name: "mail", pod: "p", token: 3, attempt: 2, error: "a\n\u001b[2Jb" },
      "no luck",
    );
    expect(lines).toEqual([
      "03:04:05 warn  no luck  task=…1d9a2b7e name=mail attempt=2 error=a [2Jb",
    ]);
  });

  test.each([
    ["debug", 4],
    ["info", 3],
    ["warn", 2],
    ["error", 1],
    ["silent", 0],
  ] as const)("at level %s holds %i of four", (level, count) => {
    const { log, lines } = logged(level);
    log.debug({}, "d");
    log.info({}, "i");
    log.warn({}, "w");
    log.error({}, "e");
    expect(lines).toHaveLength(count);
  });
});

function logged(level: LogLevel) {
  const lines: string[] = [];
  const log = prettyLogger({
    level,
    clock: { now: () => atMs },
    stream: new Writable(),
    write: (line) => lines.push(line),
  });
  return { log, lines };
}
