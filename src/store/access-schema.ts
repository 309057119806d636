import {
  defaultNow,
  index,
  keyText,
  leaveSpace,
  sql,
  type Statement,
  table,
  unlogged,
} from "./sql.ts";

/** The tables of who may call: keys, browsers that have signed in, and tokens that are refused early. */
export const credentials: readonly Statement[] = [
  // Keys of callers. The text of a key is in no row: `hash` is its SHA-256 in hexadecimal.
  sql`create table ${table("api_key")} (
    key_id ${keyText} primary key not null,
    name text not null,
    hash ${keyText} not null,
    role text not null,
    -- The only tenant that it may act for; null for any.
    tenant ${keyText},
    -- 1 if it may read what users have put in.
    payloads integer not null default 0,
    created_at bigint not null default (${defaultNow}),
    created_by text,
    expires_at bigint,
    -- Written now and then, for display.
    last_used_at bigint,
    revoked_at bigint,
    -- The key that it was rotated to.
    replaced_by ${keyText},
    version bigint not null
  )`,
  sql`create unique index ${index("api_key_hash")} on ${table("api_key")} (hash)`,
  sql`create index ${index("api_key_version")} on ${table("api_key")} (version)`,
  // Tokens that are refused though they have not expired: one by its `jti`, or all that a user was issued
  // before `before_at`. The row is of no use after `expires_at`.
  sql`create table ${table("token_revocation")} (
    kind text not null check (kind in ('jti', 'user')),
    tenant ${keyText} not null default '',
    subject ${keyText} not null,
    before_at bigint not null,
    expires_at bigint not null,
    created_by text,
    version bigint not null,
    primary key (kind, tenant, subject)
  )`,
  sql`create index ${index("token_revocation_version")} on ${table("token_revocation")} (version)`,
  // Browsers that have signed in with a key. The text of the cookie is in no row: `hash` is its SHA-256 in
  // hexadecimal.
  sql`create table ${table("sign_in")} (
    sign_in_id ${keyText} primary key not null,
    hash ${keyText} not null,
    -- The key of the store that it was made with; null for a key of a config.
    key_id ${keyText},
    -- Proves to a server which key of its config it was made with, given the cookie.
    binding text,
    key_name ${keyText} not null,
    role text,
    tenant ${keyText},
    -- A list in JSON.
    verbs text not null,
    -- The only address at which it counts, such as https://ops.example.
    origin text not null,
    address text,
    created_at bigint not null default (${defaultNow}),
    -- Written once a minute while it is used.
    last_used_at bigint not null,
    expires_at bigint not null,
    ended_at bigint,
    version bigint not null
  )`,
  sql`create unique index ${index("sign_in_hash")} on ${table("sign_in")} (hash)`,
  sql`create index ${index("sign_in_version")} on ${table("sign_in")} (version)`,
  // Counts the changes of these tables. A change locks the row first, so that versions are committed in
  // order, and a server that has seen one has seen all before it.
  sql`create table ${table("credential_version")} (
    id integer primary key not null,
    version bigint not null
  )`,
];

/** The tables of how much a tenant uses. */
export const quotas: readonly Statement[] = [
  // What the sessions of a tenant come to: the sum of its rows. A pod adds to the rows of a log that it
  // owns, so that no pod waits for another. The row of log -1 is the leader's, for what was not counted.
  sql`create table ${table("tenant_count")} (
    tenant ${keyText} not null,
    log_id integer not null,
    sessions bigint not null default 0,
    turns bigint not null default 0,
    bytes bigint not null default 0,
    primary key (tenant, log_id)
  )`,
  sql`${leaveSpace("tenant_count")}`,
  // The bytes of the session's entries as they were counted.
  sql`alter table ${table("session")} add column bytes bigint not null default 0`,
  // The servers that are up and divide the quotas among them.
  sql`create ${unlogged} table ${table("quota_server")} (
    server_id ${keyText} primary key not null,
    seen_at bigint not null
  )`,
];
