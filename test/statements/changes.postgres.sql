-- src/changes/sql.ts: readState
select life, revision, keep_ms, pruned_mark, pruned_seq, high, (select pg_snapshot_xmin(pg_current_snapshot())::text::bigint) as horizon
from flotilla.change_state where id = 1

-- src/changes/sql.ts: readLast
select state.life, state.pruned_mark, state.pruned_seq, state.high, (select pg_snapshot_xmin(pg_current_snapshot())::text::bigint) as horizon,
  last.mark, last.seq
from flotilla.change_state state left join (
  select mark, seq from flotilla.change where mark <= (select pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
    and (mark, seq) > (select pruned_mark, pruned_seq from flotilla.change_state where id = 1)
  order by mark desc, seq desc limit cast($1 as integer)) last on true
where state.id = 1
-- values: [1]

-- src/changes/sql.ts: readPage
with listed as (
  select mark, seq, octet_length(subjects) as bytes from flotilla.change
  where mark >= $1 and (mark, seq) > ($2, $3) and mark <= (select pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
    and (mark, seq) > (select pruned_mark, pruned_seq from flotilla.change_state where id = 1)
  order by mark, seq limit cast($4 as integer)),
measured as (
  select mark, seq, row_number() over (order by mark, seq) as nth,
    sum(bytes) over (order by mark, seq) as up_to
  from listed)
select state.life, state.pruned_mark, state.pruned_seq, state.high, (select pg_snapshot_xmin(pg_current_snapshot())::text::bigint) as horizon,
  (select count(*) from listed) as found, page.mark, page.seq, page.at, page.subjects
from flotilla.change_state state left join (
  select measured.nth, stored.mark, stored.seq, stored.at, stored.subjects
  from measured join flotilla.change stored
    on stored.mark = measured.mark and stored.seq = measured.seq
  where measured.nth = 1 or (measured.nth <= $5 and measured.up_to <= $6)
) page on true
where state.id = 1
order by page.nth
-- values: [7,7,1,101,100,1000000]

with listed as (
  select mark, seq, octet_length(subjects) as bytes from flotilla.change
  where mark >= $1 and (mark, seq) >= ($2, $3) and mark <= (select pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
    and (mark, seq) > (select pruned_mark, pruned_seq from flotilla.change_state where id = 1)
  order by mark, seq limit cast($4 as integer)),
measured as (
  select mark, seq, row_number() over (order by mark, seq) as nth,
    sum(bytes) over (order by mark, seq) as up_to
  from listed)
select state.life, state.pruned_mark, state.pruned_seq, state.high, (select pg_snapshot_xmin(pg_current_snapshot())::text::bigint) as horizon,
  (select count(*) from listed) as found, page.mark, page.seq, page.at, page.subjects
from flotilla.change_state state left join (
  select measured.nth, stored.mark, stored.seq, stored.at, stored.subjects
  from measured join flotilla.change stored
    on stored.mark = measured.mark and stored.seq = measured.seq
  where measured.nth = 1 or (measured.nth <= $5 and measured.up_to <= $6)
) page on true
where state.id = 1
order by page.nth
-- values: [7,7,1,101,100,1000000]

-- src/changes/sql.ts: readTenants
select session_id, tenant from flotilla.session
where session_id = any(array(select session_id from (select session_id collate "C" as session_id from unnest($1::text[]) as each_row (session_id)) wanted))
-- values: ["{\"session-1\"}"]

-- src/changes/sql.ts: beginRecording
select pg_advisory_xact_lock(hashtext('flotilla migrations'))

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    drop trigger if exists record_task_insert on flotilla.task;
    drop function if exists flotilla.record_task_insert();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    create or replace function flotilla.record_task_insert() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
    begin

      insert into flotilla.change (mark, at, subjects)
      select greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
        pg_current_xact_id()::text::bigint + 1), floor(extract(epoch from statement_timestamp()) * 1000)::bigint,
        json_agg(json_build_array(kind, id, name, tenant, change, status, epoch, attempt)
          order by id, place)::text
      from (select 1 as place, case when fresh.flow_version is null then 'task' else 'run' end as kind, task_id as id, name, tenant,
        'created' as change, status, null::bigint as epoch, null::bigint as attempt from fresh) subject
      where change is not null having count(*) > 0;
      return null;
    end $body$;
    create or replace trigger record_task_insert after insert on flotilla.task
      referencing new table as fresh for each statement execute function flotilla.record_task_insert();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    drop trigger if exists record_task_update on flotilla.task;
    drop function if exists flotilla.record_task_update();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    create or replace function flotilla.record_task_update() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
    begin
      if not exists (select 1 from fresh where status <> 'claimed' or retry_count > 0) then return null; end if;
      insert into flotilla.change (mark, at, subjects)
      select greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
        pg_current_xact_id()::text::bigint + 1), floor(extract(epoch from statement_timestamp()) * 1000)::bigint,
        json_agg(json_build_array(kind, id, name, tenant, change, status, epoch, attempt)
          order by id, place)::text
      from (select 1 as place, case when fresh.flow_version is null then 'task' else 'run' end as kind, fresh.task_id as id, fresh.name, fresh.tenant,
        case
          when fresh.status in ('completed', 'failed', 'cancelled') then case when past.status <> fresh.status then fresh.status end
          when past.status in ('completed', 'failed', 'cancelled') then 'retried'
          when fresh.parked = 6 and past.parked <> 6 then 'set_aside'
          when fresh.retry_count > past.retry_count or fresh.deaths > past.deaths then 'retried'
          when past.parked = 6 and fresh.parked <> 6 then 'resumed'
        end as change, fresh.status, null::bigint as epoch, null::bigint as attempt
        from fresh join past on past.task_id = fresh.task_id
        where fresh.status <> 'claimed' or fresh.retry_count > past.retry_count) subject
      where change is not null having count(*) > 0;
      return null;
    end $body$;
    create or replace trigger record_task_update after update on flotilla.task
      referencing new table as fresh old table as past for each statement execute function flotilla.record_task_update();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    drop trigger if exists record_task_delete on flotilla.task;
    drop function if exists flotilla.record_task_delete();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    create or replace function flotilla.record_task_delete() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
    begin

      insert into flotilla.change (mark, at, subjects)
      select greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
        pg_current_xact_id()::text::bigint + 1), floor(extract(epoch from statement_timestamp()) * 1000)::bigint,
        json_agg(json_build_array(kind, id, name, tenant, change, status, epoch, attempt)
          order by id, place)::text
      from (select 1 as place, case when past.flow_version is null then 'task' else 'run' end as kind, task_id as id, name, tenant,
        'deleted' as change, status, null::bigint as epoch, null::bigint as attempt from past where status not in ('completed', 'failed', 'cancelled')) subject
      where change is not null having count(*) > 0;
      return null;
    end $body$;
    create or replace trigger record_task_delete after delete on flotilla.task
      referencing old table as past for each statement execute function flotilla.record_task_delete();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    drop trigger if exists record_session_insert on flotilla.session;
    drop function if exists flotilla.record_session_insert();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    create or replace function flotilla.record_session_insert() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
    begin

      insert into flotilla.change (mark, at, subjects)
      select greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
        pg_current_xact_id()::text::bigint + 1), floor(extract(epoch from statement_timestamp()) * 1000)::bigint,
        json_agg(json_build_array(kind, id, name, tenant, change, status, epoch, attempt)
          order by id, place)::text
      from (select 1 as place, 'session' as kind, session_id as id, agent as name, tenant,
        'created' as change, status, null::bigint as epoch, null::bigint as attempt from fresh
        union all
        select 2, 'session', session_id, agent, tenant, status, status, null, null from fresh
        where status <> 'active'
        union all select 3, 'turn', fresh.session_id || '/' || fresh.turn_epoch, turn_agent, tenant, 'created', 'running',
          turn_epoch, 1 from fresh
        where turn_epoch is not null and true and not exists (
          select 1 from flotilla.turn where turn.session_id = fresh.session_id
            and turn.epoch = fresh.turn_epoch)) subject
      where change is not null having count(*) > 0;
      return null;
    end $body$;
    create or replace trigger record_session_insert after insert on flotilla.session
      referencing new table as fresh for each statement execute function flotilla.record_session_insert();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    drop trigger if exists record_session_update on flotilla.session;
    drop function if exists flotilla.record_session_update();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    create or replace function flotilla.record_session_update() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
    begin

      insert into flotilla.change (mark, at, subjects)
      select greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
        pg_current_xact_id()::text::bigint + 1), floor(extract(epoch from statement_timestamp()) * 1000)::bigint,
        json_agg(json_build_array(kind, id, name, tenant, change, status, epoch, attempt)
          order by id, place)::text
      from (select 1 as place, 'session' as kind, fresh.session_id as id, fresh.agent as name,
        fresh.tenant, case fresh.status when 'active' then 'resumed' else fresh.status end as change,
        fresh.status, null::bigint as epoch, null::bigint as attempt from fresh join past on past.session_id = fresh.session_id
        where fresh.status <> past.status
        union all select 3, 'turn', fresh.session_id || '/' || fresh.turn_epoch, turn_agent, tenant, 'created', 'running',
          turn_epoch, 1 from fresh
        where turn_epoch is not null and not exists (select 1 from past where past.session_id = fresh.session_id
            and past.turn_epoch = fresh.turn_epoch) and not exists (
          select 1 from flotilla.turn where turn.session_id = fresh.session_id
            and turn.epoch = fresh.turn_epoch)) subject
      where change is not null having count(*) > 0;
      return null;
    end $body$;
    create or replace trigger record_session_update after update on flotilla.session
      referencing new table as fresh old table as past for each statement execute function flotilla.record_session_update();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    drop trigger if exists record_turn_insert on flotilla.turn;
    drop function if exists flotilla.record_turn_insert();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    create or replace function flotilla.record_turn_insert() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
    begin

      insert into flotilla.change (mark, at, subjects)
      select greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
        pg_current_xact_id()::text::bigint + 1), floor(extract(epoch from statement_timestamp()) * 1000)::bigint,
        json_agg(json_build_array(kind, id, name, tenant, change, status, epoch, attempt)
          order by id, place)::text
      from (select 1 as place, 'turn' as kind, fresh.session_id || '/' || fresh.epoch as id, agent as name,
        (select tenant from flotilla.session where session.session_id = fresh.session_id) as tenant,
        'created' as change, 'running' as status, epoch, attempt from fresh
        where not exists (select 1 from flotilla.session
            where session.session_id = fresh.session_id and session.turn_epoch = fresh.epoch)
          and not exists (select 1 from flotilla.turn earlier
            where earlier.session_id = fresh.session_id and earlier.epoch = fresh.epoch
              and earlier.attempt < fresh.attempt)
        union all
        select 1 + attempt, 'turn', fresh.session_id || '/' || fresh.epoch, agent,
          (select tenant from flotilla.session where session.session_id = fresh.session_id),
          case when outcome in ('released', 'lost') then 'retried'
            when outcome in ('stopped', 'dropped') then 'cancelled'
            when outcome = 'completed' then 'completed' else 'failed' end,
          outcome, epoch, attempt from fresh) subject
      where change is not null having count(*) > 0;
      return null;
    end $body$;
    create or replace trigger record_turn_insert after insert on flotilla.turn
      referencing new table as fresh for each statement execute function flotilla.record_turn_insert();
  end $recorder$

  insert into flotilla.change_state (id, life, revision, keep_ms, pruned_mark, pruned_seq)
  values (1, $1, $2, $3, coalesce(
(select mark from flotilla.change order by mark desc, seq desc limit cast($4 as integer)), 0), coalesce(
(select seq from flotilla.change order by mark desc, seq desc limit cast($5 as integer)), 0))
  on conflict (id) do update set revision = excluded.revision, keep_ms = excluded.keep_ms
-- values: ["life-1",2,60000,1,1]

-- src/changes/sql.ts: endRecording
select pg_advisory_xact_lock(hashtext('flotilla migrations'))

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    drop trigger if exists record_task_insert on flotilla.task;
    drop function if exists flotilla.record_task_insert();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    drop trigger if exists record_task_update on flotilla.task;
    drop function if exists flotilla.record_task_update();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    drop trigger if exists record_task_delete on flotilla.task;
    drop function if exists flotilla.record_task_delete();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    drop trigger if exists record_session_insert on flotilla.session;
    drop function if exists flotilla.record_session_insert();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    drop trigger if exists record_session_update on flotilla.session;
    drop function if exists flotilla.record_session_update();
  end $recorder$

do $recorder$ begin
    perform set_config('lock_timeout', '2000', true);
    drop trigger if exists record_turn_insert on flotilla.turn;
    drop function if exists flotilla.record_turn_insert();
  end $recorder$

delete from flotilla.change_state

-- src/changes/sql.ts: setKept
update flotilla.change_state set keep_ms = $1 where id = 1
-- values: [60000]

-- src/changes/sql.ts: noteHorizon
update flotilla.change_state set high = (select pg_snapshot_xmin(pg_current_snapshot())::text::bigint) where id = 1 and high <= (select pg_snapshot_xmin(pg_current_snapshot())::text::bigint)

-- src/changes/sql.ts: renewLife
delete from flotilla.change where exists (select 1 from flotilla.change_state where id = 1 and life = $1)
-- values: ["life-1"]

update flotilla.change_state set life = $1, pruned_mark = 0, pruned_seq = 0, high = (select pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
where id = 1 and life = $2
-- values: ["life-2","life-1"]

-- src/changes/sql.ts: pruneBatch
update flotilla.change_state set pruned_mark = cut.mark, pruned_seq = cut.seq
from (select mark, seq from (select mark, seq, at from flotilla.change order by mark, seq limit cast($1 as integer)) oldest
  where at < now_ms() - (select keep_ms from flotilla.change_state where id = 1)
  order by mark desc, seq desc limit cast($2 as integer)) cut
where flotilla.change_state.id = 1
  and (cut.mark, cut.seq) > (flotilla.change_state.pruned_mark, flotilla.change_state.pruned_seq)
-- values: [1000,1]

delete from flotilla.change where (mark, seq) in (select mark, seq from (select mark, seq, at from flotilla.change order by mark, seq limit cast($1 as integer)) oldest)
  and not exists (select 1 from flotilla.change_state state
    where (state.pruned_mark, state.pruned_seq) < (flotilla.change.mark, flotilla.change.seq))
-- values: [1000]

-- src/changes/sql.ts: hasOldChanges
select 1 from (select mark, seq, at from flotilla.change order by mark, seq limit cast($1 as integer)) first
left join flotilla.change_state state on state.id = 1
where state.id is null or first.at < now_ms() - state.keep_ms
  or (first.mark, first.seq) <= (state.pruned_mark, state.pruned_seq)
-- values: [1]
