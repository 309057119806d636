import { existsSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { temporaryFile } from "../store/contract/kinds.ts";
import { connect } from "./connect.ts";

let place: ReturnType<typeof temporaryFile>;
beforeEach(() => {
  place = temporaryFile();
});
afterEach(() => place.remove());

describe("a connection", () => {
  test("opens its store with the first call, once for all that are made at the same time", async () => {
    await using flotilla = connect(place.path);
    expect(existsSync(place.path)).toBe(false);
    const enqueued = await Promise.all([1, 2, 3].map((input) => flotilla.enqueue("a", input)));
    expect(new Set(enqueued.map((each) => each.taskId)).size).toBe(3);
    expect((await flotilla.tasks.stats()).byStatus.pending).toBe(3);
    expect(await flotilla.pods()).toEqual([]);
  });

  test("tries again after an opening that failed", async () => {
    await using flotilla = connect(place.path, { create: false });
    await expect(flotilla.enqueue("a", 1)).rejects.toMatchObject({ code: "store_missing" });
    await using other = connect(place.path);
    await other.enqueue("a", 1);
    expect((await flotilla.tasks.stats()).byStatus.pending).toBe(1);
  });

  test("refuses every call after its close, also if it was never used", async () => {
    for (const used of [true, false]) {
      const flotilla = connect(place.path);
      if (used) await flotilla.enqueue("a", 1);
      await flotilla.close();
      await flotilla.close();
      await expect(flotilla.enqueue("a", 1)).rejects.toMatchObject({ code: "closed" });
      await expect(flotilla.tasks.stats()).rejects.toMatchObject({ code: "closed" });
    }
  });

  test("refuses options that it doesn't know, before it opens anything", () => {
    expect(() => connect(place.path, { durabilty: "full" } as object)).toThrow(
      "connect: unknown option `durabilty`, did you mean `durability`?",
    );
  });

  test.each([
    [{ durability: "ful" }, "durability must be one of full, relaxed"],
    [{ migrate: "never" }, "migrate must be one of auto, check"],
    [{ maxPayloadBytes: Number.NaN }, "maxPayloadBytes must be a whole number"],
  ])("refuses %j rather than take it for a weaker choice", (options, message) => {
    expect(() => connect(place.path, options as object)).toThrow(message);
  });
});
