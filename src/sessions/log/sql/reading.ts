import { parseStored } from "../../../store/codec/codec.ts";
import type { Entry, Usage } from "../../../protocol/message.ts";
import type { Row } from "../../../store/database.ts";
import { columnBytes, pageQuery } from "../../../store/page.ts";
import { isAmong, limit, rows, sql, type Statement, table } from "../../../store/sql.ts";
import type { EndedTurn } from "../../conversation/command.ts";
import type { Header } from "../../conversation/header.ts";
import type { ClientIdRef, TurnsPage } from "../journal.ts";

const sessions = table("session");
const messages = table("message");
const checkpoints = table("turn_checkpoint");
const turns = table("turn");
const entryNames = sql`seq, kind, role, author, message_id, replaces, body, at`;

/** Estimates the size of an entry as it is sent. */
const entryPage = {
  key: sql`seq`,
  bytes: sql`200 + ${columnBytes(sql`body`)} + ${columnBytes(sql`author`)} + ${columnBytes(sql`message_id`)}`,
};

/** Finds which of these client ids are stored, with their seqs. */
export function findIds(ids: readonly ClientIdRef[]): Statement {
  const wanted = rows(
    { session_id: "text", client_id: "text" },
    ids.map(({ sessionId, clientId }) => [sessionId, clientId]),
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

export type RowsPage = { after: number; upTo?: number; limit: number; maxBytes?: number };

export function readEntries(
  sessionId: string,
  { after, upTo, limit: maxEntries, maxBytes }: RowsPage,
): Statement {
  const end = upTo === undefined ? sql`` : sql`and seq <= ${upTo}`;
  const from = sql`from ${messages} where session_id = ${sessionId} and seq > ${after} ${end}`;
  if (maxBytes === undefined)
    return sql`select ${entryNames} ${from} order by seq ${limit(maxEntries)}`;
  const page = { ...entryPage, order: "asc", from, limit: maxEntries, maxBytes } as const;
  const { begin, keys } = pageQuery(page);
  return sql`${begin}
    select ${entryNames} from ${messages}
    where session_id = ${sessionId} and ${isAmong(keys, sql`seq`)} order by seq`;
}

export function readTail(
  sessionId: string,
  page: { after: number; upTo: number; limit: number; maxBytes?: number },
): Statement {
  const { after, upTo, limit: maxEntries, maxBytes } = page;
  const from = sql`from ${messages}
    where session_id = ${sessionId} and seq > ${after} and seq <= ${upTo}`;
  if (maxBytes === undefined)
    return sql`select ${entryNames} ${from} order by seq desc ${limit(maxEntries)}`;
  const pageOptions = { ...entryPage, order: "desc", from, limit: maxEntries, maxBytes } as const;
  const { begin, keys } = pageQuery(pageOptions);
  return sql`${begin}
    select ${entryNames} from ${messages}
    where session_id = ${sessionId} and ${isAmong(keys, sql`seq`)} order by seq desc`;
}

export function readNewest(sessionId: string, messageId: string, upTo?: number): Statement {
  const end = upTo === undefined ? sql`` : sql`and seq <= ${upTo}`;
  return sql`
    select ${entryNames} from ${messages}
    where session_id = ${sessionId} and message_id = ${messageId} ${end}
    order by seq desc ${limit(1)}`;
}

export function readCheckpoint(sessionId: string): Statement {
  return sql`
    select epoch, attempt, body, header
    from ${checkpoints} checkpoint join ${sessions} session
      on session.session_id = checkpoint.session_id
    where checkpoint.session_id = ${sessionId}`;
}

/** The journal of a turn among those of its session. */
export function partOf(epoch: number): string {
  return String(epoch);
}

export function readTurns(sessionId: string, { before, limit: maxTurns }: TurnsPage): Statement {
  const above = before ? sql`and (epoch, attempt) < (${before.epoch}, ${before.attempt})` : sql``;
  return sql`
    select epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at, outcome, input_tokens,
      output_tokens, cached_tokens, model, cost_millionths
    from ${turns} where session_id = ${sessionId} ${above}
    order by epoch desc, attempt desc ${limit(maxTurns)}`;
}

export function toEndedTurn(row: Row): EndedTurn {
  const first = row["first_chunk_at"];
  return {
    epoch: Number(row["epoch"]),
    attempt: Number(row["attempt"]),
    agent: row["agent"],
    podId: row["pod_id"],
    beganAtMs: Number(row["began_at"]),
    firstChunkAtMs: first === null ? null : Number(first),
    endedAtMs: Number(row["ended_at"]),
    outcome: row["outcome"],
    usage: row["input_tokens"] === null ? null : toUsage(row),
  };
}

function toUsage(row: Row): Usage {
  const { model, cost_millionths: millionths } = row;
  return {
    input: Number(row["input_tokens"]),
    output: Number(row["output_tokens"]),
    cached: Number(row["cached_tokens"]),
    model,
    cost: millionths === null ? null : Number(millionths) / 1e6,
  };
}

export function toEntry(row: Row): Entry {
  const replaces = row["replaces"];
  return {
    seq: Number(row["seq"]),
    kind: row["kind"],
    role: row["role"],
    author: row["author"],
    messageId: row["message_id"],
    ...(replaces !== null && { replaces: Number(replaces) }),
    ...(parseStored(row["body"]) as Pick<Entry, "tokens" | "parts">),
    atMs: Number(row["at"]),
  };
}

export function toHeader(row: Row): Header {
  return parseStored(row["header"]) as Header;
}
