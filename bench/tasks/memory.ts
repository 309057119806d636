import { type Measure, spreadOf } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import { slope } from "../statistics.ts";
import type { Drained, DrainerParams } from "./drainer.ts";
import type { FillerParams } from "./filler.ts";
import type { FreshStore } from "./store.ts";
import { manySlots } from "./work.ts";

export type MemorySizes = {
  /** How many tasks lie between two looks. */
  readonly step: number;
  readonly steps: number;
  /** Ends after this long with what was seen until then. */
  readonly cutMs: number;
};

// Caches fill and code is compiled in the first part of a run; what counts is what comes after.
const settledAfter = 0.3;

/** The memory of one pod that runs task after task, while another process keeps bringing them. */
export async function measureMemory(
  { progress }: Pick<BenchOptions, "progress">,
  { step, steps, cutMs }: MemorySizes,
  freshStore: FreshStore,
): Promise<{ measures: Measure[]; notes: string[] }> {
  const store = await freshStore("memory");
  const fill: FillerParams = { store, tasks: step, parts: steps };
  const filler = startRole(new URL("./filler.ts", import.meta.url), fill);
  const params: DrainerParams = {
    store,
    tasks: step * steps,
    slots: manySlots,
    cutMs,
    sampleEvery: step,
  };
  const pod = startRole(new URL("./drainer.ts", import.meta.url), params);
  // The next part comes when one is finished, so that the backlog stays short.
  pod.on("finished", (tasks: number) => {
    if (tasks < step * steps) filler.send("more");
  });
  const drained: Drained = await pod.result;
  const cut = drained.tasks < step * steps;
  if (cut) filler.kill("SIGKILL");
  else await filler.result;
  const samplesMib = cut ? [...drained.samplesMib, drained.rssMib] : drained.samplesMib;
  const settled = samplesMib.slice(Math.floor(samplesMib.length * settledAfter));
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
