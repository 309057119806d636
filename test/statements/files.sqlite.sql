-- src/files/sql/files.ts: beginUpload
insert into flotilla_file_count as counted (tenant) values (?)
on conflict (tenant) do update set files = counted.files
-- values: ["acme"]

insert into flotilla_file_remnant (file_id, place)
select file_id, place from (select value ->> 0 as file_id, value ->> 1 as place from jsonb_each(?)) fresh
where not exists (select 1 from flotilla_file file where file.file_id = fresh.file_id)
on conflict (file_id) do nothing
-- values: ["[[\"file-1\",\"store\"]]"]

select began_at from flotilla_file_remnant where file_id = ?
-- values: ["file-1"]

-- src/files/sql/files.ts: insertPart
insert into flotilla_file_part (file_id, part, body)
select remnant.file_id, (select part from (select value ->> 0 as part from jsonb_each(?)) fresh), ?
from flotilla_file_remnant remnant
where remnant.file_id = ? and remnant.closed = 0

on conflict (file_id, part) do nothing
-- values: ["[[0]]","AAAA","file-1"]

-- src/files/sql/files.ts: readPart
select body from flotilla_file_part where file_id = ? and part = ?
-- values: ["file-1",0]

-- src/files/sql/files.ts: finishUpload
insert into flotilla_file_count as counted (tenant) values (?)
on conflict (tenant) do update set files = counted.files
-- values: ["acme"]

select file_id from flotilla_file_remnant where file_id = ?
-- values: ["file-1"]

  update flotilla_file set unused_at = now_ms()
  where file_id in (select file_id from flotilla_file_reference where owner_kind = 'session' and owner_id = ?
and hash = ?
and exists (select 1 from flotilla_file other
  where other.file_id = flotilla_file_reference.file_id and other.tenant <> ?))
-- values: ["session-1","abababababababababababababababababababababababababababababababab","acme"]

delete from flotilla_file_reference where owner_kind = 'session' and owner_id = ?
    and hash = ?
    and exists (select 1 from flotilla_file other
      where other.file_id = flotilla_file_reference.file_id and other.tenant <> ?)
-- values: ["session-1","abababababababababababababababababababababababababababababababab","acme"]

  insert into flotilla_file (file_id, tenant, hash, size, place)
  select file_id, tenant, hash, size, place from (select value ->> 0 as file_id, value ->> 1 as tenant, value ->> 2 as hash, value ->> 3 as size, value ->> 4 as place from jsonb_each(?)) fresh
  where exists (select 1 from flotilla_file_remnant remnant
where remnant.file_id = ? and remnant.closed = 0 and remnant.began_at = ?) and exists (select 1 from flotilla_file_count counted
where counted.tenant = ? and counted.files < ?
  and counted.bytes + ? <= ?) and (exists (select 1 from flotilla_file_reference reference
where reference.owner_kind = ? and reference.owner_id = ? and reference.hash = ?) or (select count(*) < ?
      and coalesce(sum(reference.size), 0) + ? <= ?
    from flotilla_file_reference reference where reference.owner_kind = ? and reference.owner_id = ?))
  on conflict do nothing
-- values: ["[[\"file-1\",\"acme\",\"abababababababababababababababababababababababababababababababab\",300000,\"store\"]]","file-1",1764000000000,"acme",100,300000,10000,"session","session-1","abababababababababababababababababababababababababababababababab",10,300000,1000,"session","session-1"]

  insert into flotilla_file_reference as referring
    (owner_kind, owner_id, hash, file_id, size, metadata, kept, token)
  select ?, ?, file.hash, file.file_id, file.size,
    ?, cast(? as integer), cast(? as bigint)
  from flotilla_file file
  where file.tenant = ? and file.hash = ? and (exists (select 1 from flotilla_file_reference reference
where reference.owner_kind = ? and reference.owner_id = ? and reference.hash = ?) or (select count(*) < ?
      and coalesce(sum(reference.size), 0) + ? <= ?
    from flotilla_file_reference reference where reference.owner_kind = ? and reference.owner_id = ?))
  on conflict (owner_kind, owner_id, hash) do update
  set at = excluded.at,
    kept = case when excluded.kept = 1 then 1 else referring.kept end,
    token = case when excluded.kept = 1 or referring.kept = 1 then null
      when referring.token > excluded.token then referring.token
      else excluded.token end
-- values: ["session","session-1","{\"mediaType\":\"image/png\"}",0,null,"acme","abababababababababababababababababababababababababababababababab","session","session-1","abababababababababababababababababababababababababababababababab",10,300000,1000,"session","session-1"]

  update flotilla_file_count set files = files + 1, bytes = bytes + ?
  where tenant = ? and exists (select 1 from flotilla_file_remnant remnant
where remnant.file_id = ? and remnant.closed = 0 and remnant.began_at = ?)
    and exists (select 1 from flotilla_file file where file.file_id = ?)
-- values: [300000,"acme","file-1",1764000000000,"file-1"]

delete from flotilla_file_remnant where file_id = ?
  and exists (select 1 from flotilla_file file where file.file_id = ?)
-- values: ["file-1","file-1"]

  select (select file_id from flotilla_file file where file.tenant = ? and file.hash = ?)
      as file_id,
    case when exists (select 1 from flotilla_file_reference reference
where reference.owner_kind = ? and reference.owner_id = ? and reference.hash = ?) then 1 else 0 end as referred,
    case when (select count(*) < ?
      and coalesce(sum(reference.size), 0) + ? <= ?
    from flotilla_file_reference reference where reference.owner_kind = ? and reference.owner_id = ?) then 1 else 0 end as fits_owner,
    case when exists (select 1 from flotilla_file_count counted
where counted.tenant = ? and counted.files < ?
  and counted.bytes + ? <= ?) then 1 else 0 end as fits_tenant
  from flotilla_file_count counted where counted.tenant = ?
-- values: ["acme","abababababababababababababababababababababababababababababababab","session","session-1","abababababababababababababababababababababababababababababababab",10,300000,1000,"session","session-1","acme",100,300000,10000,"acme"]

-- src/files/sql/files.ts: readUsed
select count(*) as owner_files, coalesce(sum(size), 0) as owner_bytes
from flotilla_file_reference reference where reference.owner_kind = ? and reference.owner_id = ?
-- values: ["session","session-1"]

-- src/files/sql/files.ts: keepReferences
update flotilla_file_reference set kept = 1 where owner_kind = 'session' and owner_id = ?
    and hash in (select hash from (select value ->> 0 as hash from jsonb_each(?)) wanted)
    and exists (select 1 from flotilla_file file
      where file.file_id = flotilla_file_reference.file_id and file.tenant = ?)
-- values: ["session-1","[[\"abababababababababababababababababababababababababababababababab\"]]","acme"]

select hash, size, metadata from flotilla_file_reference where owner_kind = 'session' and owner_id = ?
    and hash in (select hash from (select value ->> 0 as hash from jsonb_each(?)) wanted)
    and exists (select 1 from flotilla_file file
      where file.file_id = flotilla_file_reference.file_id and file.tenant = ?)
-- values: ["session-1","[[\"abababababababababababababababababababababababababababababababab\"]]","acme"]

-- src/files/sql/files.ts: readReferences
select reference.owner_kind, reference.owner_id, reference.hash, reference.size,
  reference.metadata, file.tenant
from (select value ->> 0 as owner_kind, value ->> 1 as owner_id from jsonb_each(?)) owner
join flotilla_file_reference reference
  on reference.owner_kind = owner.owner_kind and reference.owner_id = owner.owner_id
join flotilla_file file on file.file_id = reference.file_id
where reference.hash in (select hash from (select value ->> 0 as hash from jsonb_each(?)) wanted)
-- values: ["[[\"session\",\"session-1\"]]","[[\"abababababababababababababababababababababababababababababababab\"]]"]

-- src/files/sql/files.ts: readReference
select reference.hash, reference.size, reference.metadata, reference.file_id,
  file.place, file.tenant
from flotilla_file_reference reference
join flotilla_file file on file.file_id = reference.file_id
where reference.owner_kind = ? and reference.owner_id = ? and reference.hash = ?
-- values: ["session","session-1","abababababababababababababababababababababababababababababababab"]

-- src/files/sql/files.ts: deleteReferencesOf
update flotilla_file set unused_at = now_ms()
where file_id in (select file_id from flotilla_file_reference where owner_kind = ? and owner_id in (select 'session-1'))
-- values: ["session"]

delete from flotilla_file_reference where owner_kind = ? and owner_id in (select 'session-1')
-- values: ["session"]

-- src/files/sql/files.ts: deleteReferencesAmong
update flotilla_file set unused_at = now_ms()
where file_id in (select file_id from flotilla_file_reference where owner_kind = ? and owner_id in (select owner_id from (select value ->> 0 as owner_id from jsonb_each(?)) gone))
-- values: ["task","[[\"session-1\"]]"]

delete from flotilla_file_reference where owner_kind = ? and owner_id in (select owner_id from (select value ->> 0 as owner_id from jsonb_each(?)) gone)
-- values: ["task","[[\"session-1\"]]"]

-- src/files/sql/files.ts: findUnsent
select owner_kind, owner_id, hash from flotilla_file_reference
where kept = 0 and at < now_ms() - ? order by at limit cast(? as integer)
-- values: [3600000,500]

-- src/files/sql/files.ts: dropUnsent
update flotilla_file_reference set kept = 1, token = null
      where kept = 0 and at < now_ms() - ?
    and exists (select 1 from (select value ->> 0 as owner_kind, value ->> 1 as owner_id, value ->> 2 as hash from jsonb_each(?)) unsent
      where unsent.owner_kind = flotilla_file_reference.owner_kind
        and unsent.owner_id = flotilla_file_reference.owner_id and unsent.hash = flotilla_file_reference.hash) and token is not null and exists (select 1 from flotilla_task task
    where task.task_id = flotilla_file_reference.owner_id and task.claim_token = flotilla_file_reference.token and task.status = 'completed')
-- values: [3600000,"[[\"session\",\"session-1\",\"abababababababababababababababababababababababababababababababab\"]]"]

update flotilla_file_reference set at = now_ms()
      where kept = 0 and at < now_ms() - ?
    and exists (select 1 from (select value ->> 0 as owner_kind, value ->> 1 as owner_id, value ->> 2 as hash from jsonb_each(?)) unsent
      where unsent.owner_kind = flotilla_file_reference.owner_kind
        and unsent.owner_id = flotilla_file_reference.owner_id and unsent.hash = flotilla_file_reference.hash) and token is not null and exists (select 1 from flotilla_task task
    where task.task_id = flotilla_file_reference.owner_id and task.claim_token = flotilla_file_reference.token and task.status in ('pending', 'claimed', 'completed'))
-- values: [3600000,"[[\"session\",\"session-1\",\"abababababababababababababababababababababababababababababababab\"]]"]

  update flotilla_file set unused_at = now_ms()
  where file_id in (select file_id from flotilla_file_reference where kept = 0 and at < now_ms() - ?
and exists (select 1 from (select value ->> 0 as owner_kind, value ->> 1 as owner_id, value ->> 2 as hash from jsonb_each(?)) unsent
  where unsent.owner_kind = flotilla_file_reference.owner_kind
    and unsent.owner_id = flotilla_file_reference.owner_id and unsent.hash = flotilla_file_reference.hash))
-- values: [3600000,"[[\"session\",\"session-1\",\"abababababababababababababababababababababababababababababababab\"]]"]

delete from flotilla_file_reference where kept = 0 and at < now_ms() - ?
    and exists (select 1 from (select value ->> 0 as owner_kind, value ->> 1 as owner_id, value ->> 2 as hash from jsonb_each(?)) unsent
      where unsent.owner_kind = flotilla_file_reference.owner_kind
        and unsent.owner_id = flotilla_file_reference.owner_id and unsent.hash = flotilla_file_reference.hash)
-- values: [3600000,"[[\"session\",\"session-1\",\"abababababababababababababababababababababababababababababababab\"]]"]

-- src/files/sql/files.ts: readReferringOwners
select distinct reference.owner_id, case when owner.task_id is null then 1 else 0 end as deleted
from flotilla_file_reference reference
left join flotilla_task owner on owner.task_id = reference.owner_id
where reference.owner_kind = ? and reference.owner_id > ?
order by reference.owner_id limit cast(? as integer)
-- values: ["task","",500]

-- src/files/sql/files.ts: dropReferencesToOthers
  update flotilla_file set unused_at = now_ms()
  where file_id in (select file_id from flotilla_file_reference where owner_kind = 'session' and owner_id = ?

and exists (select 1 from flotilla_file other
  where other.file_id = flotilla_file_reference.file_id and other.tenant <> ?))
-- values: ["session-1","acme"]

delete from flotilla_file_reference where owner_kind = 'session' and owner_id = ?

    and exists (select 1 from flotilla_file other
      where other.file_id = flotilla_file_reference.file_id and other.tenant <> ?)
-- values: ["session-1","acme"]

-- src/files/sql/files.ts: dropReferences
update flotilla_file set unused_at = now_ms()
where file_id in (select file_id from flotilla_file_reference where owner_id = 'task-1')

delete from flotilla_file_reference where owner_id = 'task-1'

-- src/files/sql/files.ts: findUnused
select file_id from flotilla_file
where unused_at is not null and unused_at < now_ms() - ?
order by unused_at limit cast(? as integer)
-- values: [3600000,500]

-- src/files/sql/files.ts: deleteUnused
select tenant from flotilla_file_count
where tenant in (select tenant from flotilla_file where file_id in (select file_id from (select value ->> 0 as file_id from jsonb_each(?)) found)) order by tenant
-- values: ["[[\"file-1\"]]"]

select file_id from flotilla_file where file_id in (select file_id from (select value ->> 0 as file_id from jsonb_each(?)) found) order by file_id
-- values: ["[[\"file-1\"]]"]

  insert into flotilla_file_remnant (file_id, place, closed)
  select file_id, place, 1 from flotilla_file
  where file_id in (select file_id from (select value ->> 0 as file_id from jsonb_each(?)) found) and unused_at < now_ms() - ? and not exists (select 1 from flotilla_file_reference reference
where reference.file_id = flotilla_file.file_id)
  on conflict (file_id) do nothing
-- values: ["[[\"file-1\"]]",3600000]

  update flotilla_file_count set
    files = files - (select count(*) from (select tenant, size from flotilla_file
where file_id in (select file_id from (select value ->> 0 as file_id from jsonb_each(?)) found) and exists (select 1 from flotilla_file_remnant remnant
  where remnant.file_id = flotilla_file.file_id)) gone
      where gone.tenant = flotilla_file_count.tenant),
    bytes = bytes - (select coalesce(sum(gone.size), 0) from (select tenant, size from flotilla_file
where file_id in (select file_id from (select value ->> 0 as file_id from jsonb_each(?)) found) and exists (select 1 from flotilla_file_remnant remnant
  where remnant.file_id = flotilla_file.file_id)) gone
      where gone.tenant = flotilla_file_count.tenant)
  where tenant in (select gone.tenant from (select tenant, size from flotilla_file
where file_id in (select file_id from (select value ->> 0 as file_id from jsonb_each(?)) found) and exists (select 1 from flotilla_file_remnant remnant
  where remnant.file_id = flotilla_file.file_id)) gone)
-- values: ["[[\"file-1\"]]","[[\"file-1\"]]","[[\"file-1\"]]"]

delete from flotilla_file where file_id in (select file_id from (select value ->> 0 as file_id from jsonb_each(?)) found)
  and exists (select 1 from flotilla_file_remnant remnant where remnant.file_id = flotilla_file.file_id)
-- values: ["[[\"file-1\"]]"]

update flotilla_file set unused_at = null where file_id in (select file_id from (select value ->> 0 as file_id from jsonb_each(?)) found) and exists (select 1 from flotilla_file_reference reference
    where reference.file_id = flotilla_file.file_id)
-- values: ["[[\"file-1\"]]"]

-- src/files/sql/files.ts: closeRemnants
update flotilla_file_remnant set closed = 1 where closed = 0 and began_at < now_ms() - ?
-- values: [3600000]

-- src/files/sql/files.ts: closeRemnant
update flotilla_file_remnant set closed = 1 where file_id = ?
-- values: ["file-1"]

select file_id from (select value ->> 0 as file_id from jsonb_each(?)) failed
where not exists (select 1 from flotilla_file file where file.file_id = failed.file_id)
-- values: ["[[\"file-1\"]]"]

-- src/files/sql/files.ts: findClosed
select file_id, place from flotilla_file_remnant
where closed = 1 and file_id > ? and place in (select place from (select value ->> 0 as place from jsonb_each(?)) known)
order by file_id limit cast(? as integer)
-- values: ["","[[\"store\"],[\"folder\"]]",100]

-- src/files/sql/files.ts: copyReferences
select tenant from flotilla_file_count where tenant = ?
-- values: ["acme"]

insert into flotilla_file_reference (owner_kind, owner_id, hash, file_id, size, metadata, kept)
select 'session', ?, hash, file_id, size, metadata, 1
from flotilla_file_reference reference
where reference.owner_kind = ? and reference.owner_id = ? and 1 = 1
  and not exists (select 1 from flotilla_session session
    where session.session_id = ?)
on conflict (owner_kind, owner_id, hash) do update set kept = 1
-- values: ["session-2","session","session-1","session-2"]

-- src/files/sql/files.ts: deleteParts
delete from flotilla_file_part where file_id = ?
  and exists (select 1 from flotilla_file_remnant remnant
    where remnant.file_id = flotilla_file_part.file_id and remnant.closed = 1)
-- values: ["file-1"]

-- src/files/sql/files.ts: dropRemnant
delete from flotilla_file_remnant where file_id = ? and closed = 1
-- values: ["file-1"]

-- src/files/sql/task-links.ts: lockSources
select hash from flotilla_file_reference source
where owner_id in (select from_id from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as hash, value ->> 3 as from_kind, value ->> 4 as from_id from jsonb_each(?)) wanted)
  and exists (select 1 from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as hash, value ->> 3 as from_kind, value ->> 4 as from_id from jsonb_each(?)) wanted where wanted.from_kind = source.owner_kind
    and wanted.from_id = source.owner_id and wanted.hash = source.hash)
order by owner_kind, owner_id, hash
-- values: ["[[\"task-1\",\"acme\",\"abababababababababababababababababababababababababababababababab\",\"upload\",\"upload-1\"]]","[[\"task-1\",\"acme\",\"abababababababababababababababababababababababababababababababab\",\"upload\",\"upload-1\"]]"]

-- src/files/sql/task-links.ts: haveSources
select 1 from task where not exists (select 1 from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as hash, value ->> 3 as from_kind, value ->> 4 as from_id from jsonb_each(?)) wanted
    where not exists (select 1 from flotilla_file_reference source where source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
  and source.hash = wanted.hash and exists (select 1 from flotilla_file file
    where file.file_id = source.file_id and file.tenant = wanted.tenant)))
-- values: ["[[\"task-1\",\"acme\",\"abababababababababababababababababababababababababababababababab\",\"upload\",\"upload-1\"]]"]

-- src/files/sql/task-links.ts: linkFiles
  insert into flotilla_file_reference as referring
    (owner_kind, owner_id, hash, file_id, size, metadata, kept)
  select distinct 'task', wanted.task_id, source.hash, source.file_id, source.size, source.metadata, 1
  from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as hash, value ->> 3 as from_kind, value ->> 4 as from_id from jsonb_each(?)) wanted join flotilla_file_reference source on source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
and source.hash = wanted.hash and exists (select 1 from flotilla_file file
  where file.file_id = source.file_id and file.tenant = wanted.tenant)
  where wanted.task_id = (select task_id from flotilla_task where task_id = wanted.task_id)
  on conflict (owner_kind, owner_id, hash) do update set kept = 1, token = null
-- values: ["[[\"task-1\",\"acme\",\"abababababababababababababababababababababababababababababababab\",\"upload\",\"upload-1\"]]"]

-- src/files/sql/task-links.ts: findUnlinked
  select wanted.task_id, wanted.hash from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as hash, value ->> 3 as from_kind, value ->> 4 as from_id from jsonb_each(?)) wanted
  where not exists (select 1 from flotilla_file_reference source where source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
and source.hash = wanted.hash and exists (select 1 from flotilla_file file
  where file.file_id = source.file_id and file.tenant = wanted.tenant))
    and not exists (select 1 from flotilla_task task where task.task_id = wanted.task_id)
-- values: ["[[\"task-1\",\"acme\",\"abababababababababababababababababababababababababababababababab\",\"upload\",\"upload-1\"]]"]

-- src/files/sql/task-links.ts: replaceFiles
update flotilla_file set unused_at = now_ms()
where file_id in (select file_id from flotilla_file_reference where owner_kind = 'task'
and owner_id in (select task_id from (select 'task-0' as task_id, 'task-1' as new_id) holder))

delete from flotilla_file_reference where owner_kind = 'task'
      and owner_id in (select task_id from (select 'task-0' as task_id, 'task-1' as new_id) holder)

    insert into flotilla_file_reference as referring
      (owner_kind, owner_id, hash, file_id, size, metadata, kept)
    select distinct 'task', holder.task_id, source.hash, source.file_id, source.size,
      source.metadata, 1
    from (select 'task-0' as task_id, 'task-1' as new_id) holder
    join (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as hash, value ->> 3 as from_kind, value ->> 4 as from_id from jsonb_each(?)) wanted on wanted.task_id = holder.new_id
    join flotilla_file_reference source on source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
and source.hash = wanted.hash and exists (select 1 from flotilla_file file
  where file.file_id = source.file_id and file.tenant = wanted.tenant)
    where 1 = 1
    on conflict (owner_kind, owner_id, hash) do update set kept = 1, token = null
-- values: ["[[\"task-1\",\"acme\",\"abababababababababababababababababababababababababababababababab\",\"upload\",\"upload-1\"]]"]

-- src/files/sql/task-links.ts: copyTaskFiles
insert into flotilla_file_reference as referring
  (owner_kind, owner_id, hash, file_id, size, metadata, kept)
select 'task', wanted.to_id, source.hash, source.file_id, source.size, source.metadata, 1
from (select value ->> 0 as from_id, value ->> 1 as to_id from jsonb_each(?)) wanted join flotilla_file_reference source
  on source.owner_kind = 'task' and source.owner_id = wanted.from_id and source.kept = 1
where wanted.to_id = (select task_id from flotilla_task where task_id = wanted.to_id)
on conflict (owner_kind, owner_id, hash) do nothing
-- values: ["[[\"task-1\",\"task-2\"]]"]
