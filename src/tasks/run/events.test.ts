import { expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { silentLogger } from "../../base/log.ts";
import { createAttemptReports } from "./events.ts";
import type { Claim } from "../rows.ts";
import { startAttempt } from "./attempt.ts";
import { task } from "../task.ts";

test.each([
  [true, "dependency did not complete"],
  [false, "attempt failed"],
])(
  "the log distinguishes what waited in vain (%s) from what was tried",
  (dependencyFailed, said) => {
    const told: string[] = [];
    const log = { ...silentLogger, warn: (_: object, message: string) => void told.push(message) };
    const report = createAttemptReports({
      podId: "pod",
      clock: systemClock,
      log,
      onEvent: () => {},
    });
    const claim = {
      taskId: "t",
      name: "a",
      failures: 0,
      token: 1,
      dependencyFailed,
      trace: null,
    } as Claim;
    const error = JSON.stringify({ code: "dependency_failed", message: "task p has failed" });
    const finish = { status: "failed", error, counted: 0 };
    const run = startAttempt(
      claim,
      task("a", {}, () => null),
      0,
    );
    report.ended(run, { finish, finished: { type: "stored" } } as never);
    expect(told).toEqual([said]);
  },
);
