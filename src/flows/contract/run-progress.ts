import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Json } from "../../base/json.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { flow } from "../flow.ts";
import { openRuns, type RunsHarness } from "./harness.ts";

/** What is kept of the progress of a transition, and for whom, on every store. */
export function runProgressContract(kind: StoreKind): void {
  describe(`progress of runs on ${kind.name}`, () => {
    let runs: RunsHarness;
    beforeEach(async () => {
      runs = await openRuns(kind);
    });
    afterEach(() => runs.close());

    /** One saves and returns at once; two says what it finds, and stays. */
    const twoSteps = (found: Json[]) => {
      let leave = () => {};
      const made = flow("steps", { version: 1 })
        .to("one", async ({ progress }) => {
          progress({ of: "one" });
          await ready;
        })
        .to("two", async ({ lastProgress }) => {
          found.push(await lastProgress());
          await new Promise<void>((resolve) => (leave = resolve));
          found.push(await lastProgress());
        })
        .end();
      let ready: Promise<void> | undefined;
      return { made, leave: () => leave(), wait: (until: Promise<void>) => void (ready = until) };
    };

    test("people can read it while the transition runs", async () => {
      let finish = () => {};
      const slow = flow("slow", { version: 1 })
        .to("one", ({ progress }) => {
          progress({ done: 3 });
          return new Promise<void>((resolve) => (finish = resolve));
        })
        .end();
      await runs.pod("pod-1", [slow]);
      const run = await runs.start(slow, null);
      await runs.seen(run, "its progress", ({ progress }) => progress !== null);
      expect(await runs.get(run.runId)).toMatchObject({ progress: { done: 3 } });
      finish();
      expect(await runs.ended(run)).toMatchObject({ progress: null });
    });

    test("belongs to its transition: the next one finds none, also when it would have been stored later", async () => {
      const found: Json[] = [];
      const { made, leave } = twoSteps(found);
      await runs.pod("pod-1", [made]);
      const run = await runs.start(made, null);
      await runs.until("the second", () => found.length === 1);
      await runs.pass(400);
      expect(await runs.get(run.runId)).toMatchObject({ at: "two", progress: null });
      leave();
      await runs.ended(run);
      expect(found).toEqual([null, null]);
    });

    test("a write of it that is under way when its transition is stored changes nothing any more", async () => {
      const found: Json[] = [];
      const { made, leave, wait } = twoSteps(found);
      let reached = () => {};
      wait(new Promise((resolve) => (reached = resolve)));
      let letGo = () => {};
      const held = new Promise<void>((resolve) => (letGo = resolve));
      let landed = false;
      const slow: Database = {
        ...runs.database,
        async write(statements, options) {
          if (!JSON.stringify(statements).includes("progress_token = newest")) {
            return runs.database.write(statements, options);
          }
          reached();
          await held;
          const tables = await runs.database.write(statements, options);
          landed = true;
          return tables;
        },
      };
      await runs.pod("pod-1", [made], { database: slow });
      const run = await runs.start(made, null);
      await runs.until("the second", () => found.length === 1);
      letGo();
      await runs.until("it has landed", () => landed);
      expect(await runs.get(run.runId)).toMatchObject({ at: "two", progress: null });
      leave();
      await runs.ended(run);
      expect(found).toEqual([null, null]);
    });

    test("a later attempt finds what the last one saved, also right before it failed", async () => {
      const found: Json[] = [];
      const failing = flow("failing", { version: 1, backoff: { baseMs: 0 } })
        .to("one", async ({ attempt, progress, lastProgress }) => {
          found.push(await lastProgress());
          progress({ of: attempt });
          if (attempt < 3) throw new Error("failed right after it has saved");
        })
        .end();
      await runs.pod("pod-1", [failing]);
      await runs.ended(await runs.start(failing, null));
      expect(found).toEqual([null, { of: 1 }, { of: 2 }]);
    });

    test("another pod finds what one saved that was stopped", async () => {
      const found: Json[] = [];
      const stopped = flow("stopped", { version: 1 })
        .to("one", async ({ progress, lastProgress, signal }) => {
          found.push(await lastProgress());
          if (found.length > 1) return;
          progress("half");
          await new Promise((_, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason as Error));
          });
        })
        .end();
      const pod = await runs.pod("pod-1", [stopped]);
      const run = await runs.start(stopped, null);
      await runs.until("the first", () => found.length === 1);
      await runs.stop(pod);
      await runs.pod("pod-2", [stopped]);
      await runs.ended(run);
      expect(found).toEqual([null, "half"]);
    });

    test("what an attempt reports after it was abandoned isn't stored", async () => {
      let late: (value: Json) => void = () => {};
      let hang = true;
      const hanging = flow("hanging", {
        version: 1,
        timeoutMs: 50,
        backoff: { baseMs: 60_000, jitter: 0 },
      })
        .to("one", ({ progress }) => {
          if (!hang) return;
          progress("in time");
          late = progress;
          return new Promise<void>(() => {});
        })
        .end();
      await runs.pod("pod-1", [hanging], { graceMs: 20 });
      const run = await runs.start(hanging, null);
      await runs.until("it hangs", () => late.length > 0);
      await runs.pass(100);
      await runs.doing(run, "retrying");
      late("too late");
      await runs.pass(400);
      expect(await runs.get(run.runId)).toMatchObject({ attempt: 2, progress: "in time" });
      hang = false;
    });
  });
}
