import { hourMs, minuteMs } from "../base/durations.ts";
import { addPods, addTimes, type Counts, encodeCounts, parseCounts } from "./counts.ts";
import { allPods, type Fold, type SeriesRow } from "./sql.ts";
import { isSummary, maxSubjects, otherOf } from "../protocol/series-subject.ts";

type Folded = Pick<Fold, "puts" | "deletes">;

/** Pure. Adds the counts of single pods to those of all pods for the same minutes. */
export function foldPods(sources: readonly SeriesRow[], targets: readonly SeriesRow[]): Folded {
  return foldInto(sources, targets, { span: minuteMs, add: addPods });
}

/** Pure. Adds the counts of minutes to those of their hours. */
export function foldMinutes(sources: readonly SeriesRow[], targets: readonly SeriesRow[]): Folded {
  return foldInto(sources, targets, { span: hourMs, add: addTimes });
}

/** The first of the times that hold these rows, and the last. */
export function rangeOf(sources: readonly SeriesRow[], span: number): [number, number] {
  const times = sources.map(({ at }) => startOf(at, span));
  return [Math.min(...times), Math.max(...times)];
}

/** The beginning of the span that a time is in. */
export function startOf(atMs: number, span: number): number {
  return Math.floor(atMs / span) * span;
}

function foldInto(
  sources: readonly SeriesRow[],
  targets: readonly SeriesRow[],
  { span, add }: { span: number; add: (a: Counts, b: Counts) => Counts },
): Folded {
  const times = new Map<number, Sums>();
  const sumsAt = (at: number): Sums => {
    const found = times.get(at) ?? { bySubject: new Map(), changed: new Set(), taken: 0 };
    times.set(at, found);
    return found;
  };
  for (const { at, subject, counts } of targets) {
    const sums = sumsAt(at);
    sums.bySubject.set(placeOf(subject, sums), parseCounts(counts));
  }
  // In the order of subjects, so that the same ones are counted together whatever the order of rows.
  for (const source of sources.toSorted(bySubject)) {
    const sums = sumsAt(startOf(source.at, span));
    const subject = placeOf(source.subject, sums);
    const counts = parseCounts(source.counts);
    const before = sums.bySubject.get(subject);
    sums.bySubject.set(subject, before === undefined ? counts : add(before, counts));
    sums.changed.add(subject);
  }
  const puts = [...times].flatMap(([at, { bySubject: all, changed }]) =>
    [...changed].map((subject) => {
      return { span, at, subject, pod: allPods, counts: encodeCounts(all.get(subject)!) };
    }),
  );
  return { puts, deletes: sources };
}

/** What there is of one time. */
type Sums = {
  readonly bySubject: Map<string, Counts>;
  readonly changed: Set<string>;
  /** How many subjects have a place of their own. */
  taken: number;
};

/** Its own place, which it takes if one is free, or that of the others of its kind. */
function placeOf(subject: string, sums: Sums): string {
  if (sums.bySubject.has(subject) || isSummary(subject)) return subject;
  if (sums.taken >= maxSubjects) return otherOf(subject);
  sums.taken++;
  return subject;
}

function bySubject(a: SeriesRow, b: SeriesRow): number {
  return a.subject < b.subject ? -1 : a.subject > b.subject ? 1 : 0;
}
