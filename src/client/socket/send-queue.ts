import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { fraction, type Random } from "../../base/random.ts";
import type { ClientFrame, ServerFrame } from "../../protocol/frames.ts";
import { jitteredMs } from "../backoff.ts";
import { errorOf } from "../http.ts";

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

type Told = WithoutRef<
  Extract<ClientFrame, { type: "join" | "leave" | "inbox" | "inbox_leave" | "ping" | "token" }>
>;

type ExchangeParts = {
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

type Ack = Extract<ServerFrame, { type: "ack" }>;

/** A frame that changes a session, and that is sent until it is acked or refused. */
type Writing = WithoutRef<
  Extract<ClientFrame, { type: "send" | "tool_result" | "regenerate" | "stop" | "read" }>
>;

/** A frame as it is made here: what is undefined isn't sent. */
type WithoutRef<Frame> = Frame extends unknown ? Loose<Omit<Frame, "ref">> : never;
type Loose<Frame> = {
  [Name in keyof Frame]: object extends Pick<Frame, Name> ? Frame[Name] | undefined : Frame[Name];
};

/** Settles what was asked. */
type Asked = { resolve: (ack: Ack) => void; reject: (error: unknown) => void };

type Waiting = Asked & {
  ref: number;
  frame: Writing;
  /** How often it was refused for now. */
  refusals: number;
  /** Whether an earlier try may have been stored: its answer was lost, or didn't say. */
  mayBeStored: boolean;
  isOnItsWay: boolean;
  notBeforeMs: number;
};

/**
 * What was asked and isn't acked yet, in order. Of each session one is on its way at a time: were the
 * first refused for now and the second taken, they would be stored in another order than they were said.
 */
type Pending = {
  /** Undefined where there are too many already. */
  add(frame: Writing, asked: Asked): Waiting | undefined;
  /** Those that go out now, on this connection, so many at most. */
  next(nowMs: number, most: number): readonly Waiting[];
  /** It is over: acked, refused for good, or given up. False where it was so before. */
  remove(item: Waiting): boolean;
  /** Refused for now: again at that time, and nothing of its session before. */
  again(item: Waiting, atMs: number, mayBeStored: boolean): void;
  get(ref: unknown): Waiting | undefined;
  /** The connection is lost: all that isn't acked goes out again on the next. */
  lost(): void;
  /** When something that was refused for now is due; undefined where nothing is. */
  dueMs(): number | undefined;
  all(): readonly Waiting[];
  readonly size: number;
};

/** `windowMost`: how many are on their way at once, on one connection. */
function createPending({ most, windowMost }: { most: number; windowMost: number }): Pending {
  const items = new Map<unknown, Waiting>();
  let refs = 0;
  let onTheirWay = 0;

  const landed = (item: Waiting) => {
    if (item.isOnItsWay) onTheirWay--;
    item.isOnItsWay = false;
  };

  return {
    add(frame, asked) {
      if (items.size >= most) return undefined;
      const ref = ++refs;
      const item: Waiting = {
        ...asked,
        ref,
        frame,
        refusals: 0,
        mayBeStored: false,
        isOnItsWay: false,
        notBeforeMs: -Infinity,
      };
      items.set(ref, item);
      return item;
    },
    next(nowMs, limit) {
      const found: Waiting[] = [];
      const busy = new Set<string>();
      for (const item of items.values()) {
        if (onTheirWay >= windowMost || found.length >= limit) break;
        const { session } = item.frame;
        const isFree = !busy.has(session) && !item.isOnItsWay && item.notBeforeMs <= nowMs;
        busy.add(session);
        if (!isFree) continue;
        item.isOnItsWay = true;
        onTheirWay++;
        found.push(item);
      }
      return found;
    },
    remove(item) {
      landed(item);
      return items.delete(item.ref);
    },
    again(item, atMs, mayBeStored) {
      landed(item);
      item.mayBeStored ||= mayBeStored;
      item.refusals++;
      item.notBeforeMs = atMs;
    },
    get: (ref) => items.get(ref),
    lost() {
      for (const item of items.values()) {
        item.mayBeStored ||= item.isOnItsWay;
        landed(item);
      }
    },
    dueMs() {
      let earliest: number | undefined;
      for (const { isOnItsWay, notBeforeMs } of items.values()) {
        if (isOnItsWay || notBeforeMs === -Infinity) continue;
        earliest = Math.min(earliest ?? Infinity, notBeforeMs);
      }
      return earliest;
    },
    all: () => [...items.values()],
    get size() {
      return items.size;
    },
  };
}
