import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import { closeStores } from "../tasks/contract/harness.ts";
import { memoryKind } from "../store/contract/kinds.ts";
import type { Database } from "../store/database.ts";
import { readTaskStates } from "../tasks/sql/finish.ts";
import { flow } from "./flow.ts";
import { openRuns, type RunsHarness } from "./contract/harness.ts";
import { firstSignal } from "../tasks/sql/signals.ts";

afterAll(closeStores);

describe("a run that pods hand on to each other", () => {
  let scene: RunsHarness;
  beforeEach(async () => {
    scene = await openRuns(memoryKind);
  });
  afterEach(() => scene.close());

  test("counts the deaths of what it does now, not of what was removed beneath it", async () => {
    const begun = (version: number, removed: Record<string, string>) =>
      flow("moved", { version, removed }).to("first", () => {});
    const v1 = begun(1, {})
      .signal("old")
      .to("last", () => {})
      .end();
    const early = await scene.work("early", [v1]);
    const { runId } = await scene.start(v1, {});
    await scene.doing(runId, "waiting_for_signal");
    await early.stop({ waitMs: 0 });
    await scene.die(runId);

    let seen: { at: string | null; deaths: number } | undefined;
    const v2 = begun(2, { old: "last" })
      .to("last", async () => {
        const { at, deaths } = await scene.view(runId);
        seen = { at, deaths };
      })
      .end();
    await scene.work("late", [v2]);

    expect((await scene.ended(runId)).status).toBe("completed");
    expect(seen).toEqual({ at: "last", deaths: 0 });
  });

  test("is cancelled though its pod has learned of that while it read signals", async () => {
    const machine = flow("asked", { version: 1 })
      .signal("word")
      .finally("tidy", () => {})
      .end();
    const { runId } = await scene.start(machine, {});
    const { database } = scene;
    const signalReadStatement = firstSignal("", []).strings;
    const looksAtHeld = readTaskStates([]).strings;
    let looks = 0;
    let cancelled = false;
    let hear = () => {};
    const heard = new Promise<void>((resolve) => {
      hear = resolve;
    });
    /** Keeps back what the look for a signal has brought until its pod knows of the cancel. */
    const slow: Database = {
      ...database,
      async read(statement) {
        const isOfHeld = statement.strings === looksAtHeld && cancelled;
        const rows = await database.read(statement);
        if (statement.strings === signalReadStatement && looks++ === 0) await heard;
        if (isOfHeld) setImmediate(hear);
        return rows;
      },
    };
    await scene.work("slow", [machine], { database: slow });
    await scene.queue.until("a look for the signal", async () => looks > 0);
    await scene.cancel(runId);
    cancelled = true;

    expect((await scene.ended(runId)).status).toBe("cancelled");
    expect(await scene.noted(runId)).not.toContain("park word");
  });

  test("loses no signal to a pod that had it before", async () => {
    const machine = flow("told", { version: 1 }).signal("word").end();
    const { runId } = await scene.start(machine, {});
    await scene.signal(runId, "word", "hello");
    const { database } = scene;
    let looks = 0;
    let letGo = () => {};
    const heldBack = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    /** Says nothing once it has seen the signal, until it is let go. */
    const slow: Database = {
      ...database,
      async read(statement) {
        if (statement.strings === firstSignal("", []).strings) looks++;
        return database.read(statement);
      },
      async write(...given) {
        if (looks > 0) await heldBack;
        return database.write(...given);
      },
    };
    await scene.work("slow", [machine], { database: slow });
    await scene.queue.until("a look for the signal", async () => looks > 0);
    await scene.recover("slow", runId);
    await scene.die(runId);
    letGo();

    const { status, output } = await scene.ended(runId);
    expect({ status, output }).toEqual({ status: "completed", output: { word: "hello" } });
  });

  test("runs its finalizers though it was cancelled after a pod that stops has claimed it", async () => {
    const calls: string[] = [];
    const machine = flow("claimed", { version: 1 })
      .to("work", () => void calls.push("work"))
      .finally("tidy", () => void calls.push("tidy"))
      .end();
    const { runId } = await scene.start(machine, {});
    const { database } = scene;
    let answer = () => {};
    const answered = new Promise<void>((resolve) => {
      answer = resolve;
    });
    /** Keeps back what a claim has brought. */
    const slow: Database = {
      ...database,
      async write(...given) {
        const tables = await database.write(...given);
        if (tables.flat().some((row) => row["task_id"] === runId)) await answered;
        return tables;
      },
    };
    const stopping = await scene.work("stopping", [machine], { database: slow });
    await scene.doing(runId, "running");
    const stopped = stopping.stop({ waitMs: 10_000 });
    await scene.cancel(runId);
    answer();
    await stopped;
    await scene.work("next", [machine]);

    expect((await scene.ended(runId)).status).toBe("cancelled");
    expect(calls).toEqual(["tidy"]);
  });
});
