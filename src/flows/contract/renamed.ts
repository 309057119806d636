import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { talker } from "./children.ts";
import { flow } from "../flow.ts";
import { openRuns, type RunsHarness } from "./harness.ts";

/** What runs are promised that wait under a name which a later version has changed, on every store. */
export function renamedContract(kind: StoreKind): void {
  describe(`waits that are renamed on ${kind.name}`, () => {
    let harness: RunsHarness;
    beforeEach(async () => {
      harness = await openRuns(kind);
    });
    afterEach(() => harness.close());

    test("a run goes on with the children that it has started under another name", async () => {
      const first = flow("parent", { version: 1 })
        .children("each", () => [[talker, "a"]])
        .end();
      const later = flow("parent", { version: 2, renamed: { each: "all" } })
        .children("all", () => [[talker, "a"]])
        .end();
      const old = await harness.work("pod-1", [first, talker]);
      const { runId } = await harness.start(first, null);
      const [child] = await harness.childrenAwaited(runId);
      await harness.queue.outcome(old.stop({ waitMs: 0 }));
      await harness.work("pod-2", [later, talker]);
      await harness.signal(child!.runId, "word", "hey");
      expect(await harness.ended(runId)).toMatchObject({ output: { all: [{ said: "hey" }] } });
      expect(await harness.childrenOf(runId)).toHaveLength(1);
    });

    test("a run that is started over keeps the children that have completed under another name", async () => {
      let bad = true;
      const calls: string[] = [];
      const part = flow<string>("part", { version: 1, attempts: 1 })
        .to("do", ({ input }) => {
          calls.push(input);
          if (input === "b" && bad) throw abort("in a bad mood");
          return { did: input };
        })
        .end();
      const first = flow("parent", { version: 1 })
        .children("each", () => [
          [part, "a"],
          [part, "b"],
        ])
        .end();
      const later = flow("parent", { version: 2, renamed: { each: "all" } })
        .children("all", () => [
          [part, "a"],
          [part, "b"],
        ])
        .end();
      const old = await harness.work("pod-1", [first, part]);
      const { runId } = await harness.start(first, null);
      expect(await harness.ended(runId)).toMatchObject({ status: "failed" });
      await harness.queue.outcome(old.stop({ waitMs: 0 }));
      bad = false;
      await harness.resume(runId);
      await harness.work("pod-2", [later, part]);
      expect(await harness.ended(runId)).toMatchObject({
        status: "completed",
        output: { all: [{ did: "a" }, { did: "b" }] },
      });
      expect(calls).toEqual(["a", "b", "b"]);
      expect(await harness.childrenOf(runId)).toHaveLength(2);
    });

    test("a transition isn't called where its pod begins to stop while its earlier children are read", async () => {
      const calls: string[] = [];
      const part = flow("part", { version: 1, attempts: 1 })
        .to("do", () => {
          throw abort("in a bad mood");
        })
        .end();
      const parent = (version: number, name: string) =>
        flow("parent", { version, ...(version > 1 && { renamed: { each: "all" } }) })
          .children(name, () => (calls.push(name), [[part, null]]))
          .end();
      const old = await harness.work("pod-1", [parent(1, "each"), part]);
      const { runId } = await harness.start(parent(1, "each"), null);
      expect(await harness.ended(runId)).toMatchObject({ status: "failed" });
      await harness.queue.outcome(old.stop({ waitMs: 0 }));
      await harness.resume(runId);
      const looked = Promise.withResolvers<void>();
      const isStopping = Promise.withResolvers<void>();
      const { database } = harness.queue;
      const slow: Database = {
        ...database,
        async read(statement) {
          const rows = await database.read(statement);
          if (JSON.stringify(statement).includes("wait.dependency_id")) {
            looked.resolve();
            await isStopping.promise;
          }
          return rows;
        },
      };
      const pod = await harness.work("pod-2", [parent(2, "all"), part], { database: slow });
      await harness.queue.outcome(looked.promise);
      const stopped = pod.stop({ waitMs: 60_000 });
      isStopping.resolve();
      await harness.queue.outcome(stopped);
      expect(calls).toEqual(["each"]);
      await harness.work("pod-3", [parent(2, "all"), part]);
      expect(await harness.ended(runId)).toMatchObject({ status: "failed" });
      expect(calls).toEqual(["each", "all"]);
    });

    test.each(["old", "new"] as const)("a signal by its %s name is received", async (name) => {
      const first = flow("asks", { version: 1 }).signal("old").end();
      const later = flow("asks", { version: 2, renamed: { old: "new" } })
        .signal("new")
        .end();
      const old = await harness.work("pod-1", [first]);
      const { runId } = await harness.start(first, null);
      await harness.doing(runId, "waiting_for_signal");
      await harness.queue.outcome(old.stop({ waitMs: 0 }));
      await harness.work("pod-2", [later]);
      await harness.signal(runId, name, "yes");
      expect(await harness.ended(runId)).toMatchObject({ output: { new: "yes" } });
    });
  });
}
