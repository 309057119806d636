import type { Row } from "../../../store/database.ts";
import {
  contentValue,
  limit,
  now,
  returning,
  rows,
  sql,
  type Statement,
  table,
} from "../../../store/sql.ts";
import type { Changes } from "../changes.ts";
import { entryBody } from "../entry-body.ts";
import { storeChanges } from "./records.ts";

const watermarks = table("log_watermark");
const aside = table("archive_aside");
const messages = table("message");
const sessions = table("session");
/** Where logs are in the database, its sessions are changed by what is stored there, and by nothing else. */
const areOnStreams = sql`exists (select 1 from ${table("log_place")} where place = 'nats')`;
const columns = sql`log_id, incarnation, log_offset, record_id, chain`;

/** Up to where the database has the records of a log. */
export type Watermark = {
  readonly logId: number;
  readonly incarnation: string;
  readonly offset: number;
  readonly recordId: string;
  /** The hash over all messages up to that record. */
  readonly chain: string;
};

/** What the database has refused to store of a record. */
export type AsideItem = {
  readonly offset: number;
  /** Which entry of the record it is; -1 for the record as a whole, -2 and below for its tasks. */
  readonly place: number;
  readonly sessionId: string | null;
  readonly seq: number | null;
  /** JSON text. */
  readonly body: string;
  readonly reason: string;
};

export type Flush = {
  /** Where the watermark is, and where it goes. */
  readonly from: number;
  readonly to: Watermark;
  /** Of this one send, so that its statements know whether it is this one that has moved the watermark. */
  readonly flushId: string;
  readonly changes: Changes;
  readonly aside: readonly AsideItem[];
};

export function readAllWatermarks(): Statement {
  return sql`select ${columns} from ${watermarks} order by log_id`;
}

/** How much the database has refused to take, and when it did so last. */
export function countAside(): Statement {
  return sql`select count(*) as items, max(at) as last_at from ${aside}`;
}

export function readWatermark(logId: number): Statement {
  return sql`select ${columns} from ${watermarks} where log_id = ${logId}`;
}

/** One of all watermarks, if there is any. */
export function readFirstWatermark(): Statement {
  return sql`select ${columns} from ${watermarks} order by log_id ${limit(1)}`;
}

/**
 * The first watermark of a log on streams, unless it has one, or sessions have offsets of another log, which no later
 * record of this one would replace.
 */
export function insertWatermark(first: Watermark): Statement {
  const { logId, incarnation, offset, recordId, chain } = first;
  return sql`
    insert into ${watermarks} (log_id, incarnation, log_offset, record_id, chain, flush_id)
    select cast(${logId} as integer), ${incarnation}, cast(${offset} as bigint), ${recordId},
      ${chain}, ''
    where ${areOnStreams}
      and not exists (select 1 from ${sessions} where log_id = ${logId} and last_offset > ${offset})
    on conflict (log_id) do nothing`;
}

/** Has the watermark of an earlier life of a log be that of a later one, which has the same records. */
export function moveToLife(from: Watermark, to: Watermark): Statement {
  const { logId, incarnation, offset, chain } = to;
  return sql`
    update ${watermarks} set incarnation = ${incarnation}, log_offset = ${offset}, chain = ${chain}
    where log_id = ${logId} and incarnation = ${from.incarnation} and log_offset = ${from.offset}`;
}

/**
 * Moves the watermark of a log on streams, and stores what its records up to there have changed. Its first
 * statement returns a row if it has moved; if not, the others store nothing. One that waits for the transaction
 * which moves the logs back finds no watermark.
 */
export function storeFlush({ from, to, flushId, changes, aside: items }: Flush): Statement[] {
  const { logId, incarnation, offset, recordId, chain } = to;
  const isMoved = sql`
    exists (select 1 from ${watermarks} where log_id = ${logId} and flush_id = ${flushId})`;
  const move = sql`
    update ${watermarks} set log_offset = ${offset}, record_id = ${recordId}, chain = ${chain},
      flush_id = ${flushId}, moved_at = ${now}
    where log_id = ${logId} and incarnation = ${incarnation} and log_offset = ${from}
      and ${areOnStreams}
    ${returning(columns, {
      after: sql`
        select ${columns} from ${watermarks} where log_id = ${logId} and flush_id = ${flushId}`,
    })}`;
  // Sessions keep the offset of the last record that has changed them, or one after it up to this one.
  const placed = { at: { logId, offset: offset - 1 }, changes };
  return [
    move,
    ...storeChanges([placed], () => isMoved),
    ...items.map((item) => insertAside(to, item, isMoved)),
  ];
}

/** Keeps records that can't be stored, whatever the watermark of their log is. */
export function storeAside(
  life: Pick<Watermark, "logId" | "incarnation">,
  items: readonly AsideItem[],
): Statement[] {
  return items.map((item) => insertAside(life, item, sql`1 = 1`));
}

function insertAside(
  { logId, incarnation }: Pick<Watermark, "logId" | "incarnation">,
  item: AsideItem,
  isMoved: Statement,
): Statement {
  const { offset, place, sessionId, seq, body, reason } = item;
  return sql`
    insert into ${aside}
      (log_id, incarnation, log_offset, place, session_id, seq, body, reason)
    select cast(${logId} as integer), ${incarnation}, cast(${offset} as bigint),
      cast(${place} as integer), ${sessionId}, cast(${seq} as bigint), ${contentValue(body)}, ${reason}
    where ${isMoved}
    on conflict do nothing`;
}

/** Reads the values of an entry as the database has them, without storing it. */
export function probeEntry(entry: Changes["entries"][number]): Statement {
  const { sessionId, author, messageId, clientId } = entry;
  const probe = rows(
    {
      session_id: "text",
      author: "text",
      message_id: "text",
      client_id: "text",
      body: "content",
    },
    [[sessionId, author, messageId, clientId, entryBody(entry)]],
  );
  return sql`
    select session_id, author, message_id, client_id, length(body) as chars from ${probe} probe`;
}

/** Which of these entries are stored. */
export function findSeqs(
  entries: readonly { readonly sessionId: string; readonly seq: number }[],
): Statement {
  const wanted = rows(
    { session_id: "text", seq: "integer" },
    entries.map(({ sessionId, seq }) => [sessionId, seq]),
  );
  return sql`
    select message.session_id, message.seq from ${wanted} wanted join ${messages} message
      on message.session_id = wanted.session_id and message.seq = wanted.seq`;
}

/** The client ids of the last entries of a session, the newest first. */
export function readLastIds(sessionId: string, maxEntries: number): Statement {
  return sql`
    select seq, client_id from ${messages}
    where session_id = ${sessionId}
    order by seq desc ${limit(maxEntries)}`;
}

export function toWatermark(row: Row): Watermark {
  return {
    logId: Number(row["log_id"]),
    incarnation: row["incarnation"],
    offset: Number(row["log_offset"]),
    recordId: row["record_id"],
    chain: row["chain"],
  };
}
