import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { deathLimit } from "../../base/death-limit.ts";
import { advanceRun } from "./advance.ts";
import type { RunDecision } from "./event.ts";
import { flow } from "../flow.ts";
import { atEnd, fold } from "./run.ts";
import type { Machine } from "../machine.ts";
import { play, type Played } from "../contract/simulated-run.ts";
import { now, returned, threw } from "../contract/sample-flows.ts";
import { openRun, toColumns } from "../drive/load.ts";

type Shape = {
  readonly kinds: readonly ("work" | "sleep" | "signal" | "children")[];
  readonly attempts: number;
  readonly finalizers: number;
  readonly output: boolean;
  readonly timeoutMs: number | undefined;
};

const anyShape: fc.Arbitrary<Shape> = fc.record({
  kinds: fc.array(fc.constantFrom("work", "work", "sleep", "signal", "children"), {
    minLength: 1,
    maxLength: 6,
  }),
  attempts: fc.integer({ min: 1, max: 4 }),
  finalizers: fc.integer({ min: 0, max: 3 }),
  output: fc.boolean(),
  timeoutMs: fc.option(fc.constant(3_000), { nil: undefined }),
});
const anyChances = fc.array(fc.nat(1_000_000), { maxLength: 60 });

function machineOf({ kinds, attempts, finalizers, output, timeoutMs }: Shape): Machine {
  const options = { version: 1, attempts, backoff: { baseMs: 10 } };
  let chain: any = flow("any", output ? { ...options, output: z.any() } : options);
  kinds.forEach((kind, at) => {
    const name = `t${at}`;
    if (kind === "work") chain = chain.to(name, () => {});
    if (kind === "sleep") chain = chain.sleep(name, 50);
    if (kind === "signal") chain = chain.signal(name, timeoutMs ? { timeoutMs } : {});
    if (kind === "children") chain = chain.children(name, () => []);
  });
  for (let at = 0; at < finalizers; at++) chain = chain.finally(`f${at}`, () => {});
  return chain.end() as Machine;
}

/** Runs a machine by chance and judges all that was stored. */
function expectOfAny(judge: (machine: Machine, played: Played) => void): void {
  fc.assert(
    fc.property(anyShape, anyChances, (shape, chances) => {
      const machine = machineOf(shape);
      judge(machine, play(machine, chances));
    }),
    { numRuns: 500 },
  );
}

const namesOf = (parts: readonly { readonly name: string }[]) => parts.map(({ name }) => name);
const rank = (machine: Machine) =>
  new Map(
    [...namesOf(machine.parts), ...namesOf(machine.finalizers)].map((name, at) => [name, at]),
  );

type Stored = Extract<RunDecision, { readonly run: unknown }>;

/** Those that change what is stored. */
function storing(decisions: Played["decisions"]) {
  return decisions.flatMap(({ before, decision }) =>
    "run" in decision ? [{ before, decision: decision satisfies Stored }] : [],
  );
}

function endOf({ row, decisions }: Played) {
  const last = decisions.at(-1)!.decision;
  expect(row.cursor).toBeNull();
  if (last.type !== "finish") throw new Error(`the last decision is ${last.type}`);
  return last;
}

describe("whatever happens to a run", () => {
  test("it ends", () => {
    expectOfAny((_, played) => {
      const { status, run } = endOf(played);
      expect(run.intent?.type).toBe(status);
    });
  });

  test("its history folds to what is stored, after every decision (F2)", () => {
    expectOfAny((machine, { events, row, decisions }) => {
      expect(toColumns(fold(events))).toEqual(row);
      for (const { before, decision } of storing(decisions)) {
        expect(decision.run.unnoted).toEqual([]);
        const read = openRun(machine, toColumns(decision.run));
        expect(read).toEqual({ type: "open", run: decision.run });
        // What was read but not noted yet comes first.
        expect(decision.events.slice(0, before.unnoted.length)).toEqual(before.unnoted);
      }
    });
  });

  test("a part of its history folds to what was stored then", () => {
    fc.assert(
      fc.property(anyShape, anyChances, fc.nat(20), (shape, chances, decisionsMost) => {
        const { events, row } = play(machineOf(shape), chances, { maxDecisions: decisionsMost });
        const { version, state } = row;
        const stored = { ...row, version: version ?? 0, state: state ?? "{}" };
        expect(toColumns(fold(events))).toEqual(stored);
      }),
    );
  });

  test("what is executed is executed in the order declared, each transition completed once", () => {
    expectOfAny((machine, { events, calls }) => {
      const order = rank(machine);
      const called = calls.map((name) => order.get(name)!);
      expect(called).toEqual(called.toSorted((one, other) => one - other));
      const done = events.flatMap((event) =>
        event.type === "complete" && event.transition !== atEnd ? [event.transition] : [],
      );
      const transitions = done.filter((name) => namesOf(machine.parts).includes(name));
      expect(transitions).toEqual(namesOf(machine.parts).slice(0, transitions.length));
    });
  });

  test("it completes only when all transitions have, or one has handed off", () => {
    expectOfAny((machine, played) => {
      const { run, status } = endOf(played);
      const completes = played.events.filter(({ type }) => type === "complete");
      const isLast = (name: string) => name === machine.parts.at(-1)!.name || name === atEnd;
      const ending = completes.find((event) => event.type === "complete" && event.intent);
      expect(ending !== undefined).toBe(status === "completed");
      const isEarly = ending?.type === "complete" && !isLast(ending.transition);
      // Only a handoff says what the output is before the last has run.
      expect(!isEarly || "output" in run.intent!).toBe(true);
    });
  });

  test("only declared edges are taken (F3)", () => {
    expectOfAny((machine, { decisions }) => {
      const parts = namesOf(machine.parts);
      const finalizers = namesOf(machine.finalizers);
      const endings = finalizers[0] ?? null;
      for (const { before, decision } of storing(decisions)) {
        const from = before.cursor!;
        const to = decision.run.cursor;
        const allowed: (string | null)[] = [from];
        if (parts.includes(from)) allowed.push(parts[parts.indexOf(from) + 1] ?? atEnd, endings);
        if (finalizers.includes(from))
          allowed.push(finalizers[finalizers.indexOf(from) + 1] ?? null);
        if (from === atEnd) allowed.push(endings);
        expect(allowed).toContain(to);
        expect(decision.type === "finish").toBe(to === null);
      }
    });
  });

  test("every finalizer has run, or is out of attempts, before it is terminal (F7)", () => {
    expectOfAny((machine, { events }) => {
      const finalizers = namesOf(machine.finalizers);
      const over = events.flatMap((event) => {
        const isOver =
          event.type === "complete" || (event.type === "error" && event.retryAtMs === null);
        return isOver && finalizers.includes(event.transition) ? [event.transition] : [];
      });
      expect(over).toEqual(finalizers);
      expect(events.filter(({ type }) => type === "finish")).toHaveLength(1);
      expect(events.at(-1)?.type).toBe("finish");
    });
  });

  test("the ending is set once, and finalizers don't change it", () => {
    expectOfAny((_, { events, decisions }) => {
      const setting = events.filter((event) => "intent" in event && event.intent !== undefined);
      expect(setting).toHaveLength(1);
      const ending = decisions.filter(({ before }) => before.intent !== null);
      for (const { before, decision } of storing(ending)) {
        expect(decision.run.intent).toEqual(before.intent);
      }
    });
  });

  test("attempts and deaths begin anew with the cursor, and stay within their limits", () => {
    expectOfAny((machine, { decisions }) => {
      for (const { before, decision } of storing(decisions)) {
        const { run } = decision;
        const counted = decision.type === "retry" ? 1 : 0;
        const isMoved = run.cursor !== before.cursor;
        expect(run.failures).toBe(isMoved ? 0 : before.failures + counted);
        expect(run.deaths).toBe(isMoved ? 0 : before.deaths);
        expect(isMoved && run.waiting !== null).toBe(false);
        expect(run.failures).toBeLessThan(machine.tries.attempts);
        expect(run.deaths).toBeLessThan(deathLimit);
      }
    });
  });

  test("nothing moves it once it has ended (F3)", () => {
    expectOfAny((machine, { row }) => {
      const read = openRun(machine, row);
      if (read.type !== "open") throw new Error(read.type);
      const cancel = { type: "cancel_requested", reason: null } as const;
      for (const happened of [returned({ a: 1 }), threw(), cancel, { type: "woken" } as const]) {
        expect(advanceRun(machine, read.run, happened, now).type).toBe("ignore");
      }
    });
  });

  test("its state is what its transitions returned, merged", () => {
    expectOfAny((_, { events, row }) => {
      const merged = events.reduce(
        (state, event) => (event.type === "complete" ? { ...state, ...event.set } : state),
        {},
      );
      expect(JSON.parse(row.state!)).toEqual(merged);
    });
  });

  test("a failure is never retried more often than its options allow", () => {
    expectOfAny((machine, { events }) => {
      const { attempts } = machine.tries;
      const tried = events.flatMap((event) => (event.type === "error" ? [event.attempt] : []));
      expect(Math.max(0, ...tried)).toBeLessThanOrEqual(attempts);
    });
  });

  test("the chances above lead to every ending", () => {
    const seen = new Set<string>();
    expectOfAny((_, played) => seen.add(endOf(played).status));
    expect([...seen].toSorted()).toEqual(["cancelled", "completed", "failed"]);
  });
});
