import process from "node:process";
import { renderThrottle } from "./render/throttle.ts";
import type { Report } from "./report.ts";
import type { BenchOptions } from "./run.ts";
import { contenders } from "./throttle/contenders.ts";
import { measureCost } from "./throttle/cost.ts";
import { measuresOf } from "./throttle/measures.ts";
import { drawPicture } from "./throttle/pictures.ts";
import { createPlayers } from "./throttle/players.ts";
import { saveThrottle } from "./throttle/results.ts";
import { isPictured, plans } from "./throttle/rounds.ts";
import type { Row } from "./throttle/rows.ts";

/** A simulated downstream and fleets that call it, in virtual time: who finds its capacity, and how soon. */
export async function bench(options: BenchOptions): Promise<Report> {
  const { quick, save, progress } = options;
  // Alone, before all cores are busy.
  const cost = await measureCost({ rounds: 5, calls: quick ? 50_000 : 200_000 });
  const rows = await playAll(options);
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

async function playAll({ quick, only, systems, save, progress }: BenchOptions): Promise<Row[]> {
  const plan = quick ? plans.quick : plans.full;
  await using players = createPlayers();
  const rounds = plan.rounds
    .filter(({ scenario }) => only?.includes(scenario.name) ?? true)
    .map(async (round) => {
      const absent = plan.absent(round);
      const present = contenders.filter(
        ({ name }) => !absent.includes(name) && (systems?.includes(name) ?? true),
      );
      const played = await Promise.all(present.map((each) => players.play(round, each)));
      const { scenario, wall, capacity, pods } = round;
      const scores = played.map(({ row }) => `${row.contender} ${row.score.toFixed(3)}`);
      progress(`${scenario.name}, ${wall} ${capacity}, ${pods} pods: ${scores.join(", ")}`);
      if (save && isPictured(round)) drawPicture(round, played);
      return played.map(({ row }) => row);
    });
  return (await Promise.all(rounds)).flat();
}
