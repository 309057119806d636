import type { EnvelopeRow } from "./envelope.ts";
import { isAmong, limit, now, rowAddress, rows, sql, type Statement, table } from "../store/sql.ts";

const busMessages = table("bus_message");

/** Inserts envelopes. Repeating it changes nothing, unless they were deleted meanwhile. */
export function insertEnvelopes(envelopes: readonly EnvelopeRow[]): Statement {
  const fresh = rows(
    { address: "text", sender: "text", seq: "integer", body: "content" },
    envelopes.map(({ address, sender, seq, body }) => [address, sender, seq, body]),
  );
  return sql`
    insert into ${busMessages} (address, sender, seq, body, at)
    select address, sender, seq, body, ${now} from ${fresh} fresh where true
    on conflict do nothing`;
}

/** The envelopes of an address. */
export function readEnvelopes(address: string, count: number): Statement {
  return sql`
    select sender, seq, body from ${busMessages}
    where address = ${address}
    order by sender, seq ${limit(count)}`;
}

/** Deletes envelopes that have been read. */
export function deleteEnvelopes(
  address: string,
  read: readonly Pick<EnvelopeRow, "sender" | "seq">[],
): Statement {
  const done = rows(
    { sender: "text", seq: "integer" },
    read.map(({ sender, seq }) => [sender, seq]),
  );
  return sql`
    delete from ${busMessages}
    where address = ${address}
      and (sender, seq) in (select done.sender, done.seq from ${done} done)`;
}

/** Envelopes that were not read for a minute have lost their receiver. */
export const envelopesKeptMs = 60_000;

/** Deletes up to `count` envelopes without a receiver. */
export function pruneEnvelopes(count = 1_000): Statement {
  return sql`
    delete from ${busMessages}
    where ${isAmong(
      sql`select ${rowAddress("bus_message")} from ${busMessages} where at < ${now} - ${envelopesKeptMs} ${limit(count)}`,
      sql`${rowAddress("bus_message")}`,
    )}`;
}

/** The secret of the store, which envelopes are signed with that don't pass through it. */
export function readBusSecret(): Statement {
  return sql`select secret from ${table("bus_secret")} ${limit(1)}`;
}
