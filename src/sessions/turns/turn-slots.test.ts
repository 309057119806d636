import { describe, expect, test } from "vitest";
import { movableClock, eventLoopTurns } from "../../base/contract/movable-clock.ts";
import { createTurnSlots, type Suspect } from "./runner.ts";

const aloneMs = 2_000;

function harness(most: number) {
  const clock = movableClock();
  const gate = createTurnSlots(most, clock);
  const begun: string[] = [];
  const over: string[] = [];
  const ends = new Map<string, () => void>();
  const never = new AbortController().signal;
  /** What work waits for between its place and its beginning, and at the end of its time alone. */
  const started: { wait?: PromiseWithResolvers<void> } = {};
  const ending: { wait?: PromiseWithResolvers<void> } = {};
  const ask = (tenant: string, name: string, signal = never, suspect?: Suspect) =>
    gate.run({ tenant, signal, suspect }, async (isBegun) => {
      begun.push(name);
      await started.wait?.promise;
      isBegun();
      return new Promise<void>((resolve) => ends.set(name, resolve));
    });
  const askSuspect = (name: string, signal = never) =>
    ask("t", name, signal, {
      aloneMs,
      async onOver() {
        await ending.wait?.promise;
        over.push(name);
      },
    });
  const end = async (name: string) => {
    await eventLoopTurns();
    ends.get(name)!();
    await eventLoopTurns();
  };
  return { gate, clock, begun, over, started, ending, ask, askSuspect, end };
}

describe("a pool of turn slots", () => {
  test("lets so many in at once, and the next when one has ended, well or not", async () => {
    const { gate, begun, ask, end } = harness(2);
    for (const name of ["a", "b", "c", "d"]) void ask("t", name);
    expect([begun, gate.waiting]).toEqual([["a", "b"], 2]);
    await end("b");
    expect([begun, gate.waiting]).toEqual([["a", "b", "c"], 1]);
    await end("a");
    await end("c");
    await end("d");
    const failing = gate.run({ tenant: "t", signal: new AbortController().signal }, () =>
      Promise.reject(new Error("broken")),
    );
    await expect(failing).rejects.toThrow("broken");
    for (const name of ["e", "f", "g"]) void ask("t", name);
    expect(begun.slice(4)).toEqual(["e", "f"]);
  });

  test("serves tenants in turns, and each in the order of the calls", async () => {
    const { begun, ask, end } = harness(1);
    for (const name of ["a1", "a2", "a3"]) void ask("a", name);
    for (const name of ["b1", "b2"]) void ask("b", name);
    void ask("c", "c1");
    for (let at = 0; at < 5; at++) await end(begun.at(-1)!);
    expect(begun).toEqual(["a1", "a2", "b1", "c1", "a3", "b2"]);
  });

  test("keeps no turn that has to end, and gives no place away by it", async () => {
    const { gate, begun, ask, end } = harness(1);
    const control = new AbortController();
    void ask("t", "a");
    void ask("t", "stopped", control.signal);
    void ask("t", "b");
    control.abort();
    await eventLoopTurns();
    expect([begun, gate.waiting]).toEqual([["a", "stopped"], 1]);
    await end("stopped");
    expect(begun).toEqual(["a", "stopped"]);
    await end("a");
    expect(begun).toEqual(["a", "stopped", "b"]);
  });

  test("lets a suspect in when nothing else has begun for a while, and nothing beside it for as long", async () => {
    const { gate, clock, begun, over, ask, askSuspect, end } = harness(10);
    for (const name of ["a", "b"]) void ask("t", name);
    for (const name of ["suspect 1", "suspect 2"]) void askSuspect(name);
    void ask("t", "c");
    expect([begun, gate.waiting]).toEqual([["a", "b"], 3]);
    await end("a");
    await clock.advance(aloneMs - 1);
    expect([begun.length, gate.hasSuspect]).toEqual([2, false]);
    await clock.advance(1);
    expect([begun.slice(2), gate.hasSuspect]).toEqual([["suspect 1"], true]);
    void ask("other", "d");
    await clock.advance(aloneMs - 1);
    expect([begun.length, over]).toEqual([3, []]);
    await clock.advance(1);
    // Those that came meanwhile go before the next.
    expect([begun.slice(3), over]).toEqual([["c", "d"], ["suspect 1"]]);
    void ask("t", "e");
    await clock.advance(aloneMs);
    expect(begun.slice(5)).toEqual(["suspect 2"]);
    await end("suspect 2");
    expect([begun.slice(6), over, gate.hasSuspect]).toEqual([["e"], ["suspect 1"], false]);
    for (const name of ["suspect 1", "b", "c", "d", "e"]) await end(name);
    expect([gate.waiting, clock.timers]).toEqual([0, 0]);
  });

  test("lets a suspect in at once where nothing is under way", async () => {
    const { begun, ask, askSuspect, end } = harness(10);
    void ask("t", "long");
    void askSuspect("suspect");
    await end("long");
    expect(begun).toEqual(["long", "suspect"]);
  });

  test("keeps suspects waiting for each other no longer than they are alone, however long they take", async () => {
    const { clock, begun, askSuspect } = harness(1_000);
    for (let n = 0; n < 100; n++) void askSuspect(`suspect ${n}`);
    await clock.advance(99 * aloneMs);
    expect(begun).toHaveLength(100);
  });

  test("counts a suspect's time from when it has really begun", async () => {
    const { clock, begun, over, ask, askSuspect, started } = harness(10);
    started.wait = Promise.withResolvers<void>();
    void askSuspect("suspect");
    void ask("t", "a");
    await clock.advance(10 * aloneMs);
    expect([begun, over]).toEqual([["suspect"], []]);
    started.wait.resolve();
    await clock.advance(aloneMs);
    expect([begun, over]).toEqual([["suspect", "a"], ["suspect"]]);
  });

  test("lets nothing in beside a suspect before it is known that its time is over", async () => {
    const { gate, clock, begun, ask, askSuspect, ending } = harness(10);
    ending.wait = Promise.withResolvers<void>();
    for (const name of ["suspect 1", "suspect 2"]) void askSuspect(name);
    void ask("t", "a");
    await clock.advance(10 * aloneMs);
    expect([begun, gate.hasSuspect]).toEqual([["suspect 1"], true]);
    ending.wait.resolve();
    await eventLoopTurns();
    expect([begun, gate.hasSuspect]).toEqual([["suspect 1", "a"], false]);
  });

  test("opens again where a suspect ends before that is known, and not once more for the next", async () => {
    const { gate, clock, begun, askSuspect, ending, end } = harness(10);
    ending.wait = Promise.withResolvers<void>();
    for (const name of ["suspect 1", "suspect 2", "suspect 3"]) void askSuspect(name);
    await clock.advance(aloneMs);
    await end("suspect 1");
    expect(begun).toEqual(["suspect 1", "suspect 2"]);
    ending.wait.resolve();
    await eventLoopTurns();
    expect([begun.length, gate.hasSuspect]).toEqual([2, true]);
    await clock.advance(aloneMs);
    expect(begun).toEqual(["suspect 1", "suspect 2", "suspect 3"]);
  });

  test("lets suspects in only where a slot is free", async () => {
    const { clock, begun, ask, askSuspect, end } = harness(1);
    void ask("t", "a");
    void askSuspect("suspect");
    void ask("t", "b");
    await clock.advance(aloneMs);
    expect(begun).toEqual(["a"]);
    await end("a");
    expect(begun).toEqual(["a", "suspect"]);
    await clock.advance(aloneMs);
    await end("suspect");
    expect(begun).toEqual(["a", "suspect", "b"]);
  });

  test("opens again where a suspect is wanted no more", async () => {
    const { clock, begun, ask, askSuspect } = harness(10);
    const control = new AbortController();
    void ask("t", "a");
    void askSuspect("suspect", control.signal);
    void ask("t", "b");
    expect(begun).toEqual(["a"]);
    control.abort();
    await eventLoopTurns();
    expect([begun, clock.timers]).toEqual([["a", "suspect", "b"], 0]);
  });
});
