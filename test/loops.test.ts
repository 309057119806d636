import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, expect, test } from "vitest";
import { connect, type Pod, type PodEvent, startPod, task } from "flotilla";
import { silentLogger } from "../src/base/log.ts";
import { temporaryFile } from "../src/store/kinds.contract.ts";
import { until } from "../src/base/movable-clock.contract.ts";

let place: ReturnType<typeof temporaryFile>;
beforeEach(() => {
  place = temporaryFile();
});
afterEach(() => place.remove());

/** What was seen, each edge once, in the order of its first time. */
function trace() {
  const seen: string[] = [];
  return {
    seen,
    note: (edge: string) => void (seen.includes(edge) || seen.push(edge)),
    async reached(edge: string) {
      await until(edge, () => seen.includes(edge));
    },
  };
}

function edgeOf(event: PodEvent): string | undefined {
  if (event.type === "beat") return "worker: beats";
  if (event.type === "claimed" && event.tasks > 0) return "worker: claims";
  if (event.type === "ended") return `worker: stores ${event.outcome}`;
  if (event.type === "leading") return "leader: is known";
  if (event.type === "recovered" && event.tasks > 0) return "leader: gives tasks back";
  return undefined;
}

test("every edge of a worker's loop and of the leader's is walked, from an enqueue to a redrive", async () => {
  const { seen, note, reached } = trace();
  let mended = false;
  const work = task<{ bad?: boolean }>(
    "work",
    { attempts: 2, backoff: { baseMs: 1 } },
    ({ input }) => {
      note("worker: executes");
      if (input.bad && !mended) throw new Error("as ordered");
      return "done";
    },
  );

  await using flotilla = connect(place.path);
  const good = await flotilla.enqueue(work, {});
  note("producer: enqueues");
  const pod: Pod = await startPod(
    { store: place.path, use: [work], log: silentLogger, heartbeatMs: 50, deadAfterMs: 1_000 },
    {
      onEvent: (event) => {
        const edge = edgeOf(event);
        if (edge) note(edge);
      },
    },
  );
  expect(await flotilla.waitFor(good)).toBe("done");

  const bad = await flotilla.enqueue(work, { bad: true });
  await flotilla.settled(bad.taskId);
  await reached("worker: stores failed");

  // A pod that claimed a task and was never heard of again: all that others can see of it.
  const orphan = "0f000000-0000-7000-8000-000000000001";
  const other = new DatabaseSync(place.path, { timeout: 30_000 });
  other.exec(`insert into flotilla_pod_health (pod_id) values ('ghost');
    insert into flotilla_step_tracker (task_id, name, payload, status, claimed_by, claim_token)
    values ('${orphan}', 'work', '{}', 'claimed', 'ghost', 1)`);
  other.close();
  await reached("leader: gives tasks back");
  await until("the leader's word", async () =>
    (await flotilla.pods()).some(({ podId, status }) => podId === "ghost" && status === "down"),
  );
  note("leader: marks the dead pod");
  expect(await flotilla.waitFor(orphan)).toBe("done");
  expect((await flotilla.get(orphan))!.deaths).toBe(1);
  note("worker: runs what was given back");

  const { groups } = await pod.deadLetters.groups();
  expect(groups).toMatchObject([{ name: "work", message: "as ordered", tasks: 1 }]);
  note("leader: shows dead letters");
  mended = true;
  const { redriveId } = await pod.deadLetters.redrive({ group: groups[0]!.group });
  expect(await pod.deadLetters.followRedrive(redriveId)).toMatchObject({ state: "done" });
  expect(await flotilla.waitFor(bad)).toBe("done");
  note("leader: starts them over");
  await pod.stop();

  expect(seen.toSorted()).toEqual(
    [
      "producer: enqueues",
      "worker: beats",
      "worker: claims",
      "worker: executes",
      "worker: stores completed",
      "worker: stores retry",
      "worker: stores failed",
      "worker: runs what was given back",
      "leader: is known",
      "leader: gives tasks back",
      "leader: marks the dead pod",
      "leader: shows dead letters",
      "leader: starts them over",
    ].toSorted(),
  );
});
