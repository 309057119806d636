-- src/files/sql/files.ts: beginUpload
insert into flotilla.file_count as counted (tenant) values ($1)
on conflict (tenant) do update set files = counted.files
-- values: ["acme"]

insert into flotilla.file_remnant (file_id, place)
select file_id, place from (select file_id collate "C" as file_id, place collate "C" as place from unnest($1::text[], $2::text[]) as each_row (file_id, place)) fresh
where not exists (select 1 from flotilla.file file where file.file_id = fresh.file_id)
on conflict (file_id) do nothing
-- values: ["{\"file-1\"}","{\"store\"}"]

select began_at from flotilla.file_remnant where file_id = $1
-- values: ["file-1"]

-- src/files/sql/files.ts: insertPart
insert into flotilla.file_part (file_id, part, body)
select remnant.file_id, (select part from (select part from unnest($1::bigint[]) as each_row (part)) fresh), $2
from flotilla.file_remnant remnant
where remnant.file_id = $3 and remnant.closed = 0
for update
on conflict (file_id, part) do nothing
-- values: ["{0}","AAAA","file-1"]

-- src/files/sql/files.ts: readPart
select body from flotilla.file_part where file_id = $1 and part = $2
-- values: ["file-1",0]

-- src/files/sql/files.ts: finishUpload
insert into flotilla.file_count as counted (tenant) values ($1)
on conflict (tenant) do update set files = counted.files
-- values: ["acme"]

select file_id from flotilla.file_remnant where file_id = $1 for update
-- values: ["file-1"]

  update flotilla.file set unused_at = now_ms()
  where file_id = any(array(select file_id from flotilla.file_reference where owner_kind = 'session' and owner_id = $1
and hash = $2
and exists (select 1 from flotilla.file other
  where other.file_id = flotilla.file_reference.file_id and other.tenant <> $3)))
-- values: ["session-1","abababababababababababababababababababababababababababababababab","acme"]

delete from flotilla.file_reference where owner_kind = 'session' and owner_id = $1
    and hash = $2
    and exists (select 1 from flotilla.file other
      where other.file_id = flotilla.file_reference.file_id and other.tenant <> $3)
-- values: ["session-1","abababababababababababababababababababababababababababababababab","acme"]

  insert into flotilla.file (file_id, tenant, hash, size, place)
  select file_id, tenant, hash, size, place from (select file_id collate "C" as file_id, tenant collate "C" as tenant, hash collate "C" as hash, size, place collate "C" as place from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[]) as each_row (file_id, tenant, hash, size, place)) fresh
  where exists (select 1 from flotilla.file_remnant remnant
where remnant.file_id = $6 and remnant.closed = 0 and remnant.began_at = $7) and exists (select 1 from flotilla.file_count counted
where counted.tenant = $8 and counted.files < $9
  and counted.bytes + $10 <= $11) and (exists (select 1 from flotilla.file_reference reference
where reference.owner_kind = $12 and reference.owner_id = $13 and reference.hash = $14) or (select count(*) < $15
      and coalesce(sum(reference.size), 0) + $16 <= $17
    from flotilla.file_reference reference where reference.owner_kind = $18 and reference.owner_id = $19))
  on conflict do nothing
-- values: ["{\"file-1\"}","{\"acme\"}","{\"abababababababababababababababababababababababababababababababab\"}","{300000}","{\"store\"}","file-1",1764000000000,"acme",100,300000,10000,"session","session-1","abababababababababababababababababababababababababababababababab",10,300000,1000,"session","session-1"]

  insert into flotilla.file_reference as referring
    (owner_kind, owner_id, hash, file_id, size, metadata, kept, token)
  select $1, $2, file.hash, file.file_id, file.size,
    $3, cast($4 as integer), cast($5 as bigint)
  from flotilla.file file
  where file.tenant = $6 and file.hash = $7 and (exists (select 1 from flotilla.file_reference reference
where reference.owner_kind = $8 and reference.owner_id = $9 and reference.hash = $10) or (select count(*) < $11
      and coalesce(sum(reference.size), 0) + $12 <= $13
    from flotilla.file_reference reference where reference.owner_kind = $14 and reference.owner_id = $15))
  on conflict (owner_kind, owner_id, hash) do update
  set at = excluded.at,
    kept = case when excluded.kept = 1 then 1 else referring.kept end,
    token = case when excluded.kept = 1 or referring.kept = 1 then null
      when referring.token > excluded.token then referring.token
      else excluded.token end
-- values: ["session","session-1","{\"mediaType\":\"image/png\"}",0,null,"acme","abababababababababababababababababababababababababababababababab","session","session-1","abababababababababababababababababababababababababababababababab",10,300000,1000,"session","session-1"]

  update flotilla.file_count set files = files + 1, bytes = bytes + $1
  where tenant = $2 and exists (select 1 from flotilla.file_remnant remnant
where remnant.file_id = $3 and remnant.closed = 0 and remnant.began_at = $4)
    and exists (select 1 from flotilla.file file where file.file_id = $5)
-- values: [300000,"acme","file-1",1764000000000,"file-1"]

delete from flotilla.file_remnant where file_id = $1
  and exists (select 1 from flotilla.file file where file.file_id = $2)
-- values: ["file-1","file-1"]

  select (select file_id from flotilla.file file where file.tenant = $1 and file.hash = $2)
      as file_id,
    case when exists (select 1 from flotilla.file_reference reference
where reference.owner_kind = $3 and reference.owner_id = $4 and reference.hash = $5) then 1 else 0 end as referred,
    case when (select count(*) < $6
      and coalesce(sum(reference.size), 0) + $7 <= $8
    from flotilla.file_reference reference where reference.owner_kind = $9 and reference.owner_id = $10) then 1 else 0 end as fits_owner,
    case when exists (select 1 from flotilla.file_count counted
where counted.tenant = $11 and counted.files < $12
  and counted.bytes + $13 <= $14) then 1 else 0 end as fits_tenant
  from flotilla.file_count counted where counted.tenant = $15
-- values: ["acme","abababababababababababababababababababababababababababababababab","session","session-1","abababababababababababababababababababababababababababababababab",10,300000,1000,"session","session-1","acme",100,300000,10000,"acme"]

-- src/files/sql/files.ts: readUsed
select count(*) as owner_files, coalesce(sum(size), 0) as owner_bytes
from flotilla.file_reference reference where reference.owner_kind = $1 and reference.owner_id = $2
-- values: ["session","session-1"]

-- src/files/sql/files.ts: keepReferences
update flotilla.file_reference set kept = 1 where owner_kind = 'session' and owner_id = $1
    and hash = any(array(select hash from (select hash collate "C" as hash from unnest($2::text[]) as each_row (hash)) wanted))
    and exists (select 1 from flotilla.file file
      where file.file_id = flotilla.file_reference.file_id and file.tenant = $3)
-- values: ["session-1","{\"abababababababababababababababababababababababababababababababab\"}","acme"]

select hash, size, metadata from flotilla.file_reference where owner_kind = 'session' and owner_id = $1
    and hash = any(array(select hash from (select hash collate "C" as hash from unnest($2::text[]) as each_row (hash)) wanted))
    and exists (select 1 from flotilla.file file
      where file.file_id = flotilla.file_reference.file_id and file.tenant = $3)
-- values: ["session-1","{\"abababababababababababababababababababababababababababababababab\"}","acme"]

-- src/files/sql/files.ts: readReferences
select reference.owner_kind, reference.owner_id, reference.hash, reference.size,
  reference.metadata, file.tenant
from (select owner_kind collate "C" as owner_kind, owner_id collate "C" as owner_id from unnest($1::text[], $2::text[]) as each_row (owner_kind, owner_id)) owner
join flotilla.file_reference reference
  on reference.owner_kind = owner.owner_kind and reference.owner_id = owner.owner_id
join flotilla.file file on file.file_id = reference.file_id
where reference.hash = any(array(select hash from (select hash collate "C" as hash from unnest($3::text[]) as each_row (hash)) wanted))
-- values: ["{\"session\"}","{\"session-1\"}","{\"abababababababababababababababababababababababababababababababab\"}"]

-- src/files/sql/files.ts: readReference
select reference.hash, reference.size, reference.metadata, reference.file_id,
  file.place, file.tenant
from flotilla.file_reference reference
join flotilla.file file on file.file_id = reference.file_id
where reference.owner_kind = $1 and reference.owner_id = $2 and reference.hash = $3
-- values: ["session","session-1","abababababababababababababababababababababababababababababababab"]

-- src/files/sql/files.ts: deleteReferencesOf
update flotilla.file set unused_at = now_ms()
where file_id = any(array(select file_id from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select 'session-1'))))
-- values: ["session"]

delete from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select 'session-1'))
-- values: ["session"]

-- src/files/sql/files.ts: deleteReferencesAmong
update flotilla.file set unused_at = now_ms()
where file_id = any(array(select file_id from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select owner_id from (select owner_id collate "C" as owner_id from unnest($2::text[]) as each_row (owner_id)) gone))))
-- values: ["task","{\"session-1\"}"]

delete from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select owner_id from (select owner_id collate "C" as owner_id from unnest($2::text[]) as each_row (owner_id)) gone))
-- values: ["task","{\"session-1\"}"]

-- src/files/sql/files.ts: findUnsent
select owner_kind, owner_id, hash from flotilla.file_reference
where kept = 0 and at < now_ms() - $1 order by at limit cast($2 as integer)
-- values: [3600000,500]

-- src/files/sql/files.ts: dropUnsent
update flotilla.file_reference set kept = 1, token = null
      where kept = 0 and at < now_ms() - $1
    and exists (select 1 from (select owner_kind collate "C" as owner_kind, owner_id collate "C" as owner_id, hash collate "C" as hash from unnest($2::text[], $3::text[], $4::text[]) as each_row (owner_kind, owner_id, hash)) unsent
      where unsent.owner_kind = flotilla.file_reference.owner_kind
        and unsent.owner_id = flotilla.file_reference.owner_id and unsent.hash = flotilla.file_reference.hash) and token is not null and exists (select 1 from flotilla.task task
    where task.task_id = flotilla.file_reference.owner_id and task.claim_token = flotilla.file_reference.token and task.status = 'completed')
-- values: [3600000,"{\"session\"}","{\"session-1\"}","{\"abababababababababababababababababababababababababababababababab\"}"]

update flotilla.file_reference set at = now_ms()
      where kept = 0 and at < now_ms() - $1
    and exists (select 1 from (select owner_kind collate "C" as owner_kind, owner_id collate "C" as owner_id, hash collate "C" as hash from unnest($2::text[], $3::text[], $4::text[]) as each_row (owner_kind, owner_id, hash)) unsent
      where unsent.owner_kind = flotilla.file_reference.owner_kind
        and unsent.owner_id = flotilla.file_reference.owner_id and unsent.hash = flotilla.file_reference.hash) and token is not null and exists (select 1 from flotilla.task task
    where task.task_id = flotilla.file_reference.owner_id and task.claim_token = flotilla.file_reference.token and task.status in ('pending', 'claimed', 'completed'))
-- values: [3600000,"{\"session\"}","{\"session-1\"}","{\"abababababababababababababababababababababababababababababababab\"}"]

  update flotilla.file set unused_at = now_ms()
  where file_id = any(array(select file_id from flotilla.file_reference where kept = 0 and at < now_ms() - $1
and exists (select 1 from (select owner_kind collate "C" as owner_kind, owner_id collate "C" as owner_id, hash collate "C" as hash from unnest($2::text[], $3::text[], $4::text[]) as each_row (owner_kind, owner_id, hash)) unsent
  where unsent.owner_kind = flotilla.file_reference.owner_kind
    and unsent.owner_id = flotilla.file_reference.owner_id and unsent.hash = flotilla.file_reference.hash)))
-- values: [3600000,"{\"session\"}","{\"session-1\"}","{\"abababababababababababababababababababababababababababababababab\"}"]

delete from flotilla.file_reference where kept = 0 and at < now_ms() - $1
    and exists (select 1 from (select owner_kind collate "C" as owner_kind, owner_id collate "C" as owner_id, hash collate "C" as hash from unnest($2::text[], $3::text[], $4::text[]) as each_row (owner_kind, owner_id, hash)) unsent
      where unsent.owner_kind = flotilla.file_reference.owner_kind
        and unsent.owner_id = flotilla.file_reference.owner_id and unsent.hash = flotilla.file_reference.hash)
-- values: [3600000,"{\"session\"}","{\"session-1\"}","{\"abababababababababababababababababababababababababababababababab\"}"]

-- src/files/sql/files.ts: readReferringOwners
select distinct reference.owner_id, case when owner.task_id is null then 1 else 0 end as deleted
from flotilla.file_reference reference
left join flotilla.task owner on owner.task_id = reference.owner_id
where reference.owner_kind = $1 and reference.owner_id > $2
order by reference.owner_id limit cast($3 as integer)
-- values: ["task","",500]

-- src/files/sql/files.ts: dropReferencesToOthers
  update flotilla.file set unused_at = now_ms()
  where file_id = any(array(select file_id from flotilla.file_reference where owner_kind = 'session' and owner_id = $1

and exists (select 1 from flotilla.file other
  where other.file_id = flotilla.file_reference.file_id and other.tenant <> $2)))
-- values: ["session-1","acme"]

delete from flotilla.file_reference where owner_kind = 'session' and owner_id = $1

    and exists (select 1 from flotilla.file other
      where other.file_id = flotilla.file_reference.file_id and other.tenant <> $2)
-- values: ["session-1","acme"]

-- src/files/sql/files.ts: dropReferences
update flotilla.file set unused_at = now_ms()
where file_id = any(array(select file_id from flotilla.file_reference where owner_id = 'task-1'))

delete from flotilla.file_reference where owner_id = 'task-1'

-- src/files/sql/files.ts: findUnused
select file_id from flotilla.file
where unused_at is not null and unused_at < now_ms() - $1
order by unused_at limit cast($2 as integer)
-- values: [3600000,500]

-- src/files/sql/files.ts: deleteUnused
select tenant from flotilla.file_count
where tenant in (select tenant from flotilla.file where file_id = any(array(select file_id from (select file_id collate "C" as file_id from unnest($1::text[]) as each_row (file_id)) found))) order by tenant for update
-- values: ["{\"file-1\"}"]

select file_id from flotilla.file where file_id = any(array(select file_id from (select file_id collate "C" as file_id from unnest($1::text[]) as each_row (file_id)) found)) order by file_id for update
-- values: ["{\"file-1\"}"]

  insert into flotilla.file_remnant (file_id, place, closed)
  select file_id, place, 1 from flotilla.file
  where file_id = any(array(select file_id from (select file_id collate "C" as file_id from unnest($1::text[]) as each_row (file_id)) found)) and unused_at < now_ms() - $2 and not exists (select 1 from flotilla.file_reference reference
where reference.file_id = flotilla.file.file_id)
  on conflict (file_id) do nothing
-- values: ["{\"file-1\"}",3600000]

  update flotilla.file_count set
    files = files - (select count(*) from (select tenant, size from flotilla.file
where file_id = any(array(select file_id from (select file_id collate "C" as file_id from unnest($1::text[]) as each_row (file_id)) found)) and exists (select 1 from flotilla.file_remnant remnant
  where remnant.file_id = flotilla.file.file_id)) gone
      where gone.tenant = flotilla.file_count.tenant),
    bytes = bytes - (select coalesce(sum(gone.size), 0) from (select tenant, size from flotilla.file
where file_id = any(array(select file_id from (select file_id collate "C" as file_id from unnest($2::text[]) as each_row (file_id)) found)) and exists (select 1 from flotilla.file_remnant remnant
  where remnant.file_id = flotilla.file.file_id)) gone
      where gone.tenant = flotilla.file_count.tenant)
  where tenant in (select gone.tenant from (select tenant, size from flotilla.file
where file_id = any(array(select file_id from (select file_id collate "C" as file_id from unnest($3::text[]) as each_row (file_id)) found)) and exists (select 1 from flotilla.file_remnant remnant
  where remnant.file_id = flotilla.file.file_id)) gone)
-- values: ["{\"file-1\"}","{\"file-1\"}","{\"file-1\"}"]

delete from flotilla.file where file_id = any(array(select file_id from (select file_id collate "C" as file_id from unnest($1::text[]) as each_row (file_id)) found))
  and exists (select 1 from flotilla.file_remnant remnant where remnant.file_id = flotilla.file.file_id)
-- values: ["{\"file-1\"}"]

update flotilla.file set unused_at = null where file_id = any(array(select file_id from (select file_id collate "C" as file_id from unnest($1::text[]) as each_row (file_id)) found)) and exists (select 1 from flotilla.file_reference reference
    where reference.file_id = flotilla.file.file_id)
-- values: ["{\"file-1\"}"]

-- src/files/sql/files.ts: closeRemnants
update flotilla.file_remnant set closed = 1 where closed = 0 and began_at < now_ms() - $1
-- values: [3600000]

-- src/files/sql/files.ts: closeRemnant
update flotilla.file_remnant set closed = 1 where file_id = $1
-- values: ["file-1"]

select file_id from (select file_id collate "C" as file_id from unnest($1::text[]) as each_row (file_id)) failed
where not exists (select 1 from flotilla.file file where file.file_id = failed.file_id)
-- values: ["{\"file-1\"}"]

-- src/files/sql/files.ts: findClosed
select file_id, place from flotilla.file_remnant
where closed = 1 and file_id > $1 and place in (select place from (select place collate "C" as place from unnest($2::text[]) as each_row (place)) known)
order by file_id limit cast($3 as integer)
-- values: ["","{\"store\",\"folder\"}",100]

-- src/files/sql/files.ts: copyReferences
select tenant from flotilla.file_count where tenant = $1 for update
-- values: ["acme"]

insert into flotilla.file_reference (owner_kind, owner_id, hash, file_id, size, metadata, kept)
select 'session', $1, hash, file_id, size, metadata, 1
from flotilla.file_reference reference
where reference.owner_kind = $2 and reference.owner_id = $3 and 1 = 1
  and not exists (select 1 from flotilla.session session
    where session.session_id = $4)
on conflict (owner_kind, owner_id, hash) do update set kept = 1
-- values: ["session-2","session","session-1","session-2"]

-- src/files/sql/files.ts: deleteParts
delete from flotilla.file_part where file_id = $1
  and exists (select 1 from flotilla.file_remnant remnant
    where remnant.file_id = flotilla.file_part.file_id and remnant.closed = 1)
-- values: ["file-1"]

-- src/files/sql/files.ts: dropRemnant
delete from flotilla.file_remnant where file_id = $1 and closed = 1
-- values: ["file-1"]

-- src/files/sql/task-links.ts: lockSources
select hash from flotilla.file_reference source
where owner_id = any(array(select from_id from (select task_id collate "C" as task_id, tenant collate "C" as tenant, hash collate "C" as hash, from_kind collate "C" as from_kind, from_id collate "C" as from_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (task_id, tenant, hash, from_kind, from_id)) wanted))
  and exists (select 1 from (select task_id collate "C" as task_id, tenant collate "C" as tenant, hash collate "C" as hash, from_kind collate "C" as from_kind, from_id collate "C" as from_id from unnest($6::text[], $7::text[], $8::text[], $9::text[], $10::text[]) as each_row (task_id, tenant, hash, from_kind, from_id)) wanted where wanted.from_kind = source.owner_kind
    and wanted.from_id = source.owner_id and wanted.hash = source.hash)
order by owner_kind, owner_id, hash for update
-- values: ["{\"task-1\"}","{\"acme\"}","{\"abababababababababababababababababababababababababababababababab\"}","{\"upload\"}","{\"upload-1\"}","{\"task-1\"}","{\"acme\"}","{\"abababababababababababababababababababababababababababababababab\"}","{\"upload\"}","{\"upload-1\"}"]

-- src/files/sql/task-links.ts: haveSources
select 1 from task where not exists (select 1 from (select task_id collate "C" as task_id, tenant collate "C" as tenant, hash collate "C" as hash, from_kind collate "C" as from_kind, from_id collate "C" as from_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (task_id, tenant, hash, from_kind, from_id)) wanted
    where not exists (select 1 from flotilla.file_reference source where source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
  and source.hash = wanted.hash and exists (select 1 from flotilla.file file
    where file.file_id = source.file_id and file.tenant = wanted.tenant)))
-- values: ["{\"task-1\"}","{\"acme\"}","{\"abababababababababababababababababababababababababababababababab\"}","{\"upload\"}","{\"upload-1\"}"]

-- src/files/sql/task-links.ts: linkFiles
  insert into flotilla.file_reference as referring
    (owner_kind, owner_id, hash, file_id, size, metadata, kept)
  select distinct 'task', wanted.task_id, source.hash, source.file_id, source.size, source.metadata, 1
  from (select task_id collate "C" as task_id, tenant collate "C" as tenant, hash collate "C" as hash, from_kind collate "C" as from_kind, from_id collate "C" as from_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (task_id, tenant, hash, from_kind, from_id)) wanted join flotilla.file_reference source on source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
and source.hash = wanted.hash and exists (select 1 from flotilla.file file
  where file.file_id = source.file_id and file.tenant = wanted.tenant)
  where wanted.task_id = (select task_id from flotilla.task where task_id = wanted.task_id)
  on conflict (owner_kind, owner_id, hash) do update set kept = 1, token = null
-- values: ["{\"task-1\"}","{\"acme\"}","{\"abababababababababababababababababababababababababababababababab\"}","{\"upload\"}","{\"upload-1\"}"]

-- src/files/sql/task-links.ts: findUnlinked
  select wanted.task_id, wanted.hash from (select task_id collate "C" as task_id, tenant collate "C" as tenant, hash collate "C" as hash, from_kind collate "C" as from_kind, from_id collate "C" as from_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (task_id, tenant, hash, from_kind, from_id)) wanted
  where not exists (select 1 from flotilla.file_reference source where source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
and source.hash = wanted.hash and exists (select 1 from flotilla.file file
  where file.file_id = source.file_id and file.tenant = wanted.tenant))
    and not exists (select 1 from flotilla.task task where task.task_id = wanted.task_id)
-- values: ["{\"task-1\"}","{\"acme\"}","{\"abababababababababababababababababababababababababababababababab\"}","{\"upload\"}","{\"upload-1\"}"]

-- src/files/sql/task-links.ts: replaceFiles
update flotilla.file set unused_at = now_ms()
where file_id = any(array(select file_id from flotilla.file_reference where owner_kind = 'task'
and owner_id = any(array(select task_id from (select 'task-0' as task_id, 'task-1' as new_id) holder))))

delete from flotilla.file_reference where owner_kind = 'task'
      and owner_id = any(array(select task_id from (select 'task-0' as task_id, 'task-1' as new_id) holder))

    insert into flotilla.file_reference as referring
      (owner_kind, owner_id, hash, file_id, size, metadata, kept)
    select distinct 'task', holder.task_id, source.hash, source.file_id, source.size,
      source.metadata, 1
    from (select 'task-0' as task_id, 'task-1' as new_id) holder
    join (select task_id collate "C" as task_id, tenant collate "C" as tenant, hash collate "C" as hash, from_kind collate "C" as from_kind, from_id collate "C" as from_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (task_id, tenant, hash, from_kind, from_id)) wanted on wanted.task_id = holder.new_id
    join flotilla.file_reference source on source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
and source.hash = wanted.hash and exists (select 1 from flotilla.file file
  where file.file_id = source.file_id and file.tenant = wanted.tenant)
    where 1 = 1
    on conflict (owner_kind, owner_id, hash) do update set kept = 1, token = null
-- values: ["{\"task-1\"}","{\"acme\"}","{\"abababababababababababababababababababababababababababababababab\"}","{\"upload\"}","{\"upload-1\"}"]

-- src/files/sql/task-links.ts: copyTaskFiles
insert into flotilla.file_reference as referring
  (owner_kind, owner_id, hash, file_id, size, metadata, kept)
select 'task', wanted.to_id, source.hash, source.file_id, source.size, source.metadata, 1
from (select from_id collate "C" as from_id, to_id collate "C" as to_id from unnest($1::text[], $2::text[]) as each_row (from_id, to_id)) wanted join flotilla.file_reference source
  on source.owner_kind = 'task' and source.owner_id = wanted.from_id and source.kept = 1
where wanted.to_id = (select task_id from flotilla.task where task_id = wanted.to_id)
on conflict (owner_kind, owner_id, hash) do nothing
-- values: ["{\"task-1\"}","{\"task-2\"}"]
