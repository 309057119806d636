import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { eventLoopTurns } from "../../base/contract/movable-clock.ts";
import { allowing, createTestLimiter } from "../contract/limiter.ts";
import type { HeldPermit } from "./permit.ts";
import { outcomeKinds } from "../learning/sample.ts";
import { priorities, type Priority } from "./priority.ts";

type Step =
  | { readonly do: "ask"; readonly priority: Priority }
  | { readonly do: "try"; readonly priority: Priority }
  | { readonly do: "release"; readonly which: number; readonly kind: number }
  | { readonly do: "abort"; readonly which: number }
  | { readonly do: "limit"; readonly limit: number }
  | { readonly do: "wait"; readonly ms: number };

const anyPriority = fc.constantFrom(...priorities);
const anyStep: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant("ask" as const), priority: anyPriority }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("try" as const), priority: anyPriority }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("release" as const),
      which: fc.nat(),
      kind: fc.nat(outcomeKinds.length - 1),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("abort" as const), which: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("limit" as const), limit: fc.nat(6) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.nat(3_000) }) },
);

type Asked = {
  readonly number: number;
  readonly priority: Priority;
  readonly stop: AbortController;
  permit?: HeldPermit;
  over: boolean;
};

describe("whatever happens to a limiter", () => {
  const reserve = { control: 1, interactive: 1, retry: 1 };

  test("permits are conserved, given only under the limit, in order, and to every caller in the end", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(anyStep, { maxLength: 120 }), async (steps) => {
        const { limiter, clock } = createTestLimiter({ reserve, mode: "leader" }, 3);
        let limit = 3;
        let epoch = 1;
        let before = 0;
        const all: Asked[] = [];
        // Callers that still waited when a later one of their priority got a permit.
        const passed: Asked[] = [];
        const out = () => all.filter((each) => each.permit && !each.permit.released);
        const waiting = () => all.filter((each) => !each.permit && !each.over);
        const granted = (asked: Asked, permit: HeldPermit) => {
          asked.permit = permit;
          const isPassed = ({ priority, number }: Asked) =>
            priority === asked.priority && number < asked.number;
          passed.push(...waiting().filter(isPassed));
        };

        for (const [number, step] of steps.entries()) {
          before = limiter.demand().inFlight;
          if (step.do === "ask") {
            const { priority } = step;
            const asked: Asked = { number, priority, stop: new AbortController(), over: false };
            all.push(asked);
            limiter.acquire({ priority, signal: asked.stop.signal }).then(
              (permit) => granted(asked, permit),
              () => (asked.over = true),
            );
          } else if (step.do === "try") {
            const permit = limiter.tryAcquire({ priority: step.priority });
            const stop = new AbortController();
            if (permit) all.push({ number, priority: step.priority, stop, permit, over: false });
          } else if (step.do === "release") {
            out()[step.which % out().length]?.permit!.release(outcomeKinds[step.kind]!);
          } else if (step.do === "abort") {
            waiting()[step.which % waiting().length]?.stop.abort();
          } else if (step.do === "limit") {
            limit = step.limit;
            limiter.allow(allowing(limit, { epoch: ++epoch }));
          } else await clock.advance(step.ms);
          await eventLoopTurns(1);

          const { inFlight } = limiter.demand();
          expect(inFlight).toBe(out().length);
          expect(limiter.demand().waiting).toBe(waiting().length);
          expect(inFlight).toBeLessThanOrEqual(Math.max(limit, before));
          const classes = Object.values(limiter.snapshot().inFlightOf);
          expect(classes.reduce((sum, each) => sum + each, 0)).toBe(inFlight);
          expect(passed).toEqual([]);
        }

        limiter.allow(allowing(1, { epoch: ++epoch }));
        for (let left = 0; left < 400 && out().length + waiting().length > 0; left++) {
          for (const each of out()) each.permit!.release("success");
          await eventLoopTurns(1);
        }
        expect([out().length, waiting().length]).toEqual([0, 0]);
        const { outcomes } = limiter.snapshot();
        const ended = Object.values(outcomes).reduce((sum, each) => sum + each, 0);
        expect(ended).toBe(all.filter(({ permit }) => permit).length);
        await clock.advance(3_000);
        expect(clock.timers).toBe(0);
      }),
      { numRuns: 150 },
    );
  });

  test("a call of a priority with a reservation gets a permit though all others are taken", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 4, max: 20 }),
        fc.constantFrom("control" as const, "interactive" as const, "retry" as const),
        fc.array(anyPriority, { minLength: 30, maxLength: 60 }),
        async (limit, priority, flood) => {
          const { limiter } = createTestLimiter({ reserve }, limit);
          for (const each of flood) {
            if (each !== priority) limiter.acquire({ priority: each }).catch(() => {});
          }
          await eventLoopTurns(1);
          expect(limiter.tryAcquire({ priority })).toBeDefined();
          limiter.close();
        },
      ),
      { numRuns: 100 },
    );
  });
});
