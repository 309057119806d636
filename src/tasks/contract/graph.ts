import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import type { GraphRow } from "../enqueue/graph.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { task } from "../task.ts";

/** What those are promised who enqueue tasks that wait for each other. */
export function graphContract(kind: StoreKind): void {
  describe(`a graph of tasks on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const path = task("path", {}, async ({ input, parents }) => {
      const before = (await parents()).map((each) => (each as { result?: string }).result);
      return `${before.length > 0 ? `(${before.join("+")})` : ""}${input as string}`;
    });
    const row = (ref: string, ...after: string[]): GraphRow => ({
      ref,
      task: path,
      input: ref,
      after,
    });

    test("runs in its order, whatever the order of the rows, and answers by ref", async () => {
      const outside = await queue.enqueue(path, "o");
      const graph = await queue.enqueueGraph([
        { ref: "d", task: path, input: "d", after: ["b", "c"] },
        { ref: "b", task: "path", input: "b", after: ["a"] },
        { ref: "c", task: path, input: "c", after: ["a", outside] },
        { ref: "a", task: path, input: "a", options: { priority: -5 } },
      ]);
      expect(Object.keys(graph).toSorted()).toEqual(["a", "b", "c", "d"]);
      expect(graph.a).toEqual({ taskId: expect.any(String), created: true });
      await queue.work("pod-1", [path]);
      expect(await queue.outcome(queue.waitFor(graph.d))).toBe("((a)b+(a+o)c)d");
    });

    test.each<[string, GraphRow[], string[]]>([
      ["itself", [row("a", "a")], ["a", "a"]],
      ["each other", [row("x"), row("a", "x", "b"), row("b", "a")], ["a", "b", "a"]],
      [
        "each other in a ring",
        [row("a", "d"), row("b", "a"), row("c", "b"), row("d", "c")],
        ["a", "d", "c", "b", "a"],
      ],
    ])(
      "of tasks that would wait for %s is refused, and nothing is stored",
      async (_, rows, cycle) => {
        await expect(queue.enqueueGraph(rows)).rejects.toMatchObject({
          code: "dependency_cycle",
          message: expect.stringContaining(cycle.join(" after ")),
          details: { cycle },
        });
        expect(await queue.count()).toBe(0);
      },
    );

    test("is stored whole or not at all", async () => {
      await expect(queue.enqueueGraph([row("a"), row("b", "a", "nobody")])).rejects.toMatchObject({
        code: "not_found",
        details: { taskId: "nobody" },
      });
      await queue.enqueue("path", "taken", { key: "k" });
      const rejected = { ...row("b", "a"), options: { key: "k", onDuplicate: "reject" as const } };
      await expect(queue.enqueueGraph([row("a"), rejected])).rejects.toMatchObject({
        code: "duplicate_key",
      });
      expect(await queue.count()).toBe(1);
    });

    test("of which one key must be free, and another may be taken, is stored as it is returned", async () => {
      const holder = await queue.enqueue(path, "k", { key: "taken" });
      const graph = await queue.enqueueGraph([
        { ref: "a", task: path, input: "a" },
        { ref: "b", task: path, input: "b", options: { key: "free", onDuplicate: "reject" } },
        { ref: "c", task: path, input: "c", after: ["b"], options: { key: "taken" } },
      ]);
      expect(graph).toMatchObject({
        a: { created: true },
        b: { created: true },
        c: { ...holder, created: false },
      });
      expect(await queue.count()).toBe(3);
      const again = queue.enqueueGraph([
        { ref: "a", task: path, input: "a" },
        { ref: "b", task: path, input: "b", options: { key: "free", onDuplicate: "reject" } },
        { ref: "c", task: path, input: "c", after: ["b"], options: { key: "other" } },
      ]);
      await expect(again).rejects.toMatchObject({ code: "duplicate_key" });
      expect(await queue.count()).toBe(3);
    });

    test("of which one key must be free, and isn't, replaces nothing either", async () => {
      const waiting = await queue.enqueue(path, "old", { key: "k", delayMs: 60_000 });
      const rows: GraphRow[] = [
        { ...row("a"), options: { key: "k", onDuplicate: "replace" } },
        { ...row("b"), options: { key: "l", onDuplicate: "reject" } },
      ];
      const holder = await queue.enqueue(path, "l", { key: "l" });
      await expect(queue.enqueueGraph(rows)).rejects.toMatchObject({ code: "duplicate_key" });
      expect(await queue.get(waiting.taskId)).toMatchObject({ payload: "old" });
      await queue.database.write([sql`delete from ${rowsOf} where task_id = ${holder.taskId}`]);
      expect(await queue.enqueueGraph(rows)).toMatchObject({
        a: { taskId: waiting.taskId, replaced: true },
        b: { created: true },
      });
      expect(await queue.get(waiting.taskId)).toMatchObject({ payload: "a" });
    });

    test("waits for the task that holds a key, where a row has one that is taken", async () => {
      const there = await queue.enqueue("path", "there", { key: "k" });
      const graph = await queue.enqueueGraph([
        { ...row("a"), ref: "a", options: { key: "k" } },
        { ...row("b", "a"), ref: "b" },
      ]);
      expect(graph.a).toEqual({ taskId: there.taskId, created: false });
      expect(await queue.get(graph.b.taskId)).toMatchObject({ waitsFor: [there.taskId] });
      await queue.work("pod-1", [path]);
      expect(await queue.ended(graph.b.taskId)).toMatchObject({ result: "(there)b" });
    });

    test.each<[string, GraphRow[]]>([
      ["two rows of one ref", [row("a"), row("a")]],
      ["a row without a ref", [row("")]],
      [
        "two rows of one key, which would be one task",
        [
          { ...row("a", "b"), options: { key: "k" } },
          { ...row("b"), options: { key: "k" } },
        ],
      ],
      ["an option that doesn't exist", [{ ...row("a"), before: [] } as GraphRow]],
    ])("with %s is refused", async (_, rows) => {
      await expect(queue.enqueueGraph(rows)).rejects.toMatchObject({ code: "invalid_option" });
      expect(await queue.count()).toBe(0);
    });

    test("may be a long chain", async () => {
      const chain = Array.from({ length: 5_000 }, (_, at) =>
        row(`r${at}`, ...(at > 0 ? [`r${at - 1}`] : [])),
      );
      const graph = await queue.enqueueGraph(chain.toReversed());
      expect(Object.keys(graph)).toHaveLength(5_000);
      expect(await queue.claim("pod-1", ["path"], 2)).toHaveLength(0);
      await queue.beat("pod-1");
      expect(await queue.claim("pod-1", ["path"], 2)).toHaveLength(1);
    });

    test("of nothing is nothing", async () => {
      expect(await queue.enqueueGraph([])).toEqual({});
    });
  });
}
