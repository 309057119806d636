import { FlotillaError } from "../../base/errors.ts";
import type { ServerFrame } from "../../protocol/frames.ts";
import { createSendQueue } from "./send-queue.ts";
import { createSessionFeed, type SessionFeed } from "../session/feed.ts";
import { createInboxFeed, type Inbox } from "../inbox.ts";
import { loadLazyModule } from "../session/view.ts";
import { openSession } from "../session/handle.ts";
import type { Session } from "../session/session.ts";
import { createSocket, type Hello, type Socket, type SocketParts } from "./socket.ts";

/** Shares the one socket: followed sessions, the inbox, and what is sent. */
export type Multiplexer = {
  session(sessionId: string): Session;
  readonly inbox: Inbox;
  readonly connection: Socket["state"];
  /** The session exists, whatever was known of it before. */
  revive(sessionId: string): void;
  reconnect(): void;
  close(error: FlotillaError): void;
};

export type MultiplexerParts = Omit<
  SocketParts,
  "onOpen" | "onLost" | "onFrames" | "ping" | "renew"
> & {
  newId: () => string;
  maxUnacked: number;
};

// How many sessions without listeners keep their entries, so that they can be shown at once.
const maxIdleKept = 30;

export function createMultiplexer(parts: MultiplexerParts): Multiplexer {
  const { clock, random, newId, maxUnacked } = parts;
  const sessions = new Map<string, { feed: SessionFeed; session: Session }>();
  let identity: string | undefined;
  let closeError: FlotillaError | undefined;
  let renewal: { ref: string | undefined; resolve(untilMs?: number): void } | undefined;

  /** The subscriptions of all sessions and of the inbox. */
  const subscriptions = () => [
    ...[...sessions.values()].map(({ feed }) => feed.subscription),
    inbox.subscription,
  ];
  const updateWanted = () => {
    const isActive = subscriptions().some(({ isActive: isFollowed }) => isFollowed);
    socket.want(isActive || queue.size > 0);
  };
  const refusal = () => {
    const state = socket.state.get();
    return closeError ?? (state.status === "refused" ? state.error : undefined);
  };
  const queue = createSendQueue({
    maxUnacked: maxUnacked,
    send: (text) => socket.send(text),
    onSize: updateWanted,
    refusal() {
      // `url` throws where there is no server: a frame would wait for ever.
      parts.url();
      return refusal();
    },
    clock,
    random,
  });
  const isAway = () => {
    const { status } = socket.state.get();
    return status !== "idle" && status !== "connecting" && status !== "open";
  };
  const onActive = () => {
    // A listener that is added to a closed client gets the reason.
    if (closeError) end(closeError);
    updateWanted();
    trimIdle();
  };
  const closed = () => closeError;
  const feedParts = { queue, isAway, onActive, closed, clock, random };
  const inbox = createInboxFeed(feedParts);

  const trimIdle = () => {
    const idle = [...sessions.values()].filter(({ feed }) => {
      return !feed.subscription.isActive && feed.position.lastSeq > 0;
    });
    for (const { feed } of idle.slice(0, -maxIdleKept)) feed.forget();
  };
  const flush = () => {
    for (const each of subscriptions()) each.flush();
  };
  const end = (error: FlotillaError) => {
    for (const each of subscriptions()) {
      each.end(error);
      // End those without listeners at once, instead of after their delay.
      each.want();
    }
    queue.rejectAll(error);
    flush();
  };

  /** Another user must not see, or send, what belongs to the one before. */
  const onIdentityChange = () => {
    const message = "the client's user has changed";
    queue.rejectAll(new FlotillaError("forbidden", message));
    for (const { feed } of sessions.values()) feed.forget();
    inbox.forget();
  };

  const onOpen = ({ tenant, user, maxFrameBytes }: Hello) => {
    const current = JSON.stringify([tenant, user]);
    if (identity !== undefined && identity !== current) onIdentityChange();
    identity = current;
    queue.onOpen(maxFrameBytes);
    // Where it fails, the first answer tries again.
    loadLazyModule().catch(() => {});
    for (const each of subscriptions()) each.onOpen();
    flush();
  };
  const onLost = () => {
    renewal?.resolve();
    queue.onLost();
    for (const { feed } of sessions.values()) feed.onLost();
    inbox.subscription.onLost();
    flush();
    // Reject now: sent later, the frames might be sent as another user.
    const error = refusal();
    if (error) queue.rejectAll(error);
  };

  const take = (frame: ServerFrame): void => {
    if ("session" in frame) return sessions.get(frame.session)?.feed.take(frame);
    if (frame.type === "ack" || frame.type === "error") {
      // An error without a ref answers a frame that the server couldn't parse.
      if (frame.ref === undefined) return;
      if (typeof frame.ref === "number") return queue.take(frame);
      if (frame.ref === renewal?.ref) {
        return renewal?.resolve(frame.type === "ack" ? (frame.expiresAtMs ?? Infinity) : undefined);
      }
      if (frame.type === "ack") return;
      for (const { feed } of sessions.values()) feed.take(frame);
    }
    if (frame.type !== "hello" && frame.type !== "pong") inbox.take(frame);
    if ("sessions" in frame) {
      for (const { sessionId } of frame.sessions) sessions.get(sessionId)?.feed.subscription.seek();
    }
  };

  const socket = createSocket({
    ...parts,
    onOpen,
    onLost,
    onFrames(frames) {
      for (const frame of frames) take(frame);
      flush();
    },
    ping: () => void queue.sendOnce({ type: "ping" }),
    renew: (token) =>
      new Promise((resolve) => {
        const settle = (untilMs?: number) => {
          renewal = undefined;
          resolve(untilMs);
        };
        renewal = { ref: queue.sendOnce({ type: "token", token }), resolve: settle };
        if (renewal.ref === undefined) settle();
      }),
  });

  return {
    session(sessionId) {
      let found = sessions.get(sessionId);
      if (!found) {
        const feed = createSessionFeed(sessionId, feedParts);
        found = { feed, session: openSession(sessionId, { feed, queue, newId }) };
        sessions.set(sessionId, found);
      }
      return found.session;
    },
    inbox: { get: inbox.subscription.get, subscribe: inbox.subscription.subscribe },
    connection: socket.state,
    revive(sessionId) {
      sessions.get(sessionId)?.feed.subscription.revive();
      flush();
    },
    reconnect() {
      socket.reconnect();
      for (const each of subscriptions()) each.revive();
      flush();
    },
    close(error) {
      closeError = error;
      socket.close();
      end(error);
    },
  };
}
