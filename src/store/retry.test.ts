import { describe, expect, test } from "vitest";
import { type ErrorCode, FlotillaError, transientCodes } from "../base/errors.ts";
import { movableClock } from "../base/contract/movable-clock.ts";
import type { Database, StoreEvent } from "./database.ts";
import { sql } from "./sql.ts";
import { writeUntilKnown, untilKnown } from "./retry.ts";

const statements = [sql`select 1`];
const random = { uint32: () => 0 };

/** A store that refuses a number of times before it answers. */
function shaky(refusals: readonly ErrorCode[]) {
  const sent: unknown[] = [];
  const database = {
    async write(given: unknown) {
      const code = refusals[sent.length];
      sent.push(given);
      if (code) throw new FlotillaError(code, code);
      return [[{ ok: 1 }]];
    },
  } as unknown as Database;
  return { database, sent };
}

describe("sending until the outcome is known", () => {
  test("gives a first answer as it is", async () => {
    const { database } = shaky([]);
    const answer = await writeUntilKnown(database, statements, { clock: movableClock(), random });
    expect(answer).toEqual({ tables: [[{ ok: 1 }]], repeated: false });
  });

  test("reports every wait", async () => {
    const clock = movableClock();
    const { database } = shaky(["store_busy", "unknown_outcome"]);
    const told: StoreEvent[] = [];
    const answer = writeUntilKnown(
      { ...database, report: (event) => told.push(event) },
      statements,
      {
        clock,
        random,
      },
    );
    await clock.advance(60_000);
    await answer;
    expect(told).toEqual([
      { type: "resent", waitMs: 100 },
      { type: "resent", waitMs: 200 },
    ]);
  });

  test.each([...transientCodes])(
    "sends the very same again after %s, with waits that grow",
    async (code) => {
      const clock = movableClock();
      const { database, sent } = shaky([code, code, code]);
      const answer = writeUntilKnown(database, statements, { clock, random });
      await clock.advance(99);
      expect(sent).toHaveLength(1);
      await clock.advance(1);
      expect(sent).toHaveLength(2);
      await clock.advance(199);
      expect(sent).toHaveLength(2);
      await clock.advance(1_000);
      // What was refused wasn't stored, so that only a send whose outcome is unknown may be repeated.
      expect(await answer).toMatchObject({ repeated: code === "unknown_outcome" });
      expect(sent).toHaveLength(4);
      for (const each of sent) expect(each).toBe(statements);
    },
  );

  test("gives up at once on what won't pass", async () => {
    const { database, sent } = shaky(["internal"]);
    const answer = writeUntilKnown(database, statements, { clock: movableClock(), random });
    await expect(answer).rejects.toMatchObject({ code: "internal" });
    expect(sent).toHaveLength(1);
  });

  test("gives up after its limit with the last trouble", async () => {
    const clock = movableClock();
    const { database, sent } = shaky(Array.from({ length: 1_000 }, () => "store_busy" as const));
    const answer = writeUntilKnown(database, statements, { clock, random, limitMs: 2_000 });
    const refusal = answer.catch((error: unknown) => error);
    await clock.advance(10_000);
    expect(await refusal).toMatchObject({ code: "store_busy" });
    expect(sent.length).toBeGreaterThan(3);
    expect(sent.length).toBeLessThan(10);
  });

  test("for callers that wait, sends again only what isn't known", async () => {
    const clock = movableClock();
    const busy = writeUntilKnown(shaky(["store_busy"]).database, statements, {
      clock,
      random,
      ...untilKnown,
    });
    await expect(busy).rejects.toMatchObject({ code: "store_busy" });
    const unknown = writeUntilKnown(shaky(["unknown_outcome"]).database, statements, {
      clock,
      random,
      ...untilKnown,
    });
    await clock.advance(1_000);
    expect(await unknown).toMatchObject({ repeated: true });
  });

  test("ends when its signal fires, also in the middle of a wait", async () => {
    const clock = movableClock();
    const stop = new AbortController();
    const { database, sent } = shaky(["store_busy", "store_busy"]);
    const answer = writeUntilKnown(database, statements, { clock, random, signal: stop.signal });
    const refusal = answer.catch((error: unknown) => error);
    await clock.advance(10);
    stop.abort();
    expect(await refusal).toBeInstanceOf(FlotillaError);
    expect(sent).toHaveLength(1);
    expect(clock.timers).toBe(0);
  });
});
