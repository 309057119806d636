import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { fraction, type Random } from "../../base/random.ts";
import { createTokenBucket, type TokenBucket } from "../../base/token-bucket.ts";
import type { ClientFrame, ServerFrame } from "../../protocol/frames.ts";
import { jitteredMs } from "../backoff.ts";
import { errorFromWire } from "../http.ts";

/** Frames to send: commands until they are acked, other frames once. */
export type SendQueue = {
  /** Resolves when it is acked, on any connection; rejects when it is refused for good. */
  submit(frame: CommandFrame, signal?: AbortSignal): Promise<Ack>;
  /** Sends before waiting commands, where there is a connection; returns the ref, or undefined. */
  sendOnce(frame: OneShotFrame): string | undefined;
  onOpen(maxFrameBytes: number): void;
  onLost(): void;
  /** Handles the answer to a command. */
  take(frame: Extract<ServerFrame, { type: "ack" | "error" }>): void;
  /** Rejects all waiting commands. */
  rejectAll(error: FlotillaError): void;
  /** How many commands wait. */
  readonly size: number;
};

type Ack = Extract<ServerFrame, { type: "ack" }>;

/** A frame that changes a session, and that is sent until it is acked or refused. */
type CommandFrame = WithoutRef<
  Extract<ClientFrame, { type: "send" | "tool_result" | "signal" | "regenerate" | "stop" | "read" }>
>;

type OneShotFrame = WithoutRef<
  Extract<
    ClientFrame,
    {
      type:
        | "join"
        | "leave"
        | "presence"
        | "presence_leave"
        | "inbox"
        | "inbox_leave"
        | "ping"
        | "token";
    }
  >
>;

/** A frame before it is sent: undefined fields are left out. */
type WithoutRef<Frame> = Frame extends unknown ? Loose<Omit<Frame, "ref">> : never;
type Loose<Frame> = {
  [Name in keyof Frame]: object extends Pick<Frame, Name> ? Frame[Name] | undefined : Frame[Name];
};

type SendQueueParts = {
  maxUnacked: number;
  send: (text: string) => void;
  /** Why no command can be sent at all, for now. */
  refusal: () => FlotillaError | undefined;
  /** Called when the queue becomes empty, or no longer is. */
  onSize: () => void;
  clock: Clock;
  random: Random;
};

/** Settles a command. */
type AckPromise = { resolve: (ack: Ack) => void; reject: (error: unknown) => void };

type UnackedFrame = AckPromise & {
  ref: number;
  frame: CommandFrame;
  /** How often it was refused with a transient code. */
  refusals: number;
  /** Whether an earlier try may have been stored: its ack was lost, or the refusal didn't tell. */
  mayBeStored: boolean;
  isSent: boolean;
  notBeforeMs: number;
};

/**
 * Commands that aren't acked yet, in order. Each session has one in flight at a time: were the first
 * refused for now and the second accepted, they would be stored in the wrong order.
 */
type UnackedFrames = {
  /** Undefined where there are too many already. */
  add(frame: CommandFrame, promise: AckPromise): UnackedFrame | undefined;
  /** The commands to send now on this connection, at most `limit`. */
  next(nowMs: number, limit: number): readonly UnackedFrame[];
  /** Removes a command that is acked, refused for good, or abandoned. False where it was removed before. */
  remove(item: UnackedFrame): boolean;
  /** Refused for now: sends it again at that time, and nothing of its session before. */
  retry(item: UnackedFrame, atMs: number, mayBeStored: boolean): void;
  get(ref: unknown): UnackedFrame | undefined;
  /** The connection is lost: all commands are sent again on the next. */
  onLost(): void;
  /** When the next retry is due; undefined where there is none. */
  dueMs(): number | undefined;
  all(): readonly UnackedFrame[];
  readonly size: number;
};

// Below the server's limits: 64 unacked on a connection, and 100 a second, twice that at once.
const maxSent = 48;
const framesPerSecond = 80;
const burst = 100;

/** Codes of refusals that may change with time. */
export const transientCodePattern =
  /^(cancelled|closed|not_owner|overloaded|store_.*|timeout|unavailable|unknown_outcome)$/;

const encoder = new TextEncoder();

export function createSendQueue(parts: SendQueueParts): SendQueue {
  const { maxUnacked, send, refusal, onSize, clock, random } = parts;
  const unacked = createUnackedFrames({ maxUnacked, maxSent });
  const oneShots: string[] = [];
  let oneShotRefs = 0;
  let maxBytes: number | undefined;
  /** Of the connection, so that there is none before the first. */
  let spend!: TokenBucket;
  let isPumping = false;
  let cancelTimer: (() => void) | undefined;

  const settle = (item: UnackedFrame): UnackedFrame => {
    if (unacked.remove(item) && unacked.size === 0) onSize();
    pumpSoon();
    return item;
  };

  /** A refusal says nothing about an earlier try, which may have been stored. */
  const refuse = (item: UnackedFrame, error: FlotillaError) =>
    settle(item).reject(
      item.mayBeStored && !transientCodePattern.test(error.code)
        ? new FlotillaError("unknown_outcome", error.message, { cause: error })
        : error,
    );

  /** Deferred, so that the frames of one turn of the event loop go out in order: joins first. */
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
    const budget = Math.floor(spend(0));
    // One-shot frames take the budget first; commands get what is left.
    const texts = oneShots.splice(0, budget);
    for (const item of unacked.next(nowMs, budget - texts.length)) {
      const text = JSON.stringify({ ...item.frame, ref: item.ref });
      if (encoder.encode(text).length > maxBytes) {
        const message = `over ${maxBytes} bytes: send a reference`;
        refuse(item, new FlotillaError("payload_too_large", message));
        continue;
      }
      texts.push(text);
    }
    for (const text of texts) send(text);
    const isRateLimited = spend(texts.length) < 1 && (oneShots.length > 0 || unacked.size > 0);
    const dueMs = isRateLimited ? nowMs + 1_000 / framesPerSecond : unacked.dueMs();
    if (dueMs !== undefined) cancelTimer = clock.after(Math.max(10, dueMs - nowMs), pump);
  };

  return {
    async submit(frame, signal) {
      signal?.throwIfAborted();
      const refused = refusal();
      if (refused) throw refused;
      const ack = Promise.withResolvers<Ack>();
      const item = unacked.add(frame, ack);
      if (!item) {
        const message = `${maxUnacked} commands wait`;
        throw new FlotillaError("overloaded", message, { details: { maxUnacked: maxUnacked } });
      }
      const onAbort = () => settle(item).reject(signal?.reason);
      signal?.addEventListener("abort", onAbort);
      if (unacked.size === 1) onSize();
      pumpSoon();
      try {
        return await ack.promise;
      } finally {
        signal?.removeEventListener("abort", onAbort);
      }
    },
    sendOnce(frame) {
      if (maxBytes === undefined) return undefined;
      const ref = `t${++oneShotRefs}`;
      oneShots.push(JSON.stringify({ ...frame, ref }));
      pumpSoon();
      return ref;
    },
    onOpen(bytes) {
      maxBytes = bytes;
      spend = createTokenBucket(clock, { perSecond: framesPerSecond, burst });
      pumpSoon();
    },
    onLost() {
      maxBytes = undefined;
      oneShots.length = 0;
      cancelTimer?.();
      unacked.onLost();
      for (const item of unacked.all()) {
        const { frame, mayBeStored } = item;
        // Sent again, a stop without an epoch might end a turn that has begun since.
        if (frame.type !== "stop" || frame.epoch !== undefined || !mayBeStored) continue;
        refuse(item, new FlotillaError("unknown_outcome", "the connection was lost"));
      }
    },
    take(frame) {
      const item = unacked.get(frame.ref);
      if (!item) return;
      if (frame.type === "ack") return settle(item).resolve(frame);
      if (!transientCodePattern.test(frame.code)) return refuse(item, errorFromWire(frame));
      const waitMs = (frame.retryAfterMs ?? 0) + jitteredMs(item.refusals + 1, fraction(random));
      unacked.retry(item, clock.monotonic() + waitMs, frame.code !== "overloaded");
      pumpSoon();
    },
    rejectAll(error) {
      unacked.onLost();
      for (const item of unacked.all()) refuse(item, error);
    },
    get size() {
      return unacked.size;
    },
  };
}

/** `maxSent`: how many are in flight at once, on one connection. */
function createUnackedFrames({
  maxUnacked,
  maxSent,
}: {
  maxUnacked: number;
  maxSent: number;
}): UnackedFrames {
  const items = new Map<unknown, UnackedFrame>();
  let lastRef = 0;
  let sentCount = 0;

  const takeBack = (item: UnackedFrame) => {
    if (item.isSent) sentCount--;
    item.isSent = false;
  };

  return {
    add(frame, promise) {
      if (items.size >= maxUnacked) return undefined;
      const ref = ++lastRef;
      const item: UnackedFrame = {
        ...promise,
        ref,
        frame,
        refusals: 0,
        mayBeStored: false,
        isSent: false,
        notBeforeMs: -Infinity,
      };
      items.set(ref, item);
      return item;
    },
    next(nowMs, limit) {
      const found: UnackedFrame[] = [];
      const busy = new Set<string>();
      for (const item of items.values()) {
        if (sentCount >= maxSent || found.length >= limit) break;
        const { session } = item.frame;
        const isReady = !busy.has(session) && !item.isSent && item.notBeforeMs <= nowMs;
        busy.add(session);
        if (!isReady) continue;
        item.isSent = true;
        sentCount++;
        found.push(item);
      }
      return found;
    },
    remove(item) {
      takeBack(item);
      return items.delete(item.ref);
    },
    retry(item, atMs, mayBeStored) {
      takeBack(item);
      item.mayBeStored ||= mayBeStored;
      item.refusals++;
      item.notBeforeMs = atMs;
    },
    get: (ref) => items.get(ref),
    onLost() {
      for (const item of items.values()) {
        item.mayBeStored ||= item.isSent;
        takeBack(item);
      }
    },
    dueMs() {
      let earliest: number | undefined;
      for (const { isSent, notBeforeMs } of items.values()) {
        if (isSent || notBeforeMs === -Infinity) continue;
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
