import { FlotillaError } from "../../../base/errors.ts";
import type { LogLife } from "./streams.ts";

export function unavailable(message: string): FlotillaError {
  return new FlotillaError("store_unavailable", message);
}

export function notThere(life: LogLife, sequence: number): FlotillaError {
  return unavailable(`message ${sequence} of log ${life.logId} isn't on the server that answered`);
}

export function beginsLate({ logId }: LogLife, from: number, first: number): FlotillaError {
  const why = "the server that answered is behind, or messages were purged by hand";
  const message = `log ${logId} begins at ${first}, and ${from} is needed: ${why}`;
  return new FlotillaError("store_unavailable", message, { details: { begins: first } });
}

export function takenSince({ logId }: Pick<LogLife, "logId">): FlotillaError {
  return new FlotillaError("not_owner", `another pod has taken log ${logId} since`);
}

export function isFull({ logId }: LogLife): FlotillaError {
  const message = `log ${logId} is full until the archive has taken more of it: try again later`;
  return new FlotillaError("overloaded", message, { retryAfterMs: 1_000 });
}

export function tooLarge({ logId }: LogLife, bytes: number, maxBytes: number): FlotillaError {
  const message = `a record of log ${logId} has ${bytes} bytes, of which ${maxBytes} are stored at most`;
  return new FlotillaError("payload_too_large", message, { details: { bytes, maxBytes } });
}

export function damaged(
  { logId, incarnation }: Pick<LogLife, "logId" | "incarnation">,
  why: string,
): FlotillaError {
  const message = `log ${logId} (${incarnation}) can't be served: ${why}`;
  return new FlotillaError("store_corrupt", message);
}

export function missing({ logId, incarnation }: LogLife): FlotillaError {
  const message = `the stream of log ${logId} (${incarnation}) is gone: restore it from a backup`;
  return new FlotillaError("store_missing", message);
}

export function lostItsEnd(life: LogLife, offset: number): FlotillaError {
  return damaged(life, `the servers have lost messages up to ${offset} that they had acknowledged`);
}
