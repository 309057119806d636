import { expect, test } from "vitest";
import { eventLoopTurns, movableClock } from "../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { silentLogger } from "../../base/log.ts";
import { systemRandom } from "../../base/random.ts";
import { memoryKind } from "../../store/contract/kinds.ts";
import type { Database } from "../../store/database.ts";
import { sql } from "../../store/sql.ts";
import { createLateStore, joinLate } from "./late-store.ts";

const away = () => new FlotillaError("store_unavailable", "nothing listens there");
const one = sql`select 1 as one`;

/** A store that is away until `opens` says otherwise, and what a pod does with it. */
async function late() {
  const { database: opened } = await memoryKind.open();
  const clock = movableClock();
  const done: string[] = [];
  const warned: string[] = [];
  let opens: () => Promise<Database> = () => Promise.reject(away());
  let check = (): Promise<void> => Promise.resolve();
  let closed = 0;
  const counted = { ...opened, close: async () => void closed++ };
  const store = createLateStore(
    {
      open: () => opens(),
      check: () => check(),
      known: { within: opened.within },
      clock,
      random: systemRandom,
      log: { ...silentLogger, warn: (fields: object) => warned.push(JSON.stringify(fields)) },
    },
    away(),
  );
  const seen = () => store.database.read(one).then(() => "answers", codeOf);
  const seenEarly = () => store.early.read(one).then(() => "answers", codeOf);
  return {
    store,
    clock,
    done,
    warned,
    seen,
    seenEarly,
    open: () => (opens = async () => counted),
    opensWith: (next: () => Promise<Database>) => (opens = next),
    checksWith: (next: () => Promise<void>) => (check = next),
    closed: () => closed,
    counted,
    end: () => opened.close(),
  };
}

const codeOf = (error: FlotillaError) => error.code;

test("nothing reaches it before it was checked, then only what lets the pod in, then everything", async () => {
  const t = await late();
  const checked = Promise.withResolvers<void>();
  const listed = Promise.withResolvers<void>();
  const others = Promise.withResolvers<void>();
  t.checksWith(() => checked.promise);
  const joining = joinLate(t.store, new AbortController().signal, {
    list: () => (t.done.push("list"), listed.promise),
    checkOthers: () => (t.done.push("others"), others.promise),
    begin: () => void t.done.push("begin"),
    rest: [async () => t.done.push("rest")],
  });
  await expect(t.store.database.write([one])).rejects.toMatchObject({
    code: "store_unavailable",
    retryAfterMs: 1_000,
    message: "the database has been away since this pod started: nothing listens there",
  });
  expect(await t.seenEarly()).toBe("store_unavailable");
  t.open();
  await t.clock.advance(10_000);
  expect([await t.seen(), await t.seenEarly()]).toEqual(["store_unavailable", "answers"]);
  expect(t.done).toEqual([]);
  checked.resolve();
  await eventLoopTurns();
  expect([await t.seen(), t.done]).toEqual(["store_unavailable", ["list"]]);
  listed.resolve();
  await eventLoopTurns();
  expect([await t.seen(), t.done]).toEqual(["store_unavailable", ["list", "others"]]);
  others.resolve();
  await joining;
  expect([await t.seen(), t.done]).toEqual(["answers", ["list", "others", "begin", "rest"]]);
  await t.store.database.close();
  expect([t.closed(), await t.seen()]).toEqual([1, "closed"]);
  await t.end();
});

test("what is definite refuses every call by name; what may pass is tried again, and each reason told once", async () => {
  const t = await late();
  const steps = { list: async () => {}, checkOthers: async () => {}, begin() {}, rest: [] };
  const joining = joinLate(t.store, new AbortController().signal, steps);
  t.opensWith(() => Promise.reject(new FlotillaError("store_read_only", "it is a standby")));
  await t.clock.advance(60_000);
  expect(t.warned).toEqual(['{"error":"it is a standby"}']);
  t.checksWith(() => Promise.reject(new FlotillaError("store_newer", "update flotilla")));
  t.open();
  await t.clock.advance(10_000);
  await joining;
  expect(await t.store.whenRefused).toMatchObject({ code: "store_newer" });
  expect(await t.seen()).toBe("store_newer");
  // The pod takes itself out of the table where it was in it.
  expect(await t.seenEarly()).toBe("answers");
  await t.store.database.close();
  expect([t.closed(), t.clock.timers]).toEqual([1, 0]);
  await t.end();
});

test("one that is opened after the pod has left is closed again, and lets nothing in", async () => {
  const t = await late();
  const opening = Promise.withResolvers<Database>();
  t.opensWith(() => opening.promise);
  await t.clock.advance(10_000);
  const joining = joinLate(t.store, new AbortController().signal, {
    list: async () => void t.done.push("list"),
    checkOthers: async () => {},
    begin() {},
    rest: [],
  });
  t.store.leave();
  await joining;
  await t.store.database.close();
  expect(t.closed()).toBe(0);
  opening.resolve(t.counted);
  await eventLoopTurns();
  expect([t.closed(), t.done, await t.seen(), t.clock.timers]).toEqual([1, [], "closed", 0]);
  await t.end();
});

test("a pod that leaves while it is looked at isn't let in", async () => {
  const t = await late();
  const others = Promise.withResolvers<void>();
  t.open();
  const joining = joinLate(t.store, new AbortController().signal, {
    list: async () => {},
    checkOthers: () => (t.done.push("others"), others.promise),
    begin: () => void t.done.push("begin"),
    rest: [],
  });
  await t.clock.advance(10_000);
  expect(t.done).toEqual(["others"]);
  t.store.leave();
  others.resolve();
  await joining;
  expect([t.done, await t.seen()]).toEqual([["others"], "store_unavailable"]);
  await t.store.database.close();
  await t.end();
});
