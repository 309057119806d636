import { FlotillaError } from "../base/errors.ts";
import { defaultNow, index, keyText, sql, type Statement, table } from "./sql.ts";

/**
 * Who did what to the fleet, one row an act. A row is changed by nothing but its own act, while that goes
 * on, and deleted when it is old.
 */
export const audit: readonly Statement[] = [
  // `id` is also in the events of what the act has changed. `actor` begins with its kind: `key/web`,
  // `user/zoe`, `local`, `program`, `cli/root`. `act_id` is the id that the caller gave the act, and names
  // one act of that caller. `outcome` is `begun` while an act of several transactions goes on; `full` and
  // `over` are of the entry that says that there is no room for more. It has no default, so that the row
  // of an act is refused where there is none.
  sql`create table ${table("audit")} (
    id ${keyText} primary key not null,
    at bigint not null default (${defaultNow}),
    actor ${keyText} not null,
    tenant ${keyText} not null default 'default',
    user_id ${keyText} not null default '',
    key_name text,
    role text,
    address text,
    action ${keyText} not null,
    subject ${keyText},
    filter text,
    count bigint,
    before text,
    after text,
    outcome text not null check (outcome in ('begun', 'done', 'full', 'over')),
    reason text,
    act_id ${keyText}
  )`,
  sql`create index ${index("audit_at")} on ${table("audit")} (at, id)`,
  sql`create index ${index("audit_actor")} on ${table("audit")} (actor, at, id)`,
  sql`create index ${index("audit_actor_action")} on ${table("audit")} (actor, action, at, id)`,
  sql`create index ${index("audit_action")} on ${table("audit")} (action, at, id)`,
  sql`create index ${index("audit_subject")} on ${table("audit")} (subject, at, id)
    where subject is not null`,
  sql`create unique index ${index("audit_act")} on ${table("audit")} (actor, tenant, user_id, act_id)
    where act_id is not null`,
];

/*
 * The two ways in which a store refuses the entry of an act, and with it the act's whole transaction. Every
 * store answers them alike.
 */

/** An entry of this act is stored already: an earlier send has landed. */
export function auditedBefore(cause: unknown): FlotillaError {
  return new FlotillaError("duplicate_key", "this act is stored already", { cause });
}

/** The audit has reached its bound, so that the act could leave no entry. */
export function auditFull(cause?: unknown): FlotillaError {
  return new FlotillaError(
    "overloaded",
    "the audit is full, and an act that can't be audited isn't done: raise `audit.maxEntries` in the config of the pods, or lower `audit.keptMs`",
    { cause },
  );
}
