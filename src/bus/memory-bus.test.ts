import { describe, expect, test } from "vitest";
import { movableClock, eventLoopTurns } from "../base/contract/movable-clock.ts";
import { busContract } from "./contract/bus.ts";
import type { Bus } from "./bus.ts";
import { createMemoryBus } from "./memory-bus.ts";

busContract({
  name: "within one process",
  async open(clock) {
    const exchange = createMemoryBus();
    const opened: Bus[] = [];
    return {
      async connect(address) {
        const bus = exchange.connect(address, { clock });
        opened.push(bus);
        return bus;
      },
      async remove() {
        for (const bus of opened) await bus.close();
      },
    };
  },
});

describe("envelopes that a simulation carries", () => {
  test("come in order, whatever the delays, unless they are lost", async () => {
    const clock = movableClock();
    const delaysMs = [50, 10, 0, 90, 20];
    let sent = 0;
    const exchange = createMemoryBus({
      carry(_, arrive) {
        const nth = sent++;
        if (nth === 2) return "lost";
        clock.after(delaysMs[nth]!, arrive);
        return undefined;
      },
    });
    const got: unknown[] = [];
    exchange.connect("bob", { clock }).serve("note", (body) => {
      got.push([clock.monotonic(), body]);
      return null;
    });
    const alice = exchange.connect("alice", { clock });
    for (let nth = 0; nth < delaysMs.length; nth++) alice.send("bob", "note", nth);
    await eventLoopTurns();
    expect(got).toEqual([]);
    await clock.advance(100);
    expect(got).toEqual([
      [10, 0],
      [10, 1],
      [20, 3],
      [20, 4],
    ]);
  });

  test("go to the endpoint that connected last, and nowhere else", async () => {
    const exchange = createMemoryBus();
    const got: string[] = [];
    const connect = (name: string) =>
      exchange.connect("pod").serve("note", () => {
        got.push(name);
        return null;
      });
    connect("before");
    connect("after");
    exchange.connect("alice").send("pod", "note", null);
    await eventLoopTurns();
    expect(got).toEqual(["after"]);
  });
});
