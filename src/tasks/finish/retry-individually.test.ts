import { expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import { retryIndividually } from "./finish-writer.ts";

/** A store in which some rows are locked: a write to one waits a second and is refused. */
function heldRows(held: Set<string>) {
  const clock = movableClock();
  const stop = new AbortController();
  let waiting = 0;
  let most = 0;
  const send = async (row: string): Promise<string> => {
    if (!held.has(row)) return `stored ${row}`;
    most = Math.max(most, ++waiting);
    await new Promise<void>((resolve) => void clock.after(1_000, resolve));
    waiting--;
    throw new FlotillaError("store_busy", `${row} is held`);
  };
  const store = retryIndividually({ clock, random: seededRandom(1), signal: stop.signal }, send);
  const outcomes: string[] = [];
  const begin = (row: string) =>
    void store(row).then(
      (said) => outcomes.push(said),
      (error: FlotillaError) => outcomes.push(error.code),
    );
  return { clock, stop, begin, outcomes, most: () => most };
}

const six = ["a", "b", "c", "d", "e", "f"];

test("only two wait for rows that others hold, however many there are", async () => {
  const { clock, begin, most } = heldRows(new Set(six));
  for (const row of six) begin(row);
  await clock.advance(20_000);
  expect(most()).toBe(2);
});

test("one that isn't locked comes before those that have waited already", async () => {
  const { clock, begin, outcomes } = heldRows(new Set(six));
  for (const row of six) begin(row);
  await clock.advance(10_500);
  begin("free");
  await clock.advance(1_000);
  expect(outcomes).toEqual(["stored free"]);
});

test("each is stored once its row is free", async () => {
  const held = new Set(six);
  const { clock, begin, outcomes } = heldRows(held);
  for (const row of six) begin(row);
  await clock.advance(10_000);
  held.clear();
  await clock.advance(10_000);
  expect(outcomes.toSorted()).toEqual(six.map((row) => `stored ${row}`));
});

test("nothing waits on when the pod ends", async () => {
  const { clock, stop, begin, outcomes } = heldRows(new Set(["a"]));
  begin("a");
  await clock.advance(500);
  stop.abort();
  await clock.advance(1_000);
  expect(outcomes).toEqual(["store_busy"]);
});
