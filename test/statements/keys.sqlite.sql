-- src/keys/sql.ts: nextVersion
insert into flotilla_credential_version (id, version) values (1, 1)
on conflict (id) do update set version = flotilla_credential_version.version + 1

-- src/keys/sql.ts: readVersion
select version from flotilla_credential_version where id = 1

-- src/keys/sql.ts: insertKey
insert into flotilla_api_key
  (key_id, hash, name, role, tenant, payloads, created_at, created_by, expires_at, version)
select made.key_id, made.hash, made.name, made.role, made.tenant, made.payloads, now_ms(),
  made.created_by, made.expires_at, (select version from flotilla_credential_version where id = 1)
from (select value ->> 0 as key_id, value ->> 1 as hash, value ->> 2 as name, value ->> 3 as role, value ->> 4 as tenant, value ->> 5 as payloads, value ->> 6 as created_by, value ->> 7 as expires_at from jsonb_each(?)) made
where (select count(*) from (select 1 from flotilla_api_key limit cast(? as integer)) counted) < ?
on conflict (key_id) do nothing
-- values: ["[[\"key-1\",\"0123\",\"ci\",\"operator\",null,0,\"ada\",9]]",100,100]

-- src/keys/sql.ts: insertRotated
insert into flotilla_api_key
  (key_id, hash, name, role, tenant, payloads, created_at, created_by, expires_at, version)
select made.key_id, made.hash, old.name, old.role, old.tenant, old.payloads, now_ms(),
  made.created_by, now_ms() + (old.expires_at - old.created_at), (select version from flotilla_credential_version where id = 1)
from (select value ->> 0 as old_id, value ->> 1 as key_id, value ->> 2 as hash, value ->> 3 as created_by from jsonb_each(?)) made join flotilla_api_key old on old.key_id = made.old_id
where old.replaced_by is null and old.revoked_at is null
  and (old.expires_at is null or old.expires_at > now_ms()) and (select count(*) from (select 1 from flotilla_api_key limit cast(? as integer)) counted) < ?
on conflict (key_id) do nothing
-- values: ["[[\"key-1\",\"key-2\",\"4567\",\"ada\"]]",100,100]

-- src/keys/sql.ts: expireRotated
update flotilla_api_key set replaced_by = ?, version = (select version from flotilla_credential_version where id = 1),
  expires_at = case when expires_at < now_ms() + ? then expires_at
    else now_ms() + ? end
where key_id = ? and replaced_by is null
  and exists (select 1 from flotilla_api_key made where made.key_id = ?)
-- values: ["key-2",60000,60000,"key-1","key-2"]

-- src/keys/sql.ts: revokeKey
update flotilla_api_key set revoked_at = now_ms(), version = (select version from flotilla_credential_version where id = 1)
where key_id = ? and revoked_at is null
-- values: ["key-1"]

-- src/keys/sql.ts: pruneKeys
delete from flotilla_api_key
where revoked_at < now_ms() - ? or expires_at < now_ms() - ?
-- values: [60000,60000]

-- src/keys/sql.ts: readKeys
  select key_id, name, role, tenant, payloads, created_at, created_by, expires_at,
last_used_at, revoked_at, replaced_by, now_ms() as now_at from flotilla_api_key api_key
  where api_key.key_id in (select wanted.key_id from (select value ->> 0 as key_id from jsonb_each(?)) wanted)
-- values: ["[[\"key-1\"],[\"key-2\"]]"]

-- src/keys/sql.ts: listKeys
  select key_id, name, role, tenant, payloads, created_at, created_by, expires_at,
last_used_at, revoked_at, replaced_by, now_ms() as now_at from flotilla_api_key
  order by key_id desc limit cast(? as integer)
-- values: [50]

  select key_id, name, role, tenant, payloads, created_at, created_by, expires_at,
last_used_at, revoked_at, replaced_by, now_ms() as now_at from flotilla_api_key where key_id < ?
  order by key_id desc limit cast(? as integer)
-- values: ["key-1",50]

-- src/keys/sql.ts: keysSince
select key_id, hash, name, role, tenant, payloads, expires_at, revoked_at from flotilla_api_key
where version > ?
-- values: [3]

-- src/keys/sql.ts: noteUses
update flotilla_api_key set last_used_at = used.at
from (select value ->> 0 as key_id, value ->> 1 as at from jsonb_each(?)) used
where flotilla_api_key.key_id = used.key_id
  and (flotilla_api_key.last_used_at is null or flotilla_api_key.last_used_at < used.at)
-- values: ["[[\"key-1\",5]]"]

-- src/keys/sql.ts: insertSignIn
insert into flotilla_sign_in
  (sign_in_id, hash, key_id, binding, key_name, role, tenant, verbs, origin, address, created_at,
    last_used_at, expires_at, version)
select made.sign_in_id, made.hash, made.key_id, made.binding, made.key_name, made.role,
  made.tenant, made.verbs, made.origin, made.address, now_ms(), now_ms(), now_ms() + ?, (select version from flotilla_credential_version where id = 1)
from (select value ->> 0 as sign_in_id, value ->> 1 as hash, value ->> 2 as key_id, value ->> 3 as binding, value ->> 4 as key_name, value ->> 5 as role, value ->> 6 as tenant, value ->> 7 as verbs, value ->> 8 as origin, value ->> 9 as address from jsonb_each(?)) made
where (select count(*) from (select 1 from flotilla_sign_in limit cast(? as integer)) counted) < ? and (
  select count(*) from flotilla_sign_in same
  where same.key_name = made.key_name and coalesce(same.key_id, '') = coalesce(made.key_id, '')
    and coalesce(same.tenant, '') = coalesce(made.tenant, '')
    and same.ended_at is null and same.hash <> ?
    and same.expires_at > now_ms()
    and same.last_used_at > now_ms() - ?) < ?
  and (
    select count(*) from flotilla_sign_in kept
    where kept.key_name = made.key_name and coalesce(kept.key_id, '') = coalesce(made.key_id, '')
      and coalesce(kept.tenant, '') = coalesce(made.tenant, '')) < ?
on conflict (sign_in_id) do nothing
-- values: [720000,"[[\"sign-in-1\",\"89ab\",\"key-1\",null,\"ci\",\"operator\",null,\"[]\",\"https://ops.example\",\"10.0.0.1\"]]",100,100,"89ab",60000,10,1000]

-- src/keys/sql.ts: endSignIn
update flotilla_sign_in set ended_at = now_ms(), version = (select version from flotilla_credential_version where id = 1)
where sign_in_id = ? and ended_at is null and 1 = 1
-- values: ["sign-in-1"]

update flotilla_sign_in set ended_at = now_ms(), version = (select version from flotilla_credential_version where id = 1)
where sign_in_id = ? and ended_at is null and (key_id = ? or (key_id is null and key_name = ?
        and coalesce(tenant, '') = ?) or sign_in_id = ?)
-- values: ["sign-in-1","key-1","ci","acme","sign-in-1"]

-- src/keys/sql.ts: endReplacedSignIn
update flotilla_sign_in set ended_at = now_ms(), version = (select version from flotilla_credential_version where id = 1)
where hash = ? and ended_at is null
  and exists (select 1 from flotilla_sign_in where sign_in_id = ?)
-- values: ["89ab","sign-in-1"]

-- src/keys/sql.ts: pruneSignIns
delete from flotilla_sign_in
where ended_at < now_ms() - ? or expires_at < now_ms() - ?
  or last_used_at < now_ms() - ?
-- values: [60000,60000,120000]

-- src/keys/sql.ts: readSignIn
  select sign_in_id, key_id, key_name, role, tenant, verbs, origin, address, created_at,
last_used_at, expires_at from flotilla_sign_in
  where sign_in_id = ? and 1 = 1
-- values: ["sign-in-1"]

  select sign_in_id, key_id, key_name, role, tenant, verbs, origin, address, created_at,
last_used_at, expires_at from flotilla_sign_in
  where sign_in_id = ? and 1 = 0
-- values: ["sign-in-1"]

-- src/keys/sql.ts: listSignIns
  select sign_in_id, key_id, key_name, role, tenant, verbs, origin, address, created_at,
last_used_at, expires_at from flotilla_sign_in
  where ended_at is null and expires_at > now_ms() and last_used_at > now_ms() - ?
    and 1 = 1
  order by sign_in_id desc limit cast(? as integer)
-- values: [60000,50]

  select sign_in_id, key_id, key_name, role, tenant, verbs, origin, address, created_at,
last_used_at, expires_at from flotilla_sign_in
  where ended_at is null and expires_at > now_ms() and last_used_at > now_ms() - ?
    and (key_id = ? or (key_id is null and key_name = ?
          and coalesce(tenant, '') = ?) or sign_in_id = ?) and sign_in_id < ?
  order by sign_in_id desc limit cast(? as integer)
-- values: [60000,"key-1","ci","acme","sign-in-1","sign-in-1",50]

-- src/keys/sql.ts: signInsSince
select sign_in_id, hash, key_id, binding, origin, last_used_at, expires_at, ended_at
from flotilla_sign_in where version > ?
-- values: [3]

-- src/keys/sql.ts: noteSignInUses
update flotilla_sign_in set last_used_at = used.at
from (select value ->> 0 as sign_in_id, value ->> 1 as at from jsonb_each(?)) used
where flotilla_sign_in.sign_in_id = used.sign_in_id and flotilla_sign_in.last_used_at < used.at
  and flotilla_sign_in.ended_at is null
-- values: ["[[\"sign-in-1\",5]]"]

-- src/keys/sql.ts: insertRevocation
insert into flotilla_token_revocation
  (kind, tenant, subject, before_at, expires_at, created_by, version)
select made.kind, made.tenant, made.subject, made.before_at, made.expires_at, made.created_by,
  (select version from flotilla_credential_version where id = 1)
from (select value ->> 0 as kind, value ->> 1 as tenant, value ->> 2 as subject, value ->> 3 as before_at, value ->> 4 as expires_at, value ->> 5 as created_by from jsonb_each(?)) made
where (select count(*) from (select 1 from flotilla_token_revocation limit cast(? as integer)) counted) < ? or exists (
  select 1 from flotilla_token_revocation same
  where same.kind = made.kind and same.tenant = made.tenant and same.subject = made.subject)
on conflict (kind, tenant, subject) do update
set before_at = case when excluded.before_at > flotilla_token_revocation.before_at then excluded.before_at
  else flotilla_token_revocation.before_at end, expires_at = case when excluded.expires_at > flotilla_token_revocation.expires_at then excluded.expires_at
  else flotilla_token_revocation.expires_at end,
  created_by = excluded.created_by, version = excluded.version
-- values: ["[[\"user\",\"default\",\"ada\",5,9,null]]",100,100]

-- src/keys/sql.ts: pruneRevocations
delete from flotilla_token_revocation where expires_at <= now_ms()

-- src/keys/sql.ts: readRevocation
select kind, tenant, subject, before_at, expires_at, created_by from flotilla_token_revocation
where kind = ? and tenant = ? and subject = ?
-- values: ["user","default","ada"]

-- src/keys/sql.ts: listRevocations
select kind, tenant, subject, before_at, expires_at, created_by from flotilla_token_revocation
where (kind, tenant, subject) > (?, ?, ?) and expires_at > now_ms()
order by kind, tenant, subject limit cast(? as integer)
-- values: ["user","default","ada",50]

-- src/keys/sql.ts: revocationsSince
select kind, tenant, subject, before_at, expires_at from flotilla_token_revocation
where version > ?
-- values: [3]
