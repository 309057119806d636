import crypto from "node:crypto";
import type { WriteOptions } from "../database.ts";
import type { Query } from "../sql.ts";

export const channelOf = (schema: string) => `${schema}_hint`;
/** Everybody hears only what is for them; names of channels are short, and addresses may be long. */
export const mailChannelOf = (key: MailKey, address: string) =>
  `flotilla_mail_${crypto.hash("sha256", JSON.stringify([key.schema, key.secret, address]), "hex").slice(0, 32)}`;

/**
 * What it takes to know the channel of an address, and to sign what is sent there. Without a secret, the pod at
 * the address is told that there are letters, and gets none.
 */
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
  const told = mail.map((address) => {
    const channel = mailChannelOf(key, address);
    return { channel, payload: signed(key, channel, letters?.get(address) ?? "") };
  });
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

const signatureChars = 22;
// The server refuses 8,000 bytes and more. Whoever hears of letters without them looks for them.
const letterBytes = 7_999 - signatureChars;

/**
 * A role that may only connect can notify any channel whose name it learns, so letters are signed with what only
 * pods may read. A plain hint carries nothing.
 */
function signed({ secret }: MailKey, channel: string, letters: string): string {
  if (secret === undefined || letters === "" || Buffer.byteLength(letters) > letterBytes) return "";
  return signatureOf(secret, channel, letters) + letters;
}

/** The letters that a notification brings; undefined where no pod signed them for this channel. */
export function openLetters(secret: string, channel: string, payload: string): string | undefined {
  const letters = payload.slice(signatureChars);
  const given = Buffer.from(payload.slice(0, signatureChars));
  const right = Buffer.from(signatureOf(secret, channel, letters));
  return given.length === right.length && crypto.timingSafeEqual(given, right)
    ? letters
    : undefined;
}

function signatureOf(secret: string, channel: string, letters: string): string {
  const whole = crypto
    .createHmac("sha256", secret)
    .update(`${channel}\n${letters}`)
    .digest("base64url");
  return whole.slice(0, signatureChars);
}
