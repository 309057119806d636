import { describe, expect, test } from "vitest";
import { describeFlow } from "./describe.ts";
import { flow } from "./flow.ts";
import { order, plain } from "./contract/sample-flows.ts";

describe("a flow drawn in text", () => {
  test("has a line for each state, with how many runs are where", () => {
    const places = {
      start: { ready: 12 },
      reserve: { running: 2, retrying: 1 },
      cool: { waiting: 7 },
      release: { running: 1 },
      ship: {},
    };
    expect(describeFlow(order, { places, completed: 120, failed: 3, cancelled: 0 })).toBe(
      `
order, version 2

  ○  start                                            12 ready
  ├─ reserve   runs                                   2 running, 1 retrying
  ├─ cool      sleeps 5 s                             7 waiting
  ├─ approval  waits for a signal, fails after 1 min
  ├─ parcels   starts runs and waits for them
  ├─ ship      runs, 1 attempt
  ├╌ release   always, 2 attempts                     1 running
  ├╌ report    always
  ●  end                                              120 completed, 3 failed`.trim(),
    );
  });

  test("needs no counts", () => {
    expect(describeFlow(plain).split("\n").slice(2)).toEqual([
      "  ○  start",
      "  ├─ one    runs",
      "  ├─ two    runs",
      "  ●  end",
    ]);
  });

  test("shows where a part's options differ from the flow's", () => {
    const drawn = describeFlow(
      flow("f", { version: 7, queue: { name: "images", limit: 5 } })
        .to("fetch", { attempts: 3, timeoutMs: 90_000 }, () => {})
        .sleep("nap", ({ runId }) => runId.length)
        .signal("ever")
        .signal("vote", { timeoutMs: 86_400_000, onTimeout: { value: null } })
        .end(),
    );
    expect(drawn).toContain("f, version 7, in queue images");
    expect(drawn).toContain("├─ fetch  runs, 3 attempts, 90 s each");
    expect(drawn).toContain("├─ nap    sleeps\n");
    expect(drawn).toContain("├─ ever   waits for a signal\n");
    expect(drawn).toContain("├─ vote   waits for a signal, goes on after 1 d");
  });

  test("shows runs at names that it doesn't have", () => {
    const drawn = describeFlow(plain, { places: { gone: { setAside: 2 }, constructor: {} } });
    expect(drawn).toContain("At names that this version doesn't have:\n  gone: 2 set aside");
  });
});
