import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import type { Database } from "../database.ts";
import { temporaryFile } from "../contract/kinds.ts";
import { openStore } from "../open.ts";
import { sql, table } from "../sql.ts";
import { createCommitNotifications } from "./notifications.ts";

const insert = sql`insert into ${table("task")} (name) values ('hinted')`;

let place: ReturnType<typeof temporaryFile>;
let ours: Database;
let theirs: Database;
beforeEach(async () => {
  place = temporaryFile();
  ours = await openStore(place.path);
  theirs = await openStore(place.path);
});
afterEach(async () => {
  await ours.close();
  await theirs.close();
  await place.remove();
});

describe("notifications of a SQLite file", () => {
  test("distinguish our own commits from those of others, for every listener alike", async () => {
    const told: (string | undefined)[][] = [[], []];
    for (const each of told) ours.subscribe((whose) => each.push(whose));
    // The first notification can't know what came before it.
    await ours.write([insert]);
    await until("the first hint", () => told.every((each) => each.length > 0));
    for (let round = 0; round < 5; round++) {
      for (const [writer, whose] of [
        [ours, "own"],
        [theirs, undefined],
      ] as const) {
        const before = told.map((each) => each.length);
        // A commit of ours that the thread sees together with another's is reported as another's.
        await until(`a hint of ${whose ?? "another's"} commit`, async () => {
          await writer.write([insert]);
          await until("a hint", () => told.every((each, at) => each.length > before[at]!));
          return told.every((each, at) => each.slice(before[at]).includes(whose));
        });
      }
    }
    expect(told[1]).toEqual(told[0]);
  });

  test("are never `own` for what another commits while we do", async () => {
    let others = 0;
    ours.subscribe((whose) => {
      if (whose !== "own") others++;
    });
    for (let round = 0; round < 20; round++) {
      const before = others;
      const busy = [1, 2, 3].map(() => ours.write([insert]));
      await theirs.write([insert]);
      await Promise.all(busy);
      // A notification may be lost, and then the next one reports it.
      await until("a hint of the other's commits", async () => {
        if (others > before) return true;
        await theirs.write([insert]);
        return false;
      });
    }
    expect(others).toBeGreaterThanOrEqual(20);
  });
});

test("a file is left alone while our write is under way, but not for long", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  try {
    const { around, holdMs } = createCommitNotifications();
    const { promise, resolve } = Promise.withResolvers<void>();
    expect(holdMs()).toBe(-Infinity);
    const written = around(promise);
    vi.advanceTimersByTime(19);
    expect(holdMs()).toBe(1);
    // The write may wait for another process, whose commits are then found by looking.
    vi.advanceTimersByTime(1);
    expect(holdMs()).toBe(0);
    resolve();
    await written;
    expect(holdMs()).toBe(3);
    vi.advanceTimersByTime(3);
    expect(holdMs()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});
