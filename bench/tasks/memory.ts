import { join } from "node:path";
import { type Measure, spreadOf } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import { slope } from "../statistics.ts";
import type { Drained, DrainerParams } from "./drainer.ts";
import type { FillerParams } from "./filler.ts";

export type MemorySizes = {
  /** How many tasks lie between two looks. */
  readonly step: number;
  readonly steps: number;
  readonly slots: number;
};

// Caches fill and code is compiled in the first part of a run; what counts is what comes after.
const settledAfter = 0.3;

/** The memory of one pod that runs task after task, while another process keeps bringing them. */
export async function measureMemory(
  { folder, progress }: BenchOptions,
  { step, steps, slots }: MemorySizes,
): Promise<{ measures: Measure[]; notes: string[] }> {
  const store = `sqlite:${join(folder, "memory.db")}`;
  const fill: FillerParams = { store, tasks: step, parts: steps };
  const filler = startRole(new URL("./filler.ts", import.meta.url), fill);
  const params: DrainerParams = {
    store,
    tasks: step * steps,
    slots,
    cutMs: 3_600_000,
    sampleEvery: step,
  };
  const pod = startRole(new URL("./drainer.ts", import.meta.url), params);
  // The next part comes when one is finished, so that the backlog stays short.
  pod.on("finished", (tasks: number) => {
    if (tasks < step * steps) filler.send("more");
  });
  const { samplesMib }: Drained = await pod.result;
  await filler.result;
  const settled = samplesMib.slice(Math.floor(steps * settledAfter));
  const looks = samplesMib.map((mib) => Math.round(mib)).join(", ");
  const note = `pod RSS in MiB after each ${step.toLocaleString("en-US")} tasks: ${looks}`;
  progress(note);
  const growth = slope(settled);
  return {
    measures: [
      { metric: "tasks.memory.rss", unit: "MiB", ...spreadOf(settled), versus: {} },
      {
        metric: "tasks.memory.growth",
        unit: `MiB/${step / 1_000}k tasks`,
        value: growth,
        low: growth,
        high: growth,
        versus: {},
      },
    ],
    notes: [note],
  };
}
