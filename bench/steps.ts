import { besideNotes, evenRounds } from "./beside.ts";
import { flowReport, withBetterRestate } from "./flows/report.ts";
import { measureResume } from "./flows/resume.ts";
import { type FlowSide, openFlowSide } from "./flows/side.ts";
import { measureTransitions } from "./flows/transitions.ts";
import { sayGoals } from "./goals.ts";
import type { Report } from "./report.ts";
import { startRole } from "./roles.ts";
import type { BenchOptions } from "./run.ts";
import { takeTurns } from "./side-by-side/bench.ts";
import { collect, type Work } from "./side-by-side/figures.ts";
import { saveResults } from "./side-by-side/results.ts";
import { goals } from "./steps/goals.ts";
import type { OwnParams } from "./steps/own-host.ts";
import { stepVariants } from "./steps/variants.ts";

const sizes = {
  full: { rounds: 3, warmMs: 2_000, runMs: 5_000, runs: 10_000, cutMs: 120_000 },
  quick: { rounds: 1, warmMs: 700, runMs: 1_500, runs: 500, cutMs: 20_000 },
};

const loads = [
  { name: "one", metric: "steps.stored.one_task", atOnce: 1 },
  { name: "hundred", metric: "steps.stored", atOnce: 100 },
  { name: "thousand", metric: "steps.stored.thousand_tasks", atOnce: 1_000 },
];
const each = { unit: "step", latency: "steps.step" };

const ownWorks = [
  { name: "depth", metric: "steps.depth", unit: "times the first" },
  { name: "replay", metric: "steps.replay_ms", unit: "ms" },
  { name: "bytes", metric: "steps.bytes", unit: "bytes/step" },
] as const;

/** Tasks of ten steps that do nothing, side by side with others and with what the store could do. */
export async function bench(options: BenchOptions): Promise<Report> {
  const { rounds, warmMs, runMs, cutMs, ...size } = options.quick ? sizes.quick : sizes.full;
  const wanted = (name: string) => options.only?.includes(name) ?? true;
  const count = evenRounds(options.rounds ?? rounds, options.beside);
  await using side = await openFlowSide(options, count, stepVariants(options.absurd));
  const works: Work[] = [];
  for (const { name, ...load } of loads) {
    if (!wanted(name)) continue;
    works.push(...(await measureTransitions(side, { ...load, each, warmMs, runMs })));
  }
  if (wanted("resume")) {
    const runs = options.tasks ?? size.runs;
    works.push(
      ...(await measureResume(side, { metric: "steps.resume_s", runs, stored: 5, cutMs })),
    );
  }
  for (const { name, ...own } of ownWorks) {
    if (wanted(name)) works.push(await measureOwn(side, { ...own, work: name }));
  }
  const all = works.map(withBetterRestate);
  if (options.save) {
    saveResults(all, side.about, options.store === "sqlite" ? "steps-sqlite" : "steps-postgres");
  }
  const report = flowReport(all, side.about);
  const absurd =
    options.store === "postgres" && options.absurd === undefined
      ? ["Absurd was left out: its package has no schema, and --absurd names the file"]
      : [];
  return {
    ...report,
    notes: [
      ...sayGoals(goals, report.measures, options.store),
      ...absurd,
      ...report.notes,
      ...besideNotes(options),
    ],
  };
}

type OwnWork = Pick<OwnParams, "work"> & { readonly metric: string; readonly unit: string };

/** What only we are asked. */
async function measureOwn(side: FlowSide, { metric, unit, work }: OwnWork): Promise<Work> {
  const found = collect(metric, unit, "lower");
  const ours = side.variants.filter(({ key }) => key === "flotilla" || key === "beside");
  await takeTurns(side, ours, async (variant, round) => {
    const place = side.placeOf(variant);
    const url = await place.fresh();
    const params: OwnParams = { url, work };
    const { checkout } = variant;
    const role = startRole(new URL("./steps/own-host.ts", import.meta.url), params, { checkout });
    const value = (await role.result) as number;
    await role.gone;
    await place.drop(url);
    found.add(variant.key, { value });
    side.options.progress(
      `${metric}, round ${round} of ${side.rounds}: ${value.toFixed(2)} ${unit}`,
    );
  });
  return found.work;
}
