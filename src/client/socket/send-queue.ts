import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { fraction, type Random } from "../../base/random.ts";
import type { ClientFrame, ServerFrame } from "../../protocol/frames.ts";
import { errorOf } from "../http.ts";
import { jitteredMs } from "../../base/backoff.ts";
import { type Ack, createPending, type Waiting, type WithoutRef, type Writing } from "./pending.ts";

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

export function createExchange(parts: ExchangeParts): Exchange {
  const { most, send, refusal, onSize, clock, random } = parts;
  const pending = createPending({ most, windowMost });
  const told: string[] = [];
  let tells = 0;
  let maxBytes: number | undefined;
  let room = burst;
  let filledMs = 0;
  let isPumping = false;
  let cancelTimer: (() => void) | undefined;

  const settle = (item: Waiting): Waiting => {
    if (pending.remove(item) && pending.size === 0) onSize();
    pumpSoon();
    return item;
  };

  /** A refusal says nothing of an earlier try that may have been stored. */
  const refuse = (item: Waiting, error: FlotillaError) =>
    settle(item).reject(
      item.mayBeStored && !passing.test(error.code)
        ? new FlotillaError("unknown_outcome", error.message, { cause: error })
        : error,
    );

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
    // While more is told than there is room for, no room is left for what is asked.
    const texts = told.splice(0, Math.floor(room));
    room -= texts.length;
    for (const item of pending.next(nowMs, Math.floor(room))) {
      const text = JSON.stringify({ ...item.frame, ref: item.ref });
      if (encoder.encode(text).length > maxBytes) {
        const message = `the server takes up to ${maxBytes} bytes: send a reference`;
        refuse(item, new FlotillaError("payload_too_large", message));
        continue;
      }
      room--;
      texts.push(text);
    }
    for (const text of texts) send(text);
    const waitsForRoom = room < 1 && (told.length > 0 || pending.size > 0);
    const dueMs = waitsForRoom ? nowMs + 1_000 / perSecond : pending.dueMs();
    if (dueMs !== undefined) cancelTimer = clock.after(Math.max(10, dueMs - nowMs), pump);
  };

  return {
    async ask(frame, signal) {
      signal?.throwIfAborted();
      const refused = refusal();
      if (refused) throw refused;
      const asked = Promise.withResolvers<Ack>();
      const item = pending.add(frame, asked);
      if (!item) {
        const message = `${most} things wait for the server already`;
        throw new FlotillaError("overloaded", message, { details: { maxUnacked: most } });
      }
      const onAbort = () => settle(item).reject(signal?.reason);
      signal?.addEventListener("abort", onAbort);
      if (pending.size === 1) onSize();
      pumpSoon();
      try {
        return await asked.promise;
      } finally {
        signal?.removeEventListener("abort", onAbort);
      }
    },
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
      pending.lost();
      for (const item of pending.all()) {
        const { frame, mayBeStored } = item;
        // Sent again, it might end a turn that has begun since.
        if (frame.type !== "stop" || frame.epoch !== undefined || !mayBeStored) continue;
        refuse(item, new FlotillaError("unknown_outcome", "the connection was lost"));
      }
    },
    take(frame) {
      const item = pending.get(frame.ref);
      if (!item) return;
      if (frame.type === "ack") return settle(item).resolve(frame);
      if (!passing.test(frame.code)) return refuse(item, errorOf(frame));
      const waitMs = (frame.retryAfterMs ?? 0) + jitteredMs(item.refusals + 1, fraction(random));
      pending.again(item, clock.monotonic() + waitMs, frame.code !== "overloaded");
      pumpSoon();
    },
    rejectAll(error) {
      pending.lost();
      for (const item of pending.all()) refuse(item, error);
    },
    get size() {
      return pending.size;
    },
  };
}

const encoder = new TextEncoder();
