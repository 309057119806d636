import { describe, expect, test } from "vitest";
import {
  createHubHarness,
  joinAs,
  type HubHarness,
  settled,
} from "../contract/delivery-harness.ts";

/** A session whose question is being answered. */
async function asked(scene: HubHarness, turn: { runner: string }): Promise<void> {
  await scene.commit("s", { say: 1 });
  await scene.commit("s", { turn });
}

describe.each([
  ["where it is made", "runner"],
  ["at another pod", "gateway"],
])("a client that joins %s", (_, gateway) => {
  test("during an answer gets it so far, then the rest, without a gap", async () => {
    const scene = await createHubHarness();
    await asked(scene, { runner: "runner" });
    const runner = scene.runner("runner");
    runner.produce(scene.header("s"), 5);
    const client = joinAs(scene.hub(gateway), "s");
    await client.joined.ready;
    expect(client.events.map(({ type }) => type)).toEqual(["joined", "entries", "chunks"]);
    expect(client.events[0]).toMatchObject({ state: { state: "catching_up", epoch: 1 } });
    expect(client.events[2]).toMatchObject({ index: 0, nextIndex: 5 });
    runner.produce(scene.header("s"), 2);
    runner.produce(scene.header("s"), 1);
    await settled();
    expect(client.events.at(-1)).toMatchObject({ type: "chunks", index: 7 });
    expect(client.answer).toMatchObject({ next: 8, text: runner.text("s") });
    expect(client.failed).toBeUndefined();
    await scene.close();
  });

  test("before a turn sees all of it, and its end", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub(gateway), "s");
    await client.joined.ready;
    await scene.commit("s", { say: 1, turn: { runner: "runner" } });
    await settled();
    scene.runner("runner").produce(scene.header("s"), 3);
    scene.runner("runner").produce(scene.header("s"), 3);
    await settled();
    expect(client.answer).toMatchObject({ next: 6, text: scene.runner("runner").text("s") });
    const last = scene.header("s");
    await scene.commit("s", { turn: null });
    await settled();
    // What the runner still says of a turn that has ended isn't shown.
    scene.runner("runner").produce(last, 2);
    await settled();
    const types = client.events.map(({ type }) => type);
    expect(types.slice(-2)).toEqual(["entries", "state"]);
    expect(client.state).toBe(JSON.stringify({ state: "idle" }));
    expect(client.failed).toBeUndefined();
    await scene.close();
  });

  test("sees a higher attempt begin anew, and nothing more of a lower one", async () => {
    const scene = await createHubHarness();
    await asked(scene, { runner: "runner" });
    const first = scene.header("s");
    scene.runner("runner").produce(first, 3);
    const client = joinAs(scene.hub(gateway), "s");
    await client.joined.ready;
    await scene.commit("s", { turn: { attempt: 2, runner: "second" } });
    await settled();
    scene.runner("second").produce(scene.header("s"), 2);
    scene.runner("runner").produce(first, 4);
    await settled();
    expect(client.answer).toMatchObject({ epoch: 1, attempt: 2, next: 2 });
    expect(client.answer.text).toBe(scene.runner("second").text("s"));
    expect(client.failed).toBeUndefined();
    await scene.close();
  });

  test("isn't shown an answer before its question", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub(gateway), "s");
    await client.joined.ready;
    const committed = await scene.store("s", { say: 1, turn: { runner: "runner" } });
    scene.runner("runner").produce(scene.header("s"), 3);
    await settled();
    expect(client.seqs).toEqual([1]);
    expect(client.answer.next).toBe(0);
    scene.hub("owner").committed([committed]);
    await settled();
    expect(client.events.slice(-3).map(({ type }) => type)).toEqual(["entries", "state", "chunks"]);
    expect(client.answer).toMatchObject({ next: 3, text: scene.runner("runner").text("s") });
    expect(client.failed).toBeUndefined();
    await scene.close();
  });
});

describe("an answer so far", () => {
  test("may hold more than was published, which isn't sent twice", async () => {
    const scene = await createHubHarness();
    await asked(scene, { runner: "runner" });
    const runner = scene.runner("runner");
    runner.produce(scene.header("s"), 2);
    runner.prepare(scene.header("s"), 2);
    const early = joinAs(scene.hub("runner"), "s");
    await early.joined.ready;
    expect(early.answer.next).toBe(4);
    runner.prepare(scene.header("s"), 1);
    runner.flush();
    expect(early.answer).toMatchObject({ next: 5, text: runner.text("s") });
    expect(early.failed).toBeUndefined();
    await scene.close();
  });

  test("isn't shown while an earlier entry is still being read", async () => {
    let losing = false;
    const scene = await createHubHarness({
      carry: ({ text }, arrive) =>
        losing && text.includes("session.committed") ? "lost" : queueMicrotask(arrive),
    });
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("gateway"), "s");
    await client.joined.ready;
    losing = true;
    await scene.commit("s", { say: 1 });
    await settled();
    losing = false;
    scene.gate = Promise.withResolvers();
    await scene.commit("s", { say: 1, turn: { runner: "gateway" } });
    await settled();
    scene.runner("gateway").produce(scene.header("s"), 2);
    expect(client.events.map(({ type }) => type)).toEqual(["joined", "entries"]);
    scene.gate.resolve();
    await settled();
    expect(client.seqs).toEqual([1, 2, 3]);
    expect(client.events.slice(-2).map(({ type }) => type)).toEqual(["state", "chunks"]);
    expect(client.failed).toBeUndefined();
    await scene.close();
  });

  test("is followed by what came while it was on its way", async () => {
    let isLate = false;
    const scene = await createHubHarness({
      carry({ from, to }, arrive) {
        // The next envelope on the same way brings it along.
        if (isLate && from === "runner" && to === "gateway") isLate = false;
        else queueMicrotask(arrive);
      },
    });
    await asked(scene, { runner: "runner" });
    const runner = scene.runner("runner");
    runner.produce(scene.header("s"), 2);
    isLate = true;
    const client = joinAs(scene.hub("gateway"), "s");
    await settled();
    expect([isLate, client.answer.next]).toEqual([false, 0]);
    runner.produce(scene.header("s"), 2);
    await settled();
    expect(client.answer).toMatchObject({ next: 4, text: runner.text("s") });
    expect(client.events.filter(({ type }) => type === "chunks")).toHaveLength(2);
    await scene.close();
  });
});

describe("an answer that is made elsewhere", () => {
  test("is requested again where an envelope of it is lost", async () => {
    let losing = false;
    const scene = await createHubHarness({
      carry: ({ text }, arrive) =>
        losing && text.includes("session.chunks") ? "lost" : queueMicrotask(arrive),
    });
    await asked(scene, { runner: "runner" });
    const client = joinAs(scene.hub("gateway"), "s");
    await client.joined.ready;
    const runner = scene.runner("runner");
    runner.produce(scene.header("s"), 2);
    await settled();
    losing = true;
    runner.produce(scene.header("s"), 2);
    await settled();
    losing = false;
    // The next envelope shows the gap.
    runner.produce(scene.header("s"), 2);
    await settled();
    expect(client.answer).toMatchObject({ next: 6, text: runner.text("s") });
    // Where none comes, the next second does.
    losing = true;
    runner.produce(scene.header("s"), 2);
    await settled();
    losing = false;
    expect(client.answer.next).toBe(6);
    await scene.clock.advance(1_000);
    await settled();
    expect(client.answer).toMatchObject({ next: 8, text: runner.text("s") });
    expect(client.failed).toBeUndefined();
    await scene.close();
  });

  test("is no longer sent to silent processes", async () => {
    let letters = 0;
    const scene = await createHubHarness({
      carry({ text }, arrive) {
        if (text.includes("session.chunks")) letters++;
        queueMicrotask(arrive);
      },
    });
    await asked(scene, { runner: "runner" });
    const client = joinAs(scene.hub("gateway"), "s");
    await client.joined.ready;
    await scene.clock.advance(20_000);
    scene.runner("runner").produce(scene.header("s"), 1);
    await settled();
    expect(letters).toBe(1);
    expect(client.answer.next).toBe(1);
    client.joined.leave();
    await scene.clock.advance(10_000);
    scene.runner("runner").produce(scene.header("s"), 1);
    await settled();
    expect(letters).toBe(1);
    expect(scene.clock.timers).toBe(0);
    await scene.close();
  });
});
