-- src/series/sql.ts: storeCounts
insert into flotilla.series_fold (id, closed_to, last_fold) values (1, 0, '') on conflict (id) do nothing

select closed_to from flotilla.series_fold where id = 1 for update

insert into flotilla.series (span, at, subject, pod, counts)
select given.span, given.at, given.subject, given.pod, given.counts
from (select span, at, subject collate "C" as subject, pod collate "C" as pod, counts collate "C" as counts from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[]) as each_row (span, at, subject, pod, counts)) given
where given.at > (select closed_to from flotilla.series_fold where id = 1)
on conflict (span, at, subject, pod) do update set counts = excluded.counts
-- values: ["{60000}","{120000}","{\"task:mail\"}","{\"pod-1\"}","{\"{}\"}"]

-- src/series/sql.ts: ensureFold
insert into flotilla.series_fold (id, closed_to, last_fold) values (1, 0, '') on conflict (id) do nothing

-- src/series/sql.ts: readFold
select now_ms() as now, closed_to, last_fold,
  (select min(at) from flotilla.series where pod <> '') as first_unfolded,
  (select min(at) from flotilla.series where span = $1) as first_minute,
  (select min(at) from flotilla.series where span = $2) as first_hour
from flotilla.series_fold where id = 1
-- values: [60000,3600000]

-- src/series/sql.ts: closeUpTo
update flotilla.series_fold set closed_to = $1
where id = 1 and (closed_to < $2 or closed_to > now_ms())
-- values: [120000,120000]

-- src/series/sql.ts: unfoldedUpTo
select span, at, subject, pod, counts from flotilla.series
where pod <> '' and at <= $1
order by at limit cast($2 as integer)
-- values: [120000,2000]

-- src/series/sql.ts: minutesBefore
select span, at, subject, pod, counts from flotilla.series
where span = $1 and at < $2 and pod = ''
order by at, subject limit cast($3 as integer)
-- values: [60000,120000,2000]

-- src/series/sql.ts: foldedBetween
select span, at, subject, pod, counts from flotilla.series
where span = $1 and at between $2 and $3 and pod = ''
-- values: [60000,0,120000]

-- src/series/sql.ts: storeFold
update flotilla.series_fold set last_fold = $1 where id = 1 and last_fold = $2
returning id
-- instead of returning:
select id from flotilla.series_fold where last_fold = $1
-- values: ["fold-2","fold-1"]

insert into flotilla.series (span, at, subject, pod, counts)
select given.span, given.at, given.subject, given.pod, given.counts
from (select span, at, subject collate "C" as subject, pod collate "C" as pod, counts collate "C" as counts from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[]) as each_row (span, at, subject, pod, counts)) given
where exists (select 1 from flotilla.series_fold where id = 1 and last_fold = $6)
on conflict (span, at, subject, pod) do update set counts = excluded.counts
-- values: ["{60000}","{120000}","{\"task:mail\"}","{\"\"}","{\"{}\"}","fold-2"]

delete from flotilla.series where exists (select 1 from flotilla.series_fold where id = 1 and last_fold = $1) and ctid = any(array(
  select stored.ctid from (select span, at, subject collate "C" as subject, pod collate "C" as pod from unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[]) as each_row (span, at, subject, pod)) gone cross join flotilla.series stored
  where stored.span = gone.span and stored.at = gone.at
    and stored.subject = gone.subject and stored.pod = gone.pod))
-- values: ["fold-2","{60000}","{120000}","{\"task:mail\"}","{\"pod-1\"}"]

-- src/series/sql.ts: deleteHoursBefore
delete from flotilla.series where span = $1 and at < $2
-- values: [3600000,0]

-- src/series/sql.ts: readSeries
select span, at, counts from flotilla.series
where subject = $1 and span in ($2, $3)
  and at >= $4 and at < $5
order by at
-- values: ["task:mail",60000,3600000,0,120000]

-- src/series/sql.ts: readMinutes
select wanted.subject, (
  select string_agg(counted.counts, ',') from flotilla.series counted
  where counted.subject = wanted.subject and counted.span = $1
    and counted.at >= $2) as counts
from (select subject collate "C" as subject from unnest($3::text[]) as each_row (subject)) wanted
-- values: [60000,60000,"{\"flow:order pay\",\"flow:order ship\"}"]

-- src/series/sql.ts: listSubjects
with recursive known (subject, place) as (
  select (select min(subject) from flotilla.series where subject >= $1 ), 1
  union all
  select (select min(subject) from flotilla.series where subject > known.subject ), place + 1
  from known where known.subject is not null and place < $2)
select subject,
  (select max(at) from flotilla.series counted
    where counted.subject = known.subject and counted.span = $3) as minute_at,
  (select max(at) from flotilla.series counted
    where counted.subject = known.subject and counted.span = $4) as hour_at
from known where subject is not null order by subject
-- values: ["",51,60000,3600000]

with recursive known (subject, place) as (
  select (select min(subject) from flotilla.series where subject > $1 and subject < $2), 1
  union all
  select (select min(subject) from flotilla.series where subject > known.subject and subject < $3), place + 1
  from known where known.subject is not null and place < $4)
select subject,
  (select max(at) from flotilla.series counted
    where counted.subject = known.subject and counted.span = $5) as minute_at,
  (select max(at) from flotilla.series counted
    where counted.subject = known.subject and counted.span = $6) as hour_at
from known where subject is not null order by subject
-- values: ["task:mail","task;","task;",51,60000,3600000]
