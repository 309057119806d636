import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { ClientFrame, Ref, ServerFrame } from "../../protocol/frames.ts";
import type {
  Attendance,
  InboxEvent,
  Joined,
  FeedEvent,
  SessionService,
  Sink,
} from "../../sessions/service.ts";
import { type Caller, may, noSession, userOf } from "../auth/caller.ts";
import {
  type Members,
  filterInbox,
  inboxUserOf,
  type MembershipWatch,
  watchMembership,
} from "../auth/members.ts";
import type { Serializer } from "../serializer.ts";
import {
  errorFrame,
  frameErrorOf,
  type SendBuffer,
  type SharedEvent,
  encodeFrame,
  encodeEvent,
} from "./send-buffer.ts";

type Join = Extract<ClientFrame, { type: "join" }>;
type PresenceFrame = Extract<ClientFrame, { type: "presence" }>;

/** The sessions that one connection follows. */
type Subscriptions = {
  join(frame: Join): void;
  leave(session: string, ref: Ref): void;
  /** Shows the caller as one who has the session open, and sends who else has. Of a joined session. */
  attend(frame: PresenceFrame): void;
  leavePeople(session: string, ref: Ref): void;
  /** The caller's token was renewed: ends the subscriptions that it no longer allows. */
  checkAgain(): void;
  /** Leaves all, because the connection has ended. */
  close(): void;
};

type SubscriptionParts = {
  sessions: SessionService;
  members: Members;
  serializer: Serializer;
  caller: () => Caller;
  sendBuffer: SendBuffer;
  clock: Clock;
  log: Logger;
};

const maxSubscriptions = 100;
/** Frames about presence that wait until it is known whose conversation it is. */
const maxWaiting = 16;

type Subscription = {
  readonly ref: Ref;
  isJoined: boolean;
  isLeft: boolean;
  /** Whether it is shown as it is; undefined until that is known. */
  isOwn?: boolean;
  joined?: Joined;
  membership?: MembershipWatch;
  attendance?: Attendance | undefined;
  /** What waits until `isOwn` is known, or the subscription has ended. */
  waiting?: (() => void)[] | undefined;
};

export function createSubscriptions(parts: SubscriptionParts): Subscriptions {
  const { sessions, members, serializer, sendBuffer, clock, log } = parts;
  const all = new Map<string, Subscription>();

  const drop = (session: string, subscription: Subscription) => {
    subscription.isLeft = true;
    if (all.get(session) === subscription) all.delete(session);
    subscription.joined?.leave();
    subscription.membership?.stop();
    subscription.attendance?.leave();
    wake(subscription);
  };
  const wake = (subscription: Subscription) => {
    const { waiting = [] } = subscription;
    subscription.waiting = undefined;
    for (const each of waiting) each();
  };

  /** Answers a join that is still waiting with an error. */
  const abandon = (session: string, subscription: Subscription) => {
    const { ref, isJoined } = subscription;
    drop(session, subscription);
    if (isJoined) return;
    const error = new FlotillaError(
      "cancelled",
      "the session was left or joined again before this join was answered",
    );
    sendBuffer.push(encodeFrame(errorFrame(ref, error, log)));
  };

  const fail = (session: string, subscription: Subscription, error: unknown) => {
    if (subscription.isLeft) return;
    const { ref, isJoined } = subscription;
    drop(session, subscription);
    if (!isJoined) sendBuffer.push(encodeFrame(errorFrame(ref, error, log)));
    else {
      const reason = hasCode(error, "not_found") ? "removed" : "failed";
      const errorField = reason === "removed" ? {} : { error: frameErrorOf(error, log) };
      sendBuffer.push(encodeFrame({ type: "left", session, reason, ...errorField }));
    }
  };

  const sinkOf = (
    session: string,
    subscription: Subscription,
    ownership: boolean | Promise<boolean>,
  ): Sink<FeedEvent> => {
    let caller: Caller | undefined;
    let shown: ReturnType<Serializer["feed"]>;
    /** Until it is known whose conversation it is. At most a page: the next one waits for `drained`. */
    let held: SharedEvent[] = [];

    const send = (event: SharedEvent): boolean => {
      if (subscription.isLeft) return false;
      // A renewed token may show more or less.
      if (caller !== parts.caller()) {
        caller = parts.caller();
        shown = serializer.feed({ caller, isOwn: subscription.isOwn });
      }
      const left = shown(event);
      return left === undefined || sendBuffer.push(encodeEvent(session, left));
    };
    const decide = (own: boolean): void => {
      subscription.isOwn = own;
      const waiting = held;
      held = [];
      for (const event of waiting) send(event);
      wake(subscription);
    };
    // The session is followed meanwhile: an answer may be over before it is known.
    const deciding =
      typeof ownership === "boolean"
        ? decide(ownership)
        : ownership.then(decide, (error: unknown) => fail(session, subscription, error));

    return {
      push(event) {
        if (subscription.isLeft) return false;
        if (event.type === "joined") {
          subscription.isJoined = true;
          const { lastSeq, incarnation, state } = event;
          const { ref } = subscription;
          return sendBuffer.push(
            encodeFrame({ type: "joined", ref, session, lastSeq, incarnation, state }),
          );
        }
        if (event.type === "deleted") {
          drop(session, subscription);
          return sendBuffer.push(encodeFrame({ type: "left", session, reason: "deleted" }));
        }
        subscription.membership?.recheck();
        if (subscription.isOwn !== undefined) return send(event);
        held.push(event);
        return true;
      },
      fail: (error) => fail(session, subscription, error),
      async drained() {
        await deciding;
        await sendBuffer.drained();
      },
    };
  };

  /** Takes a frame about presence once it is known whose conversation it is, after those before it. */
  const inOrder = (subscription: Subscription, take: () => void): void => {
    if (subscription.isOwn !== undefined) return take();
    const waiting = (subscription.waiting ??= []);
    if (waiting.length >= maxWaiting) {
      const message = `${maxWaiting} frames about presence wait for the join to be answered`;
      throw new FlotillaError("overloaded", message, { retryAfterMs: 1_000 });
    }
    waiting.push(take);
  };

  const attendNow = (subscription: Subscription, { ref, session, typing }: PresenceFrame): void => {
    const ack = () => sendBuffer.push(encodeFrame({ type: "ack", ref }));
    const refuse = (error: unknown) => sendBuffer.push(encodeFrame(errorFrame(ref, error, log)));
    if (subscription.isLeft) {
      const message = "the session was left, or joined again, before this was answered";
      return void refuse(new FlotillaError("cancelled", message));
    }
    if (!subscription.isOwn) {
      return void refuse(new FlotillaError("forbidden", "only members see who is there"));
    }
    if (subscription.attendance) {
      subscription.attendance.typing(typing);
      return void ack();
    }
    const caller = parts.caller();
    let hasFailed = false;
    const attendance = sessions.presence(caller.tenant, session, userOf(caller), {
      push(event) {
        if (subscription.attendance !== attendance || subscription.isLeft) return false;
        subscription.membership?.recheck();
        return sendBuffer.push(encodeEvent(session, event));
      },
      fail(error) {
        hasFailed = true;
        if (subscription.isLeft) return;
        subscription.attendance = undefined;
        refuse(error);
      },
    });
    if (hasFailed) return;
    subscription.attendance = attendance;
    attendance.typing(typing);
    // The sink gets the error.
    attendance.ready.then(ack, () => {});
  };

  return {
    attend(frame) {
      const subscription = all.get(frame.session);
      if (!subscription) {
        const message = "presence is of a session that this connection has joined: join it first";
        throw new FlotillaError("conflict", message);
      }
      inOrder(subscription, () => attendNow(subscription, frame));
    },
    leavePeople(session, ref) {
      const subscription = all.get(session);
      const leaveNow = () => {
        subscription?.attendance?.leave();
        if (subscription) subscription.attendance = undefined;
        sendBuffer.push(encodeFrame({ type: "ack", ref }));
      };
      if (subscription) inOrder(subscription, leaveNow);
      else leaveNow();
    },
    join({ ref, session, lastSeq, incarnation, lastMessageId }) {
      const earlier = all.get(session);
      if (earlier) abandon(session, earlier);
      if (all.size >= maxSubscriptions) {
        throw new FlotillaError(
          "overloaded",
          `a connection follows at most ${maxSubscriptions} sessions: leave some, or open another`,
          { details: { subscriptionsMost: maxSubscriptions } },
        );
      }
      const subscription: Subscription = { ref, isJoined: false, isLeft: false };
      all.set(session, subscription);
      const position = {
        lastSeq,
        ...(incarnation !== undefined && { incarnation }),
        ...(lastMessageId !== undefined && { lastMessageId }),
      };
      const caller = parts.caller();
      const start = () => {
        if (subscription.isLeft) return;
        try {
          subscription.membership = watchMembership({
            members,
            clock,
            caller: parts.caller,
            sessionId: session,
            isOwn: () => subscription.isOwn,
            onRemoved: (error) => fail(session, subscription, error),
          });
          const sink = sinkOf(session, subscription, members.isMember(caller, session));
          const joined = sessions.join(caller.tenant, session, position, sink);
          // The sink gets the error.
          joined.ready.catch(() => {});
          subscription.joined = joined;
          // The sink may have ended the subscription during `join`.
          if (subscription.isLeft) drop(session, subscription);
        } catch (error) {
          fail(session, subscription, error);
        }
      };
      const checking = members.check(caller, session, { or: "fleet:read" });
      if (checking === undefined) start();
      else checking.then(start, (error: unknown) => fail(session, subscription, error));
    },
    leave(session, ref) {
      const subscription = all.get(session);
      if (subscription) abandon(session, subscription);
      sendBuffer.push(encodeFrame({ type: "left", ref, session, reason: "asked" }));
    },
    checkAgain() {
      const caller = parts.caller();
      const isForbidden = !may(caller, "sessions:read") && !may(caller, "fleet:read");
      for (const [session, subscription] of all) {
        if (isForbidden) fail(session, subscription, noSession(session));
        else
          members.check(caller, session, { or: "fleet:read" })?.catch((error: unknown) => {
            // A failed read isn't a reason to end what was allowed.
            if (hasCode(error, "not_found")) fail(session, subscription, error);
          });
      }
    },
    close() {
      for (const [session, subscription] of all) drop(session, subscription);
    },
  };
}

type InboxParts = {
  sessions: Pick<SessionService, "inbox">;
  caller: Caller;
  ref: Ref;
  sendBuffer: SendBuffer;
  log: Logger;
};

export type JoinedInbox = Joined & {
  /** Leaves it, and answers the frame that asked for it if that is still to be done. */
  abandon(): void;
};

/** Sends a user's inbox and its changes, until it is left. */
export function joinInbox({ sessions, caller, ref, sendBuffer, log }: InboxParts): JoinedInbox {
  let isLeft = false;
  let isAnswered = false;
  const fail = (error: unknown) => {
    if (!isLeft) sendBuffer.push(encodeFrame(errorFrame(ref, error, log)));
    isLeft = true;
    isAnswered = true;
  };
  const sink: Sink<InboxEvent> = {
    push(event) {
      if (isLeft) return false;
      isAnswered = true;
      return sendBuffer.push(encodeFrame(frameOf(event, ref)));
    },
    fail,
    drained: sendBuffer.drained,
  };
  const joined = sessions.inbox(caller.tenant, inboxUserOf(caller), filterInbox(caller, sink));
  // The sink gets the error.
  joined.ready.catch(() => {});
  return {
    ready: joined.ready,
    leave() {
      isLeft = true;
      joined.leave();
    },
    abandon() {
      if (!isAnswered) {
        const message = "the inbox was left or asked for again before this frame was answered";
        fail(new FlotillaError("cancelled", message));
      }
      isLeft = true;
      joined.leave();
    },
  };
}

/** Whether two callers see the same inbox. */
export function hasSameView(one: Caller, other: Caller): boolean {
  const [a, b] = [one.sessions, other.sessions];
  const isSame = !a || !b ? a === b : a.size === b.size && [...a].every((each) => b.has(each));
  return isSame && may(one, "inbox:read") === may(other, "inbox:read");
}

function frameOf(event: InboxEvent, ref: Ref): ServerFrame {
  switch (event.type) {
    case "snapshot":
      return { ...event, type: "inbox", ref };
    case "changed":
      return { ...event, type: "inbox_changed" };
    case "removed":
      return { ...event, type: "inbox_removed" };
  }
}
