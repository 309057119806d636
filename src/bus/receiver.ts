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
  /** How long letters lie where no hint came. */
  pollMs: number;
  /** Gets the letters of one row, and must not throw. */
  receive: (from: string, text: string) => void;
};

export type Receiver = {
  /** Something was sent from here, which may be for nobody. */
  noteActivity(): void;
  close(): Promise<void>;
};

// A full read is followed by the next at once.
const rowsPerRead = 100;
const maxSenders = 10_000;
// What was handed over and couldn't be taken out yet.
const maxDelivered = 1_000;
const pruneEveryMs = 10_000;
// Letters that were sent or left here are old enough by then, and have been looked for.
const pruneForMs = 90_000;
// What was handed over is taken out with the next look, after this time at the latest.
const tidyMs = 100;
const lossy = { channels: [], lossy: true };

/**
 * Reads the letters at an address: first they are handed over and then taken out, together with the
 * next look, so that an answer of the store that is lost loses no letter. What is found again is known
 * by its number. Reading only is also what a look costs that finds nothing.
 */
export function createReceiver(parts: ReceiverParts): Receiver {
  const { address, database, clock, log, pollMs, receive } = parts;
  const seen = new Map<string, number>();
  /** Handed over, and to be taken out. */
  const delivered: Pick<EnvelopeRow, "sender" | "seq">[] = [];
  let polling: Promise<void> | undefined;
  let again = false;
  let closed = false;
  let failed = false;
  let activeMs = -Infinity;
  let prunedMs = clock.monotonic();
  let cancelPoll = () => {};

  /** Letters that come along with the hint needn't be looked for, if none is missing before them. */
  const onNotified = (_whose?: "own", payload?: string) => {
    const row = payload === undefined ? undefined : decodeNotification(payload);
    if (closed) return;
    if (!row || row.after > (seen.get(row.sender) ?? 0)) return wake();
    deliver(row);
    if (delivered.length >= rowsPerRead) wake();
    else if (delivered.length === 1 && !polling) pollIn(tidyMs);
  };

  const deliver = ({ sender, seq, body }: Pick<EnvelopeRow, "sender" | "seq" | "body">) => {
    // What isn't noted here is found by a later look, known by its number, and noted then.
    if (delivered.length < maxDelivered) delivered.push({ sender, seq });
    if (seq <= (seen.get(sender) ?? 0)) return;
    activeMs = clock.monotonic();
    remember(sender, seq);
    receive(sender, body);
  };

  const pollIn = (delayMs: number) => {
    cancelPoll();
    cancelPoll = clock.after(delayMs, wake);
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
        // Whatever it was, the next look shows whether it has passed.
        log.debug({ error: String(error) }, "letters couldn't be read");
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
    const look = readEnvelopes(address, rowsPerRead);
    if (delivered.length === 0) return database.read(look);
    const [, found] = await database.write([deleteEnvelopes(address, delivered), look], lossy);
    return found!;
  };

  /** Those who were silent longest are forgotten first. */
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
      // Rows that are left behind are pruned, so that nobody waits for a store that doesn't answer.
      if (delivered.length > 0 && !failed) {
        await database.write([deleteEnvelopes(address, delivered)], lossy).catch(() => {});
      }
    },
  };
}
