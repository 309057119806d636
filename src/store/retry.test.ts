import { describe, expect, test } from "vitest";
import { type ErrorCode, FlotillaError, transientCodes } from "../base/errors.ts";
import { movableClock } from "../base/contract/movable-clock.ts";
import type { Database, StoreEvent } from "./database.ts";
import { sql } from "./sql.ts";
import { callUntilAnswered, sendUntilKnown, untilKnown, writeUntilKnown } from "./retry.ts";

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

  test("gives up after its limit with the last error", async () => {
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

/** A call that fails with these codes, and then answers. */
function failing(codes: readonly ErrorCode[]) {
  let calls = 0;
  const seen: boolean[] = [];
  const call = async (repeated = false) => {
    seen.push(repeated);
    const code = codes[calls++];
    if (code) throw new FlotillaError(code, code);
    return "done";
  };
  return {
    call,
    seen,
    get calls() {
      return calls;
    },
  };
}

describe("a send whose outcome was unknown once", () => {
  test("is repeated after refusals that would else end it, and is known to be a repetition", async () => {
    const clock = movableClock();
    const { call, seen } = failing(["unknown_outcome", "store_busy"]);
    const sent = sendUntilKnown(call, { clock, random, codes: ["unknown_outcome"] });
    await clock.advance(1_000);
    expect(await sent).toBe("done");
    expect(seen).toEqual([false, true, true]);
  });

  test("ends as unknown, not with what refused it later", async () => {
    const clock = movableClock();
    const { call } = failing(["unknown_outcome", "conflict"]);
    const refusal = sendUntilKnown(call, { clock, random }).catch((error: unknown) => error);
    await clock.advance(1_000);
    expect(await refusal).toMatchObject({ code: "unknown_outcome" });
  });

  test("is what the caller decides by", async () => {
    const clock = movableClock();
    const { call } = failing(["unknown_outcome", "conflict", "internal"]);
    const mayRetry = (_: unknown, isUnknown: boolean) => isUnknown;
    const sent = sendUntilKnown(call, { clock, random, mayRetry });
    await clock.advance(1_000);
    expect(await sent).toBe("done");
    await expect(
      sendUntilKnown(failing(["store_busy"]).call, { clock, random, mayRetry }),
    ).rejects.toMatchObject({ code: "store_busy" });
  });
});

describe("calling until there is an answer", () => {
  test("repeats what is transient, and waits by `waitMs`", async () => {
    const clock = movableClock();
    const failures: unknown[] = [];
    const flaky = failing(["store_unavailable", "store_unavailable"]);
    const answer = callUntilAnswered(flaky.call, {
      clock,
      random,
      waitMs: (tries) => tries * 10,
      onFailed: ({ tries, waitMs }) => failures.push([tries, waitMs]),
    });
    await clock.advance(10);
    expect(flaky.calls).toBe(2);
    await clock.advance(19);
    expect(flaky.calls).toBe(2);
    await clock.advance(1);
    expect(await answer).toBe("done");
    expect(failures).toEqual([
      [1, 10],
      [2, 20],
    ]);
  });

  test("ends with the last refusal, also after an unknown outcome", async () => {
    const clock = movableClock();
    const refusal = callUntilAnswered(failing(["unknown_outcome", "conflict"]).call, {
      clock,
      random,
    }).catch((error: unknown) => error);
    await clock.advance(1_000);
    expect(await refusal).toMatchObject({ code: "conflict" });
  });

  test("has a limit that may change on the way", async () => {
    const clock = movableClock();
    let limitMs = 60_000;
    const flaky = failing(Array.from({ length: 1_000 }, () => "store_busy" as const));
    const refusal = callUntilAnswered(flaky.call, {
      clock,
      random,
      limitMs: () => limitMs,
    }).catch((error: unknown) => error);
    await clock.advance(1_000);
    limitMs = 500;
    await clock.advance(5_000);
    expect(await refusal).toMatchObject({ code: "store_busy" });
  });
});
