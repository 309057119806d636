-- src/changes/sql.ts: readState
select life, revision, keep_ms, pruned_mark, pruned_seq, high, coalesce((select seq from sqlite_sequence where name = 'flotilla_change'), 0) as horizon
from flotilla_change_state where id = 1

-- src/changes/sql.ts: readLast
select state.life, state.pruned_mark, state.pruned_seq, state.high, coalesce((select seq from sqlite_sequence where name = 'flotilla_change'), 0) as horizon,
  last.mark, last.seq
from flotilla_change_state state left join (
  select mark, seq from flotilla_change where mark <= coalesce((select seq from sqlite_sequence where name = 'flotilla_change'), 0)
    and (mark, seq) > (select pruned_mark, pruned_seq from flotilla_change_state where id = 1)
  order by mark desc, seq desc limit cast(? as integer)) last on true
where state.id = 1
-- values: [1]

-- src/changes/sql.ts: readPage
with listed as (
  select mark, seq, octet_length(subjects) as bytes from flotilla_change
  where mark >= ? and (mark, seq) > (?, ?) and mark <= coalesce((select seq from sqlite_sequence where name = 'flotilla_change'), 0)
    and (mark, seq) > (select pruned_mark, pruned_seq from flotilla_change_state where id = 1)
  order by mark, seq limit cast(? as integer)),
measured as (
  select mark, seq, row_number() over (order by mark, seq) as nth,
    sum(bytes) over (order by mark, seq) as up_to
  from listed)
select state.life, state.pruned_mark, state.pruned_seq, state.high, coalesce((select seq from sqlite_sequence where name = 'flotilla_change'), 0) as horizon,
  (select count(*) from listed) as found, page.mark, page.seq, page.at, page.subjects
from flotilla_change_state state left join (
  select measured.nth, stored.mark, stored.seq, stored.at, stored.subjects
  from measured join flotilla_change stored
    on stored.mark = measured.mark and stored.seq = measured.seq
  where measured.nth = 1 or (measured.nth <= ? and measured.up_to <= ?)
) page on true
where state.id = 1
order by page.nth
-- values: [7,7,1,101,100,1000000]

with listed as (
  select mark, seq, octet_length(subjects) as bytes from flotilla_change
  where mark >= ? and (mark, seq) >= (?, ?) and mark <= coalesce((select seq from sqlite_sequence where name = 'flotilla_change'), 0)
    and (mark, seq) > (select pruned_mark, pruned_seq from flotilla_change_state where id = 1)
  order by mark, seq limit cast(? as integer)),
measured as (
  select mark, seq, row_number() over (order by mark, seq) as nth,
    sum(bytes) over (order by mark, seq) as up_to
  from listed)
select state.life, state.pruned_mark, state.pruned_seq, state.high, coalesce((select seq from sqlite_sequence where name = 'flotilla_change'), 0) as horizon,
  (select count(*) from listed) as found, page.mark, page.seq, page.at, page.subjects
from flotilla_change_state state left join (
  select measured.nth, stored.mark, stored.seq, stored.at, stored.subjects
  from measured join flotilla_change stored
    on stored.mark = measured.mark and stored.seq = measured.seq
  where measured.nth = 1 or (measured.nth <= ? and measured.up_to <= ?)
) page on true
where state.id = 1
order by page.nth
-- values: [7,7,1,101,100,1000000]

-- src/changes/sql.ts: readTenants
select session_id, tenant from flotilla_session
where session_id in (select session_id from (select value ->> 0 as session_id from jsonb_each(?)) wanted)
-- values: ["[[\"session-1\"]]"]

-- src/changes/sql.ts: beginRecording
select 1

drop trigger if exists flotilla_record_task_insert

create trigger if not exists flotilla_record_task_insert after insert on flotilla_task

  begin
    insert into flotilla_change (at, subjects)
    select now_ms(), json_array(json_array(case when new.flow_version is null then 'task' else 'run' end, new.task_id, new.name, new.tenant, 'created', new.status, null, null));
  end

drop trigger if exists flotilla_record_task_update

create trigger if not exists flotilla_record_task_update after update of status, parked, retry_count, deaths on flotilla_task
  when (new.status <> 'claimed' or new.retry_count > old.retry_count) and case
      when (new.status = 'completed' or new.status = 'failed' or new.status = 'cancelled') then case when old.status <> new.status then new.status end
      when (old.status = 'completed' or old.status = 'failed' or old.status = 'cancelled') then 'retried'
      when new.parked = 6 and old.parked <> 6 then 'set_aside'
      when new.retry_count > old.retry_count or new.deaths > old.deaths then 'retried'
      when old.parked = 6 and new.parked <> 6 then 'resumed' end is not null
  begin
    insert into flotilla_change (at, subjects)
    select now_ms(), json_array(json_array(case when new.flow_version is null then 'task' else 'run' end, new.task_id, new.name, new.tenant, case
      when (new.status = 'completed' or new.status = 'failed' or new.status = 'cancelled') then case when old.status <> new.status then new.status end
      when (old.status = 'completed' or old.status = 'failed' or old.status = 'cancelled') then 'retried'
      when new.parked = 6 and old.parked <> 6 then 'set_aside'
      when new.retry_count > old.retry_count or new.deaths > old.deaths then 'retried'
      when old.parked = 6 and new.parked <> 6 then 'resumed' end, new.status, null, null));
  end

drop trigger if exists flotilla_record_task_delete

create trigger if not exists flotilla_record_task_delete after delete on flotilla_task
  when not (old.status = 'completed' or old.status = 'failed' or old.status = 'cancelled')
  begin
    insert into flotilla_change (at, subjects)
    select now_ms(), json_array(json_array(case when old.flow_version is null then 'task' else 'run' end, old.task_id, old.name, old.tenant, 'deleted', old.status, null, null));
  end

drop trigger if exists flotilla_record_session_insert

create trigger if not exists flotilla_record_session_insert after insert on flotilla_session

  begin
    insert into flotilla_change (at, subjects)
    select now_ms(), json_array(json_array('session', new.session_id, new.agent, new.tenant, 'created', new.status, null, null));
    insert into flotilla_change (at, subjects)
    select now_ms(), json_array(json_array('session', new.session_id, new.agent, new.tenant, new.status, new.status, null, null)) where new.status <> 'active';
    insert into flotilla_change (at, subjects)
    select now_ms(), json_array(json_array('turn', new.session_id || '/' || new.turn_epoch, new.turn_agent, new.tenant, 'created', 'running', new.turn_epoch, 1)) where new.turn_epoch is not null and not exists (
      select 1 from flotilla_turn turn
      where turn.session_id = new.session_id and turn.epoch = new.turn_epoch);
  end

drop trigger if exists flotilla_record_session_update

create trigger if not exists flotilla_record_session_update after update of status, turn_epoch on flotilla_session
  when new.status <> old.status or new.turn_epoch is not old.turn_epoch
  begin
    insert into flotilla_change (at, subjects)
    select now_ms(), json_array(json_array('session', new.session_id, new.agent, new.tenant, case new.status when 'active' then 'resumed' else new.status end, new.status, null, null)) where new.status <> old.status;
    insert into flotilla_change (at, subjects)
    select now_ms(), json_array(json_array('turn', new.session_id || '/' || new.turn_epoch, new.turn_agent, new.tenant, 'created', 'running', new.turn_epoch, 1)) where new.turn_epoch is not old.turn_epoch and new.turn_epoch is not null and not exists (
      select 1 from flotilla_turn turn
      where turn.session_id = new.session_id and turn.epoch = new.turn_epoch);
  end

drop trigger if exists flotilla_record_turn_insert

create trigger if not exists flotilla_record_turn_insert after insert on flotilla_turn

  begin
    insert into flotilla_change (at, subjects)
    select now_ms(), json_array(json_array('turn', new.session_id || '/' || new.epoch, new.agent, (select tenant from flotilla_session session where session.session_id = new.session_id), 'created', 'running', new.epoch, new.attempt)) where not exists (select 1 from flotilla_session session
          where session.session_id = new.session_id and session.turn_epoch = new.epoch)
        and not exists (select 1 from flotilla_turn earlier
          where earlier.session_id = new.session_id and earlier.epoch = new.epoch
            and earlier.attempt < new.attempt);
    insert into flotilla_change (at, subjects)
    select now_ms(), json_array(json_array('turn', new.session_id || '/' || new.epoch, new.agent, (select tenant from flotilla_session session where session.session_id = new.session_id), case when new.outcome in ('released', 'lost') then 'retried'
          when new.outcome in ('stopped', 'dropped') then 'cancelled'
          when new.outcome = 'completed' then 'completed' else 'failed' end, new.outcome, new.epoch, new.attempt));
  end

  insert into flotilla_change_state (id, life, revision, keep_ms, pruned_mark, pruned_seq)
  values (1, ?, ?, ?, coalesce(
(select mark from flotilla_change order by mark desc, seq desc limit cast(? as integer)), 0), coalesce(
(select seq from flotilla_change order by mark desc, seq desc limit cast(? as integer)), 0))
  on conflict (id) do update set revision = excluded.revision, keep_ms = excluded.keep_ms
-- values: ["life-1",2,60000,1,1]

-- src/changes/sql.ts: endRecording
select 1

drop trigger if exists flotilla_record_task_insert

drop trigger if exists flotilla_record_task_update

drop trigger if exists flotilla_record_task_delete

drop trigger if exists flotilla_record_session_insert

drop trigger if exists flotilla_record_session_update

drop trigger if exists flotilla_record_turn_insert

delete from flotilla_change_state

-- src/changes/sql.ts: setKept
update flotilla_change_state set keep_ms = ? where id = 1
-- values: [60000]

-- src/changes/sql.ts: noteHorizon
update flotilla_change_state set high = coalesce((select seq from sqlite_sequence where name = 'flotilla_change'), 0) where id = 1 and high <= coalesce((select seq from sqlite_sequence where name = 'flotilla_change'), 0)

-- src/changes/sql.ts: renewLife
delete from flotilla_change where exists (select 1 from flotilla_change_state where id = 1 and life = ?)
-- values: ["life-1"]

update flotilla_change_state set life = ?, pruned_mark = 0, pruned_seq = 0, high = coalesce((select seq from sqlite_sequence where name = 'flotilla_change'), 0)
where id = 1 and life = ?
-- values: ["life-2","life-1"]

-- src/changes/sql.ts: pruneBatch
update flotilla_change_state set pruned_mark = cut.mark, pruned_seq = cut.seq
from (select mark, seq from (select mark, seq, at from flotilla_change order by mark, seq limit cast(? as integer)) oldest
  where at < now_ms() - (select keep_ms from flotilla_change_state where id = 1)
  order by mark desc, seq desc limit cast(? as integer)) cut
where flotilla_change_state.id = 1
  and (cut.mark, cut.seq) > (flotilla_change_state.pruned_mark, flotilla_change_state.pruned_seq)
-- values: [1000,1]

delete from flotilla_change where (mark, seq) in (select mark, seq from (select mark, seq, at from flotilla_change order by mark, seq limit cast(? as integer)) oldest)
  and not exists (select 1 from flotilla_change_state state
    where (state.pruned_mark, state.pruned_seq) < (flotilla_change.mark, flotilla_change.seq))
-- values: [1000]

-- src/changes/sql.ts: hasOldChanges
select 1 from (select mark, seq, at from flotilla_change order by mark, seq limit cast(? as integer)) first
left join flotilla_change_state state on state.id = 1
where state.id is null or first.at < now_ms() - state.keep_ms
  or (first.mark, first.seq) <= (state.pruned_mark, state.pruned_seq)
-- values: [1]
