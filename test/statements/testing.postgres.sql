-- src/testing/sql.ts: readNextDue
select
  (select count(*) from flotilla.task where status = 'claimed')
    + (select count(*) from flotilla.session where state <> 'idle')
    + (select count(*) from flotilla.redrive where state in ('running', 'stopping'))
    + (select count(*) from flotilla.bulk where state = 'running')
    + (select count(*) from flotilla.schedule where paused = 0 and next_at = 0) as busy,
  (select min(run_at) from flotilla.task where status = 'pending' and run_at > $1) as task_at,
  (select min(next_at) from flotilla.schedule where paused = 0 and next_at > $2) as schedule_at
-- values: [1000,1000]
