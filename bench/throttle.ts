import process from "node:process";
import type { Report } from "./report.ts";
import type { BenchOptions } from "./run.ts";
import { renderThrottle } from "./render/throttle.ts";
import { contenders } from "./throttle/contenders.ts";
import { measureCost } from "./throttle/cost.ts";
import { drawPicture } from "./throttle/pictures.ts";
import { measuresOf } from "./throttle/measures.ts";
import { saveThrottle } from "./throttle/results.ts";
import { isPictured, plans } from "./throttle/rounds.ts";
import { type Played, play, type Row } from "./throttle/rows.ts";

/** A simulated downstream and fleets that call it, in virtual time: who finds its capacity, and how soon. */
export async function bench(options: BenchOptions): Promise<Report> {
  const { quick, only, systems, save, progress } = options;
  const plan = quick ? plans.quick : plans.full;
  const rows: Row[] = [];
  for (const round of plan.rounds) {
    const { scenario, capacity, wall, pods } = round;
    if (only && !only.includes(scenario.name)) continue;
    const absent = plan.absent(round);
    const played: Played[] = [];
    for (const contender of contenders) {
      if (absent.includes(contender.name)) continue;
      if (systems && !systems.includes(contender.name)) continue;
      played.push(await play(round, contender));
    }
    rows.push(...played.map(({ row }) => row));
    const scores = played.map(({ row }) => `${row.contender} ${row.score.toFixed(3)}`);
    progress(`${scenario.name}, ${wall} ${capacity}, ${pods} pods: ${scores.join(", ")}`);
    if (save && isPictured(round)) drawPicture(round, played);
  }
  const cost = await measureCost({ rounds: 5, calls: quick ? 50_000 : 200_000 });
  if (save) {
    const abouts = contenders.map(({ name, about }) => [name, about] as const);
    saveThrottle({ contenders: Object.fromEntries(abouts), costUs: cost.value, rows });
    for (const path of renderThrottle()) progress(`wrote ${path}`);
  }
  return {
    measures: [...measuresOf(rows), cost],
    notes: [
      "virtual time, seeded: everything but the cost is the same in every run on every machine",
      "rounds are walls, capacities and numbers of pods; figures are of the time after adapting",
      "fixed_right is the true capacity at every moment, shared without delay, which nobody can know",
      `Node ${process.version}`,
    ],
  };
}
