import { copyReferences, dropReferencesToOthers } from "../../../files/sql/files.ts";
import { forKeyShare, forUpdate, limit, sql, type Statement, table } from "../../../store/sql.ts";

const forks = table("session_fork");
const sessions = table("session");
const messages = table("message");

/** The step of the schema that knows of forks. Pods of earlier releases would delete what forks need. */
const forksVersion = 8;

/** The row of a fork, as it is inserted before its session is created. */
export type ForkRow = {
  readonly sessionId: string;
  readonly parentId: string;
  readonly atSeq: number;
  /** JSON text. */
  readonly segments: string;
};

export type ForkCursor = { readonly atSeq: number; readonly sessionId: string };

/** Up to which of its entries a session has some that forks begin with; 0 if none does. */
export function heldSeqOf(sessionId: Statement): Statement {
  return sql`coalesce((select max(at_seq) from ${forks} fork where fork.parent_id = ${sessionId}), 0)`;
}

/**
 * Holds the first entries of a session for a fork, if the database has them and the session isn't deleted.
 * A deletion under way is waited for: its row is locked by both. From then on pods that know no forks don't
 * start.
 */
export function holdEntries(fork: ForkRow, tenant: string): Statement[] {
  const { sessionId, parentId, atSeq, segments } = fork;
  return [
    sql`
      insert into ${forks} (session_id, parent_id, at_seq, segments)
      select ${sessionId}, parent.session_id, cast(${atSeq} as bigint), ${segments}
      from ${sessions} parent
      where parent.session_id = ${parentId} and parent.tenant = ${tenant}
        and parent.status <> 'deleted' and parent.last_seq >= ${atSeq}
      ${forKeyShare}
      on conflict (session_id) do nothing`,
    ...copyReferences(fork, {
      tenant,
      isHeld: sql`exists (select 1 from ${forks} held where held.session_id = ${sessionId}
        and held.parent_id = ${parentId} and held.at_seq = ${atSeq})`,
    }),
    sql`
      update ${table("migration")} set needs = ${forksVersion}
      where id = ${forksVersion} and needs < ${forksVersion}`,
  ];
}

/** Where a session was forked from, with its header if it is stored. */
export function readFork(sessionId: string): Statement {
  return sql`
    select fork.parent_id, fork.at_seq, fork.segments, session.header
    from ${forks} fork left join ${sessions} session on session.session_id = fork.session_id
    where fork.session_id = ${sessionId}`;
}

/** The next forks of a session, in the order of their places. */
export function readForksOf(parentId: string, after: ForkCursor, count: number): Statement {
  return sql`
    select fork.session_id, fork.at_seq, session.header, session.metadata
    from ${forks} fork left join ${sessions} session on session.session_id = fork.session_id
    where fork.parent_id = ${parentId}
      and (fork.at_seq, fork.session_id) > (${after.atSeq}, ${after.sessionId})
    order by fork.at_seq, fork.session_id ${limit(count)}`;
}

/** The next forks of all sessions, with what became of each. */
export function walkForks(after: string, count: number): Statement {
  return sql`
    select fork.session_id, fork.parent_id, fork.at_seq, fork.created_at, session.header,
      parent.tenant
    from ${forks} fork
    left join ${sessions} session on session.session_id = fork.session_id
    left join ${sessions} parent on parent.session_id = fork.parent_id
    where fork.session_id > ${after}
    order by fork.session_id ${limit(count)}`;
}

/** The newest summary among the last `count` entries up to a seq. */
export function readSummaryUpTo(sessionId: string, upTo: number, count: number): Statement {
  return sql`
    select seq, kind, role, author, message_id, replaces, body, at from ${messages}
    where session_id = ${sessionId} and seq <= ${upTo} and seq > ${upTo - count}
      and kind = 'summary'
    order by seq desc ${limit(1)}`;
}

/**
 * Lets go of what a fork has held, unless forks of its own need it, and deletes of its parent what nothing
 * needs any more. Only for a fork that is deleted, or was never made and never will be. With `isOther` the
 * id is that of another session, whose own forks need none of it, and which keeps no files of another tenant.
 */
export function letGo(
  { sessionId, parentId }: Pick<ForkRow, "sessionId" | "parentId">,
  { isOther = false } = {},
): Statement[] {
  const unneeded = isOther
    ? sql``
    : sql`and not exists (select 1 from ${forks} child where child.parent_id = ${sessionId})`;
  return [
    sql`select session_id from ${sessions} where session_id = ${parentId} ${forUpdate}`,
    sql`delete from ${forks} where session_id = ${sessionId} ${unneeded}`,
    ...(isOther
      ? dropReferencesToOthers(
          sessionId,
          sql`(select tenant from ${sessions} own where own.session_id = ${sessionId})`,
        )
      : []),
    sql`
      delete from ${messages}
      where session_id = ${parentId} and seq > ${heldSeqOf(sql`${parentId}`)}
        and exists (select 1 from ${sessions} parent
          where parent.session_id = ${parentId} and parent.status = 'deleted')`,
  ];
}
