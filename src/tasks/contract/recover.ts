import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Liveness, emptyLiveness, observe, type WatchedPod } from "../../pods/liveness.ts";
import { beat, finishPass, readPods, toPodSeen } from "../../pods/sql.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { createLeader, type LeaderOptions } from "../leader/recover.ts";
import type { Claim } from "../rows.ts";
import { noteRecovery, type Orphan, recoverTasks } from "../sql/recover.ts";

const limits = { heartbeatMs: 1_000, deadAfterMs: 5_000, gapMs: 3_000 };

/** What recovery promises on every store. */
export function recoverContract(kind: StoreKind): void {
  describe(`recovery on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
      await queue.beat("pod-1", "pod-2");
    });
    afterEach(() => queue.close());

    const pods = async () => (await queue.database.read(readPods())).map(toPodSeen);
    const claimOne = async (podId = "pod-1") => {
      const { taskId } = await queue.enqueue("a", 1);
      const [claim] = await queue.claim(podId, ["a"]);
      return { taskId, claim: claim! };
    };
    const orphan = async (claim: Claim, over: Partial<Orphan> = {}): Promise<Orphan> => ({
      taskId: claim.taskId,
      token: claim.token,
      pod: (await pods()).find((each) => each.podId === "pod-1")!,
      ...over,
    });
    const recover = async (...orphans: Orphan[]) => {
      const [, recovered] = await queue.database.write([
        noteRecovery(orphans),
        recoverTasks(orphans),
      ]);
      return recovered!.length;
    };

    test("gives a claim back: uncounted, one death more, the token as it was, and noted", async () => {
      const { taskId, claim } = await claimOne();
      expect(await recover(await orphan(claim))).toBe(1);
      expect(await queue.row(taskId)).toMatchObject({
        status: "pending",
        claimed_by: null,
        claim_call: null,
        claim_token: 1,
        retry_count: 0,
        deaths: 1,
      });
      expect(await queue.events(taskId)).toMatchObject([
        { type: "pod_died", attempt: 1, podId: "pod-1" },
      ]);
    });

    test.each([
      ["another token", async (seen: Orphan) => ({ ...seen, token: seen.token + 1 })],
      ["another pod", async (seen: Orphan) => ({ ...seen, pod: { ...seen.pod, podId: "pod-2" } })],
      [
        "another beat",
        async (seen: Orphan) => {
          await queue.beat("pod-1");
          return seen;
        },
      ],
      [
        "a pod that was unknown and is back",
        async (seen: Orphan) => ({ ...seen, pod: { ...seen.pod, beat: -1 } }),
      ],
      [
        "a row that has completed",
        async (seen: Orphan) => {
          await queue.database.write([sql`update ${rowsOf} set status = 'completed'`]);
          return seen;
        },
      ],
      [
        "a row that is pending already",
        async (seen: Orphan) => {
          await queue.database.write([sql`update ${rowsOf} set status = 'pending'`]);
          return seen;
        },
      ],
      [
        "a row that has failed",
        async (seen: Orphan) => {
          await queue.database.write([sql`update ${rowsOf} set status = 'failed'`]);
          return seen;
        },
      ],
    ])("changes nothing with %s", async (_, change) => {
      const { taskId, claim } = await claimOne();
      const changed = await change(await orphan(claim));
      const before = await queue.row(taskId);
      expect(await recover(changed)).toBe(0);
      expect(await queue.row(taskId)).toEqual(before);
      expect(await queue.events(taskId)).toEqual([]);
    });

    test("by two at once equals recovery by one", async () => {
      await queue.enqueueMany(
        "a",
        Array.from({ length: 20 }, (_, at) => at),
      );
      const claims = await queue.claim("pod-1", ["a"], 20);
      const orphans = await Promise.all(claims.map((claim) => orphan(claim)));
      const counts = await Promise.all([recover(...orphans), recover(...orphans)]);
      // They may share the work, but nothing is recovered by both.
      expect(counts[0]! + counts[1]!).toBe(20);
      expect(await queue.count(sql`deaths = 1 and status = 'pending'`)).toBe(20);
      expect(await queue.events(claims[0]!.taskId)).toHaveLength(1);
    });

    test("cancels what was to be cancelled, and the dead pod can't finish it any more", async () => {
      const { taskId, claim } = await claimOne();
      await queue.cancel(taskId);
      await recover(await orphan(claim));
      expect(await queue.row(taskId)).toMatchObject({ status: "cancelled", claim_token: 2 });
    });

    test("fails a task in the store when the fourth pod has died under it, in the same statement", async () => {
      const { taskId } = await queue.enqueue("a", 1);
      for (let death = 1; death <= 4; death++) {
        await queue.database.write([
          sql`update ${rowsOf} set status = 'claimed', claimed_by = 'pod-1', claim_token = claim_token + 1
            where status = 'pending'`,
        ]);
        const row = await queue.row(taskId);
        const claim = { taskId, token: Number(row["claim_token"]) } as Claim;
        await recover(await orphan(claim));
        const task = (await queue.get(taskId))!;
        expect(task).toMatchObject({ deaths: death, failures: 0 });
        expect(task.status).toBe(death < 4 ? "pending" : "failed");
        // From the second death on it is out of the others' way.
        const claimable = await queue.count(sql`status = 'pending' and deaths < 2`);
        expect(claimable).toBe(death < 2 ? 1 : 0);
      }
      expect(await queue.get(taskId)).toMatchObject({ error: { code: "pod_died" }, claimToken: 5 });
      expect(await queue.events(taskId)).toHaveLength(4);
    });
  });

  describe(`the leader on ${kind.name}`, () => {
    let queue: TasksHarness;
    let liveness: Liveness;
    beforeEach(async () => {
      queue = await openTasks(kind);
      liveness = emptyLiveness;
      await queue.beat("pod-1");
    });
    afterEach(() => queue.close());

    /** Lets seconds pass in which the given pods beat, with `pod-1` watching. */
    const seconds = async (count: number, ...beating: string[]) => {
      for (let second = 0; second < count; second++) {
        await queue.pass(1_000);
        await queue.beat("pod-1", ...beating);
        const pods = (await queue.database.read(readPods())).map(toPodSeen);
        liveness = observe(liveness, { atMs: queue.clock.monotonic(), pods }, limits);
      }
    };
    const recovered: number[] = [];
    const lead = (more: Partial<LeaderOptions> = {}) =>
      createLeader({
        podId: "pod-1",
        database: queue.database,
        limits,
        retentionMs: 60_000,
        ids: queue.ids,
        onRecovered: (tasks) => recovered.push(tasks),
        ...more,
      });

    test("gives back the tasks of pods that fell silent, and of no others", async () => {
      await queue.beat("pod-2", "pod-3");
      await queue.enqueueMany(
        "a",
        Array.from({ length: 1_300 }, (_, at) => at),
      );
      await queue.claim("pod-2", ["a"], 1_201);
      await queue.claim("pod-3", ["a"], 10);
      await seconds(5, "pod-2", "pod-3");
      await seconds(4, "pod-3");
      await lead().pass(liveness);
      expect(await queue.count(sql`status = 'claimed'`)).toBe(1_211);
      recovered.length = 0;
      await seconds(2, "pod-3");
      expect(await lead().pass(liveness)).toBe(true);
      expect(recovered.reduce((sum, each) => sum + each, 0)).toBe(1_201);
      expect(await queue.count(sql`status = 'claimed' and claimed_by = 'pod-3'`)).toBe(10);
      expect(await queue.count(sql`status = 'claimed'`)).toBe(10);
      const pods = await queue.database.read(
        sql`select pod_id, status, passes from ${table("pod")} order by pod_id`,
      );
      expect(pods).toEqual([
        { pod_id: "pod-1", status: "up", passes: 2 },
        { pod_id: "pod-2", status: "down", passes: 0 },
        { pod_id: "pod-3", status: "up", passes: 0 },
      ]);
    });

    test("gives back the tasks of a pod whose process is gone in the next pass, and only if it hasn't beaten since", async () => {
      const host = "machine 1, process 2";
      const beatOfGone = () => queue.database.write([beat("pod-2", "{}", 0, { host })]);
      /** What `pod-1` sees, on the machine of that process. */
      const seen = async () => {
        await seconds(1);
        const mark = (pod: WatchedPod) => ({ ...pod, gone: pod.host === host });
        const pods = [...liveness.pods.values()].map((pod) => [pod.podId, mark(pod)] as const);
        return { ...liveness, pods: new Map(pods) };
      };
      await beatOfGone();
      await queue.enqueueMany("a", [1, 2]);
      await queue.claim("pod-2", ["a"], 2);

      const before = await seen();
      await beatOfGone();
      expect(await lead().pass(before)).toBe(true);
      expect(await queue.count(sql`status = 'claimed'`)).toBe(2);

      expect(await lead().pass(await seen())).toBe(true);
      expect(await queue.count(sql`status = 'pending' and deaths = 1`)).toBe(2);
      const [row] = await queue.database.read(
        sql`select status from ${table("pod")} where pod_id = 'pod-2'`,
      );
      expect(row).toEqual({ status: "down" });
    });

    test("gives back the tasks of unknown pods", async () => {
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, status, claimed_by) values ('t', 'a', 'claimed', 'ghost')`,
      ]);
      await seconds(5);
      await lead().pass(liveness);
      expect(await queue.row("t")).toMatchObject({ status: "claimed" });
      await seconds(1);
      await lead().pass(liveness);
      expect(await queue.row("t")).toMatchObject({ status: "pending", deaths: 1 });
    });

    test("stores every other pass while there is nothing to do, and each where rest would look like a stuck leader", async () => {
      const passesOf = async (leader: ReturnType<typeof createLeader>) => {
        const stored = async () => {
          const [row] = await queue.database.read(
            sql`select passes from ${table("pod")} where pod_id = 'pod-1'`,
          );
          return Number(row!["passes"]);
        };
        const before = await stored();
        const after: number[] = [];
        for (let pass = 0; pass < 4; pass++) {
          expect(await leader.pass(liveness)).toBe(true);
          after.push((await stored()) - before);
        }
        return after;
      };
      await seconds(1);
      expect(await passesOf(lead())).toEqual([1, 1, 2, 2]);
      const short = { ...limits, deadAfterMs: limits.heartbeatMs * 3 };
      expect(await passesOf(lead({ limits: short }))).toEqual([1, 2, 3, 4]);
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, status, claimed_by) values ('t', 'a', 'claimed', 'ghost')`,
      ]);
      const leader = lead();
      await leader.pass(liveness);
      await seconds(6);
      await leader.pass(liveness);
      expect(await queue.row("t")).toMatchObject({ status: "pending" });
    });

    test("does nothing on a pod that doesn't lead", async () => {
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, status, claimed_by) values ('t', 'a', 'claimed', 'ghost')`,
      ]);
      await seconds(6);
      await queue.beat("pod-2");
      await queue.database.write([finishPass("pod-1")]);
      await seconds(1, "pod-2");
      expect(await lead({ podId: "pod-2" }).pass(liveness)).toBe(false);
      expect(await queue.row("t")).toMatchObject({ status: "claimed" });
    });

    test("deletes ended tasks with their events after the retention, and only those", async () => {
      await queue.enqueueMany(
        "a",
        Array.from({ length: 3 }, (_, at) => at),
      );
      const statuses = ["completed", "failed", "cancelled", "claimed"];
      await queue.database.write(
        statuses.flatMap((status) => [
          sql`insert into ${rowsOf} (task_id, name, status, claimed_by) values (${`old ${status}`}, 'b', ${status}, 'pod-1')`,
          sql`insert into ${table("task_event")} (task_id, seq, type) values (${`old ${status}`}, 1, 'noted')`,
        ]),
      );
      await seconds(1);
      await queue.pass(60_000);
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, status) values ('young', 'b', 'completed')`,
      ]);
      await lead().pass(liveness);
      const left = await queue.database.read(
        sql`select task_id from ${rowsOf} where name = 'b' order by task_id`,
      );
      expect(left.map((row) => row["task_id"])).toEqual(["old claimed", "young"]);
      const notes = await queue.database.read(sql`select task_id from ${table("task_event")}`);
      expect(notes).toEqual([{ task_id: "old claimed" }]);
      expect(await queue.count(sql`name = 'a' and status = 'pending'`)).toBe(3);
    });

    test("walks through a table of any length, ten thousand tasks a pass", async () => {
      for (const length of [10_000, 1_700]) {
        await queue.enqueueMany(
          "a",
          Array.from({ length }, (_, at) => at),
        );
      }
      await queue.database.write([sql`update ${rowsOf} set status = 'completed'`]);
      await queue.pass(60_001);
      await seconds(1);
      const leader = lead();
      const left: number[] = [];
      for (let pass = 0; pass < 2; pass++) {
        await leader.pass(liveness);
        left.push(await queue.count());
      }
      expect(left).toEqual([1_700, 0]);
    });

    test("walks no further than where tasks are too young, except about once an hour", async () => {
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, status) values ('made by hand', 'b', 'completed')`,
      ]);
      await queue.pass(60_001);
      const inputs = Array.from({ length: 10_000 }, (_, at) => at);
      await queue.enqueueMany("a", inputs);
      await seconds(1);
      const leader = lead();
      let passes = 0;
      while ((await queue.count(sql`name = 'b'`)) > 0) {
        await leader.pass(liveness);
        passes++;
      }
      // Each walk is a page and a rest; the whole one has two pages.
      expect(passes).toBe(59 * 2 + 2);
    });

    test("keeps tasks as long as their outcome demands", async () => {
      const { taskId } = await queue.enqueue("a", 1);
      const statuses = ["pending", "completed", "failed", "cancelled"];
      await queue.database.write(
        statuses.map(
          (status) => sql`
          insert into ${rowsOf} (task_id, name, status) values (${status}, 'b', ${status})`,
        ),
      );
      const retentionMs = { completed: 60_000, cancelled: 120_000, failed: 180_000 };
      const left: string[][] = [];
      for (const byMs of [62_000, 60_000, 60_000]) {
        await queue.pass(byMs);
        await seconds(1);
        await lead({ retentionMs }).pass(liveness);
        const rows = await queue.database.read(sql`select task_id from ${rowsOf} where name = 'b'`);
        left.push(rows.map((row) => row["task_id"] as string).sort());
      }
      expect(left).toEqual([
        ["cancelled", "failed", "pending"],
        ["failed", "pending"],
        ["pending"],
      ]);
      expect(await queue.get(taskId)).toMatchObject({ status: "pending" });
    });

    test("keeps what was just enqueued, which may be on its way again", async () => {
      await queue.enqueue("a", 1);
      await queue.database.write([sql`update ${rowsOf} set status = 'completed'`]);
      for (const left of [1, 0]) {
        await queue.pass(31_000);
        await seconds(1);
        await lead({ retentionMs: 60_000 }).pass(liveness);
        expect(await queue.count()).toBe(left);
      }
    });

    test("survives a store that fails in the middle of its pass", async () => {
      await seconds(1);
      const broken = { ...queue.database, read: () => Promise.reject(new Error("away")) };
      expect(await lead({ database: broken }).pass(liveness)).toBe(false);
      expect(await lead().pass(liveness)).toBe(true);
    });
  });
}
