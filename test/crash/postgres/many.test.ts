import { expect, test } from "vitest";
import { judge, recoveriesIn } from "../tasks/checkers.ts";
import { createFleet } from "../harness.ts";
import { startsIn } from "../ledger.ts";
import { until } from "../until.ts";
import { openTasks } from "./harness.ts";

// With so many processes on few cores a beat may be late, and no pod is to be taken for dead here.
const patient = { heartbeatMs: 500, deadAfterMs: 20_000 };

test("sixteen processes claim ten thousand tasks, and no task is claimed twice", async () => {
  const fleet = await createFleet({ on: "postgres" });
  const count = 10_000;
  const slots = { slots: 50, target: 1 };
  // A few at a time, because on few cores all at once take too long to start.
  for (let started = 0; started < 16; started += 4) {
    const four = Array.from({ length: 4 }, () => fleet.start({ config: { ...patient, ...slots } }));
    await Promise.all(four);
  }
  // All of them are there before the first task is, so that they all want the same rows.
  await fleet.flotilla.enqueueMany(
    "work",
    Array.from({ length: count }, () => ({ ms: 0 })),
  );
  await until("all have ended", async () => (await openTasks(fleet)) === 0);

  const starts = startsIn(fleet.ledger());
  expect(starts).toHaveLength(count);
  expect(new Set(starts.map(({ task }) => task)).size).toBe(count);
  // On a busy machine one of them may come too late for any.
  expect(new Set(starts.map(({ pod }) => pod)).size).toBeGreaterThan(8);
  // What a pod has claimed ahead and can't begin soon it gives back.
  const transitions = await fleet.transitions();
  const claims = transitions.filter(({ to }) => to === "claimed");
  const releases = transitions.filter(({ to }) => to === "pending");
  expect(claims).toHaveLength(count + releases.length);
  expect(await judge(fleet, patient)).toEqual([]);
});

test("a faster pod gets more than a slower one", async () => {
  const fleet = await createFleet({ on: "postgres" });
  const wide = await fleet.start({ config: { ...patient, slots: 8, target: 1 } });
  const narrow = await fleet.start({ config: { ...patient, slots: 1, target: 1 } });
  const count = 480;
  await fleet.flotilla.enqueueMany(
    "work",
    Array.from({ length: count }, () => ({ ms: 50 })),
  );
  await until("all have ended", async () => (await openTasks(fleet)) === 0);

  const starts = startsIn(fleet.ledger());
  const on = (podId: string) => starts.filter(({ pod }) => pod === podId).length;
  expect(on(wide.podId) + on(narrow.podId)).toBe(count);
  expect(on(narrow.podId)).toBeGreaterThan(0);
  // It could do eight times as much; half of that is left to a busy machine. While one of them stands still
  // nothing is compared.
  const between: number[] = [];
  for (const { pod } of starts) {
    if (pod === narrow.podId) between.push(0);
    else if (between.length > 0) between.push(between.pop()! + 1);
  }
  const whileBoth = between.filter((each) => each > 0).toSorted((a, b) => a - b);
  expect(whileBoth.length).toBeGreaterThan(10);
  const median = whileBoth[Math.floor(whileBoth.length / 2)];
  expect(median).toBeGreaterThan(4);
  expect(await judge(fleet, patient)).toEqual([]);
});

test("a task ten times as long as the dead limit runs once, on the pod that lives", async () => {
  const fleet = await createFleet({ on: "postgres" });
  // A machine may let it wait for a second or two.
  const limits = { heartbeatMs: 200, deadAfterMs: 3_000 };
  const first = await fleet.start({ config: limits });
  const { taskId } = await fleet.flotilla.enqueue("work", { ms: 10 * limits.deadAfterMs });
  await until("it runs", () => startsIn(fleet.ledger(), taskId).length === 1);
  // A pod is there that would claim it.
  await fleet.start({ config: limits });

  expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: first.podId, token: 1 });
  expect(startsIn(fleet.ledger(), taskId)).toHaveLength(1);
  expect(recoveriesIn(await fleet.transitions())).toEqual([]);
  expect(await judge(fleet, limits)).toEqual([]);
});
