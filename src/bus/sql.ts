import type { MailRow } from "./envelope.ts";
import { isAmong, limit, now, rowAddress, rows, sql, type Statement, table } from "../store/sql.ts";

const mailbox = table("bus_message");

/** Leaves letters. Sent again, it changes nothing, unless they were taken meanwhile. */
export function putMail(mail: readonly MailRow[]): Statement {
  const fresh = rows(
    { address: "text", sender: "text", seq: "integer", body: "text" },
    mail.map(({ address, sender, seq, body }) => [address, sender, seq, body]),
  );
  return sql`
    insert into ${mailbox} (address, sender, seq, body, at)
    select address, sender, seq, body, ${now} from ${fresh} fresh where true
    on conflict do nothing`;
}

/** What lies at an address. */
export function readMail(address: string, count: number): Statement {
  return sql`
    select sender, seq, body from ${mailbox}
    where address = ${address}
    order by sender, seq ${limit(count)}`;
}

/** Takes out what has been read. */
export function takeMail(
  address: string,
  read: readonly Pick<MailRow, "sender" | "seq">[],
): Statement {
  const done = rows(
    { sender: "text", seq: "integer" },
    read.map(({ sender, seq }) => [sender, seq]),
  );
  return sql`
    delete from ${mailbox}
    where address = ${address}
      and (sender, seq) in (select done.sender, done.seq from ${done} done)`;
}

/** Letters that nobody has taken for a minute: whoever they were for is gone. */
export const mailKeptMs = 60_000;

/** Deletes letters that nobody takes, so many at most. For whoever keeps house. */
export function pruneMail(count = 1_000): Statement {
  return sql`
    delete from ${mailbox}
    where ${isAmong(sql`select ${rowAddress} from ${mailbox} where at < ${now} - ${mailKeptMs} ${limit(count)}`)}`;
}
