import { describe, expect, test } from "vitest";
import { turns } from "../../base/movable-clock.contract.ts";
import { createGate } from "./gate.ts";

function scene(most: number) {
  const gate = createGate(most);
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const never = new AbortController().signal;
  const ask = (tenant: string, name: string, signal = never) =>
    gate.within(tenant, signal, () => {
      begun.push(name);
      return new Promise<void>((resolve) => ends.set(name, resolve));
    });
  const end = async (name: string) => {
    ends.get(name)!();
    await turns();
  };
  return { gate, begun, ask, end };
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
    const failing = gate.within("t", new AbortController().signal, () =>
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
});
