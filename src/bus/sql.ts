import type { EnvelopeRow } from "./envelope.ts";
import { isAmong, limit, now, rowAddress, rows, sql, type Statement, table } from "../store/sql.ts";

const busMessages = table("bus_message");

/** Leaves letters. Sent again, it changes nothing, unless they were taken meanwhile. */
export function insertEnvelopes(envelopes: readonly EnvelopeRow[]): Statement {
  const fresh = rows(
    { address: "text", sender: "text", seq: "integer", body: "text" },
    envelopes.map(({ address, sender, seq, body }) => [address, sender, seq, body]),
  );
  return sql`
    insert into ${busMessages} (address, sender, seq, body, at)
    select address, sender, seq, body, ${now} from ${fresh} fresh where true
    on conflict do nothing`;
}

/** What lies at an address. */
export function readEnvelopes(address: string, count: number): Statement {
  return sql`
    select sender, seq, body from ${busMessages}
    where address = ${address}
    order by sender, seq ${limit(count)}`;
}

/** Takes out what has been read. */
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

/** Letters that nobody has taken for a minute: whoever they were for is gone. */
export const envelopesKeptMs = 60_000;

/** Deletes letters that nobody takes, so many at most. For whoever keeps house. */
export function pruneEnvelopes(count = 1_000): Statement {
  return sql`
    delete from ${busMessages}
    where ${isAmong(sql`select ${rowAddress} from ${busMessages} where at < ${now} - ${envelopesKeptMs} ${limit(count)}`)}`;
}
