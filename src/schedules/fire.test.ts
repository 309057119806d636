import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { uuidv7 } from "../base/ids.ts";
import { type MovableClock, movableClock } from "../base/contract/movable-clock.ts";
import { seededRandom } from "../base/random.ts";
import type { Database } from "../store/database.ts";
import { migrate } from "../store/migrate.ts";
import { sql, table } from "../store/sql.ts";
import { memoryDatabase } from "../store/sqlite/inline.ts";
import { createSchedules, type Schedules } from "./schedules.ts";
import { createFiring, type Firing } from "./fire.ts";
import { schedule } from "./schedule.ts";

const secondMs = 1_000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;

describe("a leader's schedules", () => {
  let clock: MovableClock;
  /** How far the store's clock is from the pod's. */
  let offsetMs: number;
  let database: Database;
  let schedules: Schedules;
  let firings: Firing[];
  beforeEach(async () => {
    clock = movableClock(Date.parse("2026-03-01T10:00:00Z"));
    offsetMs = 0;
    database = memoryDatabase({ now: () => clock.now() + offsetMs });
    await migrate(database);
    schedules = createSchedules(parts());
    firings = [];
  });
  afterEach(async () => {
    for (const firing of firings) await firing.stop();
    await database.close();
  });

  const parts = () => {
    const random = seededRandom(1);
    return { database, clock, random, ids: uuidv7(clock, random) };
  };
  /** A pod whose heart beats once a second, and which does its passes then. */
  const start = (leads = () => true): Firing => {
    const firing = createFiring({ ...parts(), podId: "pod", everyMs: secondMs, leads });
    const beat = () => {
      clock.after(secondMs, beat);
      void firing.pass();
    };
    beat();
    firings.push(firing);
    return firing;
  };
  const stored = () => database.read(sql`select * from ${table("task")} order by task_id`);
  const times = async () =>
    (await stored()).map((row) => (row["unique_key"] as string).split("/")[2]!.slice(11, 19));

  test("are due by the store's clock, whatever the pod's clock shows", async () => {
    offsetMs = 30 * secondMs;
    await schedules.put(schedule("mail", { name: "mail", pattern: "* * * * *" }));
    start();
    await clock.advance(30 * secondMs - 1);
    expect(await stored()).toEqual([]);
    await clock.advance(2);
    expect(await times()).toEqual(["10:01:00"]);
  });

  test("come at their time and not only with the next beat", async () => {
    await clock.advance(300);
    start();
    await schedules.put(schedule("mail", { name: "mail", pattern: "*/10 * * * * *" }));
    await clock.advance(30 * secondMs);
    const lags = (await stored()).map((row) => Number(row["created_at"]) % secondMs);
    expect(lags).toEqual([0, 0, 0]);
  });

  test("aren't fired again when the store's clock is set back, and go on when it gets there", async () => {
    await schedules.put(schedule("mail", { name: "mail", pattern: "* * * * *", missed: "all" }));
    start();
    await clock.advance(2 * minuteMs);
    expect(await times()).toEqual(["10:01:00", "10:02:00"]);
    offsetMs = -5 * minuteMs;
    await clock.advance(5 * minuteMs);
    expect(await times()).toEqual(["10:01:00", "10:02:00"]);
    await clock.advance(minuteMs);
    expect(await times()).toEqual(["10:01:00", "10:02:00", "10:03:00"]);
  });

  test("catch up when the store's clock is set forward", async () => {
    await schedules.put(schedule("mail", { name: "mail", pattern: "0 * * * *", missed: "all" }));
    start();
    await clock.advance(secondMs);
    offsetMs = 3 * hourMs;
    await clock.advance(secondMs);
    expect(await times()).toEqual(["11:00:00", "12:00:00", "13:00:00"]);
  });

  test("are all fired when many are due at once", async () => {
    const many = 250;
    for (let at = 0; at < many; at++) {
      await schedules.put(schedule(`mail-${at}`, { name: "mail", pattern: "* * * * *" }));
    }
    start();
    await clock.advance(minuteMs + secondMs);
    const made = await stored();
    expect(new Set(made.map((row) => row["unique_key"])).size).toBe(many);
    expect(made).toHaveLength(many);
  });

  test("are left to the leader", async () => {
    await schedules.put(schedule("mail", { name: "mail", pattern: "* * * * * *" }));
    let leads = false;
    start(() => leads);
    await clock.advance(3 * secondMs);
    expect(await stored()).toEqual([]);
    leads = true;
    await clock.advance(secondMs);
    expect(await stored()).not.toEqual([]);
  });

  test("rest once it has stopped, with no timer left", async () => {
    await schedules.put(schedule("mail", { name: "mail", pattern: "* * * * *" }));
    const firing = createFiring({ ...parts(), podId: "pod", everyMs: minuteMs, leads: () => true });
    await firing.pass();
    expect(clock.timers).toBe(1);
    await firing.stop();
    expect(clock.timers).toBe(0);
    await clock.advance(2 * minuteMs);
    await firing.pass();
    expect(await stored()).toEqual([]);
  });

  test("that the store refuses keep no others from being fired", async () => {
    for (const id of ["a", "bad", "c"]) {
      await schedules.put(schedule(id, { name: id, pattern: "* * * * * *" }));
    }
    await database.write([
      sql`create trigger refuse before insert on ${table("task")} when new.name = 'bad'
        begin select raise(abort, 'refused'); end`,
    ]);
    start();
    await clock.advance(1_500);
    const names = new Set((await stored()).map((row) => row["name"]));
    expect(names).toEqual(new Set(["a", "c"]));
  });
});
