import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/log.ts";
import type { Database, Row } from "../store/database.ts";
import { decodeMail, type MailRow } from "./envelope.ts";
import { pruneMail, readMail, takeMail } from "./sql.ts";

export type IncomingParts = {
  address: string;
  database: Database;
  clock: Clock;
  log: Logger;
  /** How long letters lie where no hint came. */
  pollMs: number;
  /** Gets the letters of one row, and must not throw. */
  receive: (from: string, text: string) => void;
};

export type Incoming = {
  /** Something was sent from here, which may be for nobody. */
  stir(): void;
  close(): Promise<void>;
};

// A full read is followed by the next at once.
const rowsAtOnce = 100;
const sendersKnown = 10_000;
// What was handed over and couldn't be taken out yet.
const readMost = 1_000;
const pruneEveryMs = 10_000;
// Letters that were sent or left here are old enough by then, and have been looked for.
const pruneForMs = 90_000;
// What was handed over is taken out with the next look, after this time at the latest.
const tidyMs = 100;
const lossy = { mail: [], lossy: true };

/**
 * Reads the letters at an address: first they are handed over and then taken out, together with the
 * next look, so that an answer of the store that is lost loses no letter. What is found again is known
 * by its number. Reading only is also what a look costs that finds nothing.
 */
export function createIncoming(parts: IncomingParts): Incoming {
  const { address, database, clock, log, pollMs, receive } = parts;
  const seen = new Map<string, number>();
  /** Handed over, and to be taken out. */
  const read: Pick<MailRow, "sender" | "seq">[] = [];
  let looking: Promise<void> | undefined;
  let again = false;
  let closed = false;
  let failed = false;
  let stirredMs = -Infinity;
  let prunedMs = clock.monotonic();
  let cancelPoll = () => {};

  /** Letters that come along with the hint needn't be looked for, if none is missing before them. */
  const hinted = (_whose?: "own", letters?: string) => {
    const mail = letters === undefined ? undefined : decodeMail(letters);
    if (closed) return;
    if (!mail || mail.after > (seen.get(mail.sender) ?? 0)) return wake();
    hand(mail);
    if (read.length >= rowsAtOnce) wake();
    else if (read.length === 1 && !looking) pollIn(tidyMs);
  };

  const hand = ({ sender, seq, body }: Pick<MailRow, "sender" | "seq" | "body">) => {
    // What isn't noted here is found by a later look, known by its number, and noted then.
    if (read.length < readMost) read.push({ sender, seq });
    if (seq <= (seen.get(sender) ?? 0)) return;
    stirredMs = clock.monotonic();
    remember(sender, seq);
    receive(sender, body);
  };

  const pollIn = (delayMs: number) => {
    cancelPoll();
    cancelPoll = clock.after(delayMs, wake);
  };

  const wake = () => {
    if (closed) return;
    if (looking) again = true;
    else looking = look();
  };

  const look = async (): Promise<void> => {
    cancelPoll();
    do {
      again = false;
      failed = false;
      try {
        if ((await readOnce()) === rowsAtOnce) again = true;
        if (!closed) await prune();
      } catch (error) {
        failed = true;
        // Whatever it was, the next look shows whether it has passed.
        log.debug({ error: String(error) }, "letters couldn't be read");
      }
    } while (again && !closed);
    looking = undefined;
    if (!closed) pollIn(read.length > 0 ? Math.min(tidyMs, pollMs) : pollMs);
  };

  const readOnce = async (): Promise<number> => {
    const taken = read.length;
    const found = await lookOnce();
    read.splice(0, taken);
    if (closed) return 0;
    for (const row of found) {
      hand({
        sender: row["sender"] as string,
        seq: Number(row["seq"]),
        body: row["body"] as string,
      });
    }
    return found.length;
  };

  const lookOnce = async (): Promise<readonly Row[]> => {
    const look = readMail(address, rowsAtOnce);
    if (read.length === 0) return database.read(look);
    const [, found] = await database.write([takeMail(address, read), look], lossy);
    return found!;
  };

  /** Those who were silent longest are forgotten first. */
  const remember = (sender: string, seq: number) => {
    seen.delete(sender);
    seen.set(sender, seq);
    if (seen.size > sendersKnown) seen.delete(seen.keys().next().value!);
  };

  const prune = async (): Promise<void> => {
    const nowMs = clock.monotonic();
    if (nowMs - prunedMs < pruneEveryMs || nowMs - stirredMs > pruneForMs) return;
    prunedMs = nowMs;
    await database.write([pruneMail()], lossy);
  };

  const stop = database.subscribe(hinted, address);
  wake();
  return {
    stir() {
      stirredMs = clock.monotonic();
    },
    async close() {
      closed = true;
      stop();
      cancelPoll();
      await looking;
      // Rows that are left behind are pruned, so that nobody waits for a store that doesn't answer.
      if (read.length > 0 && !failed) {
        await database.write([takeMail(address, read)], lossy).catch(() => {});
      }
    },
  };
}
