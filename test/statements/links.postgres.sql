-- src/links/sql.ts: insertLinks
insert into flotilla.link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select from_id collate "C" as from_id, to_id collate "C" as to_id, what collate "C" as what from unnest($1::text[], $2::text[], $3::text[]) as each_row (from_id, to_id, what)) wanted
where to_id = (select task_id from flotilla.task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["{\"task-1\"}","{\"task-2\"}","{\"task\"}"]

-- src/links/sql.ts: deleteLinksTo
delete from flotilla.link as link where to_id = any(array(select 'task-2'))

-- src/links/sql.ts: deleteLinksFromSessions
delete from flotilla.link where from_id = any(array(select 'session-1')) and what = 'session'

-- src/links/sql.ts: linkedTasks
select to_id, what from flotilla.link
where from_id = $1 and to_id < $2 and to_id >= $3
order by to_id desc limit cast($4 as integer)
-- values: ["task-1","task-9","task-2",100]

-- src/links/sql.ts: linkedTasksAfter
select to_id, what from flotilla.link where from_id = $1 and to_id > $2
order by to_id limit cast($3 as integer)
-- values: ["task-1","task-2",100]

-- src/links/sql.ts: readLinks
select * from (
  select 'origin' as kind, from_id as id, what, link.at, null as name, null as status,
    case what when 'session' then (select tenant from flotilla.session where session_id = from_id)
      when 'schedule' then null
      else (select tenant from flotilla.task where task_id = from_id) end as tenant
  from flotilla.link link where to_id = $1 order by link.at, from_id limit cast($2 as integer)) origin
union all
select * from (
  select 'started' as kind, to_id as id, what, link.at, task.name, task.status, task.tenant
  from flotilla.link link left join flotilla.task task on task.task_id = link.to_id
  where from_id = $3 and what in ('run', 'task', 'follow_up') order by to_id limit cast($4 as integer)) started

union all
select * from (
  select 'dependent' as kind, dependent_id as id, 'task' as what, task.created_at as at,
    task.name, task.status, task.tenant
  from flotilla.task_dependency wait join flotilla.task task on task.task_id = wait.dependent_id
  where dependency_id = $5 order by dependent_id limit cast($6 as integer)) dependents
union all
select * from (
  select 'copy' as kind, task.task_id as id, 'task' as what, task.created_at as at,
    task.name, task.status, task.tenant
  from flotilla.task original join flotilla.task task on task.tenant = original.tenant
    and task.name = original.name and task.unique_key >= $7
    and task.unique_key < $8 and task.unique_key is not null
  where original.task_id = $9 order by task.unique_key limit cast($10 as integer)) copies
-- values: ["task-1",1,"task-1",100,"task-1",100,"copy:task-1:","copy:task-1;","task-1",100]

select * from (
  select 'started' as kind, to_id as id, what, link.at, task.name, task.status, task.tenant
  from flotilla.link link left join flotilla.task task on task.task_id = link.to_id
  where from_id = $1 and what = 'session' order by to_id limit cast($2 as integer)) started
-- values: ["session-1",100]

select * from (
  select 'started' as kind, to_id as id, what, link.at, task.name, task.status, task.tenant
  from flotilla.link link left join flotilla.task task on task.task_id = link.to_id
  where from_id = $1 and what = 'schedule' order by to_id limit cast($2 as integer)) started
-- values: ["nightly",100]
