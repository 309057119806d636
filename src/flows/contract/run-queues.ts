import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { sql } from "../../store/sql.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { type Flow, flow } from "../flow.ts";
import type { StartedRun } from "../runs.ts";
import { codeOf, openRuns, type RunsHarness } from "./harness.ts";

/** Which runs may begin, and when, on every store. */
export function runQueuesContract(kind: StoreKind): void {
  describe(`queues of runs on ${kind.name}`, () => {
    let runs: RunsHarness;
    beforeEach(async () => {
      runs = await openRuns(kind);
    });
    afterEach(() => runs.close());

    /** Counts who is under way. Each run waits in its transition until it is let go. */
    const counting = () => {
      const open: (() => void)[] = [];
      let most = 0;
      let now = 0;
      const made = (name: string, options: object): Flow =>
        flow(name, { version: 1, ...options })
          .to("first", async () => {
            now++;
            most = Math.max(most, now);
            await new Promise<void>((resolve) => open.push(resolve));
            now--;
          })
          .to("second", () => {})
          .end();
      return { made, open, most: () => most, now: () => now };
    };

    test("two flows that share a named queue never have more under way than its limit, on two pods and after a restart", async () => {
      const { made, open, most, now } = counting();
      const queue = { name: "downloads", limit: 2 };
      const flows = [made("images", { queue }), made("layers", { queue })];
      const started: StartedRun[] = [];
      for (let at = 0; at < 6; at++) started.push(await runs.start(flows[at % 2]!, at));
      const first = await runs.pod("pod-1", flows);
      await runs.pod("pod-2", flows);
      await runs.until("two", () => open.length === 2);
      await runs.pass(20);
      expect(now()).toBe(2);
      const waiting = [];
      for (const { runId } of started) {
        const run = (await runs.get(runId))!;
        if (run.doing?.type === "waiting_for_room") waiting.push(run.doing.scope);
      }
      expect(new Set(waiting)).toEqual(new Set(["queue/downloads"]));
      open.shift()!();
      await runs.until("the third", () => open.length === 2);
      // A pod is taken for dead, so that its runs are with others: their places are taken over.
      await runs.recoverFrom("pod-1");
      open.splice(0).forEach((letGo) => letGo());
      await runs.until("others", () => open.length > 0);
      const letAllGo = () => open.splice(0).forEach((letGo) => letGo());
      await runs.outcome(first.stop({ waitMs: 0 }).then(letAllGo), { stepMs: 1_000 });
      await runs.pod("pod-3", flows);
      await runs.until("all of them", async () => {
        letAllGo();
        const views = await Promise.all(started.map(({ runId }) => runs.get(runId)));
        return views.every((view) => view!.status === "completed");
      });
      expect(most()).toBe(2);
    });

    test("a run that waits or is tried later frees its slot for others of its queue", async () => {
      const order: number[] = [];
      const sleeping = flow<number>("sleeping", {
        version: 1,
        queue: { name: "narrow", limit: 1 },
        backoff: { baseMs: 60_000, jitter: 0 },
      })
        .to("one", ({ input, attempt }) => {
          order.push(input);
          if (input === 1 && attempt === 1) throw new Error("later");
        })
        .end();
      const first = await runs.start(sleeping, 1);
      const second = await runs.start(sleeping, 2);
      await runs.pod("pod-1", [sleeping]);
      await runs.ended(second);
      expect(order).toEqual([1, 2]);
      await runs.pass(60_000);
      await runs.ended(first);
      expect(order).toEqual([1, 2, 1]);
    });

    test("only so many of one key are under way at once, and others of another", async () => {
      const { made, open } = counting();
      const keyed = made("keyed", { concurrency: { limit: 1, key: (input: string) => input } });
      const started = [];
      for (const key of ["a", "a", "b"]) started.push(await runs.start(keyed, key));
      await runs.pod("pod-1", [keyed]);
      await runs.until("one of each", () => open.length === 2);
      await runs.pass(20);
      expect(open).toHaveLength(2);
      open.splice(0).forEach((letGo) => letGo());
      await runs.until("the other", () => open.length === 1);
      open[0]!();
      for (const run of started)
        expect(await runs.ended(run)).toMatchObject({ status: "completed" });
    });

    test("a key names one run: the same is given, or it is refused, and none is replaced", async () => {
      const { made } = counting();
      const unique = made("unique", {});
      const first = await runs.start(unique, 1, { key: "order-1" });
      expect(first.created).toBe(true);
      expect(await runs.start(unique, 2, { key: "order-1" })).toMatchObject({
        runId: first.runId,
        created: false,
      });
      const rejecting = runs.start(unique, 2, { key: "order-1", onDuplicate: "reject" });
      expect(await codeOf(rejecting)).toBe("duplicate_key");
      const replacing = { key: "order-1", onDuplicate: "replace" } as never;
      expect(await codeOf(runs.start(unique, 2, replacing))).toBe("invalid_option");
      expect(await codeOf(runs.start("unique", 2, replacing))).toBe("invalid_option");
      expect((await runs.list({ flow: "unique" })).runs).toHaveLength(1);
    });

    test("doesn't begin before its time, and shows that time", async () => {
      const calls: unknown[] = [];
      const later = flow("later", { version: 1 })
        .to("one", ({ input }) => void calls.push(input))
        .end();
      await runs.pod("pod-1", [later]);
      const run = await runs.start(later, "late", { delayMs: 120_000 });
      expect(await runs.get(run.runId)).toMatchObject({ at: null, doing: { type: "delayed" } });
      await runs.pass(60_000);
      expect(calls).toEqual([]);
      await runs.pass(120_000);
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
    });

    test("those of a higher priority begin first, then the oldest", async () => {
      const order: unknown[] = [];
      const ranked = flow("ranked", { version: 1 })
        .to("one", ({ input }) => void order.push(input))
        .end();
      const started = [];
      for (const [input, priority] of [
        ["low", -1],
        ["first", 0],
        ["second", 0],
        ["high", 5],
      ] as const) {
        started.push(await runs.start(ranked, input, { priority }));
      }
      await runs.pod("pod-1", [ranked], { capacity: { slots: 1, target: 1 } });
      for (const run of started) await runs.ended(run);
      expect(order).toEqual(["high", "first", "second", "low"]);
    });

    test("one that was started by its flow's name alone counts against the queue too", async () => {
      const { made, open } = counting();
      const queued = made("queued", { queue: { name: "narrow", limit: 1 } });
      const started = [];
      for (let nth = 0; nth < 3; nth++) started.push(await runs.start("queued", nth));
      await runs.pod("pod-1", [queued]);
      for (const [at] of started.entries()) {
        await runs.until("the next one", () => open.length === 1);
        await runs.pass(20);
        expect(open, `after ${at}`).toHaveLength(1);
        open.splice(0).forEach((letGo) => letGo());
      }
      for (const run of started) {
        expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      }
    });

    test("belongs to its tenant, whose limit holds", async () => {
      const { made, open } = counting();
      const owned = made("owned", {});
      await runs.queue.limits.set("tenant/acme", 1);
      const started = [];
      for (const tenant of ["acme", "acme", "other"]) {
        started.push(await runs.start(owned, 1, { tenant }));
      }
      await runs.pod("pod-1", [owned]);
      await runs.until("one of each", () => open.length === 2);
      await runs.pass(20);
      expect(open).toHaveLength(2);
      expect((await runs.list({ tenant: "acme" })).runs).toHaveLength(2);
      open.splice(0).forEach((letGo) => letGo());
      await runs.until("the other", () => open.length === 1);
      open[0]!();
      for (const run of started) {
        expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      }
    });

    test("is listed by its position, and counted", async () => {
      const standing = flow("standing", { version: 1 })
        .to("one", () => {})
        .sleep("nap", 60_000)
        .end();
      await runs.pod("pod-1", [standing]);
      const run = await runs.start(standing, null);
      await runs.doing(run, "sleeping");
      expect((await runs.list({ at: "nap" })).runs).toMatchObject([{ runId: run.runId }]);
      expect((await runs.list({ at: "one" })).runs).toEqual([]);
      await runs.queue.enqueue("mail", 1);
      expect((await runs.list()).runs).toHaveLength(1);
      expect(await runs.queue.count(sql`flow_version is null`)).toBe(1);
    });
  });
}
