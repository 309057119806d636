import { copyFileSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import type { DrainSizes } from "./drain.ts";
import type { Drained, DrainerParams } from "./drainer.ts";
import type { FillerParams } from "./filler.ts";
import { manySlots } from "./work.ts";

/** How many schedules a pod has beside its work; each makes a task every second. */
export const schedulesBeside = 100;

/** Draining a backlog with and without schedules, in turns, on copies of the same file. */
export async function measureSchedules(
  { folder, profile, progress, late }: BenchOptions,
  { rounds, tasks, cutMs }: DrainSizes,
): Promise<Measure[]> {
  const full = join(folder, "scheduled.db");
  const filler: FillerParams = { store: `sqlite:${full}`, tasks, parts: 1 };
  await startRole(new URL("./filler.ts", import.meta.url), filler).result;

  let copies = 0;
  const drain = async (schedules: number): Promise<Drained> => {
    const path = join(folder, `beside-${++copies}.db`);
    copyFileSync(full, path);
    const params: DrainerParams = {
      store: `sqlite:${path}`,
      tasks,
      slots: manySlots,
      cutMs,
      schedules,
    };
    return startRole(new URL("./drainer.ts", import.meta.url), params, { profile }).result;
  };
  const beside: number[] = [];
  const without: number[] = [];
  for (let round = 1; round <= rounds && !(round > 1 && late(0.5)); round++) {
    // Whoever comes second finds a warmer machine, so they take turns at that too.
    if (round % 2 === 0) without.push(perSecond(await drain(0)));
    beside.push(perSecond(await drain(schedulesBeside)));
    if (round % 2 === 1) without.push(perSecond(await drain(0)));
    progress(
      `schedules, round ${round} of ${rounds}: ${Math.round(beside.at(-1)!)}/s beside ${schedulesBeside}, ${Math.round(without.at(-1)!)}/s without`,
    );
    for (const name of readdirSync(folder)) {
      if (name.startsWith("beside-")) rmSync(join(folder, name));
    }
  }
  return [
    measure({
      metric: `tasks.drain.beside_${schedulesBeside}_schedules`,
      unit: "tasks/s",
      ours: beside,
      others: { without },
    }),
  ];
}

function perSecond({ tasks, wallMs }: Drained): number {
  return (tasks / wallMs) * 1_000;
}
