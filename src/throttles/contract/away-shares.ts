import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { sql, table } from "../../store/sql.ts";
import { type Fleet, openFleet, type SharesKind } from "./shares-fleet.ts";

const second = 1_000;
const minute = 60 * second;

/** What shares promise that don't need the database. */
export function awaySharesContract(kind: SharesKind): void {
  describe(`shares of a throttle on ${kind.name}, while the database is away`, () => {
    let fleet: Fleet;
    beforeEach(async () => {
      fleet = await openFleet(kind);
    });
    afterEach(() => fleet.close());

    test("are renewed for ten minutes, move with demand, and are never more than there are", async () => {
      const a = fleet.join("a");
      const b = fleet.join("b");
      a.limiter.setBlockedTasks(20);
      await fleet.pass(2 * second);
      for (const pod of [a, b]) pod.state.way = "no database";
      for (let minutes = 0; minutes < 10; minutes++) {
        await fleet.pass(minute);
        const permit = a.limiter.tryAcquire();
        expect(permit).toBeDefined();
        permit!.release("success");
      }
      expect(await fleet.shares()).toEqual({ a: 8 });
      // A pod that had nothing asks for what others have.
      b.ask(20);
      await fleet.pass(3 * second);
      expect(await fleet.shares()).toEqual({ a: 4, b: 4 });
      expect(b.held).toBe(4);
      for (const pod of [a, b]) pod.state.way = "well";
      await fleet.pass(2 * second);
      // Pages and the leader see it in the row.
      expect((await fleet.rowInStore())!.shares).toMatchObject({
        a: { share: 4 },
        b: { share: 4 },
      });
    });

    test("are had of a throttle that no pod has used before, and its limit is stored later", async () => {
      const a = fleet.join("a");
      a.state.way = "no database";
      a.ask(9);
      // Others that have a share of it would have made its document again by then.
      await fleet.pass(2 * second);
      expect(a.held).toBe(0);
      await fleet.pass(3 * second);
      expect(a.held).toBe(8);
      expect(await fleet.rowInStore()).toBeUndefined();
      a.state.way = "well";
      await fleet.pass(2 * second);
      expect(await fleet.rowInStore()).toMatchObject({ bound: 8, shares: { a: { share: 8 } } });
    });

    test("let one call at a time through a breaker that no leader can close", async () => {
      const a = fleet.join("a");
      a.ask(1);
      await fleet.pass(second);
      a.rest();
      await fleet.database.write([
        sql`update ${table("throttle")} set gate = '{"breaker":"open"}', epoch = epoch + 1,
          pass = pass + 1, rev = rev + 1`,
      ]);
      a.limiter.setBlockedTasks(4);
      await fleet.pass(2 * second);
      expect(a.limiter.tryAcquire()).toBeUndefined();
      expect(a.limiter.findRefusal()).toMatchObject({ by: "breaker" });
      a.state.way = "no database";
      await fleet.pass(30 * second);
      expect(a.limiter.tryAcquire()).toBeUndefined();
      await fleet.pass(35 * second);
      const probe = a.limiter.tryAcquire();
      expect(probe).toBeDefined();
      expect(a.limiter.tryAcquire()).toBeUndefined();
      probe!.release("success");
      a.state.way = "well";
      await fleet.pass(2 * second);
      expect(a.limiter.tryAcquire()).toBeUndefined();
    });
  });
}
