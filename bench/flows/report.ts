import { shown } from "../render/shown.ts";
import type { Report } from "../report.ts";
import { median } from "../statistics.ts";
import type { Figure, Work } from "../side-by-side/figures.ts";
import type { About } from "../side-by-side/open.ts";
import { reportOf } from "../side-by-side/report.ts";

/** Restate counts with whichever of its settings was better in the round. */
export function withBetterRestate(work: Work): Work {
  const { "restate-24": usual, "restate-2": two, ...others } = work.figures;
  // What it costs belongs to the one setting or the other.
  if (!usual || !two || work.metric.endsWith("cpu")) return work;
  const restate = usual.map((figure, at): Figure => {
    const other = two[at] ?? figure;
    const isBetter =
      work.better === "higher" ? figure.value >= other.value : figure.value <= other.value;
    return isBetter ? figure : other;
  });
  return { ...work, figures: { ...others, restate, "restate-24": usual, "restate-2": two } };
}

/** Ours against each of the others, and what each of them came to. */
export function flowReport(works: readonly Work[], about: About): Report {
  const { measures, notes } = reportOf(works, about);
  const others = works.map(({ metric, unit, figures }) => {
    const each = Object.entries(figures).map(
      ([key, rounds]) => `${key} ${shown(median(rounds.map(({ value }) => value)))}`,
    );
    return `${metric}, ${unit}: ${each.join(", ")}`;
  });
  return { measures, notes: [...others, ...notes] };
}
