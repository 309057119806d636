import type { Clock } from "../../base/clock.ts";
import type { FlotillaError } from "../../base/errors.ts";
import { fraction, type Random } from "../../base/random.ts";
import type { FrameError } from "../../protocol/frames.ts";
import { jitteredMs } from "../backoff.ts";
import { errorFromWire } from "../http.ts";
import { createListenerSet, type Store } from "../observable.ts";
import type { SendQueue } from "./send-queue.ts";

/** Something that is followed while anybody listens, over whichever connection there is. */
export type Subscription<Snapshot> = Store<Snapshot> & {
  readonly isActive: boolean;
  /** Of the join that is under way or was answered on this connection. */
  readonly ref: string | undefined;
  /** Somebody listens otherwise than by `subscribe`, or nobody does. */
  want(): void;
  onOpen(): void;
  /** The connection is lost; whether that is news. */
  onLost(): boolean;
  /** It was refused: for good, or to be joined again later. */
  onRefused(error: FrameError): void;
  /** Something went wrong: joins again, after a while where that happens often. */
  rejoin(atLeastMs?: number): void;
  /** It isn't there for this client, and why. One that there isn't is looked for while it is wanted. */
  end(error: FlotillaError): void;
  /** It was joined, whatever was known of it before. */
  onFound(): void;
  /** One that wasn't there seems to be: looks now, unless it is being asked for. */
  seek(): void;
  /** What was known to be gone may be there now. */
  revive(): void;
  /** Joins from what is known now. */
  join(): void;
  /** Something that is shown has changed. */
  invalidate(): void;
  /** Tells listeners, if anything has changed. */
  flush(): void;
};

type FeedStatus = "idle" | "joining" | "live" | "away" | "gone";

export type FeedContext = {
  queue: Pick<SendQueue, "sendOnce">;
  /** Whether there is no hope of a connection in a moment. */
  isAway: () => boolean;
  /** It is followed from now on, or no longer. */
  onActive: () => void;
  /** Why nothing is followed any more. */
  closed: () => FlotillaError | undefined;
  clock: Clock;
  random: Random;
};

type SubscriptionParts<Snapshot> = FeedContext & {
  /** Sends a join; its ref, where there is a connection. */
  sendJoin: () => string | undefined;
  sendLeave: () => void;
  /** What comes from now on, until it is joined again, doesn't count. */
  detach: () => void;
  onGone: (error: FlotillaError) => void;
  isLive: () => boolean;
  /** Whether anybody listens otherwise than by `subscribe`. */
  hasListeners?: () => boolean;
  snapshot: (status: FeedStatus, error: FlotillaError | undefined) => Snapshot;
};

/** Whether asking again can't change it. */
export const isDefinite = (code: string): boolean =>
  /^(not_found|forbidden|unauthorized|unsupported|invalid_.*)$/.test(code);

// What isn't there may be made by somebody else: it is looked for after so long, and later ever less often.
const missingRejoinMs = 1_000;
const missingRejoinJitterMs = 9_000;

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
  /** While nothing is there to be shown, looking for it changes nothing. */
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
      // How long it was looked for says nothing of what goes wrong now that it is there.
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

/** When to join again after something went wrong: at once the first time, then ever later. */
type RejoinTimer = {
  /** `moreMs`: how much later than `atLeastMs`, at most. */
  plan(join: () => void, atLeastMs?: number, maxJitterMs?: number): void;
  cancel(): void;
  /** What went wrong before has nothing to do with what goes wrong next. */
  forget(): void;
};

// Trouble that is longer ago has nothing to do with what goes wrong now.
const attemptsResetMs = 30_000;

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

// Longer than user interfaces take to let go of something and take it up again.
const stopDelayMs = 3_000;

export type SetWanted = (isWanted: boolean) => void;

type DelayedStop = {
  start: () => void;
  stop: () => void;
  /** Why nothing comes any more: then there is nothing to stop, and nothing to wait for. */
  closed: () => FlotillaError | undefined;
};

/** Starts something with the first who wants it, and stops it a while after the last has gone. */
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
