import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { silentLogger as log } from "../../base/log.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { type Fleet, type FleetPod, openFleet } from "./shares-fleet.ts";
import { createFleetLearning } from "../shares/fleet-learning.ts";
import { pin, readThrottle, readThrottles, unpin } from "../shares/admin.ts";

const second = 1_000;

/** What learning a bound for all pods promises on every store. */
export function learningContract(kind: StoreKind): void {
  describe(`the bound of a throttle on ${kind.name}`, () => {
    let fleet: Fleet;
    beforeEach(async () => {
      fleet = await openFleet(kind, { initial: 2 });
    });
    afterEach(() => fleet.close());

    /** Lets pods make so many calls, one after the other, that all end alike. */
    const call = async (pods: FleetPod[], rounds: number, kindOf: "success" | "throttled") => {
      for (let round = 0; round < rounds; round++) {
        for (const pod of pods) pod.ask(10);
        await fleet.pass(100);
        for (const pod of pods) {
          for (const permit of pod.permits.splice(0)) permit.release(kindOf);
        }
      }
    };
    const ended = async () => {
      const view = await readThrottle(fleet.database, fleet.place);
      return Object.values(view!.outcomes).reduce((sum, count) => sum + count, 0);
    };

    test("rises with success of all pods together, and falls when they are throttled", async () => {
      const pods = [fleet.join("a"), fleet.join("b")];
      const leader = fleet.lead();
      for (let beat = 0; beat < 8; beat++) {
        await call(pods, 10, "success");
        await leader.pass();
      }
      const { bound: risen, epoch } = (await fleet.rowNow())!;
      expect(risen).toBeGreaterThan(4);
      // Pods report once a second, so the leader knows after two of them what happened in the first.
      for (let beat = 0; beat < 2; beat++) {
        await call(pods, 10, "throttled");
        await leader.pass();
      }
      const row = (await fleet.rowNow())!;
      expect(row.bound).toBeLessThan(risen);
      expect(row.epoch).toBeGreaterThan(epoch);
    });

    test("is what the downstream's answers state, in all pods, before anything is refused", async () => {
      const pods = [fleet.join("a"), fleet.join("b")];
      const leader = fleet.lead();
      for (let beat = 0; beat < 3; beat++) {
        for (let round = 0; round < 10; round++) {
          for (const pod of pods) pod.ask(1);
          await fleet.pass(100);
          for (const permit of pods.flatMap((pod) => pod.permits.splice(0))) {
            permit.headers({
              "x-ratelimit-limit-requests": "12000",
              "x-ratelimit-remaining-requests": "11999",
              "x-ratelimit-reset-requests": "5ms",
            });
            permit.release("success");
          }
        }
        await leader.pass();
      }
      // 200 a second, and calls take a tenth of one.
      expect((await fleet.rowNow())!.bound).toBeGreaterThanOrEqual(20);
      for (const pod of pods) pod.ask(20);
      await fleet.pass(2 * second);
      expect(pods.reduce((sum, pod) => sum + pod.held, 0)).toBeGreaterThanOrEqual(20);
    });

    test("makes up for a pod that says nothing, and not for one that says something again", async () => {
      await fleet.close();
      fleet = await openFleet(kind, { initial: 8, leaseMs: 60_000, callTimeoutMs: 2_000 });
      const pods = [fleet.join("a"), fleet.join("b")];
      const leader = fleet.lead();
      const beat = async (durationMs: number) => {
        for (let passedMs = 0; passedMs < durationMs; passedMs += second) {
          // Each holds its permits for the whole second, so that nothing is proven.
          for (const pod of pods) {
            for (const permit of pod.permits.splice(0)) permit.release("ignored");
            pod.ask(8);
          }
          await fleet.pass(second);
          await leader.pass();
        }
      };
      await beat(3 * second);
      expect(await fleet.shares()).toEqual({ a: 4, b: 4 });
      pods[1]!.state.way = "cut off";
      await beat(5 * second);
      expect(await fleet.shares()).toEqual({ a: 4, b: 4 });
      await beat(4 * second);
      expect(await fleet.shares()).toEqual({ a: 8, b: 4 });
      pods[1]!.state.way = "well";
      await beat(3 * second);
      expect(await fleet.shares()).toEqual({ a: 4, b: 4 });
      expect((await fleet.rowNow())!.bound).toBe(8);
    });

    test("stays where it is while no pod leads", async () => {
      const pods = [fleet.join("a"), fleet.join("b")];
      await call(pods, 30, "success");
      expect((await fleet.rowNow())!.bound).toBe(2);
      expect(pods[0]!.limiter.snapshot().outcomes.success).toBeGreaterThan(10);
    });

    test("is learned from each call once, with two leaders, answers that were lost, and a new leader", async () => {
      const pods = [fleet.join("a"), fleet.join("b")];
      const flaky = { lose: false };
      const one = createFleetLearning({
        database: {
          ...fleet.database,
          async write(statements) {
            const tables = await fleet.database.write(statements);
            if (flaky.lose) throw new FlotillaError("unknown_outcome", "lost");
            return tables;
          },
        },
        clock: fleet.clock,
        log,
      });
      const two = fleet.lead();
      for (let beat = 0; beat < 6; beat++) {
        await call(pods, 10, "success");
        flaky.lose = beat % 2 === 1;
        await Promise.all([one.pass(), two.pass()]);
      }
      const made = () =>
        pods.reduce((sum, pod) => sum + pod.limiter.snapshot().outcomes.success, 0);
      expect(await ended()).toBeLessThanOrEqual(made());
      // Some of what was counted by one is news to the other, which leaves it alone.
      expect(await ended()).toBeGreaterThan(made() / 4);
      const three = fleet.lead();
      await three.pass();
      const before = { ended: await ended(), made: made() };
      await call(pods, 20, "success");
      await fleet.pass(2 * second);
      await three.pass();
      expect((await ended()) - before.ended).toBeGreaterThan(0);
      expect((await ended()) - before.ended).toBeLessThanOrEqual(made());
    });

    test("is counted exactly by one leader, however often it reads", async () => {
      const pods = [fleet.join("a"), fleet.join("b")];
      const leader = fleet.lead();
      for (let beat = 0; beat < 5; beat++) {
        await call(pods, 7, "success");
        await leader.pass();
        await leader.pass();
      }
      await fleet.pass(2 * second);
      for (const pod of pods) pod.rest();
      await fleet.pass(2 * second);
      await leader.pass();
      const made = pods.reduce((sum, pod) => sum + pod.limiter.snapshot().outcomes.success, 0);
      expect(await ended()).toBe(made);
    });

    test("is what an operator has pinned it to, at once and under any leader, until it is unpinned", async () => {
      const pods = [fleet.join("a"), fleet.join("b")];
      const leader = fleet.lead();
      await call(pods, 10, "success");
      expect(await pin(fleet, { name: "unknown", key: "" }, 3)).toBeUndefined();
      const { epoch } = (await fleet.rowNow())!;
      const pinned = await pin(fleet, fleet.place, 6);
      expect(pinned).toMatchObject({ bound: 6, pinned: 6, pinnedAtMs: expect.any(Number) });
      expect(pinned!.epoch).toBeGreaterThan(epoch);
      await call(pods, 20, "throttled");
      await leader.pass();
      expect(await fleet.shares()).toEqual({ a: 3, b: 3 });
      const again = await pin(fleet, fleet.place, 6);
      expect(again!.pinnedAtMs).toBe(pinned!.pinnedAtMs);
      const unpinned = await unpin(fleet, fleet.place);
      expect(unpinned).not.toHaveProperty("pinned");
      for (let beat = 0; beat < 4; beat++) {
        await call(pods, 10, "throttled");
        await leader.pass();
      }
      expect((await fleet.rowNow())!.bound).toBeLessThan(6);
      await expect(pin(fleet, fleet.place, -1)).rejects.toMatchObject({
        code: "invalid_option",
      });
    });

    test("is pinned once, where the answer to it was lost", async () => {
      fleet.join("a").ask(1);
      await fleet.pass(50);
      let lose = true;
      const { database } = fleet;
      await pin(
        {
          ...fleet,
          database: {
            ...database,
            async write(statements) {
              const tables = await database.write(statements);
              if (lose) {
                lose = false;
                throw new FlotillaError("unknown_outcome", "lost");
              }
              return tables;
            },
          },
        },
        fleet.place,
        5,
      );
      expect(await fleet.rowNow()).toMatchObject({ bound: 5, epoch: 2 });
    });

    test("is shown with who holds how much of it, and what comes of calls", async () => {
      const a = fleet.join("a");
      const b = fleet.join("b");
      const leader = fleet.lead();
      await call([a, b], 10, "success");
      await leader.pass();
      a.ask(1);
      b.ask(5);
      await fleet.pass(3 * second);
      const [view, ...rest] = await readThrottles(fleet.database);
      expect(rest).toEqual([]);
      expect(view).toMatchObject({
        ...fleet.place,
        breaker: "closed",
        holdMs: 0,
        pods: [
          { podId: "a", share: expect.any(Number), reportedMs: expect.any(Number) },
          { podId: "b", share: expect.any(Number) },
        ],
        outcomes: { success: expect.any(Number) },
        p95Ms: expect.any(Number),
      });
      expect(view!.inFlight).toBe(a.held + b.held);
      expect(view!.waiting).toBeGreaterThan(0);
      expect(await readThrottles(fleet.database, { after: fleet.place })).toEqual([]);
    });

    test("follows the settings of the code that started last", async () => {
      fleet.join("a").ask(1);
      await fleet.pass(50);
      const next = await openSettings(fleet);
      expect(next).toMatchObject({ min: 1, max: 1_000 });
      await fleet.database.write([
        sql`update ${table("throttle")} set settings = '{"algorithm":"of a later release"}'`,
      ]);
      const leader = fleet.lead();
      await leader.pass();
      expect((await fleet.rowNow())!.bound).toBe(2);
      fleet.join("c").ask(1);
      await fleet.pass(50);
      expect(await openSettings(fleet)).toEqual(next);
    });
  });
}

async function openSettings({ database, place }: Fleet) {
  return (await readThrottle(database, place))!.settings;
}
