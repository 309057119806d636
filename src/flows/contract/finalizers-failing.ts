import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort, snooze } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { flow } from "../flow.ts";
import { openRuns, type RunsHarness, soon } from "./harness.ts";
import { cancel } from "../decide/thrown.ts";

/** What finalizers are promised on every store where they fail, or their pods do. */
export function finalizersTroubleContract(kind: StoreKind): void {
  describe(`failing finalizers on ${kind.name}`, () => {
    let harness: RunsHarness;
    let calls: string[];
    beforeEach(async () => {
      harness = await openRuns(kind);
      calls = [];
    });
    afterEach(() => harness.close());

    const troubles = {
      "is out of attempts": () => new Error("slipped"),
      aborts: () => abort("no"),
      "gives up": () => cancel("enough"),
    } as const;
    test.each(Object.keys(troubles) as (keyof typeof troubles)[])(
      "one that %s is noted, the next runs, and the run ends as it would have",
      async (how) => {
        const clumsy = flow("clumsy", { version: 1, backoff: soon })
          .to("work", () => ({ made: 1 }))
          .finally("one", { attempts: 2 }, () => {
            calls.push("one");
            throw troubles[how]();
          })
          .finally("two", ({ outcome, state }) => {
            calls.push(`two ${outcome.type} ${state.made}`);
          })
          .end();
        await harness.work("pod-1", [clumsy]);
        const { runId } = await harness.start(clumsy, null);
        expect(await harness.ended(runId)).toMatchObject({
          status: "completed",
          output: { made: 1 },
          error: null,
        });
        const tries = how === "is out of attempts" ? 2 : 1;
        expect(calls).toEqual([...Array<string>(tries).fill("one"), "two completed 1"]);
        const errors = (await harness.noted(runId)).filter((each) => each === "error one");
        expect(errors).toHaveLength(tries);
      },
    );

    test("one that takes too long is aborted, and tried again", async () => {
      let tries = 0;
      const slow = flow("slow", { version: 1, backoff: soon })
        .to("work", () => {
          throw abort("broken");
        })
        .finally("one", { timeoutMs: 30 }, ({ signal }) =>
          ++tries > 1
            ? undefined
            : new Promise((_, reject) => {
                signal.addEventListener("abort", () => reject(new Error("stopped")));
              }),
        )
        .end();
      await harness.work("pod-1", [slow]);
      const { runId } = await harness.start(slow, null);
      expect(await harness.ended(runId)).toMatchObject({
        status: "failed",
        error: { message: "broken" },
      });
      expect(tries).toBe(2);
    });

    test("one that isn't ready yet is run later", async () => {
      let tries = 0;
      const later = flow("later", { version: 1 })
        .to("work", () => {})
        .finally("one", () => {
          if (++tries < 3) throw snooze(5);
        })
        .end();
      await harness.work("pod-1", [later]);
      const { runId } = await harness.start(later, null);
      const run = await harness.ended(runId);
      expect(run.status).toBe("completed");
      expect(tries).toBe(3);
    });

    test("one that kills its pods is given up, and the next runs", async () => {
      const deadly = flow("deadly", { version: 1 })
        .to("work", () => ({ made: 1 }))
        .finally("one", () => new Promise<void>(() => {}))
        .finally("two", ({ outcome }) => void calls.push(outcome.type))
        .end();
      const pod = await harness.work("pod-1", [deadly]);
      const { runId } = await harness.start(deadly, null);
      await harness.queue.until(
        "the finalizer",
        async () => (await harness.view(runId)).at === "one",
      );
      await harness.queue.outcome(pod.stop({ waitMs: 0 }), { stepMs: 10 });
      for (let deaths = 0; deaths < 4; deaths++) await harness.die(runId);
      expect(await harness.view(runId)).toMatchObject({ status: "open", deaths: 4, at: "one" });
      await harness.folds();
      await harness.work("pod-2", [deadly]);
      expect(await harness.ended(runId)).toMatchObject({ status: "completed", deaths: 0 });
      expect(calls).toEqual(["completed"]);
      const given = (await harness.history(runId)).find(({ type }) => type === "error");
      expect(given).toMatchObject({ transition: "one", detail: { error: { code: "pod_died" } } });
    });

    test("those that have run aren't run again where a pod dies between two of them", async () => {
      let letGo = () => {};
      const pods: string[] = [];
      const two = flow("two", { version: 1 })
        .to("work", () => void calls.push("work"))
        .finally("one", () => void calls.push("one"))
        .finally("two", () => {
          calls.push("two");
          return pods.length > 0 ? undefined : new Promise<void>((resolve) => (letGo = resolve));
        })
        .end();
      await harness.work("pod-1", [two]);
      const { runId } = await harness.start(two, null);
      await harness.queue.until("the second", () => calls.length === 3);
      pods.push("pod-2");
      await harness.recover("pod-1", runId);
      await harness.work("pod-2", [two]);
      await harness.ended(runId);
      letGo();
      expect(calls).toEqual(["work", "one", "two", "two"]);
      expect((await harness.noted(runId)).filter((each) => each === "complete two")).toHaveLength(
        1,
      );
    });

    test("they go on elsewhere where their pod stops, uncounted", async () => {
      let isStopping = false;
      const held = flow("held", { version: 1 })
        .to("work", () => {})
        .finally("one", ({ signal, attempt }) => {
          calls.push(`attempt ${attempt}`);
          if (isStopping) return undefined;
          return new Promise((_, reject) => {
            signal.addEventListener("abort", () => reject(new Error("stopped")));
          });
        })
        .end();
      const pod = await harness.work("pod-1", [held]);
      const { runId } = await harness.start(held, null);
      await harness.queue.until("the finalizer", () => calls.length === 1);
      isStopping = true;
      await harness.queue.outcome(pod.stop({ waitMs: 0 }));
      expect(await harness.view(runId)).toMatchObject({ status: "open", at: "one", attempt: 1 });
      await harness.work("pod-2", [held]);
      expect(await harness.ended(runId)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["attempt 1", "attempt 1"]);
    });

    test("they have what initializers make, also where nothing else has run", async () => {
      const init = flow("init", { version: 1 })
        .init(() => ({ tool: "broom" }))
        .to("work", () => void calls.push("work"))
        .finally("one", ({ env }) => void calls.push(env.tool))
        .end();
      const { runId } = await harness.start(init, null);
      await harness.cancel(runId);
      await harness.work("pod-1", [init]);
      await harness.ended(runId);
      expect(calls).toEqual(["broom"]);
    });

    test("a run that failed and is started over has them run again at its new end", async () => {
      let isMended = false;
      const mended = flow("mended", { version: 1, attempts: 1 })
        .to("first", () => void calls.push("first"))
        .to("second", () => {
          if (!isMended) throw new Error("broken");
          return { made: 1 };
        })
        .finally("one", ({ outcome }) => void calls.push(outcome.type))
        .end();
      await harness.work("pod-1", [mended]);
      const { runId } = await harness.start(mended, null);
      await harness.ended(runId);
      isMended = true;
      await harness.resume(runId);
      expect(await harness.ended(runId)).toMatchObject({ status: "completed", error: null });
      expect(calls).toEqual(["first", "failed", "completed"]);
    });
  });
}
