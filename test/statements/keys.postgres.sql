-- src/keys/sql.ts: nextVersion
insert into flotilla.credential_version (id, version) values (1, 1)
on conflict (id) do update set version = flotilla.credential_version.version + 1

-- src/keys/sql.ts: readVersion
select version from flotilla.credential_version where id = 1

-- src/keys/sql.ts: insertKey
insert into flotilla.api_key
  (key_id, hash, name, role, tenant, payloads, created_at, created_by, expires_at, version)
select made.key_id, made.hash, made.name, made.role, made.tenant, made.payloads, now_ms(),
  made.created_by, made.expires_at, (select version from flotilla.credential_version where id = 1)
from (select key_id collate "C" as key_id, hash collate "C" as hash, name collate "C" as name, role collate "C" as role, tenant collate "C" as tenant, payloads, created_by collate "C" as created_by, expires_at from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[]) as each_row (key_id, hash, name, role, tenant, payloads, created_by, expires_at)) made
where (select count(*) from (select 1 from flotilla.api_key limit cast($9 as integer)) counted) < $10
on conflict (key_id) do nothing
-- values: ["{\"key-1\"}","{\"0123\"}","{\"ci\"}","{\"operator\"}","{null}","{0}","{\"ada\"}","{9}",100,100]

-- src/keys/sql.ts: insertRotated
insert into flotilla.api_key
  (key_id, hash, name, role, tenant, payloads, created_at, created_by, expires_at, version)
select made.key_id, made.hash, old.name, old.role, old.tenant, old.payloads, now_ms(),
  made.created_by, now_ms() + (old.expires_at - old.created_at), (select version from flotilla.credential_version where id = 1)
from (select old_id collate "C" as old_id, key_id collate "C" as key_id, hash collate "C" as hash, created_by collate "C" as created_by from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (old_id, key_id, hash, created_by)) made join flotilla.api_key old on old.key_id = made.old_id
where old.replaced_by is null and old.revoked_at is null
  and (old.expires_at is null or old.expires_at > now_ms()) and (select count(*) from (select 1 from flotilla.api_key limit cast($5 as integer)) counted) < $6
on conflict (key_id) do nothing
-- values: ["{\"key-1\"}","{\"key-2\"}","{\"4567\"}","{\"ada\"}",100,100]

-- src/keys/sql.ts: expireRotated
update flotilla.api_key set replaced_by = $1, version = (select version from flotilla.credential_version where id = 1),
  expires_at = case when expires_at < now_ms() + $2 then expires_at
    else now_ms() + $3 end
where key_id = $4 and replaced_by is null
  and exists (select 1 from flotilla.api_key made where made.key_id = $5)
-- values: ["key-2",60000,60000,"key-1","key-2"]

-- src/keys/sql.ts: revokeKey
update flotilla.api_key set revoked_at = now_ms(), version = (select version from flotilla.credential_version where id = 1)
where key_id = $1 and revoked_at is null
-- values: ["key-1"]

-- src/keys/sql.ts: pruneKeys
delete from flotilla.api_key
where revoked_at < now_ms() - $1 or expires_at < now_ms() - $2
-- values: [60000,60000]

-- src/keys/sql.ts: readKeys
  select key_id, name, role, tenant, payloads, created_at, created_by, expires_at,
last_used_at, revoked_at, replaced_by, now_ms() as now_at from flotilla.api_key api_key
  where api_key.key_id = any(array(select wanted.key_id from (select key_id collate "C" as key_id from unnest($1::text[]) as each_row (key_id)) wanted))
-- values: ["{\"key-1\",\"key-2\"}"]

-- src/keys/sql.ts: listKeys
  select key_id, name, role, tenant, payloads, created_at, created_by, expires_at,
last_used_at, revoked_at, replaced_by, now_ms() as now_at from flotilla.api_key
  order by key_id desc limit cast($1 as integer)
-- values: [50]

  select key_id, name, role, tenant, payloads, created_at, created_by, expires_at,
last_used_at, revoked_at, replaced_by, now_ms() as now_at from flotilla.api_key where key_id < $1
  order by key_id desc limit cast($2 as integer)
-- values: ["key-1",50]

-- src/keys/sql.ts: keysSince
select key_id, hash, name, role, tenant, payloads, expires_at, revoked_at from flotilla.api_key
where version > $1
-- values: [3]

-- src/keys/sql.ts: noteUses
update flotilla.api_key set last_used_at = used.at
from (select key_id collate "C" as key_id, at from unnest($1::text[], $2::bigint[]) as each_row (key_id, at)) used
where flotilla.api_key.key_id = used.key_id
  and (flotilla.api_key.last_used_at is null or flotilla.api_key.last_used_at < used.at)
-- values: ["{\"key-1\"}","{5}"]

-- src/keys/sql.ts: insertSignIn
insert into flotilla.sign_in
  (sign_in_id, hash, key_id, binding, key_name, role, tenant, verbs, origin, address, created_at,
    last_used_at, expires_at, version)
select made.sign_in_id, made.hash, made.key_id, made.binding, made.key_name, made.role,
  made.tenant, made.verbs, made.origin, made.address, now_ms(), now_ms(), now_ms() + $1, (select version from flotilla.credential_version where id = 1)
from (select sign_in_id collate "C" as sign_in_id, hash collate "C" as hash, key_id collate "C" as key_id, binding collate "C" as binding, key_name collate "C" as key_name, role collate "C" as role, tenant collate "C" as tenant, verbs collate "C" as verbs, origin collate "C" as origin, address collate "C" as address from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[]) as each_row (sign_in_id, hash, key_id, binding, key_name, role, tenant, verbs, origin, address)) made
where (select count(*) from (select 1 from flotilla.sign_in limit cast($12 as integer)) counted) < $13 and (
  select count(*) from flotilla.sign_in same
  where same.key_name = made.key_name and coalesce(same.key_id, '') = coalesce(made.key_id, '')
    and coalesce(same.tenant, '') = coalesce(made.tenant, '')
    and same.ended_at is null and same.hash <> $14
    and same.expires_at > now_ms()
    and same.last_used_at > now_ms() - $15) < $16
  and (
    select count(*) from flotilla.sign_in kept
    where kept.key_name = made.key_name and coalesce(kept.key_id, '') = coalesce(made.key_id, '')
      and coalesce(kept.tenant, '') = coalesce(made.tenant, '')) < $17
on conflict (sign_in_id) do nothing
-- values: [720000,"{\"sign-in-1\"}","{\"89ab\"}","{\"key-1\"}","{null}","{\"ci\"}","{\"operator\"}","{null}","{\"[]\"}","{\"https://ops.example\"}","{\"10.0.0.1\"}",100,100,"89ab",60000,10,1000]

-- src/keys/sql.ts: endSignIn
update flotilla.sign_in set ended_at = now_ms(), version = (select version from flotilla.credential_version where id = 1)
where sign_in_id = $1 and ended_at is null and 1 = 1
-- values: ["sign-in-1"]

update flotilla.sign_in set ended_at = now_ms(), version = (select version from flotilla.credential_version where id = 1)
where sign_in_id = $1 and ended_at is null and (key_id = $2 or (key_id is null and key_name = $3
        and coalesce(tenant, '') = $4) or sign_in_id = $5)
-- values: ["sign-in-1","key-1","ci","acme","sign-in-1"]

-- src/keys/sql.ts: endReplacedSignIn
update flotilla.sign_in set ended_at = now_ms(), version = (select version from flotilla.credential_version where id = 1)
where hash = $1 and ended_at is null
  and exists (select 1 from flotilla.sign_in where sign_in_id = $2)
-- values: ["89ab","sign-in-1"]

-- src/keys/sql.ts: pruneSignIns
delete from flotilla.sign_in
where ended_at < now_ms() - $1 or expires_at < now_ms() - $2
  or last_used_at < now_ms() - $3
-- values: [60000,60000,120000]

-- src/keys/sql.ts: readSignIn
  select sign_in_id, key_id, key_name, role, tenant, verbs, origin, address, created_at,
last_used_at, expires_at from flotilla.sign_in
  where sign_in_id = $1 and 1 = 1
-- values: ["sign-in-1"]

  select sign_in_id, key_id, key_name, role, tenant, verbs, origin, address, created_at,
last_used_at, expires_at from flotilla.sign_in
  where sign_in_id = $1 and 1 = 0
-- values: ["sign-in-1"]

-- src/keys/sql.ts: listSignIns
  select sign_in_id, key_id, key_name, role, tenant, verbs, origin, address, created_at,
last_used_at, expires_at from flotilla.sign_in
  where ended_at is null and expires_at > now_ms() and last_used_at > now_ms() - $1
    and 1 = 1
  order by sign_in_id desc limit cast($2 as integer)
-- values: [60000,50]

  select sign_in_id, key_id, key_name, role, tenant, verbs, origin, address, created_at,
last_used_at, expires_at from flotilla.sign_in
  where ended_at is null and expires_at > now_ms() and last_used_at > now_ms() - $1
    and (key_id = $2 or (key_id is null and key_name = $3
          and coalesce(tenant, '') = $4) or sign_in_id = $5) and sign_in_id < $6
  order by sign_in_id desc limit cast($7 as integer)
-- values: [60000,"key-1","ci","acme","sign-in-1","sign-in-1",50]

-- src/keys/sql.ts: signInsSince
select sign_in_id, hash, key_id, binding, origin, last_used_at, expires_at, ended_at
from flotilla.sign_in where version > $1
-- values: [3]

-- src/keys/sql.ts: noteSignInUses
update flotilla.sign_in set last_used_at = used.at
from (select sign_in_id collate "C" as sign_in_id, at from unnest($1::text[], $2::bigint[]) as each_row (sign_in_id, at)) used
where flotilla.sign_in.sign_in_id = used.sign_in_id and flotilla.sign_in.last_used_at < used.at
  and flotilla.sign_in.ended_at is null
-- values: ["{\"sign-in-1\"}","{5}"]

-- src/keys/sql.ts: insertRevocation
insert into flotilla.token_revocation
  (kind, tenant, subject, before_at, expires_at, created_by, version)
select made.kind, made.tenant, made.subject, made.before_at, made.expires_at, made.created_by,
  (select version from flotilla.credential_version where id = 1)
from (select kind collate "C" as kind, tenant collate "C" as tenant, subject collate "C" as subject, before_at, expires_at, created_by collate "C" as created_by from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[]) as each_row (kind, tenant, subject, before_at, expires_at, created_by)) made
where (select count(*) from (select 1 from flotilla.token_revocation limit cast($7 as integer)) counted) < $8 or exists (
  select 1 from flotilla.token_revocation same
  where same.kind = made.kind and same.tenant = made.tenant and same.subject = made.subject)
on conflict (kind, tenant, subject) do update
set before_at = case when excluded.before_at > flotilla.token_revocation.before_at then excluded.before_at
  else flotilla.token_revocation.before_at end, expires_at = case when excluded.expires_at > flotilla.token_revocation.expires_at then excluded.expires_at
  else flotilla.token_revocation.expires_at end,
  created_by = excluded.created_by, version = excluded.version
-- values: ["{\"user\"}","{\"default\"}","{\"ada\"}","{5}","{9}","{null}",100,100]

-- src/keys/sql.ts: pruneRevocations
delete from flotilla.token_revocation where expires_at <= now_ms()

-- src/keys/sql.ts: readRevocation
select kind, tenant, subject, before_at, expires_at, created_by from flotilla.token_revocation
where kind = $1 and tenant = $2 and subject = $3
-- values: ["user","default","ada"]

-- src/keys/sql.ts: listRevocations
select kind, tenant, subject, before_at, expires_at, created_by from flotilla.token_revocation
where (kind, tenant, subject) > ($1, $2, $3) and expires_at > now_ms()
order by kind, tenant, subject limit cast($4 as integer)
-- values: ["user","default","ada",50]

-- src/keys/sql.ts: revocationsSince
select kind, tenant, subject, before_at, expires_at from flotilla.token_revocation
where version > $1
-- values: [3]
