-- src/steps/sql.ts: readSteps
select key, seq, kind, input_hash, now_ms() - at as age_ms, coalesce(octet_length(value), 0) as bytes,
  case when coalesce(octet_length(value), 0) <= ? then value end as value
from flotilla_step_journal where owner_id = ? and part = ? order by seq
-- values: [8192,"task-1",""]

-- src/steps/sql.ts: readStepValue
select value from flotilla_step_journal where owner_id = ? and part = ? and key = ?
-- values: ["task-1","","read"]

-- src/steps/sql.ts: findStep
select key from flotilla_step_journal
where owner_id = ? and part = ? and key = ?
  and seq = ? and token = ?
-- values: ["task-1","","read",3,2]
