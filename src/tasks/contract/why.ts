import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { actAs } from "../../audit/actor.ts";
import { snooze } from "../../base/errors.ts";
import { beat, markLeft, updatePodState } from "../../pods/sql.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, type Statement, table } from "../../store/sql.ts";
import { storeThrottle } from "../../throttles/contract/shares-stored.ts";
import { maxDepthCount } from "../sql/inspect.ts";
import { parked } from "../sql/task-state.ts";
import { task } from "../task.ts";
import { openTasks, rowsOf, type TasksHarness } from "./harness.ts";
import { heldOpen } from "./worker.ts";

/** What the verdict on a task says on every store. */
export function whyContract(kind: StoreKind): void {
  describe(`why a task waits on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const pod = (podId: string, metadata: unknown) =>
      queue.database.write([beat(podId, JSON.stringify(metadata), 0)]);
    const set = (taskId: string, columns: Statement) =>
      queue.database.write([sql`update ${rowsOf} set ${columns} where task_id = ${taskId}`]);
    const reasonsOf = async (taskId: string, options = {}) =>
      (await queue.why(taskId, options)).reasons;
    const codesOf = async (taskId: string) => (await reasonsOf(taskId)).map(({ code }) => code);

    test("is its turn, where nothing holds it back: the place by priority, then by age", async () => {
      await pod("pod-1", { names: ["mail"] });
      const { taskId: low } = await queue.enqueue("mail", 1, { priority: -1 });
      const { taskId: first } = await queue.enqueue("mail", 1);
      const { taskId: second } = await queue.enqueue("mail", 1);
      const { taskId: high } = await queue.enqueue("mail", 1, { priority: 5 });
      await queue.enqueue("other", 1, { priority: 9 });
      const ahead = async (taskId: string) => {
        const [reason, ...more] = await reasonsOf(taskId);
        expect(more).toEqual([]);
        return reason?.code === "queued" && reason.evidence;
      };
      expect(await ahead(high)).toEqual({ ahead: 0, isMore: false });
      expect(await ahead(first)).toEqual({ ahead: 1, isMore: false });
      expect(await ahead(second)).toEqual({ ahead: 2, isMore: false });
      expect(await ahead(low)).toEqual({ ahead: 3, isMore: false });
      expect(await queue.why(high)).toMatchObject({ status: "pending", isRun: false });
    });

    test("is counted to 10,000 and no further", async () => {
      await pod("pod-1", { names: ["mail"] });
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, created_at)
          with recursive numbers (n) as (
            select 1 union all select n + 1 from numbers where n <= ${maxDepthCount})
          select 'early-' || cast(n as text), 'mail', n from numbers`,
      ]);
      const { taskId } = await queue.enqueue("mail", 1);
      expect(await reasonsOf(taskId)).toMatchObject([
        { code: "queued", evidence: { ahead: maxDepthCount, isMore: true } },
      ]);
    });

    test("is that it isn't due: delayed, made by a schedule, retried after its backoff, or snoozed", async () => {
      const { taskId: delayed } = await queue.enqueue("mail", 1, { delayMs: 60_000 });
      const { taskId: scheduled } = await queue.enqueue("mail", 1, { delayMs: 60_000 });
      await set(scheduled, sql`scheduled_at = run_at`);
      await pod("pod-1", { names: ["mail", "fails", "waits"] });
      expect(await reasonsOf(delayed)).toMatchObject([
        { code: "not_due", evidence: { cause: "delayed", failures: 0, delayMs: null } },
      ]);
      expect(await reasonsOf(scheduled)).toMatchObject([
        { code: "not_due", evidence: { cause: "scheduled" } },
      ]);
      const fails = task("fails", { backoff: { baseMs: 60_000, maxMs: 60_000 } }, () => {
        throw new Error("no");
      });
      const waits = task("waits", {}, () => {
        throw snooze(90_000, "not yet");
      });
      await queue.work("pod-1", [fails, waits]);
      const { taskId: failed } = await queue.enqueue(fails, 1);
      const { taskId: snoozed } = await queue.enqueue(waits, 1);
      const stored = async (taskId: string) => (await queue.get(taskId))!;
      await queue.until("the failure", async () => (await stored(failed)).failures === 1);
      await queue.until("the snooze", async () => (await stored(snoozed)).snoozes === 1);
      const [retried] = await reasonsOf(failed);
      expect(retried).toMatchObject({
        code: "not_due",
        evidence: { cause: "retry", failures: 1, errorCode: "handler_failed" },
      });
      const { untilMs, decidedAtMs, delayMs } = retried!.evidence as Record<string, number>;
      expect(untilMs).toBe((await stored(failed)).runAtMs);
      expect(untilMs! - decidedAtMs!).toBe(delayMs);
      expect(await reasonsOf(snoozed)).toMatchObject([
        { code: "not_due", evidence: { cause: "snoozed", snoozes: 1 } },
      ]);
    });

    test("is that a step of its own sleeps", async () => {
      const sleeps = task("sleeps", {}, async ({ step }) => step.sleep("nap", 60_000));
      await queue.work("pod-1", [sleeps]);
      const { taskId } = await queue.enqueue(sleeps, 1);
      await queue.until(
        "the nap",
        async () => Number((await queue.row(taskId))["parked"]) === parked.untilDue,
      );
      expect(await reasonsOf(taskId)).toMatchObject([
        { code: "not_due", evidence: { cause: "sleeping" } },
      ]);
    });

    test("is that it comes after others, with what became of each", async () => {
      await pod("pod-1", { names: ["mail", "load"] });
      const { taskId: done } = await queue.enqueue("load", 1);
      const { taskId: open } = await queue.enqueue("load", 2);
      const { taskId: failed } = await queue.enqueue("load", 3);
      const { taskId } = await queue.enqueue("mail", 1, {
        after: [done, open, failed],
        afterFailed: "run",
      });
      await set(done, sql`status = 'completed'`);
      await set(failed, sql`status = 'failed', error = '{"code":"x","message":"secret"}'`);
      const [reason, ...more] = await reasonsOf(taskId);
      expect(more).toEqual([]);
      expect(reason).toMatchObject({
        code: "waits_for_tasks",
        evidence: {
          total: 3,
          open: 1,
          failed: 1,
          tasks: [
            { taskId: failed, name: "load", status: "failed", isChild: false },
            { taskId: open, name: "load", status: "pending" },
          ],
        },
        links: [
          { what: "task", id: failed },
          { what: "task", id: open },
        ],
        command: `flotilla why ${open}`,
      });
      expect(JSON.stringify(reason)).not.toContain("secret");
    });

    test("is a pause of its name or of everything: by whom, since when, and why", async () => {
      await pod("pod-1", { names: ["mail"] });
      const { taskId } = await queue.enqueue("mail", 1);
      await actAs({ kind: "cli", user: "root" }, () =>
        queue.pause("mail", { reason: "its API is down" }),
      );
      await queue.pause();
      const found = (await reasonsOf(taskId)).filter(({ code }) => code === "paused");
      expect(found).toMatchObject([
        { evidence: { name: "*", reason: null, by: "program" }, command: "flotilla resume" },
        {
          evidence: { name: "mail", reason: "its API is down", by: "cli/root" },
          sentence: expect.stringMatching(
            /^"mail" is paused by cli\/root since .*: its API is down$/,
          ),
          command: "flotilla resume mail",
        },
      ]);
      expect((found[1]!.evidence as { sinceMs: number }).sinceMs).toBeGreaterThan(0);
      // A task that isn't due either is told both.
      const { taskId: later } = await queue.enqueue("mail", 1, { delayMs: 60_000 });
      expect(await codesOf(later)).toEqual(["not_due", "paused", "paused"]);
    });

    test("is a limit that is reached, by key, queue or tenant, and the tasks that hold its slots", async () => {
      await pod("pod-1", { names: ["mail"] });
      await queue.limits.set("key/mail/ada", 1);
      await queue.limits.set("tenant/acme", 1);
      const hold = async (options: object) => {
        const { taskId } = await queue.enqueue("mail", 1, options);
        await set(taskId, sql`status = 'claimed', claimed_by = 'pod-7'`);
        return taskId;
      };
      const byKey = await hold({ concurrencyKey: "ada" });
      const { taskId } = await queue.enqueue("mail", 1, { concurrencyKey: "ada" });
      expect((await reasonsOf(taskId))[0]).toMatchObject({
        code: "limit_reached",
        evidence: {
          scope: "key/mail/ada",
          limit: 1,
          running: 1,
          holders: [{ taskId: byKey, name: "mail", podId: "pod-7" }],
        },
        command: "flotilla limits set key/mail/ada 2",
      });
      const byTenant = await hold({ tenant: "acme" });
      const { taskId: ofTenant } = await queue.enqueue("mail", 1, { tenant: "acme" });
      expect((await reasonsOf(ofTenant))[0]).toMatchObject({
        code: "limit_reached",
        evidence: { scope: "tenant/acme", holders: [{ taskId: byTenant }] },
      });
      // One that a claim has found blocked says so, too, and where it stands among the blocked.
      await set(taskId, sql`parked = ${parked.blocked}, blocked_by = concurrency_key`);
      expect(await reasonsOf(taskId)).toMatchObject([
        { code: "limit_reached", evidence: { blocked: 1 } },
        { code: "queued", evidence: { ahead: 0 } },
      ]);
    });

    test("is a throttle without a permit, with its place and an estimate", async () => {
      const name = "api";
      await pod("pod-1", { names: ["mail"], throttles: { mail: { name, key: "" } } });
      await storeThrottle(queue.database, {
        name,
        key: "",
        bound: 2,
        stats: { meanMs: 1_000 },
        pods: { "pod-1": { share: 2, inFlight: 2, waiting: 3, callsWaiting: 1 } },
      });
      await queue.enqueue("mail", 1);
      const { taskId } = await queue.enqueue("mail", 1);
      expect((await reasonsOf(taskId))[0]).toMatchObject({
        code: "throttled",
        evidence: { name, key: "", limit: 2, inFlight: 2, ahead: 2, aboutMs: 1_500 },
        command: "flotilla throttles show api",
      });
    });

    test("is a signal that it waits for, since when and until when", async () => {
      const asks = task("asks", {}, ({ step }) => step.signal("approve", { timeoutMs: 60_000 }));
      const asksForEver = task("asks-for-ever", {}, ({ step }) => step.signal("approve"));
      await queue.work("pod-1", [asks, asksForEver]);
      const { taskId } = await queue.enqueue(asks, 1);
      const { taskId: forEver } = await queue.enqueue(asksForEver, 1);
      const isParked = async (id: string) => Number((await queue.row(id))["parked"]) > 0;
      await queue.until("both", async () => (await isParked(taskId)) && isParked(forEver));
      const { runAtMs } = (await queue.get(taskId))!;
      expect((await reasonsOf(taskId))[0]).toMatchObject({
        code: "waits_for_signal",
        evidence: { signal: "approve", untilMs: runAtMs },
        command: `flotilla tasks signal ${taskId} approve`,
      });
      expect((await reasonsOf(forEver))[0]).toMatchObject({
        code: "waits_for_signal",
        evidence: { signal: "approve", untilMs: null },
      });
    });

    test("is children that its own steps have started", async () => {
      const load = task("load", {}, () => 1);
      const parent = task("parent", {}, ({ step }) => step.children("each", [[load, 1]]));
      await queue.work("pod-1", [parent]);
      const { taskId } = await queue.enqueue(parent, 1);
      await queue.until("the child", async () => (await queue.count(sql`name = 'load'`)) === 1);
      await queue.until("the park", async () => Number((await queue.row(taskId))["parked"]) > 0);
      expect((await reasonsOf(taskId))[0]).toMatchObject({
        code: "waits_for_tasks",
        evidence: { total: 1, open: 1, tasks: [{ name: "load", isChild: true }] },
      });
    });

    test("is that no pod works on it: none was seen, one has left, or they are too old", async () => {
      const { taskId } = await queue.enqueue("mail", 1);
      await pod("pod-1", { names: ["post"] });
      expect((await reasonsOf(taskId))[0]).toMatchObject({
        code: "no_worker",
        evidence: { name: "mail", version: null, livePods: 1, pods: [] },
      });
      await pod("pod-2", { names: ["mail"] });
      expect(await codesOf(taskId)).toEqual(["queued"]);
      await queue.database.write([markLeft("pod-2")]);
      expect((await reasonsOf(taskId))[0]).toMatchObject({
        code: "no_worker",
        evidence: { livePods: 1, pods: [{ podId: "pod-2", isUp: false }] },
        links: [{ what: "pod", id: "pod-2" }],
      });
      await pod("pod-3", { names: ["mail"], versions: { mail: 2 } });
      await set(taskId, sql`task_version = 3`);
      expect((await reasonsOf(taskId))[0]).toMatchObject({
        code: "no_worker",
        evidence: { version: 3, pods: [{ podId: "pod-3", isUp: true, version: 2 }, {}] },
      });
      await set(taskId, sql`task_version = null, flow_version = 3`);
      await pod("pod-4", { names: ["mail"], flows: { mail: 2 } });
      const [reason] = await reasonsOf(taskId);
      // A pod without a version of the flow takes any.
      expect(reason!.code).toBe("queued");
      await queue.database.write([markLeft("pod-3")]);
      expect((await reasonsOf(taskId))[0]).toMatchObject({
        code: "no_worker",
        evidence: { version: 3 },
        command: `flotilla runs resume ${taskId} --as 2`,
      });
    });

    test("is that every pod that could run it is full or strained, and one free pod ends that", async () => {
      await pod("pod-1", { names: ["mail"] });
      const { taskId: held } = await queue.enqueue("mail", 1);
      await set(held, sql`status = 'claimed', claimed_by = 'pod-1', claim_call = 1`);
      const state = {
        holds: 1,
        reasons: [
          { code: "full", text: "full: 1 of 1" },
          { code: "event_loop", text: "event loop late 300 ms: at most 1 for now" },
        ],
      };
      await queue.database.write([updatePodState("pod-1", JSON.stringify(state))]);
      const { taskId } = await queue.enqueue("mail", 1);
      expect((await reasonsOf(taskId))[0]).toMatchObject({
        code: "no_free_pod",
        evidence: { pods: [{ podId: "pod-1", held: 1, holds: 1, reasons: state.reasons }] },
        sentence: expect.stringContaining("holds 1 of 1 (event loop late 300 ms"),
      });
      await pod("pod-2", { names: ["mail"] });
      expect(await codesOf(taskId)).toEqual(["queued"]);
    });

    test("is that pods died under it, so that it must run alone", async () => {
      await pod("pod-1", { names: ["mail"] });
      const { taskId: first } = await queue.enqueue("mail", 1);
      const { taskId } = await queue.enqueue("mail", 1);
      for (const each of [first, taskId]) await set(each, sql`deaths = ${2}`);
      expect(await reasonsOf(taskId)).toMatchObject([
        { code: "must_run_alone", evidence: { deaths: 2 } },
        { code: "queued", evidence: { ahead: 1, isMore: false } },
      ]);
    });

    test("is that it was set aside, with the command that lets it go on", async () => {
      await pod("pod-1", { names: ["mail"] });
      const { taskId } = await queue.enqueue("mail", 1);
      const why = { reason: "step_changed", message: "the step has another input", step: "a b" };
      await set(taskId, sql`parked = ${parked.setAside}, set_aside = ${JSON.stringify(why)}`);
      expect(await reasonsOf(taskId)).toMatchObject([
        {
          code: "set_aside",
          evidence: why,
          command: `flotilla tasks resume ${taskId} --forget 'a b'`,
        },
      ]);
      expect((await reasonsOf(taskId))[0]!.sentence).not.toContain("another input");
    });

    test("is none of these while it runs, or once it has ended", async () => {
      const { handler, attempts } = heldOpen("a");
      await queue.work("pod-1", [handler]);
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("the run", () => attempts[0]);
      expect(await reasonsOf(taskId)).toMatchObject([
        {
          code: "running",
          evidence: { podId: "pod-1", attempt: 1, isPodUp: true, cancelRequested: false },
        },
      ]);
      await queue.database.write([markLeft("pod-1")]);
      expect(await reasonsOf(taskId)).toMatchObject([
        { code: "running", evidence: { isPodUp: false } },
      ]);
      attempts[0]!.finish("ok");
      await queue.ended(taskId);
      expect(await reasonsOf(taskId)).toMatchObject([
        { code: "ended", evidence: { status: "completed" }, command: null },
      ]);
    });

    test("tells a reader of one tenant nothing of the others", async () => {
      await pod("pod-1", { names: ["mail"] });
      const { taskId } = await queue.enqueue("mail", 1, { tenant: "acme", concurrencyKey: "k" });
      const { taskId: others } = await queue.enqueue("mail", 1, {
        tenant: "zeta",
        concurrencyKey: "k",
      });
      await queue.limits.set("key/mail/k", 1);
      await set(others, sql`status = 'claimed', claimed_by = 'pod-1'`);
      await queue.pause("mail", { reason: "of all tenants" });
      const seen = await reasonsOf(taskId, { tenant: "acme" });
      expect(seen).toMatchObject([
        { code: "paused", evidence: { by: null, reason: null } },
        { code: "limit_reached", evidence: { running: 1, holders: [] } },
        { code: "queued" },
      ]);
      expect(JSON.stringify(seen)).not.toContain(others);
      await expect(queue.why(taskId, { tenant: "zeta" })).rejects.toMatchObject({
        code: "not_found",
      });
      await expect(queue.why("nothing")).rejects.toMatchObject({ code: "not_found" });
    });

    test("is said of a row that was inserted by hand, whatever it holds", async () => {
      await queue.database.write([
        sql`insert into ${table("task")} (task_id, name, run_at, parked, waiting, set_aside)
          values ('odd id', 'mail', 9007199254740991, ${parked.untilDue}, 'not JSON', '[]')`,
        beat("pod-1", "not JSON", 0),
      ]);
      await queue.database.write([updatePodState("pod-1", "[1]")]);
      expect(await reasonsOf("odd id")).toMatchObject([
        { code: "not_due", command: "flotilla tasks show 'odd id'" },
      ]);
    });
  });
}
