import {
  changeHorizon,
  isAmong,
  limit,
  migrationLock,
  now,
  rows,
  sql,
  type Statement,
  table,
} from "../store/sql.ts";
import { recorderRevision, setRecorders } from "../store/changes-schema.ts";
import type { Position } from "./change.ts";

const changes = table("change");
const states = table("change_state");

/** Whether changes are recorded, and up to where they can be read. */
export function readState(): Statement {
  return sql`
    select life, revision, keep_ms, pruned_mark, pruned_seq, high, ${changeHorizon} as horizon
    from ${states} where id = 1`;
}

/** The last row that can be read, and what was pruned. */
export function readLast(): Statement {
  return sql`
    select state.life, state.pruned_mark, state.pruned_seq, state.high, ${changeHorizon} as horizon,
      last.mark, last.seq
    from ${states} state left join (
      select mark, seq from ${changes} where mark <= ${changeHorizon}
        and (mark, seq) > (select pruned_mark, pruned_seq from ${states} where id = 1)
      order by mark desc, seq desc ${limit(1)}) last on true
    where state.id = 1`;
}

export type PageBounds = { readonly rows: number; readonly bytes: number };

/**
 * Rows after a position, with the state of the same snapshot: what is pruned while they are read is seen
 * to be gone. Rows above the horizon are left for later, because a row of a transaction that is still open
 * may yet come before them. One row without a page where there are none.
 */
export function readPage(after: Omit<Position, "life">, bounds: PageBounds): Statement {
  const { mark, seq } = after;
  const isNext =
    after.subjects === "all"
      ? sql`(mark, seq) > (${mark}, ${seq})`
      : sql`(mark, seq) >= (${mark}, ${seq})`;
  return sql`
    with listed as (
      select mark, seq, octet_length(subjects) as bytes from ${changes}
      where mark >= ${mark} and ${isNext} and mark <= ${changeHorizon}
        and (mark, seq) > (select pruned_mark, pruned_seq from ${states} where id = 1)
      order by mark, seq ${limit(bounds.rows + 1)}),
    measured as (
      select mark, seq, row_number() over (order by mark, seq) as nth,
        sum(bytes) over (order by mark, seq) as up_to
      from listed)
    select state.life, state.pruned_mark, state.pruned_seq, state.high, ${changeHorizon} as horizon,
      (select count(*) from listed) as found, page.mark, page.seq, page.at, page.subjects
    from ${states} state left join (
      select measured.nth, stored.mark, stored.seq, stored.at, stored.subjects
      from measured join ${changes} stored
        on stored.mark = measured.mark and stored.seq = measured.seq
      where measured.nth = 1 or (measured.nth <= ${bounds.rows} and measured.up_to <= ${bounds.bytes})
    ) page on true
    where state.id = 1
    order by page.nth`;
}

/** The tenants of sessions, for turns that were stored before their session was. */
export function readTenants(sessionIds: readonly string[]): Statement {
  const wanted = rows(
    { session_id: "text" },
    sessionIds.map((id) => [id]),
  );
  return sql`
    select session_id, tenant from ${table("session")}
    where ${isAmong(sql`select session_id from ${wanted} wanted`, sql`session_id`)}`;
}

/**
 * Begins to record, or makes the triggers of another release anew, which leaves no gap. Rows of an earlier
 * life count as pruned.
 */
export function beginRecording(life: string, keepMs: number): Statement[] {
  const last = (column: Statement) => sql`coalesce(
    (select ${column} from ${changes} order by mark desc, seq desc ${limit(1)}), 0)`;
  return [
    sql`${migrationLock}`,
    ...setRecorders({ isOn: true }),
    sql`
      insert into ${states} (id, life, revision, keep_ms, pruned_mark, pruned_seq)
      values (1, ${life}, ${recorderRevision}, ${keepMs}, ${last(sql`mark`)}, ${last(sql`seq`)})
      on conflict (id) do update set revision = excluded.revision, keep_ms = excluded.keep_ms`,
  ];
}

export function endRecording(): Statement[] {
  return [sql`${migrationLock}`, ...setRecorders({ isOn: false }), sql`delete from ${states}`];
}

export function setKept(keepMs: number): Statement {
  return sql`update ${states} set keep_ms = ${keepMs} where id = 1`;
}

/** Notes how far the horizon has come, of a server that is still the same. */
export function noteHorizon(): Statement {
  return sql`update ${states} set high = ${changeHorizon} where id = 1 and high <= ${changeHorizon}`;
}

/** Begins a new life: the marks of another server, which this store was restored from, mean nothing here. */
export function renewLife(from: string, life: string): Statement[] {
  const isOld = sql`exists (select 1 from ${states} where id = 1 and life = ${from})`;
  return [
    sql`delete from ${changes} where ${isOld}`,
    sql`
      update ${states} set life = ${life}, pruned_mark = 0, pruned_seq = 0, high = ${changeHorizon}
      where id = 1 and life = ${from}`,
  ];
}

/**
 * Deletes a batch of the oldest rows, if they are old enough, and says up to where. Where nothing is
 * recorded any more, every row is old.
 */
export function pruneBatch(count: number): Statement[] {
  const oldest = sql`select mark, seq, at from ${changes} order by mark, seq ${limit(count)}`;
  return [
    sql`
      update ${states} set pruned_mark = cut.mark, pruned_seq = cut.seq
      from (select mark, seq from (${oldest}) oldest
        where at < ${now} - (select keep_ms from ${states} where id = 1)
        order by mark desc, seq desc ${limit(1)}) cut
      where ${states}.id = 1
        and (cut.mark, cut.seq) > (${states}.pruned_mark, ${states}.pruned_seq)`,
    sql`
      delete from ${changes} where (mark, seq) in (select mark, seq from (${oldest}) oldest)
        and not exists (select 1 from ${states} state
          where (state.pruned_mark, state.pruned_seq) < (${changes}.mark, ${changes}.seq))`,
  ];
}

/** Whether a batch would delete something. */
export function hasOldChanges(): Statement {
  return sql`
    select 1 from (select mark, seq, at from ${changes} order by mark, seq ${limit(1)}) first
    left join ${states} state on state.id = 1
    where state.id is null or first.at < ${now} - state.keep_ms
      or (first.mark, first.seq) <= (state.pruned_mark, state.pruned_seq)`;
}
