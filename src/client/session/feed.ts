import { FlotillaError } from "../../base/errors.ts";
import type { ServerFrame } from "../../protocol/frames.ts";
import { isCaughtUp, nowhere, type Place, type PlaceFrame, takeFrame } from "./position.ts";
import type { SessionEvent, SessionSnapshot } from "./session.ts";
import { createShown, type Shown } from "./view.ts";
import { createListeners, guarded } from "../observable.ts";
import { createSubscription, type FollowParts, type Subscription } from "../socket/subscription.ts";

/** A session as it is followed: joined on every connection, from the place that it has. */
export type Followed = {
  readonly subscription: Subscription<SessionSnapshot>;
  readonly shown: Shown;
  readonly place: Place;
  on(listener: (event: SessionEvent) => void): () => void;
  /** What has happened behind a place, as somebody hears it who listens only now. */
  known(after: number): SessionEvent[];
  lost(): void;
  take(frame: SessionFrame): void;
  /** Forgets what it knows; where it is followed, it is joined from the first entry on. */
  forget(): void;
};

export type SessionFrame = PlaceFrame | Extract<ServerFrame, { type: "left" | "error" }>;

export function createFollowed(sessionId: string, parts: FollowParts): Followed {
  const { exchange } = parts;
  let place = nowhere;
  const shown = createShown(() => {
    subscription.change();
    subscription.flush();
  });
  const watchers = createListeners<[SessionEvent]>((): void => subscription.want());
  const subscription: Subscription<SessionSnapshot> = createSubscription<SessionSnapshot>({
    ...parts,
    ask() {
      const { lastSeq, incarnation, lastMessageId } = place;
      const session = sessionId;
      const ref = exchange.tell({ type: "join", session, lastSeq, incarnation, lastMessageId });
      place = { ...place, phase: ref === undefined ? "away" : "joining" };
      return ref;
    },
    leave: () => exchange.tell({ type: "leave", session: sessionId }),
    detach() {
      place = { ...place, phase: "away" };
    },
    onGone(error) {
      shown.endAnswer();
      emit({ type: "gone", error });
    },
    isLive: () => isCaughtUp(place),
    hasOthers: () => watchers.size > 0,
    show(status, error) {
      const { state, lastSeq, incarnation } = place;
      return shown.snapshot({ status, state, lastSeq, incarnation, error });
    },
  });
  const emit = (event: SessionEvent) => {
    shown.take(event, place.state);
    subscription.change();
    watchers.tell(event);
  };

  const known = (after: number): SessionEvent[] => {
    const { phase, state, lastSeq, historySeq } = place;
    const events: SessionEvent[] = [];
    if (phase === "joined") {
      events.push({ type: "joined", lastSeq: Math.max(lastSeq, historySeq), state });
    }
    for (const entry of shown.entries(after)) events.push({ type: "entry", entry });
    if (shown.live) {
      const { epoch, attempt } = shown.live;
      const chunks = shown.live.snapshot();
      events.push({ type: "chunks", epoch, attempt, fromStart: true, chunks });
    }
    const { error } = subscription.get();
    if (error) events.push({ type: "gone", error });
    return events;
  };

  return {
    subscription,
    shown,
    get place() {
      return place;
    },
    on(listener) {
      for (const event of known(0)) guarded(() => listener(event));
      return watchers.add(listener);
    },
    known,
    lost() {
      if (subscription.lost()) emit({ type: "away" });
    },
    take(frame) {
      if (frame.type === "error") {
        if (frame.ref === subscription.ref) subscription.refused(frame);
      } else if (frame.type === "left") {
        if (place.phase !== "joined" || frame.reason === "asked") return;
        if (frame.reason === "failed") return subscription.joinAgain(frame.error?.retryAfterMs);
        const why = frame.reason === "deleted" ? "was deleted" : "isn't yours any more";
        subscription.end(new FlotillaError("not_found", `the session ${sessionId} ${why}`));
      } else {
        if (frame.type === "joined") {
          if (frame.ref !== subscription.ref) return;
          subscription.found();
        }
        const taken = takeFrame(place, frame);
        if (taken.place !== place) subscription.change();
        place = taken.place;
        for (const event of taken.events) emit(event);
        if (!place.answer) shown.endAnswer();
        if (taken.gap) subscription.joinAgain();
      }
    },
    forget() {
      const wasKnown = place.lastSeq > 0;
      place = nowhere;
      if (wasKnown) emit({ type: "reset", reason: "incarnation" });
      subscription.revive();
      subscription.join();
    },
  };
}
