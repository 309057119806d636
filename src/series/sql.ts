import { hourMs, minuteMs } from "../base/durations.ts";
import type { Row } from "../store/database.ts";
import {
  forUpdate,
  isAmong,
  limit,
  now,
  returning,
  rowAddress,
  rows,
  sql,
  type Statement,
  table,
} from "../store/sql.ts";
import { type SubjectKind, subjectText } from "../protocol/series-subject.ts";

const series = table("series");
const fold = table("series_fold");

/** The pod of rows that count for all pods. */
export const allPods = "";

/** A row as it is stored. */
export type SeriesRow = {
  /** The length of the time that it counts for, and when that begins. */
  readonly span: number;
  readonly at: number;
  readonly subject: string;
  readonly pod: string;
  readonly counts: string;
};

const rowColumns = {
  span: "integer",
  at: "integer",
  subject: "text",
  pod: "text",
  counts: "text",
} as const;

function rowValues({ span, at, subject, pod, counts }: SeriesRow) {
  return [span, at, subject, pod, counts];
}

/**
 * Stores what a pod has counted, as it is in all: stored twice it is the same. Minutes that are closed
 * stay as they are, because the leader may have folded them.
 */
export function storeCounts(given: readonly SeriesRow[]): Statement[] {
  return [
    ensureFold(),
    // A leader that closes minutes meanwhile waits, or is waited for.
    sql`select closed_to from ${fold} where id = 1 ${forUpdate}`,
    sql`
      insert into ${series} (span, at, subject, pod, counts)
      select given.span, given.at, given.subject, given.pod, given.counts
      from ${rows(rowColumns, given.map(rowValues))} given
      where given.at > (select closed_to from ${fold} where id = 1)
      on conflict (span, at, subject, pod) do update set counts = excluded.counts`,
  ];
}

/** The last minute that was closed when counts were stored: those up to it were left out. */
export function toClosedTo([, closed]: readonly (readonly Row[])[]): number {
  return Number(closed?.[0]?.["closed_to"] ?? 0);
}

/** Makes the one row that says what is closed, where there is none yet. */
export function ensureFold(): Statement {
  return sql`insert into ${fold} (id, closed_to, last_fold) values (1, 0, '') on conflict (id) do nothing`;
}

/** What the leader decides by: the store's time, the last fold, and the oldest row of each sort. */
export function readFold(): Statement {
  return sql`
    select ${now} as now, closed_to, last_fold,
      (select min(at) from ${series} where pod <> '') as first_unfolded,
      (select min(at) from ${series} where span = ${minuteMs}) as first_minute,
      (select min(at) from ${series} where span = ${hourMs}) as first_hour
    from ${fold} where id = 1`;
}

/**
 * Closes minutes: pods write nothing for them any more. If the closed minutes are ahead of the store's
 * clock, that was set back, and they are opened again.
 */
export function closeUpTo(at: number): Statement {
  return sql`
    update ${fold} set closed_to = ${at}
    where id = 1 and (closed_to < ${at} or closed_to > ${now})`;
}

/** Counts of single pods for minutes that are closed, the oldest first. */
export function unfoldedUpTo(closedTo: number, count: number): Statement {
  return sql`
    select span, at, subject, pod, counts from ${series}
    where pod <> '' and at <= ${closedTo}
    order by at ${limit(count)}`;
}

/** Counts of all pods for minutes before a time, the oldest first. */
export function minutesBefore(before: number, count: number): Statement {
  return sql`
    select span, at, subject, pod, counts from ${series}
    where span = ${minuteMs} and at < ${before} and pod = ''
    order by at, subject ${limit(count)}`;
}

/** The counts of all pods that others are folded into. */
export function foldedBetween(span: number, first: number, last: number): Statement {
  return sql`
    select span, at, subject, pod, counts from ${series}
    where span = ${span} and at between ${first} and ${last} and pod = ''`;
}

export type Fold = {
  /** A new id, and that of the fold which was the last when the rows were read. */
  readonly foldId: string;
  readonly lastFold: string;
  /** The rows as they are afterwards, with what is folded into them. */
  readonly puts: readonly SeriesRow[];
  /** The rows that are gone then. */
  readonly deletes: readonly Pick<SeriesRow, "span" | "at" | "subject" | "pod">[];
};

/**
 * Puts sums in the place of the rows that they were made of, all or nothing, unless there was another
 * fold since the rows were read.
 */
export function storeFold({ foldId, lastFold, puts, deletes }: Fold): Statement[] {
  const isOurs = sql`exists (select 1 from ${fold} where id = 1 and last_fold = ${foldId})`;
  const gone = rows(
    { span: "integer", at: "integer", subject: "text", pod: "text" },
    deletes.map(({ span, at, subject, pod }) => [span, at, subject, pod]),
  );
  return [
    sql`
      update ${fold} set last_fold = ${foldId} where id = 1 and last_fold = ${lastFold}
      ${returning(sql`id`, { after: sql`select id from ${fold} where last_fold = ${foldId}` })}`,
    sql`
      insert into ${series} (span, at, subject, pod, counts)
      select given.span, given.at, given.subject, given.pod, given.counts
      from ${rows(rowColumns, puts.map(rowValues))} given
      where ${isOurs}
      on conflict (span, at, subject, pod) do update set counts = excluded.counts`,
    sql`
      delete from ${series} where ${isOurs} and ${isAmong(
        sql`
        select ${rowAddress("series", sql`stored`)} from ${gone} gone cross join ${series} stored
        where stored.span = gone.span and stored.at = gone.at
          and stored.subject = gone.subject and stored.pod = gone.pod`,
        sql`${rowAddress("series")}`,
      )}`,
  ];
}

/** Deletes the oldest counts of hours. */
export function deleteHoursBefore(before: number): Statement {
  return sql`delete from ${series} where span = ${hourMs} and at < ${before}`;
}

/** All that is counted of a subject over a time, by pod and by all pods, in minutes and hours. */
export function readSeries(
  subject: string,
  { fromMs, toMs, spans }: { fromMs: number; toMs: number; spans: readonly [number, number] },
): Statement {
  return sql`
    select span, at, counts from ${series}
    where subject = ${subject} and span in (${spans[0]}, ${spans[1]})
      and at >= ${fromMs} and at < ${toMs}
    order by at`;
}

/**
 * What was counted of several subjects from a time on, in minutes: for each its counts as the items of a
 * JSON list. As a subquery, because a planner that joins would read the whole table for many subjects.
 */
export function readMinutes(subjects: readonly string[], fromMs: number): Statement {
  const wanted = rows(
    { subject: "text" },
    subjects.map((subject) => [subject]),
  );
  return sql`
    select wanted.subject, (
      select string_agg(counted.counts, ',') from ${series} counted
      where counted.subject = wanted.subject and counted.span = ${minuteMs}
        and counted.at >= ${fromMs}) as counts
    from ${wanted} wanted`;
}

/** Subjects that there are counts of, in the order of their texts, by stepping along the index. */
export function listSubjects({
  kind,
  after,
  limit: count,
}: {
  kind?: SubjectKind | undefined;
  after?: string | undefined;
  limit: number;
}): Statement {
  // A kind alone comes before all of its subjects, and a semicolon after a colon.
  const first = kind === undefined ? "" : subjectText({ kind });
  const end = kind === undefined ? sql`` : sql`and subject < ${`${kind};`}`;
  const from = after === undefined ? sql`subject >= ${first}` : sql`subject > ${after}`;
  return sql`
    with recursive known (subject, place) as (
      select (select min(subject) from ${series} where ${from} ${end}), 1
      union all
      select (select min(subject) from ${series} where subject > known.subject ${end}), place + 1
      from known where known.subject is not null and place < ${count + 1})
    select subject,
      (select max(at) from ${series} counted
        where counted.subject = known.subject and counted.span = ${minuteMs}) as minute_at,
      (select max(at) from ${series} counted
        where counted.subject = known.subject and counted.span = ${hourMs}) as hour_at
    from known where subject is not null order by subject`;
}
