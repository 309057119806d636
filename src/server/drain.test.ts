import { expect, test } from "vitest";
import { createDrain } from "./drain.ts";

test("a caller goes on when little waits, and not before", async () => {
  let isDrained = true;
  const drain = createDrain(() => isDrained);
  await drain.drained();

  isDrained = false;
  const log: string[] = [];
  const waits = [1, 2].map((each) => drain.drained().then(() => log.push(`went on ${each}`)));
  drain.check();
  await Promise.resolve();
  expect(log).toEqual([]);

  isDrained = true;
  drain.check();
  await Promise.all(waits);
  expect(log).toEqual(["went on 1", "went on 2"]);
});
