import { expect, test } from "vitest";
import { movableClock } from "../../base/movable-clock.contract.ts";
import type { Logger } from "../../base/log.ts";
import { completion } from "../settle.ts";
import { memoryDisk } from "./memory-disk.contract.ts";
import { createOutbox } from "./outbox.ts";

function open(maxBytes = 1_000_000) {
  const clock = movableClock();
  const memory = memoryDisk();
  const said: string[] = [];
  const say = (_: object, message: string) => void said.push(message);
  const log: Logger = { debug: say, info: say, warn: say, error: say };
  const { disk } = memory;
  return {
    ...memory,
    clock,
    said,
    outbox: createOutbox({ disk, podId: "p", clock, maxBytes, log }),
  };
}
const ending = (taskId: string, text = "done") =>
  completion({ taskId, token: 1 }, JSON.stringify(text));

test("what is stored within a second is never written", async () => {
  const { outbox, clock, entries } = open();
  const watched = outbox.watch(ending("a"));
  await clock.advance(999);
  watched.done();
  await clock.advance(5_000);
  expect(entries.size).toBe(0);
});

test("what waits for a second is kept, and what comes later has its own second", async () => {
  const { outbox, clock, entries } = open();
  outbox.watch(ending("a"));
  await clock.advance(600);
  outbox.watch(ending("b"));
  await clock.advance(401);
  expect([...entries.values()].map(({ finish }) => finish.taskId)).toEqual(["a"]);
  await clock.advance(2_000);
  expect(entries.size).toBe(2);
});

test("a disk that is full is said once, tried again, and then holds what was to be kept", async () => {
  const { outbox, clock, entries, fail, said } = open();
  fail(new Error("the disk is full"));
  const first = outbox.watch(ending("a"));
  outbox.watch(ending("b"));
  outbox.trouble();
  await clock.advance(20_000);
  expect(said).toEqual(["results that the store can't take now are kept in memory only"]);
  first.done();
  fail(undefined);
  await clock.advance(5_000);
  expect([...entries.values()].map(({ finish }) => finish.taskId)).toEqual(["b"]);
  expect(said.at(-1)).toBe("the outbox can be written again");
});

test("no more is kept than fits, and the rest when there is room", async () => {
  const { outbox, clock, entries, said } = open(1_000);
  const large = "x".repeat(500);
  const first = outbox.watch(ending("a", large));
  const second = outbox.watch(ending("b", large));
  outbox.trouble();
  await clock.advance(10);
  expect(entries.size).toBe(1);
  expect(outbox.full).toBe(true);
  expect(said).toEqual(["the outbox is full: nothing is claimed until the store takes results"]);
  first.done();
  await clock.advance(2_000);
  expect(outbox.full).toBe(false);
  expect([...entries.values()].map(({ finish }) => finish.taskId)).toEqual(["b"]);
  second.done();
  await clock.advance(10);
  expect(entries.size).toBe(0);
});

test("one that is larger than the outbox holds nothing up once it is stored", async () => {
  const { outbox, clock } = open(100);
  const watched = outbox.watch(ending("a"));
  outbox.trouble();
  await clock.advance(10);
  expect(outbox.full).toBe(true);
  watched.done();
  expect(outbox.full).toBe(false);
});
