import { expect, test } from "vitest";
import { judge } from "./checkers.ts";
import { createFleet, type Fleet, storeKinds } from "../harness.ts";
import { until } from "../until.ts";

const everyMs = 1_000;

test.each(storeKinds)(
  "on %s, each time of a schedule has one task though leaders are killed and paused",
  async (on) => {
    const fleet = await createFleet({ on });
    await fleet.flotilla.schedules.put("tick", {
      name: "work",
      everyMs,
      missed: "all",
      input: { ms: 0 },
    });
    const first = await fleet.start();
    const second = await fleet.start();
    await fleet.start();
    await firedMore(fleet, 1);

    await first.kill();
    await firedMore(fleet, 1);
    // By now the second leads; while it stands still the third does, and then it comes back.
    await second.pauseOutsideWrites();
    await firedMore(fleet, 2);
    second.resume();
    await firedMore(fleet, 2);

    await fleet.flotilla.schedules.pause("tick");
    const times = await timesIn(fleet);
    const expected = Array.from({ length: times.length }, (_, at) => times[0]! + at * everyMs);
    expect(times).toEqual(expected);
    const [row] = await fleet.sql("select next_at from flotilla_schedule");
    expect(row!["next_at"]).toBe(times.at(-1)! + everyMs);

    const open = "select 1 from flotilla_task where status in ('pending', 'claimed')";
    await until("all of them have run", async () => (await fleet.sql(open)).length === 0);
    expect(await judge(fleet)).toEqual([]);
  },
);

async function firedMore(fleet: Fleet, count: number): Promise<void> {
  const before = (await timesIn(fleet)).length;
  const fired = async () => (await timesIn(fleet)).length >= before + count;
  await until(`${count} more times are fired`, fired);
}

/** The times that have tasks, each as often as it has. */
async function timesIn(fleet: Fleet): Promise<number[]> {
  const rows = await fleet.sql("select unique_key from flotilla_task");
  const times = rows.map((row) => Date.parse((row["unique_key"] as string).split("/")[2]!));
  return times.toSorted((a, b) => a - b);
}
