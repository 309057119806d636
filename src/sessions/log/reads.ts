import { bytesOf, pageOf } from "../../store/page.ts";
import { isAmong, limit, rows, sql, type Statement, table } from "../../store/sql.ts";
import type { AskedId } from "./journal.ts";

const sessions = table("session");
const messages = table("message");
const checkpoints = table("turn_checkpoint");

/** Which of these client ids are stored, and where. */
export function findIds(asked: readonly AskedId[]): Statement {
  const wanted = rows(
    { session_id: "text", client_id: "text" },
    asked.map(({ sessionId, clientId }) => [sessionId, clientId]),
  );
  return sql`
    select message.session_id, message.client_id, message.seq
    from ${wanted} wanted join ${messages} message
      on message.session_id = wanted.session_id and message.client_id = wanted.client_id`;
}

export function readHeader(sessionId: string): Statement {
  return sql`select header from ${sessions} where session_id = ${sessionId}`;
}

export function readBusy(logId: number): Statement {
  return sql`select header from ${sessions} where log_id = ${logId} and state <> 'idle'`;
}

const entryNames = sql`seq, kind, role, author, message_id, replaces, body, at`;

export function readEntries(
  sessionId: string,
  { after, limit: most, maxBytes }: { after: number; limit: number; maxBytes?: number },
): Statement {
  const from = sql`from ${messages} where session_id = ${sessionId} and seq > ${after}`;
  if (maxBytes === undefined) return sql`select ${entryNames} ${from} order by seq ${limit(most)}`;
  const page = { ...entryPage, order: "asc", from, limit: most, maxBytes } as const;
  const { begin, keys } = pageOf(page);
  return sql`${begin}
    select ${entryNames} from ${messages}
    where session_id = ${sessionId} and ${isAmong(keys, sql`seq`)} order by seq`;
}

/** What an entry takes as it is shown. */
const entryPage = {
  key: sql`seq`,
  bytes: sql`200 + ${bytesOf(sql`body`)} + ${bytesOf(sql`author`)} + ${bytesOf(sql`message_id`)}`,
};

export function readTail(
  sessionId: string,
  page: { after: number; upTo: number; limit: number; maxBytes?: number },
): Statement {
  const { after, upTo, limit: most, maxBytes } = page;
  const from = sql`from ${messages}
    where session_id = ${sessionId} and seq > ${after} and seq <= ${upTo}`;
  if (maxBytes === undefined)
    return sql`select ${entryNames} ${from} order by seq desc ${limit(most)}`;
  const asked = { ...entryPage, order: "desc", from, limit: most, maxBytes } as const;
  const { begin, keys } = pageOf(asked);
  return sql`${begin}
    select ${entryNames} from ${messages}
    where session_id = ${sessionId} and ${isAmong(keys, sql`seq`)} order by seq desc`;
}

export function readNewest(sessionId: string, messageId: string): Statement {
  return sql`
    select ${entryNames} from ${messages}
    where session_id = ${sessionId} and message_id = ${messageId}
    order by seq desc ${limit(1)}`;
}

export function readCheckpoint(sessionId: string): Statement {
  return sql`
    select epoch, attempt, body, header
    from ${checkpoints} checkpoint join ${sessions} session
      on session.session_id = checkpoint.session_id
    where checkpoint.session_id = ${sessionId}`;
}
