import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, expect, test } from "vitest";
import { connect, type PodEvent, snooze, startPod, task, throttle } from "flotilla";
import { until } from "../src/base/contract/movable-clock.ts";
import { silentLogger } from "../src/base/log.ts";
import { temporaryFile } from "../src/store/contract/kinds.ts";

let place: ReturnType<typeof temporaryFile>;
beforeEach(() => {
  place = temporaryFile();
});
afterEach(() => place.remove());

type Ended = Extract<PodEvent, { type: "ended" }>["outcome"];

/** What a worker may store of an attempt: one more here is one more that has to be seen. */
const endings: Readonly<Record<Ended, string>> = {
  completed: "worker: stores completed",
  retry: "worker: stores retry",
  failed: "worker: stores failed",
  cancelled: "worker: stores cancelled",
  snoozed: "worker: stores snoozed",
  released: "worker: gives back what it can't end",
  lost: "worker: drops what another has",
};

/** Of everything that a pod tells, what is an edge of the two loops. Runs, turns and logs have their own. */
const edges: Readonly<Record<PodEvent["type"], string>> = {
  beat: "worker: beats",
  beat_failed: "worker: beats again after one that failed",
  claimed: "worker: claims",
  claim_failed: "worker: claims again after one that failed",
  ended: "worker: stores how it ended",
  share: "worker: gets its part of a throttle",
  leading: "leader: is known",
  refused: "elsewhere",
  recovered: "leader: gives tasks back",
  fired: "leader: fires schedules",
  bound: "leader: learns a throttle's bound",
  contended: "elsewhere",
  forged: "elsewhere",
  log_lost: "elsewhere",
  log_owned: "elsewhere",
  log_taken: "elsewhere",
  record: "elsewhere",
  record_fenced: "elsewhere",
  record_resent: "elsewhere",
  record_unknown: "elsewhere",
  resent: "elsewhere",
  run_begun: "elsewhere",
  run_ended: "elsewhere",
  run_set_aside: "elsewhere",
  store_error: "elsewhere",
  step: "elsewhere",
  tokens: "elsewhere",
  transition: "elsewhere",
  turn_ended: "elsewhere",
  turn_started: "elsewhere",
};

function edgeOf(event: PodEvent): string {
  if (event.type === "ended") return endings[event.outcome];
  if ("tasks" in event && event.tasks === 0) return "elsewhere";
  return edges[event.type];
}

test("every edge of a worker's loop and of the leader's is walked, from an enqueue to a redrive", async () => {
  const seen = new Set<string>();
  const reached = (edge: string) => until(edge, () => seen.has(edge));
  const onEvent = (event: PodEvent) => void seen.add(edgeOf(event));
  const other = new DatabaseSync(place.path, { timeout: 30_000 });
  const [orphan, old] = [
    "0f000000-0000-7000-8000-000000000001",
    "0f000000-0000-7000-8000-000000000002",
  ];

  const api = throttle("api");
  let mended = false;
  const held = new Map<string, PromiseWithResolvers<string>>();
  const work = task<{ bad?: boolean }>(
    "work",
    { attempts: 2, backoff: { baseMs: 1 } },
    ({ input }) => {
      if (input.bad && !mended) throw new Error("as ordered");
      return "done";
    },
  );
  const later = task("later", {}, ({ snoozes }) => {
    if (snoozes === 0) throw snooze(1);
    return "done";
  });
  const calls = task("calls", {}, () => api.run(async () => "done"));
  const holds = task("holds", {}, ({ taskId, signal }) => {
    const ending = Promise.withResolvers<string>();
    held.set(taskId, ending);
    signal.addEventListener("abort", () => ending.reject(signal.reason as Error));
    return ending.promise;
  });
  const running = (taskId: string) => until("it runs", () => held.has(taskId));
  const settings = {
    store: place.path,
    use: [work, later, calls, holds],
    log: silentLogger,
    heartbeatMs: 50,
    deadAfterMs: 1_000,
    pollMs: 50,
    shutdownMs: 100,
    graceMs: 100,
    // The shorter it is, the more often the leader looks.
    retentionMs: { cancelled: 60_000 },
  };

  await using flotilla = connect(place.path);
  const good = await flotilla.enqueue(work, {});
  await using pod = await startPod(settings, { onEvent });
  expect(await flotilla.waitFor(good)).toBe("done");
  expect(await flotilla.waitFor(await flotilla.enqueue(later, null))).toBe("done");
  await until("its lead", () => pod.leader === pod.podId);

  const bad = await flotilla.enqueue(work, { bad: true });
  expect((await flotilla.tasks.settled(bad.taskId)).status).toBe("failed");

  const unwanted = await flotilla.enqueue(holds, null);
  await running(unwanted.taskId);
  await flotilla.tasks.cancel(unwanted.taskId);
  expect((await flotilla.tasks.settled(unwanted.taskId)).status).toBe("cancelled");

  // Another pod has it by now, as after a pause that was too long.
  const taken = await flotilla.enqueue(holds, null);
  await running(taken.taskId);
  other.exec(`update flotilla_task
    set status = 'cancelled', claimed_by = null, claim_token = claim_token + 1
    where task_id = '${taken.taskId}'`);
  held.get(taken.taskId)!.resolve("too late");
  await reached(endings.lost);

  // A pod that claimed a task and was never heard of again: all that others can see of it.
  other.exec(`insert into flotilla_pod (pod_id) values ('ghost');
    insert into flotilla_task (task_id, name, payload, status, claimed_by, claim_token)
    values ('${orphan}', 'work', '{}', 'claimed', 'ghost', 1)`);
  await reached(edges.recovered);
  const isDown = async () =>
    (await flotilla.pods()).some(({ podId, status }) => podId === "ghost" && status === "down");
  await until("the leader marks the dead pod", isDown);
  expect(await flotilla.waitFor(orphan)).toBe("done");
  expect((await flotilla.tasks.get(orphan))!.deaths).toBe(1);

  // What it asks of the store is refused for a while.
  for (const [name, edge] of [
    ["pod", edges.beat_failed],
    ["task", edges.claim_failed],
  ]) {
    other.exec(`alter table flotilla_${name} rename to flotilla_hidden`);
    await reached(edge!);
    other.exec(`alter table flotilla_hidden rename to flotilla_${name}`);
  }
  expect(await flotilla.waitFor(await flotilla.enqueue(work, {}))).toBe("done");

  await pod.schedules.put("often", { name: "work", everyMs: 1_000, input: {} });
  await reached(edges.fired);
  await pod.schedules.remove("often");

  const asked = await flotilla.enqueueMany(
    calls,
    Array.from({ length: 20 }, () => null),
  );
  for (const each of asked) expect(await flotilla.waitFor(each)).toBe("done");
  await reached(edges.share);
  await until("a bound", async () => {
    await flotilla.waitFor(await flotilla.enqueue(calls, null));
    return seen.has(edges.bound);
  });

  const { groups } = await pod.deadLetters.groups();
  expect(groups).toMatchObject([{ name: "work", message: "as ordered", tasks: 1 }]);
  mended = true;
  const { redriveId } = await pod.deadLetters.redrive({ group: groups[0]!.group });
  expect(await pod.deadLetters.followRedrive(redriveId)).toMatchObject({ state: "done" });
  expect(await flotilla.waitFor(bad)).toBe("done");

  other.exec(`insert into flotilla_task (task_id, name, status, created_at, last_update)
    values ('${old}', 'work', 'cancelled', 0, 0)`);
  await until("the leader deletes what is old", async () => !(await flotilla.tasks.get(old)));

  const unfinished = await flotilla.enqueue(holds, null);
  await running(unfinished.taskId);
  await pod.stop();
  expect(await flotilla.tasks.get(unfinished.taskId)).toMatchObject({
    status: "pending",
    failures: 0,
  });
  other.close();

  seen.delete("elsewhere");
  const wanted = new Set([...Object.values(edges), ...Object.values(endings)]);
  wanted.delete("elsewhere");
  wanted.delete(edges.ended);
  expect(seen).toEqual(wanted);
}, 120_000);
