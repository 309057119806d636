-- src/steps/sql.ts: readSteps
select key, seq, kind, input_hash, now_ms() - at as age_ms, coalesce(octet_length(value), 0) as bytes,
  case when coalesce(octet_length(value), 0) <= $1 then value end as value
from flotilla.step_journal where owner_id = $2 and part = $3 order by seq
-- values: [8192,"task-1",""]

-- src/steps/sql.ts: readStepValue
select value from flotilla.step_journal where owner_id = $1 and part = $2 and key = $3
-- values: ["task-1","","read"]

-- src/steps/sql.ts: findStep
select key from flotilla.step_journal
where owner_id = $1 and part = $2 and key = $3
  and seq = $4 and token = $5
-- values: ["task-1","","read",3,2]
