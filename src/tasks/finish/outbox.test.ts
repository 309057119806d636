import { expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import type { Logger } from "../../base/log.ts";
import type { Finish } from "../sql/finish.ts";
import { completedFinish } from "./outcome.ts";
import { memoryDisk } from "../contract/memory-disk.ts";
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
  completedFinish({ taskId, token: 1 }, JSON.stringify(text));

test("what is stored within half a second is never written", async () => {
  const { outbox, clock, entries } = open();
  const finish = ending("a");
  outbox.watch(finish);
  await clock.advance(499);
  outbox.done(finish);
  await clock.advance(5_000);
  expect(entries.size).toBe(0);
});

test("what waits for a second is kept, and what comes later waits as long", async () => {
  const { outbox, clock, entries } = open();
  outbox.watch(ending("a"));
  await clock.advance(600);
  outbox.watch(ending("b"));
  await clock.advance(401);
  expect([...entries.values()].map(({ finish }) => finish.taskId)).toEqual(["a"]);
  await clock.advance(2_000);
  expect(entries.size).toBe(2);
});

test("a full disk is logged once, tried again, and then holds what was to be kept", async () => {
  const { outbox, clock, entries, fail, said } = open();
  fail(new Error("the disk is full"));
  const first = ending("a");
  outbox.watch(first);
  outbox.watch(ending("b"));
  outbox.storeFailed();
  await clock.advance(20_000);
  expect(said).toEqual(["outbox write failed, results kept in memory only"]);
  outbox.done(first);
  fail(undefined);
  await clock.advance(5_000);
  expect([...entries.values()].map(({ finish }) => finish.taskId)).toEqual(["b"]);
  expect(said.at(-1)).toBe("outbox writable again");
});

test("no more is kept than fits, and the rest when there is space", async () => {
  const { outbox, clock, entries, said } = open(1_000);
  const large = "x".repeat(500);
  const [first, second] = [ending("a", large), ending("b", large)];
  outbox.watch(first);
  outbox.watch(second);
  outbox.storeFailed();
  await clock.advance(10);
  expect(entries.size).toBe(1);
  expect(outbox.full).toBe(true);
  expect(said).toEqual(["outbox full, claiming paused until the store accepts results"]);
  outbox.done(first);
  await clock.advance(2_000);
  expect(outbox.full).toBe(false);
  expect([...entries.values()].map(({ finish }) => finish.taskId)).toEqual(["b"]);
  outbox.done(second);
  await clock.advance(10);
  expect(entries.size).toBe(0);
});

test("one that is larger than the outbox holds nothing up once it is stored", async () => {
  const { outbox, clock } = open(100);
  const finish = ending("a");
  outbox.watch(finish);
  outbox.storeFailed();
  await clock.advance(10);
  expect(outbox.full).toBe(true);
  outbox.done(finish);
  expect(outbox.full).toBe(false);
});

test("what is decided again takes the place of what was kept, and is dropped once it is stored", async () => {
  const { outbox, clock, entries } = open();
  const first = ending("a", "first");
  outbox.watch(first);
  outbox.storeFailed();
  await clock.advance(10);
  outbox.again(first);
  const second = ending("a", "second");
  outbox.watch(second);
  await clock.advance(10);
  expect([...entries.values()].map(({ finish }) => (finish as Finish).result)).toEqual([
    '"second"',
  ]);
  outbox.done(second);
  await clock.advance(5_000);
  expect(entries.size).toBe(0);
});
