import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { actAs } from "../../audit/actor.ts";
import { silentLogger as log } from "../../base/log.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { createThrottlesClient } from "../shares/admin.ts";
import { createFleetLearning } from "../shares/fleet-learning.ts";
import { changeLearned, maxEventsKept, noteChange } from "../shares/sql.ts";
import { type Fleet, type FleetPod, openFleet } from "./shares-fleet.ts";

/** What is kept of how a bound has changed, on every store. */
export function boundEventsContract(kind: StoreKind): void {
  describe(`the changes of a throttle's bound on ${kind.name}`, () => {
    let fleet: Fleet;
    beforeEach(async () => {
      fleet = await openFleet(kind, { initial: 2 });
    });
    afterEach(() => fleet.close());

    const client = () => createThrottlesClient(fleet);
    const ofKey = () => (fleet.place.key === "" ? {} : { key: fleet.place.key });
    const eventsOf = (options = {}) =>
      client().events(fleet.place.name, { ...ofKey(), ...options });
    const newestFirst = async () => (await eventsOf({ limit: 1_000 })).events;
    const call = async (pods: FleetPod[], rounds: number, kindOf: "success" | "throttled") => {
      for (let round = 0; round < rounds; round++) {
        for (const pod of pods) pod.ask(10);
        await fleet.pass(100);
        for (const pod of pods) {
          for (const permit of pod.permits.splice(0)) permit.release(kindOf);
        }
      }
    };

    test("are kept with their causes: the first use, what was learned, and what was refused", async () => {
      const pods = [fleet.join("a"), fleet.join("b")];
      const leader = fleet.lead();
      for (let beat = 0; beat < 8; beat++) {
        await call(pods, 10, "success");
        await leader.pass();
      }
      const risen = (await fleet.rowNow())!.bound;
      for (let beat = 0; beat < 2; beat++) {
        await call(pods, 10, "throttled");
        await leader.pass();
      }
      const events = (await newestFirst()).toReversed();
      expect(events[0]).toMatchObject({ seq: 1, cause: "first_use", before: null, bound: 2 });
      const up = events.filter(({ cause }) => cause === "learned_up");
      expect(up.at(-1)).toMatchObject({ bound: risen, by: null, breaker: "closed" });
      for (const { before, bound } of up) expect(bound).toBeGreaterThan(before!);
      const down = events.find(({ cause }) => cause === "refused");
      expect(down).toMatchObject({ before: risen });
      expect(down!.bound).toBeLessThan(risen);
      // Each begins where the one before it has ended, and the last one is the row.
      expect(events.slice(1).map(({ before }) => before)).toEqual(
        events.slice(0, -1).map(({ bound }) => bound),
      );
      expect(events.at(-1)!.bound).toBe((await fleet.rowNow())!.bound);
      expect(events.at(-1)!.epoch).toBeLessThanOrEqual((await fleet.rowNow())!.epoch);
      expect(new Set(events.map(({ seq }) => seq)).size).toBe(events.length);
    });

    test("say which rate the downstream has stated", async () => {
      const pods = [fleet.join("a")];
      const leader = fleet.lead();
      for (let round = 0; round < 20; round++) {
        pods[0]!.ask(1);
        await fleet.pass(100);
        for (const permit of pods[0]!.permits.splice(0)) {
          permit.headers({
            "x-ratelimit-limit-requests": "12000",
            "x-ratelimit-remaining-requests": "11999",
            "x-ratelimit-reset-requests": "5ms",
          });
          permit.release("success");
        }
        if (round % 10 === 9) await leader.pass();
      }
      expect((await newestFirst()).map(({ cause }) => cause)).toContain("promised");
    });

    test("say who pinned and unpinned it, and that it was learned again after that", async () => {
      const pods = [fleet.join("a")];
      const leader = fleet.lead();
      await call(pods, 10, "success");
      await leader.pass();
      const { name: of } = fleet.place;
      const options = ofKey();
      const { bound } = (await fleet.rowNow())!;
      await actAs({ kind: "user", user: "zoe" }, () => client().pin(of, 50, options));
      expect((await newestFirst())[0]).toMatchObject({
        cause: "pinned",
        before: bound,
        bound: 50,
        by: "user/zoe",
      });
      // The same again changes nothing, and is no event.
      await client().pin(of, 50, options);
      const pinned = await newestFirst();
      await client().unpin(of, options);
      expect((await newestFirst()).slice(0, 2)).toMatchObject([
        { cause: "unpinned", before: 50, bound: 50, by: "program" },
        { cause: "pinned" },
      ]);
      expect(await newestFirst()).toHaveLength(pinned.length + 1);
      await call(pods, 10, "success");
      await leader.pass();
      const after = await newestFirst();
      expect(after[0]).toMatchObject({ before: 50, by: null });
      expect(after.some(({ cause, by }) => cause === "unpinned" && by === null)).toBe(true);
    });

    test("are stored with the change or not at all", async () => {
      fleet.join("a").ask(1);
      await fleet.pass(1_500);
      const rev = (await fleet.rowNow())!.rev;
      const before = await newestFirst();
      const learned = { bound: 9, epoch: 9, constraints: "{}", state: "{}", stats: "{}" };
      const change = { cause: "learned_up", breaker: "closed", bound: 9, epoch: 9 } as const;
      const write = (seen: number) =>
        fleet.database.write([
          ...noteChange(fleet.place, seen, change),
          changeLearned(fleet.place, seen, learned),
        ]);
      // Another pod has changed the row since it was read.
      await write(rev - 1);
      expect(await newestFirst()).toEqual(before);
      await write(rev);
      await write(rev);
      expect(await newestFirst()).toHaveLength(before.length + 1);
    });

    test("are kept a thousand at most for each key, and listed page by page", async () => {
      fleet.join("a").ask(1);
      await fleet.pass(1_500);
      const { name: of, key } = fleet.place;
      await fleet.database.write([
        sql`insert into ${table("throttle_event")} (name, key, seq, cause, bound, epoch)
          with recursive numbers (n) as (
            select 2 union all select n + 1 from numbers where n < ${maxEventsKept})
          select ${of}, ${key}, n, 'learned_up', 1, 1 from numbers`,
        sql`insert into ${table("throttle_event")} (name, key, seq, cause, bound, epoch)
          values (${of}, 'another key', 1, 'learned_up', 1, 1)`,
      ]);
      await client().pin(of, 7, ofKey());
      const first = await eventsOf({ limit: 2 });
      expect(first.events.map(({ seq }) => seq)).toEqual([maxEventsKept + 1, maxEventsKept]);
      const second = await eventsOf({ limit: 1_000, cursor: first.next! });
      expect(second.events).toHaveLength(maxEventsKept - 2);
      expect(second.events.at(-1)!.seq).toBe(2);
      expect(second.next).toBeNull();
      expect((await client().events(of, { key: "another key" })).events).toHaveLength(1);
      await expect(eventsOf({ cursor: "x" })).rejects.toMatchObject({ code: "invalid_option" });
    });

    test("go with a throttle that was unused for long", async () => {
      const pod = fleet.join("a");
      pod.ask(1);
      await fleet.pass(1_500);
      for (const permit of pod.permits.splice(0)) permit.release("success");
      await fleet.database.write([
        sql`update ${table("throttle")} set shares = '{}', last_update = 1`,
      ]);
      const { database, clock } = fleet;
      const leader = createFleetLearning({ database, clock, log, rememberMs: 1_000 });
      await fleet.pass(61_000);
      await database.write([
        sql`update ${table("throttle")} set shares = '{}', last_update = 1`,
        sql`delete from ${table("throttle_report")}`,
      ]);
      await leader.pass();
      expect(await fleet.rowNow()).toBeUndefined();
      expect(await newestFirst()).toEqual([]);
    });
  });
}
