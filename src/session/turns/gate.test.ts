import { describe, expect, test } from "vitest";
import { movableClock, turns } from "../../base/movable-clock.contract.ts";
import { closedMs, createGate } from "./gate.ts";

function scene(most: number) {
  const clock = movableClock();
  const gate = createGate(most, clock);
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const never = new AbortController().signal;
  const ask = (tenant: string, name: string, signal = never, alone = false) =>
    gate.within({ tenant, signal, alone }, () => {
      begun.push(name);
      return new Promise<void>((resolve) => ends.set(name, resolve));
    });
  const askAlone = (name: string, signal = never) => ask("t", name, signal, true);
  const end = async (name: string) => {
    ends.get(name)!();
    await turns();
  };
  return { gate, clock, begun, ask, askAlone, end };
}

describe("a gate", () => {
  test("lets so many in at once, and the next when one has ended, well or not", async () => {
    const { gate, begun, ask, end } = scene(2);
    for (const name of ["a", "b", "c", "d"]) void ask("t", name);
    expect([begun, gate.waiting]).toEqual([["a", "b"], 2]);
    await end("b");
    expect([begun, gate.waiting]).toEqual([["a", "b", "c"], 1]);
    await end("a");
    await end("c");
    await end("d");
    const failing = gate.within({ tenant: "t", signal: new AbortController().signal }, () =>
      Promise.reject(new Error("broken")),
    );
    await expect(failing).rejects.toThrow("broken");
    for (const name of ["e", "f", "g"]) void ask("t", name);
    expect(begun.slice(4)).toEqual(["e", "f"]);
  });

  test("serves tenants in turns, and each in the order of asking", async () => {
    const { begun, ask, end } = scene(1);
    for (const name of ["a1", "a2", "a3"]) void ask("a", name);
    for (const name of ["b1", "b2"]) void ask("b", name);
    void ask("c", "c1");
    for (let at = 0; at < 5; at++) await end(begun.at(-1)!);
    expect(begun).toEqual(["a1", "a2", "b1", "c1", "a3", "b2"]);
  });

  test("keeps nobody who has to end, and gives no place away by it", async () => {
    const { gate, begun, ask, end } = scene(1);
    const control = new AbortController();
    void ask("t", "a");
    void ask("t", "stopped", control.signal);
    void ask("t", "b");
    control.abort();
    await turns();
    expect([begun, gate.waiting]).toEqual([["a", "stopped"], 1]);
    await end("stopped");
    expect(begun).toEqual(["a", "stopped"]);
    await end("a");
    expect(begun).toEqual(["a", "stopped", "b"]);
  });

  test("lets in what has to be alone when all else has ended, and nothing beside it", async () => {
    const { gate, clock, begun, ask, askAlone, end } = scene(10);
    for (const name of ["a", "b"]) void ask("t", name);
    for (const name of ["alone 1", "alone 2"]) void askAlone(name);
    void ask("t", "c");
    expect([begun, gate.waiting]).toEqual([["a", "b"], 3]);
    await end("a");
    expect(begun).toHaveLength(2);
    await end("b");
    expect(begun.slice(2)).toEqual(["alone 1"]);
    void ask("other", "d");
    await end("alone 1");
    // Those that came meanwhile go before the next.
    expect(begun.slice(3)).toEqual(["c", "d"]);
    void ask("t", "e");
    await end("c");
    await end("d");
    expect(begun.slice(5)).toEqual(["alone 2"]);
    await end("alone 2");
    expect(begun.slice(6)).toEqual(["e"]);
    await end("e");
    expect([gate.waiting, clock.timers]).toEqual([0, 0]);
  });

  test("is closed for what has to be alone no longer than it may be", async () => {
    const { clock, begun, ask, askAlone, end } = scene(10);
    void ask("t", "long");
    for (const name of ["alone 1", "alone 2"]) void askAlone(name);
    void ask("t", "a");
    await clock.advance(closedMs - 1);
    expect(begun).toEqual(["long"]);
    await clock.advance(1);
    expect(begun).toEqual(["long", "alone 1", "a"]);
    void ask("t", "b");
    expect(begun.slice(3)).toEqual(["b"]);
    // Of those that have to be alone there is never more than one.
    await clock.advance(closedMs);
    expect(begun).toHaveLength(4);
    await end("alone 1");
    for (const name of ["long", "a", "b"]) await end(name);
    expect(begun.slice(4)).toEqual(["alone 2"]);
    void ask("t", "c");
    await clock.advance(closedMs);
    expect(begun.slice(5)).toEqual(["c"]);
  });

  test("opens again where what had to be alone is wanted no more", async () => {
    const { clock, begun, ask, askAlone } = scene(10);
    const control = new AbortController();
    void ask("t", "a");
    void askAlone("alone", control.signal);
    void ask("t", "b");
    expect(begun).toEqual(["a"]);
    control.abort();
    await turns();
    expect([begun, clock.timers]).toEqual([["a", "alone", "b"], 0]);
  });
});
