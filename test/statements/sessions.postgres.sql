-- src/sessions/sql.ts: readSessions
select session_id, header, metadata from flotilla.session session
where session.session_id = any(array(select asked.session_id from (select session_id collate "C" as session_id from unnest($1::text[]) as each_row (session_id)) asked))
  and tenant = $2 and status <> 'deleted'
-- values: ["{\"session-1\"}","default"]

select session_id, header, metadata from flotilla.session session
where session.session_id = any(array(select asked.session_id from (select session_id collate "C" as session_id from unnest($1::text[]) as each_row (session_id)) asked))
  and tenant = $2 and status <> 'deleted' and agent = $3 and status = $4 and state = $5 and exists (select 1 from flotilla.session_user member
where member.session_id = session.session_id and member.user_id = $6)
-- values: ["{\"session-1\"}","default","helper","active","idle","ada"]

-- src/sessions/sql.ts: readOwner
select log.log_id, log.term, log.owner from flotilla.session session
join flotilla.session_log log on log.log_id = session.log_id
where session.session_id = $1 and session.tenant = $2
  and session.status <> 'deleted'
-- values: ["session-1","default"]

-- src/sessions/sql.ts: readLogOf
select log_id from flotilla.session
where session_id = $1 and tenant = $2 and status <> 'deleted'
-- values: ["session-1","default"]

-- src/sessions/sql.ts: countSessions
select (
select count(*) from (select status from flotilla.session limit cast($1 as integer)) looked where status <> 'deleted') as total,
  (
select count(*) from (select status from flotilla.session where state <> 'idle' order by log_id limit cast($2 as integer)) looked where status <> 'deleted') as busy
-- values: [10000,10000]

-- src/sessions/sql.ts: countSessionsOf
select count(*) as total from (select 1 from flotilla.session_user member
  where member.tenant = $1 and member.user_id = $2 limit cast($3 as integer)) theirs
-- values: ["default","ada",2001]

-- src/sessions/sql.ts: walkSessionsBelow
select session_id, active_at, case when status <> 'deleted' and exists (select 1 from flotilla.session_user member
where member.session_id = session.session_id and member.user_id = $1) then 200 + coalesce(octet_length(header), 0) + coalesce(octet_length(metadata), 0) end as bytes
from flotilla.session session
where tenant = $2
  and (active_at, session_id) < ($3, $4)
order by active_at desc, session_id desc limit cast($5 as integer)
-- values: ["ada","default",9,"session-9",10]

-- src/sessions/sql.ts: sessionsBelow
select session_id, active_at, case when status <> 'deleted' and agent = $1 and status = $2 and state = $3  then 200 + coalesce(octet_length(header), 0) + coalesce(octet_length(metadata), 0) end as bytes
from flotilla.session session
where tenant = $4
  and (active_at, session_id) < ($5, $6)
order by active_at desc, session_id desc limit cast($7 as integer)
-- values: ["helper","active","idle","default",9,"session-9",10]

select session_id, active_at, case when status <> 'deleted' then 200 + coalesce(octet_length(header), 0) + coalesce(octet_length(metadata), 0) end as bytes from flotilla.session session
where session.session_id = any(array(
select member.session_id from flotilla.session_user member
where member.tenant = $1 and member.user_id = $2))
  and (active_at, session_id) < ($3, $4)
order by active_at desc, session_id desc limit cast($5 as integer)
-- values: ["default","ada",9,"session-9",10]

select session_id, active_at, case when status <> 'deleted' and flotilla.json_of(metadata) #> $1::text[] = $2::jsonb  then 200 + coalesce(octet_length(header), 0) + coalesce(octet_length(metadata), 0) end as bytes
from flotilla.session session
where tenant = $3
  and (active_at, session_id) < ($4, $5)
order by active_at desc, session_id desc limit cast($6 as integer)
-- values: ["{\"ticket\",\"id\"}","7","default",9,"session-9",10]

select session_id, active_at, case when status <> 'deleted' then 200 + coalesce(octet_length(header), 0) + coalesce(octet_length(metadata), 0) end as bytes from flotilla.session session
where session.session_id = any(array(select asked.session_id from (select session_id collate "C" as session_id from unnest($1::text[]) as each_row (session_id)) asked))
  and tenant = $2
  and (active_at, session_id) < ($3, $4)
order by active_at desc, session_id desc limit cast($5 as integer)
-- values: ["{\"session-1\"}","default",9,"session-9",10]

-- src/sessions/sql.ts: busySessionsBelow
select session_id, active_at, 200 + coalesce(octet_length(header), 0) + coalesce(octet_length(metadata), 0) as bytes from flotilla.session session
where state <> 'idle' and log_id >= 0 and (tenant || '') = $1
  and (active_at + 0, session_id || '') < ($2, $3)
  and status <> 'deleted'
  and exists (select 1 from flotilla.session_user member
where member.session_id = session.session_id and member.user_id = $4)
order by active_at + 0 desc, (session_id || '') desc limit cast($5 as integer)
-- values: ["default",9,"session-9","ada",10]

-- src/sessions/sql.ts: sessionsAwaiting
select session_id, tenant, agent, header, approval_since, approval_until from flotilla.session
where approval_until is not null  and (approval_until, session_id) > ($1, $2)
  and status = 'active' and approval_seq = last_seq
order by approval_until, session_id limit cast($3 as integer)
-- values: [5,"session-1",51]

select session_id, tenant, agent, header, approval_since, approval_until from flotilla.session
where approval_since is not null and approval_until is null and tenant = $1 and (approval_since, session_id) > ($2, $3)
  and status = 'active' and approval_seq = last_seq
order by approval_since, session_id limit cast($4 as integer)
-- values: ["acme",5,"session-1",51]

-- src/sessions/sql.ts: readInboxRows
select shown.session_id, shown.header, (select read_seq from flotilla.session_user member
where member.session_id = shown.session_id and member.user_id = $1) as read_seq,
  (select count(*) from (
    select kind, author, replaces from flotilla.message message
    where message.session_id = shown.session_id and message.seq > (select read_seq from flotilla.session_user member
where member.session_id = shown.session_id and member.user_id = $2)
    order by message.seq desc limit cast($3 as integer)) recent
  where kind = 'message' and replaces is null and author <> $4) as unread
from (
  select session_id, header, active_at from flotilla.session session
  where session.session_id = any(array(
    select member.session_id from flotilla.session_user member where member.tenant = $5 and member.user_id = $6
    order by member.session_id desc limit cast($7 as integer)))
    and tenant = $8 and status <> 'deleted'
  order by active_at desc, session_id desc limit cast($9 as integer)) shown
order by shown.active_at desc, shown.session_id desc
-- values: ["ada","ada",50,"ada","default","ada",100,"default",10]

select shown.session_id, shown.header, (select read_seq from flotilla.session_user member
where member.session_id = shown.session_id and member.user_id = $1) as read_seq,
  (select count(*) from (
    select kind, author, replaces from flotilla.message message
    where message.session_id = shown.session_id and message.seq > (select read_seq from flotilla.session_user member
where member.session_id = shown.session_id and member.user_id = $2)
    order by message.seq desc limit cast($3 as integer)) recent
  where kind = 'message' and replaces is null and author <> $4) as unread
from (
  select session_id, header, active_at from flotilla.session session
  where session.session_id = any(array(
    select named.session_id from (select session_id collate "C" as session_id from unnest($5::text[]) as each_row (session_id)) named where exists (select 1 from flotilla.session_user member
      where member.session_id = named.session_id and member.tenant = $6 and member.user_id = $7)))
    and tenant = $8 and status <> 'deleted'
  order by active_at desc, session_id desc limit cast($9 as integer)) shown
order by shown.active_at desc, shown.session_id desc
-- values: ["ada","ada",50,"ada","{\"session-1\"}","default","ada","default",10]


-- src/sessions/log/sql/records.ts: storeRecords
update flotilla.session_log set log_offset = from_offset + 1, record_id = to_record from (select to_log, in_incarnation collate "C" as in_incarnation, in_term, from_offset, from_record collate "C" as from_record, to_record collate "C" as to_record from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (to_log, in_incarnation, in_term, from_offset, from_record, to_record)) moves
where log_id = to_log and incarnation = in_incarnation and term = in_term
  and ((log_offset = from_offset and record_id = from_record)
    or (log_offset = from_offset + 1 and record_id = to_record))
  and exists (select 1 from flotilla.log_place where place = 'sql') and flotilla.session_log.log_id = any(array(
select head.log_id from flotilla.session_log head join (select log_id, term from unnest($7::bigint[], $8::bigint[]) as each_row (log_id, term)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id for update))
returning log_id, incarnation, term, owner, host, log_offset, record_id, beat
-- instead of returning:
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla.session_log join (select to_log, in_incarnation collate "C" as in_incarnation, in_term, from_offset, from_record collate "C" as from_record, to_record collate "C" as to_record from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (to_log, in_incarnation, in_term, from_offset, from_record, to_record)) moves
  on log_id = to_log and term = in_term and log_offset = from_offset + 1
    and record_id = to_record
-- values: ["{1}","{\"first\"}","{2}","{7}","{\"record-7\"}","{\"record-8\"}","{1}","{2}"]

insert into flotilla.message (session_id, seq, role, author, message_id, client_id, body, at) select session_id, seq, role, author, message_id, client_id, body, at from (select session_id collate "C" as session_id, seq, role collate "C" as role, author collate "C" as author, message_id collate "C" as message_id, client_id collate "C" as client_id, body collate "C" as body, at, log_id from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[]) as each_row (session_id, seq, role, author, message_id, client_id, body, at, log_id)) fresh
where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($10::bigint[], $11::text[], $12::bigint[], $13::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
-- values: ["{\"session-1\"}","{2}","{\"user\"}","{\"ada\"}","{\"message-2\"}","{\"client-2\"}","{\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\"}","{2}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

insert into flotilla.session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id
from (select session_id collate "C" as session_id, tenant collate "C" as tenant, status collate "C" as status, state collate "C" as state, agent collate "C" as agent, last_seq, header collate "C" as header, created_at, active_at, last_offset, turn_epoch, turn_agent collate "C" as turn_agent, log_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[]) as each_row (session_id, tenant, status, state, agent, last_seq, header, created_at, active_at, last_offset, turn_epoch, turn_agent, log_id)) fresh where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($14::bigint[], $15::text[], $16::bigint[], $17::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent
where flotilla.session.last_offset < excluded.last_offset
-- values: ["{\"session-1\"}","{\"default\"}","{\"active\"}","{\"idle\"}","{\"helper\"}","{2}","{\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2}\"}","{1}","{2}","{8}","{null}","{null}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

update flotilla.session_log set log_offset = from_offset + 1, record_id = to_record from (select to_log, in_incarnation collate "C" as in_incarnation, in_term, from_offset, from_record collate "C" as from_record, to_record collate "C" as to_record from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (to_log, in_incarnation, in_term, from_offset, from_record, to_record)) moves
where log_id = to_log and incarnation = in_incarnation and term = in_term
  and ((log_offset = from_offset and record_id = from_record)
    or (log_offset = from_offset + 1 and record_id = to_record))
  and exists (select 1 from flotilla.log_place where place = 'sql') and flotilla.session_log.log_id = any(array(
select head.log_id from flotilla.session_log head join (select log_id, term from unnest($7::bigint[], $8::bigint[]) as each_row (log_id, term)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id for update))
returning log_id, incarnation, term, owner, host, log_offset, record_id, beat
-- instead of returning:
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla.session_log join (select to_log, in_incarnation collate "C" as in_incarnation, in_term, from_offset, from_record collate "C" as from_record, to_record collate "C" as to_record from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (to_log, in_incarnation, in_term, from_offset, from_record, to_record)) moves
  on log_id = to_log and term = in_term and log_offset = from_offset + 1
    and record_id = to_record
-- values: ["{1}","{\"first\"}","{2}","{7}","{\"record-7\"}","{\"record-8\"}","{1}","{2}"]

select session_id from flotilla.session where session_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (session_id, log_id)) ids where ids.log_id = any(array(
    select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($3::bigint[], $4::text[], $5::bigint[], $6::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
    join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
    where coalesce(
      (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset)))) for update
-- values: ["{\"session-3\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

  delete from flotilla.message
  where session_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (session_id, log_id)) ids where ids.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($3::bigint[], $4::text[], $5::bigint[], $6::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset)))) and seq > coalesce((select max(at_seq) from flotilla.session_fork fork where fork.parent_id = flotilla.message.session_id), 0)
-- values: ["{\"session-3\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

delete from flotilla.turn where session_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (session_id, log_id)) ids where ids.log_id = any(array(
    select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($3::bigint[], $4::text[], $5::bigint[], $6::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
    join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
    where coalesce(
      (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))))
-- values: ["{\"session-3\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

delete from flotilla.link where from_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (session_id, log_id)) ids where ids.log_id = any(array(
    select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($3::bigint[], $4::text[], $5::bigint[], $6::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
    join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
    where coalesce(
      (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset)))) and what = 'session'
-- values: ["{\"session-3\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

  update flotilla.file set unused_at = now_ms()
  where file_id = any(array(select file_id from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($2::text[], $3::bigint[]) as each_row (session_id, log_id)) ids where ids.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($4::bigint[], $5::text[], $6::bigint[], $7::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))))))
-- values: ["session","{\"session-3\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

delete from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($2::text[], $3::bigint[]) as each_row (session_id, log_id)) ids where ids.log_id = any(array(
    select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($4::bigint[], $5::text[], $6::bigint[], $7::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
    join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
    where coalesce(
      (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))))
-- values: ["session","{\"session-3\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

insert into flotilla.message (session_id, seq, role, author, message_id, client_id, body, at, kind, replaces) select session_id, seq, role, author, message_id, client_id, body, at, kind, replaces from (select session_id collate "C" as session_id, seq, role collate "C" as role, author collate "C" as author, message_id collate "C" as message_id, client_id collate "C" as client_id, body collate "C" as body, at, kind collate "C" as kind, replaces, log_id from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::text[], $10::bigint[], $11::bigint[]) as each_row (session_id, seq, role, author, message_id, client_id, body, at, kind, replaces, log_id)) fresh
where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($12::bigint[], $13::text[], $14::bigint[], $15::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
-- values: ["{\"session-1\"}","{2}","{\"user\"}","{\"ada\"}","{\"message-2\"}","{\"client-2\"}","{\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\"}","{2}","{\"summary\"}","{1}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

delete from flotilla.session_user
where session_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (session_id, log_id)) ids where ids.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($3::bigint[], $4::text[], $5::bigint[], $6::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))))
  and not exists (select 1 from (select session_id collate "C" as session_id, user_id collate "C" as user_id, tenant collate "C" as tenant, log_id from unnest($7::text[], $8::text[], $9::text[], $10::bigint[]) as each_row (session_id, user_id, tenant, log_id)) member
    where member.session_id = flotilla.session_user.session_id and member.user_id = flotilla.session_user.user_id)
-- values: ["{\"session-1\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}","{\"session-1\"}","{\"ada\"}","{\"default\"}","{1}"]

insert into flotilla.session_user (session_id, user_id, tenant)
select session_id, user_id, tenant from (select session_id collate "C" as session_id, user_id collate "C" as user_id, tenant collate "C" as tenant, log_id from unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) as each_row (session_id, user_id, tenant, log_id)) member
where member.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($5::bigint[], $6::text[], $7::bigint[], $8::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
on conflict (session_id, user_id) do nothing
-- values: ["{\"session-1\"}","{\"ada\"}","{\"default\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

update flotilla.session_user set read_seq = fresh.seq from (select session_id collate "C" as session_id, user_id collate "C" as user_id, seq, log_id from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as each_row (session_id, user_id, seq, log_id)) fresh
where flotilla.session_user.session_id = fresh.session_id and flotilla.session_user.user_id = fresh.user_id
  and flotilla.session_user.read_seq < fresh.seq and fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($5::bigint[], $6::text[], $7::bigint[], $8::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
-- values: ["{\"session-1\"}","{\"ada\"}","{2}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

delete from flotilla.turn_checkpoint
where session_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (session_id, log_id)) ids where ids.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($3::bigint[], $4::text[], $5::bigint[], $6::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))))
  and epoch <= (select gone.epoch from (select session_id collate "C" as session_id, epoch, log_id from unnest($7::text[], $8::bigint[], $9::bigint[]) as each_row (session_id, epoch, log_id)) gone
    where gone.session_id = flotilla.turn_checkpoint.session_id)
-- values: ["{\"session-2\",\"session-3\"}","{1,1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}","{\"session-2\",\"session-3\"}","{1,9007199254740991}","{1,1}"]

insert into flotilla.turn_checkpoint (session_id, epoch, attempt, body)
select session_id, epoch, attempt, body from (select session_id collate "C" as session_id, epoch, attempt, body collate "C" as body, log_id from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[]) as each_row (session_id, epoch, attempt, body, log_id)) fresh where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($6::bigint[], $7::text[], $8::bigint[], $9::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
on conflict (session_id) do update
set epoch = excluded.epoch, attempt = excluded.attempt, body = excluded.body
where flotilla.turn_checkpoint.epoch < excluded.epoch
  or (flotilla.turn_checkpoint.epoch = excluded.epoch and flotilla.turn_checkpoint.attempt <= excluded.attempt)
-- values: ["{\"session-1\"}","{1}","{1}","{\"{}\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

delete from flotilla.step_journal where ctid = any(array(
  select stored.ctid from (select owner_id collate "C" as owner_id, part collate "C" as part, log_id from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (owner_id, part, log_id)) gone
  join flotilla.step_journal stored on stored.owner_id = gone.owner_id and stored.part = gone.part
  where gone.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($4::bigint[], $5::text[], $6::bigint[], $7::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))))
-- values: ["{\"session-2\"}","{\"1\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

insert into flotilla.step_journal as stored
  (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select owner_id, part, key, seq, token, kind, input_hash, value, now_ms() - took_ms, now_ms()
from (select owner_id collate "C" as owner_id, part collate "C" as part, key collate "C" as key, seq, token, kind collate "C" as kind, input_hash collate "C" as input_hash, value collate "C" as value, took_ms, log_id from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::bigint[]) as each_row (owner_id, part, key, seq, token, kind, input_hash, value, took_ms, log_id)) fresh where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($11::bigint[], $12::text[], $13::bigint[], $14::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
-- values: ["{\"session-1\"}","{\"1\"}","{\"search\"}","{3}","{2}","{\"done\"}","{null}","{\"1\"}","{5}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

delete from flotilla.step_journal where ctid = any(array(
  select inner_step.ctid from (select owner_id collate "C" as owner_id, part collate "C" as part, before_seq, low collate "C" as low, high collate "C" as high, log_id from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[]) as each_row (owner_id, part, before_seq, low, high, log_id)) given
  join flotilla.step_journal inner_step on inner_step.owner_id = given.owner_id
    and inner_step.part = given.part
    and inner_step.key >= given.low and inner_step.key < given.high
  where inner_step.seq < given.before_seq and given.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($7::bigint[], $8::text[], $9::bigint[], $10::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))))
-- values: ["{\"session-1\",\"session-1\"}","{\"1\",\"1\"}","{3,3}","{\"search/\",\"search@\"}","{\"search0\",\"searchA\"}","{1,1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

insert into flotilla.turn (session_id, epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at,
outcome, input_tokens, output_tokens, cached_tokens, model, cost_millionths) select session_id, epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at,
outcome, input_tokens, output_tokens, cached_tokens, model, cost_millionths from (select session_id collate "C" as session_id, epoch, attempt, agent collate "C" as agent, pod_id collate "C" as pod_id, began_at, first_chunk_at, ended_at, outcome collate "C" as outcome, input_tokens, output_tokens, cached_tokens, model collate "C" as model, cost_millionths, log_id from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::bigint[], $15::bigint[]) as each_row (session_id, epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at, outcome, input_tokens, output_tokens, cached_tokens, model, cost_millionths, log_id)) fresh
where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($16::bigint[], $17::text[], $18::bigint[], $19::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
on conflict do nothing
-- values: ["{\"session-2\"}","{1}","{1}","{\"helper\"}","{\"pod-1\"}","{1}","{2}","{3}","{\"completed\"}","{10}","{2}","{4}","{\"small\"}","{500000}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
  filter, count, before, after, outcome, reason)
select id, now_ms(), actor, tenant, user_id, key_name, role, address, action, subject,
  filter, 1, before, after, 'done', reason
from (select id collate "C" as id, actor collate "C" as actor, tenant collate "C" as tenant, user_id collate "C" as user_id, key_name collate "C" as key_name, role collate "C" as role, address collate "C" as address, action collate "C" as action, subject collate "C" as subject, filter collate "C" as filter, before collate "C" as before, after collate "C" as after, reason collate "C" as reason, log_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[]) as each_row (id, actor, tenant, user_id, key_name, role, address, action, subject, filter, before, after, reason, log_id)) fresh where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($15::bigint[], $16::text[], $17::bigint[], $18::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
on conflict (id) do nothing
-- values: ["{\"act-1\"}","{\"key/web\"}","{\"default\"}","{\"zoe\"}","{\"web\"}","{\"operator\"}","{\"10.0.0.1\"}","{\"tasks.cancel\"}","{\"task-1\"}","{null}","{\"{}\"}","{\"{}\"}","{null}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

  select task.task_id from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (tenant, name, unique_key, task_id)) wanted join flotilla.task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  order by task.task_id for update of task
-- values: ["{\"default\"}","{\"mail\"}","{\"once\"}","{\"task-1\"}"]

insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  max_attempts, unique_key, trace, parked)
select task_id, tenant, name, payload, priority, now_ms() + delay_ms, now_ms(), now_ms(),
  max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh where fresh.task_id = any(array(select logged.task_id from (select task_id collate "C" as task_id, log_id from unnest($10::text[], $11::bigint[]) as each_row (task_id, log_id)) logged where logged.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($12::bigint[], $13::text[], $14::bigint[], $15::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))))
on conflict do nothing
returning task_id
-- instead of returning:
select task_id from flotilla.task where task_id in (select task_id from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh)
-- values: ["{\"task-1\"}","{\"default\"}","{\"mail\"}","{\"{}\"}","{0}","{0}","{null}","{\"once\"}","{null}","{\"task-1\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

insert into flotilla.task_alias (alias_id, task_id)
select fresh.task_id, holder.task_id
from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (tenant, name, unique_key, task_id)) fresh join flotilla.task holder on holder.tenant = fresh.tenant
  and holder.name = fresh.name and holder.unique_key = fresh.unique_key
where holder.task_id <> fresh.task_id and fresh.task_id = any(array(select logged.task_id from (select task_id collate "C" as task_id, log_id from unnest($5::text[], $6::bigint[]) as each_row (task_id, log_id)) logged where logged.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($7::bigint[], $8::text[], $9::bigint[], $10::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))))
  and not exists (select 1 from flotilla.task own where own.task_id = fresh.task_id)
on conflict do nothing
-- values: ["{\"default\"}","{\"mail\"}","{\"once\"}","{\"task-1\"}","{\"task-1\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

insert into flotilla.link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select from_id collate "C" as from_id, to_id collate "C" as to_id, what collate "C" as what from unnest($1::text[], $2::text[], $3::text[]) as each_row (from_id, to_id, what)) wanted
where to_id = (select task_id from flotilla.task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["{\"session-1\"}","{\"task-1\"}","{\"session\"}"]

insert into flotilla.session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, metadata)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, metadata
from (select session_id collate "C" as session_id, tenant collate "C" as tenant, status collate "C" as status, state collate "C" as state, agent collate "C" as agent, last_seq, header collate "C" as header, created_at, active_at, last_offset, turn_epoch, turn_agent collate "C" as turn_agent, metadata collate "C" as metadata, log_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::bigint[]) as each_row (session_id, tenant, status, state, agent, last_seq, header, created_at, active_at, last_offset, turn_epoch, turn_agent, metadata, log_id)) fresh where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($15::bigint[], $16::text[], $17::bigint[], $18::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent , metadata = case when excluded.status = 'deleted' then null
else coalesce(excluded.metadata, flotilla.session.metadata) end
where flotilla.session.last_offset < excluded.last_offset
-- values: ["{\"session-1\"}","{\"default\"}","{\"active\"}","{\"idle\"}","{\"helper\"}","{2}","{\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2}\"}","{1}","{2}","{8}","{null}","{null}","{\"{}\"}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

update flotilla.session_log set log_offset = from_offset + 1, record_id = to_record from (select to_log, in_incarnation collate "C" as in_incarnation, in_term, from_offset, from_record collate "C" as from_record, to_record collate "C" as to_record from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (to_log, in_incarnation, in_term, from_offset, from_record, to_record)) moves
where log_id = to_log and incarnation = in_incarnation and term = in_term
  and ((log_offset = from_offset and record_id = from_record)
    or (log_offset = from_offset + 1 and record_id = to_record))
  and exists (select 1 from flotilla.log_place where place = 'sql') and flotilla.session_log.log_id = any(array(
select head.log_id from flotilla.session_log head join (select log_id, term from unnest($7::bigint[], $8::bigint[]) as each_row (log_id, term)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id for update))
returning log_id, incarnation, term, owner, host, log_offset, record_id, beat
-- instead of returning:
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla.session_log join (select to_log, in_incarnation collate "C" as in_incarnation, in_term, from_offset, from_record collate "C" as from_record, to_record collate "C" as to_record from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (to_log, in_incarnation, in_term, from_offset, from_record, to_record)) moves
  on log_id = to_log and term = in_term and log_offset = from_offset + 1
    and record_id = to_record
-- values: ["{1}","{\"first\"}","{2}","{7}","{\"record-7\"}","{\"record-8\"}","{1}","{2}"]

insert into flotilla.message (session_id, seq, role, author, message_id, client_id, body, at) select session_id, seq, role, author, message_id, client_id, body, at from (select session_id collate "C" as session_id, seq, role collate "C" as role, author collate "C" as author, message_id collate "C" as message_id, client_id collate "C" as client_id, body collate "C" as body, at, log_id from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[]) as each_row (session_id, seq, role, author, message_id, client_id, body, at, log_id)) fresh
where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($10::bigint[], $11::text[], $12::bigint[], $13::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
-- values: ["{\"session-1\"}","{2}","{\"user\"}","{\"ada\"}","{\"message-2\"}","{\"client-2\"}","{\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\"}","{2}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

insert into flotilla.tenant_count as counted (tenant, log_id, sessions, turns, bytes)
select tenant, cast($1 as integer), sum(sessions), sum(turns), sum(bytes)
from (select tenant collate "C" as tenant, sessions, turns, bytes, log_id from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) as each_row (tenant, sessions, turns, bytes, log_id)) fresh where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($7::bigint[], $8::text[], $9::bigint[], $10::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
group by tenant order by tenant
on conflict (tenant, log_id) do update
set sessions = counted.sessions + excluded.sessions, turns = counted.turns + excluded.turns,
  bytes = counted.bytes + excluded.bytes
-- values: [1,"{\"default\"}","{0}","{1}","{200}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

insert into flotilla.session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, bytes)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, bytes
from (select session_id collate "C" as session_id, tenant collate "C" as tenant, status collate "C" as status, state collate "C" as state, agent collate "C" as agent, last_seq, header collate "C" as header, created_at, active_at, last_offset, turn_epoch, turn_agent collate "C" as turn_agent, bytes, log_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::bigint[]) as each_row (session_id, tenant, status, state, agent, last_seq, header, created_at, active_at, last_offset, turn_epoch, turn_agent, bytes, log_id)) fresh where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($15::bigint[], $16::text[], $17::bigint[], $18::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent , bytes = excluded.bytes
where flotilla.session.last_offset < excluded.last_offset
-- values: ["{\"session-1\"}","{\"default\"}","{\"active\"}","{\"idle\"}","{\"helper\"}","{2}","{\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2}\"}","{1}","{2}","{8}","{null}","{null}","{0}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

update flotilla.session_log set log_offset = from_offset + 1, record_id = to_record from (select to_log, in_incarnation collate "C" as in_incarnation, in_term, from_offset, from_record collate "C" as from_record, to_record collate "C" as to_record from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (to_log, in_incarnation, in_term, from_offset, from_record, to_record)) moves
where log_id = to_log and incarnation = in_incarnation and term = in_term
  and ((log_offset = from_offset and record_id = from_record)
    or (log_offset = from_offset + 1 and record_id = to_record))
  and exists (select 1 from flotilla.log_place where place = 'sql') and flotilla.session_log.log_id = any(array(
select head.log_id from flotilla.session_log head join (select log_id, term from unnest($7::bigint[], $8::bigint[]) as each_row (log_id, term)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id for update))
returning log_id, incarnation, term, owner, host, log_offset, record_id, beat
-- instead of returning:
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla.session_log join (select to_log, in_incarnation collate "C" as in_incarnation, in_term, from_offset, from_record collate "C" as from_record, to_record collate "C" as to_record from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (to_log, in_incarnation, in_term, from_offset, from_record, to_record)) moves
  on log_id = to_log and term = in_term and log_offset = from_offset + 1
    and record_id = to_record
-- values: ["{1}","{\"first\"}","{2}","{7}","{\"record-7\"}","{\"record-8\"}","{1}","{2}"]

insert into flotilla.message (session_id, seq, role, author, message_id, client_id, body, at) select session_id, seq, role, author, message_id, client_id, body, at from (select session_id collate "C" as session_id, seq, role collate "C" as role, author collate "C" as author, message_id collate "C" as message_id, client_id collate "C" as client_id, body collate "C" as body, at, log_id from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[]) as each_row (session_id, seq, role, author, message_id, client_id, body, at, log_id)) fresh
where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($10::bigint[], $11::text[], $12::bigint[], $13::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
-- values: ["{\"session-1\"}","{2}","{\"user\"}","{\"ada\"}","{\"message-2\"}","{\"client-2\"}","{\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\"}","{2}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

insert into flotilla.session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, approval_since, approval_until, approval_tool, approval_seq)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, approval_since, approval_until, approval_tool, approval_seq
from (select session_id collate "C" as session_id, tenant collate "C" as tenant, status collate "C" as status, state collate "C" as state, agent collate "C" as agent, last_seq, header collate "C" as header, created_at, active_at, last_offset, turn_epoch, turn_agent collate "C" as turn_agent, approval_since, approval_until, approval_tool collate "C" as approval_tool, approval_seq, log_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::bigint[], $15::text[], $16::bigint[], $17::bigint[]) as each_row (session_id, tenant, status, state, agent, last_seq, header, created_at, active_at, last_offset, turn_epoch, turn_agent, approval_since, approval_until, approval_tool, approval_seq, log_id)) fresh where fresh.log_id = any(array(
select to_log from (select to_log, to_record collate "C" as to_record, to_offset, first_session collate "C" as first_session from unnest($18::bigint[], $19::text[], $20::bigint[], $21::text[]) as each_row (to_log, to_record, to_offset, first_session)) placed
join flotilla.session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla.session where session_id = first_session), 0) < to_offset))
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent , approval_since = excluded.approval_since,
  approval_until = excluded.approval_until, approval_tool = excluded.approval_tool,
  approval_seq = excluded.approval_seq
where flotilla.session.last_offset < excluded.last_offset
-- values: ["{\"session-1\"}","{\"default\"}","{\"active\"}","{\"idle\"}","{\"helper\"}","{2}","{\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2,\\\"approvals\\\":{\\\"seq\\\":2,\\\"calls\\\":[]}}\"}","{1}","{2}","{8}","{null}","{null}","{null}","{null}","{null}","{null}","{1}","{1}","{\"record-8\"}","{8}","{\"session-1\"}"]

-- src/sessions/log/sql/records.ts: storeChanges
insert into flotilla.message (session_id, seq, role, author, message_id, client_id, body, at) select session_id, seq, role, author, message_id, client_id, body, at from (select session_id collate "C" as session_id, seq, role collate "C" as role, author collate "C" as author, message_id collate "C" as message_id, client_id collate "C" as client_id, body collate "C" as body, at, log_id from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[]) as each_row (session_id, seq, role, author, message_id, client_id, body, at, log_id)) fresh
where true
-- values: ["{\"session-1\"}","{2}","{\"user\"}","{\"ada\"}","{\"message-2\"}","{\"client-2\"}","{\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\"}","{2}","{1}"]

insert into flotilla.session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id
from (select session_id collate "C" as session_id, tenant collate "C" as tenant, status collate "C" as status, state collate "C" as state, agent collate "C" as agent, last_seq, header collate "C" as header, created_at, active_at, last_offset, turn_epoch, turn_agent collate "C" as turn_agent, log_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[]) as each_row (session_id, tenant, status, state, agent, last_seq, header, created_at, active_at, last_offset, turn_epoch, turn_agent, log_id)) fresh where true
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent
where flotilla.session.last_offset < excluded.last_offset
-- values: ["{\"session-1\"}","{\"default\"}","{\"active\"}","{\"idle\"}","{\"helper\"}","{2}","{\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2}\"}","{1}","{2}","{8}","{null}","{null}","{1}"]

-- src/sessions/log/sql/archive.ts: readAllWatermarks
select log_id, incarnation, log_offset, record_id, chain from flotilla.log_watermark order by log_id

-- src/sessions/log/sql/archive.ts: countAside
select count(*) as items, max(at) as last_at from flotilla.archive_aside

-- src/sessions/log/sql/archive.ts: readWatermark
select log_id, incarnation, log_offset, record_id, chain from flotilla.log_watermark where log_id = $1
-- values: [1]

-- src/sessions/log/sql/archive.ts: readFirstWatermark
select log_id, incarnation, log_offset, record_id, chain from flotilla.log_watermark order by log_id limit cast($1 as integer)
-- values: [1]

-- src/sessions/log/sql/archive.ts: insertWatermark
insert into flotilla.log_watermark (log_id, incarnation, log_offset, record_id, chain, flush_id)
select cast($1 as integer), $2, cast($3 as bigint), $4,
  $5, ''
where exists (select 1 from flotilla.log_place where place = 'nats')
  and not exists (select 1 from flotilla.session where log_id = $6 and last_offset > $7)
on conflict (log_id) do nothing
-- values: [1,"first",8,"record-8","0123456789abcdef",1,8]

-- src/sessions/log/sql/archive.ts: moveToLife
update flotilla.log_watermark set incarnation = $1, log_offset = $2, chain = $3
where log_id = $4 and incarnation = $5 and log_offset = $6
-- values: ["next",8,"0123456789abcdef",1,"first",8]

-- src/sessions/log/sql/archive.ts: storeFlush
update flotilla.log_watermark set log_offset = $1, record_id = $2, chain = $3,
  flush_id = $4, moved_at = now_ms()
where log_id = $5 and incarnation = $6 and log_offset = $7
  and exists (select 1 from flotilla.log_place where place = 'nats')
returning log_id, incarnation, log_offset, record_id, chain
-- instead of returning:
select log_id, incarnation, log_offset, record_id, chain from flotilla.log_watermark where log_id = $1 and flush_id = $2
-- values: [8,"record-8","0123456789abcdef","flush-1",1,"first",7]

insert into flotilla.message (session_id, seq, role, author, message_id, client_id, body, at) select session_id, seq, role, author, message_id, client_id, body, at from (select session_id collate "C" as session_id, seq, role collate "C" as role, author collate "C" as author, message_id collate "C" as message_id, client_id collate "C" as client_id, body collate "C" as body, at, log_id from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[]) as each_row (session_id, seq, role, author, message_id, client_id, body, at, log_id)) fresh
where
exists (select 1 from flotilla.log_watermark where log_id = $10 and flush_id = $11)
-- values: ["{\"session-1\"}","{2}","{\"user\"}","{\"ada\"}","{\"message-2\"}","{\"client-2\"}","{\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\"}","{2}","{1}",1,"flush-1"]

insert into flotilla.session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id
from (select session_id collate "C" as session_id, tenant collate "C" as tenant, status collate "C" as status, state collate "C" as state, agent collate "C" as agent, last_seq, header collate "C" as header, created_at, active_at, last_offset, turn_epoch, turn_agent collate "C" as turn_agent, log_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[]) as each_row (session_id, tenant, status, state, agent, last_seq, header, created_at, active_at, last_offset, turn_epoch, turn_agent, log_id)) fresh where
exists (select 1 from flotilla.log_watermark where log_id = $14 and flush_id = $15)
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent
where flotilla.session.last_offset < excluded.last_offset
-- values: ["{\"session-1\"}","{\"default\"}","{\"active\"}","{\"idle\"}","{\"helper\"}","{2}","{\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2}\"}","{1}","{2}","{8}","{null}","{null}","{1}",1,"flush-1"]

update flotilla.log_watermark set log_offset = $1, record_id = $2, chain = $3,
  flush_id = $4, moved_at = now_ms()
where log_id = $5 and incarnation = $6 and log_offset = $7
  and exists (select 1 from flotilla.log_place where place = 'nats')
returning log_id, incarnation, log_offset, record_id, chain
-- instead of returning:
select log_id, incarnation, log_offset, record_id, chain from flotilla.log_watermark where log_id = $1 and flush_id = $2
-- values: [8,"record-8","0123456789abcdef","flush-1",1,"first",7]

select session_id from flotilla.session where session_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (session_id, log_id)) ids where
    exists (select 1 from flotilla.log_watermark where log_id = $3 and flush_id = $4))) for update
-- values: ["{\"session-3\"}","{1}",1,"flush-1"]

  delete from flotilla.message
  where session_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (session_id, log_id)) ids where
exists (select 1 from flotilla.log_watermark where log_id = $3 and flush_id = $4))) and seq > coalesce((select max(at_seq) from flotilla.session_fork fork where fork.parent_id = flotilla.message.session_id), 0)
-- values: ["{\"session-3\"}","{1}",1,"flush-1"]

delete from flotilla.turn where session_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (session_id, log_id)) ids where
    exists (select 1 from flotilla.log_watermark where log_id = $3 and flush_id = $4)))
-- values: ["{\"session-3\"}","{1}",1,"flush-1"]

delete from flotilla.link where from_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (session_id, log_id)) ids where
    exists (select 1 from flotilla.log_watermark where log_id = $3 and flush_id = $4))) and what = 'session'
-- values: ["{\"session-3\"}","{1}",1,"flush-1"]

  update flotilla.file set unused_at = now_ms()
  where file_id = any(array(select file_id from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($2::text[], $3::bigint[]) as each_row (session_id, log_id)) ids where
exists (select 1 from flotilla.log_watermark where log_id = $4 and flush_id = $5)))))
-- values: ["session","{\"session-3\"}","{1}",1,"flush-1"]

delete from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($2::text[], $3::bigint[]) as each_row (session_id, log_id)) ids where
    exists (select 1 from flotilla.log_watermark where log_id = $4 and flush_id = $5)))
-- values: ["session","{\"session-3\"}","{1}",1,"flush-1"]

insert into flotilla.message (session_id, seq, role, author, message_id, client_id, body, at, kind, replaces) select session_id, seq, role, author, message_id, client_id, body, at, kind, replaces from (select session_id collate "C" as session_id, seq, role collate "C" as role, author collate "C" as author, message_id collate "C" as message_id, client_id collate "C" as client_id, body collate "C" as body, at, kind collate "C" as kind, replaces, log_id from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::text[], $10::bigint[], $11::bigint[]) as each_row (session_id, seq, role, author, message_id, client_id, body, at, kind, replaces, log_id)) fresh
where
exists (select 1 from flotilla.log_watermark where log_id = $12 and flush_id = $13)
-- values: ["{\"session-1\"}","{2}","{\"user\"}","{\"ada\"}","{\"message-2\"}","{\"client-2\"}","{\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\"}","{2}","{\"summary\"}","{1}","{1}",1,"flush-1"]

delete from flotilla.session_user
where session_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (session_id, log_id)) ids where
exists (select 1 from flotilla.log_watermark where log_id = $3 and flush_id = $4)))
  and not exists (select 1 from (select session_id collate "C" as session_id, user_id collate "C" as user_id, tenant collate "C" as tenant, log_id from unnest($5::text[], $6::text[], $7::text[], $8::bigint[]) as each_row (session_id, user_id, tenant, log_id)) member
    where member.session_id = flotilla.session_user.session_id and member.user_id = flotilla.session_user.user_id)
-- values: ["{\"session-1\"}","{1}",1,"flush-1","{\"session-1\"}","{\"ada\"}","{\"default\"}","{1}"]

insert into flotilla.session_user (session_id, user_id, tenant)
select session_id, user_id, tenant from (select session_id collate "C" as session_id, user_id collate "C" as user_id, tenant collate "C" as tenant, log_id from unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) as each_row (session_id, user_id, tenant, log_id)) member
where
exists (select 1 from flotilla.log_watermark where log_id = $5 and flush_id = $6)
on conflict (session_id, user_id) do nothing
-- values: ["{\"session-1\"}","{\"ada\"}","{\"default\"}","{1}",1,"flush-1"]

update flotilla.session_user set read_seq = fresh.seq from (select session_id collate "C" as session_id, user_id collate "C" as user_id, seq, log_id from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as each_row (session_id, user_id, seq, log_id)) fresh
where flotilla.session_user.session_id = fresh.session_id and flotilla.session_user.user_id = fresh.user_id
  and flotilla.session_user.read_seq < fresh.seq and
exists (select 1 from flotilla.log_watermark where log_id = $5 and flush_id = $6)
-- values: ["{\"session-1\"}","{\"ada\"}","{2}","{1}",1,"flush-1"]

delete from flotilla.turn_checkpoint
where session_id = any(array(select session_id from (select session_id collate "C" as session_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (session_id, log_id)) ids where
exists (select 1 from flotilla.log_watermark where log_id = $3 and flush_id = $4)))
  and epoch <= (select gone.epoch from (select session_id collate "C" as session_id, epoch, log_id from unnest($5::text[], $6::bigint[], $7::bigint[]) as each_row (session_id, epoch, log_id)) gone
    where gone.session_id = flotilla.turn_checkpoint.session_id)
-- values: ["{\"session-2\",\"session-3\"}","{1,1}",1,"flush-1","{\"session-2\",\"session-3\"}","{1,9007199254740991}","{1,1}"]

insert into flotilla.turn_checkpoint (session_id, epoch, attempt, body)
select session_id, epoch, attempt, body from (select session_id collate "C" as session_id, epoch, attempt, body collate "C" as body, log_id from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[]) as each_row (session_id, epoch, attempt, body, log_id)) fresh where
exists (select 1 from flotilla.log_watermark where log_id = $6 and flush_id = $7)
on conflict (session_id) do update
set epoch = excluded.epoch, attempt = excluded.attempt, body = excluded.body
where flotilla.turn_checkpoint.epoch < excluded.epoch
  or (flotilla.turn_checkpoint.epoch = excluded.epoch and flotilla.turn_checkpoint.attempt <= excluded.attempt)
-- values: ["{\"session-1\"}","{1}","{1}","{\"{}\"}","{1}",1,"flush-1"]

delete from flotilla.step_journal where ctid = any(array(
  select stored.ctid from (select owner_id collate "C" as owner_id, part collate "C" as part, log_id from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (owner_id, part, log_id)) gone
  join flotilla.step_journal stored on stored.owner_id = gone.owner_id and stored.part = gone.part
  where
exists (select 1 from flotilla.log_watermark where log_id = $4 and flush_id = $5)))
-- values: ["{\"session-2\"}","{\"1\"}","{1}",1,"flush-1"]

insert into flotilla.step_journal as stored
  (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select owner_id, part, key, seq, token, kind, input_hash, value, now_ms() - took_ms, now_ms()
from (select owner_id collate "C" as owner_id, part collate "C" as part, key collate "C" as key, seq, token, kind collate "C" as kind, input_hash collate "C" as input_hash, value collate "C" as value, took_ms, log_id from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::bigint[]) as each_row (owner_id, part, key, seq, token, kind, input_hash, value, took_ms, log_id)) fresh where
exists (select 1 from flotilla.log_watermark where log_id = $11 and flush_id = $12)
on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
-- values: ["{\"session-1\"}","{\"1\"}","{\"search\"}","{3}","{2}","{\"done\"}","{null}","{\"1\"}","{5}","{1}",1,"flush-1"]

delete from flotilla.step_journal where ctid = any(array(
  select inner_step.ctid from (select owner_id collate "C" as owner_id, part collate "C" as part, before_seq, low collate "C" as low, high collate "C" as high, log_id from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[]) as each_row (owner_id, part, before_seq, low, high, log_id)) given
  join flotilla.step_journal inner_step on inner_step.owner_id = given.owner_id
    and inner_step.part = given.part
    and inner_step.key >= given.low and inner_step.key < given.high
  where inner_step.seq < given.before_seq and
exists (select 1 from flotilla.log_watermark where log_id = $7 and flush_id = $8)))
-- values: ["{\"session-1\",\"session-1\"}","{\"1\",\"1\"}","{3,3}","{\"search/\",\"search@\"}","{\"search0\",\"searchA\"}","{1,1}",1,"flush-1"]

insert into flotilla.turn (session_id, epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at,
outcome, input_tokens, output_tokens, cached_tokens, model, cost_millionths) select session_id, epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at,
outcome, input_tokens, output_tokens, cached_tokens, model, cost_millionths from (select session_id collate "C" as session_id, epoch, attempt, agent collate "C" as agent, pod_id collate "C" as pod_id, began_at, first_chunk_at, ended_at, outcome collate "C" as outcome, input_tokens, output_tokens, cached_tokens, model collate "C" as model, cost_millionths, log_id from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::bigint[], $15::bigint[]) as each_row (session_id, epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at, outcome, input_tokens, output_tokens, cached_tokens, model, cost_millionths, log_id)) fresh
where
exists (select 1 from flotilla.log_watermark where log_id = $16 and flush_id = $17)
on conflict do nothing
-- values: ["{\"session-2\"}","{1}","{1}","{\"helper\"}","{\"pod-1\"}","{1}","{2}","{3}","{\"completed\"}","{10}","{2}","{4}","{\"small\"}","{500000}","{1}",1,"flush-1"]

insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
  filter, count, before, after, outcome, reason)
select id, now_ms(), actor, tenant, user_id, key_name, role, address, action, subject,
  filter, 1, before, after, 'done', reason
from (select id collate "C" as id, actor collate "C" as actor, tenant collate "C" as tenant, user_id collate "C" as user_id, key_name collate "C" as key_name, role collate "C" as role, address collate "C" as address, action collate "C" as action, subject collate "C" as subject, filter collate "C" as filter, before collate "C" as before, after collate "C" as after, reason collate "C" as reason, log_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[]) as each_row (id, actor, tenant, user_id, key_name, role, address, action, subject, filter, before, after, reason, log_id)) fresh where
exists (select 1 from flotilla.log_watermark where log_id = $15 and flush_id = $16)
on conflict (id) do nothing
-- values: ["{\"act-1\"}","{\"key/web\"}","{\"default\"}","{\"zoe\"}","{\"web\"}","{\"operator\"}","{\"10.0.0.1\"}","{\"tasks.cancel\"}","{\"task-1\"}","{null}","{\"{}\"}","{\"{}\"}","{null}","{1}",1,"flush-1"]

  select task.task_id from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (tenant, name, unique_key, task_id)) wanted join flotilla.task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  order by task.task_id for update of task
-- values: ["{\"default\"}","{\"mail\"}","{\"once\"}","{\"task-1\"}"]

insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  max_attempts, unique_key, trace, parked)
select task_id, tenant, name, payload, priority, now_ms() + delay_ms, now_ms(), now_ms(),
  max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh where fresh.task_id = any(array(select logged.task_id from (select task_id collate "C" as task_id, log_id from unnest($10::text[], $11::bigint[]) as each_row (task_id, log_id)) logged where
exists (select 1 from flotilla.log_watermark where log_id = $12 and flush_id = $13)))
on conflict do nothing
returning task_id
-- instead of returning:
select task_id from flotilla.task where task_id in (select task_id from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh)
-- values: ["{\"task-1\"}","{\"default\"}","{\"mail\"}","{\"{}\"}","{0}","{0}","{null}","{\"once\"}","{null}","{\"task-1\"}","{1}",1,"flush-1"]

insert into flotilla.task_alias (alias_id, task_id)
select fresh.task_id, holder.task_id
from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (tenant, name, unique_key, task_id)) fresh join flotilla.task holder on holder.tenant = fresh.tenant
  and holder.name = fresh.name and holder.unique_key = fresh.unique_key
where holder.task_id <> fresh.task_id and fresh.task_id = any(array(select logged.task_id from (select task_id collate "C" as task_id, log_id from unnest($5::text[], $6::bigint[]) as each_row (task_id, log_id)) logged where
exists (select 1 from flotilla.log_watermark where log_id = $7 and flush_id = $8)))
  and not exists (select 1 from flotilla.task own where own.task_id = fresh.task_id)
on conflict do nothing
-- values: ["{\"default\"}","{\"mail\"}","{\"once\"}","{\"task-1\"}","{\"task-1\"}","{1}",1,"flush-1"]

insert into flotilla.link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select from_id collate "C" as from_id, to_id collate "C" as to_id, what collate "C" as what from unnest($1::text[], $2::text[], $3::text[]) as each_row (from_id, to_id, what)) wanted
where to_id = (select task_id from flotilla.task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["{\"session-1\"}","{\"task-1\"}","{\"session\"}"]

insert into flotilla.session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, metadata)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, metadata
from (select session_id collate "C" as session_id, tenant collate "C" as tenant, status collate "C" as status, state collate "C" as state, agent collate "C" as agent, last_seq, header collate "C" as header, created_at, active_at, last_offset, turn_epoch, turn_agent collate "C" as turn_agent, metadata collate "C" as metadata, log_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::bigint[]) as each_row (session_id, tenant, status, state, agent, last_seq, header, created_at, active_at, last_offset, turn_epoch, turn_agent, metadata, log_id)) fresh where
exists (select 1 from flotilla.log_watermark where log_id = $15 and flush_id = $16)
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent , metadata = case when excluded.status = 'deleted' then null
else coalesce(excluded.metadata, flotilla.session.metadata) end
where flotilla.session.last_offset < excluded.last_offset
-- values: ["{\"session-1\"}","{\"default\"}","{\"active\"}","{\"idle\"}","{\"helper\"}","{2}","{\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2}\"}","{1}","{2}","{8}","{null}","{null}","{\"{}\"}","{1}",1,"flush-1"]

insert into flotilla.archive_aside
  (log_id, incarnation, log_offset, place, session_id, seq, body, reason)
select cast($1 as integer), $2, cast($3 as bigint),
  cast($4 as integer), $5, cast($6 as bigint), $7, $8
where
exists (select 1 from flotilla.log_watermark where log_id = $9 and flush_id = $10)
on conflict do nothing
-- values: [1,"first",8,0,"session-1",2,"{}","the value is too long",1,"flush-1"]

-- src/sessions/log/sql/archive.ts: storeAside
insert into flotilla.archive_aside
  (log_id, incarnation, log_offset, place, session_id, seq, body, reason)
select cast($1 as integer), $2, cast($3 as bigint),
  cast($4 as integer), $5, cast($6 as bigint), $7, $8
where 1 = 1
on conflict do nothing
-- values: [1,"first",8,0,"session-1",2,"{}","the value is too long"]

-- src/sessions/log/sql/archive.ts: probeEntry
select session_id, author, message_id, client_id, length(body) as chars from (select session_id collate "C" as session_id, author collate "C" as author, message_id collate "C" as message_id, client_id collate "C" as client_id, body collate "C" as body from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (session_id, author, message_id, client_id, body)) probe
-- values: ["{\"session-1\"}","{\"ada\"}","{\"message-2\"}","{\"client-2\"}","{\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\"}"]

-- src/sessions/log/sql/archive.ts: findSeqs
select message.session_id, message.seq from (select session_id collate "C" as session_id, seq from unnest($1::text[], $2::bigint[]) as each_row (session_id, seq)) wanted join flotilla.message message
  on message.session_id = wanted.session_id and message.seq = wanted.seq
-- values: ["{\"session-1\"}","{2}"]

-- src/sessions/log/sql/archive.ts: readLastIds
select seq, client_id from flotilla.message
where session_id = $1
order by seq desc limit cast($2 as integer)
-- values: ["session-1",4096]

-- src/sessions/log/sql/forks.ts: holdEntries
insert into flotilla.session_fork (session_id, parent_id, at_seq, segments)
select $1, parent.session_id, cast($2 as bigint), $3
from flotilla.session parent
where parent.session_id = $4 and parent.tenant = $5
  and parent.status <> 'deleted' and parent.last_seq >= $6
for key share
on conflict (session_id) do nothing
-- values: ["session-2",2,"[]","session-1","default",2]

select tenant from flotilla.file_count where tenant = $1 for update
-- values: ["default"]

insert into flotilla.file_reference (owner_kind, owner_id, hash, file_id, size, metadata, kept)
select 'session', $1, hash, file_id, size, metadata, 1
from flotilla.file_reference reference
where reference.owner_kind = $2 and reference.owner_id = $3 and exists (select 1 from flotilla.session_fork held where held.session_id = $4
  and held.parent_id = $5 and held.at_seq = $6)
  and not exists (select 1 from flotilla.session session
    where session.session_id = $7)
on conflict (owner_kind, owner_id, hash) do update set kept = 1
-- values: ["session-2","session","session-1","session-2","session-1",2,"session-2"]

update flotilla.migration set needs = $1
where id = $2 and needs < $3
-- values: [8,8,8]

-- src/sessions/log/sql/forks.ts: readFork
select fork.parent_id, fork.at_seq, fork.segments, session.header
from flotilla.session_fork fork left join flotilla.session session on session.session_id = fork.session_id
where fork.session_id = $1
-- values: ["session-2"]

-- src/sessions/log/sql/forks.ts: readForksOf
select fork.session_id, fork.at_seq, session.header, session.metadata
from flotilla.session_fork fork left join flotilla.session session on session.session_id = fork.session_id
where fork.parent_id = $1
  and (fork.at_seq, fork.session_id) > ($2, $3)
order by fork.at_seq, fork.session_id limit cast($4 as integer)
-- values: ["session-1",0,"",50]

-- src/sessions/log/sql/forks.ts: walkForks
select fork.session_id, fork.parent_id, fork.at_seq, fork.created_at, session.header,
  parent.tenant
from flotilla.session_fork fork
left join flotilla.session session on session.session_id = fork.session_id
left join flotilla.session parent on parent.session_id = fork.parent_id
where fork.session_id > $1
order by fork.session_id limit cast($2 as integer)
-- values: ["",500]

-- src/sessions/log/sql/forks.ts: readSummaryUpTo
select seq, kind, role, author, message_id, replaces, body, at from flotilla.message
where session_id = $1 and seq <= $2 and seq > $3
  and kind = 'summary'
order by seq desc limit cast($4 as integer)
-- values: ["session-1",20,-9980,1]

-- src/sessions/log/sql/forks.ts: letGo
select session_id from flotilla.session where session_id = $1 for update
-- values: ["session-1"]

delete from flotilla.session_fork where session_id = $1 and not exists (select 1 from flotilla.session_fork child where child.parent_id = $2)
-- values: ["session-2","session-2"]

delete from flotilla.message
where session_id = $1 and seq > coalesce((select max(at_seq) from flotilla.session_fork fork where fork.parent_id = $2), 0)
  and exists (select 1 from flotilla.session parent
    where parent.session_id = $3 and parent.status = 'deleted')
-- values: ["session-1","session-1","session-1"]

select session_id from flotilla.session where session_id = $1 for update
-- values: ["session-1"]

delete from flotilla.session_fork where session_id = $1
-- values: ["session-2"]

  update flotilla.file set unused_at = now_ms()
  where file_id = any(array(select file_id from flotilla.file_reference where owner_kind = 'session' and owner_id = $1

and exists (select 1 from flotilla.file other
  where other.file_id = flotilla.file_reference.file_id and other.tenant <> (select tenant from flotilla.session own where own.session_id = $2))))
-- values: ["session-2","session-2"]

delete from flotilla.file_reference where owner_kind = 'session' and owner_id = $1

    and exists (select 1 from flotilla.file other
      where other.file_id = flotilla.file_reference.file_id and other.tenant <> (select tenant from flotilla.session own where own.session_id = $2))
-- values: ["session-2","session-2"]

delete from flotilla.message
where session_id = $1 and seq > coalesce((select max(at_seq) from flotilla.session_fork fork where fork.parent_id = $2), 0)
  and exists (select 1 from flotilla.session parent
    where parent.session_id = $3 and parent.status = 'deleted')
-- values: ["session-1","session-1","session-1"]

-- src/sessions/log/sql/heads.ts: readHeads
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla.session_log order by log_id

-- src/sessions/log/sql/heads.ts: insertHeads
select pg_advisory_xact_lock(hashtext('flotilla migrations'))

insert into flotilla.session_log (log_id, incarnation, record_id, log_offset)
select log_id, incarnation, '',
  (select coalesce(max(last_offset), 0) from flotilla.session)
from (select log_id, incarnation collate "C" as incarnation from unnest($1::bigint[], $2::text[]) as each_row (log_id, incarnation)) fresh
where not exists (select 1 from flotilla.session_log)
  and exists (select 1 from flotilla.log_place where place = 'sql')
-- values: ["{0}","{\"first\"}"]

-- src/sessions/log/sql/heads.ts: readPlace
select place, cluster_id from flotilla.log_place limit cast($1 as integer)
-- values: [1]

-- src/sessions/log/sql/heads.ts: leaveForStreams
select pg_advisory_xact_lock(hashtext('flotilla migrations'))

update flotilla.log_place set place = 'nats'
where place = 'sql' and not exists (select 1 from flotilla.session_log)

update flotilla.migration set needs = $1
where id = $2 and exists (select 1 from flotilla.log_place where place = 'nats')
-- values: [7,7]

-- src/sessions/log/sql/heads.ts: moveHeads
update flotilla.session_log set log_offset = from_offset + 1, record_id = to_record from (select to_log, in_incarnation collate "C" as in_incarnation, in_term, from_offset, from_record collate "C" as from_record, to_record collate "C" as to_record from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (to_log, in_incarnation, in_term, from_offset, from_record, to_record)) moves
where log_id = to_log and incarnation = in_incarnation and term = in_term
  and ((log_offset = from_offset and record_id = from_record)
    or (log_offset = from_offset + 1 and record_id = to_record))
  and exists (select 1 from flotilla.log_place where place = 'sql') and flotilla.session_log.log_id = any(array(
select head.log_id from flotilla.session_log head join (select log_id, term from unnest($7::bigint[], $8::bigint[]) as each_row (log_id, term)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id for update))
returning log_id, incarnation, term, owner, host, log_offset, record_id, beat
-- instead of returning:
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla.session_log join (select to_log, in_incarnation collate "C" as in_incarnation, in_term, from_offset, from_record collate "C" as from_record, to_record collate "C" as to_record from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (to_log, in_incarnation, in_term, from_offset, from_record, to_record)) moves
  on log_id = to_log and term = in_term and log_offset = from_offset + 1
    and record_id = to_record
-- values: ["{1}","{\"first\"}","{2}","{7}","{\"record-7\"}","{\"record-8\"}","{1}","{2}"]

-- src/sessions/log/sql/heads.ts: takeHead
update flotilla.session_log
set term = $1, owner = $2, host = $3, beat = beat + 1,
  log_offset = $4, record_id = $5
where log_id = $6 and incarnation = $7
  and ((term = $8 and log_offset = $9 and record_id = $10)
    or (term = $11 and log_offset = $12 and record_id = $13
      and owner = $14))
  and exists (select 1 from flotilla.log_place where place = 'sql')
returning log_id, incarnation, term, owner, host, log_offset, record_id, beat
-- instead of returning:
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla.session_log
where log_id = $1 and term = $2 and log_offset = $3
  and record_id = $4 and owner = $5
-- values: [3,"pod-2",null,8,"record-8",1,"first",2,7,"record-7",3,8,"record-8","pod-2"]

-- src/sessions/log/sql/heads.ts: beatHeads
update flotilla.session_log set beat = beat + 1 from (select log_id, term from unnest($1::bigint[], $2::bigint[]) as each_row (log_id, term)) own
where flotilla.session_log.log_id = own.log_id and flotilla.session_log.term = own.term and owner = $3
  and exists (select 1 from flotilla.log_place where place = 'sql') and flotilla.session_log.log_id = any(array(
select head.log_id from flotilla.session_log head join (select log_id, term from unnest($4::bigint[], $5::bigint[]) as each_row (log_id, term)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id for update))
returning flotilla.session_log.log_id
-- instead of returning:
select head.log_id from flotilla.session_log head
join (select log_id, term from unnest($1::bigint[], $2::bigint[]) as each_row (log_id, term)) own on own.log_id = head.log_id and own.term = head.term
where head.owner = $3
-- values: ["{1}","{2}","pod-1","{1}","{2}"]

-- src/sessions/log/sql/heads.ts: releaseHeads
update flotilla.session_log set owner = null, host = null from (select log_id, term from unnest($1::bigint[], $2::bigint[]) as each_row (log_id, term)) own
where flotilla.session_log.log_id = own.log_id and flotilla.session_log.term = own.term and owner = $3
  and flotilla.session_log.log_id = any(array(
select head.log_id from flotilla.session_log head join (select log_id, term from unnest($4::bigint[], $5::bigint[]) as each_row (log_id, term)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id for update))
-- values: ["{1}","{2}","pod-1","{1}","{2}"]

-- src/sessions/log/sql/moves.ts: leaveDatabase
select pg_advisory_xact_lock(hashtext('flotilla migrations'))

select log_id from flotilla.session_log order by log_id for update

  insert into flotilla.log_watermark as known
    (log_id, incarnation, log_offset, record_id, chain, flush_id)
  select log_id, incarnation, log_offset, '', chain, '' from (select log_id, incarnation collate "C" as incarnation, term, log_offset, chain collate "C" as chain from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[]) as each_row (log_id, incarnation, term, log_offset, chain)) fresh
  where exists (select 1 from flotilla.log_place where place = $6) and 1 = 1
and (select count(*) from flotilla.session_log) = 1
and (
select count(*) from flotilla.session_log head join (select log_id, incarnation collate "C" as incarnation, term, log_offset, chain collate "C" as chain from unnest($7::bigint[], $8::text[], $9::bigint[], $10::bigint[], $11::text[]) as each_row (log_id, incarnation, term, log_offset, chain)) fresh
  on fresh.log_id = head.log_id and fresh.incarnation = head.incarnation
    and head.log_offset <= fresh.log_offset and head.term <= fresh.term) = 1
  on conflict (log_id) do update
  set incarnation = excluded.incarnation, log_offset = excluded.log_offset,
    record_id = excluded.record_id, chain = excluded.chain, flush_id = excluded.flush_id
-- values: ["{1}","{\"first\"}","{2}","{7}","{\"00\"}","sql","{1}","{\"first\"}","{2}","{7}","{\"00\"}"]

update flotilla.log_place set place = 'nats' where exists (select 1 from flotilla.log_place where place = $1) and 1 = 1
    and (select count(*) from flotilla.session_log) = 1
    and (
    select count(*) from flotilla.session_log head join (select log_id, incarnation collate "C" as incarnation, term, log_offset, chain collate "C" as chain from unnest($2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::text[]) as each_row (log_id, incarnation, term, log_offset, chain)) fresh
      on fresh.log_id = head.log_id and fresh.incarnation = head.incarnation
        and head.log_offset <= fresh.log_offset and head.term <= fresh.term) = 1
-- values: ["sql","{1}","{\"first\"}","{2}","{7}","{\"00\"}"]

delete from flotilla.session_log where exists (select 1 from flotilla.log_place where place = $1) and 1 = 1
-- values: ["nats"]

update flotilla.migration set needs = $1
where id = $2 and exists (select 1 from flotilla.log_place where place = $3)
-- values: [7,7,"nats"]

-- src/sessions/log/sql/moves.ts: returnToDatabase
select pg_advisory_xact_lock(hashtext('flotilla migrations'))

select log_id from flotilla.log_watermark order by log_id for update

  insert into flotilla.session_log (log_id, incarnation, term, log_offset, record_id)
  select log_id, incarnation, term, log_offset, record_id from (select log_id, incarnation collate "C" as incarnation, term, log_offset, record_id collate "C" as record_id, archived from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[]) as each_row (log_id, incarnation, term, log_offset, record_id, archived)) fresh
  where exists (select 1 from flotilla.log_place where place = $7) and 1 = 1 and (
select count(*) from flotilla.log_watermark known join (select log_id, incarnation collate "C" as incarnation, term, log_offset, record_id collate "C" as record_id, archived from unnest($8::bigint[], $9::text[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[]) as each_row (log_id, incarnation, term, log_offset, record_id, archived)) fresh
  on fresh.log_id = known.log_id and fresh.incarnation = known.incarnation
    and fresh.archived = known.log_offset) = 1
  on conflict do nothing
-- values: ["{1}","{\"first\"}","{2}","{7}","{\"record-7\"}","{6}","nats","{1}","{\"first\"}","{2}","{7}","{\"record-7\"}","{6}"]

update flotilla.log_place set place = 'sql'
where place = 'nats' and 1 = 1
  and (select count(*) from flotilla.session_log) = 1

delete from flotilla.log_watermark where exists (select 1 from flotilla.log_place where place = $1) and 1 = 1
-- values: ["sql"]

-- src/sessions/log/sql/reading.ts: findIds
select message.session_id, message.client_id, message.seq
from (select session_id collate "C" as session_id, client_id collate "C" as client_id from unnest($1::text[], $2::text[]) as each_row (session_id, client_id)) wanted join flotilla.message message
  on message.session_id = wanted.session_id and message.client_id = wanted.client_id
-- values: ["{\"session-1\"}","{\"client-2\"}"]

-- src/sessions/log/sql/reading.ts: readHeader
select header from flotilla.session where session_id = $1
-- values: ["session-1"]

-- src/sessions/log/sql/reading.ts: readBusy
select header from flotilla.session where log_id = $1 and state <> 'idle'
-- values: [1]

-- src/sessions/log/sql/reading.ts: readEntries
select seq, kind, role, author, message_id, replaces, body, at from flotilla.message where session_id = $1 and seq > $2  order by seq limit cast($3 as integer)
-- values: ["session-1",1,10]

  with listed as (
    select seq as place, 200 + coalesce(octet_length(body), 0) + coalesce(octet_length(author), 0) + coalesce(octet_length(message_id), 0) as bytes from flotilla.message where session_id = $1 and seq > $2
    order by seq asc limit cast($3 as integer)),
  measured as (
    select place, row_number() over (order by place asc) as nth,
      sum(bytes) over (order by place asc) as up_to
    from listed)
select seq, kind, role, author, message_id, replaces, body, at from flotilla.message
where session_id = $4 and seq = any(array(select place from measured
  where nth = 1 or (nth <= $5 and up_to <= $6))) order by seq
-- values: ["session-1",1,11,"session-1",10,1000]

-- src/sessions/log/sql/reading.ts: readTail
select seq, kind, role, author, message_id, replaces, body, at from flotilla.message
    where session_id = $1 and seq > $2 and seq <= $3 order by seq desc limit cast($4 as integer)
-- values: ["session-1",1,9,10]

  with listed as (
    select seq as place, 200 + coalesce(octet_length(body), 0) + coalesce(octet_length(author), 0) + coalesce(octet_length(message_id), 0) as bytes from flotilla.message
where session_id = $1 and seq > $2 and seq <= $3
    order by seq desc limit cast($4 as integer)),
  measured as (
    select place, row_number() over (order by place desc) as nth,
      sum(bytes) over (order by place desc) as up_to
    from listed)
select seq, kind, role, author, message_id, replaces, body, at from flotilla.message
where session_id = $5 and seq = any(array(select place from measured
  where nth = 1 or (nth <= $6 and up_to <= $7))) order by seq desc
-- values: ["session-1",1,9,11,"session-1",10,1000]

-- src/sessions/log/sql/reading.ts: readNewest
select seq, kind, role, author, message_id, replaces, body, at from flotilla.message
where session_id = $1 and message_id = $2
order by seq desc limit cast($3 as integer)
-- values: ["session-1","message-2",1]

-- src/sessions/log/sql/reading.ts: readTurns
select epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at, outcome, input_tokens,
  output_tokens, cached_tokens, model, cost_millionths
from flotilla.turn where session_id = $1
order by epoch desc, attempt desc limit cast($2 as integer)
-- values: ["session-1",10]

select epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at, outcome, input_tokens,
  output_tokens, cached_tokens, model, cost_millionths
from flotilla.turn where session_id = $1 and (epoch, attempt) < ($2, $3)
order by epoch desc, attempt desc limit cast($4 as integer)
-- values: ["session-1",3,1,10]

-- src/sessions/log/sql/reading.ts: readCheckpoint
select epoch, attempt, body, header
from flotilla.turn_checkpoint checkpoint join flotilla.session session
  on session.session_id = checkpoint.session_id
where checkpoint.session_id = $1
-- values: ["session-1"]

-- src/sessions/agents/sql.ts: readAgents
select tenant, name, settings, secrets, revision, created_at, last_update from flotilla.agent agent
where tenant = $1
  and agent.name = any(array(select asked.name from (select name collate "C" as name from unnest($2::text[]) as each_row (name)) asked))
-- values: ["default","{\"helper\"}"]

-- src/sessions/agents/sql.ts: countPlainSecrets
select count(*) as agents from (
  select 1 from flotilla.agent
  where substr(secrets, 1, 1) <> $1 and secrets not in ('{}', $2)
  limit cast($3 as integer)) counted
-- values: ["~","{\"agent\":{\"headers\":{},\"signing\":[]},\"compaction\":{\"headers\":{},\"signing\":[]}}",10000]

-- src/sessions/agents/sql.ts: storedByNames
select tenant, name from flotilla.agent agent
where agent.name = any(array(select asked.name from (select name collate "C" as name from unnest($1::text[]) as each_row (name)) asked))
order by tenant, name limit cast($2 as integer)
-- values: ["{\"helper\"}",10]

-- src/sessions/agents/sql.ts: listAgents
  with listed as (
    select name as place, 500 + coalesce(octet_length(settings), 0) + coalesce(octet_length(secrets), 0) as bytes from flotilla.agent where tenant = $1 and name > $2
    order by name asc limit cast($3 as integer)),
  measured as (
    select place, row_number() over (order by place asc) as nth,
      sum(bytes) over (order by place asc) as up_to
    from listed)
select tenant, name, settings, secrets, revision, created_at, last_update, (select count(*) from listed) as found from flotilla.agent
where tenant = $4 and name = any(array(select place from measured
  where nth = 1 or (nth <= $5 and up_to <= $6))) order by name
-- values: ["default","",11,"default",10,1048576]

-- src/sessions/agents/sql.ts: createAgent
insert into flotilla.agent (tenant, name, settings, secrets, revision)
select $1, $2, $3, $4, 0
where (select count(*) from (
  select 1 from flotilla.agent where tenant = $5 limit cast($6 as integer)) counted) < $7
on conflict (tenant, name) do nothing
-- values: ["default","helper","{}","{}","default",100,100]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.agent where tenant = $18 and name = $19 and revision = 0
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,null,"{\"revision\":1}","audit.full","done",null,"click-1","default","helper"]

update flotilla.agent set revision = 1 where tenant = $1 and name = $2 and revision = 0
-- values: ["default","helper"]

-- src/sessions/agents/sql.ts: replaceAgent
select name from flotilla.agent where tenant = $1 and name = $2 and revision = $3 for update
-- values: ["default","helper",1]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.agent where tenant = $18 and name = $19 and revision = $20
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"revision\":1}","{\"revision\":2}","audit.full","done",null,"click-1","default","helper",1]

update flotilla.agent
set settings = $1, secrets = $2, revision = revision + 1, last_update = now_ms()
where tenant = $3 and name = $4 and revision = $5
-- values: ["{}","{}","default","helper",1]

-- src/sessions/agents/sql.ts: removeAgent
select name from flotilla.agent where tenant = $1 and name = $2 for update
-- values: ["default","helper"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), '{"revision":' || cast(revision as text) || '}', $12,
    case when exists (
select 1 from flotilla.audit past where past.action = $13 and past.outcome = 'full') then null else $14 end, $15, $16
  from flotilla.agent where tenant = $17 and name = $18
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,null,"audit.full","done",null,"click-1","default","helper"]

delete from flotilla.agent where tenant = $1 and name = $2
-- values: ["default","helper"]
