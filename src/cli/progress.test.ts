import { expect, test } from "vitest";
import { movableClock } from "../base/contract/movable-clock.ts";
import { bar, barOf, plural, startProgressBar } from "./progress.ts";

function shown(isTTY: boolean) {
  const clock = movableClock();
  let text = "";
  const stream = { isTTY, columns: 80, rows: 24, write: (more: string) => void (text += more) };
  return { clock, progress: startProgressBar({ stream, clock }), text: () => text };
}

const up = "\u001b[1A\u001b[J";

test("a terminal gets a line that is redrawn in place and taken away", async () => {
  const { clock, progress, text } = shown(true);
  progress.show("one");
  // Not more often than an eye can follow.
  progress.show("two");
  await clock.advance(100);
  progress.show("three");
  progress.print("odd");
  progress.end();
  expect(text()).toBe(`one\n${up}three\n${up}odd\nthree\n${up}`);
});

test("anything else gets a plain line now and then", async () => {
  const { clock, progress, text } = shown(false);
  progress.show("one");
  await clock.advance(5_000);
  progress.show("two");
  progress.show("three");
  progress.print("odd");
  progress.end();
  expect(text()).toBe("two\nodd\n");
});

test("numbers are written for people", () => {
  expect(bar(1_500, 3_000)).toBe(`${"█".repeat(15)}${"░".repeat(15)}  50 % 1,500 of 3,000`);
  expect(bar(0, 0)).toContain("100 %");
  expect(barOf(2)).toBe(`${"█".repeat(30)} 100 %`);
  expect([plural(1, "row"), plural(1_000, "row")]).toEqual(["1 row", "1,000 rows"]);
});
