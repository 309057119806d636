-- src/links/sql.ts: insertLinks
insert into flotilla_link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select value ->> 0 as from_id, value ->> 1 as to_id, value ->> 2 as what from jsonb_each(?)) wanted
where to_id = (select task_id from flotilla_task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["[[\"task-1\",\"task-2\",\"task\"]]"]

-- src/links/sql.ts: deleteLinksTo
delete from flotilla_link as link where to_id in (select 'task-2')

-- src/links/sql.ts: deleteLinksFromSessions
delete from flotilla_link where from_id in (select 'session-1') and what = 'session'

-- src/links/sql.ts: linkedTasks
select to_id, what from flotilla_link
where from_id = ? and to_id < ? and to_id >= ?
order by to_id desc limit cast(? as integer)
-- values: ["task-1","task-9","task-2",100]

-- src/links/sql.ts: linkedTasksAfter
select to_id, what from flotilla_link where from_id = ? and to_id > ?
order by to_id limit cast(? as integer)
-- values: ["task-1","task-2",100]

-- src/links/sql.ts: readLinks
select * from (
  select 'origin' as kind, from_id as id, what, link.at, null as name, null as status,
    case what when 'session' then (select tenant from flotilla_session where session_id = from_id)
      when 'schedule' then null
      else (select tenant from flotilla_task where task_id = from_id) end as tenant
  from flotilla_link link where to_id = ? order by link.at, from_id limit cast(? as integer)) origin
union all
select * from (
  select 'started' as kind, to_id as id, what, link.at, task.name, task.status, task.tenant
  from flotilla_link link left join flotilla_task task on task.task_id = link.to_id
  where from_id = ? and what in ('run', 'task', 'follow_up') order by to_id limit cast(? as integer)) started

union all
select * from (
  select 'dependent' as kind, dependent_id as id, 'task' as what, task.created_at as at,
    task.name, task.status, task.tenant
  from flotilla_task_dependency wait join flotilla_task task on task.task_id = wait.dependent_id
  where dependency_id = ? order by dependent_id limit cast(? as integer)) dependents
union all
select * from (
  select 'copy' as kind, task.task_id as id, 'task' as what, task.created_at as at,
    task.name, task.status, task.tenant
  from flotilla_task original join flotilla_task task on task.tenant = original.tenant
    and task.name = original.name and task.unique_key >= ?
    and task.unique_key < ? and task.unique_key is not null
  where original.task_id = ? order by task.unique_key limit cast(? as integer)) copies
-- values: ["task-1",1,"task-1",100,"task-1",100,"copy:task-1:","copy:task-1;","task-1",100]

select * from (
  select 'started' as kind, to_id as id, what, link.at, task.name, task.status, task.tenant
  from flotilla_link link left join flotilla_task task on task.task_id = link.to_id
  where from_id = ? and what = 'session' order by to_id limit cast(? as integer)) started
-- values: ["session-1",100]

select * from (
  select 'started' as kind, to_id as id, what, link.at, task.name, task.status, task.tenant
  from flotilla_link link left join flotilla_task task on task.task_id = link.to_id
  where from_id = ? and what = 'schedule' order by to_id limit cast(? as integer)) started
-- values: ["nightly",100]
