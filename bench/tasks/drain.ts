import { copyFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import type { Drained, DrainerParams } from "./drainer.ts";
import type { FillerParams } from "./filler.ts";
import type { Limit, LimitPhase } from "./limit.ts";

export type DrainSizes = {
  readonly rounds: number;
  readonly tasks: number;
  readonly slots: number;
  /** A round that takes longer is cut, and counts with what it did until then. */
  readonly cutMs: number;
};

/** Running a backlog of no-op tasks in one pod, in turns with the limit on a copy of the same file. */
export async function measureDrain(
  { folder, profile, progress }: BenchOptions,
  { rounds, tasks, slots, cutMs }: DrainSizes,
): Promise<Measure[]> {
  const full = join(folder, "backlog.db");
  const filler: FillerParams = { store: `sqlite:${full}`, tasks, parts: 1 };
  await startRole(new URL("./filler.ts", import.meta.url), filler).result;
  progress(`drain: a backlog of ${tasks} tasks is stored`);

  const rate: number[] = [];
  const limit: number[] = [];
  const cpu: number[] = [];
  const rss: number[] = [];
  for (let round = 1; round <= rounds; round++) {
    const copy = (name: string): string => {
      const path = join(folder, `drain-${round}-${name}.db`);
      copyFileSync(full, path);
      return path;
    };
    const ourFile = copy("ours");
    const params: DrainerParams = { store: `sqlite:${ourFile}`, tasks, slots, cutMs };
    const pod = startRole(new URL("./drainer.ts", import.meta.url), params, { profile });
    const ours: Drained = await pod.result;
    const limitFile = copy("limit");
    const phase: LimitPhase = { work: "drain", path: limitFile, batch: 100, tasks, cutMs };
    const bare = startRole(new URL("./limit.ts", import.meta.url), [phase]);
    const [theirs]: Limit[] = await bare.result;
    rate.push((ours.tasks / ours.wallMs) * 1_000);
    limit.push((theirs!.tasks / theirs!.wallMs) * 1_000);
    cpu.push((ours.cpuMs * 1_000) / ours.tasks);
    rss.push(ours.rssMib);
    progress(
      `drain, round ${round} of ${rounds}: ours ${Math.round(rate.at(-1)!)}/s, limit ${Math.round(limit.at(-1)!)}/s`,
    );
    for (const path of [ourFile, limitFile]) rmSync(path);
  }
  return [
    measure({ metric: "tasks.drain", unit: "tasks/s", ours: rate, others: { limit } }),
    measure({ metric: "tasks.drain.cpu", unit: "us/task", ours: cpu }),
    measure({ metric: "tasks.drain.rss", unit: "MiB", ours: rss }),
  ];
}
