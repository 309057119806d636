import {
  isAmong,
  join,
  limit,
  now,
  returning,
  rows,
  sql,
  type Statement,
  table,
} from "../store/sql.ts";

const audit = table("audit");

/** What is known of an act before it is written. */
export type ActEntry = {
  readonly id: string;
  readonly actor: string;
  readonly tenant: string;
  readonly userId: string;
  readonly keyName: string | null;
  readonly role: string | null;
  readonly address: string | null;
  readonly action: string;
  readonly subject: string | null;
  /** JSON text. */
  readonly filter: string | null;
  readonly reason: string | null;
  readonly actId: string | null;
};

/** What only the transaction of the act knows. */
export type EntryFacts = {
  /** `from … where …` or `where …`: whether the act changes anything. Without a row there is no entry. */
  readonly when?: Statement;
  /** In place of the entry's own, where the row decides. */
  readonly action?: Statement;
  /** JSON text, or an expression for it. */
  readonly before?: string | Statement;
  readonly after?: string | Statement;
  /** How many it has changed. Default 1. */
  readonly count?: number | Statement;
  /** `begun` if the act goes on in later transactions. */
  readonly outcome?: "begun" | "done";
};

/** The action of the entry that stands for a full audit. */
export const fullAction = "audit.full";

const isFull = sql`exists (
  select 1 from ${audit} past where past.action = ${fullAction} and past.outcome = 'full')`;

const decided = sql`id, action, outcome`;

/**
 * The entry of an act, for the act's own transaction. An entry that is stored already, and a full audit,
 * are errors, which undo the transaction. Returns what only the row decides, if there is an entry.
 */
export function insertEntry(entry: ActEntry, facts: EntryFacts = {}): Statement {
  const { when = sql``, action = entry.action, before = null, after = null } = facts;
  const { count = 1, outcome = "done" } = facts;
  return sql`
    insert into ${audit} (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
      filter, count, before, after, outcome, reason, act_id)
    select ${entry.id}, ${now}, ${entry.actor}, ${entry.tenant}, ${entry.userId}, ${entry.keyName},
      ${entry.role}, ${entry.address}, ${action}, ${entry.subject}, ${entry.filter},
      cast(${count} as bigint), ${before}, ${after},
      case when ${isFull} then null else ${outcome} end, ${entry.reason}, ${entry.actId}
    ${when}
    ${returning(decided, { after: sql`select ${decided} from ${audit} where id = ${entry.id}` })}`;
}

/** An entry with all that it says, because the act was decided before it is written. */
export type DecidedAct = ActEntry & { readonly before: string; readonly after: string };

const decidedColumns = {
  id: "text",
  actor: "text",
  tenant: "text",
  user_id: "text",
  key_name: "text",
  role: "text",
  address: "text",
  action: "text",
  subject: "text",
  filter: "text",
  before: "text",
  after: "text",
  reason: "text",
  log_id: "integer",
} as const;

/** The entries of acts in records of logs, for the logs whose record is stored now. */
export function insertDecided(
  entries: readonly (DecidedAct & { readonly logId: number })[],
  isStored: (logId: Statement) => Statement,
): Statement {
  const fresh = rows(
    decidedColumns,
    entries.map((each) => [
      each.id,
      each.actor,
      each.tenant,
      each.userId,
      each.keyName,
      each.role,
      each.address,
      each.action,
      each.subject,
      each.filter,
      each.before,
      each.after,
      each.reason,
      each.logId,
    ]),
  );
  return sql`
    insert into ${audit} (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
      filter, count, before, after, outcome, reason)
    select id, ${now}, actor, tenant, user_id, key_name, role, address, action, subject,
      filter, 1, before, after, 'done', reason
    from ${fresh} fresh where ${isStored(sql`fresh.log_id`)}
    on conflict (id) do nothing`;
}

/** Returns a row if the audit is full. */
export function readFull(): Statement {
  return sql`select 1 as full_now where ${isFull}`;
}

/** How many an act of several transactions has changed with these, for the transaction that changes them. */
export function countEntry(id: string, before: number, more: number | Statement): Statement {
  return sql`
    update ${audit} set count = cast(${before} as bigint) + cast(${more} as bigint)
    where id = ${id}`;
}

/** The end of an act of several transactions, if the condition holds. */
export function endEntry(id: string, when: Statement = sql`true`): Statement {
  return sql`
    update ${audit} set outcome = 'done' where id = ${id} and outcome = 'begun' and ${when}`;
}

/** The stored entry of an act, by its own id or by the one that its caller gave it. */
export function readEntry({ id, actor, tenant, userId, actId }: ActEntry): Statement {
  const isIt =
    actId === null
      ? sql`id = ${id}`
      : sql`actor = ${actor} and tenant = ${tenant} and user_id = ${userId} and act_id = ${actId}`;
  return sql`select * from ${audit} where ${isIt}`;
}

export type EntryCursor = { readonly atMs: number; readonly id: string };

export type EntryFilter = {
  readonly actor?: string;
  readonly action?: string;
  readonly subject?: string;
  readonly sinceMs?: number;
  readonly untilMs?: number;
  readonly before?: EntryCursor;
  readonly limit: number;
};

/**
 * A page of entries, newest first. An actor and an action have an index each and one together: the entries
 * of both may be few among the many of either. A subject has few entries, so that beside it the others are
 * written such that no planner uses their index.
 */
export function listEntries(filter: EntryFilter): Statement {
  const { actor, action, subject, sinceMs, untilMs, before } = filter;
  const isNamed = (column: Statement, name: string) =>
    subject === undefined ? sql`${column} = ${name}` : sql`coalesce(${column}, '') = ${name}`;
  const conditions = [
    ...(subject === undefined ? [] : [sql`subject = ${subject}`]),
    ...(actor === undefined ? [] : [isNamed(sql`actor`, actor)]),
    ...(action === undefined ? [] : [isNamed(sql`action`, action)]),
    ...(sinceMs === undefined ? [] : [sql`at >= ${sinceMs}`]),
    ...(untilMs === undefined ? [] : [sql`at <= ${untilMs}`]),
    ...(before === undefined ? [] : [sql`(at, id) < (${before.atMs}, ${before.id})`]),
  ];
  const where = conditions.length > 0 ? sql`where ${join(conditions, " and ")}` : sql``;
  return sql`select * from ${audit} ${where} order by at desc, id desc ${limit(filter.limit)}`;
}

/** Deletes a page of the oldest entries that are older than this. Returns nothing. */
export function deleteOldEntries(keptMs: number, count: number): Statement {
  return sql`
    delete from ${audit} where ${isAmong(
      sql`select id from ${audit} where at < ${now} - ${keptMs} order by at, id ${limit(count)}`,
      sql`id`,
    )}`;
}

/** Deletes a page of the oldest entries of one actor. */
export function deleteOldestOf(actor: string, count: number): Statement {
  return sql`
    delete from ${audit} where ${isAmong(
      sql`select id from ${audit} where actor = ${actor} order by at, id ${limit(count)}`,
      sql`id`,
    )}`;
}

/** How many entries there are, and whether one says that the audit is full. */
export function countEntries(): Statement {
  return sql`select count(*) as entries, case when ${isFull} then 1 else 0 end as is_full from ${audit}`;
}

/** Whether there is an entry that is older than this. */
export function hasOldEntries(keptMs: number): Statement {
  return sql`select id from ${audit} where at < ${now} - ${keptMs} order by at, id ${limit(1)}`;
}

/** Stores that the audit is full. From then on every entry is refused, and its act with it. */
export function markFull(id: string, maxEntries: number): Statement {
  return sql`
    insert into ${audit} (id, at, actor, action, count, outcome)
    select ${id}, ${now}, 'leader', ${fullAction}, cast(${maxEntries} as bigint), 'full'
    where not ${isFull}`;
}

/** Stores that there is room again. */
export function endFull(): Statement {
  return sql`update ${audit} set outcome = 'over' where action = ${fullAction} and outcome = 'full'`;
}
