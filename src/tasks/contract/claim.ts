import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import { rows, sql, table } from "../../store/sql.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { claimReserved, claimTasks, releaseCall, reserveAlone, unparkDue } from "../sql/claim.ts";

type Given = { taskId: string; name: string; priority: number; createdAtMs: number };

/** What claiming promises on every store, statement by statement. */
export function claimContract(kind: StoreKind): void {
  describe(`claiming on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
      await queue.beat("pod-1", "pod-2");
    });
    afterEach(() => queue.close());

    const insert = (given: readonly Given[]) =>
      queue.database.write([
        sql`delete from ${rowsOf}`,
        sql`insert into ${rowsOf} (task_id, name, priority, created_at, run_at)
          select task_id, name, priority, created_at, 0 from ${rows(
            { task_id: "text", name: "text", priority: "integer", created_at: "integer" },
            given.map((each) => [each.taskId, each.name, each.priority, each.createdAtMs]),
          )} fresh where true`,
      ]);
    const backlog = fc.uniqueArray(
      fc.record({
        taskId: fc.integer({ min: 0, max: 999 }).map((id) => `t${String(id).padStart(3, "0")}`),
        name: fc.constantFrom("a", "b", "c"),
        priority: fc.integer({ min: -2, max: 2 }),
        createdAtMs: fc.integer({ min: 1, max: 5 }),
      }),
      { selector: (each) => each.taskId, maxLength: 25 },
    );
    const calls = fc.array(
      fc.record({
        names: fc.subarray(["a", "b", "c", "nobody"], { minLength: 1 }),
        limit: fc.integer({ min: 1, max: 8 }),
        oldestFirst: fc.boolean(),
      }),
      { minLength: 1, maxLength: 6 },
    );

    test("goes on from a place in the order, and leaves what is before it", async () => {
      const at = (taskId: string, priority: number, createdAtMs: number, name = "a") => ({
        taskId,
        name,
        priority,
        createdAtMs,
      });
      await insert([
        at("before", 0, 4),
        at("there", 0, 5),
        at("behind", 0, 6, "b"),
        at("higher", 1, 9),
        at("lower", -1, 1),
      ]);
      const from = { priority: 0, createdAt: 5 };
      const claimed = await queue.claim("pod-1", ["a", "b"], 10, { from });
      expect(claimed.map((claim) => claim.taskId).toSorted()).toEqual([
        "behind",
        "higher",
        "there",
      ]);
      const rest = await queue.claim("pod-1", ["a", "b"], 10);
      expect(rest.map((claim) => claim.taskId).toSorted()).toEqual(["before", "lower"]);
    });

    test("leaves what saw a pod die to a claim from the head, where its pod holds too many to list", async () => {
      await insert([
        { taskId: "died", name: "a", priority: 0, createdAtMs: 1 },
        { taskId: "fresh", name: "a", priority: 0, createdAtMs: 2 },
      ]);
      await queue.database.write([sql`update ${rowsOf} set deaths = 1 where task_id = 'died'`]);
      const from = { priority: 0, createdAt: 1 };
      const take = async (call: number, held: readonly string[], more = {}) => {
        const claim = { podId: "pod-1", call, names: ["a"], limit: 9, held, ...more };
        const [claimed] = await queue.database.write([claimTasks(claim)]);
        return claimed!.map((row) => row["task_id"]);
      };
      const many = Array.from({ length: 100 }, (_, at) => `held ${at}`);
      expect(await take(701, many, { from })).toEqual(["fresh"]);
      expect(await take(702, [...many, "died"])).toEqual([]);
      expect(await take(703, ["died"], { from })).toEqual([]);
      expect(await take(704, many)).toEqual(["died"]);
    });

    test("takes by priority, then age, then id, or oldest first with that option: as a sort would", async () => {
      await fc.assert(
        fc.asyncProperty(backlog, calls, async (given, made) => {
          await insert(given);
          let left = [...given];
          for (const { names, limit, oldestFirst } of made) {
            const claimed = await queue.claim("pod-1", names, limit, { oldestFirst });
            const expected = left
              .filter((each) => names.includes(each.name))
              .toSorted(
                (a, b) =>
                  (oldestFirst ? 0 : b.priority - a.priority) ||
                  a.createdAtMs - b.createdAtMs ||
                  (a.taskId < b.taskId ? -1 : 1),
              )
              .slice(0, limit)
              .map((each) => each.taskId);
            expect(claimed.map((each) => each.taskId).toSorted()).toEqual(expected.toSorted());
            left = left.filter((each) => !expected.includes(each.taskId));
          }
        }),
        { numRuns: 40 },
      );
    });

    test("gives a task to one of many that claim at once", async () => {
      await queue.enqueueMany(
        "a",
        Array.from({ length: 50 }, (_, at) => at),
      );
      const claimed = await Promise.all(
        Array.from({ length: 20 }, (_, at) => queue.claim(`pod-${1 + (at % 2)}`, ["a"], 5)),
      );
      const ids = claimed.flat().map((each) => each.taskId);
      expect(ids).toHaveLength(50);
      expect(new Set(ids).size).toBe(50);
    });

    test("raises the token with every claim, and never gives one out twice", async () => {
      const { taskId } = await queue.enqueue("a", 1);
      const tokens: number[] = [];
      for (let round = 0; round < 5; round++) {
        const [claim] = await queue.claim("pod-1", ["a"]);
        tokens.push(claim!.token);
        await queue.recover("pod-1", [claim!]);
        await queue.database.write([sql`update ${rowsOf} set deaths = 0`]);
      }
      expect(tokens).toEqual([1, 2, 3, 4, 5]);
      expect(await queue.claim("pod-2", ["a"])).toMatchObject([{ taskId, token: 6, failures: 0 }]);
    });

    test("leaves alone what isn't due, and takes it when it is", async () => {
      await queue.enqueue("a", "later", { delayMs: 10_000 });
      // By hand, without the mark that keeps it out of the index.
      await queue.database.write([
        sql`insert into ${rowsOf} (name, run_at) select 'a', run_at from ${rowsOf}`,
      ]);
      const claim = async () => {
        await queue.database.write([unparkDue()]);
        return [
          ...(await queue.claim("pod-1", ["a"], 9)),
          ...(await queue.claim("pod-1", ["a"], 9, { oldestFirst: true })),
        ];
      };
      expect(await claim()).toEqual([]);
      await queue.pass(9_000);
      expect(await claim()).toEqual([]);
      await queue.pass(1_000);
      expect(await claim()).toHaveLength(2);
    });

    test("leaves alone names that it wasn't given, and what others hold or have ended", async () => {
      await queue.enqueueMany("other", [1, 2]);
      await queue.database.write([
        sql`insert into ${rowsOf} (name, status) values ('a', 'completed'), ('a', 'failed'), ('a', 'cancelled')`,
        sql`insert into ${rowsOf} (name, status, claimed_by) values ('a', 'claimed', 'pod-2')`,
      ]);
      expect(await queue.claim("pod-1", ["a", "b"], 100)).toEqual([]);
      expect(await queue.claim("pod-1", ["a", "b"], 100, { oldestFirst: true })).toEqual([]);
    });

    test("works for as many names as a pod may have handlers", async () => {
      const names = Array.from({ length: 500 }, (_, at) => `n${at}`);
      await queue.enqueue("n499", 1);
      expect(await queue.claim("pod-1", names, 5)).toHaveLength(1);
      await queue.enqueue("n498", 1);
      expect(await queue.claim("pod-1", names, 5, { oldestFirst: true })).toHaveLength(1);
    });

    test("is refused to a pod that isn't known", async () => {
      await queue.enqueue("a", 1);
      expect(await queue.claim("stranger", ["a"])).toEqual([]);
      expect(await queue.claim("pod-1", ["a"])).toHaveLength(1);
    });
  });

  describe(`a claim that was given up on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
      await queue.beat("pod-1", "pod-2");
      await queue.enqueueMany("a", [1, 2, 3]);
    });
    afterEach(() => queue.close());

    test("is given back whole, with a higher token, and no other claim is", async () => {
      const [kept] = await queue.claim("pod-1", ["a"], 1, { call: 101 });
      const [lost] = await queue.claim("pod-1", ["a"], 1, { call: 102 });
      const [others] = await queue.claim("pod-2", ["a"], 1, { call: 102 });
      await queue.database.write(releaseCall("pod-1", 102));
      expect(await queue.row(kept!.taskId)).toMatchObject({ status: "claimed", claim_token: 1 });
      expect(await queue.row(others!.taskId)).toMatchObject({ status: "claimed", claim_token: 1 });
      expect(await queue.row(lost!.taskId)).toMatchObject({
        status: "pending",
        claimed_by: null,
        claim_call: null,
        claim_token: 2,
        retry_count: 0,
        deaths: 0,
      });
    });

    test("can't land any more, and neither can an older one; newer ones can", async () => {
      await queue.database.write(releaseCall("pod-1", 102));
      expect(await queue.claim("pod-1", ["a"], 9, { call: 102 })).toEqual([]);
      expect(await queue.claim("pod-1", ["a"], 9, { call: 101, oldestFirst: true })).toEqual([]);
      expect(await queue.claim("pod-1", ["a"], 9, { call: 103 })).toHaveLength(3);
      await queue.database.write(releaseCall("pod-1", 102));
      expect(await queue.count(sql`status = 'claimed'`)).toBe(3);
      const [pod] = await queue.database.read(
        sql`select claim_floor from ${table("pod")} where pod_id = 'pod-1'`,
      );
      expect(pod).toEqual({ claim_floor: 102 });
    });
  });

  describe(`a task that must run alone on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
      await queue.beat("pod-1", "pod-2");
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, deaths) values ('poison', 'a', 2)`,
      ]);
    });
    afterEach(() => queue.close());

    const reserve = async (podId: string, names = ["a"]) => {
      const [reserved] = await queue.database.write([reserveAlone(podId, names)]);
      return reserved!.map((row) => row["task_id"] as string);
    };
    let calls = 900;
    const claimIt = async (podId: string) => {
      const call = { podId, call: ++calls, names: ["a"], limit: 1 };
      const [claimed] = await queue.database.write([claimReserved(call, "poison")]);
      return claimed!.length;
    };

    test("isn't claimed among others, but reserved for one pod, which then claims it", async () => {
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, status, claimed_by)
          values ('other', 'b', 'claimed', 'pod-2')`,
      ]);
      expect(await queue.claim("pod-1", ["a"], 9)).toEqual([]);
      expect(await queue.claim("pod-1", ["a"], 9, { oldestFirst: true })).toEqual([]);
      expect(await reserve("pod-1", ["b"])).toEqual([]);
      expect(await reserve("pod-1")).toEqual(["poison"]);
      // A pod that would have to drain first leaves it to the one that does so already.
      expect(await reserve("pod-2")).toEqual([]);
      expect(await reserve("pod-1")).toEqual(["poison"]);
      expect(await claimIt("pod-1")).toBe(1);
      expect(await queue.row("poison")).toMatchObject({ status: "claimed", claim_token: 1 });
      expect(await claimIt("pod-1")).toBe(0);
      // The row keeps its pod's name when it has ended, and that is no right to run it again.
      await queue.database.write([sql`update ${rowsOf} set status = 'completed'`]);
      expect(await claimIt("pod-1")).toBe(0);
    });

    test("goes to a pod that holds nothing, though another drains for it", async () => {
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, status, claimed_by)
          values ('other', 'b', 'claimed', 'pod-1')`,
      ]);
      expect(await reserve("pod-1")).toEqual(["poison"]);
      expect(await reserve("pod-2")).toEqual(["poison"]);
      expect(await claimIt("pod-2")).toBe(1);
      expect(await claimIt("pod-1")).toBe(0);
    });

    test("is reserved by another when its pod has left or is unknown", async () => {
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, status, claimed_by)
          values ('other', 'b', 'claimed', 'pod-2')`,
      ]);
      expect(await reserve("pod-1")).toEqual(["poison"]);
      await queue.database.write([
        sql`update ${table("pod")} set status = 'down' where pod_id = 'pod-1'`,
      ]);
      expect(await reserve("pod-2")).toEqual(["poison"]);
      await queue.database.write([
        sql`update ${rowsOf} set claimed_by = 'nobody' where task_id = 'poison'`,
      ]);
      expect(await reserve("pod-2")).toEqual(["poison"]);
    });
  });
}
