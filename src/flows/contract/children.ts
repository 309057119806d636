import { afterEach, beforeEach, describe, expect, expectTypeOf, test } from "vitest";
import { abort } from "../../base/errors.ts";
import { linksOf } from "../../links/links.ts";
import { rowsOf } from "../../tasks/contract/harness.ts";
import { task } from "../../tasks/task.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { flow } from "../flow.ts";
import { openRuns, type RunsHarness, soon } from "./harness.ts";

export const double = flow<number>("double", { version: 1 })
  .to("double", ({ input }) => ({ twice: input * 2 }))
  .end();

/** A child that ends as its input says. */
export const moody = flow<string>("moody", { version: 1, attempts: 1 })
  .to("be", ({ input }) => {
    if (input === "bad") throw abort("in a bad mood");
    return { mood: input };
  })
  .end();

export const talker = flow<string>("talker", { version: 1 })
  .signal("word")
  .to("repeat", ({ state }) => ({ said: state.word }))
  .end();

/** A parent of children that each wait for a word. */
export const waitsFor = (...words: string[]) =>
  flow("parent", { version: 1 })
    .children("each", () => words.map((word) => [talker, word] as const))
    .to("after", () => ({ after: true }))
    .end();

/** What runs that start others are promised on every store. */
export function childrenContract(kind: StoreKind): void {
  describe(`children of runs on ${kind.name}`, () => {
    let harness: RunsHarness;
    beforeEach(async () => {
      harness = await openRuns(kind);
    });
    afterEach(() => harness.close());

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
      await harness.work("pod-1", [parent, double, shout]);
      const { runId } = await harness.start(parent, null);
      expect(await harness.ended(runId)).toMatchObject({
        status: "completed",
        output: { each: ["HEY", { twice: 42 }], sum: "HEY 42" },
      });
      expect(await harness.noted(runId)).toEqual([
        "start",
        "complete plan",
        "park each",
        "complete each",
        "complete after",
        "finish",
      ]);
      const [child, ...others] = await harness.childrenOf(runId);
      expect(others).toEqual([]);
      expect(child).toMatchObject({ flow: "double", input: 21, parentId: runId });
    });

    test("a run is linked to its children, and to what its transitions enqueue", async () => {
      const parent = flow("parent", { version: 1 })
        .to("ask", async () => {
          await harness.queue.enqueue("mail", 1);
          return {};
        })
        .children("each", () => [[double, 4]] as const)
        .end();
      await harness.work("pod-1", [parent, double]);
      const { runId } = await harness.start(parent, null);
      await harness.ended(runId);
      const { started } = await linksOf(harness.queue.database, runId, "task");
      const named = (name: string) => started.find((each) => each.name === name);
      expect(started).toHaveLength(2);
      expect(named("mail")).toMatchObject({ what: "run", status: "pending" });
      const child = named("double")!;
      expect(child).toMatchObject({ what: "run", status: "completed" });
      expect(await linksOf(harness.queue.database, child.taskId, "task")).toMatchObject({
        startedBy: { what: "run", id: runId },
      });
    });

    test("a run waits for the last of its children, and shows that it does", async () => {
      const parent = waitsFor("a", "b");
      await harness.work("pod-1", [parent, talker]);
      const { runId } = await harness.start(parent, null);
      const children = await harness.childrenAwaited(runId);
      expect(children.map(({ input }) => input)).toEqual(["a", "b"]);
      expect(await harness.view(runId)).toMatchObject({
        at: "each",
        waitsFor: children.map((child) => child.runId),
      });
      await harness.signal(children[1]!.runId, "word", 2);
      await harness.ended(children[1]!.runId);
      expect((await harness.doing(runId, "waiting_for_children")).status).toBe("open");
      await harness.folds();
      await harness.signal(children[0]!.runId, "word", 1);
      expect(await harness.ended(runId)).toMatchObject({
        output: { each: [{ said: 1 }, { said: 2 }] },
      });
    });

    test("a caller's key takes no open child from its parent", async () => {
      const parent = waitsFor("a", "b");
      await harness.work("pod-1", [parent, talker]);
      const { runId } = await harness.start(parent, null);
      const [a, b] = await harness.childrenAwaited(runId);
      await harness.queue.pass(10);
      const given = { key: `${runId}/each/0`, uniqueForMs: 1 };
      const holder = { taskId: a!.runId, created: false };
      expect(await harness.queue.enqueue("talker", "x", given)).toEqual(holder);
      await harness.signal(b!.runId, "word", 2);
      await harness.ended(b!.runId);
      expect((await harness.view(runId)).doing?.type).toBe("waiting_for_children");
      await harness.signal(a!.runId, "word", 1);
      expect(await harness.ended(runId)).toMatchObject({
        output: { each: [{ said: 1 }, { said: 2 }] },
      });
    });

    test("nor one that has ended, whose result the parent hasn't used", async () => {
      const parent = waitsFor("a", "b");
      await harness.work("pod-1", [parent, talker]);
      const { runId } = await harness.start(parent, null);
      const [a, b] = await harness.childrenAwaited(runId);
      await harness.signal(a!.runId, "word", 1);
      await harness.ended(a!.runId);
      const given = { key: `${runId}/each/0`, uniqueWhile: "unfinished" } as const;
      const holder = { taskId: a!.runId, created: false };
      expect(await harness.queue.enqueue("talker", "x", given)).toEqual(holder);
      await harness.signal(b!.runId, "word", 2);
      expect(await harness.ended(runId)).toMatchObject({
        output: { each: [{ said: 1 }, { said: 2 }] },
      });
    });

    test("a caller's key replaces no child of a run", async () => {
      const echo = task<string, string, string>("echo", {}, ({ input }) => input);
      const parent = flow("parent", { version: 1 })
        .children("each", () => [[echo, "asked for"]])
        .end();
      await harness.work("pod-1", [parent]);
      const { runId } = await harness.start(parent, null);
      await harness.doing(runId, "waiting_for_children");
      const [childId] = (await harness.view(runId)).waitsFor;
      const given = { key: `${runId}/each/0`, onDuplicate: "replace" } as const;
      expect(await harness.queue.enqueue("echo", "another", given)).toEqual({
        taskId: childId,
        created: false,
        replaced: false,
      });
      await harness.work("pod-2", [echo]);
      expect(await harness.ended(runId)).toMatchObject({ output: { each: ["asked for"] } });
    });

    test("a run isn't woken while a child whose key is gone is open", async () => {
      const parent = waitsFor("a", "b");
      await harness.work("pod-1", [parent, talker]);
      const { runId } = await harness.start(parent, null);
      const [a, b] = await harness.childrenAwaited(runId);
      await harness.database.write([
        sql`update ${rowsOf} set unique_key = null where task_id = ${a!.runId}`,
      ]);
      await harness.signal(b!.runId, "word", 2);
      await harness.ended(b!.runId);
      expect((await harness.view(runId)).doing?.type).toBe("waiting_for_children");
      await harness.signal(a!.runId, "word", 1);
      expect(await harness.ended(runId)).toMatchObject({ status: "completed" });
    });

    test("a run that starts none goes on at once", async () => {
      const parent = waitsFor();
      await harness.work("pod-1", [parent]);
      const { runId } = await harness.start(parent, null);
      expect(await harness.ended(runId)).toMatchObject({ output: { each: [], after: true } });
      expect(await harness.noted(runId)).toEqual([
        "start",
        "complete each",
        "complete after",
        "finish",
      ]);
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
      await harness.work("pod-1", [tree]);
      const { runId } = await harness.start(tree, 3);
      expect(await harness.ended(runId)).toMatchObject({ state: { leaves: 8 } });
      expect(await harness.queue.count()).toBe(15);
    });

    test("a run can start children more than once, and each wait sees its own", async () => {
      const twice = flow("twice", { version: 1 })
        .children("first", () => [
          [double, 1],
          [double, 2],
        ])
        .children("second", ({ state }) => [[double, state.first[1].twice]])
        .end();
      await harness.work("pod-1", [twice, double]);
      const { runId } = await harness.start(twice, null);
      expect(await harness.ended(runId)).toMatchObject({
        output: { first: [{ twice: 2 }, { twice: 4 }], second: [{ twice: 8 }] },
      });
    });

    test("a thousand children are started in one write and waited for", async () => {
      const add = task<number, number, number>("add", {}, ({ input }) => input + 1);
      const wide = flow("wide", { version: 1 })
        .children("each", () => Array.from({ length: 1_000 }, (_, at) => [add, at] as const))
        .to("sum", ({ state }) => ({ total: state.each.reduce((sum, one) => sum + one, 0) }))
        .end();
      await harness.work("pod-1", [wide, add], { capacity: { slots: 200, target: 1 } });
      const { runId } = await harness.start(wide, null);
      const run = await harness.ended(runId);
      expect(run).toMatchObject({ status: "completed", state: { total: 500_500 } });
      expect(await harness.queue.count(sql`parent_id = ${runId} and status = 'completed'`)).toBe(
        1_000,
      );
    });

    test("an unknown option of a child fails the run, and the error names it", async () => {
      const parent = flow("parent", { version: 1 })
        .children("each", () => [[double, 1, { after: ["x"] } as object]])
        .end();
      await harness.work("pod-1", [parent, double]);
      const { runId } = await harness.start(parent, null);
      const message = expect.stringContaining('unknown option "after"');
      expect(await harness.ended(runId)).toMatchObject({ status: "failed", error: { message } });
    });

    test("what children give is held to the limit of the state", async () => {
      const wordy = flow("wordy", { version: 1 })
        .to("say", () => ({ said: "x".repeat(100_000) }))
        .end();
      const parent = flow("parent", { version: 1 })
        .children("each", () => Array.from({ length: 3 }, () => [wordy, null] as const))
        .end();
      await harness.work("pod-1", [parent, wordy]);
      const { runId } = await harness.start(parent, null);
      expect(await harness.ended(runId)).toMatchObject({
        status: "failed",
        state: {},
        error: { code: "payload_too_large" },
      });
    });

    test("children that can't be stored are the transition's error, and none is started", async () => {
      const parent = flow("parent", { version: 1, attempts: 2, backoff: soon })
        .children("each", () => [
          [double, 1],
          [double, 1n as unknown as number],
        ])
        .end();
      await harness.work("pod-1", [parent, double]);
      const { runId } = await harness.start(parent, null);
      expect(await harness.ended(runId)).toMatchObject({ status: "failed", state: {} });
      expect(await harness.queue.count()).toBe(1);
    });
  });
}
