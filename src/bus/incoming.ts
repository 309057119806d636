import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/log.ts";
import type { Database } from "../store/database.ts";
import { pruneMail, readMail, takeMail } from "./statements.ts";

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
const pruneEveryMs = 10_000;
// Letters that were sent or left here are old enough by then, and have been looked for.
const pruneForMs = 90_000;

/**
 * Reads the letters at an address: first they are handed over and then taken out, so that an answer
 * of the store that is lost loses no letter. What is found again is known by its number. Reading only
 * is also what a look costs that finds nothing.
 */
export function createIncoming(parts: IncomingParts): Incoming {
  const { address, database, clock, log, pollMs, receive } = parts;
  const seen = new Map<string, number>();
  let looking: Promise<void> | undefined;
  let again = false;
  let closed = false;
  let stirredMs = -Infinity;
  let prunedMs = clock.monotonic();
  let cancelPoll = () => {};

  const wake = () => {
    if (closed) return;
    if (looking) again = true;
    else looking = look();
  };

  const look = async (): Promise<void> => {
    cancelPoll();
    do {
      again = false;
      try {
        if ((await readOnce()) === rowsAtOnce) again = true;
        if (!closed) await prune();
      } catch (error) {
        // Whatever it was, the next look shows whether it has passed.
        log.debug({ error: String(error) }, "letters couldn't be read");
      }
    } while (again && !closed);
    looking = undefined;
    if (!closed) cancelPoll = clock.after(pollMs, wake);
  };

  const readOnce = async (): Promise<number> => {
    const found = await database.read(readMail(address, rowsAtOnce));
    if (found.length === 0 || closed) return 0;
    stirredMs = clock.monotonic();
    const read = found.map((row) => ({
      sender: row["sender"] as string,
      seq: Number(row["seq"]),
      body: row["body"] as string,
    }));
    for (const { sender, seq, body } of read) {
      if (seq <= (seen.get(sender) ?? 0)) continue;
      remember(sender, seq);
      receive(sender, body);
    }
    await database.write([takeMail(address, read)], { mail: [], lossy: true });
    return found.length;
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
    await database.write([pruneMail()], { mail: [], lossy: true });
  };

  const stop = database.subscribe(wake, address);
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
    },
  };
}
