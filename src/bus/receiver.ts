import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/log.ts";
import type { Database, Row } from "../store/database.ts";
import { decodeNotification, type EnvelopeRow } from "./envelope.ts";
import { pruneEnvelopes, readEnvelopes, deleteEnvelopes } from "./sql.ts";

export type ReceiverParts = {
  address: string;
  database: Database;
  clock: Clock;
  log: Logger;
  /** How long envelopes stay unread without a notification. */
  pollMs: number;
  /** False if there is surely none, so that a poll would be in vain. Default: always true. */
  mayHaveEnvelopes?: (() => boolean) | undefined;
  /** Called with the envelopes of one row. Must not throw. */
  receive: (from: string, text: string) => void;
};

export type Receiver = {
  /** Called when an envelope was sent from here, which may have no receiver. */
  noteActivity(): void;
  close(): Promise<void>;
};

// A full read is followed by the next at once.
const rowsPerRead = 100;
const maxSenders = 10_000;
// The most delivered rows that are not deleted yet.
const maxDelivered = 1_000;
const pruneEveryMs = 10_000;
// By then all envelopes sent from or to here are old enough, and have been read or pruned.
const pruneForMs = 90_000;
// Delivered rows are deleted with the next poll, after this time at the latest.
const tidyMs = 100;
const lossy = { channels: [], lossy: true };

/**
 * Reads the envelopes of an address. Rows are delivered first and deleted with the next poll, so
 * that a lost answer of the store loses no envelope. A row that is read again is recognised by its
 * `seq`. A poll that finds nothing costs only a read.
 */
export function createReceiver(parts: ReceiverParts): Receiver {
  const { address, database, clock, log, pollMs, receive, mayHaveEnvelopes = () => true } = parts;
  const seen = new Map<string, number>();
  /** Delivered rows, to be deleted. */
  const delivered: Pick<EnvelopeRow, "sender" | "seq">[] = [];
  let polling: Promise<void> | undefined;
  let again = false;
  let closed = false;
  let failed = false;
  /** Notifications arrive, so that polls only find what was missed. */
  let notified = false;
  let activeMs = -Infinity;
  let prunedMs = clock.monotonic();
  let cancelPoll = () => {};

  /** Rows that come with a notification need not be read, if none is missing before them. */
  const onNotified = (_whose?: "own", payload?: string) => {
    const row = payload === undefined ? undefined : decodeNotification(payload);
    if (closed) return;
    notified = true;
    if (!row || row.after > (seen.get(row.sender) ?? 0)) return wake();
    deliver(row);
    if (delivered.length >= rowsPerRead) wake();
    else if (delivered.length === 1 && !polling) pollIn(tidyMs);
  };

  const deliver = ({ sender, seq, body }: Pick<EnvelopeRow, "sender" | "seq" | "body">) => {
    // A row beyond the bound is read again later, recognised by its `seq`, and deleted then.
    if (delivered.length < maxDelivered) delivered.push({ sender, seq });
    if (seq <= (seen.get(sender) ?? 0)) return;
    activeMs = clock.monotonic();
    remember(sender, seq);
    receive(sender, body);
  };

  const pollIn = (delayMs: number) => {
    cancelPoll();
    cancelPoll = clock.after(delayMs, () => {
      if (notified && delivered.length === 0 && !mayHaveEnvelopes()) pollIn(pollMs);
      else wake();
    });
  };

  const wake = () => {
    if (closed) return;
    if (polling) again = true;
    else polling = poll();
  };

  const poll = async (): Promise<void> => {
    cancelPoll();
    do {
      again = false;
      failed = false;
      try {
        if ((await readOnce()) === rowsPerRead) again = true;
        if (!closed) await prune();
      } catch (error) {
        failed = true;
        // The next poll shows whether the error has passed.
        log.debug({ error: String(error) }, "reading envelopes failed");
      }
    } while (again && !closed);
    polling = undefined;
    if (!closed) pollIn(delivered.length > 0 ? Math.min(tidyMs, pollMs) : pollMs);
  };

  const readOnce = async (): Promise<number> => {
    const taken = delivered.length;
    const found = await readRows();
    delivered.splice(0, taken);
    if (closed) return 0;
    for (const row of found) {
      deliver({
        sender: row["sender"] as string,
        seq: Number(row["seq"]),
        body: row["body"] as string,
      });
    }
    return found.length;
  };

  const readRows = async (): Promise<readonly Row[]> => {
    const reading = readEnvelopes(address, rowsPerRead);
    if (delivered.length === 0) return database.read(reading);
    const [, found] = await database.write([deleteEnvelopes(address, delivered), reading], lossy);
    return found!;
  };

  /** The senders that were silent the longest are evicted first. */
  const remember = (sender: string, seq: number) => {
    seen.delete(sender);
    seen.set(sender, seq);
    if (seen.size > maxSenders) seen.delete(seen.keys().next().value!);
  };

  const prune = async (): Promise<void> => {
    const nowMs = clock.monotonic();
    if (nowMs - prunedMs < pruneEveryMs || nowMs - activeMs > pruneForMs) return;
    prunedMs = nowMs;
    await database.write([pruneEnvelopes()], lossy);
  };

  const stop = database.subscribe(onNotified, address);
  wake();
  return {
    noteActivity() {
      activeMs = clock.monotonic();
    },
    async close() {
      closed = true;
      stop();
      cancelPoll();
      await polling;
      // Rows that are left are pruned later, so do not wait for a store that does not answer.
      if (delivered.length > 0 && !failed) {
        await database.write([deleteEnvelopes(address, delivered)], lossy).catch(() => {});
      }
    },
  };
}
