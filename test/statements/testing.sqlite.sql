-- src/testing/sql.ts: readNextDue
select
  (select count(*) from flotilla_task where status = 'claimed')
    + (select count(*) from flotilla_session where state <> 'idle')
    + (select count(*) from flotilla_redrive where state in ('running', 'stopping'))
    + (select count(*) from flotilla_bulk where state = 'running')
    + (select count(*) from flotilla_schedule where paused = 0 and next_at = 0) as busy,
  (select min(run_at) from flotilla_task where status = 'pending' and run_at > ?) as task_at,
  (select min(next_at) from flotilla_schedule where paused = 0 and next_at > ?) as schedule_at
-- values: [1000,1000]
