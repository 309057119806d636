import { expect, test } from "vitest";
import { FlotillaError, tooManyReads } from "./errors.ts";
import { createSemaphore } from "./semaphore.ts";
import { movableClock, eventLoopTurns } from "./contract/movable-clock.ts";

const waits = { clock: movableClock(), waitMs: 1_000, late: tooManyReads };

function harness(atOnce: number) {
  const clock = movableClock();
  const line = createSemaphore(atOnce, { clock, waitMs: 1_000, late: tooManyReads });
  const begun: string[] = [];
  const told: string[] = [];
  const ends = new Map<string, () => void>();
  const ask = (name: string) =>
    void line
      .run(() => {
        begun.push(name);
        return new Promise<void>((resolve) => ends.set(name, resolve));
      })
      .then(
        () => told.push(name),
        (error: FlotillaError) => told.push(`${name} ${error.code}`),
      );
  const end = async (name: string) => {
    ends.get(name)!();
    await eventLoopTurns();
  };
  return { clock, line, begun, told, ask, end };
}

test("does so much at once, and the rest in the order of the calls", async () => {
  const { clock, line, begun, told, ask, end } = harness(2);
  for (const name of ["a", "b", "c", "d"]) ask(name);
  expect([begun, line.underWay, line.waiting]).toEqual([["a", "b"], 2, 2]);
  await end("b");
  await end("a");
  expect(begun).toEqual(["a", "b", "c", "d"]);
  await end("c");
  await end("d");
  expect([told, line.underWay, clock.timers]).toEqual([["b", "a", "c", "d"], 0, 0]);
});

test("what waits for longer than it may is refused, and takes no place", async () => {
  const { clock, line, begun, told, ask, end } = harness(1);
  for (const name of ["a", "b"]) ask(name);
  await clock.advance(600);
  ask("c");
  await clock.advance(400);
  expect([told, line.waiting]).toEqual([["b store_busy"], 1]);
  await end("a");
  expect(begun).toEqual(["a", "c"]);
  await clock.advance(5_000);
  await end("c");
  expect([told, line.underWay]).toEqual([["b store_busy", "a", "c"], 0]);
});

test("all that wait can be refused at once, and what is under way goes on", async () => {
  const { clock, line, begun, told, ask, end } = harness(1);
  for (const name of ["a", "b", "c"]) ask(name);
  line.refuse(new FlotillaError("closed", "closed"));
  await eventLoopTurns();
  expect([told, clock.timers]).toEqual([["b closed", "c closed"], 0]);
  ask("d");
  await end("a");
  expect(begun).toEqual(["a", "d"]);
});

test("a caller with one thing to do waits for one of each other's, not for all", async () => {
  const { run } = createSemaphore(1, waits);
  const order: string[] = [];
  const act = (line: string, name: string) => run(async () => void order.push(name), line);
  let release = () => {};
  const first = run(() => new Promise<void>((resolve) => (release = resolve)));
  const all = [first];
  for (let n = 0; n < 4; n++) all.push(act("eve", `eve ${n}`));
  all.push(act("ada", "ada"), act("bob", "bob 0"), act("bob", "bob 1"));
  release();
  await Promise.all(all);
  expect(order).toEqual(["eve 0", "ada", "bob 0", "eve 1", "bob 1", "eve 2", "eve 3"]);
});

test("what fails frees its slot for the next, however many wait", async () => {
  const few = createSemaphore(2, waits);
  const all = Array.from({ length: 5_000 }, (_, n) =>
    few.run(() => Promise.reject(new Error(String(n)))).catch((error: Error) => error.message),
  );
  expect(few).toMatchObject({ underWay: 2, waiting: 4_998 });
  expect(await Promise.all(all)).toEqual(Array.from({ length: 5_000 }, (_, n) => String(n)));
  expect(few).toMatchObject({ underWay: 0, waiting: 0 });
});
