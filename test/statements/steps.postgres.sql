-- src/steps/sql.ts: readSteps
select key, seq, kind, input_hash, now_ms() - at as age_ms, coalesce(octet_length(value), 0) as bytes,
  case when coalesce(octet_length(value), 0) <= $1 then value end as value
from flotilla.step_journal where owner_id = $2 and part = $3 order by seq
-- values: [8192,"task-1",""]

-- src/steps/sql.ts: readStepsOfMany
select owner_at, key, seq, kind, input_hash, now_ms() - at as age_ms, coalesce(octet_length(value), 0) as bytes,
  case when coalesce(octet_length(value), 0) <= $1 then value end as value
from (
  select given.owner_at, own.key, own.seq, own.kind, own.input_hash, own.at, own.value,
    row_number() over (partition by given.owner_at order by own.seq) as place
  from (select owner_at, owner_id collate "C" as owner_id, part collate "C" as part from unnest($2::bigint[], $3::text[], $4::text[]) as each_row (owner_at, owner_id, part)) given join flotilla.step_journal own
    on own.owner_id = given.owner_id and own.part = given.part
) found
where place <= $5 order by owner_at, seq
-- values: [8192,"{0,1}","{\"task-1\",\"task-2\"}","{\"\",\"\"}",31]

-- src/steps/sql.ts: readStepValue
select value from flotilla.step_journal where owner_id = $1 and part = $2 and key = $3
-- values: ["task-1","","read"]

-- src/steps/sql.ts: findStep
select key from flotilla.step_journal
where owner_id = $1 and part = $2 and key = $3
  and seq = $4 and token = $5
-- values: ["task-1","","read",3,2]
