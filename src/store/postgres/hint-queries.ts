import type { Query } from "../sql.ts";

export const channelOf = (schema: string) => `${schema}_hint`;
export const mailChannelOf = (schema: string) => `${schema}_mail`;

/**
 * Tells those who listen, once the transaction that it is sent in has committed, if any of them waits:
 * transactions that tell something commit one after the other, in all databases of the server.
 */
export function hintQuery(schema: string): Query {
  const text = `select pg_notify($1, '')
    where exists (select 1 from ${schema}.pod_health where waiting = 1 and status = 'up')`;
  return { text, values: [channelOf(schema)] };
}

/** Tells those at these addresses that there are letters. */
export function mailQuery(schema: string, addresses: readonly string[]): Query {
  const payload = addresses.join("\n");
  const fits = Buffer.byteLength(payload) <= payloadBytes;
  return { text: "select pg_notify($1, $2)", values: [mailChannelOf(schema), fits ? payload : ""] };
}

/** Whom a notice of letters is for; undefined where it is for everybody. */
export function mailAddresses(payload: string): string[] | undefined {
  return payload === "" ? undefined : payload.split("\n");
}

// The server refuses 8,000 bytes and more. Where that isn't enough, everybody is told to look.
const payloadBytes = 7_999;

/** The transaction that it is sent in is answered before it is on the disk. */
export const lossyQuery: Query = {
  text: "select set_config('synchronous_commit', 'off', true)",
  values: [],
};
