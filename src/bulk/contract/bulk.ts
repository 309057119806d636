import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { actAs, type Actor } from "../../audit/actor.ts";
import { forgetful } from "../../dead-letters/contract/harness.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { rowsOf } from "../../tasks/contract/harness.ts";
import { openBulks, type BulkHarness } from "./harness.ts";

const operator: Actor = { kind: "key", keyName: "web", role: "operator" };

/** What bulks promise on every store. */
export function bulkContract(kind: StoreKind): void {
  describe(`a bulk on ${kind.name}`, () => {
    let scene: BulkHarness;
    beforeEach(async () => {
      scene = await openBulks(kind);
    });
    afterEach(() => scene.close());

    const only = async (bulkId: string) => (await scene.bulk.get(bulkId))!;
    /** Lets leaders pass until the bulk has ended. */
    const ended = async (bulkId: string, lead = scene.lead()) => {
      for (let pass = 0; pass < 20; pass++) {
        await lead.pass();
        const bulk = await only(bulkId);
        if (bulk.state !== "running") return bulk;
      }
      throw new Error(`bulk ${bulkId} hasn't ended`);
    };

    test("counts what it would be for, and changes nothing by that", async () => {
      const { bulk, stored, statuses } = scene;
      const taskIds = await stored("mail", 30);
      await stored("mail", 2, "completed");
      await stored("post", 3);
      const preview = await bulk.preview({ action: "cancel", filter: { name: "mail" } });
      expect(preview).toEqual({ matched: 30, isExact: true, sample: taskIds.slice(0, 20) });
      expect(await bulk.preview({ action: "cancel", filter: { name: "none" } })).toEqual({
        matched: 0,
        isExact: true,
        sample: [],
      });
      expect(await statuses(taskIds)).toEqual({ pending: 30 });
      expect((await bulk.list()).bulks).toEqual([]);
    });

    test("cancels all that match, 500 in a transaction, each with an event that names it", async () => {
      const { bulk, stored, statuses, noted, queue } = scene;
      const taskIds = await stored("mail", 1_201);
      const others = await stored("post", 3);
      const { bulkId } = await bulk.start({ action: "cancel", filter: { name: "mail" } });
      const counts: number[] = [];
      const counting = {
        ...queue.database,
        async write(...given: Parameters<typeof queue.database.write>) {
          const tables = await queue.database.write(...given);
          counts.push((await only(bulkId)).done);
          return tables;
        },
      };
      expect(await ended(bulkId, scene.lead(counting))).toMatchObject({
        action: "cancel",
        state: "done",
        matched: 1_201,
        isExact: true,
        done: 1_201,
        skipped: 0,
        refused: 0,
      });
      expect(counts).toEqual([500, 1_000, 1_201]);
      expect(await statuses(taskIds)).toEqual({ cancelled: 1_201 });
      expect(await statuses(others)).toEqual({ pending: 3 });
      expect(await noted("cancel_requested", bulkId)).toEqual(taskIds.map(() => 1));
    });

    test("is gone on with by another leader exactly where the last one stopped", async () => {
      const { bulk, stored, statuses, noted } = scene;
      const taskIds = await stored("mail", 2_300, "failed");
      const { bulkId } = await bulk.start({ action: "retry", filter: { name: "mail" } });
      let leading = 2;
      // It leads for two batches.
      await scene.lead(undefined, () => leading-- > 0).pass();
      expect(await only(bulkId)).toMatchObject({
        state: "running",
        done: 1_000,
        lastTaskId: taskIds[999],
      });
      expect(await ended(bulkId)).toMatchObject({ state: "done", done: 2_300 });
      expect(await statuses(taskIds)).toEqual({ pending: 2_300 });
      expect(await noted("retried", bulkId)).toEqual(taskIds.map(() => 1));
    });

    test("does and counts nothing twice under several leaders whose answers get lost", async () => {
      const { bulk, stored, statuses, noted, queue } = scene;
      const taskIds = await stored("mail", 2_600, "failed");
      const { bulkId } = await bulk.start({ action: "retry", filter: { status: "failed" } });
      let writes = 0;
      const lossy = forgetful(queue.database, () => ++writes % 2 === 0);
      const leads = [scene.lead(), scene.lead(lossy), scene.lead(lossy)];
      for (let round = 0; round < 5; round++) {
        await queue.outcome(Promise.all(leads.map((lead) => lead.pass())), { stepMs: 50 });
      }
      expect(await only(bulkId)).toMatchObject({
        state: "done",
        done: 2_600,
        skipped: 0,
        refused: 0,
      });
      expect(await statuses(taskIds)).toEqual({ pending: 2_600 });
      expect(await noted("retried", bulkId)).toEqual(taskIds.map(() => 1));
      expect(writes).toBeGreaterThan(2);
    });

    test("skips what has changed since it was seen, and passes over what no longer matches", async () => {
      const { bulk, stored, statuses, queue } = scene;
      const taskIds = await stored("mail", 6);
      const filter = { name: "mail", status: "pending" } as const;
      const { bulkId } = await bulk.start({ action: "cancel", filter });
      const end = (taskId: string) =>
        queue.database.write([
          sql`update ${rowsOf} set status = 'completed' where task_id = ${taskId}`,
        ]);
      // Ended between the preview and the first look of the leader.
      await end(taskIds[0]!);
      let looks = 0;
      const slow = {
        ...queue.database,
        async read(...given: Parameters<typeof queue.database.read>) {
          const found = await queue.database.read(...given);
          // Ended, and claimed, between that look and its write.
          if (found.some((row) => "walked" in row) && looks++ === 0) {
            await end(taskIds[1]!);
            await queue.beat("pod-1");
            await queue.database.write([
              sql`update ${rowsOf} set status = 'claimed', claimed_by = 'pod-1', claim_token = claim_token + 1
                where task_id = ${taskIds[2]!}`,
            ]);
          }
          return found;
        },
      };
      expect(await ended(bulkId, scene.lead(slow))).toMatchObject({
        state: "done",
        matched: 6,
        done: 3,
        skipped: 2,
        refused: 0,
      });
      expect(await statuses(taskIds)).toEqual({ completed: 2, claimed: 1, cancelled: 3 });
      expect(Number((await queue.row(taskIds[2]!))["cancel_requested"])).toBe(0);
    });

    test("leaves alone what was stored after it began", async () => {
      const { bulk, stored, statuses, queue } = scene;
      const taskIds = await stored("mail", 3);
      const { bulkId } = await bulk.start({ action: "cancel", filter: { name: "mail" } });
      const [earlier] = taskIds.toSorted();
      const [row] = await queue.database.read(
        sql`select created_at from ${table("bulk")} where bulk_id = ${bulkId}`,
      );
      // One with a later id, and one that was given an id that sorts before the others.
      const later = await stored("mail", 1);
      const first = `-${earlier!}`;
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, created_at)
          values (${first}, 'mail', ${Number(row!["created_at"]) + 1})`,
      ]);
      expect(await ended(bulkId)).toMatchObject({ state: "done", done: 3, skipped: 0 });
      expect(await statuses([...later, first])).toEqual({ pending: 2 });
    });

    test("is stopped between two batches, and what it has done stays done", async () => {
      const { bulk, stored, statuses } = scene;
      const taskIds = await stored("mail", 1_200);
      const { bulkId } = await bulk.start({ action: "cancel", filter: { name: "mail" } });
      let leading = 1;
      await scene.lead(undefined, () => leading-- > 0).pass();
      const stopped = await bulk.stop(bulkId);
      expect(stopped).toMatchObject({ state: "stopped", done: 500, lastTaskId: taskIds[499] });
      await scene.lead().pass();
      expect(await only(bulkId)).toEqual(stopped);
      expect(await statuses(taskIds)).toEqual({ cancelled: 500, pending: 700 });
      expect(await bulk.follow(bulkId)).toEqual(stopped);
      await expect(bulk.stop("none")).rejects.toMatchObject({ code: "not_found" });
    });

    test("that is stopped while a batch is on its way is changed by that batch in no way", async () => {
      const { bulk, stored, statuses, queue } = scene;
      const taskIds = await stored("mail", 10);
      const { bulkId } = await bulk.start({ action: "cancel", filter: { name: "mail" } });
      const late = {
        ...queue.database,
        async write(...given: Parameters<typeof queue.database.write>) {
          await bulk.stop(bulkId).catch(() => {});
          return queue.database.write(...given);
        },
      };
      await scene.lead(late).pass();
      expect(await only(bulkId)).toMatchObject({ state: "stopped", done: 0, skipped: 0 });
      expect(await statuses(taskIds)).toEqual({ pending: 10 });
    });

    test("asked for twice at once with one id is one, and so is its entry", async () => {
      const { bulk, stored, audit, statuses } = scene;
      const taskIds = await stored("mail", 7);
      const start = () =>
        actAs({ ...operator, actId: "click-1" }, () =>
          bulk.start({ action: "cancel", filter: { name: "mail" }, reason: "a wrong batch" }),
        );
      const started = await scene.queue.outcome(Promise.all([start(), start(), start()]));
      const { bulkId } = started[0]!;
      expect(started.map((each) => each.bulkId)).toEqual([bulkId, bulkId, bulkId]);
      const entry = async () => (await audit.list()).entries;
      expect(await entry()).toMatchObject([
        { id: bulkId, action: "bulk.start", outcome: "begun", count: 0, actor: "key/web" },
      ]);
      expect(await ended(bulkId)).toMatchObject({ done: 7, createdBy: "key/web" });
      expect(await entry()).toMatchObject([
        { id: bulkId, outcome: "done", count: 7, reason: "a wrong batch" },
      ]);
      expect(await start()).toMatchObject({ bulkId, state: "done", done: 7 });
      expect(await statuses(taskIds)).toEqual({ cancelled: 7 });
      const other = actAs({ ...operator, actId: "click-1" }, () =>
        bulk.start({ action: "cancel", filter: { name: "post" } }),
      );
      await expect(other).rejects.toMatchObject({ code: "conflict" });
    });

    test("ends its entry with what it has done when it is stopped", async () => {
      const { bulk, stored, audit } = scene;
      await stored("mail", 600);
      const { bulkId } = await bulk.start({ action: "cancel", filter: { name: "mail" } });
      let leading = 1;
      await scene.lead(undefined, () => leading-- > 0).pass();
      await bulk.stop(bulkId);
      expect((await audit.list()).entries).toMatchObject([
        { action: "bulk.stop", subject: bulkId, outcome: "done" },
        { action: "bulk.start", id: bulkId, outcome: "done", count: 500 },
      ]);
    });

    test("retries from the start where that is asked, and wakes the runs that wait for it", async () => {
      const { bulk, stored, queue } = scene;
      const [child] = await stored("a", 1, "failed");
      const [parent] = await stored("parent", 1);
      const journal = table("step_journal");
      await queue.database.write([
        sql`insert into ${journal} (owner_id, key, seq, token, kind, value, started_at)
          values (${child!}, 'done', 1, 1, 'done', '1', 0)`,
        sql`update ${rowsOf} set parent_id = ${parent!} where task_id = ${child!}`,
      ]);
      const { bulkId } = await bulk.start({
        action: "retry",
        filter: { name: "a" },
        fromStart: true,
      });
      expect(await ended(bulkId)).toMatchObject({ done: 1, fromStart: true });
      expect(await queue.steps(child!)).toEqual([]);
      expect(await queue.row(child!)).toMatchObject({ status: "pending", error: null });
      expect(Number((await queue.row(parent!))["wake"])).toBe(1);
    });

    test("takes the error's group for its filter, and no other failed task", async () => {
      const { bulk, stored, letters, queue, statuses } = scene;
      const booms = await stored("a", 3, "failed");
      const others = await stored("a", 2, "failed");
      const another = JSON.stringify({ code: "handler_failed", message: "no such user" });
      for (const taskId of others) {
        await queue.database.write([
          sql`update ${rowsOf} set error = ${another} where task_id = ${taskId}`,
        ]);
      }
      const groups = (await letters.groups({ name: "a" })).groups;
      const { group } = groups.find((each) => each.message === "boom")!;
      expect(await bulk.preview({ action: "retry", filter: { group } })).toMatchObject({
        matched: 3,
        isExact: true,
      });
      const { bulkId } = await bulk.start({ action: "retry", filter: { group } });
      expect(await ended(bulkId)).toMatchObject({ done: 3, filter: { group, status: "failed" } });
      expect(await statuses(booms)).toEqual({ pending: 3 });
      expect(await statuses(others)).toEqual({ failed: 2 });
      letters.close();
    });

    test("acts on ids in a range, and on one tenant's tasks alone", async () => {
      const { bulk, stored, statuses } = scene;
      const taskIds = await stored("mail", 9, "pending", "acme");
      const others = await stored("mail", 2, "pending", "other");
      const range = { from: taskIds[2]!, to: taskIds[4]! };
      const first = await bulk.start({ action: "cancel", filter: range });
      expect(await ended(first.bulkId)).toMatchObject({ done: 3 });
      const second = await bulk.start({ action: "cancel", filter: { tenant: "acme" } });
      expect(await ended(second.bulkId)).toMatchObject({ done: 6 });
      expect(await statuses(taskIds)).toEqual({ cancelled: 9 });
      expect(await statuses(others)).toEqual({ pending: 2 });
      const listed = await bulk.list({ tenant: "acme", limit: 1 });
      expect(listed).toMatchObject({ bulks: [{ bulkId: second.bulkId }], next: null });
      const page = await bulk.list({ limit: 1 });
      expect(page.next).toBe(second.bulkId);
      expect((await bulk.list({ limit: 1, cursor: page.next! })).bulks).toMatchObject([
        { bulkId: first.bulkId },
      ]);
    });

    test("deletes what has ended, with all that belongs to it, and refuses what others wait for", async () => {
      const { bulk, stored, statuses, queue } = scene;
      const taskIds = await stored("mail", 4, "completed");
      const [open] = await stored("mail", 1);
      const [young] = (await queue.enqueueMany("mail", [1])).map(({ taskId }) => taskId);
      await queue.database.write([
        sql`update ${rowsOf} set status = 'failed' where task_id = ${young!}`,
        sql`update ${rowsOf} set dependents = 1 where task_id = ${taskIds[0]!}`,
        sql`insert into ${table("task_dependency")} (dependency_id, dependent_id)
          values (${taskIds[0]!}, ${open!})`,
        sql`insert into ${table("task_event")} (task_id, seq, type) values (${taskIds[1]!}, 1, 'x')`,
      ]);
      const { bulkId } = await bulk.start({ action: "delete", filter: { name: "mail" } });
      expect(await ended(bulkId)).toMatchObject({ matched: 5, done: 3, refused: 2, skipped: 0 });
      expect(await statuses(taskIds)).toEqual({ gone: 3, completed: 1 });
      expect(await statuses([open!, young!])).toEqual({ pending: 1, failed: 1 });
      expect(await queue.events(taskIds[1]!)).toEqual([]);
    });

    test("sends one signal to each that is open, and refuses one that has too many", async () => {
      const { bulk, stored, queue, runs } = scene;
      const taskIds = await stored("order", 3);
      await queue.database.write([
        sql`update ${rowsOf} set flow_version = 1, parked = 5, awaits = 'approve'
          where name = 'order'`,
        sql`insert into ${table("task_signal")} (task_id, signal_id, seq, name)
          with recursive n (n) as (select 1 union all select n + 1 from n where n < 1000)
          select ${taskIds[2]!}, 's' || n, n, 'more' from n`,
      ]);
      const { bulkId } = await bulk.start({
        action: "signal",
        filter: { name: "order" },
        signal: "approve",
        payload: { by: "ada" },
      });
      expect(await ended(bulkId)).toMatchObject({ signal: "approve", done: 2, refused: 1 });
      for (const taskId of taskIds.slice(0, 2)) {
        expect(await runs.signals(taskId)).toMatchObject([{ signalId: bulkId, name: "approve" }]);
        const row = await queue.row(taskId);
        expect([Number(row["parked"]), Number(row["wake"])]).toEqual([0, 1]);
      }
      const [sent] = await queue.database.read(
        sql`select payload from ${table("task_signal")} where task_id = ${taskIds[0]!}`,
      );
      expect(JSON.parse(sent!["payload"])).toEqual({ by: "ada" });
      expect(Number((await queue.row(taskIds[2]!))["wake"])).toBe(0);
    });

    test("resumes what was set aside, and hands runs of a later version to an earlier one", async () => {
      const { bulk, setAside, stored, queue, noted } = scene;
      const aside = await setAside("order", 2);
      const [later, same] = await stored("order", 2);
      await queue.database.write([
        sql`update ${rowsOf} set flow_version = 4, cursor = 'charge' where task_id = ${later!}`,
        sql`update ${rowsOf} set flow_version = 3, cursor = 'charge' where task_id = ${same!}`,
      ]);
      const plain = await bulk.start({ action: "resume", filter: { name: "order" } });
      expect(await ended(plain.bulkId)).toMatchObject({ done: 2, as: null });
      for (const runId of aside) {
        expect(await queue.row(runId)).toMatchObject({ status: "pending", set_aside: null });
        expect(Number((await queue.row(runId))["parked"])).toBe(0);
      }
      expect(await noted("resume", plain.bulkId)).toEqual([1, 1]);
      const handed = await bulk.start({
        action: "resume",
        filter: { name: "order", at: "charge" },
        as: 3,
      });
      expect(await ended(handed.bulkId)).toMatchObject({ done: 1, as: 3 });
      const versions = await Promise.all(
        [later!, same!].map(async (runId) => Number((await queue.row(runId))["flow_version"])),
      );
      expect(versions).toEqual([3, 3]);
    });

    test("asks claimed tasks to end, and takes the children of what it ends with it", async () => {
      const { bulk, stored, queue, statuses } = scene;
      const [parent, child, claimed] = await stored("work", 3);
      await queue.beat("pod-1");
      await queue.database.write([
        sql`update ${rowsOf} set parent_id = ${parent!}, name = 'part' where task_id = ${child!}`,
        sql`insert into ${table("task_dependency")} (dependency_id, dependent_id)
          values (${child!}, ${parent!})`,
        sql`update ${rowsOf} set status = 'claimed', claimed_by = 'pod-1' where task_id = ${claimed!}`,
      ]);
      const { bulkId } = await bulk.start({ action: "cancel", filter: { name: "work" } });
      expect(await ended(bulkId)).toMatchObject({ done: 2 });
      expect(await statuses([parent!, child!, claimed!])).toEqual({ cancelled: 2, claimed: 1 });
      expect(Number((await queue.row(claimed!))["cancel_requested"])).toBe(1);
    });

    test("takes turns with others, and is refused when too many are running", async () => {
      const { bulk, stored } = scene;
      await stored("a", 1_100);
      await stored("b", 1);
      const first = await bulk.start({ action: "cancel", filter: { name: "a" } });
      const second = await bulk.start({ action: "cancel", filter: { name: "b" } });
      let leading = 1;
      await scene.lead(undefined, () => leading-- > 0).pass();
      expect(await only(first.bulkId)).toMatchObject({ state: "running", done: 500 });
      expect(await only(second.bulkId)).toMatchObject({ state: "done", done: 1 });
      for (let more = 1; more < 20; more++) {
        await bulk.start({ action: "cancel", filter: { name: `none-${more}` } });
      }
      await expect(bulk.start({ action: "cancel", filter: { name: "x" } })).rejects.toMatchObject({
        code: "overloaded",
      });
    });
  });
}
