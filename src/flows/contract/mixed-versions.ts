import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { FlotillaError } from "../../base/errors.ts";
import { rowsOf } from "../../tasks/contract/harness.ts";
import { task } from "../../tasks/task.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { sql } from "../../store/sql.ts";
import { type Flow, flow } from "../flow.ts";
import { createRuns } from "../runs.ts";
import { codeOf, openRuns, type RunsHarness } from "./harness.ts";

/** What holds while pods have different versions of a flow, on every store. */
export function mixedVersionsContract(kind: StoreKind): void {
  describe(`versions of flows on ${kind.name}`, () => {
    let runs: RunsHarness;
    let calls: string[];
    beforeEach(async () => {
      runs = await openRuns(kind);
      calls = [];
    });
    afterEach(() => runs.close());

    type Options = { fails?: () => boolean; queue?: { name: string; limit: number } };

    /** Each version says that it was the one; the second transition fails for as long as is said. */
    const deploy = (version: number, { fails = () => false, queue }: Options = {}): Flow =>
      flow("deploy", {
        version,
        // It goes on failing for as long as the test takes for what it does meanwhile.
        attempts: 1_000,
        backoff: { baseMs: 1, jitter: 0 },
        ...(queue && { queue }),
      })
        .to("one", () => void calls.push(`one by ${version}`))
        .to("two", () => {
          calls.push(`two by ${version}`);
          if (fails()) throw new Error("not yet");
        })
        .end();

    test("a run that a later version has advanced is never claimed by an earlier one, which goes on with its own", async () => {
      let failing = true;
      const second = await runs.pod("pod-2", [deploy(2, { fails: () => failing })]);
      const advanced = await runs.start("deploy", 1);
      await runs.seen(advanced, "it has begun", ({ at, attempt }) => at === "two" && attempt > 1);
      await runs.stop(second);
      calls.length = 0;
      await runs.pod("pod-1", [deploy(1)]);
      const own = await runs.start("deploy", 2);
      expect(await runs.ended(own)).toMatchObject({ status: "completed", version: 1 });
      await runs.pass(50);
      expect(calls).toEqual(["one by 1", "two by 1"]);
      expect(await runs.get(advanced.runId)).toMatchObject({ version: 2, status: "open" });
      failing = false;
      await runs.pod("pod-3", [deploy(2)]);
      expect(await runs.ended(advanced)).toMatchObject({ status: "completed", version: 2 });
      expect(calls.slice(2)).toEqual(["two by 2"]);
    });

    test("one that a later version has only failed stays with the earlier", async () => {
      const first = await runs.pod("pod-1", [deploy(1, { fails: () => true })]);
      const run = await runs.start("deploy", 1);
      await runs.seen(run, "it has failed", ({ attempt }) => attempt > 1);
      await runs.stop(first);
      const second = await runs.pod("pod-2", [deploy(2, { fails: () => true })]);
      await runs.until("the second has tried", () => calls.includes("two by 2"));
      await runs.stop(second);
      expect(await runs.get(run.runId)).toMatchObject({ version: 1, at: "two" });
      calls.length = 0;
      await runs.pod("pod-3", [deploy(1)]);
      expect(await runs.ended(run)).toMatchObject({ status: "completed", version: 1 });
      expect(calls).toEqual(["two by 1"]);
    });

    test("one of a later version that must run alone, or is limited by its queue, is left alone too", async () => {
      const queue = { name: "deploys", limit: 5 };
      const second = await runs.pod("pod-2", [deploy(2, { fails: () => true, queue })]);
      const made = deploy(2, { queue });
      const ids: string[] = [];
      for (let at = 0; at < 6; at++) ids.push((await runs.start(made, at)).runId);
      for (const runId of ids)
        await runs.seen(runId, "it has begun", ({ version }) => version === 2);
      await runs.stop(second);
      // Two of them have seen pods die.
      for (const runId of ids.slice(0, 2)) await runs.tamper(runId, sql`deaths = 2`);
      calls.length = 0;
      const few = { capacity: { slots: 1, target: 1 } };
      await runs.pod("pod-1", [deploy(1, { queue })], few);
      // It doesn't have to wait behind those that it mustn't touch.
      const own = await runs.start(deploy(1, { queue }), 7);
      expect(await runs.ended(own)).toMatchObject({ status: "completed", version: 1 });
      await runs.pass(50);
      expect(calls).toEqual(["one by 1", "two by 1"]);
      await runs.pod("pod-3", [made]);
      for (const runId of ids) expect(await runs.ended(runId)).toMatchObject({ version: 2 });
    });

    test("both versions side by side finish all runs, and a later one takes over what an earlier began", async () => {
      await runs.pod("pod-1", [deploy(1)]);
      const started = [];
      for (let at = 0; at < 10; at++) started.push(await runs.start("deploy", at));
      await runs.pod("pod-2", [deploy(2)]);
      for (let at = 0; at < 10; at++) started.push(await runs.start("deploy", at));
      for (const run of started)
        expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      expect(calls).toHaveLength(40);
    });

    const first = (last: () => void): Flow =>
      flow("image", { version: 1, backoff: { baseMs: 1 } })
        .to("pull", () => ({ pulled: true }))
        .to("unpack", last)
        .to("tidy", () => ({ tidied: true }))
        .end();
    /** A run that stands at `unpack`, with an attempt failed. */
    const standing = async () => {
      const pod = await runs.pod("pod-1", [
        first(() => {
          throw new Error("no space");
        }),
      ]);
      const run = await runs.start("image", null);
      await runs.seen(run, "it stands", ({ at, attempt }) => at === "unpack" && attempt > 1);
      await runs.stop(pod);
      return run;
    };

    test("a transition that has another name is gone on with, with its attempts", async () => {
      const run = await standing();
      const { attempt } = (await runs.get(run.runId))!;
      const renamed = flow("image", { version: 2, renamed: { unpack: "extract" } })
        .to("pull", () => ({ pulled: "again" }))
        .to("extract", ({ attempt: at }) => ({ extracted: at }))
        .to("new", () => ({ new: true }))
        .end();
      await runs.pod("pod-2", [renamed]);
      expect(await runs.ended(run)).toMatchObject({
        output: { pulled: true, extracted: attempt, new: true },
      });
    });

    test("from one that is no more a run goes on with what replaces it, or ends", async () => {
      const run = await standing();
      const removed = flow("image", { version: 2, removed: { unpack: "tidy" } })
        .to("pull", () => ({ pulled: "again" }))
        .to("tidy", ({ attempt }) => ({ tidied: attempt }))
        .end();
      const pod = await runs.pod("pod-2", [removed]);
      expect(await runs.ended(run)).toMatchObject({ output: { pulled: true, tidied: 1 } });
      await runs.stop(pod);
      const another = await standing();
      const ended = flow("image", { version: 3, removed: { unpack: "end", tidy: "end" } })
        .to("pull", () => ({ pulled: "again" }))
        .end();
      await runs.pod("pod-3", [ended]);
      expect(await runs.ended(another)).toMatchObject({ output: { pulled: true } });
    });

    test("one that stands at an unknown name is set aside visibly, others go on, and a higher version takes it up", async () => {
      const run = await standing();
      const unknown = flow("image", { version: 2 })
        .to("pull", () => ({ pulled: "by 2" }))
        .end();
      const pod = await runs.pod("pod-2", [unknown]);
      const other = await runs.start("image", null);
      expect(await runs.ended(other)).toMatchObject({ output: { pulled: "by 2" } });
      expect(await runs.doing(run, "set_aside")).toMatchObject({
        at: "unpack",
        state: { pulled: true },
        doing: { reason: "unknown_transition", byVersion: 2 },
      });
      await runs.stop(pod);
      // The same version again changes nothing about it.
      const again = await runs.pod("pod-3", [unknown]);
      await runs.pass(50);
      const asides = (await runs.noted(run)).filter((type) => type === "set_aside");
      expect(asides).toHaveLength(1);
      await runs.stop(again);
      const mended = flow("image", { version: 3, removed: { unpack: "end" } })
        .to("pull", () => ({ pulled: "by 3" }))
        .end();
      await runs.pod("pod-4", [mended]);
      expect(await runs.ended(run)).toMatchObject({ version: 3, output: { pulled: true } });
    });

    test("one that was set aside can be cancelled, without finalizers that no pod could run", async () => {
      const run = await standing();
      const unknown = flow("image", { version: 2 })
        .to("pull", () => {})
        .end();
      await runs.pod("pod-2", [unknown]);
      await runs.doing(run, "set_aside");
      expect(await runs.cancel(run.runId)).toBe("cancelled");
      expect(await runs.get(run.runId)).toMatchObject({ status: "cancelled", doing: null });
      const told = await runs.noted(run);
      expect(told.slice(-3)).toEqual(["set_aside", "cancel_requested", "given_up"]);
    });

    /** A run that waits for a word, and was asked to cancel, before a version came that can't place it. */
    const askedBefore = async (cancel: (runId: string) => Promise<unknown>) => {
      const talking = flow("image", { version: 1 })
        .signal("word")
        .finally("tidy", () => {})
        .end();
      const pod = await runs.pod("pod-1", [talking]);
      const run = await runs.start("image", null);
      await runs.doing(run, "waiting_for_signal");
      await runs.stop(pod);
      await cancel(run.runId);
      const other = flow("image", { version: 2 })
        .to("other", () => {})
        .end();
      await runs.pod("pod-2", [other]);
      await runs.doing(run, "set_aside");
      return run;
    };

    test("one that was cancelled before it was set aside can be given up too", async () => {
      const run = await askedBefore(async (runId) => {
        expect(await runs.cancel(runId)).toBe("cancelling");
      });
      expect(await runs.cancel(run.runId)).toBe("cancelled");
      expect(await runs.get(run.runId)).toMatchObject({ status: "cancelled" });
      expect((await runs.noted(run)).slice(-2)).toEqual(["set_aside", "given_up"]);
    });

    test("a cancel that is sent again doesn't give up what was set aside since", async () => {
      let answered = () => {};
      const isAside = new Promise<void>((resolve) => (answered = resolve));
      let sends = 0;
      const client = runs.queue.client({
        database: {
          ...runs.database,
          async write(statements, options) {
            const tables = await runs.database.write(statements, options);
            if (sends++ > 0) return tables;
            await isAside;
            throw new FlotillaError("unknown_outcome", "the answer was lost");
          },
        },
      });
      let asked: Promise<string> | undefined;
      const run = await askedBefore(async (runId) => {
        asked = client.cancel(runId);
        await runs.until("that it is asked", async () => {
          return Number((await runs.queue.row(runId))["cancel_requested"]) === 1;
        });
      });
      answered();
      expect(await runs.outcome(asked!)).toBe("cancelling");
      expect(sends).toBe(2);
      expect(await runs.get(run.runId)).toMatchObject({ doing: { type: "set_aside" } });
      client.close();
    });

    /** A run that was set aside, and what it takes to ask for it while something else happens. */
    const asideMeanwhile = async () => {
      const run = await standing();
      const unknown = flow("image", { version: 2 })
        .to("pull", () => {})
        .end();
      await runs.pod("pod-2", [unknown]);
      await runs.doing(run, "set_aside");
      const { queue, database } = runs;
      const resume = (changed: Partial<Database>) =>
        createRuns(queue, { ...queue, database: { ...database, ...changed } }).resume(run.runId);
      return { run, resume };
    };

    test("a resume of one that is cancelled before its write is refused", async () => {
      const { run, resume } = await asideMeanwhile();
      const resumed = resume({
        async read(statement) {
          const seen = await runs.database.read(statement);
          await runs.cancel(run.runId);
          return seen;
        },
      });
      await expect(resumed).rejects.toMatchObject({
        code: "conflict",
        message: expect.stringContaining("and is cancelled: it wasn't resumed"),
      });
      expect(await runs.get(run.runId)).toMatchObject({ status: "cancelled" });
    });

    test("a resume that is sent again doesn't resume what was set aside since", async () => {
      const { run, resume } = await asideMeanwhile();
      let sends = 0;
      const resumed = resume({
        async write(statements, options) {
          const tables = await runs.database.write(statements, options);
          if (sends++ > 0) return tables;
          runs.wake();
          await runs.doing(run, "set_aside");
          throw new FlotillaError("unknown_outcome", "the answer was lost");
        },
      });
      await runs.outcome(resumed);
      expect(sends).toBe(2);
      const told = await runs.noted(run);
      expect(told.filter((type) => type === "resume")).toHaveLength(1);
    });

    test("one that is given up takes its children with it, and what waits for those is woken", async () => {
      const child = flow("part", { version: 1 }).signal("word").end();
      const errand = task<null>("errand", {}, () => {});
      const parent = flow("image", { version: 1 })
        .children("parts", () => [
          [child, null],
          [errand, null],
        ])
        .end();
      const first = await runs.pod("pod-1", [parent, child]);
      const run = await runs.start("image", null);
      await runs.doing(run, "waiting_for_children");
      const [part] = (await runs.list({ parent: run.runId })).runs;
      await runs.doing(part!.runId, "waiting_for_signal");
      const [, errandId] = (await runs.get(run.runId))!.waitsFor;
      const given = { after: [errandId!], afterFailed: "run" } as const;
      const { taskId: waiterId } = await runs.queue.enqueue("after", null, given);
      await runs.stop(first);
      await runs.queue.database.write([
        sql`update ${rowsOf} set parked = 0 where task_id = ${run.runId}`,
      ]);
      const other = flow("image", { version: 2 })
        .to("other", () => {})
        .end();
      await runs.pod("pod-2", [other]);
      await runs.doing(run, "set_aside");
      expect(await runs.queue.row(waiterId)).toMatchObject({ parked: 2 });
      expect(await runs.cancel(run.runId)).toBe("cancelled");
      expect(await runs.queue.get(errandId!)).toMatchObject({ status: "cancelled" });
      expect(await runs.queue.row(waiterId)).toMatchObject({ parked: 0 });
      await runs.pod("pod-3", [child]);
      expect(await runs.ended(part!.runId)).toMatchObject({ status: "cancelled" });
    });

    test.each([
      ["state", sql`state = '{"half":'`],
      ["state that is no object", sql`state = '[1]'`],
      ["intended ending", sql`intent = '{"type":"odd"}'`],
      ["wait", sql`waiting = '{"for":"godot","sinceMs":1}'`],
    ])(
      "one whose %s can't be read is set aside, and doesn't stop the others",
      async (_, changes) => {
        const run = await standing();
        await runs.tamper(run, changes);
        const before = await runs.queue.row(run.runId);
        await runs.pod("pod-2", [first(() => {})]);
        const other = await runs.start("image", null);
        expect(await runs.ended(other)).toMatchObject({ status: "completed" });
        expect(await runs.doing(run, "set_aside")).toMatchObject({
          doing: { reason: "unreadable", byVersion: 1 },
        });
        const { state, intent, waiting, cursor } = await runs.queue.row(run.runId);
        expect({ state, intent, waiting, cursor }).toEqual({
          state: before["state"],
          intent: before["intent"],
          waiting: before["waiting"],
          cursor: before["cursor"],
        });
      },
    );

    test("one that was set aside goes on when it was repaired and resumed", async () => {
      const run = await standing();
      const { state } = await runs.queue.row(run.runId);
      await runs.tamper(run, sql`state = 'broken'`);
      await runs.pod("pod-2", [first(() => {})]);
      await runs.doing(run, "set_aside");
      await runs.tamper(run, sql`state = ${state as string}`);
      await runs.resume(run.runId);
      expect(await runs.ended(run)).toMatchObject({ output: { pulled: true, tidied: true } });
      expect(await runs.noted(run)).toContain("resume");
    });

    test("one that a later version has advanced can be given to an earlier one by hand", async () => {
      const second = await runs.pod("pod-2", [deploy(2, { fails: () => true })]);
      const run = await runs.start("deploy", 1);
      await runs.seen(run, "it has begun", ({ at, attempt }) => at === "two" && attempt > 1);
      await runs.stop(second);
      await runs.pod("pod-1", [deploy(1)]);
      await runs.resume(run.runId, { as: 1 });
      expect(await runs.ended(run)).toMatchObject({ status: "completed", version: 1 });
      expect(await codeOf(runs.resume(run.runId))).toBe("conflict");
    });

    test("nothing is resumed that goes on by itself, has completed, or isn't there", async () => {
      const run = await runs.start("deploy", 1);
      expect(await codeOf(runs.resume(run.runId))).toBe("conflict");
      expect(await codeOf(runs.resume("nobody"))).toBe("not_found");
      await runs.pod("pod-1", [deploy(1)]);
      await runs.ended(run);
      expect(await codeOf(runs.resume(run.runId))).toBe("conflict");
    });

    test("an input that a later version refuses sets a run aside that is under way, and fails a new one", async () => {
      const run = await standing();
      const strict = flow("image", { version: 2, input: z.object({ url: z.string() }) })
        .to("pull", () => {})
        .to("unpack", () => {})
        .end();
      await runs.pod("pod-2", [strict]);
      const fresh = await runs.start("image", 3);
      expect(await runs.ended(fresh)).toMatchObject({ error: { code: "invalid_input" } });
      expect(await runs.doing(run, "set_aside")).toMatchObject({
        doing: { reason: "invalid_input" },
      });
    });
  });
}
