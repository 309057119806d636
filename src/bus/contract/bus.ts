import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import {
  type MovableClock,
  movableClock,
  eventLoopTurns,
} from "../../base/contract/movable-clock.ts";
import type { Bus } from "../bus.ts";

/** A transport of envelopes, for the suite that every one of them passes. */
export type BusKind = {
  readonly name: string;
  /** A request to an address that no process has is rejected at once, and known not to be delivered. */
  readonly knowsAbsence?: boolean;
  /** What all tests of the suite share, where it takes long to make. */
  start?(): Promise<void>;
  stop?(): Promise<void>;
  open(clock: MovableClock): Promise<OpenBusKind>;
};

export type OpenBusKind = {
  /** Another process's end, which `remove` closes. */
  connect(address: string): Promise<Bus>;
  remove(): Promise<void>;
};

// On a slow machine much of this time passes between one answer of a store and the next.
const timeoutMs = 3_600_000;
const waitLimitMs = 90_000;

/** What every bus promises. Time stands still, so that nothing is found by waiting for it. */
export function busContract(kind: BusKind): void {
  const absent = kind.knowsAbsence ? "unavailable" : "timeout";
  let clock: MovableClock;
  let opened: OpenBusKind;
  let alice: Bus;
  let bob: Bus;

  /** If no notification comes, polling finds envelopes, and moments have to pass for that. */
  const until = async (what: string, condition: () => unknown): Promise<void> => {
    const deadlineMs = performance.now() + waitLimitMs;
    while (!condition()) {
      if (performance.now() > deadlineMs) throw new Error(`${what} didn't happen`);
      await clock.advance(20);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  const outcome = async <Value>(promise: Promise<Value>): Promise<Value> => {
    let settled = false;
    void promise.catch(() => {}).finally(() => (settled = true));
    await until("an answer", () => settled);
    return promise;
  };
  const collect = (bus: Bus, topic: string) => {
    const got: { body: Json; from: string }[] = [];
    bus.serve(topic, (body, from) => {
      got.push({ body, from });
      return null;
    });
    return got;
  };

  describe(`the bus ${kind.name}`, () => {
    beforeAll(() => kind.start?.());
    afterAll(() => kind.stop?.());
    beforeEach(async () => {
      clock = movableClock();
      opened = await kind.open(clock);
      alice = await opened.connect("alice");
      bob = await opened.connect("bob");
    });
    afterEach(() => opened.remove());

    test("brings envelopes in the order in which they were sent, with their sender", async () => {
      const got = collect(bob, "note");
      for (let nth = 0; nth < 200; nth++) alice.send("bob", "note", { nth });
      await until("all envelopes", () => got.length >= 200);
      for (let nth = 200; nth < 220; nth++) {
        alice.send("bob", "note", { nth });
        await eventLoopTurns(1);
      }
      await until("the rest", () => got.length >= 220);
      const sent = Array.from({ length: 220 }, (_, nth) => ({ body: { nth }, from: "alice" }));
      expect(got).toEqual(sent);
    });

    test("brings a question there and its answer back", async () => {
      bob.serve("double", async (body, from) => ({ twice: Number(body) * 2, from }));
      const answer = await outcome(alice.request("bob", "double", 21, { timeoutMs }));
      expect(answer).toEqual({ twice: 42, from: "alice" });
    });

    test("gives each of many questions its own answer, whichever comes first", async () => {
      const held: (() => void)[] = [];
      bob.serve("echo", (body) =>
        Number(body) % 3 === 0
          ? new Promise((resolve) => held.push(() => resolve(body)))
          : Promise.resolve(body),
      );
      const answers = Array.from({ length: 60 }, (_, nth) =>
        alice.request("bob", "echo", nth, { timeoutMs }),
      );
      await until("all questions to be there", () => held.length === 20);
      for (const release of held.toReversed()) release();
      expect(await outcome(Promise.all(answers))).toEqual(answers.map((_, nth) => nth));
    });

    test("takes envelopes and requests to oneself", async () => {
      const got = collect(alice, "note");
      alice.serve("whoami", (_, from) => from);
      alice.send("alice", "note", "to me");
      expect(got).toEqual([]);
      expect(await alice.request("alice", "whoami", null, { timeoutMs })).toBe("alice");
      expect(got).toEqual([{ body: "to me", from: "alice" }]);
    });

    test("shares no object with any receiver, not even with itself", async () => {
      const body = { list: [1] };
      const got: Json[] = [];
      for (const bus of [alice, bob]) {
        bus.serve("change", (given) => {
          (given as { list: number[] }).list.push(2);
          got.push(given);
          return given;
        });
        const answer = await outcome(alice.request(bus.address, "change", body, { timeoutMs }));
        expect(answer).toEqual({ list: [1, 2] });
        expect(answer).not.toBe(got.at(-1));
      }
      expect(body).toEqual({ list: [1] });
    });

    test("brings an error back as it was thrown, and anything else as `internal`", async () => {
      bob.serve("refuse", () => {
        throw new FlotillaError("conflict", "not now", { details: { why: ["busy"] } });
      });
      bob.serve("break", async () => {
        throw new TypeError("a bug");
      });
      const refused = await outcome(alice.request("bob", "refuse", 1, { timeoutMs })).catch(
        (error: unknown) => error,
      );
      expect(refused).toBeInstanceOf(FlotillaError);
      expect(refused).toMatchObject({
        code: "conflict",
        message: "not now",
        details: { why: ["busy"] },
      });
      await expect(outcome(alice.request("bob", "break", 1, { timeoutMs }))).rejects.toMatchObject({
        code: "internal",
        message: "a bug",
      });
    });

    test("isn't hurt by a handler that throws, or that gives what is no JSON", async () => {
      const got = collect(bob, "note");
      bob.serve("break", () => {
        throw new Error("a bug");
      });
      bob.serve("circle", () => {
        const circle: Record<string, unknown> = {};
        circle["self"] = circle;
        return circle as Json;
      });
      alice.send("bob", "break", null);
      alice.send("bob", "note", 1);
      await expect(outcome(alice.request("bob", "circle", 1, { timeoutMs }))).rejects.toMatchObject(
        { code: "payload_not_storable" },
      );
      alice.send("bob", "note", 2);
      await until("both notes", () => got.length === 2);
    });

    test("rejects a request where no endpoint serves it", async () => {
      const asked = alice.request("bob", "nothing", null, { timeoutMs });
      await expect(outcome(asked)).rejects.toMatchObject({ code: "unsupported" });
      const stop = bob.serve("note", () => null);
      stop();
      alice.send("bob", "note", null);
      const again = alice.request("bob", "note", null, { timeoutMs });
      await expect(outcome(again)).rejects.toMatchObject({ code: "unsupported" });
      expect(() => bob.serve("note", () => 1)).not.toThrow();
      expect(() => bob.serve("note", () => 2)).toThrow(/has a handler already/);
    });

    test("rejects with `timeout` where no answer comes in time, and drops a late one", async () => {
      let release = () => {};
      bob.serve("slow", () => new Promise((resolve) => (release = () => resolve("late"))));
      const nobody = alice.request("nobody", "note", null, { timeoutMs: 5_000 });
      const slow = alice.request("bob", "slow", null, { timeoutMs: 5_000 });
      const outcomes = Promise.allSettled([nobody, slow]);
      // No time passes before this is known.
      if (kind.knowsAbsence) await nobody.catch(() => {});
      await clock.advance(4_000);
      await clock.advance(1_000);
      expect(await outcomes).toMatchObject([
        { status: "rejected", reason: { code: absent } },
        { status: "rejected", reason: { code: "timeout" } },
      ]);
      release();
      bob.serve("quick", () => "on time");
      expect(await outcome(alice.request("bob", "quick", null, { timeoutMs }))).toBe("on time");
    });

    test("carries big envelopes, and text of any kind", async () => {
      bob.serve("echo", (body) => body);
      const bodies: Json[] = [
        "x".repeat(1_500_000),
        "漢😀".repeat(100_000),
        `quotes " ' \\ {}, \u0000 \ud800 end`,
        { deep: [[[{ nothing: null }]]], none: [] },
        null,
      ];
      const answers = bodies.map((body) => alice.request("bob", "echo", body, { timeoutMs }));
      expect(await outcome(Promise.all(answers))).toEqual(bodies);
    });

    test("keeps many senders separate, each in its order", async () => {
      const got = collect(bob, "note");
      const senders: Bus[] = [];
      for (let nth = 0; nth < 12; nth++) senders.push(await opened.connect(`sender ${nth}`));
      for (let nth = 0; nth < 20; nth++) {
        for (const sender of senders) sender.send("bob", "note", nth);
        if (nth % 5 === 0) await eventLoopTurns(1);
      }
      await until("all envelopes", () => got.length >= 240);
      for (const { address } of senders) {
        const own = got.filter(({ from }) => from === address).map(({ body }) => body);
        expect(own).toEqual(Array.from({ length: 20 }, (_, nth) => nth));
      }
    });

    test("never throws at senders of what can't be sent", async () => {
      const circle: Record<string, unknown> = {};
      circle["self"] = circle;
      expect(() => alice.send("bob", "note", circle as Json)).not.toThrow();
      await expect(alice.request("bob", "note", circle as Json, { timeoutMs })).rejects.toThrow(
        /isn't JSON/,
      );
    });

    test("takes and gives nothing once it is closed, and rejects waiting calls", async () => {
      const got = collect(bob, "note");
      alice.serve("slow", () => new Promise(() => {}));
      const waiting = bob.request("alice", "slow", null, { timeoutMs }).catch((error) => error);
      await bob.close();
      expect(await waiting).toMatchObject({ code: "closed" });
      await expect(bob.request("alice", "slow", null, { timeoutMs })).rejects.toMatchObject({
        code: "closed",
      });
      expect(() => bob.send("alice", "note", null)).not.toThrow();
      alice.send("bob", "note", 1);
      const asked = alice.request("bob", "note", null, {
        timeoutMs: kind.knowsAbsence ? timeoutMs : 100,
      });
      await expect(outcome(asked)).rejects.toMatchObject({ code: absent });
      expect(got).toEqual([]);
      await bob.close();
    });
  });
}
