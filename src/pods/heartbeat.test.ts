import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../base/errors.ts";
import { type MovableClock, movableClock } from "../base/contract/movable-clock.ts";
import type { Database } from "../store/database.ts";
import { migrate } from "../store/migrate.ts";
import { sql, table } from "../store/sql.ts";
import { memoryDatabase } from "../store/sqlite/inline.ts";
import { type HeartbeatOptions, startHeartbeat } from "./heartbeat.ts";
import type { Observation } from "./liveness.ts";
import { markLeft, listPods, markDown, prunePods, readPods, toPodSeen } from "./sql.ts";

let clock: MovableClock;
let database: Database;
beforeEach(async () => {
  clock = movableClock();
  database = memoryDatabase(clock);
  await migrate(database);
});
afterEach(() => database.close());

function start(podId: string, more: Partial<HeartbeatOptions> = {}) {
  const told: { seen: Observation[]; errors: string[]; stalls: number } = {
    seen: [],
    errors: [],
    stalls: 0,
  };
  let breath = 0;
  const heartbeat = startHeartbeat({
    podId,
    database,
    clock,
    signs: { aliveCount: () => ++breath, abandonedUpTo: () => 0 },
    heartbeatMs: 1_000,
    stallBeats: 5,
    onBeat: (seen) => told.seen.push(seen),
    onError: (message) => told.errors.push(message),
    onStall: () => told.stalls++,
    ...more,
  });
  return { heartbeat, told };
}

const pods = async () => (await database.read(listPods())).map((row) => ({ ...row }));
const podNow = async () => (await pods())[0]!;

describe("a heartbeat", () => {
  test("raises the beat once per interval, and reports what it read", async () => {
    const { heartbeat, told } = start("a", { metadata: { host: "h" } });
    await clock.advance(4_500);
    expect(await podNow()).toMatchObject({
      pod_id: "a",
      beat: 5,
      status: "up",
      metadata: `{"host":"h"}`,
      last_heartbeat: clock.now() - 500,
      started_at: clock.now() - 4_500,
    });
    expect(told.seen.map((seen) => [seen.atMs, seen.pods[0]!.beat])).toEqual([
      [0, 1],
      [1_000, 2],
      [2_000, 3],
      [3_000, 4],
      [4_000, 5],
    ]);
    await heartbeat.stop();
    await clock.advance(5_000);
    expect(await podNow()).toMatchObject({ beat: 5 });
    expect(clock.timers).toBe(0);
  });

  test("stores the pulse that it was given last, and tells the store's time", async () => {
    const { heartbeat, told } = start("a");
    await clock.advance(500);
    expect(await podNow()).toMatchObject({ pulse: null });
    heartbeat.setPulse(`{"held":1}`);
    heartbeat.setPulse(`{"held":2}`);
    await clock.advance(1_000);
    expect(await podNow()).toMatchObject({ beat: 2, pulse: `{"held":2}` });
    expect(told.seen.map(({ storeMs }) => storeMs)).toEqual([
      clock.now() - 1_500,
      clock.now() - 500,
    ]);
    await heartbeat.stop();
  });

  test("brings back a pod that was marked down, or deleted, with its floor and a beat it never had", async () => {
    const { heartbeat } = start("a", { signs: { aliveCount: counter(), abandonedUpTo: () => 7 } });
    await clock.advance(500);
    await database.write([markLeft("a")]);
    expect(await podNow()).toMatchObject({ status: "down" });
    await clock.advance(1_000);
    expect(await podNow()).toMatchObject({ status: "up", beat: 2 });
    await database.write([sql`delete from ${table("pod")}`]);
    await clock.advance(1_000);
    expect(await podNow()).toMatchObject({ status: "up", beat: 3, claim_floor: 7 });
    await heartbeat.stop();
  });

  test("names its process, for others on the machine, also in a row that something else has made", async () => {
    const { heartbeat, told } = start("a", { host: "machine 1, process 2" });
    await clock.advance(0);
    expect(told.seen[0]!.pods).toMatchObject([{ podId: "a", host: "machine 1, process 2" }]);
    await database.write([sql`update ${table("pod")} set host = null`]);
    await clock.advance(1_000);
    expect(await podNow()).toMatchObject({ host: "machine 1, process 2", connection: null });
    // Nothing shows which processes have a file open.
    expect(told.seen[1]!.pods[0]).not.toHaveProperty("connection");
    expect(told.seen[1]!.connectionId).toBeUndefined();
    await heartbeat.stop();
  });

  test("never lowers the floor of a pod that is known", async () => {
    const { heartbeat } = start("a");
    await clock.advance(0);
    await database.write([sql`update ${table("pod")} set claim_floor = 9`]);
    await clock.advance(3_000);
    expect(await podNow()).toMatchObject({ claim_floor: 9, beat: 4 });
    await heartbeat.stop();
  });

  test("reports which of the watched tables have rows", async () => {
    const { heartbeat, told } = start("a", { watchedTables: ["throttle_report", "session_log"] });
    await clock.advance(0);
    await database.write([
      sql`insert into ${table("session_log")} (log_id, incarnation, record_id) values (1, 'x', '')`,
    ]);
    await clock.advance(1_000);
    expect(told.seen.map((seen) => seen.filledTables)).toEqual([[], ["session_log"]]);
    await heartbeat.stop();
  });

  test("goes on through store errors, and reports them", async () => {
    let broken = false;
    const shaky: Database = {
      ...database,
      write: async (statements) => {
        if (broken) throw new FlotillaError("store_unavailable", "away");
        return database.write(statements);
      },
    };
    const { heartbeat, told } = start("a", { database: shaky });
    await clock.advance(1_000);
    broken = true;
    await clock.advance(3_000);
    expect(told.errors).toEqual(["away", "away", "away"]);
    broken = false;
    await clock.advance(1_000);
    expect(await podNow()).toMatchObject({ beat: 3 });
    // Nothing was observed meanwhile, so the observer sees a gap.
    expect(told.seen.map((seen) => seen.atMs)).toEqual([0, 1_000, 5_000]);
    await heartbeat.stop();
  });

  test("ends the process after that many beats of its own without a breath, and not earlier", async () => {
    let breath = 1;
    const { told } = start("a", { signs: { aliveCount: () => breath, abandonedUpTo: () => 0 } });
    await clock.advance(4_500);
    expect(told.stalls).toBe(0);
    breath++;
    await clock.advance(4_900);
    expect(told.stalls).toBe(0);
    await clock.advance(1_000);
    expect(told.stalls).toBe(1);
    const { beat } = await podNow();
    await clock.advance(60_000);
    expect(await podNow()).toMatchObject({ beat });
    expect(told.stalls).toBe(1);
  });

  test("counts stalls in beats, so a pause of the whole process is none", async () => {
    let breath = 1;
    const { heartbeat, told } = start("a", {
      signs: { aliveCount: () => breath, abandonedUpTo: () => 0 },
    });
    await clock.advance(3_000);
    // Frozen for an hour: on waking, one timer fires late, once.
    clock.jump(3_600_000);
    await clock.advance(500);
    breath++;
    await clock.advance(4_000);
    expect(told.stalls).toBe(0);
    await heartbeat.stop();
  });
});

describe("what pods see of each other", () => {
  test("includes those that hold claims though their row is gone", async () => {
    await database.write([
      sql`insert into ${table("pod")} (pod_id, beat, passes) values ('a', 3, 2)`,
      sql`insert into ${table("task")} (name, status, claimed_by) values
        ('n', 'claimed', 'ghost'), ('n', 'claimed', 'ghost'), ('n', 'claimed', 'a'), ('n', 'completed', 'old')`,
    ]);
    const seen = (await database.read(readPods())).map(toPodSeen);
    expect(
      seen.map(({ podId, status, beat, passes }) => ({ podId, status, beat, passes })),
    ).toEqual([
      { podId: "a", status: "up", beat: 3, passes: 2 },
      { podId: "ghost", status: "down", beat: -1, passes: 0 },
    ]);
  });

  test("marks down only those that haven't beaten since", async () => {
    await database.write([
      sql`insert into ${table("pod")} (pod_id, beat) values ('a', 3), ('b', 4), ('c', 5)`,
    ]);
    const seen = (await database.read(readPods())).map(toPodSeen).slice(0, 2);
    await database.write([sql`update ${table("pod")} set beat = beat + 1 where pod_id = 'b'`]);
    await database.write([markDown(seen)]);
    expect((await pods()).map((row) => row["status"])).toEqual(["down", "up", "up"]);
  });

  test("forgets pods that have been down for long, and no others", async () => {
    await database.write([
      sql`insert into ${table("pod")} (pod_id, status) values ('left', 'down'), ('stuck', 'up')`,
    ]);
    await clock.advance(1_001);
    await database.write([
      sql`insert into ${table("pod")} (pod_id, status) values ('leaving', 'down')`,
      prunePods(1_000),
    ]);
    expect((await pods()).map((row) => row["pod_id"])).toEqual(["stuck", "leaving"]);
  });
});

function counter() {
  let count = 0;
  return () => ++count;
}
