-- src/steps/sql.ts: readSteps
select key, seq, kind, input_hash, now_ms() - at as age_ms, coalesce(octet_length(value), 0) as bytes,
  case when coalesce(octet_length(value), 0) <= ? then value end as value
from flotilla_step_journal where owner_id = ? and part = ? order by seq
-- values: [8192,"task-1",""]

-- src/steps/sql.ts: readStepsOfMany
select owner_at, key, seq, kind, input_hash, now_ms() - at as age_ms, coalesce(octet_length(value), 0) as bytes,
  case when coalesce(octet_length(value), 0) <= ? then value end as value
from (
  select given.owner_at, own.key, own.seq, own.kind, own.input_hash, own.at, own.value,
    row_number() over (partition by given.owner_at order by own.seq) as place
  from (select value ->> 0 as owner_at, value ->> 1 as owner_id, value ->> 2 as part from jsonb_each(?)) given join flotilla_step_journal own
    on own.owner_id = given.owner_id and own.part = given.part
) found
where place <= ? order by owner_at, seq
-- values: [8192,"[[0,\"task-1\",\"\"],[1,\"task-2\",\"\"]]",31]

-- src/steps/sql.ts: readStepValue
select value from flotilla_step_journal where owner_id = ? and part = ? and key = ?
-- values: ["task-1","","read"]

-- src/steps/sql.ts: findStep
select key from flotilla_step_journal
where owner_id = ? and part = ? and key = ?
  and seq = ? and token = ?
-- values: ["task-1","","read",3,2]
