import { FlotillaError } from "../../base/errors.ts";
import type { ServerFrame } from "../../protocol/frames.ts";
import { createExchange } from "./send-queue.ts";
import { createFollowed, type Followed } from "../session/feed.ts";
import { createInbox, type Inbox } from "../inbox.ts";
import { loadBeside } from "../session/view.ts";
import { openSession } from "../session/handle.ts";
import type { Session } from "../session/session.ts";
import { createSocket, type Hello, type Socket, type SocketParts } from "./socket.ts";

/** All that goes over the one socket: sessions that are followed, the inbox, what is sent. */
export type Talk = {
  session(sessionId: string): Session;
  readonly inbox: Inbox;
  readonly connection: Socket["state"];
  /** The session is there, whatever was known of it before. */
  revive(sessionId: string): void;
  reconnect(): void;
  close(error: FlotillaError): void;
};

export type TalkParts = Omit<SocketParts, "onOpen" | "onLost" | "onFrames" | "ping" | "renew"> & {
  newId: () => string;
  maxUnacked: number;
};

// What was said in sessions that nobody follows any more is kept of so many, to be there at once.
const keptMost = 30;

export function createTalk(parts: TalkParts): Talk {
  const { clock, random, newId, maxUnacked } = parts;
  const all = new Map<string, { followed: Followed; session: Session }>();
  let speaksFor: string | undefined;
  let closed: FlotillaError | undefined;
  let renewal: { ref: string | undefined; resolve(untilMs?: number): void } | undefined;

  /** All that is followed, or may be. */
  const subscriptions = () => [
    ...[...all.values()].map(({ followed }) => followed.subscription),
    inbox.subscription,
  ];
  const wanted = () => {
    const isFollowing = subscriptions().some(({ isFollowed }) => isFollowed);
    socket.want(isFollowing || exchange.size > 0);
  };
  const refusal = () => {
    const state = socket.state.get();
    return closed ?? (state.status === "refused" ? state.error : undefined);
  };
  const exchange = createExchange({
    most: maxUnacked,
    send: (text) => socket.send(text),
    onSize: wanted,
    refusal() {
      // It throws where there is no server to go to: what is asked would wait for good.
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
  const onFollow = () => {
    // Whoever follows a closed client hears why nothing comes.
    if (closed) end(closed);
    wanted();
    letGo();
  };
  const over = () => closed;
  const followedParts = { exchange, isAway, onFollow, over, clock, random };
  const inbox = createInbox(followedParts);

  const letGo = () => {
    const idle = [...all.values()].filter(({ followed }) => {
      return !followed.subscription.isFollowed && followed.place.lastSeq > 0;
    });
    for (const { followed } of idle.slice(0, -keptMost)) followed.forget();
  };
  const flush = () => {
    for (const each of subscriptions()) each.flush();
  };
  const end = (error: FlotillaError) => {
    for (const each of subscriptions()) {
      each.end(error);
      // Those that are let go of just now are waited for no longer.
      each.want();
    }
    exchange.rejectAll(error);
    flush();
  };

  /** Whoever it speaks for now must not see, or say, what was another's. */
  const change = () => {
    const message = "the client speaks for another user now";
    exchange.rejectAll(new FlotillaError("forbidden", message));
    for (const { followed } of all.values()) followed.forget();
    inbox.forget();
  };

  const onOpen = ({ tenant, user, maxFrameBytes }: Hello) => {
    const now = JSON.stringify([tenant, user]);
    if (speaksFor !== undefined && speaksFor !== now) change();
    speaksFor = now;
    exchange.opened(maxFrameBytes);
    // Where it fails, the first answer tries again.
    loadBeside().catch(() => {});
    for (const each of subscriptions()) each.opened();
    flush();
  };
  const onLost = () => {
    renewal?.resolve();
    exchange.lost();
    for (const { followed } of all.values()) followed.lost();
    inbox.subscription.lost();
    flush();
    // Sent later, it might be sent as somebody else.
    const error = refusal();
    if (error) exchange.rejectAll(error);
  };

  const take = (frame: ServerFrame): void => {
    if ("session" in frame) return all.get(frame.session)?.followed.take(frame);
    if (frame.type === "ack" || frame.type === "error") {
      // Without one, it is about something that the server couldn't read.
      if (frame.ref === undefined) return;
      if (typeof frame.ref === "number") return exchange.take(frame);
      if (frame.ref === renewal?.ref) {
        return renewal?.resolve(frame.type === "ack" ? (frame.expiresAtMs ?? Infinity) : undefined);
      }
      if (frame.type === "ack") return;
      for (const { followed } of all.values()) followed.take(frame);
    }
    if (frame.type !== "hello" && frame.type !== "pong") inbox.take(frame);
    if ("sessions" in frame) {
      for (const { sessionId } of frame.sessions) all.get(sessionId)?.followed.subscription.seek();
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
    ping: () => void exchange.tell({ type: "ping" }),
    renew: (token) =>
      new Promise((resolve) => {
        const settle = (untilMs?: number) => {
          renewal = undefined;
          resolve(untilMs);
        };
        renewal = { ref: exchange.tell({ type: "token", token }), resolve: settle };
        if (renewal.ref === undefined) settle();
      }),
  });

  return {
    session(sessionId) {
      let found = all.get(sessionId);
      if (!found) {
        const followed = createFollowed(sessionId, followedParts);
        found = { followed, session: openSession(sessionId, { followed, exchange, newId }) };
        all.set(sessionId, found);
      }
      return found.session;
    },
    inbox: { get: inbox.subscription.get, subscribe: inbox.subscription.subscribe },
    connection: socket.state,
    revive(sessionId) {
      all.get(sessionId)?.followed.subscription.revive();
      flush();
    },
    reconnect() {
      socket.reconnect();
      for (const each of subscriptions()) each.revive();
      flush();
    },
    close(error) {
      closed = error;
      socket.close();
      end(error);
    },
  };
}
