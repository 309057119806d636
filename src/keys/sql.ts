import { isAmong, join, limit, now, rows, sql, type Statement, table } from "../store/sql.ts";
import type { Role } from "../protocol/verbs.ts";
import type { SignInOwner } from "./key.ts";

const keys = table("api_key");
const signIns = table("sign_in");
const revocations = table("token_revocation");
const versions = table("credential_version");

const keyColumns = sql`key_id, name, role, tenant, payloads, created_at, created_by, expires_at,
  last_used_at, revoked_at, replaced_by`;

const signInColumns = sql`sign_in_id, key_id, key_name, role, tenant, verbs, origin, address, created_at,
  last_used_at, expires_at`;

const revocationColumns = sql`kind, tenant, subject, before_at, expires_at, created_by`;

/** The version of the change that is under way in this transaction. */
const version = sql`(select version from ${versions} where id = 1)`;

export type NewKeyRow = {
  readonly keyId: string;
  readonly hash: string;
  readonly name: string;
  readonly role: Role;
  readonly tenant: string | null;
  readonly payloads: boolean;
  readonly createdBy: string | null;
  readonly expiresAtMs: number | null;
};

export type RotationRow = {
  readonly keyId: string;
  readonly newKeyId: string;
  readonly hash: string;
  readonly createdBy: string | null;
  readonly overlapMs: number;
};

export type RevocationRow = {
  readonly kind: "jti" | "user";
  readonly tenant: string;
  readonly subject: string;
  readonly beforeMs: number;
  readonly expiresAtMs: number;
  readonly createdBy: string | null;
};

export type NewSignInRow = {
  readonly signInId: string;
  readonly hash: string;
  readonly keyId: string | null;
  readonly binding: string | null;
  readonly keyName: string;
  readonly role: string | null;
  readonly tenant: string | null;
  /** A list in JSON. */
  readonly verbs: string;
  readonly origin: string;
  readonly address: string | null;
};

export type SignInTimes = { readonly lifeMs: number; readonly idleMs: number };

/**
 * Begins a change of keys, sign-ins or revocations. Other changes wait for the row until this transaction has ended,
 * so that none of them needs another lock.
 */
export function nextVersion(): Statement {
  return sql`
    insert into ${versions} (id, version) values (1, 1)
    on conflict (id) do update set version = ${versions}.version + 1`;
}

export function readVersion(): Statement {
  return sql`select version from ${versions} where id = 1`;
}

/** Stores a key, unless there are too many. Storing it again changes nothing. */
export function insertKey(row: NewKeyRow, maxKeys: number): Statement {
  const made = rows(
    {
      key_id: "text",
      hash: "text",
      name: "text",
      role: "text",
      tenant: "text",
      payloads: "integer",
      created_by: "text",
      expires_at: "integer",
    },
    [
      [
        row.keyId,
        row.hash,
        row.name,
        row.role,
        row.tenant,
        row.payloads ? 1 : 0,
        row.createdBy,
        row.expiresAtMs,
      ],
    ],
  );
  return sql`
    insert into ${keys}
      (key_id, hash, name, role, tenant, payloads, created_at, created_by, expires_at, version)
    select made.key_id, made.hash, made.name, made.role, made.tenant, made.payloads, ${now},
      made.created_by, made.expires_at, ${version}
    from ${made} made
    where ${fewerThan(keys, maxKeys)}
    on conflict (key_id) do nothing`;
}

/** Stores a key with the rights and the life of one that is in use and was not rotated yet. */
export function insertRotated(row: RotationRow, maxKeys: number): Statement {
  const made = rows({ old_id: "text", key_id: "text", hash: "text", created_by: "text" }, [
    [row.keyId, row.newKeyId, row.hash, row.createdBy],
  ]);
  return sql`
    insert into ${keys}
      (key_id, hash, name, role, tenant, payloads, created_at, created_by, expires_at, version)
    select made.key_id, made.hash, old.name, old.role, old.tenant, old.payloads, ${now},
      made.created_by, ${now} + (old.expires_at - old.created_at), ${version}
    from ${made} made join ${keys} old on old.key_id = made.old_id
    where old.replaced_by is null and old.revoked_at is null
      and (old.expires_at is null or old.expires_at > ${now}) and ${fewerThan(keys, maxKeys)}
    on conflict (key_id) do nothing`;
}

/** Lets a key expire after the overlap, if its replacement is stored. */
export function expireRotated({ keyId, newKeyId, overlapMs }: RotationRow): Statement {
  return sql`
    update ${keys} set replaced_by = ${newKeyId}, version = ${version},
      expires_at = case when expires_at < ${now} + ${overlapMs} then expires_at
        else ${now} + ${overlapMs} end
    where key_id = ${keyId} and replaced_by is null
      and exists (select 1 from ${keys} made where made.key_id = ${newKeyId})`;
}

/** Revokes a key, if it was not revoked before. */
export function revokeKey(keyId: string): Statement {
  return sql`
    update ${keys} set revoked_at = ${now}, version = ${version}
    where key_id = ${keyId} and revoked_at is null`;
}

/** Conditions of entries in the audit. */
export function keyExists(keyId: string): Statement {
  return sql`from ${keys} where key_id = ${keyId}`;
}

export function keyIsUnrevoked(keyId: string): Statement {
  return sql`from ${keys} where key_id = ${keyId} and revoked_at is null`;
}

export function revocationExists({
  kind,
  tenant,
  subject,
}: Pick<RevocationRow, "kind" | "tenant" | "subject">): Statement {
  return sql`from ${revocations} where kind = ${kind} and tenant = ${tenant} and subject = ${subject}`;
}

/** Deletes keys that have been of no use for so long. */
export function pruneKeys(olderMs: number): Statement {
  return sql`
    delete from ${keys}
    where revoked_at < ${now} - ${olderMs} or expires_at < ${now} - ${olderMs}`;
}

export function readKeys(keyIds: readonly string[]): Statement {
  const wanted = rows(
    { key_id: "text" },
    keyIds.map((keyId) => [keyId]),
  );
  return sql`
    select ${keyColumns}, ${now} as now_at from ${keys} api_key
    where ${isAmong(sql`select wanted.key_id from ${wanted} wanted`, sql`api_key.key_id`)}`;
}

/** The newest first. */
export function listKeys(before: string | undefined, count: number): Statement {
  const earlier = before === undefined ? sql`` : sql`where key_id < ${before}`;
  return sql`
    select ${keyColumns}, ${now} as now_at from ${keys} ${earlier}
    order by key_id desc ${limit(count)}`;
}

/** What servers need to know of keys that have changed since a version. */
export function keysSince(seen: number): Statement {
  return sql`
    select key_id, hash, name, role, tenant, payloads, expires_at, revoked_at from ${keys}
    where version > ${seen}`;
}

/** Notes when keys were last used. It isn't a change that servers need to see. */
export function noteUses(uses: readonly (readonly [keyId: string, atMs: number])[]): Statement {
  const used = rows({ key_id: "text", at: "integer" }, uses);
  return sql`
    update ${keys} set last_used_at = used.at
    from ${used} used
    where ${keys}.key_id = used.key_id
      and (${keys}.last_used_at is null or ${keys}.last_used_at < used.at)`;
}

/** How many sign-ins there may be: in all, at once of a key, and of a key with those that have just ended. */
type SignInLimits = {
  readonly max: number;
  readonly maxPerKey: number;
  readonly maxKept: number;
};

/**
 * Stores a sign-in, unless there are too many, of its key or in all. The one that it replaces doesn't count.
 * Storing it again changes nothing.
 */
export function insertSignIn(
  row: NewSignInRow & { readonly replacedHash: string | undefined },
  { lifeMs, idleMs }: SignInTimes,
  { max, maxPerKey, maxKept }: SignInLimits,
): Statement {
  const made = rows(
    {
      sign_in_id: "text",
      hash: "text",
      key_id: "text",
      binding: "text",
      key_name: "text",
      role: "text",
      tenant: "text",
      verbs: "text",
      origin: "text",
      address: "text",
    },
    [
      [
        row.signInId,
        row.hash,
        row.keyId,
        row.binding,
        row.keyName,
        row.role,
        row.tenant,
        row.verbs,
        row.origin,
        row.address,
      ],
    ],
  );
  return sql`
    insert into ${signIns}
      (sign_in_id, hash, key_id, binding, key_name, role, tenant, verbs, origin, address, created_at,
        last_used_at, expires_at, version)
    select made.sign_in_id, made.hash, made.key_id, made.binding, made.key_name, made.role,
      made.tenant, made.verbs, made.origin, made.address, ${now}, ${now}, ${now} + ${lifeMs}, ${version}
    from ${made} made
    where ${fewerThan(signIns, max)} and (
      select count(*) from ${signIns} same
      where same.key_name = made.key_name and coalesce(same.key_id, '') = coalesce(made.key_id, '')
        and coalesce(same.tenant, '') = coalesce(made.tenant, '')
        and same.ended_at is null and same.hash <> ${row.replacedHash ?? ""}
        and same.expires_at > ${now}
        and same.last_used_at > ${now} - ${idleMs}) < ${maxPerKey}
      and (
        select count(*) from ${signIns} kept
        where kept.key_name = made.key_name and coalesce(kept.key_id, '') = coalesce(made.key_id, '')
          and coalesce(kept.tenant, '') = coalesce(made.tenant, '')) < ${maxKept}
    on conflict (sign_in_id) do nothing`;
}

/** Ends a sign-in. */
export function endSignIn(signInId: string, owner: SignInOwner | undefined): Statement {
  return sql`
    update ${signIns} set ended_at = ${now}, version = ${version}
    where sign_in_id = ${signInId} and ended_at is null and ${isOwned(owner)}`;
}

/** Ends the sign-in of a cookie, if the one that replaces it is stored. */
export function endReplacedSignIn(hash: string, replacedBy: string): Statement {
  return sql`
    update ${signIns} set ended_at = ${now}, version = ${version}
    where hash = ${hash} and ended_at is null
      and exists (select 1 ${signInExists(replacedBy)})`;
}

/** Conditions of entries in the audit. */
export function signInExists(signInId: string): Statement {
  return sql`from ${signIns} where sign_in_id = ${signInId}`;
}

export function signInIsOpen(signInId: string): Statement {
  return sql`from ${signIns} where sign_in_id = ${signInId} and ended_at is null`;
}

/** Deletes sign-ins that have ended so long ago that every server has seen it. */
export function pruneSignIns(olderMs: number, { idleMs }: SignInTimes): Statement {
  return sql`
    delete from ${signIns}
    where ended_at < ${now} - ${olderMs} or expires_at < ${now} - ${olderMs}
      or last_used_at < ${now} - ${idleMs + olderMs}`;
}

export function readSignIn(signInId: string, owner: SignInOwner | undefined): Statement {
  return sql`
    select ${signInColumns} from ${signIns}
    where sign_in_id = ${signInId} and ${isOwned(owner)}`;
}

/** Those that count, the newest first. */
export function listSignIns(
  owner: SignInOwner | undefined,
  { idleMs }: SignInTimes,
  before: string | undefined,
  count: number,
): Statement {
  const earlier = before === undefined ? sql`` : sql`and sign_in_id < ${before}`;
  return sql`
    select ${signInColumns} from ${signIns}
    where ended_at is null and expires_at > ${now} and last_used_at > ${now} - ${idleMs}
      and ${isOwned(owner)} ${earlier}
    order by sign_in_id desc ${limit(count)}`;
}

/** What servers need to know of sign-ins that have changed since a version. */
export function signInsSince(seen: number): Statement {
  return sql`
    select sign_in_id, hash, key_id, binding, origin, last_used_at, expires_at, ended_at
    from ${signIns} where version > ${seen}`;
}

/** Notes when sign-ins were last used. Other servers see it when they read everything. */
export function noteSignInUses(
  uses: readonly (readonly [signInId: string, atMs: number])[],
): Statement {
  const used = rows({ sign_in_id: "text", at: "integer" }, uses);
  return sql`
    update ${signIns} set last_used_at = used.at
    from ${used} used
    where ${signIns}.sign_in_id = used.sign_in_id and ${signIns}.last_used_at < used.at
      and ${signIns}.ended_at is null`;
}

/** Stores a revocation, or extends the one that is there, unless there are too many. */
export function insertRevocation(row: RevocationRow, maxRows: number): Statement {
  const made = rows(
    {
      kind: "text",
      tenant: "text",
      subject: "text",
      before_at: "integer",
      expires_at: "integer",
      created_by: "text",
    },
    [[row.kind, row.tenant, row.subject, row.beforeMs, row.expiresAtMs, row.createdBy]],
  );
  const later = (column: Statement) =>
    sql`case when excluded.${column} > ${revocations}.${column} then excluded.${column}
      else ${revocations}.${column} end`;
  return sql`
    insert into ${revocations}
      (kind, tenant, subject, before_at, expires_at, created_by, version)
    select made.kind, made.tenant, made.subject, made.before_at, made.expires_at, made.created_by,
      ${version}
    from ${made} made
    where ${fewerThan(revocations, maxRows)} or exists (
      select 1 from ${revocations} same
      where same.kind = made.kind and same.tenant = made.tenant and same.subject = made.subject)
    on conflict (kind, tenant, subject) do update
    set before_at = ${later(sql`before_at`)}, expires_at = ${later(sql`expires_at`)},
      created_by = excluded.created_by, version = excluded.version`;
}

/** Deletes revocations of tokens that have all expired. */
export function pruneRevocations(): Statement {
  return sql`delete from ${revocations} where expires_at <= ${now}`;
}

export function readRevocation({
  kind,
  tenant,
  subject,
}: Pick<RevocationRow, "kind" | "tenant" | "subject">): Statement {
  return sql`
    select ${revocationColumns} from ${revocations}
    where kind = ${kind} and tenant = ${tenant} and subject = ${subject}`;
}

/** Compared as one, so that the index finds the start of the page. */
export function listRevocations(
  { kind, tenant, subject }: { kind: string; tenant: string; subject: string },
  count: number,
): Statement {
  return sql`
    select ${revocationColumns} from ${revocations}
    where (kind, tenant, subject) > (${kind}, ${tenant}, ${subject}) and expires_at > ${now}
    order by kind, tenant, subject ${limit(count)}`;
}

/** Revocations that have changed since a version. */
export function revocationsSince(seen: number): Statement {
  return sql`
    select kind, tenant, subject, before_at, expires_at from ${revocations}
    where version > ${seen}`;
}

/** A key owns what was made with it; without an owner all are meant. */
function isOwned(owner: SignInOwner | undefined): Statement {
  if (!owner) return sql`1 = 1`;
  const { keyId, keyName, tenant, signInId } = owner;
  const conditions = [
    ...(keyId === undefined ? [] : [sql`key_id = ${keyId}`]),
    ...(keyName === undefined
      ? []
      : [
          sql`(key_id is null and key_name = ${keyName}
            and coalesce(tenant, '') = ${tenant ?? ""})`,
        ]),
    ...(signInId === undefined ? [] : [sql`sign_in_id = ${signInId}`]),
  ];
  return conditions.length === 0 ? sql`1 = 0` : sql`(${join(conditions, " or ")})`;
}

function fewerThan(counted: ReturnType<typeof table>, max: number): Statement {
  return sql`(select count(*) from (select 1 from ${counted} ${limit(max)}) counted) < ${max}`;
}
