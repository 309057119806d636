-- src/series/sql.ts: storeCounts
insert into flotilla_series_fold (id, closed_to, last_fold) values (1, 0, '') on conflict (id) do nothing

select closed_to from flotilla_series_fold where id = 1

insert into flotilla_series (span, at, subject, pod, counts)
select given.span, given.at, given.subject, given.pod, given.counts
from (select value ->> 0 as span, value ->> 1 as at, value ->> 2 as subject, value ->> 3 as pod, value ->> 4 as counts from jsonb_each(?)) given
where given.at > (select closed_to from flotilla_series_fold where id = 1)
on conflict (span, at, subject, pod) do update set counts = excluded.counts
-- values: ["[[60000,120000,\"task:mail\",\"pod-1\",\"{}\"]]"]

-- src/series/sql.ts: ensureFold
insert into flotilla_series_fold (id, closed_to, last_fold) values (1, 0, '') on conflict (id) do nothing

-- src/series/sql.ts: readFold
select now_ms() as now, closed_to, last_fold,
  (select min(at) from flotilla_series where pod <> '') as first_unfolded,
  (select min(at) from flotilla_series where span = ?) as first_minute,
  (select min(at) from flotilla_series where span = ?) as first_hour
from flotilla_series_fold where id = 1
-- values: [60000,3600000]

-- src/series/sql.ts: closeUpTo
update flotilla_series_fold set closed_to = ?
where id = 1 and (closed_to < ? or closed_to > now_ms())
-- values: [120000,120000]

-- src/series/sql.ts: unfoldedUpTo
select span, at, subject, pod, counts from flotilla_series
where pod <> '' and at <= ?
order by at limit cast(? as integer)
-- values: [120000,2000]

-- src/series/sql.ts: minutesBefore
select span, at, subject, pod, counts from flotilla_series
where span = ? and at < ? and pod = ''
order by at, subject limit cast(? as integer)
-- values: [60000,120000,2000]

-- src/series/sql.ts: foldedBetween
select span, at, subject, pod, counts from flotilla_series
where span = ? and at between ? and ? and pod = ''
-- values: [60000,0,120000]

-- src/series/sql.ts: storeFold
update flotilla_series_fold set last_fold = ? where id = 1 and last_fold = ?
returning id
-- instead of returning:
select id from flotilla_series_fold where last_fold = ?
-- values: ["fold-2","fold-1"]

insert into flotilla_series (span, at, subject, pod, counts)
select given.span, given.at, given.subject, given.pod, given.counts
from (select value ->> 0 as span, value ->> 1 as at, value ->> 2 as subject, value ->> 3 as pod, value ->> 4 as counts from jsonb_each(?)) given
where exists (select 1 from flotilla_series_fold where id = 1 and last_fold = ?)
on conflict (span, at, subject, pod) do update set counts = excluded.counts
-- values: ["[[60000,120000,\"task:mail\",\"\",\"{}\"]]","fold-2"]

delete from flotilla_series where exists (select 1 from flotilla_series_fold where id = 1 and last_fold = ?) and rowid in (
  select stored.rowid from (select value ->> 0 as span, value ->> 1 as at, value ->> 2 as subject, value ->> 3 as pod from jsonb_each(?)) gone cross join flotilla_series stored
  where stored.span = gone.span and stored.at = gone.at
    and stored.subject = gone.subject and stored.pod = gone.pod)
-- values: ["fold-2","[[60000,120000,\"task:mail\",\"pod-1\"]]"]

-- src/series/sql.ts: deleteHoursBefore
delete from flotilla_series where span = ? and at < ?
-- values: [3600000,0]

-- src/series/sql.ts: readSeries
select span, at, counts from flotilla_series
where subject = ? and span in (?, ?)
  and at >= ? and at < ?
order by at
-- values: ["task:mail",60000,3600000,0,120000]

-- src/series/sql.ts: readMinutes
select wanted.subject, (
  select string_agg(counted.counts, ',') from flotilla_series counted
  where counted.subject = wanted.subject and counted.span = ?
    and counted.at >= ?) as counts
from (select value ->> 0 as subject from jsonb_each(?)) wanted
-- values: [60000,60000,"[[\"flow:order pay\"],[\"flow:order ship\"]]"]

-- src/series/sql.ts: listSubjects
with recursive known (subject, place) as (
  select (select min(subject) from flotilla_series where subject >= ? ), 1
  union all
  select (select min(subject) from flotilla_series where subject > known.subject ), place + 1
  from known where known.subject is not null and place < ?)
select subject,
  (select max(at) from flotilla_series counted
    where counted.subject = known.subject and counted.span = ?) as minute_at,
  (select max(at) from flotilla_series counted
    where counted.subject = known.subject and counted.span = ?) as hour_at
from known where subject is not null order by subject
-- values: ["",51,60000,3600000]

with recursive known (subject, place) as (
  select (select min(subject) from flotilla_series where subject > ? and subject < ?), 1
  union all
  select (select min(subject) from flotilla_series where subject > known.subject and subject < ?), place + 1
  from known where known.subject is not null and place < ?)
select subject,
  (select max(at) from flotilla_series counted
    where counted.subject = known.subject and counted.span = ?) as minute_at,
  (select max(at) from flotilla_series counted
    where counted.subject = known.subject and counted.span = ?) as hour_at
from known where subject is not null order by subject
-- values: ["task:mail","task;","task;",51,60000,3600000]
