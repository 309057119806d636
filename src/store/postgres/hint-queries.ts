import { hash } from "node:crypto";
import type { WriteOptions } from "../database.ts";
import type { Query } from "../sql.ts";

export const channelOf = (schema: string) => `${schema}_hint`;
/** Everybody hears only what is for them; names of channels are short, and addresses may be long. */
export const mailChannelOf = (key: MailKey, address: string) =>
  `flotilla_mail_${hash("sha256", JSON.stringify([key.schema, key.secret, address]), "hex").slice(0, 32)}`;

/** What it takes to know the channel of an address. Without a secret, it is told of letters and gets none. */
export type MailKey = { readonly schema: string; readonly secret: string | undefined };

export function secretTableQuery(schema: string): Query {
  return { text: `select to_regclass($1)::text as there`, values: [`${schema}.mail_secret`] };
}

export function secretQuery(schema: string): Query {
  return { text: `select secret from ${schema}.mail_secret`, values: [] };
}

/**
 * Tells those who listen, once the transaction that it is sent in has committed, if any of them waits:
 * transactions that tell something commit one after the other, in all databases of the server.
 */
export function hintQuery(schema: string): Query {
  const text = `select pg_notify($1, '')
    where exists (select 1 from ${schema}.pod_health where waiting = 1 and status = 'up')`;
  return { text, values: [channelOf(schema)] };
}

/**
 * Tells those at these addresses that there are letters, and brings them along where they are short.
 * Where it is lossy, the transaction that it is sent in is answered before it is on the disk. All in one
 * statement: each costs as much as a letter.
 */
export function mailQuery(
  key: MailKey,
  { mail = [], letters, lossy = false }: WriteOptions,
): Query {
  const answeredEarly = "set_config('synchronous_commit', 'off', true)";
  if (mail.length === 0) return { text: `select ${answeredEarly}`, values: [] };
  const told = mail.map((address) => ({
    channel: mailChannelOf(key, address),
    payload: key.secret === undefined ? "" : short(letters?.get(address)),
  }));
  const [first] = told;
  if (told.length === 1) {
    return {
      text: `select pg_notify($1, $2)${lossy ? `, ${answeredEarly}` : ""}`,
      values: [first!.channel, first!.payload],
    };
  }
  return {
    text: `select pg_notify(told ->> 'channel', told ->> 'payload')${lossy ? `, ${answeredEarly}` : ""}
      from jsonb_array_elements($1::jsonb) told`,
    values: [JSON.stringify(told)],
  };
}

// The server refuses 8,000 bytes and more. Whoever hears of letters without them looks for them.
const payloadBytes = 7_999;

function short(text = ""): string {
  return text.length * 3 <= payloadBytes || Buffer.byteLength(text) <= payloadBytes ? text : "";
}
