-- src/steps/sql.ts: readSteps
select key, seq, kind, input_hash, now_ms() - at as age_ms, coalesce(octet_length(value), 0) as bytes,
  case when coalesce(octet_length(value), 0) <= ? then value end as value
from flotilla_step_journal where owner_id = ? and part = ? order by seq
-- values: [8192,"task-1",""]

-- src/steps/sql.ts: readStepValue
select value from flotilla_step_journal where owner_id = ? and part = ? and key = ?
-- values: ["task-1","","read"]

-- src/steps/sql.ts: listSteps
select key, seq, token, kind, started_at, at, coalesce(octet_length(value), 0) as bytes
from flotilla_step_journal where owner_id = ? and part = ? and seq > ?
order by seq
-- values: ["task-1","",0]

select key, seq, token, kind, started_at, at, coalesce(octet_length(value), 0) as bytes
from flotilla_step_journal where owner_id = ? and part = ? and seq > ?
order by seq limit cast(? as integer)
-- values: ["task-1","",3,10]

-- src/steps/sql.ts: findStep
select key from flotilla_step_journal
where owner_id = ? and part = ? and key = ?
  and seq = ? and token = ?
-- values: ["task-1","","read",3,2]

-- src/steps/sql.ts: countSteps
select count(*) as steps from flotilla_step_journal where owner_id = ? and part = ?
-- values: ["task-1",""]
