import type { Clock } from "../../base/clock.ts";
import type { FlotillaError } from "../../base/errors.ts";
import { fraction, type Random } from "../../base/random.ts";
import type { FrameError } from "../../protocol/frames.ts";
import { jitteredMs } from "../backoff.ts";
import { errorFromWire } from "../http.ts";
import { createListenerSet, type Store } from "../observable.ts";
import type { SendQueue } from "./send-queue.ts";

/** Something that is followed while it has listeners, over any connection. */
export type Subscription<Snapshot> = Store<Snapshot> & {
  readonly isActive: boolean;
  /** The ref of the current join on this connection. */
  readonly ref: string | undefined;
  /** Listeners other than by `subscribe` were added or removed. */
  want(): void;
  onOpen(): void;
  /** The connection is lost; returns whether that changes the status. */
  onLost(): boolean;
  /** The join was refused: ends it where that is definite, else joins again later. */
  onRefused(error: FrameError): void;
  /** Joins again after an error, later where that happens often. */
  rejoin(atLeastMs?: number): void;
  /** Ends it with an error. One that is `not_found` is joined again now and then while it is wanted. */
  end(error: FlotillaError): void;
  /** It was joined, so it exists. */
  onFound(): void;
  /** One that didn't exist seems to: joins now, unless a join is under way. */
  seek(): void;
  /** Clears the error and joins: what was gone may exist now. */
  revive(): void;
  /** Joins from the current position. */
  join(): void;
  /** The snapshot has changed. */
  invalidate(): void;
  /** Calls listeners where the snapshot has changed. */
  flush(): void;
};

type FeedStatus = "idle" | "joining" | "live" | "away" | "gone";

export type FeedContext = {
  queue: Pick<SendQueue, "sendOnce">;
  /** Whether no connection is expected in a moment. */
  isAway: () => boolean;
  /** Called when it is followed, or no longer is. */
  onActive: () => void;
  /** The error of a closed client. */
  closed: () => FlotillaError | undefined;
  clock: Clock;
  random: Random;
};

type SubscriptionParts<Snapshot> = FeedContext & {
  /** Sends a join; returns its ref, where there is a connection. */
  sendJoin: () => string | undefined;
  sendLeave: () => void;
  /** Ignores frames until it is joined again. */
  detach: () => void;
  onGone: (error: FlotillaError) => void;
  isLive: () => boolean;
  /** Whether there are listeners other than by `subscribe`. */
  hasListeners?: () => boolean;
  snapshot: (status: FeedStatus, error: FlotillaError | undefined) => Snapshot;
};

export type SetWanted = (isWanted: boolean) => void;

type DelayedStop = {
  start: () => void;
  stop: () => void;
  /** The error of a closed client: then there is nothing to stop, and no delay. */
  closed: () => FlotillaError | undefined;
};

/** When to join again after an error: at once the first time, then ever later. */
type RejoinTimer = {
  /** `maxJitterMs`: how much later than `atLeastMs`, at most. */
  plan(join: () => void, atLeastMs?: number, maxJitterMs?: number): void;
  cancel(): void;
  /** Earlier errors don't count for the next one. */
  forget(): void;
};

// A missing session may be created elsewhere: it is joined again after so long, then ever less often.
const missingRejoinMs = 1_000;
const missingRejoinJitterMs = 9_000;
// Errors longer ago than this don't count.
const attemptsResetMs = 30_000;
// Longer than user interfaces take to unsubscribe and subscribe again.
const stopDelayMs = 3_000;

export function createSubscription<Snapshot>(
  parts: SubscriptionParts<Snapshot>,
): Subscription<Snapshot> {
  const { clock } = parts;
  const rejoinTimer = createRejoinTimer(clock, parts.random);
  let isActive = false;
  let isLost = false;
  let ref: string | undefined;
  let error: FlotillaError | undefined;
  let snapshot: Snapshot | undefined;
  let hasChanged = false;

  const want = (): void => setWanted(listeners.size > 0 || parts.hasListeners?.() === true);
  const listeners = createListenerSet(want);
  const setWanted: SetWanted = delayedStop(clock, {
    closed: parts.closed,
    start() {
      isActive = true;
      isLost = parts.isAway();
      invalidate();
      parts.onActive();
      join();
    },
    stop() {
      isActive = false;
      error = undefined;
      parts.sendLeave();
      leave();
      parts.onActive();
    },
  });
  const invalidate = () => {
    snapshot = undefined;
    hasChanged = true;
  };
  const flush = () => {
    if (!hasChanged) return;
    hasChanged = false;
    listeners.emit();
  };
  const isMissing = () => error?.code === "not_found";
  /** While it is gone, a new join doesn't change the snapshot. */
  const invalidateUnlessGone = () => {
    if (!error) invalidate();
  };
  const join = () => {
    rejoinTimer.cancel();
    if (!isActive || (error && !isMissing())) return;
    ref = parts.sendJoin();
    invalidateUnlessGone();
  };
  const leave = () => {
    rejoinTimer.cancel();
    ref = undefined;
    parts.detach();
    invalidateUnlessGone();
  };
  const rejoin = (atLeastMs?: number, maxJitterMs?: number) => {
    leave();
    rejoinTimer.plan(
      () => {
        join();
        flush();
      },
      atLeastMs,
      maxJitterMs,
    );
  };
  const end = (reason: FlotillaError) => {
    if (!isActive) return;
    leave();
    if (error?.code !== reason.code) {
      error = reason;
      invalidate();
      parts.onGone(reason);
    }
    if (isMissing()) rejoin(missingRejoinMs, missingRejoinJitterMs);
  };
  const status = (): FeedStatus => {
    if (!isActive) return "idle";
    if (error) return "gone";
    if (ref === undefined && isLost) return "away";
    return parts.isLive() ? "live" : "joining";
  };

  return {
    get isActive() {
      return isActive;
    },
    get ref() {
      return ref;
    },
    get: () => (snapshot ??= parts.snapshot(status(), error)),
    subscribe: listeners.add,
    want,
    onOpen() {
      isLost = false;
      join();
    },
    onLost() {
      const isNew = isActive && !error && !isLost;
      isLost = true;
      if (isActive) leave();
      return isNew;
    },
    onRefused(wire) {
      if (isDefinite(wire.code)) end(errorFromWire(wire));
      else rejoin(wire.retryAfterMs);
    },
    rejoin,
    end,
    onFound() {
      // The retries of a missing session don't count as failures of one that exists.
      if (error) rejoinTimer.forget();
      error = undefined;
    },
    seek() {
      if (error && ref === undefined) join();
    },
    revive() {
      if (!error) return;
      error = undefined;
      invalidate();
      join();
    },
    join,
    invalidate,
    flush,
  };
}

/** Whether a retry can't change the error. */
export const isDefinite = (code: string): boolean =>
  /^(not_found|forbidden|unauthorized|unsupported|invalid_.*)$/.test(code);

/** Starts something with its first listener, and stops it a while after the last one is removed. */
export function delayedStop(clock: Clock, { start, stop, closed }: DelayedStop): SetWanted {
  let isStarted = false;
  let cancel: (() => void) | undefined;
  return (isWanted) => {
    cancel?.();
    cancel = undefined;
    if (isWanted && !isStarted) {
      isStarted = true;
      start();
    } else if (!isWanted && isStarted && !closed()) {
      cancel = clock.after(stopDelayMs, () => {
        isStarted = false;
        stop();
      });
    }
  };
}

function createRejoinTimer(clock: Clock, random: Random): RejoinTimer {
  let attempts = 0;
  let lastMs = -Infinity;
  let cancel: (() => void) | undefined;
  return {
    plan(join, atLeastMs = 0, maxJitterMs?: number) {
      const nowMs = clock.monotonic();
      attempts = nowMs - lastMs > attemptsResetMs ? 0 : attempts + 1;
      lastMs = nowMs;
      cancel?.();
      const waitMs = attempts === 0 ? 0 : jitteredMs(attempts, fraction(random), maxJitterMs);
      cancel = clock.after(waitMs + atLeastMs, join);
    },
    cancel: () => cancel?.(),
    forget() {
      lastMs = -Infinity;
    },
  };
}
