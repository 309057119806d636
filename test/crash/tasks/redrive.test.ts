import { describe, expect, test } from "vitest";
import type { Redrive } from "../../../src/dead-letters/redrive.ts";
import { createFleet, type Fleet, storeKinds } from "../harness.ts";
import { startsIn } from "../ledger.ts";
import type { PodProcess } from "../pod-handle.ts";
import { until } from "../until.ts";

const tasks = 90;
const error = JSON.stringify({ code: "handler_failed", message: "no such user 7" });

describe.each(storeKinds)("on %s, a redrive", (on) => {
  test("skips and repeats no task when its leaders are killed and paused", async () => {
    const fleet = await createFleet({ on });
    for (let pod = 0; pod < 3; pod++) await fleet.start();
    await failedIn(fleet);
    const { redriveId } = await fleet.flotilla.deadLetters.redrive({ all: true }, { maxStep: 16 });

    await taken(fleet, redriveId, 3);
    await (await leaderOf(fleet)).kill();
    await fleet.start();
    await taken(fleet, redriveId, 15);
    // One that is paused leads still when it wakes up, and finds that another has gone on.
    const paused = await leaderOf(fleet);
    await paused.pauseOutsideWrites();
    await taken(fleet, redriveId, 47);
    paused.resume();
    await taken(fleet, redriveId, 60);
    await (await leaderOf(fleet)).kill();

    const ended = await until("it has ended", async () => {
      const redrive = await read(fleet, redriveId);
      return redrive.state === "running" ? undefined : redrive;
    });
    expect(ended).toMatchObject({
      state: "done",
      taken: tasks,
      succeeded: tasks,
      gone: 0,
      open: 0,
    });
    const events = await fleet.sql(
      `select task_id, count(*) as times from flotilla_task_event
       where type = 'redriven' group by task_id`,
    );
    expect(events).toHaveLength(tasks);
    expect(events.filter((each) => Number(each["times"]) !== 1)).toEqual([]);
    expect(new Set(startsIn(fleet.ledger()).map((each) => each.task)).size).toBe(tasks);

    const steps = await fleet.sql(
      `select redrive_step, count(*) as tasks from flotilla_task
       group by redrive_step order by redrive_step`,
    );
    const sizes = steps.map((each) => Number(each["tasks"]));
    expect(sizes.slice(0, 5)).toEqual([1, 2, 4, 8, 16]);
    expect(Math.max(...sizes)).toBe(16);
    expect((await fleet.flotilla.deadLetters.groups()).tasks).toBe(0);
  });
});

/** Stores tasks that have failed for a reason that is gone by now. */
async function failedIn(fleet: Fleet): Promise<void> {
  for (let task = 0; task < tasks; task++) {
    await fleet.sql(
      `insert into flotilla_task (task_id, name, payload, status, error)
       values (?, 'work', '{"ms":5}', 'failed', ?)`,
      `failed-${String(task).padStart(3, "0")}`,
      error,
    );
  }
}

async function read(fleet: Fleet, redriveId: string): Promise<Redrive> {
  return (await fleet.flotilla.deadLetters.getRedrive(redriveId))!;
}

async function taken(fleet: Fleet, redriveId: string, count: number): Promise<void> {
  await until(`${count} are taken`, async () => (await read(fleet, redriveId)).taken >= count);
}

/** The pod that the newest word of the others says is leading. */
async function leaderOf(fleet: Fleet): Promise<PodProcess> {
  return until("one leads", () => {
    const said = fleet.ledger().filter((entry) => entry.event === "leading");
    const leader = said.at(-1)?.leader;
    return fleet.pods.find((pod) => pod.alive && pod.podId === leader);
  });
}
