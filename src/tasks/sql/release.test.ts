import { expect, test } from "vitest";
import { movableClock } from "../../testing/clock.ts";
import { testStore } from "../../testing/store.ts";
import { beat } from "../../pods/sql.ts";
import { sql, table } from "../../store/sql.ts";
import { claimTasks, releaseCall } from "./claim.ts";

test("a released claim can't land, though its pod was pruned and an older beat brings it back", async () => {
  const database = await testStore(movableClock(0));
  await database.write([sql`insert into ${table("task")} (name) values ('mail')`]);
  const call = (number: number) =>
    claimTasks({ podId: "a", call: number, names: ["mail"], limit: 1 });

  // The beat was sent before the fifth call was given up, and lands after its release.
  const older = beat("a", "{}", 4);
  await database.write(releaseCall("a", 5));
  await database.write([older]);

  expect(await database.write([call(5)])).toEqual([[]]);
  expect((await database.write([call(6)]))[0]).toHaveLength(1);
});
