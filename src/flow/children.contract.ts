import { afterEach, beforeEach, describe, expect, expectTypeOf, test } from "vitest";
import { abort } from "../base/errors.ts";
import { rowsOf } from "../queue/queue.contract.ts";
import { cancelTask } from "../queue/statements/ask.ts";
import { task } from "../queue/task.ts";
import type { StoreKind } from "../store/database.contract.ts";
import { sql } from "../store/sql.ts";
import { flow } from "./flow.ts";
import {
  givesBack,
  holding,
  openRuns,
  type RunsUnderTest,
  soon,
} from "./scene-of-runs.contract.ts";

const double = flow<number>("double", { version: 1 })
  .to("double", ({ input }) => ({ twice: input * 2 }))
  .end();

/** A child that ends as its input says. */
const moody = flow<string>("moody", { version: 1, attempts: 1 })
  .to("be", ({ input }) => {
    if (input === "bad") throw abort("in a bad mood");
    return { mood: input };
  })
  .end();

const talker = flow<string>("talker", { version: 1 })
  .signal("word")
  .to("repeat", ({ state }) => ({ said: state.word }))
  .end();

const waitsFor = (...words: string[]) =>
  flow("parent", { version: 1 })
    .children("each", () => words.map((word) => [talker, word] as const))
    .to("after", () => ({ after: true }))
    .end();

/** What runs that start others are promised on every store. */
export function childrenContract(kind: StoreKind): void {
  describe(`children of runs on ${kind.name}`, () => {
    let scene: RunsUnderTest;
    beforeEach(async () => {
      scene = await openRuns(kind);
    });
    afterEach(() => scene.close());

    const childrenOf = async (runId: string) =>
      (await scene.list({ parent: runId, limit: 1_000 })).runs.toReversed();
    const waiting = async (runId: string) => {
      await scene.doing(runId, "waiting_for_children");
      return childrenOf(runId);
    };

    test("a run goes on with what each of its children gave, in the order that it named them", async () => {
      const shout = task<string, string, string>("shout", {}, ({ input }) => input.toUpperCase());
      const parent = flow("parent", { version: 1 })
        .to("plan", () => ({ numbers: 21 }))
        .children("each", ({ state }) => [
          [shout, "hey", { priority: -5 }],
          [double, state.numbers],
        ])
        .to("after", ({ state }) => {
          expectTypeOf(state.each).toEqualTypeOf<[string, { twice: number }]>();
          return { sum: `${state.each[0]} ${state.each[1].twice}` };
        })
        .end();
      await scene.work("pod-1", [parent, double, shout]);
      const { runId } = await scene.start(parent, null);
      expect(await scene.ended(runId)).toMatchObject({
        status: "completed",
        output: { each: ["HEY", { twice: 42 }], sum: "HEY 42" },
      });
      expect(await scene.noted(runId)).toEqual([
        "start",
        "complete plan",
        "park each",
        "complete each",
        "complete after",
        "finish",
      ]);
      const [child, ...others] = await childrenOf(runId);
      expect(others).toEqual([]);
      expect(child).toMatchObject({ flow: "double", input: 21, parentId: runId });
    });

    test("a run waits for the last of its children, and says so", async () => {
      const parent = waitsFor("a", "b");
      await scene.work("pod-1", [parent, talker]);
      const { runId } = await scene.start(parent, null);
      const children = await waiting(runId);
      expect(children.map(({ input }) => input)).toEqual(["a", "b"]);
      expect(await scene.view(runId)).toMatchObject({
        at: "each",
        waitsFor: children.map((child) => child.runId),
      });
      await scene.signal(children[1]!.runId, "word", 2);
      await scene.ended(children[1]!.runId);
      expect((await scene.doing(runId, "waiting_for_children")).status).toBe("open");
      await scene.folds();
      await scene.signal(children[0]!.runId, "word", 1);
      expect(await scene.ended(runId)).toMatchObject({
        output: { each: [{ said: 1 }, { said: 2 }] },
      });
    });

    test("a run that starts none goes on at once", async () => {
      const parent = waitsFor();
      await scene.work("pod-1", [parent]);
      const { runId } = await scene.start(parent, null);
      expect(await scene.ended(runId)).toMatchObject({ output: { each: [], after: true } });
      expect(await scene.noted(runId)).toEqual([
        "start",
        "complete each",
        "complete after",
        "finish",
      ]);
    });

    test("one that fails fails its parent, but not before all have ended", async () => {
      const parent = flow("parent", { version: 1 })
        .children("each", () => [
          [moody, "bad"],
          [talker, "slow"],
        ])
        .to("never", () => ({ never: true }))
        .end();
      await scene.work("pod-1", [parent, moody, talker]);
      const { runId } = await scene.start(parent, null);
      const [bad, slow] = await waiting(runId);
      await scene.ended(bad!.runId);
      expect((await scene.doing(runId, "waiting_for_children")).status).toBe("open");
      await scene.signal(slow!.runId, "word", 1);
      const failed = await scene.ended(runId);
      expect(failed).toMatchObject({
        status: "failed",
        state: {},
        error: { code: "dependency_failed", taskId: bad!.runId },
      });
      expect(failed.error?.message).toContain("in a bad mood");
      // Nobody repeats it: the children wouldn't end otherwise the next time.
      expect(await scene.noted(runId)).toEqual(["start", "park each", "error each", "finish"]);
    });

    test("where failures are kept, the state tells how each has ended", async () => {
      const ill = task<null, null, number>("ill", { attempts: 1 }, () => {
        throw new Error("fever");
      });
      const parent = flow("parent", { version: 1 })
        .children("each", { failures: "keep" }, () => [
          [moody, "good"],
          [moody, "bad"],
          [talker, "cancelled"],
          [ill, null],
        ])
        .to("after", ({ state }) => ({
          ok: state.each.filter((one) => one.status === "completed").length,
        }))
        .end();
      await scene.work("pod-1", [parent, moody, talker, ill]);
      const { runId } = await scene.start(parent, null);
      const children = await waiting(runId);
      await scene.cancel(children.find(({ flow: name }) => name === "talker")!.runId);
      expect(await scene.ended(runId)).toMatchObject({
        status: "completed",
        output: {
          ok: 1,
          each: [
            { status: "completed", output: { mood: "good" } },
            { status: "failed", error: { code: "aborted" } },
            { status: "cancelled" },
            { status: "failed", error: { code: "handler_failed", message: "fever" } },
          ],
        },
      });
    });

    test("a child that is cancelled fails its parent", async () => {
      const parent = waitsFor("a");
      await scene.work("pod-1", [parent, talker]);
      const { runId } = await scene.start(parent, null);
      const [child] = await waiting(runId);
      await scene.cancel(child!.runId);
      const failed = await scene.ended(runId);
      expect(failed).toMatchObject({ status: "failed", error: { taskId: child!.runId } });
      expect(failed.error?.message).toContain("was cancelled");
    });

    test.each(["a run", "a task"])(
      "a child that kills its pods, %s, fails its parent",
      async (what) => {
        const deadly = task<null>("deadly", {}, () => {});
        const grim = flow<null>("grim", { version: 1 })
          .to("reap", () => ({}))
          .end();
        const child = what === "a run" ? grim : deadly;
        const parent = flow("parent", { version: 1 })
          .children("each", () => [[child, null]])
          .end();
        await scene.work("pod-1", [parent]);
        const { runId } = await scene.start(parent, null);
        await scene.doing(runId, "waiting_for_children");
        const [childId] = (await scene.view(runId)).waitsFor;
        for (let deaths = 0; deaths < 4; deaths++) await scene.die(childId!);
        await scene.work("pod-2", [grim]);
        const failed = await scene.ended(runId);
        expect(failed).toMatchObject({ status: "failed", error: { taskId: childId } });
        expect(failed.error?.message).toContain("4 pods");
      },
    );

    test("the last child that ends while its parent is being parked isn't missed", async () => {
      const parent = waitsFor("a");
      const held = holding(scene.database, givesBack, "answer");
      await scene.work("pod-1", [parent], { database: held.database });
      const { runId } = await scene.start(parent, null);
      await scene.queue.until("the write that parks it", () => held.reached);
      await scene.work("pod-2", [parent, talker]);
      const [child] = await childrenOf(runId);
      await scene.signal(child!.runId, "word", 1);
      expect(await scene.ended(runId)).toMatchObject({ output: { each: [{ said: 1 }] } });
      held.letGo();
      expect(await scene.noted(runId)).toHaveLength(5);
    });

    test("the last child that ends while its parent is claimed isn't missed", async () => {
      const parent = waitsFor("a", "b");
      const first = await scene.work("pod-1", [parent, talker]);
      const { runId } = await scene.start(parent, null);
      const [a, b] = await waiting(runId);
      await scene.queue.until("the children's waits", async () =>
        (await childrenOf(runId)).every(({ doing }) => doing?.type === "waiting_for_signal"),
      );
      await scene.queue.outcome(first.stop({ waitMs: 0 }));
      // A pod has looked, found one open, and is about to park the parent again.
      const held = holding(scene.database, givesBack);
      await scene.database.write([sql`update ${rowsOf} set parked = 0 where task_id = ${runId}`]);
      await scene.work("pod-2", [parent], { database: held.database });
      await scene.queue.until("the write that parks it again", () => held.reached);
      await scene.work("pod-3", [talker]);
      for (const child of [a, b]) await scene.signal(child!.runId, "word", child!.input);
      for (const child of [a, b]) await scene.ended(child!.runId);
      expect(await scene.view(runId)).toMatchObject({ doing: { type: "running" } });
      held.letGo();
      expect(await scene.ended(runId)).toMatchObject({
        output: { each: [{ said: "a" }, { said: "b" }] },
      });
    });

    test("a parent that is claimed early, with children open, waits on as before", async () => {
      const parent = waitsFor("a");
      await scene.work("pod-1", [parent, talker]);
      const { runId } = await scene.start(parent, null);
      const [child] = await waiting(runId);
      const before = await scene.view(runId);
      await scene.die(runId);
      await scene.queue.until("another park", async () => {
        const { doing } = await scene.view(runId);
        return doing?.type === "waiting_for_children";
      });
      expect((await scene.view(runId)).doing).toEqual(before.doing);
      await scene.signal(child!.runId, "word", 1);
      expect(await scene.ended(runId)).toMatchObject({ status: "completed" });
      expect(await childrenOf(runId)).toHaveLength(1);
    });

    test("a parent that is cancelled cancels its children in the same write", async () => {
      const errand = task<null>("errand", {}, () => {});
      const parent = flow("parent", { version: 1 })
        .children("each", () => [
          [talker, "a"],
          [moody, "good"],
          [errand, null],
        ])
        .finally("tidy", () => {})
        .end();
      const worker = await scene.work("pod-1", [parent, moody]);
      const { runId } = await scene.start(parent, null);
      const [, good] = await waiting(runId);
      await scene.ended(good!.runId);
      await scene.queue.outcome(worker.stop({ waitMs: 0 }));
      expect(await scene.cancel(runId)).toBe("cancelling");
      // Every write of this pod after the one that cancels is held.
      const held = holding(scene.database, givesBack);
      await scene.work("pod-2", [parent], { database: held.database });
      await scene.queue.until("the end", () => held.reached);
      const [a] = await childrenOf(runId);
      expect(a).toMatchObject({ status: "open", cancelRequested: true, doing: { type: "ready" } });
      expect(await scene.view(runId)).toMatchObject({ status: "open", intent: "cancelled" });
      const { waitsFor: ids } = await scene.view(runId);
      expect(await scene.queue.get(ids[2]!)).toMatchObject({ status: "cancelled" });
      held.letGo();
      expect(await scene.ended(runId)).toMatchObject({ status: "cancelled" });
      await scene.work("pod-3", [talker]);
      expect(await scene.ended(a!.runId)).toMatchObject({ status: "cancelled" });
      expect(await scene.view(good!.runId)).toMatchObject({ status: "completed" });
    });

    test("a cancel goes down to grandchildren, and what has waited for them wakes", async () => {
      const middle = flow<string>("middle", { version: 1 })
        .children("own", ({ input }) => [[talker, input]])
        .end();
      const top = flow("top", { version: 1 })
        .children("each", () => [
          [middle, "x"],
          [middle, "y"],
        ])
        .end();
      await scene.work("pod-1", [top, middle, talker]);
      const { runId } = await scene.start(top, null);
      const middles = await waiting(runId);
      const grandchildren = [];
      for (const each of middles) grandchildren.push(...(await waiting(each.runId)));
      expect(grandchildren.map(({ input }) => input)).toEqual(["x", "y"]);
      await scene.cancel(runId);
      for (const each of [...middles, ...grandchildren]) {
        expect(await scene.ended(each.runId)).toMatchObject({ status: "cancelled" });
      }
      expect(await scene.ended(runId)).toMatchObject({ status: "cancelled" });
    });

    test("what grandchildren give goes up, level by level", async () => {
      const node = flow<number>("tree", { version: 1 });
      const tree = node
        .children("below", ({ input }) =>
          Array.from({ length: input === 0 ? 0 : 2 }, () => [node, input - 1] as const),
        )
        .to("count", ({ state }) => {
          const below = state.below as { leaves: number }[];
          return {
            leaves: Math.max(
              1,
              below.reduce((sum, { leaves }) => sum + leaves, 0),
            ),
          };
        })
        .end();
      await scene.work("pod-1", [tree]);
      const { runId } = await scene.start(tree, 3);
      expect(await scene.ended(runId)).toMatchObject({ state: { leaves: 8 } });
      expect(await scene.queue.count()).toBe(15);
    });

    test("a run can start children more than once, and each wait sees its own", async () => {
      const twice = flow("twice", { version: 1 })
        .children("first", () => [
          [double, 1],
          [double, 2],
        ])
        .children("second", ({ state }) => [[double, state.first[1].twice]])
        .end();
      await scene.work("pod-1", [twice, double]);
      const { runId } = await scene.start(twice, null);
      expect(await scene.ended(runId)).toMatchObject({
        output: { first: [{ twice: 2 }, { twice: 4 }], second: [{ twice: 8 }] },
      });
    });

    test("a thousand children are started in one write and waited for", async () => {
      const add = task<number, number, number>("add", {}, ({ input }) => input + 1);
      const wide = flow("wide", { version: 1 })
        .children("each", () => Array.from({ length: 1_000 }, (_, at) => [add, at] as const))
        .to("sum", ({ state }) => ({ total: state.each.reduce((sum, one) => sum + one, 0) }))
        .end();
      await scene.work("pod-1", [wide, add], { capacity: { slots: 200, target: 1 } });
      const { runId } = await scene.start(wide, null);
      const run = await scene.ended(runId);
      expect(run).toMatchObject({ status: "completed", state: { total: 500_500 } });
      expect(await scene.queue.count(sql`parent_id = ${runId} and status = 'completed'`)).toBe(
        1_000,
      );
    });

    test("a parent that is started over keeps what has completed and starts the rest over", async () => {
      const counts: string[] = [];
      let mood = "bad";
      const fickle = flow<string>("fickle", { version: 1, attempts: 1 })
        .to("first", ({ input }) => void counts.push(`${input} first`))
        .to("second", ({ input }) => {
          counts.push(`${input} second`);
          if (input === "b" && mood === "bad") throw new Error("not now");
          return { is: input };
        })
        .end();
      const parent = flow("parent", { version: 1 })
        .children("each", () => [
          [fickle, "a"],
          [fickle, "b"],
          [talker, "c"],
        ])
        .end();
      await scene.work("pod-1", [parent, fickle, talker]);
      const { runId } = await scene.start(parent, null);
      const children = await waiting(runId);
      await scene.cancel(children[2]!.runId);
      expect(await scene.ended(runId)).toMatchObject({ status: "failed" });
      expect(counts.toSorted()).toEqual(["a first", "a second", "b first", "b second"]);
      counts.length = 0;
      mood = "good";
      await scene.resume(runId);
      await scene.doing(runId, "waiting_for_children");
      await scene.folds();
      await scene.signal(children[2]!.runId, "word", "now");
      expect(await scene.ended(runId)).toMatchObject({
        status: "completed",
        output: { each: [{ is: "a" }, { is: "b" }, { said: "now" }] },
      });
      // The child that had failed goes on where it stopped.
      expect(counts).toEqual(["b second"]);
      expect((await childrenOf(runId)).map((child) => child.runId)).toEqual(
        children.map((child) => child.runId),
      );
    });

    test("children that can't be stored are the transition's error, and none is started", async () => {
      const parent = flow("parent", { version: 1, attempts: 2, backoff: soon })
        .children("each", () => [
          [double, 1],
          [double, 1n as unknown as number],
        ])
        .end();
      await scene.work("pod-1", [parent, double]);
      const { runId } = await scene.start(parent, null);
      expect(await scene.ended(runId)).toMatchObject({ status: "failed", state: {} });
      expect(await scene.queue.count()).toBe(1);
    });

    test.runIf(kind.name.startsWith("Postgres"))(
      "none is started by a parent that is being cancelled in somebody's transaction",
      async () => {
        const caller = await scene.queue.store.caller!();
        const held = holding(scene.database, givesBack);
        const parent = waitsFor("a", "b");
        await scene.work("pod-1", [parent, talker], { database: held.database });
        const { runId } = await scene.start(parent, null);
        await scene.queue.until("the write that starts them", () => held.reached);
        await caller.begin();
        await scene.database.within(caller.handle).write(cancelTask(runId));
        held.letGo();
        await scene.queue.until("that it waits for the row", async () => {
          const blocked = await caller.all(`select 1 from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'`);
          return blocked.length > 0;
        });
        await caller.exec("commit");
        await caller.close();
        expect(await scene.ended(runId)).toMatchObject({ status: "cancelled" });
        expect(await childrenOf(runId)).toEqual([]);
      },
    );
  });
}
