import crypto from "node:crypto";
import type { Clock } from "../../base/clock.ts";

/** What an envelope is cut into, so that it fits what servers take by default. */
export const maxPieceBytes = 512 * 1024;
/** The largest envelope. */
export const maxEnvelopeBytes = 16 * 1024 * 1024;

const maxPieces = maxEnvelopeBytes / maxPieceBytes;
const signatureBytes = 32;
// Before the bytes of a piece: its place, and the address of its sender.
const maxHeadBytes = 1_024;
// Of all envelopes whose pieces have arrived in part.
const maxOpenBytes = 64 * 1024 * 1024;
const maxOpen = 1_000;
// A sender sends the pieces of an envelope one after the other.
const nextPieceMs = 30_000;
const maxSenders = 10_000;

const form = /^(\d{1,16}) (\d{1,2}) (\d{1,2}) ("[^\n]*")$/;

/** A part of an envelope, as it was received. */
export type Piece = {
  readonly sender: string;
  /** Grows with every envelope of a sender. */
  readonly seq: number;
  readonly nth: number;
  readonly of: number;
  readonly bytes: Uint8Array;
};

/** What pieces are signed with, and for which address: a server may let others publish to it. */
export type PieceKey = { readonly secret: string; readonly address: string };

/** Cuts an envelope into signed pieces, in their order. Undefined if it is too large. */
export function cutIntoPieces(
  key: PieceKey,
  { sender, seq, text }: { sender: string; seq: number; text: string },
): Uint8Array[] | undefined {
  const bytes = Buffer.from(text);
  if (bytes.length > maxEnvelopeBytes) return undefined;
  const of = Math.max(1, Math.ceil(bytes.length / maxPieceBytes));
  return Array.from({ length: of }, (_, nth) => {
    const head = Buffer.from(`${seq} ${nth} ${of} ${JSON.stringify(sender)}\n`);
    const part = bytes.subarray(nth * maxPieceBytes, (nth + 1) * maxPieceBytes);
    return Buffer.concat([signatureOf(key, head, part), head, part]);
  });
}

/** Reads a piece. Undefined if no process with the secret has made it for this address. */
export function readPiece(key: PieceKey, data: Uint8Array): Piece | undefined {
  const frame = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  if (frame.length > signatureBytes + maxHeadBytes + maxPieceBytes) return undefined;
  const end = frame.subarray(0, signatureBytes + maxHeadBytes).indexOf("\n", signatureBytes);
  if (end < 0) return undefined;
  const signature = frame.subarray(0, signatureBytes);
  const head = frame.subarray(signatureBytes, end + 1);
  const bytes = frame.subarray(end + 1);
  if (!crypto.timingSafeEqual(signature, signatureOf(key, head, bytes))) return undefined;
  const found = form.exec(head.subarray(0, -1).toString());
  if (!found) return undefined;
  const [seq, nth, of] = found.slice(1, 4).map(Number) as [number, number, number];
  if (of < 1 || of > maxPieces || nth >= of || bytes.length > maxPieceBytes) return undefined;
  try {
    return { seq, nth, of, sender: String(JSON.parse(found[4]!)), bytes };
  } catch {
    return undefined;
  }
}

type Open = {
  readonly seq: number;
  readonly of: number;
  readonly parts: Uint8Array[];
  bytes: number;
  cancel: () => void;
};

/**
 * Joins pieces to envelopes. Those of a sender arrive in their order unless some are lost, so of each sender
 * one envelope is open at most; one that never ends is dropped after a while, or when others need its room.
 */
export function createJoiner({ clock }: { clock: Clock }) {
  const open = new Map<string, Open>();
  /** The last envelope of each sender. */
  const seen = new Map<string, number>();
  let openBytes = 0;

  const drop = (sender: string) => {
    const dropped = open.get(sender);
    if (!dropped) return;
    dropped.cancel();
    openBytes -= dropped.bytes;
    open.delete(sender);
  };
  const dropOldest = () => drop(open.keys().next().value!);

  /** The senders that were silent the longest are forgotten first. */
  const remember = (sender: string, seq: number) => {
    seen.delete(sender);
    seen.set(sender, seq);
    if (seen.size > maxSenders) seen.delete(seen.keys().next().value!);
  };

  return {
    /** The text of an envelope that is whole with this piece. */
    add({ sender, seq, nth, of, bytes }: Piece): string | undefined {
      // Late: on its way over another server it was overtaken, and the order holds.
      if (seq <= (seen.get(sender) ?? 0)) return undefined;
      if (nth === 0) drop(sender);
      if (of === 1) {
        remember(sender, seq);
        return Buffer.from(bytes).toString();
      }
      const found = nth === 0 ? { seq, of, parts: [], bytes: 0, cancel() {} } : open.get(sender);
      if (found?.seq !== seq || found.of !== of || found.parts.length !== nth) {
        drop(sender);
        return undefined;
      }
      const partial: Open = found;
      open.set(sender, partial);
      partial.parts.push(bytes);
      partial.bytes += bytes.length;
      openBytes += bytes.length;
      if (partial.parts.length === of) {
        drop(sender);
        remember(sender, seq);
        return Buffer.concat(partial.parts).toString();
      }
      partial.cancel();
      partial.cancel = clock.after(nextPieceMs, () => drop(sender));
      while (openBytes > maxOpenBytes || open.size > maxOpen) dropOldest();
      return undefined;
    },
    /** How many bytes of envelopes that aren't whole are held. */
    get openBytes() {
      return openBytes;
    },
    clear() {
      for (const sender of open.keys()) drop(sender);
    },
  };
}

function signatureOf({ secret, address }: PieceKey, head: Uint8Array, bytes: Uint8Array): Buffer {
  const hash = crypto.createHmac("sha256", secret);
  return hash
    .update(`${JSON.stringify(address)}\n`)
    .update(head)
    .update(bytes)
    .digest();
}
