import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { callTimeoutMs, type Fleet, leaseMs, openFleet, type SharesKind } from "./shares-fleet.ts";
import { changeShares, insertThrottles, getShares, putReports } from "../shares/sql.ts";

const second = 1_000;

/** What shares of a throttle promise on every store. */
export function sharesContract(kind: SharesKind): void {
  describe(`shares of a throttle on ${kind.name}`, () => {
    let fleet: Fleet;
    beforeEach(async () => {
      fleet = await openFleet(kind);
    });
    afterEach(() => fleet.close());

    test("go to the first pod with demand, at once", async () => {
      const a = fleet.join("a");
      a.ask(3);
      await fleet.pass(50);
      expect(a.held).toBe(3);
      expect(await fleet.shares()).toEqual({ a: 5 });
    });

    test("become even where all want more than there is, and are never more than there are", async () => {
      const a = fleet.join("a");
      a.ask(20);
      await fleet.pass(second);
      expect(a.held).toBe(8);
      const b = fleet.join("b");
      b.ask(20);
      await fleet.pass(second);
      // What is in flight isn't taken from any pod.
      expect(await fleet.shares()).toEqual({ a: 8 });
      for (const permit of a.permits) permit.release("success");
      await fleet.pass(2 * second);
      expect(await fleet.shares()).toEqual({ a: 4, b: 4 });
      expect([a.held, b.held]).toEqual([4, 4]);
    });

    test("grow for all pods with the first answer that states a rate, with no leader", async () => {
      await fleet.close();
      fleet = await openFleet(kind, { initial: 1 });
      const a = fleet.join("a");
      const b = fleet.join("b");
      a.ask(10);
      await fleet.pass(50);
      b.ask(10);
      await fleet.pass(150);
      expect([a.held, b.held]).toEqual([1, 0]);
      const [first] = a.permits;
      first!.headers({
        "x-ratelimit-limit-requests": "12000",
        "x-ratelimit-remaining-requests": "11800",
        "x-ratelimit-reset-requests": "1s",
      });
      first!.release("success");
      await fleet.pass(100);
      // 200 a second of 150 ms each are 30 at once.
      expect((await fleet.rowNow())!.bound).toBeGreaterThanOrEqual(30);
      expect(a.held).toBe(9);
      await fleet.pass(second);
      expect([a.held, b.held]).toEqual([9, 10]);
    });

    test("go back when no pod has use for them, and then nothing is written any more", async () => {
      const a = fleet.join("a");
      a.ask(3);
      await fleet.pass(50);
      a.rest();
      await fleet.pass(8 * second);
      expect(await fleet.shares()).toEqual({});
      const { writes } = fleet;
      await fleet.pass(60 * second);
      expect(fleet.writes).toBe(writes);
      expect(fleet.clock.timers).toBe(0);
    });

    test("aren't had of a throttle that is for its pod alone: nothing is written of it", async () => {
      await fleet.close();
      fleet = await openFleet(kind, { mode: "local" });
      const a = fleet.join("a");
      a.ask(20);
      await fleet.pass(2 * second);
      expect(a.held).toBe(8);
      expect(fleet.writes).toBe(0);
      expect(await fleet.rowNow()).toBeUndefined();
    });

    test("of a pod that is gone go to others after its lease and its longest call, not before", async () => {
      const a = fleet.join("a");
      const b = fleet.join("b");
      a.ask(8);
      await fleet.pass(100);
      a.state.way = "cut off";
      b.ask(8);
      await fleet.pass(leaseMs + callTimeoutMs - 100);
      expect(await fleet.shares()).toEqual({ a: 8 });
      expect(b.held).toBe(0);
      // Looks are a second apart.
      await fleet.pass(2 * second);
      expect(await fleet.shares()).toEqual({ b: 8 });
      expect(b.held).toBe(8);
    });

    test("of a pod that is gone are kept for twice its longest call so far, whatever its timeout is", async () => {
      await fleet.close();
      fleet = await openFleet(kind, { callTimeoutMs: 600_000 });
      const a = fleet.join("a");
      const b = fleet.join("b");
      for (let calls = 0; calls < 24; calls += 8) {
        a.ask(8);
        await fleet.pass(100);
        for (const permit of a.permits.splice(0)) permit.release("success");
      }
      a.ask(8);
      await fleet.pass(8 * second);
      a.state.way = "cut off";
      b.ask(8);
      await fleet.pass(leaseMs + 12 * second);
      expect(await fleet.shares()).toEqual({ a: 8 });
      await fleet.pass(6 * second);
      expect(await fleet.shares()).toEqual({ b: 8 });
    });

    test("of a process that is known to be gone go to others at once", async () => {
      const a = fleet.join("a");
      a.ask(8);
      await fleet.pass(100);
      a.state.way = "cut off";
      const b = fleet.join("b", (host) => host === "host of a");
      b.ask(8);
      await fleet.pass(100);
      expect(await fleet.shares()).toEqual({ b: 8 });
      // Its last report is still there, and asks for nothing any more.
      b.ask(40);
      for (let seconds = 0; seconds < 4; seconds++) {
        for (const permit of b.permits.splice(0)) permit.release("success");
        await fleet.pass(second);
        expect(await fleet.shares()).toEqual({ b: 8 });
      }
    });

    test("are used by a pod that is cut off until its lease is over, and by then no longer", async () => {
      const a = fleet.join("a");
      a.ask(1);
      await fleet.pass(100);
      a.state.way = "cut off";
      await fleet.pass(leaseMs - 500);
      a.rest();
      expect(a.limiter.tryAcquire()).toBeDefined();
      await fleet.pass(500);
      expect(a.limiter.tryAcquire()).toBeUndefined();
      expect(a.limiter.findRefusal()).toMatchObject({ by: "no_share" });
      a.state.way = "well";
      a.limiter.setBlockedTasks(1);
      await fleet.pass(2 * second);
      expect(a.limiter.tryAcquire()).toBeDefined();
    });

    test("aren't used by a process that was stopped for longer than its lease, not even at once", async () => {
      const a = fleet.join("a");
      a.ask(1);
      await fleet.pass(100);
      fleet.clock.jump(leaseMs);
      expect(a.limiter.tryAcquire()).toBeUndefined();
    });

    test.each(["lost before", "lost after"] as const)(
      "of which a raise was %s aren't used before a read has confirmed it",
      async (way) => {
        const a = fleet.join("a");
        const b = fleet.join("b");
        b.ask(6);
        await fleet.pass(50);
        a.ask(4);
        await fleet.pass(50);
        const before = a.held;
        b.rest();
        a.state.way = way;
        for (let at = 0; at < 100 && a.state.lost === 0; at++) await fleet.pass(50);
        expect(a.state.lost).toBe(1);
        expect(a.held).toBe(before);
        a.state.way = "well";
        await fleet.pass(7 * second);
        expect(a.held).toBe(4);
      },
    );

    test("that were given up by a write whose answer was lost aren't used meanwhile", async () => {
      const a = fleet.join("a");
      const b = fleet.join("b");
      a.ask(8);
      await fleet.pass(100);
      for (const permit of a.permits.splice(0)) permit.release("success");
      a.ask(20);
      b.ask(20);
      await fleet.pass(100);
      a.state.way = "lost after";
      await fleet.pass(second);
      for (const permit of a.permits.splice(0)) permit.release("success");
      await fleet.pass(300);
      expect(a.held).toBeLessThanOrEqual(4);
      a.state.way = "well";
      await fleet.pass(2 * second);
      expect([a.held, b.held]).toEqual([4, 4]);
    });

    test("that may have been given back or not can be used again soon", async () => {
      await fleet.close();
      fleet = await openFleet(kind, { leaseMs: 60_000 });
      const a = fleet.join("a");
      a.ask(1);
      await fleet.pass(50);
      a.rest();
      a.state.way = "lost before";
      await fleet.pass(7 * second);
      expect(a.limiter.snapshot().limit).toBe(0);
      a.state.way = "well";
      a.limiter.setBlockedTasks(1);
      await fleet.pass(2 * second);
      expect(a.limiter.tryAcquire()).toBeDefined();
    });

    test("that were given back by a write that comes late aren't in use when it does", async () => {
      await fleet.close();
      fleet = await openFleet(kind, { leaseMs: 60_000 });
      const a = fleet.join("a");
      a.ask(1);
      await fleet.pass(50);
      a.rest();
      a.state.way = "late";
      while (fleet.late === 0) await fleet.pass(50);
      // It wants to call again, and can't know whether it may.
      const use = () => {
        for (let nth = 0; nth < 2; nth++) {
          const permit = a.limiter.tryAcquire();
          if (permit) a.permits.push(permit);
        }
      };
      a.limiter.setBlockedTasks(2);
      for (let tick = 0; tick < 30; tick++) {
        await fleet.pass(50);
        use();
      }
      await fleet.land();
      expect((await fleet.shares())["a"] ?? 0).toBeGreaterThanOrEqual(a.held);
      a.state.way = "well";
      await fleet.pass(2 * second);
      use();
      expect(a.held).toBeGreaterThan(0);
      expect((await fleet.shares())["a"]).toBeGreaterThanOrEqual(a.held);
    });

    test("that long calls still use cost no more reads than others", async () => {
      const a = fleet.join("a");
      const b = fleet.join("b");
      a.ask(8);
      await fleet.pass(100);
      b.ask(8);
      await fleet.pass(2 * second);
      const { writes } = fleet;
      await fleet.pass(5 * second);
      // Two pods, a report a second each, and renewals.
      expect(fleet.writes - writes).toBeLessThanOrEqual(2 * 6 + 8);
    });

    test("aren't taken from any pod after the store was away for all", async () => {
      const a = fleet.join("a");
      const b = fleet.join("b");
      a.ask(4);
      b.ask(4);
      await fleet.pass(2 * second);
      a.state.way = "cut off";
      b.state.way = "cut off";
      for (const pod of [a, b]) pod.limiter.setBlockedTasks(3);
      await fleet.pass(15 * second);
      a.state.way = "well";
      await fleet.pass(2 * second);
      expect(await fleet.shares()).toMatchObject({ b: 4 });
    });

    test("are given back by a pod that stops, but for what is in flight", async () => {
      const a = fleet.join("a");
      a.ask(3);
      await fleet.pass(50);
      a.permits[0]!.release("success");
      await a.shares.stop();
      expect(await fleet.shares()).toEqual({ a: 2 });
      expect(a.limiter.tryAcquire()).toBeUndefined();
      const b = fleet.join("b");
      b.ask(1);
      await fleet.pass(50);
      b.rest();
      await b.shares.stop();
      expect(await fleet.shares()).toEqual({ a: 2 });
    });

    test("are lowered by all when the bound has fallen", async () => {
      const pods = ["a", "b", "c", "d"].map((podId) => fleet.join(podId));
      for (const pod of pods) pod.ask(1);
      await fleet.pass(second);
      for (const pod of pods) pod.ask(9);
      await fleet.pass(3 * second);
      expect(await fleet.shares()).toEqual({ a: 2, b: 2, c: 2, d: 2 });
      await fleet.database.write([
        sql`update ${table("throttle")} set bound = 4, epoch = epoch + 1, rev = rev + 1`,
      ]);
      for (let round = 0; round < 3; round++) {
        for (const pod of pods) {
          for (const permit of pod.permits.splice(0)) permit.release("success");
        }
        await fleet.pass(second);
      }
      expect(await fleet.shares()).toEqual({ a: 1, b: 1, c: 1, d: 1 });
    });

    test("are found again where the row was deleted", async () => {
      const a = fleet.join("a");
      a.ask(2);
      await fleet.pass(50);
      await fleet.database.write([sql`delete from ${table("throttle")}`]);
      a.ask(1);
      await fleet.pass(4 * second);
      expect(await fleet.shares()).toMatchObject({ a: expect.any(Number) });
      expect(a.limiter.snapshot().limit).toBeGreaterThan(0);
    });
  });
}

/** What rows of shares promise on every store. */
export function sharesRowsContract(kind: StoreKind): void {
  describe(`rows of shares on ${kind.name}`, () => {
    let fleet: Fleet;
    beforeEach(async () => {
      fleet = await openFleet(kind);
    });
    afterEach(() => fleet.close());

    test("are changed only in the row that was read", async () => {
      const { database, place } = fleet;
      await database.write([insertThrottles([{ ...place, bound: 3, settings: "{}" }])]);
      // A later pod finds the row there.
      await database.write([insertThrottles([{ ...place, bound: 9, settings: "{}" }])]);
      const { rev, bound } = (await fleet.rowNow())!;
      expect(bound).toBe(3);
      const change = (seen: number, text: string) =>
        database.write([changeShares(place, seen, text), getShares([place])]);
      const [changed, after] = await change(rev, '{"x":1}');
      expect(changed).toHaveLength(1);
      expect(Number(after![0]!["rev"])).toBe(rev + 1);
      const [refused, still] = await change(rev, '{"y":1}');
      expect(refused).toEqual([]);
      expect(still![0]).toMatchObject({ shares: '{"x":1}' });
    });

    test("of which many write at once are changed by one at a time", async () => {
      const { database, place } = fleet;
      await database.write([insertThrottles([{ ...place, bound: 3, settings: "{}" }])]);
      const { rev } = (await fleet.rowNow())!;
      const tables = await Promise.all(
        Array.from({ length: 12 }, (_, nth) =>
          database
            .write([changeShares(place, rev, `{"p${nth}":1}`)])
            .then(([changed]) => changed!.length),
        ),
      );
      expect(tables.reduce((sum, count) => sum + count, 0)).toBe(1);
      expect((await fleet.rowNow())!.rev).toBe(rev + 1);
    });

    test("follow reports of demand of which the newest counts, whichever comes last", async () => {
      const { database, place } = fleet;
      const report = (seq: number, demand: number) =>
        putReports([
          {
            ...place,
            podId: "a",
            seq,
            demand,
            inFlight: 0,
            waiting: demand,
            callsWaiting: demand,
            totals: "{}",
          },
        ]);
      for (const [seq, demand] of [
        [1, 1],
        [3, 3],
        [2, 2],
      ] as const) {
        await database.write([report(seq, demand)]);
      }
      const rows = await until("the report", () =>
        database.read(sql`select seq, demand from ${table("throttle_report")}`),
      );
      expect(rows.map(({ seq, demand }) => [Number(seq), Number(demand)])).toEqual([[3, 3]]);
    });
  });
}
