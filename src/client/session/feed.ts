import { FlotillaError } from "../../base/errors.ts";
import type { ServerFrame } from "../../protocol/frames.ts";
import {
  isCaughtUp,
  initialPosition,
  type SessionPosition,
  type PositionFrame,
  applyFrame,
} from "./position.ts";
import type { SessionEvent, SessionSnapshot } from "./session.ts";
import { createClientView, type ClientView } from "./view.ts";
import { createListenerSet, guarded } from "../observable.ts";
import { createPresence, type PresenceFeed } from "./presence.ts";
import { createSubscription, type FeedContext, type Subscription } from "../socket/subscription.ts";

/** A followed session: joined on every connection, from its position. */
export type SessionFeed = {
  readonly subscription: Subscription<SessionSnapshot>;
  readonly view: ClientView;
  readonly position: SessionPosition;
  readonly presence: PresenceFeed;
  on(listener: (event: SessionEvent) => void): () => void;
  /** The events after a position, as a new listener gets them. */
  replay(after: number): SessionEvent[];
  onLost(): void;
  take(frame: SessionFrame): void;
  /** Forgets its entries; where it is followed, it is joined again from the first entry. */
  forget(): void;
};

export type SessionFrame =
  | PositionFrame
  | Extract<ServerFrame, { type: "left" | "presence" | "error" }>;

export function createSessionFeed(sessionId: string, parts: FeedContext): SessionFeed {
  const { queue } = parts;
  let position = initialPosition;
  const presence = createPresence({
    ...parts,
    session: sessionId,
    isJoined: () => position.phase !== "away",
    onSize: (): void => subscription.want(),
  });
  const view = createClientView(() => {
    subscription.invalidate();
    subscription.flush();
  });
  const listeners = createListenerSet<[SessionEvent]>((): void => subscription.want());
  const subscription: Subscription<SessionSnapshot> = createSubscription<SessionSnapshot>({
    ...parts,
    sendJoin() {
      const { lastSeq, incarnation, lastMessageId } = position;
      const session = sessionId;
      const ref = queue.sendOnce({ type: "join", session, lastSeq, incarnation, lastMessageId });
      position = { ...position, phase: ref === undefined ? "away" : "joining" };
      presence.onJoin();
      return ref;
    },
    sendLeave: () => queue.sendOnce({ type: "leave", session: sessionId }),
    detach() {
      position = { ...position, phase: "away" };
      presence.take([]);
    },
    onGone(error) {
      view.endAnswer();
      emit({ type: "gone", error });
    },
    isLive: () => isCaughtUp(position),
    hasListeners: () => listeners.size + presence.size > 0,
    snapshot(status, error) {
      const { state, lastSeq, incarnation } = position;
      return view.snapshot({ status, state, lastSeq, incarnation, error });
    },
  });
  const emit = (event: SessionEvent) => {
    view.take(event, position.state);
    subscription.invalidate();
    listeners.emit(event);
  };

  const replay = (after: number): SessionEvent[] => {
    const { phase, state, lastSeq, historySeq } = position;
    const events: SessionEvent[] = [];
    if (phase === "joined") {
      events.push({ type: "joined", lastSeq: Math.max(lastSeq, historySeq), state });
    }
    for (const entry of view.entries(after)) events.push({ type: "entry", entry });
    if (view.live) {
      const { epoch, attempt } = view.live;
      const chunks = view.live.snapshot();
      events.push({ type: "chunks", epoch, attempt, fromStart: true, chunks });
    }
    const { error } = subscription.get();
    if (error) events.push({ type: "gone", error });
    return events;
  };

  return {
    subscription,
    view,
    presence,
    get position() {
      return position;
    },
    on(listener) {
      for (const event of replay(0)) guarded(() => listener(event));
      return listeners.add(listener);
    },
    replay,
    onLost() {
      if (subscription.onLost()) emit({ type: "away" });
    },
    take(frame) {
      if (frame.type === "error") {
        if (frame.ref === subscription.ref) subscription.onRefused(frame);
      } else if (frame.type === "left") {
        if (position.phase !== "joined" || frame.reason === "asked") return;
        if (frame.reason === "failed") return subscription.rejoin(frame.error?.retryAfterMs);
        const reason = frame.reason === "deleted" ? "was deleted" : "isn't yours any more";
        subscription.end(new FlotillaError("not_found", `session ${sessionId} ${reason}`));
      } else if (frame.type === "presence") {
        if (position.phase === "joined" && presence.size > 0) presence.take(frame.people);
      } else {
        if (frame.type === "joined") {
          if (frame.ref !== subscription.ref) return;
          subscription.onFound();
        }
        const update = applyFrame(position, frame);
        if (update.position !== position) subscription.invalidate();
        position = update.position;
        for (const event of update.events) emit(event);
        if (!position.answer) view.endAnswer();
        if (update.gap) subscription.rejoin();
      }
    },
    forget() {
      const hadEntries = position.lastSeq > 0;
      position = initialPosition;
      if (hadEntries) emit({ type: "reset", reason: "incarnation" });
      subscription.revive();
      subscription.join();
    },
  };
}
