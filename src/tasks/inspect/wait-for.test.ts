import { describe, expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import type { Database, Row } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import { createWorkers } from "./blocked-by.ts";
import { createWaitFor } from "./wait-for.ts";

/** A store whose looks are answered by hand. */
function setUp() {
  const clock = movableClock();
  const looks: ((rows: Row[]) => void)[] = [];
  let shown: Row[] = [];
  const listeners = new Set<() => void>();
  const database = {
    read(statement: Statement) {
      const [text = ""] = statement.strings;
      // No id here is another name of a task.
      if (text.includes("alias_id")) return Promise.resolve([]);
      // Whole rows are read of what a look has shown to have ended.
      if (text.includes("select *")) return Promise.resolve(shown);
      return new Promise<Row[]>((resolve) =>
        looks.push((rows) => {
          shown = rows;
          resolve(rows);
        }),
      );
    },
    subscribe(listener: () => void) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  } as unknown as Database;
  const waiting = createWaitFor({ database, clock, workers: createWorkers({ database, clock }) });
  const hint = () => listeners.forEach((listener) => listener());
  return { clock, looks, listeners, waiting, hint };
}

const completed = (taskId: string): Row => ({ task_id: taskId, status: "completed", result: "1" });

describe("waiting for tasks", () => {
  test("reads again soon for a notification that came during a read", async () => {
    const { clock, looks, waiting, hint } = setUp();
    const result = waiting.result("a", {});
    await clock.advance(0);
    expect(looks).toHaveLength(1);
    hint();
    looks[0]!([]);
    await clock.advance(20);
    expect(looks).toHaveLength(2);
    looks[1]!([completed("a")]);
    expect(await result).toBe(1);
  });

  test("reads at once for a task that is waited for during the read of another", async () => {
    const { clock, looks, waiting } = setUp();
    void waiting.result("a", {}).catch(() => {});
    await clock.advance(0);
    const second = waiting.result("b", {});
    looks[0]!([]);
    await clock.advance(20);
    expect(looks).toHaveLength(2);
    looks[1]!([completed("b")]);
    expect(await second).toBe(1);
    waiting.close();
  });

  test("ends for a task that is deleted after it was seen", async () => {
    const { clock, looks, waiting } = setUp();
    const result = waiting.result("a", {}).catch((error: unknown) => error);
    await clock.advance(0);
    looks[0]!([{ task_id: "a", status: "pending" }]);
    await clock.advance(1_000);
    looks[1]!([]);
    expect(await result).toMatchObject({ code: "not_found" });
  });

  test("ends for a task that was there when the wait began and isn't when it is read", async () => {
    const { clock, looks, waiting } = setUp();
    const result = waiting.result("a", { seen: true }).catch((error: unknown) => error);
    await clock.advance(0);
    looks[0]!([]);
    expect(await result).toMatchObject({ code: "not_found" });
  });

  test("doesn't wait for ever for a task that never comes, as its transaction was undone", async () => {
    const { clock, looks, waiting } = setUp();
    let error: unknown;
    void waiting.result("a", {}).catch((thrown: unknown) => (error = thrown));
    for (let passedMs = 0; passedMs < 60_000; passedMs += 500) {
      expect(error).toBeUndefined();
      await clock.advance(500);
      looks.at(-1)!([]);
      await clock.advance(0);
    }
    await clock.advance(500);
    looks.at(-1)!([]);
    await clock.advance(0);
    expect(error).toMatchObject({ code: "not_found" });
  });

  test("reads once for all that are waited for, and folds notifications", async () => {
    const { clock, looks, waiting, hint } = setUp();
    const results = ["a", "b", "c"].map((taskId) => waiting.result(taskId, {}));
    await clock.advance(0);
    looks[0]!([]);
    await clock.advance(0);
    for (let count = 0; count < 100; count++) hint();
    await clock.advance(20);
    expect(looks).toHaveLength(2);
    looks[1]!(["a", "b", "c"].map(completed));
    expect(await Promise.all(results)).toEqual([1, 1, 1]);
  });

  test("polls where no notification comes, less and less often, also after a read that failed", async () => {
    const clock = movableClock();
    let looks = 0;
    const database = {
      read: async () => {
        if (++looks < 8) throw new Error("away");
        return [completed("a")];
      },
      subscribe: () => () => {},
    } as unknown as Database;
    const result = createWaitFor({
      database,
      clock,
      workers: createWorkers({ database, clock }),
    }).result("a", {});
    // At 0, 20, 60, 140, 300, 620 and then every 500 ms.
    for (const [passMs, expected] of [
      [60, 3],
      [80, 4],
      [480, 6],
      [499, 6],
      [1, 7],
    ] as const) {
      await clock.advance(passMs);
      expect(looks).toBe(expected);
    }
    await clock.advance(500);
    expect(await result).toBe(1);
  });

  test("leaves nothing behind when all is answered", async () => {
    const { clock, looks, listeners, waiting } = setUp();
    const result = waiting.result("a", { timeoutMs: 5_000 });
    await clock.advance(0);
    looks[0]!([completed("a")]);
    await result;
    await clock.advance(0);
    expect(listeners.size).toBe(0);
    expect(clock.timers).toBe(0);
  });
});
