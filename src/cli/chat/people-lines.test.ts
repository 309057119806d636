import { expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { createPeopleLines } from "./people-lines.ts";

const person = (user: string, typing = false) => ({ user, typing });

test("who is there is said when it changes, and nothing of one who is alone", () => {
  const lines = createPeopleLines(movableClock());
  expect(lines.take([person("ada")])).toEqual([]);
  expect(lines.take([person("eve"), person("ada")])).toEqual(["(here: ada, eve)"]);
  expect(lines.take([person("ada"), person("eve")])).toEqual([]);
  expect(lines.take([person("ada")])).toEqual(["(here: ada)"]);
  expect(lines.take([])).toEqual([]);
});

test("who writes is said once, and every ten seconds at most", async () => {
  const clock = movableClock();
  const lines = createPeopleLines(clock);
  lines.take([person("ada"), person("eve")]);
  const eves = [person("ada"), person("eve", true)];
  expect(lines.take(eves)).toEqual(["(eve writing…)"]);
  expect(lines.take(eves)).toEqual([]);
  lines.take([person("ada"), person("eve")]);
  expect(lines.take(eves)).toEqual([]);
  lines.take([person("ada"), person("eve")]);
  await clock.advance(10_000);
  expect(lines.take(eves)).toEqual(["(eve writing…)"]);
});

test("names are few, short and plain, whatever users are called", () => {
  const lines = createPeopleLines(movableClock());
  const many = Array.from({ length: 30 }, (_, at) => person(`user-${at + 10}`));
  expect(lines.take(many)).toEqual([
    "(here: user-10, user-11, user-12, user-13, user-14 and 25 more)",
  ]);
  const [line] = lines.take([person("ada"), person(`\u001b[2J${"x".repeat(5_000)}`)]);
  expect(line).not.toContain("\u001b");
  expect(line!.length).toBeLessThan(80);
});
