import {
  changeColumns,
  defaultNow,
  keyText,
  recorder,
  recorderNames,
  sql,
  type Statement,
  table,
} from "./sql.ts";

/** Which triggers this release makes. It rises when they change. */
export const recorderRevision = 2;

/**
 * What was changed, for readers that follow it. Triggers write the rows, so that every change is recorded in
 * its own transaction, whichever program makes it. They are there only while changes are recorded.
 */
export const changes: readonly Statement[] = [
  // One row for each statement that changed something, with all that it changed: `subjects` is JSON, in the
  // form that `changes/change.ts` reads.
  sql`create table ${table("change")} (
    at bigint not null,
    subjects text not null,
    ${changeColumns}
  )`,
  // One row while changes are recorded, none otherwise.
  sql`create table ${table("change_state")} (
    id integer primary key,
    -- New whenever recording begins, so that a cursor from before a gap is known as one.
    life ${keyText} not null,
    -- Which triggers these are: a release with other ones makes them anew.
    revision integer not null,
    keep_ms bigint not null,
    since bigint not null default (${defaultNow}),
    -- The last row that was pruned.
    pruned_mark bigint not null default 0,
    pruned_seq bigint not null default 0,
    -- A horizon that there was. Below it, this is another server than the one that gave the marks.
    high bigint not null default 0
  )`,
  // The turn under way, for the triggers: null where there is none.
  sql`alter table ${table("session")} add column turn_epoch bigint`,
  sql`alter table ${table("session")} add column turn_agent ${keyText}`,
];

/** Makes the triggers, in place of those of another release, or takes them away. */
export function setRecorders({ isOn }: { isOn: boolean }): Statement[] {
  return recorderNames.flatMap((name) => [
    sql`${recorder(name, { isOn: false })}`,
    ...(isOn ? [sql`${recorder(name, { isOn })}`] : []),
  ]);
}
