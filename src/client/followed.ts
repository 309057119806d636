import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { ServerFrame } from "../protocol/frames.ts";
import type { Exchange } from "./exchange.ts";
import { errorOf } from "./http.ts";
import { lingering, type Want } from "./linger.ts";
import { isCaughtUp, nowhere, type Place, type PlaceFrame, takeFrame } from "./place.ts";
import { createRejoin } from "./rejoin.ts";
import type { SessionEvent, SessionSnapshot } from "./session.ts";
import { createShown, type Shown } from "./shown.ts";
import { createListeners, type Listeners } from "./store.ts";

/** A session as it is followed: joined on every connection, from the place that it has. */
export type Followed = {
  readonly shown: Shown;
  readonly place: Place;
  readonly isFollowed: boolean;
  get(): SessionSnapshot;
  subscribe(listener: () => void): () => void;
  on(listener: (event: SessionEvent) => void): () => void;
  opened(): void;
  lost(): void;
  take(frame: SessionFrame): void;
  /** What was known to be gone may be there now. */
  revive(): void;
  /** It isn't there for this client, and why. */
  end(error: FlotillaError): void;
  /** Forgets what it knows; where it is followed, it is joined from the first entry on. */
  forget(): void;
  /** Something that is shown has changed. */
  change(): void;
  /** Tells listeners, if anything has changed. */
  flush(): void;
};

export type SessionFrame =
  | PlaceFrame
  | Extract<ServerFrame, { type: "left" }>
  | (Extract<ServerFrame, { type: "error" }> & { readonly ref: string });

export type FollowedParts = {
  exchange: Pick<Exchange, "tell">;
  /** Whether there is no hope of a connection in a moment. */
  isAway: () => boolean;
  /** It is followed from now on, or no longer. */
  onFollow: () => void;
  clock: Clock;
  random: Random;
};

/** What joining again can't change. */
const definite = ["not_found", "forbidden", "invalid_input", "invalid_option", "unsupported"];
export const isDefinite = (code: string): boolean => definite.includes(code);

export function createFollowed(sessionId: string, parts: FollowedParts): Followed {
  const { exchange, clock, random } = parts;
  const shown = createShown(() => {
    change();
    flush();
  });
  const rejoin = createRejoin(clock, random);
  let place = nowhere;
  let isFollowed = false;
  let isLost = false;
  let joinRef: string | undefined;
  let error: FlotillaError | undefined;
  let snapshot: SessionSnapshot | undefined;
  let hasChanged = false;

  const onSize = (): void => want(listeners.size + watchers.size > 0);
  const listeners: Listeners<[]> = createListeners(onSize);
  const watchers: Listeners<[SessionEvent]> = createListeners<[SessionEvent]>(onSize);
  const want: Want = lingering(clock, {
    start() {
      isFollowed = true;
      error = undefined;
      isLost = parts.isAway();
      change();
      parts.onFollow();
      join();
    },
    stop() {
      isFollowed = false;
      rejoin.cancel();
      exchange.tell({ type: "leave", session: sessionId });
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
  const emit = (event: SessionEvent) => {
    shown.take(event, place.state);
    change();
    watchers.tell(event);
  };

  const status = (): SessionSnapshot["status"] => {
    if (!isFollowed) return "idle";
    if (error) return "gone";
    if (place.phase === "away" && isLost) return "away";
    return isCaughtUp(place) ? "live" : "joining";
  };

  const join = () => {
    rejoin.cancel();
    if (!isFollowed || error) return;
    const { lastSeq, incarnation, lastMessageId } = place;
    joinRef = exchange.tell({
      type: "join",
      session: sessionId,
      lastSeq,
      ...(incarnation !== undefined && { incarnation }),
      ...(lastMessageId !== undefined && lastSeq > 0 && { lastMessageId }),
    });
    place = { ...place, phase: joinRef === undefined ? "away" : "joining" };
    change();
  };
  /** What comes until it is joined again doesn't count. */
  const leave = () => {
    joinRef = undefined;
    place = { ...place, phase: "away" };
    change();
  };
  const joinAgain = (atLeastMs?: number) => {
    leave();
    rejoin.plan(() => {
      join();
      flush();
    }, atLeastMs);
  };
  const end = (why: FlotillaError) => {
    if (!isFollowed || error) return;
    rejoin.cancel();
    leave();
    shown.endAnswer();
    error = why;
    emit({ type: "gone", error: why });
  };

  const take = (frame: SessionFrame): void => {
    switch (frame.type) {
      case "error":
        if (frame.ref !== joinRef) return;
        return isDefinite(frame.code) ? end(errorOf(frame)) : joinAgain(frame.retryAfterMs);
      case "left": {
        if (place.phase !== "joined" || frame.reason === "asked") return;
        if (frame.reason === "failed") return joinAgain(frame.error?.retryAfterMs);
        const why = frame.reason === "deleted" ? "was deleted" : "isn't yours any more";
        return end(new FlotillaError("not_found", `the session ${sessionId} ${why}`));
      }
      case "joined":
      case "reset":
      case "entries":
      case "state":
      case "chunks": {
        if (frame.type === "joined" && frame.ref !== joinRef) return;
        const before = place;
        const taken = takeFrame(place, frame);
        place = taken.place;
        if (place !== before) change();
        for (const event of taken.events) emit(event);
        if (!place.answer) shown.endAnswer();
        if (taken.gap) joinAgain();
      }
    }
  };

  return {
    shown,
    get place() {
      return place;
    },
    get isFollowed() {
      return isFollowed;
    },
    get() {
      const { state, lastSeq, incarnation } = place;
      return (snapshot ??= shown.snapshot({
        status: status(),
        state,
        lastSeq,
        incarnation,
        error,
      }));
    },
    subscribe: (listener) => listeners.add(listener),
    on: (listener) => watchers.add(listener),
    opened() {
      isLost = false;
      join();
    },
    lost() {
      rejoin.cancel();
      if (!isFollowed || error) return;
      const wasAway = isLost;
      isLost = true;
      leave();
      if (!wasAway) emit({ type: "away" });
    },
    take,
    revive() {
      if (!error) return;
      error = undefined;
      change();
      join();
    },
    end,
    forget() {
      const wasKnown = place.lastSeq > 0;
      place = nowhere;
      shown.clear();
      change();
      if (wasKnown && isFollowed) watchers.tell({ type: "reset", reason: "incarnation" });
      error = undefined;
      join();
    },
    change,
    flush,
  };
}
