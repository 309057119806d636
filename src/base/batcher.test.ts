import process from "node:process";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { batcher, callbackBatcher } from "./batcher.ts";
import { FlotillaError } from "./errors.ts";
import { eventLoopTurns } from "./contract/movable-clock.ts";

/** A store whose answers wait until they are let go. */
function heldSend() {
  const sent: number[][] = [];
  const letGo: (() => void)[] = [];
  const send = (items: number[]) => {
    sent.push(items);
    return new Promise<number[]>((resolve) =>
      letGo.push(() => resolve(items.map((item) => item * 10))),
    );
  };
  return { sent, letGo, send };
}

const numbers = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, at) => from + at);

describe("a batch", () => {
  test("holds what arrived in one go, without waiting", async () => {
    const { sent, letGo, send } = heldSend();
    const put = batcher(send);
    const results = Promise.all([put(1), put(2), put(3)]);
    await eventLoopTurns();
    expect(sent).toEqual([[1, 2, 3]]);
    letGo[0]!();
    expect(await results).toEqual([10, 20, 30]);
  });

  test("holds what arrived while the others were under way, and no more than two are", async () => {
    const { sent, letGo, send } = heldSend();
    const put = batcher(send);
    const results = [put(1)];
    await eventLoopTurns();
    results.push(put(2));
    await eventLoopTurns();
    results.push(put(3), put(4));
    await eventLoopTurns();
    expect(sent).toEqual([[1], [2]]);
    letGo[1]!();
    await eventLoopTurns();
    expect(sent).toEqual([[1], [2], [3, 4]]);
    letGo[0]!();
    letGo[2]!();
    expect(await Promise.all(results)).toEqual([10, 20, 30, 40]);
  });

  test("is never larger than the limit, and keeps the order of arrival", async () => {
    const { sent, letGo, send } = heldSend();
    const put = batcher(send, { maxItems: 4, inFlight: 1 });
    const results = numbers(1, 10).map(put);
    for (let batch = 0; batch < 3; batch++) {
      await eventLoopTurns();
      expect(sent).toHaveLength(batch + 1);
      letGo[batch]!();
    }
    expect(await Promise.all(results)).toEqual(numbers(1, 10).map((item) => item * 10));
    expect(sent).toEqual([
      [1, 2, 3, 4],
      [5, 6, 7, 8],
      [9, 10],
    ]);
  });
});

describe("a batch that is refused", () => {
  test("is split so that only the guilty parts fail, whichever they are", async () => {
    const items = fc.uniqueArray(fc.nat(200), { minLength: 1, maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(items, fc.integer({ min: 2, max: 7 }), async (given, divisor) => {
        const stored: number[] = [];
        const put = batcher(async (batch: number[]) => {
          if (batch.some((item) => item % divisor === 0)) throw new Error("refused");
          stored.push(...batch);
          return batch;
        });
        const outcomes = await Promise.allSettled(given.map(put));
        outcomes.forEach((outcome, at) => {
          const guilty = given[at]! % divisor === 0;
          expect(outcome.status).toBe(guilty ? "rejected" : "fulfilled");
        });
        expect(stored).toEqual(given.filter((item) => item % divisor !== 0));
      }),
    );
  });

  test("costs few sends when one part of 512 is at fault", async () => {
    let sends = 0;
    const put = batcher(
      async (batch: number[]) => {
        sends++;
        if (batch.includes(300)) throw new Error("refused");
        return batch;
      },
      { maxItems: 512 },
    );
    await Promise.allSettled(numbers(1, 512).map(put));
    expect(sends).toBeLessThanOrEqual(1 + 2 * 9);
  });

  test.each(["unknown_outcome", "store_busy", "closed"] as const)(
    "because of %s isn't split, since halves would fare no better",
    async (code) => {
      let sends = 0;
      const put = batcher(async (): Promise<number[]> => {
        sends++;
        throw new FlotillaError(code, "the store");
      });
      const outcomes = await Promise.allSettled(numbers(1, 8).map(put));
      expect(sends).toBe(1);
      expect(outcomes.map((outcome) => outcome.status)).toEqual(
        numbers(1, 8).map(() => "rejected"),
      );
    },
  );

  test("doesn't stop what comes after it", async () => {
    let refuse = true;
    const put = batcher(async (batch: number[]) => {
      if (refuse) throw new Error("refused");
      return batch;
    });
    await expect(put(1)).rejects.toThrow("refused");
    refuse = false;
    expect(await put(2)).toBe(2);
  });
});

describe("a callback", () => {
  test("that throws keeps no other from being called, and isn't taken for a refusal", async () => {
    // No caller handles such a bug, so it surfaces as an unhandled rejection.
    const others = process.listeners("unhandledRejection");
    process.removeAllListeners("unhandledRejection");
    const unhandled = new Promise((resolve) => process.once("unhandledRejection", resolve));
    const { sent, letGo, send } = heldSend();
    const put = callbackBatcher(send);
    const told: number[] = [];
    const refused: unknown[] = [];
    put(
      1,
      () => {
        throw new Error("a bug");
      },
      (error) => refused.push(error),
    );
    put(
      2,
      (result) => told.push(result),
      (error) => refused.push(error),
    );
    await eventLoopTurns();
    letGo[0]!();
    expect(await unhandled).toMatchObject({ message: "a bug" });
    for (const other of others) process.on("unhandledRejection", other);
    expect({ sent, told, refused }).toEqual({ sent: [[1, 2]], told: [20], refused: [] });
  });
});
