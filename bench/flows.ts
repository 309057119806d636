import { besideNotes, evenRounds } from "./beside.ts";
import { goals } from "./flows/goals.ts";
import { flowReport, withBetterRestate } from "./flows/report.ts";
import { measureResume } from "./flows/resume.ts";
import { openFlowSide } from "./flows/side.ts";
import { measureTransitions } from "./flows/transitions.ts";
import { sayGoals } from "./goals.ts";
import type { Report } from "./report.ts";
import type { BenchOptions } from "./run.ts";
import type { Work } from "./side-by-side/figures.ts";
import { saveResults } from "./side-by-side/results.ts";

const sizes = {
  full: { rounds: 3, warmMs: 2_000, runMs: 5_000, runs: 10_000, cutMs: 120_000 },
  quick: { rounds: 1, warmMs: 700, runMs: 1_500, runs: 500, cutMs: 20_000 },
};

const loads = [
  { name: "one-run", metric: "flows.transitions.one_run", atOnce: 1 },
  { name: "hundred-runs", metric: "flows.transitions", atOnce: 100 },
  { name: "thousand-runs", metric: "flows.transitions.thousand_runs", atOnce: 1_000 },
];

const each = { unit: "transition", latency: "flows.transition" };

/** Runs of ten steps that do nothing, side by side with others and with what the store could do. */
export async function bench(options: BenchOptions): Promise<Report> {
  const { rounds, warmMs, runMs, cutMs, ...size } = options.quick ? sizes.quick : sizes.full;
  const wanted = (name: string) => options.only?.includes(name) ?? true;
  await using side = await openFlowSide(
    options,
    evenRounds(options.rounds ?? rounds, options.beside),
  );
  const works: Work[] = [];
  for (const { name, ...load } of loads) {
    if (wanted(name))
      works.push(...(await measureTransitions(side, { ...load, each, warmMs, runMs })));
  }
  if (wanted("resume")) {
    works.push(
      ...(await measureResume(side, {
        metric: "flows.resume_s",
        runs: options.tasks ?? size.runs,
        stored: 1,
        cutMs,
      })),
    );
  }
  const all = works.map(withBetterRestate);
  if (options.save)
    saveResults(all, side.about, options.store === "sqlite" ? "flows-sqlite" : "flows-postgres");
  const report = flowReport(all, side.about);
  return {
    ...report,
    notes: [
      ...sayGoals(goals, report.measures, options.store),
      ...report.notes,
      ...besideNotes(options),
    ],
  };
}
