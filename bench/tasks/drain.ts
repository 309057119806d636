import { copyFileSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import type { Drained, DrainerParams } from "./drainer.ts";
import type { FillerParams } from "./filler.ts";
import type { Limit, LimitPhase } from "./limit.ts";
import { manySlots } from "./work.ts";

export type DrainSizes = {
  readonly rounds: number;
  readonly tasks: number;
  /** A round that takes longer is cut, and counts with what it did until then. */
  readonly cutMs: number;
};

const usualSlots = 100;

/** Running a backlog of no-op tasks in one pod, in turns with the limit on a copy of the same file. */
export async function measureDrain(
  { folder, profile, progress, late }: BenchOptions,
  { rounds, tasks, cutMs }: DrainSizes,
): Promise<Measure[]> {
  const full = join(folder, "backlog.db");
  const filler: FillerParams = { store: `sqlite:${full}`, tasks, parts: 1 };
  await startRole(new URL("./filler.ts", import.meta.url), filler).result;
  progress(`drain: a backlog of ${tasks} tasks is stored`);

  let copies = 0;
  // Every copy has a name of its own: a log that somebody left behind must not meet another file.
  const copy = (): string => {
    const path = join(folder, `drain-${++copies}.db`);
    copyFileSync(full, path);
    return path;
  };
  const drainOurs = async (slots: number): Promise<Drained> => {
    const params: DrainerParams = { store: `sqlite:${copy()}`, tasks, slots, cutMs };
    return startRole(new URL("./drainer.ts", import.meta.url), params, { profile }).result;
  };
  const drainLimit = async (): Promise<Limit> => {
    const phase: LimitPhase = { work: "drain", path: copy(), batch: 100, tasks, cutMs };
    const [limit] = await startRole(new URL("./limit.ts", import.meta.url), [phase]).result;
    return limit;
  };

  const many: Drained[] = [];
  const usual: Drained[] = [];
  const limits: Limit[] = [];
  for (let round = 1; round <= rounds && !(round > 1 && late(0.5)); round++) {
    many.push(await drainOurs(manySlots));
    limits.push(await drainLimit());
    usual.push(await drainOurs(usualSlots));
    const figures = [many, usual, limits].map((each) => `${Math.round(perSecond(each.at(-1)!))}/s`);
    progress(
      `drain, round ${round} of ${rounds}: ours ${figures[0]}, with ${usualSlots} slots ${figures[1]}, limit ${figures[2]}`,
    );
    for (const name of readdirSync(folder)) {
      if (name.startsWith("drain-")) rmSync(join(folder, name));
    }
  }
  const limit = limits.map(perSecond);
  const rate = { unit: "tasks/s", others: { limit } };
  return [
    measure({ metric: "tasks.drain", ours: many.map(perSecond), ...rate }),
    measure({ metric: "tasks.drain.default_slots", ours: usual.map(perSecond), ...rate }),
    measure({
      metric: "tasks.drain.cpu",
      unit: "us/task",
      ours: many.map(({ cpuMs, tasks: done }) => (cpuMs * 1_000) / done),
    }),
    measure({ metric: "tasks.drain.rss", unit: "MiB", ours: many.map(({ rssMib }) => rssMib) }),
  ];
}

function perSecond({ tasks, wallMs }: { tasks: number; wallMs: number }): number {
  return (tasks / wallMs) * 1_000;
}
