import { expect, test } from "vitest";
import { createFewAtOnce } from "./few-at-once.ts";

test("a caller with one thing to do waits for one of each other's, not for all", async () => {
  const { run } = createFewAtOnce(1);
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

test("what fails makes room for the next, however many wait", async () => {
  const few = createFewAtOnce(2);
  const all = Array.from({ length: 5_000 }, (_, n) =>
    few.run(() => Promise.reject(new Error(String(n)))).catch((error: Error) => error.message),
  );
  expect(few).toMatchObject({ underWay: 2, waiting: 4_998 });
  expect(await Promise.all(all)).toEqual(Array.from({ length: 5_000 }, (_, n) => String(n)));
  expect(few).toMatchObject({ underWay: 0, waiting: 0 });
});
