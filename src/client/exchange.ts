import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { fraction, type Random } from "../base/random.ts";
import type { ClientFrame, ServerFrame } from "../protocol/frames.ts";
import { errorOf } from "./http.ts";
import { jitteredMs } from "./jitter.ts";
import { createPending, type WithoutRef, type Writing } from "./pending.ts";

export type Ack = Extract<ServerFrame, { type: "ack" }>;

/** What goes out over the connection: asked-for changes until they are acked, and the rest at once. */
export type Exchange = {
  /** Resolves when it is acked, on whichever connection; rejects when it is refused for good. */
  ask(frame: Writing, signal?: AbortSignal): Promise<Ack>;
  /** Sends ahead of what waits, where there is a connection; the ref, or undefined. */
  tell(frame: Told): string | undefined;
  opened(maxFrameBytes: number): void;
  lost(): void;
  /** Takes what answers something that was asked. */
  take(frame: Extract<ServerFrame, { type: "ack" | "error" }>): void;
  /** Gives up all that waits. */
  rejectAll(error: FlotillaError): void;
  /** How much waits. */
  readonly size: number;
};

export type Told = WithoutRef<
  Extract<ClientFrame, { type: "join" | "leave" | "inbox" | "inbox_leave" | "ping" | "token" }>
>;

export type ExchangeParts = {
  most: number;
  send: (text: string) => void;
  /** Why nothing can be asked at all, for now. */
  refusal: () => FlotillaError | undefined;
  /** It has become empty, or isn't any more. */
  onSize: () => void;
  clock: Clock;
  random: Random;
};

// A server takes 64 that aren't acked on a connection, and 100 a second, twice that at once.
const windowMost = 48;
const perSecond = 80;
const burst = 100;

/** What may be different a moment later. */
export const passing =
  /^(cancelled|closed|not_owner|overloaded|store_.*|timeout|unavailable|unknown_outcome)$/;

type Asked = { resolve: (ack: Ack) => void; reject: (error: unknown) => void };

export function createExchange(parts: ExchangeParts): Exchange {
  const { most, send, refusal, onSize, clock, random } = parts;
  const pending = createPending({ most, windowMost });
  const asked = new Map<number, Asked>();
  const told: string[] = [];
  let tells = 0;
  let maxBytes: number | undefined;
  let room = burst;
  let filledMs = 0;
  let isPumping = false;
  let cancelTimer: (() => void) | undefined;

  const settle = (ref: number): Asked | undefined => {
    const found = asked.get(ref);
    asked.delete(ref);
    pending.remove(ref);
    if (found && pending.size === 0) onSize();
    pumpSoon();
    return found;
  };

  /** What is asked in one turn goes out in the order that matters: joins first. */
  const pumpSoon = () => {
    if (isPumping || maxBytes === undefined) return;
    isPumping = true;
    queueMicrotask(() => {
      isPumping = false;
      pump();
    });
  };

  const pump = () => {
    if (maxBytes === undefined) return;
    cancelTimer?.();
    cancelTimer = undefined;
    const nowMs = clock.monotonic();
    room = Math.min(burst, room + ((nowMs - filledMs) * perSecond) / 1_000);
    filledMs = nowMs;
    const texts = told.splice(0, Math.max(0, Math.floor(room)));
    room -= texts.length;
    if (told.length === 0 && room >= 1) {
      for (const { ref, frame } of pending.next(nowMs, Math.floor(room))) {
        const text = JSON.stringify({ ...frame, ref });
        if (encoder.encode(text).length > maxBytes) {
          const message = `the server takes up to ${maxBytes} bytes: send a reference`;
          settle(ref)?.reject(new FlotillaError("payload_too_large", message));
          continue;
        }
        room--;
        texts.push(text);
      }
    }
    for (const text of texts) send(text);
    const waitsForRoom = room < 1 && (told.length > 0 || pending.size > 0);
    const dueMs = waitsForRoom ? nowMs + 1_000 / perSecond : pending.dueMs();
    if (dueMs !== undefined) cancelTimer = clock.after(Math.max(10, dueMs - nowMs), pump);
  };

  return {
    ask: (frame, signal) =>
      new Promise((resolve, reject) => {
        signal?.throwIfAborted();
        const refused = refusal();
        if (refused) throw refused;
        const added = pending.add(frame);
        if (!added) {
          const message = `${most} things wait for the server already`;
          throw new FlotillaError("overloaded", message, { details: { maxUnacked: most } });
        }
        const { ref } = added;
        const onAbort = () => settle(ref)?.reject(signal?.reason);
        const forget = () => signal?.removeEventListener("abort", onAbort);
        asked.set(ref, {
          resolve: (ack) => (forget(), resolve(ack)),
          reject: (error) => (forget(), reject(error)),
        });
        signal?.addEventListener("abort", onAbort);
        if (pending.size === 1) onSize();
        pumpSoon();
      }),
    tell(frame) {
      if (maxBytes === undefined) return undefined;
      const ref = `t${++tells}`;
      told.push(JSON.stringify({ ...frame, ref }));
      pumpSoon();
      return ref;
    },
    opened(bytes) {
      maxBytes = bytes;
      room = burst;
      filledMs = clock.monotonic();
      pumpSoon();
    },
    lost() {
      maxBytes = undefined;
      told.length = 0;
      cancelTimer?.();
      for (const { ref, frame, wasSent } of pending.all()) {
        // Sent again, it might end a turn that has begun since.
        if (frame.type !== "stop" || frame.epoch !== undefined || !wasSent) continue;
        const message = "the connection was lost: the answer may be stopped";
        settle(ref)?.reject(new FlotillaError("unknown_outcome", message));
      }
      pending.lost();
    },
    take(frame) {
      const { ref } = frame;
      if (typeof ref !== "number") return;
      if (frame.type === "ack") return settle(ref)?.resolve(frame);
      if (!passing.test(frame.code)) return settle(ref)?.reject(errorOf(frame));
      const refusals = pending.get(ref)?.refusals ?? 0;
      const waitMs = (frame.retryAfterMs ?? 0) + jitteredMs(refusals + 1, fraction(random));
      pending.again(ref, clock.monotonic() + waitMs);
      pumpSoon();
    },
    rejectAll(error) {
      for (const { ref } of pending.all()) settle(ref)?.reject(error);
    },
    get size() {
      return pending.size;
    },
  };
}

const encoder = new TextEncoder();
