import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { rows, sql, table } from "../../store/sql.ts";
import type { ListOptions } from "../tasks.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { type TaskStatus, taskStatuses } from "../rows.ts";
import { cancelTask } from "../sql/inspect.ts";

const absent = "019a0000-0000-7000-8000-000000000000";

/** What looking at tasks, and cancelling and retrying them from outside, promises on every store. */
export function inspectContract(kind: StoreKind): void {
  describe(`reading tasks on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
      await queue.beat("pod-1");
    });
    afterEach(() => queue.close());

    type Given = { id: number; name: string; status: TaskStatus; tenant: string };
    const given = fc.uniqueArray(
      fc.record<Given>({
        id: fc.nat(9_999),
        name: fc.constantFrom("a", "b"),
        status: fc.constantFrom(...taskStatuses),
        tenant: fc.constantFrom("default", "acme"),
      }),
      { selector: (each) => each.id, maxLength: 30 },
    );
    const idOf = ({ id }: Given) => `t${String(id).padStart(4, "0")}`;
    const insert = (tasks: readonly Given[]) =>
      queue.database.write([
        sql`delete from ${rowsOf}`,
        sql`insert into ${rowsOf} (task_id, name, status, tenant, claimed_by)
          select task_id, name, status, tenant, 'pod-1' from ${rows(
            { task_id: "text", name: "text", status: "text", tenant: "text" },
            tasks.map((each) => [idOf(each), each.name, each.status, each.tenant]),
          )} fresh where true`,
      ]);

    test("lists by any filter, page by page, newest first, without overlap or gap", async () => {
      const filters = fc.record(
        {
          name: fc.constantFrom("a", "b", "nobody"),
          status: fc.constantFrom(...taskStatuses),
          tenant: fc.constantFrom("default", "acme"),
        },
        { requiredKeys: [] },
      );
      await fc.assert(
        fc.asyncProperty(
          given,
          filters,
          fc.integer({ min: 1, max: 12 }),
          async (tasks, filter, limit) => {
            await insert(tasks);
            const found: string[] = [];
            let cursor: string | null = null;
            do {
              const options: ListOptions = { ...filter, limit, ...(cursor !== null && { cursor }) };
              const page = await queue.list(options);
              expect(page.tasks.length).toBeLessThanOrEqual(limit);
              expect(page.next === null || page.tasks.length === limit).toBe(true);
              found.push(...page.tasks.map((each) => each.taskId));
              expect(found.length).toBeLessThanOrEqual(tasks.length);
              cursor = page.next;
            } while (cursor !== null);
            const expected = tasks
              .filter((each) => filter.name === undefined || each.name === filter.name)
              .filter((each) => filter.status === undefined || each.status === filter.status)
              .filter((each) => filter.tenant === undefined || each.tenant === filter.tenant)
              .map(idOf)
              .toSorted()
              .toReversed();
            expect(found).toEqual(expected);
          },
        ),
        { numRuns: 30 },
      );
    });

    test("gives how tasks stand by their ids, without those that don't exist", async () => {
      await insert([
        { id: 1, name: "a", status: "pending", tenant: "default" },
        { id: 2, name: "b", status: "claimed", tenant: "acme" },
        { id: 3, name: "a", status: "failed", tenant: "default" },
      ]);
      const states = await queue.states(["t0002", absent, "t0001"]);
      expect(states.toSorted((one, other) => (one.taskId < other.taskId ? -1 : 1))).toEqual([
        {
          taskId: "t0001",
          name: "a",
          tenant: "default",
          status: "pending",
          claimedBy: null,
          failures: 0,
          deaths: 0,
          cancelRequested: false,
          runAtMs: expect.any(Number),
          updatedAtMs: expect.any(Number),
        },
        expect.objectContaining({ taskId: "t0002", status: "claimed", claimedBy: "pod-1" }),
      ]);
      expect(await queue.states([])).toEqual([]);
      const many = Array.from({ length: 1_001 }, (_, at) => `t${at}`);
      await expect(queue.states(many)).rejects.toMatchObject({ code: "invalid_option" });
    });

    test("a page takes 1 MiB at most, unless its first task alone does, and the pages hold all", async () => {
      const sizes = [10, 400_000, 400_000, 400_000, 1_200_000, 10, 10];
      const ids = sizes.map((_, at) => `t${at}`);
      await queue.database.write([
        sql`delete from ${rowsOf}`,
        sql`insert into ${rowsOf} (task_id, name, payload)
          select task_id, 'a', payload from ${rows(
            { task_id: "text", payload: "text" },
            sizes.map((size, at) => [ids[at]!, JSON.stringify("x".repeat(size))]),
          )} fresh where true`,
      ]);
      const pages: string[][] = [];
      let cursor: string | null = null;
      do {
        const page = await queue.list({ limit: 1_000, ...(cursor !== null && { cursor }) });
        pages.push(page.tasks.map(({ taskId }) => taskId));
        cursor = page.next;
      } while (cursor !== null);
      expect(pages).toEqual([["t6", "t5"], ["t4"], ["t3", "t2"], ["t1", "t0"]]);
    });

    test("counts as plain SQL does", async () => {
      await fc.assert(
        fc.asyncProperty(given, async (tasks) => {
          await insert(tasks);
          const { byStatus, byName } = await queue.stats();
          for (const status of taskStatuses) {
            expect(byStatus[status]).toBe(await queue.count(sql`status = ${status}`));
          }
          const names = [...new Set(tasks.map((each) => each.name))];
          expect(Object.keys(byName).toSorted()).toEqual(names.toSorted());
          for (const name of names) {
            const counted = tasks.filter((each) => each.name === name && each.status === "failed");
            expect(byName[name]!.failed).toBe(counted.length);
          }
        }),
        { numRuns: 15 },
      );
    });

    test.each([
      [{ limit: 0 }, "limit must be"],
      [{ limit: 1_001 }, "limit must be"],
      [{ status: "done" }, "status must be one of pending, claimed, completed, failed, cancelled"],
      [{ state: "failed" }, "state must be one of ready, delayed, waiting, blocked, alone"],
      [{ statuses: "failed" }, "unknown option `statuses`, did you mean `status`?"],
    ])("refuses to list by %j", async (options, message) => {
      await expect(queue.list(options as object)).rejects.toMatchObject({
        code: "invalid_option",
        message: expect.stringContaining(message),
      });
    });

    test("rejects where there is no such task", async () => {
      expect(await queue.get(absent)).toBeUndefined();
      expect(await queue.events(absent)).toEqual([]);
      for (const asked of [
        () => queue.cancel(absent),
        () => queue.retry(absent),
        () => queue.waitFor(absent),
        () => queue.settled(absent),
      ]) {
        await expect(asked()).rejects.toMatchObject({
          code: "not_found",
          details: { taskId: absent },
        });
      }
    });

    test("shows rows that were written by hand, whatever they hold", async () => {
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, payload, status, result, error, progress)
          values ('t', 'a', 'not json', 'failed', '{"a":1}', 'nor this', '[1')`,
      ]);
      expect(await queue.get("t")).toMatchObject({
        payload: "not json",
        error: "nor this",
        progress: "[1",
      });
      expect((await queue.list()).tasks).toHaveLength(1);
    });

    test("cancels at once what no pod runs, also while it waits for its time", async () => {
      for (const delayMs of [0, 60_000]) {
        const { taskId } = await queue.enqueue("a", 1, { delayMs });
        expect(await queue.cancel(taskId)).toBe("cancelled");
        expect(await queue.cancel(taskId)).toBe("cancelled");
        expect(await queue.get(taskId)).toMatchObject({
          status: "cancelled",
          cancelRequested: true,
        });
        expect((await queue.events(taskId)).map((each) => each.type)).toEqual(["cancel_requested"]);
      }
      await queue.pass(60_001);
      expect(await queue.claim("pod-1", ["a"], 9)).toEqual([]);
    });

    test("aborts it on the pod that runs it, and leaves what has ended as it is", async () => {
      const { taskId } = await queue.enqueue("a", 1);
      await queue.claim("pod-1", ["a"]);
      expect(await queue.cancel(taskId)).toBe("cancelling");
      expect(await queue.cancel(taskId)).toBe("cancelling");
      expect(await queue.row(taskId)).toMatchObject({ status: "claimed", wake: 1, claim_token: 1 });
      for (const status of ["completed", "failed"]) {
        await queue.database.write([
          sql`update ${rowsOf} set status = ${status}, cancel_requested = 0`,
        ]);
        const before = await queue.row(taskId);
        expect(await queue.cancel(taskId)).toBe("finished");
        expect(await queue.row(taskId)).toEqual(before);
      }
    });

    test("starts failed and cancelled tasks over, as a new generation that is noted", async () => {
      for (const status of ["failed", "cancelled"]) {
        const { taskId } = await queue.enqueue("a", 1);
        await queue.database.write([
          sql`update ${rowsOf} set status = ${status}, retry_count = 3, deaths = 4, claim_token = 7,
            cancel_requested = 1, error = '{}', progress = '1' where task_id = ${taskId}`,
        ]);
        await queue.retry(taskId);
        expect(await queue.get(taskId)).toMatchObject({
          status: "pending",
          failures: 0,
          deaths: 0,
          claimToken: 8,
          cancelRequested: false,
          error: null,
          progress: null,
        });
        expect(await queue.events(taskId)).toMatchObject([{ seq: 1, type: "retried" }]);
        expect(await queue.claim("pod-1", ["a"])).toMatchObject([{ taskId, token: 9 }]);
      }
    });

    test("starts over once though the answer was lost and it has failed again since", async () => {
      const { taskId } = await queue.enqueue("a", 1);
      const fail = () =>
        queue.database.write([
          sql`update ${rowsOf} set status = 'failed', claim_token = claim_token + 1`,
        ]);
      await fail();
      let losing = true;
      const client = queue.client({
        database: {
          ...queue.database,
          async write(statements) {
            const answer = await queue.database.write(statements);
            if (!losing) return answer;
            losing = false;
            await fail();
            throw new FlotillaError("unknown_outcome", "the answer was lost");
          },
        },
      });
      await queue.outcome(client.retry(taskId));
      expect(await queue.get(taskId)).toMatchObject({ status: "failed", claimToken: 3 });
      expect((await queue.events(taskId)).map((each) => each.type)).toEqual(["retried"]);
      await client.retry(taskId);
      expect(await queue.get(taskId)).toMatchObject({ status: "pending", claimToken: 4 });
      client.close();
    });

    test("cancels once though the answer was lost and it was started over since", async () => {
      for (const podId of [undefined, "pod-1"]) {
        const { taskId } = await queue.enqueue("a", 1);
        if (podId) await queue.claim(podId, ["a"]);
        let sends = 0;
        const client = queue.client({
          database: {
            ...queue.database,
            async write(statements) {
              const answer = await queue.database.write(statements);
              if (sends++ > 0) return answer;
              await queue.database.write([
                sql`update ${rowsOf} set status = 'cancelled' where task_id = ${taskId}`,
              ]);
              await queue.retry(taskId);
              throw new FlotillaError("unknown_outcome", "the answer was lost");
            },
          },
        });
        expect(await queue.outcome(client.cancel(taskId))).toBe("finished");
        expect(sends).toBe(2);
        expect(await queue.get(taskId)).toMatchObject({
          status: "pending",
          cancelRequested: false,
        });
        expect((await queue.events(taskId)).map((each) => each.type)).toEqual([
          "cancel_requested",
          "retried",
        ]);
        expect(await client.cancel(taskId)).toBe("cancelled");
        client.close();
      }
    });

    test("knows a cancel that was sent before by its own note, whatever other events hold", async () => {
      const { taskId } = await queue.enqueue("a", 1);
      const detail = `{"said":{"request":"mine","wake":7}}`;
      await queue.database.write([
        sql`insert into ${table("task_event")} (task_id, seq, type, detail)
          values (${taskId}, 1, 'complete', ${detail})`,
        ...cancelTask(taskId, "mine"),
      ]);
      expect(await queue.get(taskId)).toMatchObject({ status: "cancelled" });
    });

    test("refuses to start over what hasn't failed", async () => {
      const { taskId } = await queue.enqueue("a", 1);
      for (const status of ["pending", "claimed", "completed"]) {
        await queue.database.write([sql`update ${rowsOf} set status = ${status}`]);
        const before = await queue.row(taskId);
        await expect(queue.retry(taskId)).rejects.toMatchObject({
          code: "conflict",
          message: expect.stringContaining(`is ${status}: only failed and cancelled`),
        });
        expect(await queue.row(taskId)).toEqual(before);
        expect(await queue.events(taskId)).toEqual([]);
      }
    });
  });
}
