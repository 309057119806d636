import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { parked } from "../../tasks/sql/task-state.ts";
import { flow } from "../flow.ts";
import { openRuns, type RunsHarness } from "./harness.ts";

/** What the verdict on a run says on every store. */
export function whyRunsContract(kind: StoreKind): void {
  describe(`why a run waits on ${kind.name}`, () => {
    let runs: RunsHarness;
    beforeEach(async () => {
      runs = await openRuns(kind);
    });
    afterEach(() => runs.close());

    const hourMs = 3_600_000;
    const reasonsOf = async (runId: string) => (await runs.queue.why(runId)).reasons;

    test("is that it sleeps, until when", async () => {
      const naps = flow("naps", { version: 1 }).sleep("nap", hourMs).end();
      await runs.work("pod-1", [naps]);
      const { runId } = await runs.start(naps, null);
      await runs.doing(runId, "sleeping");
      const { untilMs } = await runs.parkedFor(runId);
      expect(await runs.queue.why(runId)).toMatchObject({ isRun: true, name: "naps" });
      expect((await reasonsOf(runId))[0]).toMatchObject({
        code: "not_due",
        evidence: { cause: "sleeping", untilMs },
        command: `flotilla runs show ${runId}`,
      });
    });

    test("is a signal, since when and until when", async () => {
      const asks = flow("asks", { version: 1 }).signal("approve", { timeoutMs: hourMs }).end();
      await runs.work("pod-1", [asks]);
      const { runId } = await runs.start(asks, null);
      await runs.doing(runId, "waiting_for_signal");
      const { sinceMs, untilMs } = await runs.parkedFor(runId);
      expect((await reasonsOf(runId))[0]).toMatchObject({
        code: "waits_for_signal",
        evidence: { signal: "approve", sinceMs, untilMs },
        command: `flotilla runs signal ${runId} approve`,
      });
    });

    test("is a transition that is tried again after its backoff, with the code of its error", async () => {
      const backoff = { baseMs: hourMs, factor: 1, maxMs: hourMs, jitter: 0 };
      const fails = flow("fails", { version: 1, attempts: 3, backoff })
        .to("call", () => {
          throw new Error("a secret of the error");
        })
        .end();
      await runs.work("pod-1", [fails]);
      const { runId } = await runs.start(fails, null);
      await runs.doing(runId, "retrying");
      const [reason] = await reasonsOf(runId);
      expect(reason).toMatchObject({
        code: "not_due",
        evidence: { cause: "retry", failures: 1, errorCode: "handler_failed" },
      });
      expect(JSON.stringify(reason)).not.toContain("a secret");
    });

    test("is the children that it has started", async () => {
      const child = flow("child", { version: 1 }).signal("go", {}).end();
      const parent = flow("parent", { version: 1 })
        .children("each", () => [
          [child, 1],
          [child, 2],
        ])
        .end();
      await runs.work("pod-1", [parent, child]);
      const { runId } = await runs.start(parent, null);
      await runs.doing(runId, "waiting_for_children");
      expect((await reasonsOf(runId))[0]).toMatchObject({
        code: "waits_for_tasks",
        evidence: {
          total: 2,
          open: 2,
          failed: 0,
          tasks: [
            { name: "child", isChild: true },
            { name: "child", isChild: true },
          ],
        },
        sentence: expect.stringContaining("2 of 2 children"),
      });
    });

    test("is that no version can read it", async () => {
      const naps = flow("naps", { version: 1 }).sleep("nap", hourMs).end();
      const { runId } = await runs.start(naps, null);
      const why = JSON.stringify({ reason: "unreadable", message: "a secret of the state" });
      await runs.tamper(
        runId,
        sql`parked = ${parked.setAside}, set_aside = ${why}, set_aside_version = 2`,
      );
      const [reason] = await reasonsOf(runId);
      expect(reason).toMatchObject({
        code: "set_aside",
        evidence: { reason: "unreadable", byVersion: 2 },
        command: `flotilla runs resume ${runId}`,
      });
      expect(reason!.sentence).not.toContain("a secret");
    });
  });
}
