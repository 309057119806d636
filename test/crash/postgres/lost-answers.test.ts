import { expect, test } from "vitest";
import { judge } from "../tasks/checkers.ts";
import { startsIn } from "../ledger.ts";
import { until } from "../until.ts";
import { createScene } from "./harness.ts";

// A statement's text is sent when it is first prepared on a connection, and these are such firsts.
const isClaim = (sent: string) => sent.includes("set status = 'claimed'");
const isFinish = (sent: string) => sent.includes("done.task_id");
const isEnqueue = (sent: string) => /insert into \S+task/.test(sent);

test("a claim whose answer was lost after its commit is given back, and its task runs once", async () => {
  const { fleet, proxy, start } = await createScene();
  const { taskId } = await fleet.flotilla.enqueue("work", { ms: 0 });
  const lost = proxy.loseAnswer(isClaim);
  const pod = await start();
  await lost;

  expect(await fleet.flotilla.waitFor(taskId)).toMatchObject({ pod: pod.podId });
  const claims = (await fleet.transitions()).filter(({ to }) => to === "claimed");
  expect(claims.map(({ toPod }) => toPod)).toEqual([pod.podId, pod.podId]);
  expect(startsIn(fleet.ledger(), taskId)).toEqual([
    expect.objectContaining({ token: claims[1]!.toToken, attempt: 1 }),
  ]);
  expect(await judge(fleet)).toEqual([]);
});

test("a finish whose answer was lost after its commit counts, and its task runs once", async () => {
  const { fleet, proxy, start } = await createScene();
  const pod = await start({ names: ["held", "work"] });
  const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
  await until("it runs", () => startsIn(fleet.ledger(), taskId).length === 1);
  const lost = proxy.loseAnswer(isFinish);
  pod.open("door");
  await lost;

  expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: pod.podId, token: 1 });
  // The pod has learnt what became of it, and goes on.
  const { taskId: next } = await fleet.flotilla.enqueue("work", { ms: 0 });
  expect(await fleet.flotilla.waitFor(next)).toEqual({ pod: pod.podId, token: 1 });
  expect(startsIn(fleet.ledger(), taskId)).toHaveLength(1);
  const endings = fleet.ledger().filter(({ event }) => event === "ended");
  expect(endings).toEqual([]);
  expect(await judge(fleet)).toEqual([]);
});

test("an enqueue whose answer was lost after its commit makes one task, and returns it", async () => {
  const { fleet, proxy, producer } = await createScene();
  await producer.tasks.stats();
  const lost = proxy.loseAnswer(isEnqueue);
  const told = await producer.enqueue("work", { ms: 0 }, { key: "once" });
  await lost;

  expect(told.created).toBe(true);
  const rows = await fleet.sql("select task_id from flotilla_task");
  expect(rows).toEqual([{ task_id: told.taskId }]);
  expect(await producer.enqueue("work", { ms: 0 }, { key: "once" })).toEqual({
    taskId: told.taskId,
    created: false,
  });
});

test("a heartbeat whose connection went dead goes on over another before its pod is taken for dead", async () => {
  // At the timeouts that a store has by default, which are longer than any dead limit.
  const { fleet, proxy, start } = await createScene();
  const limits = { heartbeatMs: 400, deadAfterMs: 5_000 };
  const far = await start({ names: ["held"], config: limits });
  await fleet.start({ names: ["work"], config: limits });
  const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
  await until("it runs", () => startsIn(fleet.ledger(), taskId).length === 1);

  const beat = async () => {
    const pods = await fleet.flotilla.pods();
    return pods.find(({ podId }) => podId === far.podId)!.beat;
  };
  proxy.halfOpen();
  const before = await beat();
  await until("it beats again", async () => (await beat()) > before + 2);
  expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({ status: "claimed", deaths: 0 });
});
