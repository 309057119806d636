import { expect, test } from "vitest";
import { movableClock } from "../../../base/contract/movable-clock.ts";
import type { Statement } from "../../../store/sql.ts";
import { createStoredIds } from "./stored-ids.ts";
import { createUnarchived } from "./unarchived.ts";

test("of sessions that have none are forgotten too, the oldest first", async () => {
  const asked: string[] = [];
  const database = {
    async read({ parts }: Statement) {
      asked.push(...parts.filter((each) => typeof each === "string"));
      return [];
    },
  };
  const unarchived = createUnarchived();
  const { prepare } = createStoredIds({ database, clock: movableClock() });
  for (let nth = 0; nth < 65_600; nth++) await prepare(`s${nth}`, unarchived);
  const before = asked.length;
  await prepare("s65599", unarchived);
  expect(asked.slice(before)).toEqual([]);
  await prepare("s0", unarchived);
  expect(asked.slice(before)).toEqual(["s0"]);
});
