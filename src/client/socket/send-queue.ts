import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { fraction, type Random } from "../../base/random.ts";
import type { ClientFrame, ServerFrame } from "../../protocol/frames.ts";
import { jitteredMs } from "../backoff.ts";
import { errorFromWire } from "../http.ts";

/** What goes out over the connection: asked-for changes until they are acked, and the rest at once. */
export type SendQueue = {
  /** Resolves when it is acked, on whichever connection; rejects when it is refused for good. */
  submit(frame: CommandFrame, signal?: AbortSignal): Promise<Ack>;
  /** Sends ahead of what waits, where there is a connection; the ref, or undefined. */
  sendOnce(frame: OneShotFrame): string | undefined;
  onOpen(maxFrameBytes: number): void;
  onLost(): void;
  /** Takes what answers something that was asked. */
  take(frame: Extract<ServerFrame, { type: "ack" | "error" }>): void;
  /** Gives up all that waits. */
  rejectAll(error: FlotillaError): void;
  /** How much waits. */
  readonly size: number;
};

type OneShotFrame = WithoutRef<
  Extract<ClientFrame, { type: "join" | "leave" | "inbox" | "inbox_leave" | "ping" | "token" }>
>;

type SendQueueParts = {
  maxUnacked: number;
  send: (text: string) => void;
  /** Why nothing can be asked at all, for now. */
  refusal: () => FlotillaError | undefined;
  /** It has become empty, or isn't any more. */
  onSize: () => void;
  clock: Clock;
  random: Random;
};

// A server takes 64 that aren't acked on a connection, and 100 a second, twice that at once.
const maxSent = 48;
const framesPerSecond = 80;
const burst = 100;

/** What may be different a moment later. */
export const transientCodePattern =
  /^(cancelled|closed|not_owner|overloaded|store_.*|timeout|unavailable|unknown_outcome)$/;

export function createSendQueue(parts: SendQueueParts): SendQueue {
  const { maxUnacked, send, refusal, onSize, clock, random } = parts;
  const unacked = createUnackedFrames({ maxUnacked, maxSent });
  const oneShots: string[] = [];
  let oneShotRefs = 0;
  let maxBytes: number | undefined;
  let budget = burst;
  let refilledMs = 0;
  let isPumping = false;
  let cancelTimer: (() => void) | undefined;

  const settle = (item: UnackedFrame): UnackedFrame => {
    if (unacked.remove(item) && unacked.size === 0) onSize();
    pumpSoon();
    return item;
  };

  /** A refusal says nothing of an earlier try that may have been stored. */
  const refuse = (item: UnackedFrame, error: FlotillaError) =>
    settle(item).reject(
      item.mayBeStored && !transientCodePattern.test(error.code)
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
    budget = Math.min(burst, budget + ((nowMs - refilledMs) * framesPerSecond) / 1_000);
    refilledMs = nowMs;
    // While more is told than there is room for, no room is left for what is asked.
    const texts = oneShots.splice(0, Math.floor(budget));
    budget -= texts.length;
    for (const item of unacked.next(nowMs, Math.floor(budget))) {
      const text = JSON.stringify({ ...item.frame, ref: item.ref });
      if (encoder.encode(text).length > maxBytes) {
        const message = `the server takes up to ${maxBytes} bytes: send a reference`;
        refuse(item, new FlotillaError("payload_too_large", message));
        continue;
      }
      budget--;
      texts.push(text);
    }
    for (const text of texts) send(text);
    const isRateLimited = budget < 1 && (oneShots.length > 0 || unacked.size > 0);
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
        const message = `${maxUnacked} things wait for the server already`;
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
      budget = burst;
      refilledMs = clock.monotonic();
      pumpSoon();
    },
    onLost() {
      maxBytes = undefined;
      oneShots.length = 0;
      cancelTimer?.();
      unacked.onLost();
      for (const item of unacked.all()) {
        const { frame, mayBeStored } = item;
        // Sent again, it might end a turn that has begun since.
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

const encoder = new TextEncoder();

type Ack = Extract<ServerFrame, { type: "ack" }>;

/** A frame that changes a session, and that is sent until it is acked or refused. */
type CommandFrame = WithoutRef<
  Extract<ClientFrame, { type: "send" | "tool_result" | "regenerate" | "stop" | "read" }>
>;

/** A frame as it is made here: what is undefined isn't sent. */
type WithoutRef<Frame> = Frame extends unknown ? Loose<Omit<Frame, "ref">> : never;
type Loose<Frame> = {
  [Name in keyof Frame]: object extends Pick<Frame, Name> ? Frame[Name] | undefined : Frame[Name];
};

/** Settles what was asked. */
type AckPromise = { resolve: (ack: Ack) => void; reject: (error: unknown) => void };

type UnackedFrame = AckPromise & {
  ref: number;
  frame: CommandFrame;
  /** How often it was refused for now. */
  refusals: number;
  /** Whether an earlier try may have been stored: its answer was lost, or didn't say. */
  mayBeStored: boolean;
  isSent: boolean;
  notBeforeMs: number;
};

/**
 * What was asked and isn't acked yet, in order. Of each session one is on its way at a time: were the
 * first refused for now and the second taken, they would be stored in another order than they were said.
 */
type UnackedFrames = {
  /** Undefined where there are too many already. */
  add(frame: CommandFrame, promise: AckPromise): UnackedFrame | undefined;
  /** Those that go out now, on this connection, so many at most. */
  next(nowMs: number, limit: number): readonly UnackedFrame[];
  /** It is over: acked, refused for good, or given up. False where it was so before. */
  remove(item: UnackedFrame): boolean;
  /** Refused for now: again at that time, and nothing of its session before. */
  retry(item: UnackedFrame, atMs: number, mayBeStored: boolean): void;
  get(ref: unknown): UnackedFrame | undefined;
  /** The connection is lost: all that isn't acked goes out again on the next. */
  onLost(): void;
  /** When something that was refused for now is due; undefined where nothing is. */
  dueMs(): number | undefined;
  all(): readonly UnackedFrame[];
  readonly size: number;
};

/** `windowMost`: how many are on their way at once, on one connection. */
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
