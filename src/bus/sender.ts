import process from "node:process";
import { contentionMs } from "../base/backoff.ts";
import { type Clock, sleep } from "../base/clock.ts";
import { hasCode } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { Database } from "../store/database.ts";
import { encodeNotification, type EnvelopeRow } from "./envelope.ts";
import { insertEnvelopes } from "./sql.ts";

export type SenderParts = {
  address: string;
  database: Database;
  clock: Clock;
  random: Random;
  /** Characters that may wait to be written. */
  maxWaiting: number;
  /** So many letters will not get there. */
  onLost: (envelopes: number, why: DropReason) => void;
};

/** `full`: too much waits already. `unsent`: the store didn't take it in time. */
export type DropReason = "full" | "unsent";

export type Sender = {
  send(to: string, text: string): void;
  /** Resolves when everything that waits has been written, or is lost. */
  close(): Promise<void>;
};

// Letters for one address share a row up to this size, and rows one write.
const maxRowChars = 256 * 1024;
const maxWriteChars = 2 * 1024 * 1024;
// Whoever waits for an answer has given up by then, or asks again.
const resendForMs = 5_000;
const resendWhenClosingMs = 500;
const maxAddresses = 10_000;

/**
 * Writes letters: what arrives while the last write is under way goes as one with the next. One at a
 * time, because those of two writes could be read in the wrong order.
 */
export function createSender(parts: SenderParts): Sender {
  const { address, database, clock, random, maxWaiting, onLost } = parts;
  let waiting: { readonly to: string; readonly text: string }[] = [];
  let waitingChars = 0;
  let lastSeq = 0;
  /** The last row for each address. */
  const sent = new Map<string, number>();
  /** The last row for an address that isn't among them any more: any other may have had one by then. */
  let forgotten = 0;
  let writing: Promise<void> | undefined;
  let closing = false;

  const drain = async (): Promise<void> => {
    await afterMicrotasks();
    while (waiting.length > 0) {
      const { rows, envelopes: letters } = nextRows();
      const stored = await write(rows);
      if (!stored) onLost(letters, "unsent");
    }
    writing = undefined;
  };

  /** As much of what waits as one write takes: one row for each address, or few. */
  const nextRows = (): { rows: EnvelopeRow[]; envelopes: number } => {
    const open = new Map<string, { text: string }>();
    const packed: { to: string; pack: { text: string } }[] = [];
    let chars = 0;
    let envelopes = 0;
    for (; envelopes < waiting.length && chars < maxWriteChars; envelopes++) {
      const { to, text } = waiting[envelopes]!;
      chars += text.length;
      const found = open.get(to);
      if (found && found.text.length + text.length <= maxRowChars) found.text += `,${text}`;
      else {
        const pack = { text };
        open.set(to, pack);
        packed.push({ to, pack });
      }
    }
    waiting = waiting.slice(envelopes);
    waitingChars -= chars;
    const rows = packed.map(({ to, pack }) => ({
      address: to,
      sender: address,
      seq: ++lastSeq,
      body: `[${pack.text}]`,
    }));
    return { rows, envelopes };
  };

  /** Whom to tell, and what, where one row is all that somebody gets. */
  const notificationsOf = (rows: readonly EnvelopeRow[]) => {
    const payloads = new Map<string, string>();
    for (const row of rows) {
      const { address: to } = row;
      payloads.set(
        to,
        payloads.has(to) ? "" : encodeNotification({ ...row, after: sent.get(to) ?? forgotten }),
      );
      sent.delete(to);
      sent.set(to, row.seq);
    }
    while (sent.size > maxAddresses) {
      const [to, seq] = sent.entries().next().value!;
      sent.delete(to);
      forgotten = Math.max(forgotten, seq);
    }
    return { channels: [...payloads.keys()], payloads };
  };

  /** Sends the same rows until they are stored: those that were read already are known by their number. */
  const write = async (rows: readonly EnvelopeRow[]): Promise<boolean> => {
    const { channels, payloads } = notificationsOf(rows);
    const startedMs = clock.monotonic();
    for (let tries = 1; ; tries++) {
      try {
        await database.write([insertEnvelopes(rows)], { channels, payloads, lossy: true });
        return true;
      } catch (error) {
        const limitMs = closing ? resendWhenClosingMs : resendForMs;
        const late = clock.monotonic() - startedMs >= limitMs;
        if (late || !hasCode(error, ...transientCodes)) return false;
        const waitMs = contentionMs(tries, random);
        database.report?.({ type: "resent", waitMs });
        await sleep(clock, waitMs);
      }
    }
  };

  return {
    send(to, text) {
      if (closing || waitingChars + text.length > maxWaiting) return onLost(1, "full");
      waiting.push({ to, text });
      waitingChars += text.length;
      writing ??= drain();
    },
    async close() {
      closing = true;
      await writing;
    },
  };
}

/**
 * Resolves when all has happened that follows from what happens now. So what is told of a commit and
 * the answers to those who asked for it, some promises later, go along in one write.
 */
function afterMicrotasks(): Promise<void> {
  return Promise.resolve().then(() => new Promise((resolve) => process.nextTick(resolve)));
}

const transientCodes = [
  "store_busy",
  "store_full",
  "store_unavailable",
  "unknown_outcome",
] as const;
