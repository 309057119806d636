import type { Clock } from "../../base/clock.ts";
import type { FlotillaError } from "../../base/errors.ts";
import { fraction, type Random } from "../../base/random.ts";
import type { FrameError } from "../../protocol/frames.ts";
import { jitteredMs } from "../backoff.ts";
import { errorOf } from "../http.ts";
import { createListeners, type Store } from "../observable.ts";
import type { Exchange } from "./send-queue.ts";

/** Something that is followed while anybody listens, over whichever connection there is. */
export type Subscription<Snapshot> = Store<Snapshot> & {
  readonly isFollowed: boolean;
  /** Of the join that is under way or was answered on this connection. */
  readonly ref: string | undefined;
  /** Somebody listens otherwise than by `subscribe`, or nobody does. */
  want(): void;
  opened(): void;
  /** The connection is lost; whether that is news. */
  lost(): boolean;
  /** It was refused: for good, or to be joined again later. */
  refused(error: FrameError): void;
  /** Something went wrong: joins again, after a while where that happens often. */
  joinAgain(atLeastMs?: number): void;
  /** It isn't there for this client, and why. One that there isn't is looked for while it is wanted. */
  end(error: FlotillaError): void;
  /** It was joined, whatever was known of it before. */
  found(): void;
  /** One that wasn't there seems to be: looks now, unless it is being asked for. */
  seek(): void;
  /** What was known to be gone may be there now. */
  revive(): void;
  /** Joins from what is known now. */
  join(): void;
  /** Something that is shown has changed. */
  change(): void;
  /** Tells listeners, if anything has changed. */
  flush(): void;
};

type FollowStatus = "idle" | "joining" | "live" | "away" | "gone";

export type FollowParts = {
  exchange: Pick<Exchange, "tell">;
  /** Whether there is no hope of a connection in a moment. */
  isAway: () => boolean;
  /** It is followed from now on, or no longer. */
  onFollow: () => void;
  /** Why nothing is followed any more. */
  over: () => FlotillaError | undefined;
  clock: Clock;
  random: Random;
};

type SubscriptionParts<Snapshot> = FollowParts & {
  /** Sends a join; its ref, where there is a connection. */
  ask: () => string | undefined;
  leave: () => void;
  /** What comes from now on, until it is joined again, doesn't count. */
  detach: () => void;
  onGone: (error: FlotillaError) => void;
  isLive: () => boolean;
  /** Whether anybody listens otherwise than by `subscribe`. */
  hasOthers?: () => boolean;
  show: (status: FollowStatus, error: FlotillaError | undefined) => Snapshot;
};

/** Whether asking again can't change it. */
export const isDefinite = (code: string): boolean =>
  /^(not_found|forbidden|unauthorized|unsupported|invalid_.*)$/.test(code);

// What isn't there may be made by somebody else: it is looked for after so long, and later ever less often.
const missingMs = 1_000;
const missingMoreMs = 9_000;

export function createSubscription<Snapshot>(
  parts: SubscriptionParts<Snapshot>,
): Subscription<Snapshot> {
  const { clock } = parts;
  const rejoin = createRejoin(clock, parts.random);
  let isFollowed = false;
  let isLost = false;
  let ref: string | undefined;
  let error: FlotillaError | undefined;
  let snapshot: Snapshot | undefined;
  let hasChanged = false;

  const want = (): void => linger(listeners.size > 0 || parts.hasOthers?.() === true);
  const listeners = createListeners(want);
  const linger: Want = lingering(clock, {
    over: parts.over,
    start() {
      isFollowed = true;
      isLost = parts.isAway();
      change();
      parts.onFollow();
      join();
    },
    stop() {
      isFollowed = false;
      error = undefined;
      parts.leave();
      leave();
      parts.onFollow();
    },
  });
  const change = () => {
    snapshot = undefined;
    hasChanged = true;
  };
  const flush = () => {
    if (!hasChanged) return;
    hasChanged = false;
    listeners.tell();
  };
  const isMissing = () => error?.code === "not_found";
  /** While nothing is there to be shown, looking for it changes nothing. */
  const changeUnlessGone = () => {
    if (!error) change();
  };
  const join = () => {
    rejoin.cancel();
    if (!isFollowed || (error && !isMissing())) return;
    ref = parts.ask();
    changeUnlessGone();
  };
  const leave = () => {
    rejoin.cancel();
    ref = undefined;
    parts.detach();
    changeUnlessGone();
  };
  const joinAgain = (atLeastMs?: number, moreMs?: number) => {
    leave();
    rejoin.plan(
      () => {
        join();
        flush();
      },
      atLeastMs,
      moreMs,
    );
  };
  const end = (why: FlotillaError) => {
    if (!isFollowed) return;
    leave();
    if (error?.code !== why.code) {
      error = why;
      change();
      parts.onGone(why);
    }
    if (isMissing()) joinAgain(missingMs, missingMoreMs);
  };
  const status = (): FollowStatus => {
    if (!isFollowed) return "idle";
    if (error) return "gone";
    if (ref === undefined && isLost) return "away";
    return parts.isLive() ? "live" : "joining";
  };

  return {
    get isFollowed() {
      return isFollowed;
    },
    get ref() {
      return ref;
    },
    get: () => (snapshot ??= parts.show(status(), error)),
    subscribe: listeners.add,
    want,
    opened() {
      isLost = false;
      join();
    },
    lost() {
      const isNews = isFollowed && !error && !isLost;
      isLost = true;
      if (isFollowed) leave();
      return isNews;
    },
    refused(told) {
      if (isDefinite(told.code)) end(errorOf(told));
      else joinAgain(told.retryAfterMs);
    },
    joinAgain,
    end,
    found() {
      // How long it was looked for says nothing of what goes wrong now that it is there.
      if (error) rejoin.forget();
      error = undefined;
    },
    seek() {
      if (error && ref === undefined) join();
    },
    revive() {
      if (!error) return;
      error = undefined;
      change();
      join();
    },
    join,
    change,
    flush,
  };
}

/** When to join again after something went wrong: at once the first time, then ever later. */
type Rejoin = {
  /** `moreMs`: how much later than `atLeastMs`, at most. */
  plan(join: () => void, atLeastMs?: number, moreMs?: number): void;
  cancel(): void;
  /** What went wrong before has nothing to do with what goes wrong next. */
  forget(): void;
};

// Trouble that is longer ago has nothing to do with what goes wrong now.
const forgottenMs = 30_000;

function createRejoin(clock: Clock, random: Random): Rejoin {
  let tries = 0;
  let lastMs = -Infinity;
  let cancel: (() => void) | undefined;
  return {
    plan(join, atLeastMs = 0, moreMs?: number) {
      const nowMs = clock.monotonic();
      tries = nowMs - lastMs > forgottenMs ? 0 : tries + 1;
      lastMs = nowMs;
      cancel?.();
      const waitMs = tries === 0 ? 0 : jitteredMs(tries, fraction(random), moreMs);
      cancel = clock.after(waitMs + atLeastMs, join);
    },
    cancel: () => cancel?.(),
    forget() {
      lastMs = -Infinity;
    },
  };
}

// Longer than user interfaces take to let go of something and take it up again.
const lingerMs = 3_000;

export type Want = (isWanted: boolean) => void;

type Lingering = {
  start: () => void;
  stop: () => void;
  /** Why nothing comes any more: then there is nothing to stop, and nothing to wait for. */
  over: () => FlotillaError | undefined;
};

/** Starts something with the first who wants it, and stops it a while after the last has gone. */
export function lingering(clock: Clock, { start, stop, over }: Lingering): Want {
  let isStarted = false;
  let cancel: (() => void) | undefined;
  return (isWanted) => {
    cancel?.();
    cancel = undefined;
    if (isWanted && !isStarted) {
      isStarted = true;
      start();
    } else if (!isWanted && isStarted && !over()) {
      cancel = clock.after(lingerMs, () => {
        isStarted = false;
        stop();
      });
    }
  };
}
