import { copyFileSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import type { DrainSizes } from "./drain.ts";
import type { Drained, DrainerParams } from "./drainer.ts";
import type { FillerParams } from "./filler.ts";
import { manySlots } from "./work.ts";

/** How many keys the tasks are spread over; one of each may run at a time. */
const keys = 10_000;

/** Draining a backlog with a limit on each of many keys and without any, in turns. */
export async function measureLimits(
  { folder, profile, progress, late }: BenchOptions,
  { rounds, tasks, cutMs }: DrainSizes,
): Promise<Measure[]> {
  const fill = async (name: string, more: Partial<FillerParams>): Promise<string> => {
    const path = join(folder, `${name}.db`);
    const filler: FillerParams = { store: `sqlite:${path}`, tasks, parts: 1, ...more };
    await startRole(new URL("./filler.ts", import.meta.url), filler).result;
    return path;
  };
  const backlogs = { limited: await fill("limited", { keys }), plain: await fill("plain", {}) };

  let copies = 0;
  const drain = async (kind: keyof typeof backlogs): Promise<number> => {
    const path = join(folder, `gates-${++copies}.db`);
    copyFileSync(backlogs[kind], path);
    const params: DrainerParams = { store: `sqlite:${path}`, tasks, slots: manySlots, cutMs };
    const role = startRole(new URL("./drainer.ts", import.meta.url), params, { profile });
    const drained: Drained = await role.result;
    return (drained.tasks / drained.wallMs) * 1_000;
  };
  const limited: number[] = [];
  const plain: number[] = [];
  for (let round = 1; round <= rounds && !(round > 1 && late(0.5)); round++) {
    // Whoever comes second finds a warmer machine, so they take turns at that too.
    if (round % 2 === 0) plain.push(await drain("plain"));
    limited.push(await drain("limited"));
    if (round % 2 === 1) plain.push(await drain("plain"));
    progress(
      `limits, round ${round} of ${rounds}: ${Math.round(limited.at(-1)!)}/s with ${keys} keys, ${Math.round(plain.at(-1)!)}/s without`,
    );
    for (const name of readdirSync(folder)) {
      if (name.startsWith("gates-")) rmSync(join(folder, name));
    }
  }
  return [
    measure({
      metric: `tasks.drain.limits_on_${keys}_keys`,
      unit: "tasks/s",
      ours: limited,
      others: { plain },
    }),
  ];
}
