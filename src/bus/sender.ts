import type { Clock } from "../base/clock.ts";
import type { Random } from "../base/random.ts";
import type { Database } from "../store/database.ts";
import { writeUntilKnown } from "../store/retry.ts";
import { afterMicrotasks } from "./after-microtasks.ts";
import { encodeNotification, type EnvelopeRow } from "./envelope.ts";
import { insertEnvelopes } from "./sql.ts";

export type SenderParts = {
  address: string;
  database: Database;
  clock: Clock;
  random: Random;
  /** The most characters that may wait to be written. */
  maxWaiting: number;
  /** Called with the number of dropped envelopes. */
  onLost: (envelopes: number, why: DropReason) => void;
};

/** `full`: too much waits already. `unsent`: the store did not take it in time. */
export type DropReason = "full" | "unsent";

export type Sender = {
  send(to: string, text: string): void;
  /** Resolves when everything that waits has been written or dropped. */
  close(): Promise<void>;
};

// Envelopes for one address share a row up to this size, and rows share a write.
const maxRowChars = 256 * 1024;
const maxWriteChars = 2 * 1024 * 1024;
// By then a requester has timed out, or has sent the request again.
const resendForMs = 5_000;
const resendWhenClosingMs = 500;
const maxAddresses = 10_000;

/**
 * Writes envelopes: all that arrive during a write go into the next one. One write at a time,
 * because the rows of two could be read in the wrong order.
 */
export function createSender(parts: SenderParts): Sender {
  const { address, database, clock, random, maxWaiting, onLost } = parts;
  let waiting: { readonly to: string; readonly text: string }[] = [];
  let waitingChars = 0;
  let lastSeq = 0;
  /** The last row for each address. */
  const sent = new Map<string, number>();
  /**
   * The highest `seq` among evicted addresses: an address that is not in `sent` may have had a row
   * up to this.
   */
  let forgotten = 0;
  let writing: Promise<void> | undefined;
  let closing = false;

  const drain = async (): Promise<void> => {
    await afterMicrotasks();
    while (waiting.length > 0) {
      const { rows, envelopes } = nextRows();
      const stored = await write(rows);
      if (!stored) onLost(envelopes, "unsent");
    }
    writing = undefined;
  };

  /** As many envelopes as one write takes, as one row or a few per address. */
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

  /** The channels to notify, with the row as payload if an address gets only one. */
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

  /** Sends the same rows until they are stored: the receiver recognises duplicates by `seq`. */
  const write = async (rows: readonly EnvelopeRow[]): Promise<boolean> => {
    const { channels, payloads } = notificationsOf(rows);
    try {
      await writeUntilKnown(database, [insertEnvelopes(rows)], {
        clock,
        random,
        limitMs: () => (closing ? resendWhenClosingMs : resendForMs),
        writeOptions: { channels, payloads, lossy: true },
      });
      return true;
    } catch {
      return false;
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
