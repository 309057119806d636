import type { Clock } from "../base/clock.ts";
import { dayMs, hourMs, minuteMs } from "../base/durations.ts";
import { FlotillaError } from "../base/errors.ts";
import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";
import type { Database } from "../store/database.ts";
import {
  addPods,
  addTimes,
  type Counts,
  durationCount,
  type DurationCounts,
  parseCounts,
  parseCountsList,
  percentileOf,
} from "./counts.ts";
import { startOf } from "./fold.ts";
import { listSubjects, readMinutes, readSeries } from "./sql.ts";
import { parseSubject, type SubjectKind, subjectKinds } from "../protocol/series-subject.ts";

export type SeriesStep = "minute" | "hour";

export type ReadSeriesOptions = {
  /** Such as `task:mail`, `flow:order pay`, `throttle:openai`, or `task` for all tasks. */
  subject: string;
  /** From this time on. Default: `spanMs` before `toMs`. */
  fromMs?: number;
  /** How long before `toMs` it begins, in place of `fromMs`. Default: an hour, with `step: "hour"` a day. */
  spanMs?: number;
  /** Up to this time. Default: now. */
  toMs?: number;
  /** How much time a point stands for. Default `minute`, of which the last 24 hours are kept. */
  step?: SeriesStep;
};

export type Series = {
  readonly subject: string;
  readonly step: SeriesStep;
  readonly fromMs: number;
  readonly toMs: number;
  /** In the order of time. Where nothing was counted there is no point. */
  readonly points: readonly SeriesPoint[];
};

export type SeriesPoint = {
  /** When its minute or hour begins. */
  readonly atMs: number;
  /** Such as `completed`, `failed` and `retry` of a task. */
  readonly counts: Readonly<Record<string, number>>;
  /** What was so many at a time, such as `inFlight` of a throttle: of an hour its highest minute. */
  readonly gauges: Readonly<Record<string, number>>;
  /** How long tasks waited, or how long it took to the first chunk of an answer. */
  readonly wait: SeriesDurations | null;
  /** How long it took. */
  readonly run: SeriesDurations | null;
};

export type SeriesDurations = {
  readonly count: number;
  readonly sumMs: number;
  /** Estimates: right within a factor of 2. */
  readonly p50Ms: number;
  readonly p95Ms: number;
  /** Bucket `i` counts those up to `2 ** i` ms, the 24th all that are longer. */
  readonly buckets: readonly number[];
};

export type ListSubjectsOptions = {
  kind?: SubjectKind;
  /** The `next` of the page before. */
  cursor?: string;
  /** 1 to 1,000. Default 200. */
  limit?: number;
};

export type SubjectPage = {
  readonly subjects: readonly { readonly subject: string; readonly lastAtMs: number }[];
  readonly next: string | null;
};

export type SeriesTotalsOptions = {
  /** 1 to 1,000 of them. */
  subjects: readonly string[];
  /** Up to an hour before now, which is the default. */
  fromMs?: number;
};

/** What was counted of a subject in all. */
export type SeriesTotal = Pick<SeriesPoint, "counts" | "wait" | "run">;

/** What was counted over time, by subject. */
export type SeriesReader = {
  read(options: ReadSeriesOptions): Promise<Series>;
  /** What was counted of each subject in the last minutes together. Those without counts are left out. */
  totals(options: SeriesTotalsOptions): Promise<ReadonlyMap<string, SeriesTotal>>;
  /** What there are counts of, from the last 30 days. */
  subjects(options?: ListSubjectsOptions): Promise<SubjectPage>;
};

/** The most points of an answer: a day of minutes, or two months of hours. */
export const maxPoints = 1_500;
const maxSubjectChars = 1_000;
// As many as a machine may have parts.
const maxTotals = 1_000;

export function createSeriesReader({
  database,
  clock,
}: {
  database: Pick<Database, "read">;
  clock: Clock;
}): SeriesReader {
  return {
    async read(options) {
      checkOptions("series", options, ["subject", "fromMs", "toMs", "spanMs", "step"]);
      const { subject, step = "minute", toMs = clock.now() } = options;
      checkChoice("step", step, ["minute", "hour"]);
      const fromMs = beginOf(options, step, toMs);
      checkSubject(subject);
      const span = step === "minute" ? minuteMs : hourMs;
      checkSpan({ fromMs, toMs, span });
      const spans = [minuteMs, span] as const;
      const range = { fromMs: startOf(fromMs, span), toMs, spans };
      const found = await database.read(readSeries(subject, range));
      const points = pointsOf(
        found.map((row) => ({
          span: Number(row["span"]),
          at: Number(row["at"]),
          counts: parseCounts(row["counts"]),
        })),
        span,
      );
      return { subject, step, fromMs, toMs, points };
    },
    async totals(options) {
      checkOptions("totals", options, ["subjects", "fromMs"]);
      const nowMs = clock.now();
      const { subjects, fromMs = nowMs - hourMs } = options;
      checkNumber("fromMs", fromMs, { min: nowMs - hourMs - minuteMs, max: nowMs });
      if (subjects.length > maxTotals) {
        throw new FlotillaError("invalid_option", `at most ${maxTotals} subjects are read at once`);
      }
      for (const subject of subjects) checkSubject(subject);
      if (subjects.length === 0) return new Map();
      const found = await database.read(readMinutes(subjects, startOf(fromMs, minuteMs)));
      return new Map(
        found.flatMap((row): [string, SeriesTotal][] => {
          const [first, ...rest] = parseCountsList(row["counts"]);
          if (first === undefined) return [];
          const { counts, wait, run } = rest.reduce(addTimes, first);
          return [[row["subject"] as string, { counts, wait: shown(wait), run: shown(run) }]];
        }),
      );
    },
    async subjects(options = {}) {
      checkOptions("subjects", options, ["kind", "cursor", "limit"]);
      const { kind, cursor, limit = 200 } = options;
      if (kind !== undefined) checkChoice("kind", kind, subjectKinds);
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const found = await database.read(listSubjects({ kind, after: cursor, limit }));
      const shown = found.slice(0, limit).map((row) => ({
        subject: row["subject"] as string,
        lastAtMs: Math.max(Number(row["minute_at"] ?? 0), Number(row["hour_at"] ?? 0)),
      }));
      const next = found.length > limit ? shown.at(-1)!.subject : null;
      return { subjects: shown, next };
    },
  };
}

type Counted = { readonly at: number; readonly counts: Counts };

/** Adds what pods have counted of a minute, and then the minutes of an hour. */
function pointsOf(
  rows: readonly (Counted & { readonly span: number })[],
  span: number,
): SeriesPoint[] {
  const isMinute = (row: { readonly span: number }) => row.span === minuteMs;
  const minutes = grouped(rows.filter(isMinute), minuteMs, addPods);
  const hours = rows.filter((row) => !isMinute(row));
  const points = span === minuteMs ? minutes : grouped([...hours, ...minutes], span, addTimes);
  return points.map(({ at, counts: { counts, gauges, wait, run } }) => {
    return { atMs: at, counts, gauges, wait: shown(wait), run: shown(run) };
  });
}

function grouped(
  rows: readonly Counted[],
  span: number,
  add: (a: Counts, b: Counts) => Counts,
): Counted[] {
  const sums = new Map<number, Counts>();
  for (const { at, counts } of rows) {
    const start = startOf(at, span);
    const before = sums.get(start);
    sums.set(start, before === undefined ? counts : add(before, counts));
  }
  return [...sums].map(([at, counts]) => ({ at, counts })).toSorted((a, b) => a.at - b.at);
}

function shown(durations: DurationCounts): SeriesDurations | null {
  const count = durationCount(durations);
  if (count === 0) return null;
  const { sumMs, buckets } = durations;
  const [p50Ms, p95Ms] = [percentileOf(durations, 0.5)!, percentileOf(durations, 0.95)!];
  return { count, sumMs, p50Ms, p95Ms, buckets };
}

function checkSubject(subject: string): void {
  const isText = typeof subject === "string" && subject.length <= maxSubjectChars;
  if (isText && parseSubject(subject) !== undefined) return;
  throw new FlotillaError(
    "invalid_option",
    "subject must be such as task:mail, flow:order, flow:order pay, agent:support, throttle:openai, pod:<id>, other:task, or a kind alone: task",
  );
}

function beginOf({ fromMs, spanMs }: ReadSeriesOptions, step: SeriesStep, toMs: number): number {
  if (spanMs === undefined) return fromMs ?? toMs - (step === "minute" ? hourMs : dayMs);
  if (fromMs !== undefined)
    throw new FlotillaError("invalid_option", "give either fromMs or spanMs, and not both");
  checkNumber("spanMs", spanMs, { min: 1, max: toMs });
  return toMs - spanMs;
}

function checkSpan({ fromMs, toMs, span }: { fromMs: number; toMs: number; span: number }): void {
  const latest = 8.64e15;
  checkNumber("fromMs", fromMs, { min: 0, max: latest });
  checkNumber("toMs", toMs, { min: 0, max: latest });
  const points = (toMs - fromMs) / span;
  if (points > 0 && points <= maxPoints) return;
  throw new FlotillaError(
    "invalid_option",
    points > 0
      ? `at most ${maxPoints} points are read at once: take a shorter time, or hours instead of minutes`
      : "toMs must be later than fromMs",
  );
}
