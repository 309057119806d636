-- src/sessions/sql.ts: readSessions
select session_id, header, metadata from flotilla_session session
where session.session_id in (select asked.session_id from (select value ->> 0 as session_id from jsonb_each(?)) asked)
  and tenant = ? and status <> 'deleted'
-- values: ["[[\"session-1\"]]","default"]

select session_id, header, metadata from flotilla_session session
where session.session_id in (select asked.session_id from (select value ->> 0 as session_id from jsonb_each(?)) asked)
  and tenant = ? and status <> 'deleted' and agent = ? and status = ? and state = ? and exists (select 1 from flotilla_session_user member
where member.session_id = session.session_id and member.user_id = ?)
-- values: ["[[\"session-1\"]]","default","helper","active","idle","ada"]

-- src/sessions/sql.ts: readOwner
select log.log_id, log.term, log.owner from flotilla_session session
join flotilla_session_log log on log.log_id = session.log_id
where session.session_id = ? and session.tenant = ?
  and session.status <> 'deleted'
-- values: ["session-1","default"]

-- src/sessions/sql.ts: readLogOf
select log_id from flotilla_session
where session_id = ? and tenant = ? and status <> 'deleted'
-- values: ["session-1","default"]

-- src/sessions/sql.ts: countSessions
select (
select count(*) from (select status from flotilla_session limit cast(? as integer)) looked where status <> 'deleted') as total,
  (
select count(*) from (select status from flotilla_session where state <> 'idle' order by log_id limit cast(? as integer)) looked where status <> 'deleted') as busy
-- values: [10000,10000]

-- src/sessions/sql.ts: countSessionsOf
select count(*) as total from (select 1 from flotilla_session_user member
  where member.tenant = ? and member.user_id = ? limit cast(? as integer)) theirs
-- values: ["default","ada",2001]

-- src/sessions/sql.ts: walkSessionsBelow
select session_id, active_at, case when status <> 'deleted' and exists (select 1 from flotilla_session_user member
where member.session_id = session.session_id and member.user_id = ?) then 200 + coalesce(octet_length(header), 0) + coalesce(octet_length(metadata), 0) end as bytes
from flotilla_session session
where tenant = ?
  and (active_at, session_id) < (?, ?)
order by active_at desc, session_id desc limit cast(? as integer)
-- values: ["ada","default",9,"session-9",10]

-- src/sessions/sql.ts: sessionsBelow
select session_id, active_at, case when status <> 'deleted' and agent = ? and status = ? and state = ?  then 200 + coalesce(octet_length(header), 0) + coalesce(octet_length(metadata), 0) end as bytes
from flotilla_session session
where tenant = ?
  and (active_at, session_id) < (?, ?)
order by active_at desc, session_id desc limit cast(? as integer)
-- values: ["helper","active","idle","default",9,"session-9",10]

select session_id, active_at, case when status <> 'deleted' then 200 + coalesce(octet_length(header), 0) + coalesce(octet_length(metadata), 0) end as bytes from flotilla_session session
where session.session_id in (
select member.session_id from flotilla_session_user member
where member.tenant = ? and member.user_id = ?)
  and (active_at, session_id) < (?, ?)
order by active_at desc, session_id desc limit cast(? as integer)
-- values: ["default","ada",9,"session-9",10]

select session_id, active_at, case when status <> 'deleted' and case when json_valid(metadata) then json_type(metadata, ?) in ('integer', 'real') and json_extract(metadata, ?) is json_extract(?, '$') else false end  then 200 + coalesce(octet_length(header), 0) + coalesce(octet_length(metadata), 0) end as bytes
from flotilla_session session
where tenant = ?
  and (active_at, session_id) < (?, ?)
order by active_at desc, session_id desc limit cast(? as integer)
-- values: ["$.\"ticket\".\"id\"","$.\"ticket\".\"id\"","7","default",9,"session-9",10]

select session_id, active_at, case when status <> 'deleted' then 200 + coalesce(octet_length(header), 0) + coalesce(octet_length(metadata), 0) end as bytes from flotilla_session session
where session.session_id in (select asked.session_id from (select value ->> 0 as session_id from jsonb_each(?)) asked)
  and tenant = ?
  and (active_at, session_id) < (?, ?)
order by active_at desc, session_id desc limit cast(? as integer)
-- values: ["[[\"session-1\"]]","default",9,"session-9",10]

-- src/sessions/sql.ts: busySessionsBelow
select session_id, active_at, 200 + coalesce(octet_length(header), 0) + coalesce(octet_length(metadata), 0) as bytes from flotilla_session session
where state <> 'idle' and log_id >= 0 and (tenant || '') = ?
  and (active_at + 0, session_id || '') < (?, ?)
  and status <> 'deleted'
  and exists (select 1 from flotilla_session_user member
where member.session_id = session.session_id and member.user_id = ?)
order by active_at + 0 desc, (session_id || '') desc limit cast(? as integer)
-- values: ["default",9,"session-9","ada",10]

-- src/sessions/sql.ts: sessionsAwaiting
select session_id, tenant, agent, header, approval_since, approval_until from flotilla_session
where approval_until is not null  and (approval_until, session_id) > (?, ?)
  and status = 'active' and approval_seq = last_seq
order by approval_until, session_id limit cast(? as integer)
-- values: [5,"session-1",51]

select session_id, tenant, agent, header, approval_since, approval_until from flotilla_session
where approval_since is not null and approval_until is null and tenant = ? and (approval_since, session_id) > (?, ?)
  and status = 'active' and approval_seq = last_seq
order by approval_since, session_id limit cast(? as integer)
-- values: ["acme",5,"session-1",51]

-- src/sessions/sql.ts: readInboxRows
select shown.session_id, shown.header, (select read_seq from flotilla_session_user member
where member.session_id = shown.session_id and member.user_id = ?) as read_seq,
  (select count(*) from (
    select kind, author, replaces from flotilla_message message
    where message.session_id = shown.session_id and message.seq > (select read_seq from flotilla_session_user member
where member.session_id = shown.session_id and member.user_id = ?)
    order by message.seq desc limit cast(? as integer)) recent
  where kind = 'message' and replaces is null and author <> ?) as unread
from (
  select session_id, header, active_at from flotilla_session session
  where session.session_id in (
    select member.session_id from flotilla_session_user member where member.tenant = ? and member.user_id = ?
    order by member.session_id desc limit cast(? as integer))
    and tenant = ? and status <> 'deleted'
  order by active_at desc, session_id desc limit cast(? as integer)) shown
order by shown.active_at desc, shown.session_id desc
-- values: ["ada","ada",50,"ada","default","ada",100,"default",10]

select shown.session_id, shown.header, (select read_seq from flotilla_session_user member
where member.session_id = shown.session_id and member.user_id = ?) as read_seq,
  (select count(*) from (
    select kind, author, replaces from flotilla_message message
    where message.session_id = shown.session_id and message.seq > (select read_seq from flotilla_session_user member
where member.session_id = shown.session_id and member.user_id = ?)
    order by message.seq desc limit cast(? as integer)) recent
  where kind = 'message' and replaces is null and author <> ?) as unread
from (
  select session_id, header, active_at from flotilla_session session
  where session.session_id in (
    select named.session_id from (select value ->> 0 as session_id from jsonb_each(?)) named where exists (select 1 from flotilla_session_user member
      where member.session_id = named.session_id and member.tenant = ? and member.user_id = ?))
    and tenant = ? and status <> 'deleted'
  order by active_at desc, session_id desc limit cast(? as integer)) shown
order by shown.active_at desc, shown.session_id desc
-- values: ["ada","ada",50,"ada","[[\"session-1\"]]","default","ada","default",10]


-- src/sessions/log/sql/records.ts: storeRecords
update flotilla_session_log set log_offset = from_offset + 1, record_id = to_record from (select value ->> 0 as to_log, value ->> 1 as in_incarnation, value ->> 2 as in_term, value ->> 3 as from_offset, value ->> 4 as from_record, value ->> 5 as to_record from jsonb_each(?)) moves
where log_id = to_log and incarnation = in_incarnation and term = in_term
  and ((log_offset = from_offset and record_id = from_record)
    or (log_offset = from_offset + 1 and record_id = to_record))
  and exists (select 1 from flotilla_log_place where place = 'sql') and flotilla_session_log.log_id in (
select head.log_id from flotilla_session_log head join (select value ->> 0 as log_id, value ->> 1 as term from jsonb_each(?)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id )
returning log_id, incarnation, term, owner, host, log_offset, record_id, beat
-- instead of returning:
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla_session_log join (select value ->> 0 as to_log, value ->> 1 as in_incarnation, value ->> 2 as in_term, value ->> 3 as from_offset, value ->> 4 as from_record, value ->> 5 as to_record from jsonb_each(?)) moves
  on log_id = to_log and term = in_term and log_offset = from_offset + 1
    and record_id = to_record
-- values: ["[[1,\"first\",2,7,\"record-7\",\"record-8\"]]","[[1,2]]"]

insert into flotilla_message (session_id, seq, role, author, message_id, client_id, body, at) select session_id, seq, role, author, message_id, client_id, body, at from (select value ->> 0 as session_id, value ->> 1 as seq, value ->> 2 as role, value ->> 3 as author, value ->> 4 as message_id, value ->> 5 as client_id, value ->> 6 as body, value ->> 7 as at, value ->> 8 as log_id from jsonb_each(?)) fresh
where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
-- values: ["[[\"session-1\",2,\"user\",\"ada\",\"message-2\",\"client-2\",\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\",2,1]]","[[1,\"record-8\",8,\"session-1\"]]"]

insert into flotilla_session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id
from (select value ->> 0 as session_id, value ->> 1 as tenant, value ->> 2 as status, value ->> 3 as state, value ->> 4 as agent, value ->> 5 as last_seq, value ->> 6 as header, value ->> 7 as created_at, value ->> 8 as active_at, value ->> 9 as last_offset, value ->> 10 as turn_epoch, value ->> 11 as turn_agent, value ->> 12 as log_id from jsonb_each(?)) fresh where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent
where flotilla_session.last_offset < excluded.last_offset
-- values: ["[[\"session-1\",\"default\",\"active\",\"idle\",\"helper\",2,\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2}\",1,2,8,null,null,1]]","[[1,\"record-8\",8,\"session-1\"]]"]

update flotilla_session_log set log_offset = from_offset + 1, record_id = to_record from (select value ->> 0 as to_log, value ->> 1 as in_incarnation, value ->> 2 as in_term, value ->> 3 as from_offset, value ->> 4 as from_record, value ->> 5 as to_record from jsonb_each(?)) moves
where log_id = to_log and incarnation = in_incarnation and term = in_term
  and ((log_offset = from_offset and record_id = from_record)
    or (log_offset = from_offset + 1 and record_id = to_record))
  and exists (select 1 from flotilla_log_place where place = 'sql') and flotilla_session_log.log_id in (
select head.log_id from flotilla_session_log head join (select value ->> 0 as log_id, value ->> 1 as term from jsonb_each(?)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id )
returning log_id, incarnation, term, owner, host, log_offset, record_id, beat
-- instead of returning:
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla_session_log join (select value ->> 0 as to_log, value ->> 1 as in_incarnation, value ->> 2 as in_term, value ->> 3 as from_offset, value ->> 4 as from_record, value ->> 5 as to_record from jsonb_each(?)) moves
  on log_id = to_log and term = in_term and log_offset = from_offset + 1
    and record_id = to_record
-- values: ["[[1,\"first\",2,7,\"record-7\",\"record-8\"]]","[[1,2]]"]

select session_id from flotilla_session where session_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where ids.log_id in (
    select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
    join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
    where coalesce(
      (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset))
-- values: ["[[\"session-3\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

  delete from flotilla_message
  where session_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where ids.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)) and seq > coalesce((select max(at_seq) from flotilla_session_fork fork where fork.parent_id = flotilla_message.session_id), 0)
-- values: ["[[\"session-3\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

delete from flotilla_turn where session_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where ids.log_id in (
    select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
    join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
    where coalesce(
      (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset))
-- values: ["[[\"session-3\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

delete from flotilla_link where from_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where ids.log_id in (
    select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
    join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
    where coalesce(
      (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)) and what = 'session'
-- values: ["[[\"session-3\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

  update flotilla_file set unused_at = now_ms()
  where file_id in (select file_id from flotilla_file_reference where owner_kind = ? and owner_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where ids.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)))
-- values: ["session","[[\"session-3\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

delete from flotilla_file_reference where owner_kind = ? and owner_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where ids.log_id in (
    select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
    join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
    where coalesce(
      (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset))
-- values: ["session","[[\"session-3\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

insert into flotilla_message (session_id, seq, role, author, message_id, client_id, body, at, kind, replaces) select session_id, seq, role, author, message_id, client_id, body, at, kind, replaces from (select value ->> 0 as session_id, value ->> 1 as seq, value ->> 2 as role, value ->> 3 as author, value ->> 4 as message_id, value ->> 5 as client_id, value ->> 6 as body, value ->> 7 as at, value ->> 8 as kind, value ->> 9 as replaces, value ->> 10 as log_id from jsonb_each(?)) fresh
where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
-- values: ["[[\"session-1\",2,\"user\",\"ada\",\"message-2\",\"client-2\",\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\",2,\"summary\",1,1]]","[[1,\"record-8\",8,\"session-1\"]]"]

delete from flotilla_session_user
where session_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where ids.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset))
  and not exists (select 1 from (select value ->> 0 as session_id, value ->> 1 as user_id, value ->> 2 as tenant, value ->> 3 as log_id from jsonb_each(?)) member
    where member.session_id = flotilla_session_user.session_id and member.user_id = flotilla_session_user.user_id)
-- values: ["[[\"session-1\",1]]","[[1,\"record-8\",8,\"session-1\"]]","[[\"session-1\",\"ada\",\"default\",1]]"]

insert into flotilla_session_user (session_id, user_id, tenant)
select session_id, user_id, tenant from (select value ->> 0 as session_id, value ->> 1 as user_id, value ->> 2 as tenant, value ->> 3 as log_id from jsonb_each(?)) member
where member.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
on conflict (session_id, user_id) do nothing
-- values: ["[[\"session-1\",\"ada\",\"default\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

update flotilla_session_user set read_seq = fresh.seq from (select value ->> 0 as session_id, value ->> 1 as user_id, value ->> 2 as seq, value ->> 3 as log_id from jsonb_each(?)) fresh
where flotilla_session_user.session_id = fresh.session_id and flotilla_session_user.user_id = fresh.user_id
  and flotilla_session_user.read_seq < fresh.seq and fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
-- values: ["[[\"session-1\",\"ada\",2,1]]","[[1,\"record-8\",8,\"session-1\"]]"]

delete from flotilla_turn_checkpoint
where session_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where ids.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset))
  and epoch <= (select gone.epoch from (select value ->> 0 as session_id, value ->> 1 as epoch, value ->> 2 as log_id from jsonb_each(?)) gone
    where gone.session_id = flotilla_turn_checkpoint.session_id)
-- values: ["[[\"session-2\",1],[\"session-3\",1]]","[[1,\"record-8\",8,\"session-1\"]]","[[\"session-2\",1,1],[\"session-3\",9007199254740991,1]]"]

insert into flotilla_turn_checkpoint (session_id, epoch, attempt, body)
select session_id, epoch, attempt, body from (select value ->> 0 as session_id, value ->> 1 as epoch, value ->> 2 as attempt, value ->> 3 as body, value ->> 4 as log_id from jsonb_each(?)) fresh where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
on conflict (session_id) do update
set epoch = excluded.epoch, attempt = excluded.attempt, body = excluded.body
where flotilla_turn_checkpoint.epoch < excluded.epoch
  or (flotilla_turn_checkpoint.epoch = excluded.epoch and flotilla_turn_checkpoint.attempt <= excluded.attempt)
-- values: ["[[\"session-1\",1,1,\"{}\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

delete from flotilla_step_journal where rowid in (
  select stored.rowid from (select value ->> 0 as owner_id, value ->> 1 as part, value ->> 2 as log_id from jsonb_each(?)) gone
  join flotilla_step_journal stored on stored.owner_id = gone.owner_id and stored.part = gone.part
  where gone.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset))
-- values: ["[[\"session-2\",\"1\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

insert into flotilla_step_journal as stored
  (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select owner_id, part, key, seq, token, kind, input_hash, value, now_ms() - took_ms, now_ms()
from (select value ->> 0 as owner_id, value ->> 1 as part, value ->> 2 as key, value ->> 3 as seq, value ->> 4 as token, value ->> 5 as kind, value ->> 6 as input_hash, value ->> 7 as value, value ->> 8 as took_ms, value ->> 9 as log_id from jsonb_each(?)) fresh where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
-- values: ["[[\"session-1\",\"1\",\"search\",3,2,\"done\",null,\"1\",5,1]]","[[1,\"record-8\",8,\"session-1\"]]"]

delete from flotilla_step_journal where rowid in (
  select inner_step.rowid from (select value ->> 0 as owner_id, value ->> 1 as part, value ->> 2 as before_seq, value ->> 3 as low, value ->> 4 as high, value ->> 5 as log_id from jsonb_each(?)) given
  join flotilla_step_journal inner_step on inner_step.owner_id = given.owner_id
    and inner_step.part = given.part
    and inner_step.key >= given.low and inner_step.key < given.high
  where inner_step.seq < given.before_seq and given.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset))
-- values: ["[[\"session-1\",\"1\",3,\"search/\",\"search0\",1],[\"session-1\",\"1\",3,\"search@\",\"searchA\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

insert into flotilla_turn (session_id, epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at,
outcome, input_tokens, output_tokens, cached_tokens, model, cost_millionths) select session_id, epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at,
outcome, input_tokens, output_tokens, cached_tokens, model, cost_millionths from (select value ->> 0 as session_id, value ->> 1 as epoch, value ->> 2 as attempt, value ->> 3 as agent, value ->> 4 as pod_id, value ->> 5 as began_at, value ->> 6 as first_chunk_at, value ->> 7 as ended_at, value ->> 8 as outcome, value ->> 9 as input_tokens, value ->> 10 as output_tokens, value ->> 11 as cached_tokens, value ->> 12 as model, value ->> 13 as cost_millionths, value ->> 14 as log_id from jsonb_each(?)) fresh
where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
on conflict do nothing
-- values: ["[[\"session-2\",1,1,\"helper\",\"pod-1\",1,2,3,\"completed\",10,2,4,\"small\",500000,1]]","[[1,\"record-8\",8,\"session-1\"]]"]

insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
  filter, count, before, after, outcome, reason)
select id, now_ms(), actor, tenant, user_id, key_name, role, address, action, subject,
  filter, 1, before, after, 'done', reason
from (select value ->> 0 as id, value ->> 1 as actor, value ->> 2 as tenant, value ->> 3 as user_id, value ->> 4 as key_name, value ->> 5 as role, value ->> 6 as address, value ->> 7 as action, value ->> 8 as subject, value ->> 9 as filter, value ->> 10 as before, value ->> 11 as after, value ->> 12 as reason, value ->> 13 as log_id from jsonb_each(?)) fresh where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
on conflict (id) do nothing
-- values: ["[[\"act-1\",\"key/web\",\"default\",\"zoe\",\"web\",\"operator\",\"10.0.0.1\",\"tasks.cancel\",\"task-1\",null,\"{}\",\"{}\",null,1]]","[[1,\"record-8\",8,\"session-1\"]]"]

  select task.task_id from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id from jsonb_each(?)) wanted join flotilla_task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  order by task.task_id
-- values: ["[[\"default\",\"mail\",\"once\",\"task-1\"]]"]

insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  max_attempts, unique_key, trace, parked)
select task_id, tenant, name, payload, priority, now_ms() + delay_ms, now_ms(), now_ms(),
  max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh where fresh.task_id in (select logged.task_id from (select value ->> 0 as task_id, value ->> 1 as log_id from jsonb_each(?)) logged where logged.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset))
on conflict do nothing
returning task_id
-- instead of returning:
select task_id from flotilla_task where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh)
-- values: ["[[\"task-1\",\"default\",\"mail\",\"{}\",0,0,null,\"once\",null]]","[[\"task-1\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

insert into flotilla_task_alias (alias_id, task_id)
select fresh.task_id, holder.task_id
from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id from jsonb_each(?)) fresh join flotilla_task holder on holder.tenant = fresh.tenant
  and holder.name = fresh.name and holder.unique_key = fresh.unique_key
where holder.task_id <> fresh.task_id and fresh.task_id in (select logged.task_id from (select value ->> 0 as task_id, value ->> 1 as log_id from jsonb_each(?)) logged where logged.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset))
  and not exists (select 1 from flotilla_task own where own.task_id = fresh.task_id)
on conflict do nothing
-- values: ["[[\"default\",\"mail\",\"once\",\"task-1\"]]","[[\"task-1\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

insert into flotilla_link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select value ->> 0 as from_id, value ->> 1 as to_id, value ->> 2 as what from jsonb_each(?)) wanted
where to_id = (select task_id from flotilla_task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["[[\"session-1\",\"task-1\",\"session\"]]"]

insert into flotilla_session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, metadata)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, metadata
from (select value ->> 0 as session_id, value ->> 1 as tenant, value ->> 2 as status, value ->> 3 as state, value ->> 4 as agent, value ->> 5 as last_seq, value ->> 6 as header, value ->> 7 as created_at, value ->> 8 as active_at, value ->> 9 as last_offset, value ->> 10 as turn_epoch, value ->> 11 as turn_agent, value ->> 12 as metadata, value ->> 13 as log_id from jsonb_each(?)) fresh where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent , metadata = case when excluded.status = 'deleted' then null
else coalesce(excluded.metadata, flotilla_session.metadata) end
where flotilla_session.last_offset < excluded.last_offset
-- values: ["[[\"session-1\",\"default\",\"active\",\"idle\",\"helper\",2,\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2}\",1,2,8,null,null,\"{}\",1]]","[[1,\"record-8\",8,\"session-1\"]]"]

update flotilla_session_log set log_offset = from_offset + 1, record_id = to_record from (select value ->> 0 as to_log, value ->> 1 as in_incarnation, value ->> 2 as in_term, value ->> 3 as from_offset, value ->> 4 as from_record, value ->> 5 as to_record from jsonb_each(?)) moves
where log_id = to_log and incarnation = in_incarnation and term = in_term
  and ((log_offset = from_offset and record_id = from_record)
    or (log_offset = from_offset + 1 and record_id = to_record))
  and exists (select 1 from flotilla_log_place where place = 'sql') and flotilla_session_log.log_id in (
select head.log_id from flotilla_session_log head join (select value ->> 0 as log_id, value ->> 1 as term from jsonb_each(?)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id )
returning log_id, incarnation, term, owner, host, log_offset, record_id, beat
-- instead of returning:
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla_session_log join (select value ->> 0 as to_log, value ->> 1 as in_incarnation, value ->> 2 as in_term, value ->> 3 as from_offset, value ->> 4 as from_record, value ->> 5 as to_record from jsonb_each(?)) moves
  on log_id = to_log and term = in_term and log_offset = from_offset + 1
    and record_id = to_record
-- values: ["[[1,\"first\",2,7,\"record-7\",\"record-8\"]]","[[1,2]]"]

insert into flotilla_message (session_id, seq, role, author, message_id, client_id, body, at) select session_id, seq, role, author, message_id, client_id, body, at from (select value ->> 0 as session_id, value ->> 1 as seq, value ->> 2 as role, value ->> 3 as author, value ->> 4 as message_id, value ->> 5 as client_id, value ->> 6 as body, value ->> 7 as at, value ->> 8 as log_id from jsonb_each(?)) fresh
where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
-- values: ["[[\"session-1\",2,\"user\",\"ada\",\"message-2\",\"client-2\",\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\",2,1]]","[[1,\"record-8\",8,\"session-1\"]]"]

insert into flotilla_tenant_count as counted (tenant, log_id, sessions, turns, bytes)
select tenant, cast(? as integer), sum(sessions), sum(turns), sum(bytes)
from (select value ->> 0 as tenant, value ->> 1 as sessions, value ->> 2 as turns, value ->> 3 as bytes, value ->> 4 as log_id from jsonb_each(?)) fresh where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
group by tenant order by tenant
on conflict (tenant, log_id) do update
set sessions = counted.sessions + excluded.sessions, turns = counted.turns + excluded.turns,
  bytes = counted.bytes + excluded.bytes
-- values: [1,"[[\"default\",0,1,200,1]]","[[1,\"record-8\",8,\"session-1\"]]"]

insert into flotilla_session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, bytes)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, bytes
from (select value ->> 0 as session_id, value ->> 1 as tenant, value ->> 2 as status, value ->> 3 as state, value ->> 4 as agent, value ->> 5 as last_seq, value ->> 6 as header, value ->> 7 as created_at, value ->> 8 as active_at, value ->> 9 as last_offset, value ->> 10 as turn_epoch, value ->> 11 as turn_agent, value ->> 12 as bytes, value ->> 13 as log_id from jsonb_each(?)) fresh where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent , bytes = excluded.bytes
where flotilla_session.last_offset < excluded.last_offset
-- values: ["[[\"session-1\",\"default\",\"active\",\"idle\",\"helper\",2,\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2}\",1,2,8,null,null,0,1]]","[[1,\"record-8\",8,\"session-1\"]]"]

update flotilla_session_log set log_offset = from_offset + 1, record_id = to_record from (select value ->> 0 as to_log, value ->> 1 as in_incarnation, value ->> 2 as in_term, value ->> 3 as from_offset, value ->> 4 as from_record, value ->> 5 as to_record from jsonb_each(?)) moves
where log_id = to_log and incarnation = in_incarnation and term = in_term
  and ((log_offset = from_offset and record_id = from_record)
    or (log_offset = from_offset + 1 and record_id = to_record))
  and exists (select 1 from flotilla_log_place where place = 'sql') and flotilla_session_log.log_id in (
select head.log_id from flotilla_session_log head join (select value ->> 0 as log_id, value ->> 1 as term from jsonb_each(?)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id )
returning log_id, incarnation, term, owner, host, log_offset, record_id, beat
-- instead of returning:
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla_session_log join (select value ->> 0 as to_log, value ->> 1 as in_incarnation, value ->> 2 as in_term, value ->> 3 as from_offset, value ->> 4 as from_record, value ->> 5 as to_record from jsonb_each(?)) moves
  on log_id = to_log and term = in_term and log_offset = from_offset + 1
    and record_id = to_record
-- values: ["[[1,\"first\",2,7,\"record-7\",\"record-8\"]]","[[1,2]]"]

insert into flotilla_message (session_id, seq, role, author, message_id, client_id, body, at) select session_id, seq, role, author, message_id, client_id, body, at from (select value ->> 0 as session_id, value ->> 1 as seq, value ->> 2 as role, value ->> 3 as author, value ->> 4 as message_id, value ->> 5 as client_id, value ->> 6 as body, value ->> 7 as at, value ->> 8 as log_id from jsonb_each(?)) fresh
where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
-- values: ["[[\"session-1\",2,\"user\",\"ada\",\"message-2\",\"client-2\",\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\",2,1]]","[[1,\"record-8\",8,\"session-1\"]]"]

insert into flotilla_session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, approval_since, approval_until, approval_tool, approval_seq)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, approval_since, approval_until, approval_tool, approval_seq
from (select value ->> 0 as session_id, value ->> 1 as tenant, value ->> 2 as status, value ->> 3 as state, value ->> 4 as agent, value ->> 5 as last_seq, value ->> 6 as header, value ->> 7 as created_at, value ->> 8 as active_at, value ->> 9 as last_offset, value ->> 10 as turn_epoch, value ->> 11 as turn_agent, value ->> 12 as approval_since, value ->> 13 as approval_until, value ->> 14 as approval_tool, value ->> 15 as approval_seq, value ->> 16 as log_id from jsonb_each(?)) fresh where fresh.log_id in (
select to_log from (select value ->> 0 as to_log, value ->> 1 as to_record, value ->> 2 as to_offset, value ->> 3 as first_session from jsonb_each(?)) placed
join flotilla_session_log head on head.log_id = to_log and head.record_id = to_record
where coalesce(
  (select last_offset from flotilla_session where session_id = first_session), 0) < to_offset)
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent , approval_since = excluded.approval_since,
  approval_until = excluded.approval_until, approval_tool = excluded.approval_tool,
  approval_seq = excluded.approval_seq
where flotilla_session.last_offset < excluded.last_offset
-- values: ["[[\"session-1\",\"default\",\"active\",\"idle\",\"helper\",2,\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2,\\\"approvals\\\":{\\\"seq\\\":2,\\\"calls\\\":[]}}\",1,2,8,null,null,null,null,null,null,1]]","[[1,\"record-8\",8,\"session-1\"]]"]

-- src/sessions/log/sql/records.ts: storeChanges
insert into flotilla_message (session_id, seq, role, author, message_id, client_id, body, at) select session_id, seq, role, author, message_id, client_id, body, at from (select value ->> 0 as session_id, value ->> 1 as seq, value ->> 2 as role, value ->> 3 as author, value ->> 4 as message_id, value ->> 5 as client_id, value ->> 6 as body, value ->> 7 as at, value ->> 8 as log_id from jsonb_each(?)) fresh
where true
-- values: ["[[\"session-1\",2,\"user\",\"ada\",\"message-2\",\"client-2\",\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\",2,1]]"]

insert into flotilla_session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id
from (select value ->> 0 as session_id, value ->> 1 as tenant, value ->> 2 as status, value ->> 3 as state, value ->> 4 as agent, value ->> 5 as last_seq, value ->> 6 as header, value ->> 7 as created_at, value ->> 8 as active_at, value ->> 9 as last_offset, value ->> 10 as turn_epoch, value ->> 11 as turn_agent, value ->> 12 as log_id from jsonb_each(?)) fresh where true
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent
where flotilla_session.last_offset < excluded.last_offset
-- values: ["[[\"session-1\",\"default\",\"active\",\"idle\",\"helper\",2,\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2}\",1,2,8,null,null,1]]"]

-- src/sessions/log/sql/archive.ts: readAllWatermarks
select log_id, incarnation, log_offset, record_id, chain from flotilla_log_watermark order by log_id

-- src/sessions/log/sql/archive.ts: countAside
select count(*) as items, max(at) as last_at from flotilla_archive_aside

-- src/sessions/log/sql/archive.ts: readWatermark
select log_id, incarnation, log_offset, record_id, chain from flotilla_log_watermark where log_id = ?
-- values: [1]

-- src/sessions/log/sql/archive.ts: readFirstWatermark
select log_id, incarnation, log_offset, record_id, chain from flotilla_log_watermark order by log_id limit cast(? as integer)
-- values: [1]

-- src/sessions/log/sql/archive.ts: insertWatermark
insert into flotilla_log_watermark (log_id, incarnation, log_offset, record_id, chain, flush_id)
select cast(? as integer), ?, cast(? as bigint), ?,
  ?, ''
where exists (select 1 from flotilla_log_place where place = 'nats')
  and not exists (select 1 from flotilla_session where log_id = ? and last_offset > ?)
on conflict (log_id) do nothing
-- values: [1,"first",8,"record-8","0123456789abcdef",1,8]

-- src/sessions/log/sql/archive.ts: moveToLife
update flotilla_log_watermark set incarnation = ?, log_offset = ?, chain = ?
where log_id = ? and incarnation = ? and log_offset = ?
-- values: ["next",8,"0123456789abcdef",1,"first",8]

-- src/sessions/log/sql/archive.ts: storeFlush
update flotilla_log_watermark set log_offset = ?, record_id = ?, chain = ?,
  flush_id = ?, moved_at = now_ms()
where log_id = ? and incarnation = ? and log_offset = ?
  and exists (select 1 from flotilla_log_place where place = 'nats')
returning log_id, incarnation, log_offset, record_id, chain
-- instead of returning:
select log_id, incarnation, log_offset, record_id, chain from flotilla_log_watermark where log_id = ? and flush_id = ?
-- values: [8,"record-8","0123456789abcdef","flush-1",1,"first",7]

insert into flotilla_message (session_id, seq, role, author, message_id, client_id, body, at) select session_id, seq, role, author, message_id, client_id, body, at from (select value ->> 0 as session_id, value ->> 1 as seq, value ->> 2 as role, value ->> 3 as author, value ->> 4 as message_id, value ->> 5 as client_id, value ->> 6 as body, value ->> 7 as at, value ->> 8 as log_id from jsonb_each(?)) fresh
where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)
-- values: ["[[\"session-1\",2,\"user\",\"ada\",\"message-2\",\"client-2\",\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\",2,1]]",1,"flush-1"]

insert into flotilla_session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id
from (select value ->> 0 as session_id, value ->> 1 as tenant, value ->> 2 as status, value ->> 3 as state, value ->> 4 as agent, value ->> 5 as last_seq, value ->> 6 as header, value ->> 7 as created_at, value ->> 8 as active_at, value ->> 9 as last_offset, value ->> 10 as turn_epoch, value ->> 11 as turn_agent, value ->> 12 as log_id from jsonb_each(?)) fresh where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent
where flotilla_session.last_offset < excluded.last_offset
-- values: ["[[\"session-1\",\"default\",\"active\",\"idle\",\"helper\",2,\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2}\",1,2,8,null,null,1]]",1,"flush-1"]

update flotilla_log_watermark set log_offset = ?, record_id = ?, chain = ?,
  flush_id = ?, moved_at = now_ms()
where log_id = ? and incarnation = ? and log_offset = ?
  and exists (select 1 from flotilla_log_place where place = 'nats')
returning log_id, incarnation, log_offset, record_id, chain
-- instead of returning:
select log_id, incarnation, log_offset, record_id, chain from flotilla_log_watermark where log_id = ? and flush_id = ?
-- values: [8,"record-8","0123456789abcdef","flush-1",1,"first",7]

select session_id from flotilla_session where session_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where
    exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?))
-- values: ["[[\"session-3\",1]]",1,"flush-1"]

  delete from flotilla_message
  where session_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)) and seq > coalesce((select max(at_seq) from flotilla_session_fork fork where fork.parent_id = flotilla_message.session_id), 0)
-- values: ["[[\"session-3\",1]]",1,"flush-1"]

delete from flotilla_turn where session_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where
    exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?))
-- values: ["[[\"session-3\",1]]",1,"flush-1"]

delete from flotilla_link where from_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where
    exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)) and what = 'session'
-- values: ["[[\"session-3\",1]]",1,"flush-1"]

  update flotilla_file set unused_at = now_ms()
  where file_id in (select file_id from flotilla_file_reference where owner_kind = ? and owner_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)))
-- values: ["session","[[\"session-3\",1]]",1,"flush-1"]

delete from flotilla_file_reference where owner_kind = ? and owner_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where
    exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?))
-- values: ["session","[[\"session-3\",1]]",1,"flush-1"]

insert into flotilla_message (session_id, seq, role, author, message_id, client_id, body, at, kind, replaces) select session_id, seq, role, author, message_id, client_id, body, at, kind, replaces from (select value ->> 0 as session_id, value ->> 1 as seq, value ->> 2 as role, value ->> 3 as author, value ->> 4 as message_id, value ->> 5 as client_id, value ->> 6 as body, value ->> 7 as at, value ->> 8 as kind, value ->> 9 as replaces, value ->> 10 as log_id from jsonb_each(?)) fresh
where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)
-- values: ["[[\"session-1\",2,\"user\",\"ada\",\"message-2\",\"client-2\",\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\",2,\"summary\",1,1]]",1,"flush-1"]

delete from flotilla_session_user
where session_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?))
  and not exists (select 1 from (select value ->> 0 as session_id, value ->> 1 as user_id, value ->> 2 as tenant, value ->> 3 as log_id from jsonb_each(?)) member
    where member.session_id = flotilla_session_user.session_id and member.user_id = flotilla_session_user.user_id)
-- values: ["[[\"session-1\",1]]",1,"flush-1","[[\"session-1\",\"ada\",\"default\",1]]"]

insert into flotilla_session_user (session_id, user_id, tenant)
select session_id, user_id, tenant from (select value ->> 0 as session_id, value ->> 1 as user_id, value ->> 2 as tenant, value ->> 3 as log_id from jsonb_each(?)) member
where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)
on conflict (session_id, user_id) do nothing
-- values: ["[[\"session-1\",\"ada\",\"default\",1]]",1,"flush-1"]

update flotilla_session_user set read_seq = fresh.seq from (select value ->> 0 as session_id, value ->> 1 as user_id, value ->> 2 as seq, value ->> 3 as log_id from jsonb_each(?)) fresh
where flotilla_session_user.session_id = fresh.session_id and flotilla_session_user.user_id = fresh.user_id
  and flotilla_session_user.read_seq < fresh.seq and
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)
-- values: ["[[\"session-1\",\"ada\",2,1]]",1,"flush-1"]

delete from flotilla_turn_checkpoint
where session_id in (select session_id from (select value ->> 0 as session_id, value ->> 1 as log_id from jsonb_each(?)) ids where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?))
  and epoch <= (select gone.epoch from (select value ->> 0 as session_id, value ->> 1 as epoch, value ->> 2 as log_id from jsonb_each(?)) gone
    where gone.session_id = flotilla_turn_checkpoint.session_id)
-- values: ["[[\"session-2\",1],[\"session-3\",1]]",1,"flush-1","[[\"session-2\",1,1],[\"session-3\",9007199254740991,1]]"]

insert into flotilla_turn_checkpoint (session_id, epoch, attempt, body)
select session_id, epoch, attempt, body from (select value ->> 0 as session_id, value ->> 1 as epoch, value ->> 2 as attempt, value ->> 3 as body, value ->> 4 as log_id from jsonb_each(?)) fresh where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)
on conflict (session_id) do update
set epoch = excluded.epoch, attempt = excluded.attempt, body = excluded.body
where flotilla_turn_checkpoint.epoch < excluded.epoch
  or (flotilla_turn_checkpoint.epoch = excluded.epoch and flotilla_turn_checkpoint.attempt <= excluded.attempt)
-- values: ["[[\"session-1\",1,1,\"{}\",1]]",1,"flush-1"]

delete from flotilla_step_journal where rowid in (
  select stored.rowid from (select value ->> 0 as owner_id, value ->> 1 as part, value ->> 2 as log_id from jsonb_each(?)) gone
  join flotilla_step_journal stored on stored.owner_id = gone.owner_id and stored.part = gone.part
  where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?))
-- values: ["[[\"session-2\",\"1\",1]]",1,"flush-1"]

insert into flotilla_step_journal as stored
  (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select owner_id, part, key, seq, token, kind, input_hash, value, now_ms() - took_ms, now_ms()
from (select value ->> 0 as owner_id, value ->> 1 as part, value ->> 2 as key, value ->> 3 as seq, value ->> 4 as token, value ->> 5 as kind, value ->> 6 as input_hash, value ->> 7 as value, value ->> 8 as took_ms, value ->> 9 as log_id from jsonb_each(?)) fresh where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)
on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
-- values: ["[[\"session-1\",\"1\",\"search\",3,2,\"done\",null,\"1\",5,1]]",1,"flush-1"]

delete from flotilla_step_journal where rowid in (
  select inner_step.rowid from (select value ->> 0 as owner_id, value ->> 1 as part, value ->> 2 as before_seq, value ->> 3 as low, value ->> 4 as high, value ->> 5 as log_id from jsonb_each(?)) given
  join flotilla_step_journal inner_step on inner_step.owner_id = given.owner_id
    and inner_step.part = given.part
    and inner_step.key >= given.low and inner_step.key < given.high
  where inner_step.seq < given.before_seq and
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?))
-- values: ["[[\"session-1\",\"1\",3,\"search/\",\"search0\",1],[\"session-1\",\"1\",3,\"search@\",\"searchA\",1]]",1,"flush-1"]

insert into flotilla_turn (session_id, epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at,
outcome, input_tokens, output_tokens, cached_tokens, model, cost_millionths) select session_id, epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at,
outcome, input_tokens, output_tokens, cached_tokens, model, cost_millionths from (select value ->> 0 as session_id, value ->> 1 as epoch, value ->> 2 as attempt, value ->> 3 as agent, value ->> 4 as pod_id, value ->> 5 as began_at, value ->> 6 as first_chunk_at, value ->> 7 as ended_at, value ->> 8 as outcome, value ->> 9 as input_tokens, value ->> 10 as output_tokens, value ->> 11 as cached_tokens, value ->> 12 as model, value ->> 13 as cost_millionths, value ->> 14 as log_id from jsonb_each(?)) fresh
where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)
on conflict do nothing
-- values: ["[[\"session-2\",1,1,\"helper\",\"pod-1\",1,2,3,\"completed\",10,2,4,\"small\",500000,1]]",1,"flush-1"]

insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
  filter, count, before, after, outcome, reason)
select id, now_ms(), actor, tenant, user_id, key_name, role, address, action, subject,
  filter, 1, before, after, 'done', reason
from (select value ->> 0 as id, value ->> 1 as actor, value ->> 2 as tenant, value ->> 3 as user_id, value ->> 4 as key_name, value ->> 5 as role, value ->> 6 as address, value ->> 7 as action, value ->> 8 as subject, value ->> 9 as filter, value ->> 10 as before, value ->> 11 as after, value ->> 12 as reason, value ->> 13 as log_id from jsonb_each(?)) fresh where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)
on conflict (id) do nothing
-- values: ["[[\"act-1\",\"key/web\",\"default\",\"zoe\",\"web\",\"operator\",\"10.0.0.1\",\"tasks.cancel\",\"task-1\",null,\"{}\",\"{}\",null,1]]",1,"flush-1"]

  select task.task_id from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id from jsonb_each(?)) wanted join flotilla_task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  order by task.task_id
-- values: ["[[\"default\",\"mail\",\"once\",\"task-1\"]]"]

insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  max_attempts, unique_key, trace, parked)
select task_id, tenant, name, payload, priority, now_ms() + delay_ms, now_ms(), now_ms(),
  max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh where fresh.task_id in (select logged.task_id from (select value ->> 0 as task_id, value ->> 1 as log_id from jsonb_each(?)) logged where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?))
on conflict do nothing
returning task_id
-- instead of returning:
select task_id from flotilla_task where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh)
-- values: ["[[\"task-1\",\"default\",\"mail\",\"{}\",0,0,null,\"once\",null]]","[[\"task-1\",1]]",1,"flush-1"]

insert into flotilla_task_alias (alias_id, task_id)
select fresh.task_id, holder.task_id
from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id from jsonb_each(?)) fresh join flotilla_task holder on holder.tenant = fresh.tenant
  and holder.name = fresh.name and holder.unique_key = fresh.unique_key
where holder.task_id <> fresh.task_id and fresh.task_id in (select logged.task_id from (select value ->> 0 as task_id, value ->> 1 as log_id from jsonb_each(?)) logged where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?))
  and not exists (select 1 from flotilla_task own where own.task_id = fresh.task_id)
on conflict do nothing
-- values: ["[[\"default\",\"mail\",\"once\",\"task-1\"]]","[[\"task-1\",1]]",1,"flush-1"]

insert into flotilla_link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select value ->> 0 as from_id, value ->> 1 as to_id, value ->> 2 as what from jsonb_each(?)) wanted
where to_id = (select task_id from flotilla_task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["[[\"session-1\",\"task-1\",\"session\"]]"]

insert into flotilla_session (
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, metadata)
select
session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
last_offset, turn_epoch, turn_agent, log_id, metadata
from (select value ->> 0 as session_id, value ->> 1 as tenant, value ->> 2 as status, value ->> 3 as state, value ->> 4 as agent, value ->> 5 as last_seq, value ->> 6 as header, value ->> 7 as created_at, value ->> 8 as active_at, value ->> 9 as last_offset, value ->> 10 as turn_epoch, value ->> 11 as turn_agent, value ->> 12 as metadata, value ->> 13 as log_id from jsonb_each(?)) fresh where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)
on conflict (session_id) do update
set status = excluded.status, state = excluded.state, agent = excluded.agent,
  last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
  last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
  turn_agent = excluded.turn_agent , metadata = case when excluded.status = 'deleted' then null
else coalesce(excluded.metadata, flotilla_session.metadata) end
where flotilla_session.last_offset < excluded.last_offset
-- values: ["[[\"session-1\",\"default\",\"active\",\"idle\",\"helper\",2,\"{\\\"sessionId\\\":\\\"session-1\\\",\\\"tenant\\\":\\\"default\\\",\\\"agents\\\":[\\\"helper\\\"],\\\"users\\\":[\\\"ada\\\"],\\\"status\\\":\\\"active\\\",\\\"lastSeq\\\":2,\\\"epoch\\\":1,\\\"work\\\":null,\\\"pending\\\":[],\\\"summarySeq\\\":0,\\\"compactedSeq\\\":0,\\\"tokens\\\":5,\\\"compactionFailures\\\":0,\\\"failedAtTokens\\\":0,\\\"needsCompaction\\\":false,\\\"metadataVersion\\\":0,\\\"preview\\\":\\\"hello\\\",\\\"previewAuthor\\\":\\\"ada\\\",\\\"createdAtMs\\\":1,\\\"activeAtMs\\\":2}\",1,2,8,null,null,\"{}\",1]]",1,"flush-1"]

insert into flotilla_archive_aside
  (log_id, incarnation, log_offset, place, session_id, seq, body, reason)
select cast(? as integer), ?, cast(? as bigint),
  cast(? as integer), ?, cast(? as bigint), ?, ?
where
exists (select 1 from flotilla_log_watermark where log_id = ? and flush_id = ?)
on conflict do nothing
-- values: [1,"first",8,0,"session-1",2,"{}","the value is too long",1,"flush-1"]

-- src/sessions/log/sql/archive.ts: storeAside
insert into flotilla_archive_aside
  (log_id, incarnation, log_offset, place, session_id, seq, body, reason)
select cast(? as integer), ?, cast(? as bigint),
  cast(? as integer), ?, cast(? as bigint), ?, ?
where 1 = 1
on conflict do nothing
-- values: [1,"first",8,0,"session-1",2,"{}","the value is too long"]

-- src/sessions/log/sql/archive.ts: probeEntry
select session_id, author, message_id, client_id, length(body) as chars from (select value ->> 0 as session_id, value ->> 1 as author, value ->> 2 as message_id, value ->> 3 as client_id, value ->> 4 as body from jsonb_each(?)) probe
-- values: ["[[\"session-1\",\"ada\",\"message-2\",\"client-2\",\"{\\\"tokens\\\":5,\\\"parts\\\":[]}\"]]"]

-- src/sessions/log/sql/archive.ts: findSeqs
select message.session_id, message.seq from (select value ->> 0 as session_id, value ->> 1 as seq from jsonb_each(?)) wanted join flotilla_message message
  on message.session_id = wanted.session_id and message.seq = wanted.seq
-- values: ["[[\"session-1\",2]]"]

-- src/sessions/log/sql/archive.ts: readLastIds
select seq, client_id from flotilla_message
where session_id = ?
order by seq desc limit cast(? as integer)
-- values: ["session-1",4096]

-- src/sessions/log/sql/forks.ts: holdEntries
insert into flotilla_session_fork (session_id, parent_id, at_seq, segments)
select ?, parent.session_id, cast(? as bigint), ?
from flotilla_session parent
where parent.session_id = ? and parent.tenant = ?
  and parent.status <> 'deleted' and parent.last_seq >= ?

on conflict (session_id) do nothing
-- values: ["session-2",2,"[]","session-1","default",2]

select tenant from flotilla_file_count where tenant = ?
-- values: ["default"]

insert into flotilla_file_reference (owner_kind, owner_id, hash, file_id, size, metadata, kept)
select 'session', ?, hash, file_id, size, metadata, 1
from flotilla_file_reference reference
where reference.owner_kind = ? and reference.owner_id = ? and exists (select 1 from flotilla_session_fork held where held.session_id = ?
  and held.parent_id = ? and held.at_seq = ?)
  and not exists (select 1 from flotilla_session session
    where session.session_id = ?)
on conflict (owner_kind, owner_id, hash) do update set kept = 1
-- values: ["session-2","session","session-1","session-2","session-1",2,"session-2"]

update flotilla_migration set needs = ?
where id = ? and needs < ?
-- values: [8,8,8]

-- src/sessions/log/sql/forks.ts: readFork
select fork.parent_id, fork.at_seq, fork.segments, session.header
from flotilla_session_fork fork left join flotilla_session session on session.session_id = fork.session_id
where fork.session_id = ?
-- values: ["session-2"]

-- src/sessions/log/sql/forks.ts: readForksOf
select fork.session_id, fork.at_seq, session.header, session.metadata
from flotilla_session_fork fork left join flotilla_session session on session.session_id = fork.session_id
where fork.parent_id = ?
  and (fork.at_seq, fork.session_id) > (?, ?)
order by fork.at_seq, fork.session_id limit cast(? as integer)
-- values: ["session-1",0,"",50]

-- src/sessions/log/sql/forks.ts: walkForks
select fork.session_id, fork.parent_id, fork.at_seq, fork.created_at, session.header,
  parent.tenant
from flotilla_session_fork fork
left join flotilla_session session on session.session_id = fork.session_id
left join flotilla_session parent on parent.session_id = fork.parent_id
where fork.session_id > ?
order by fork.session_id limit cast(? as integer)
-- values: ["",500]

-- src/sessions/log/sql/forks.ts: readSummaryUpTo
select seq, kind, role, author, message_id, replaces, body, at from flotilla_message
where session_id = ? and seq <= ? and seq > ?
  and kind = 'summary'
order by seq desc limit cast(? as integer)
-- values: ["session-1",20,-9980,1]

-- src/sessions/log/sql/forks.ts: letGo
select session_id from flotilla_session where session_id = ?
-- values: ["session-1"]

delete from flotilla_session_fork where session_id = ? and not exists (select 1 from flotilla_session_fork child where child.parent_id = ?)
-- values: ["session-2","session-2"]

delete from flotilla_message
where session_id = ? and seq > coalesce((select max(at_seq) from flotilla_session_fork fork where fork.parent_id = ?), 0)
  and exists (select 1 from flotilla_session parent
    where parent.session_id = ? and parent.status = 'deleted')
-- values: ["session-1","session-1","session-1"]

select session_id from flotilla_session where session_id = ?
-- values: ["session-1"]

delete from flotilla_session_fork where session_id = ?
-- values: ["session-2"]

  update flotilla_file set unused_at = now_ms()
  where file_id in (select file_id from flotilla_file_reference where owner_kind = 'session' and owner_id = ?

and exists (select 1 from flotilla_file other
  where other.file_id = flotilla_file_reference.file_id and other.tenant <> (select tenant from flotilla_session own where own.session_id = ?)))
-- values: ["session-2","session-2"]

delete from flotilla_file_reference where owner_kind = 'session' and owner_id = ?

    and exists (select 1 from flotilla_file other
      where other.file_id = flotilla_file_reference.file_id and other.tenant <> (select tenant from flotilla_session own where own.session_id = ?))
-- values: ["session-2","session-2"]

delete from flotilla_message
where session_id = ? and seq > coalesce((select max(at_seq) from flotilla_session_fork fork where fork.parent_id = ?), 0)
  and exists (select 1 from flotilla_session parent
    where parent.session_id = ? and parent.status = 'deleted')
-- values: ["session-1","session-1","session-1"]

-- src/sessions/log/sql/heads.ts: readHeads
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla_session_log order by log_id

-- src/sessions/log/sql/heads.ts: insertHeads
select 1

insert into flotilla_session_log (log_id, incarnation, record_id, log_offset)
select log_id, incarnation, '',
  (select coalesce(max(last_offset), 0) from flotilla_session)
from (select value ->> 0 as log_id, value ->> 1 as incarnation from jsonb_each(?)) fresh
where not exists (select 1 from flotilla_session_log)
  and exists (select 1 from flotilla_log_place where place = 'sql')
-- values: ["[[0,\"first\"]]"]

-- src/sessions/log/sql/heads.ts: readPlace
select place, cluster_id from flotilla_log_place limit cast(? as integer)
-- values: [1]

-- src/sessions/log/sql/heads.ts: leaveForStreams
select 1

update flotilla_log_place set place = 'nats'
where place = 'sql' and not exists (select 1 from flotilla_session_log)

update flotilla_migration set needs = ?
where id = ? and exists (select 1 from flotilla_log_place where place = 'nats')
-- values: [7,7]

-- src/sessions/log/sql/heads.ts: moveHeads
update flotilla_session_log set log_offset = from_offset + 1, record_id = to_record from (select value ->> 0 as to_log, value ->> 1 as in_incarnation, value ->> 2 as in_term, value ->> 3 as from_offset, value ->> 4 as from_record, value ->> 5 as to_record from jsonb_each(?)) moves
where log_id = to_log and incarnation = in_incarnation and term = in_term
  and ((log_offset = from_offset and record_id = from_record)
    or (log_offset = from_offset + 1 and record_id = to_record))
  and exists (select 1 from flotilla_log_place where place = 'sql') and flotilla_session_log.log_id in (
select head.log_id from flotilla_session_log head join (select value ->> 0 as log_id, value ->> 1 as term from jsonb_each(?)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id )
returning log_id, incarnation, term, owner, host, log_offset, record_id, beat
-- instead of returning:
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla_session_log join (select value ->> 0 as to_log, value ->> 1 as in_incarnation, value ->> 2 as in_term, value ->> 3 as from_offset, value ->> 4 as from_record, value ->> 5 as to_record from jsonb_each(?)) moves
  on log_id = to_log and term = in_term and log_offset = from_offset + 1
    and record_id = to_record
-- values: ["[[1,\"first\",2,7,\"record-7\",\"record-8\"]]","[[1,2]]"]

-- src/sessions/log/sql/heads.ts: takeHead
update flotilla_session_log
set term = ?, owner = ?, host = ?, beat = beat + 1,
  log_offset = ?, record_id = ?
where log_id = ? and incarnation = ?
  and ((term = ? and log_offset = ? and record_id = ?)
    or (term = ? and log_offset = ? and record_id = ?
      and owner = ?))
  and exists (select 1 from flotilla_log_place where place = 'sql')
returning log_id, incarnation, term, owner, host, log_offset, record_id, beat
-- instead of returning:
select log_id, incarnation, term, owner, host, log_offset, record_id, beat from flotilla_session_log
where log_id = ? and term = ? and log_offset = ?
  and record_id = ? and owner = ?
-- values: [3,"pod-2",null,8,"record-8",1,"first",2,7,"record-7",3,8,"record-8","pod-2"]

-- src/sessions/log/sql/heads.ts: beatHeads
update flotilla_session_log set beat = beat + 1 from (select value ->> 0 as log_id, value ->> 1 as term from jsonb_each(?)) own
where flotilla_session_log.log_id = own.log_id and flotilla_session_log.term = own.term and owner = ?
  and exists (select 1 from flotilla_log_place where place = 'sql') and flotilla_session_log.log_id in (
select head.log_id from flotilla_session_log head join (select value ->> 0 as log_id, value ->> 1 as term from jsonb_each(?)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id )
returning flotilla_session_log.log_id
-- instead of returning:
select head.log_id from flotilla_session_log head
join (select value ->> 0 as log_id, value ->> 1 as term from jsonb_each(?)) own on own.log_id = head.log_id and own.term = head.term
where head.owner = ?
-- values: ["[[1,2]]","pod-1","[[1,2]]"]

-- src/sessions/log/sql/heads.ts: releaseHeads
update flotilla_session_log set owner = null, host = null from (select value ->> 0 as log_id, value ->> 1 as term from jsonb_each(?)) own
where flotilla_session_log.log_id = own.log_id and flotilla_session_log.term = own.term and owner = ?
  and flotilla_session_log.log_id in (
select head.log_id from flotilla_session_log head join (select value ->> 0 as log_id, value ->> 1 as term from jsonb_each(?)) wanted
  on wanted.log_id = head.log_id and wanted.term = head.term
order by head.log_id )
-- values: ["[[1,2]]","pod-1","[[1,2]]"]

-- src/sessions/log/sql/moves.ts: leaveDatabase
select 1

select log_id from flotilla_session_log order by log_id

  insert into flotilla_log_watermark as known
    (log_id, incarnation, log_offset, record_id, chain, flush_id)
  select log_id, incarnation, log_offset, '', chain, '' from (select value ->> 0 as log_id, value ->> 1 as incarnation, value ->> 2 as term, value ->> 3 as log_offset, value ->> 4 as chain from jsonb_each(?)) fresh
  where exists (select 1 from flotilla_log_place where place = ?) and 1 = 1
and (select count(*) from flotilla_session_log) = 1
and (
select count(*) from flotilla_session_log head join (select value ->> 0 as log_id, value ->> 1 as incarnation, value ->> 2 as term, value ->> 3 as log_offset, value ->> 4 as chain from jsonb_each(?)) fresh
  on fresh.log_id = head.log_id and fresh.incarnation = head.incarnation
    and head.log_offset <= fresh.log_offset and head.term <= fresh.term) = 1
  on conflict (log_id) do update
  set incarnation = excluded.incarnation, log_offset = excluded.log_offset,
    record_id = excluded.record_id, chain = excluded.chain, flush_id = excluded.flush_id
-- values: ["[[1,\"first\",2,7,\"00\"]]","sql","[[1,\"first\",2,7,\"00\"]]"]

update flotilla_log_place set place = 'nats' where exists (select 1 from flotilla_log_place where place = ?) and 1 = 1
    and (select count(*) from flotilla_session_log) = 1
    and (
    select count(*) from flotilla_session_log head join (select value ->> 0 as log_id, value ->> 1 as incarnation, value ->> 2 as term, value ->> 3 as log_offset, value ->> 4 as chain from jsonb_each(?)) fresh
      on fresh.log_id = head.log_id and fresh.incarnation = head.incarnation
        and head.log_offset <= fresh.log_offset and head.term <= fresh.term) = 1
-- values: ["sql","[[1,\"first\",2,7,\"00\"]]"]

delete from flotilla_session_log where exists (select 1 from flotilla_log_place where place = ?) and 1 = 1
-- values: ["nats"]

update flotilla_migration set needs = ?
where id = ? and exists (select 1 from flotilla_log_place where place = ?)
-- values: [7,7,"nats"]

-- src/sessions/log/sql/moves.ts: returnToDatabase
select 1

select log_id from flotilla_log_watermark order by log_id

  insert into flotilla_session_log (log_id, incarnation, term, log_offset, record_id)
  select log_id, incarnation, term, log_offset, record_id from (select value ->> 0 as log_id, value ->> 1 as incarnation, value ->> 2 as term, value ->> 3 as log_offset, value ->> 4 as record_id, value ->> 5 as archived from jsonb_each(?)) fresh
  where exists (select 1 from flotilla_log_place where place = ?) and 1 = 1 and (
select count(*) from flotilla_log_watermark known join (select value ->> 0 as log_id, value ->> 1 as incarnation, value ->> 2 as term, value ->> 3 as log_offset, value ->> 4 as record_id, value ->> 5 as archived from jsonb_each(?)) fresh
  on fresh.log_id = known.log_id and fresh.incarnation = known.incarnation
    and fresh.archived = known.log_offset) = 1
  on conflict do nothing
-- values: ["[[1,\"first\",2,7,\"record-7\",6]]","nats","[[1,\"first\",2,7,\"record-7\",6]]"]

update flotilla_log_place set place = 'sql'
where place = 'nats' and 1 = 1
  and (select count(*) from flotilla_session_log) = 1

delete from flotilla_log_watermark where exists (select 1 from flotilla_log_place where place = ?) and 1 = 1
-- values: ["sql"]

-- src/sessions/log/sql/reading.ts: findIds
select message.session_id, message.client_id, message.seq
from (select value ->> 0 as session_id, value ->> 1 as client_id from jsonb_each(?)) wanted join flotilla_message message
  on message.session_id = wanted.session_id and message.client_id = wanted.client_id
-- values: ["[[\"session-1\",\"client-2\"]]"]

-- src/sessions/log/sql/reading.ts: readHeader
select header from flotilla_session where session_id = ?
-- values: ["session-1"]

-- src/sessions/log/sql/reading.ts: readBusy
select header from flotilla_session where log_id = ? and state <> 'idle'
-- values: [1]

-- src/sessions/log/sql/reading.ts: readEntries
select seq, kind, role, author, message_id, replaces, body, at from flotilla_message where session_id = ? and seq > ?  order by seq limit cast(? as integer)
-- values: ["session-1",1,10]

  with listed as (
    select seq as place, 200 + coalesce(octet_length(body), 0) + coalesce(octet_length(author), 0) + coalesce(octet_length(message_id), 0) as bytes from flotilla_message where session_id = ? and seq > ?
    order by seq asc limit cast(? as integer)),
  measured as (
    select place, row_number() over (order by place asc) as nth,
      sum(bytes) over (order by place asc) as up_to
    from listed)
select seq, kind, role, author, message_id, replaces, body, at from flotilla_message
where session_id = ? and seq in (select place from measured
  where nth = 1 or (nth <= ? and up_to <= ?)) order by seq
-- values: ["session-1",1,11,"session-1",10,1000]

-- src/sessions/log/sql/reading.ts: readTail
select seq, kind, role, author, message_id, replaces, body, at from flotilla_message
    where session_id = ? and seq > ? and seq <= ? order by seq desc limit cast(? as integer)
-- values: ["session-1",1,9,10]

  with listed as (
    select seq as place, 200 + coalesce(octet_length(body), 0) + coalesce(octet_length(author), 0) + coalesce(octet_length(message_id), 0) as bytes from flotilla_message
where session_id = ? and seq > ? and seq <= ?
    order by seq desc limit cast(? as integer)),
  measured as (
    select place, row_number() over (order by place desc) as nth,
      sum(bytes) over (order by place desc) as up_to
    from listed)
select seq, kind, role, author, message_id, replaces, body, at from flotilla_message
where session_id = ? and seq in (select place from measured
  where nth = 1 or (nth <= ? and up_to <= ?)) order by seq desc
-- values: ["session-1",1,9,11,"session-1",10,1000]

-- src/sessions/log/sql/reading.ts: readNewest
select seq, kind, role, author, message_id, replaces, body, at from flotilla_message
where session_id = ? and message_id = ?
order by seq desc limit cast(? as integer)
-- values: ["session-1","message-2",1]

-- src/sessions/log/sql/reading.ts: readTurns
select epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at, outcome, input_tokens,
  output_tokens, cached_tokens, model, cost_millionths
from flotilla_turn where session_id = ?
order by epoch desc, attempt desc limit cast(? as integer)
-- values: ["session-1",10]

select epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at, outcome, input_tokens,
  output_tokens, cached_tokens, model, cost_millionths
from flotilla_turn where session_id = ? and (epoch, attempt) < (?, ?)
order by epoch desc, attempt desc limit cast(? as integer)
-- values: ["session-1",3,1,10]

-- src/sessions/log/sql/reading.ts: readCheckpoint
select epoch, attempt, body, header
from flotilla_turn_checkpoint checkpoint join flotilla_session session
  on session.session_id = checkpoint.session_id
where checkpoint.session_id = ?
-- values: ["session-1"]

-- src/sessions/agents/sql.ts: readAgents
select tenant, name, settings, secrets, revision, created_at, last_update from flotilla_agent agent
where tenant = ?
  and agent.name in (select asked.name from (select value ->> 0 as name from jsonb_each(?)) asked)
-- values: ["default","[[\"helper\"]]"]

-- src/sessions/agents/sql.ts: countPlainSecrets
select count(*) as agents from (
  select 1 from flotilla_agent
  where substr(secrets, 1, 1) <> ? and secrets not in ('{}', ?)
  limit cast(? as integer)) counted
-- values: ["~","{\"agent\":{\"headers\":{},\"signing\":[]},\"compaction\":{\"headers\":{},\"signing\":[]}}",10000]

-- src/sessions/agents/sql.ts: storedByNames
select tenant, name from flotilla_agent agent
where agent.name in (select asked.name from (select value ->> 0 as name from jsonb_each(?)) asked)
order by tenant, name limit cast(? as integer)
-- values: ["[[\"helper\"]]",10]

-- src/sessions/agents/sql.ts: listAgents
  with listed as (
    select name as place, 500 + coalesce(octet_length(settings), 0) + coalesce(octet_length(secrets), 0) as bytes from flotilla_agent where tenant = ? and name > ?
    order by name asc limit cast(? as integer)),
  measured as (
    select place, row_number() over (order by place asc) as nth,
      sum(bytes) over (order by place asc) as up_to
    from listed)
select tenant, name, settings, secrets, revision, created_at, last_update, (select count(*) from listed) as found from flotilla_agent
where tenant = ? and name in (select place from measured
  where nth = 1 or (nth <= ? and up_to <= ?)) order by name
-- values: ["default","",11,"default",10,1048576]

-- src/sessions/agents/sql.ts: createAgent
insert into flotilla_agent (tenant, name, settings, secrets, revision)
select ?, ?, ?, ?, 0
where (select count(*) from (
  select 1 from flotilla_agent where tenant = ? limit cast(? as integer)) counted) < ?
on conflict (tenant, name) do nothing
-- values: ["default","helper","{}","{}","default",100,100]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_agent where tenant = ? and name = ? and revision = 0
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,null,"{\"revision\":1}","audit.full","done",null,"click-1","default","helper"]

update flotilla_agent set revision = 1 where tenant = ? and name = ? and revision = 0
-- values: ["default","helper"]

-- src/sessions/agents/sql.ts: replaceAgent
select name from flotilla_agent where tenant = ? and name = ? and revision = ?
-- values: ["default","helper",1]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_agent where tenant = ? and name = ? and revision = ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"revision\":1}","{\"revision\":2}","audit.full","done",null,"click-1","default","helper",1]

update flotilla_agent
set settings = ?, secrets = ?, revision = revision + 1, last_update = now_ms()
where tenant = ? and name = ? and revision = ?
-- values: ["{}","{}","default","helper",1]

-- src/sessions/agents/sql.ts: removeAgent
select name from flotilla_agent where tenant = ? and name = ?
-- values: ["default","helper"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), '{"revision":' || cast(revision as text) || '}', ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_agent where tenant = ? and name = ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,null,"audit.full","done",null,"click-1","default","helper"]

delete from flotilla_agent where tenant = ? and name = ?
-- values: ["default","helper"]
