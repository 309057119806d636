import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { rowsOf } from "../../tasks/contract/harness.ts";
import { task } from "../../tasks/task.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { now, sql, table } from "../../store/sql.ts";
import type { DeadLetter } from "../dead-letter.ts";
import { countStep, toStoredRedrive } from "../redrive.ts";
import { getRedrive, insertRedrive, takeStep } from "../sql.ts";
import { forgetful, openDeadLetters, type DeadLettersHarness } from "./harness.ts";

/** What redrives promise on every store. */
export function redriveContract(kind: StoreKind): void {
  describe(`a redrive on ${kind.name}`, () => {
    let scene: DeadLettersHarness;
    beforeEach(async () => {
      scene = await openDeadLetters(kind);
    });
    afterEach(() => scene.close());
    const only = async (redriveId: string) => (await scene.letters.getRedrive(redriveId))!;
    /** What fails from now on has failed after what was stored before. */
    const later = async () => {
      const { database, clock } = scene.queue;
      const time = async () => Number((await database.read(sql`select ${now} as now`))[0]!["now"]);
      const then = await time();
      while ((await time()) <= then) await clock.advance(1);
    };
    const options = { maxStep: 256, fromStart: false };
    const groupOf = async (name: string) => (await scene.letters.groups({ name })).groups[0]!.group;

    test("keeps the stored steps of its tasks, or forgets them and says how many", async () => {
      const { queue, letters, failed } = scene;
      const journal = table("step_journal");
      const taskIds = await failed("a", 2, "broken");
      const store = (taskId: string) =>
        queue.database.write([
          sql`insert into ${journal} (owner_id, key, seq, token, kind, value, started_at)
            values (${taskId}, 'done', 1, 1, 'done', '1', 0), (${taskId}, 'failed', 2, 1, 'failed', '1', 0)`,
          sql`update ${rowsOf} set task_version = 2, begun_version = 1 where task_id = ${taskId}`,
        ]);
      for (const taskId of taskIds) await store(taskId);
      const stepsOf = async (taskId: string) => (await queue.steps(taskId)).map(({ key }) => key);
      const [kept, forgotten] = taskIds as [string, string];

      const keeping = await letters.redrive({ taskId: kept });
      const lead = scene.lead();
      await lead.pass();
      await lead.pass();
      expect(await stepsOf(kept)).toEqual(["done"]);
      expect(await queue.get(kept)).toMatchObject({ status: "pending", version: 2 });
      expect(await only(keeping.redriveId)).toMatchObject({ fromStart: false, forgottenSteps: 0 });

      const anew = await letters.redrive({ taskId: forgotten }, { fromStart: true });
      await lead.pass();
      await lead.pass();
      lead.rest();
      expect(await stepsOf(forgotten)).toEqual([]);
      expect(await queue.get(forgotten)).toMatchObject({ status: "pending", version: null });
      expect(await only(anew.redriveId)).toMatchObject({ fromStart: true, forgottenSteps: 2 });
    });

    test("starts one over first, then twice as many whenever a step ended well", async () => {
      const { queue, letters, failed, pending, complete } = scene;
      const taskIds = (await failed("a", 12, (at) => `no such user ${at}`)).toSorted();
      await failed("b", 1, "another");
      const { redriveId } = await letters.redrive({ group: await groupOf("a") });
      const steps: number[] = [];
      for (let pass = 0; pass < 12; pass++) {
        // Another pod leads at every pass.
        const lead = scene.lead();
        await lead.pass();
        await lead.pass();
        lead.rest();
        const taken = await pending();
        if (taken.length === 0) break;
        steps.push(taken.length);
        expect(await only(redriveId)).toMatchObject({ state: "running", open: taken.length });
        await complete(taken);
      }
      expect(steps).toEqual([1, 2, 4, 5]);
      expect(await only(redriveId)).toMatchObject({
        state: "done",
        reason: null,
        taken: 12,
        succeeded: 12,
        open: 0,
        remaining: 0,
      });
      expect(await scene.redrivenTimes()).toEqual(taskIds.map(() => 1));
      const [first] = taskIds;
      expect(await queue.events(first!)).toMatchObject([
        { type: "redriven", detail: { redriveId, step: 1 } },
      ]);
      expect(await queue.row(first!)).toMatchObject({
        retry_count: 0,
        claim_token: 2,
        error: null,
      });
      expect((await letters.redrives()).redrives.map((each) => each.redriveId)).toEqual([
        redriveId,
      ]);
    });

    test("of a group that an earlier release has named ends and says why, of a later one waits", async () => {
      const { queue, letters, failed } = scene;
      await failed("a", 2, "broken");
      await queue.database.write([
        ...insertRedrive("earlier", { group: "g1-79ef601d010c6cb2" }, options),
        ...insertRedrive("later", { group: "g999-79ef601d010c6cb2" }, options),
      ]);
      const lead = scene.lead();
      for (let pass = 0; pass < 3; pass++) await lead.pass();
      lead.rest();
      expect(await only("earlier")).toMatchObject({
        state: "cancelled",
        taken: 0,
        reason: { code: "cancelled", message: expect.stringContaining("list the groups") },
      });
      expect(await only("later")).toMatchObject({ state: "running", taken: 0 });
      expect((await letters.groups()).tasks).toBe(2);
    });

    test("of one tenant lists, counts and starts over that tenant's tasks alone", async () => {
      const { queue, letters, fail, pending, complete } = scene;
      const made = async (tenant: string) => {
        const { taskId } = await queue.enqueue("a", 1, { tenant });
        await fail([taskId], "broken");
        return taskId;
      };
      const ours = [await made("acme"), await made("acme")];
      const theirs = await made("other");
      const group = await groupOf("a");
      const listed = await letters.list({ tenant: "acme" });
      expect(listed.tasks.map(({ taskId }) => taskId).toSorted()).toEqual(ours.toSorted());
      expect(await letters.groups({ tenant: "other" })).toMatchObject({
        groups: [{ group, tasks: 1, taskIds: [theirs] }],
        count: 1,
        tasks: 1,
      });
      expect((await letters.groups()).tasks).toBe(3);
      expect(await letters.count({ group, tenant: "acme" })).toBe(2);
      const missing = letters.redrive({ taskId: theirs, tenant: "acme" });
      await expect(missing).rejects.toMatchObject({ code: "not_found" });

      const { redriveId } = await letters.redrive({ group, tenant: "acme" });
      await letters.redrive({ name: "another" });
      for (let pass = 0; pass < 4; pass++) {
        const lead = scene.lead();
        await lead.pass();
        await lead.pass();
        lead.rest();
        await complete(await pending());
      }
      expect(await only(redriveId)).toMatchObject({ state: "done", taken: 2, succeeded: 2 });
      expect(await queue.get(theirs)).toMatchObject({ status: "failed" });
      const own = await letters.redrives({ tenant: "acme", limit: 1 });
      expect(own).toMatchObject({ redrives: [{ redriveId }], next: null });
      expect((await letters.redrives()).redrives).toHaveLength(2);

      expect(await letters.discard({ all: true, tenant: "acme" })).toEqual({ discarded: 0 });
      expect(await letters.discard({ all: true, tenant: "other" })).toEqual({ discarded: 1 });
    });

    test("notifies the open runs that have started what it starts over", async () => {
      const { queue, letters, failed } = scene;
      const [open, over] = await queue.enqueueMany("parent", [1, 2], { delayMs: 60_000 });
      const children = await failed("a", 2, "no such user");
      const parents = [open!.taskId, over!.taskId];
      await queue.database.write([
        ...children.map(
          (child, at) =>
            sql`update ${rowsOf} set parent_id = ${parents[at]!} where task_id = ${child}`,
        ),
        sql`update ${rowsOf} set status = 'completed' where task_id = ${over!.taskId}`,
      ]);
      const wakes = async () =>
        Promise.all(parents.map(async (id) => Number((await queue.row(id))["wake"])));
      expect(await wakes()).toEqual([0, 0]);
      await letters.redrive({ group: await groupOf("a") });
      const lead = scene.lead();
      for (const child of children) {
        await lead.pass();
        await scene.complete([child]);
      }
      lead.rest();
      expect(await scene.redrivenTimes()).toEqual([1, 1]);
      expect(await wakes()).toEqual([1, 0]);
    });

    test("stops when the error comes back, and reports which", async () => {
      const { letters, failed, fail, complete, pending } = scene;
      await failed("a", 9, (at) => `no such user ${at}`);
      const { redriveId } = await letters.redrive({ name: "a" });
      const lead = scene.lead();
      await lead.pass();
      await complete(await pending());
      await lead.pass();
      const [bad, good] = await pending();
      await fail([bad!], "no such user 4711");
      await lead.pass();
      expect(await only(redriveId)).toMatchObject({
        state: "stopping",
        reason: {
          code: "same_error",
          message: "the error came back: no such user 4711",
          taskId: bad,
        },
        open: 1,
      });
      await complete([good!]);
      await lead.pass();
      expect(await only(redriveId)).toMatchObject({
        state: "stopped",
        taken: 3,
        succeeded: 2,
        failed: 1,
        open: 0,
      });
      await lead.pass();
      expect(await pending()).toEqual([]);
      expect((await letters.groups()).tasks).toBe(7);
      // When the cause is fixed, what is left can be tried again, and what came back with it.
      const again = await letters.redrive({ name: "a" });
      for (let pass = 0; pass < 12; pass++) {
        await lead.pass();
        await complete(await pending());
      }
      expect(await only(again.redriveId)).toMatchObject({ state: "done", taken: 7, succeeded: 7 });
      lead.rest();
    });

    test("counts other errors, and stops when they are many", async () => {
      const { letters, failed, fail, complete, pending } = scene;
      await failed("a", 40, "boom");
      const { redriveId } = await letters.redrive({ all: true }, { maxStep: 8 });
      const lead = scene.lead();
      for (let step = 1; step <= 4; step++) {
        await lead.pass();
        const taken = await pending();
        // One of eight is bad luck.
        if (step === 4) await fail(taken.splice(0, 1), "another");
        await complete(taken);
      }
      await lead.pass();
      expect(await only(redriveId)).toMatchObject({ state: "running", failedOtherwise: 1 });
      const taken = await pending();
      expect(taken).toHaveLength(8);
      await fail(taken.splice(0, 2), "another");
      await lead.pass();
      expect(await only(redriveId)).toMatchObject({
        state: "stopping",
        failedOtherwise: 3,
        open: 6,
        reason: { code: "other_errors" },
      });
      await complete(taken);
      await lead.pass();
      const ended = await only(redriveId);
      expect(ended).toMatchObject({ state: "stopped", taken: 23, succeeded: 20, failed: 0 });
      lead.rest();
    });

    test("skips and repeats nothing under several leaders whose answers get lost", async () => {
      const { queue, letters, failed, complete, pending } = scene;
      const taskIds = await failed("a", 30, "boom");
      const { redriveId } = await letters.redrive({ name: "a" });
      let writes = 0;
      const lossy = forgetful(queue.database, () => ++writes % 2 === 0);
      const leads = [scene.lead(), scene.lead(lossy), scene.lead(lossy)];
      let ended = false;
      for (let round = 0; round < 40 && !ended; round++) {
        await queue.outcome(Promise.all(leads.map((lead) => lead.pass())));
        const before = await only(redriveId);
        const taken = await pending();
        expect(taken.length).toBe(before.open);
        await complete(taken);
        ended = before.state === "done";
      }
      expect(await only(redriveId)).toMatchObject({ state: "done", taken: 30, succeeded: 30 });
      expect(await scene.redrivenTimes()).toEqual(taskIds.map(() => 1));
      expect(writes).toBeGreaterThan(2);
      for (const lead of leads) lead.rest();
    });

    test("takes a task only as it was seen, and none that another has", async () => {
      const { queue, letters, failed, fail, pending } = scene;
      const { database, ids } = queue;
      const [retried, taken] = await failed("a", 2, "boom");
      const stale = await scene.fresh();
      const take = async (redriveId: string, seen: readonly DeadLetter[]) => {
        const [row] = await database.read(getRedrive(redriveId));
        const write = {
          redrive: toStoredRedrive(row!),
          step: countStep(0, []),
          writeId: ids.next(),
        };
        await database.write(takeStep(write, seen, { size: seen.length, remaining: 0 }));
        return (await only(redriveId)).taken;
      };
      await queue.retry(retried!);
      await fail([retried!], "another");
      const first = await letters.redrive({ all: true });
      expect(await take(first.redriveId, stale)).toBe(1);
      expect(await pending()).toEqual([taken]);
      await fail([taken!], "boom");
      const second = await letters.redrive({ all: true });
      expect(await take(second.redriveId, await scene.fresh())).toBe(1);
      expect(await pending()).toEqual([retried]);
    });

    test("shares what there is with others: a task belongs to one at a time", async () => {
      const { letters, failed, fail, complete, pending } = scene;
      await failed("a", 6, "boom");
      const group = await groupOf("a");
      const first = await letters.redrive({ group });
      const second = await letters.redrive({ name: "a" });
      await later();
      const lead = scene.lead();
      await lead.pass();
      const [one, other] = await pending();
      expect(await only(first.redriveId)).toMatchObject({ taken: 1, open: 1 });
      expect(await only(second.redriveId)).toMatchObject({ taken: 1, open: 1 });
      await fail([one!], "boom");
      await complete([other!]);
      // The one that failed again is the first's until that has ended, and the second passes it over.
      for (let pass = 0; pass < 6; pass++) {
        await lead.pass();
        await complete(await pending());
      }
      const redrives = await Promise.all([first, second].map((each) => only(each.redriveId)));
      expect(redrives.map((each) => each.state).toSorted()).toEqual(["done", "stopped"]);
      expect((await letters.list()).tasks.map((each) => each.taskId)).toEqual([one]);
      expect(redrives.reduce((sum, each) => sum + each.taken, 0)).toBe(6);
      lead.rest();
    });

    test("takes nothing of what was redriven already, nor of what fails later", async () => {
      const { letters, failed, complete, pending } = scene;
      const [taskId] = await failed("a", 1, "boom");
      const group = await groupOf("a");
      const first = await letters.redrive({ taskId: taskId! });
      const lead = scene.lead();
      await lead.pass();
      expect(await pending()).toEqual([taskId]);
      await expect(letters.redrive({ taskId: taskId! })).rejects.toMatchObject({
        code: "conflict",
        message: expect.stringContaining("is pending"),
      });
      const second = await letters.redrive({ group });
      await later();
      await failed("a", 1, "boom");
      await lead.pass();
      await complete([taskId!]);
      await lead.pass();
      expect(await only(second.redriveId)).toMatchObject({ state: "done", taken: 0 });
      expect(await only(first.redriveId)).toMatchObject({ state: "done", taken: 1, succeeded: 1 });
      await expect(letters.redrive({ taskId: "nowhere" })).rejects.toMatchObject({
        code: "not_found",
      });
      lead.rest();
    });

    test("that is cancelled takes no more, and ends with what it has taken", async () => {
      const { letters, failed, complete, pending } = scene;
      await failed("a", 5, "boom");
      const { redriveId } = await letters.redrive({ all: true });
      const lead = scene.lead();
      await lead.pass();
      expect(await letters.cancelRedrive(redriveId)).toMatchObject({ state: "stopping", open: 1 });
      await lead.pass();
      await complete(await pending());
      await lead.pass();
      await lead.pass();
      expect(await pending()).toEqual([]);
      expect(await only(redriveId)).toMatchObject({ state: "cancelled", taken: 1, succeeded: 1 });
      expect(await letters.cancelRedrive(redriveId)).toMatchObject({ state: "cancelled" });
      await expect(letters.cancelRedrive("x")).rejects.toMatchObject({ code: "not_found" });
      lead.rest();
    });

    test("goes on with tasks that are cancelled or deleted meanwhile", async () => {
      const { queue, letters, failed, complete, pending } = scene;
      await failed("a", 4, "boom");
      const { redriveId } = await letters.redrive({ all: true });
      const lead = scene.lead();
      await lead.pass();
      await queue.cancel((await pending())[0]!);
      await lead.pass();
      const [one, other] = await pending();
      await queue.database.write([sql`delete from ${rowsOf} where task_id = ${one!}`]);
      await complete([other!]);
      await lead.pass();
      await complete(await pending());
      await lead.pass();
      expect(await only(redriveId)).toMatchObject({
        state: "done",
        taken: 4,
        succeeded: 2,
        gone: 2,
        open: 0,
      });
      lead.rest();
    });

    test("has its tasks run by pods, and can be followed to its end", async () => {
      const { queue, letters } = scene;
      let mended = false;
      const handler = task("flaky", { attempts: 1 }, ({ input }) => {
        if (!mended) throw new Error(`no answer for ${JSON.stringify(input)}`);
        return 1;
      });
      await queue.work("pod-1", [handler], { pollMs: 10 });
      const made = await queue.enqueueMany("flaky", [1, 2, 3]);
      for (const { taskId } of made) expect((await queue.ended(taskId)).status).toBe("failed");

      const lead = scene.lead();
      const drive = async () => {
        const { redriveId } = await letters.redrive({ group: await groupOf("flaky") });
        const following = letters.followRedrive(redriveId);
        await queue.until("its end", async () => {
          await lead.pass();
          return ["done", "stopped"].includes((await only(redriveId)).state);
        });
        return queue.outcome(following);
      };
      expect(await drive()).toMatchObject({ state: "stopped", taken: 1, failed: 1 });
      mended = true;
      expect(await drive()).toMatchObject({ state: "done", taken: 3, succeeded: 3 });
      for (const { taskId } of made) expect((await queue.ended(taskId)).status).toBe("completed");
      lead.rest();
    });

    test("of a task and of what waits for it has both run, one after the other", async () => {
      const { queue, letters } = scene;
      let mended = false;
      const first = task("first", { attempts: 1 }, () => {
        if (!mended) throw new Error("not yet");
        return 1;
      });
      const second = task("second", {}, () => 2);
      await queue.work("pod-1", [first, second], { pollMs: 10 });
      const parent = await queue.enqueue("first", 1);
      const waiter = await queue.enqueue("second", 1, { after: [parent] });
      expect(await queue.ended(waiter.taskId)).toMatchObject({
        status: "failed",
        error: { code: "dependency_failed" },
      });
      mended = true;
      const { redriveId } = await letters.redrive({ all: true });
      const lead = scene.lead();
      await queue.until("its end", async () => {
        await lead.pass();
        return (await only(redriveId)).state !== "running";
      });
      expect(await only(redriveId)).toMatchObject({ state: "done", taken: 2, succeeded: 2 });
      lead.rest();
    });

    test.each([
      [{}, "give exactly one of group, taskId, name, all: none was given"],
      [{ all: true, name: "a" }, "name and all were given"],
      [{ all: false }, "all must be true"],
      [{ name: 5 }, "name must be text"],
      [{ group: "g9-0123456789abcdef" }, "is no group of this release"],
      [{ group: "x" }, "is no group of this release"],
      [{ nmae: "a" }, "did you mean `name`?"],
    ])("of %j is refused", async (selection, message) => {
      for (const ask of [scene.letters.redrive, scene.letters.discard]) {
        await expect(ask(selection as object)).rejects.toMatchObject({
          code: "invalid_option",
          message: expect.stringContaining(message),
        });
      }
    });

    test("is forgotten a month after it has ended, and not before", async () => {
      const { queue, letters } = scene;
      const ended = [31, 29].map(async (days) => {
        const { redriveId } = await letters.redrive({ all: true });
        await queue.database.write([
          sql`update ${table("redrive")} set state = 'done',
            last_update = last_update - ${days * 86_400_000} where redrive_id = ${redriveId}`,
        ]);
        return redriveId;
      });
      const [old, recent] = await Promise.all(ended);
      const lead = scene.lead();
      await queue.pass(600_000);
      await lead.pass();
      expect(await letters.getRedrive(old!)).toBe(undefined);
      expect(await letters.getRedrive(recent!)).toMatchObject({ state: "done" });
      lead.rest();
    });

    test("is refused where too many are open", async () => {
      for (let open = 0; open < 50; open++) await scene.letters.redrive({ all: true });
      await expect(scene.letters.redrive({ all: true })).rejects.toMatchObject({
        code: "overloaded",
      });
    });
  });
}
