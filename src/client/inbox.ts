import type { FlotillaError } from "../base/errors.ts";
import type { ServerFrame } from "../protocol/frames.ts";
import type { InboxItem } from "../protocol/message.ts";
import type { Store } from "./observable.ts";
import { createSubscription, type FeedContext, type Subscription } from "./socket/subscription.ts";

/** The user's sessions, followed while there are listeners. */
export type Inbox = Store<InboxSnapshot>;

export type InboxSnapshot = {
  /** As of a session. `gone`: the user may not read an inbox. */
  readonly status: "idle" | "joining" | "live" | "away" | "gone";
  /** The most recently active first. */
  readonly sessions: readonly InboxItem[];
  /**
   * Up to which time it has everything, in milliseconds, where the server's database is away or behind; absent
   * where it is up to date.
   */
  readonly asOf?: number;
  readonly error?: FlotillaError;
};

export type InboxFeed = {
  readonly subscription: Subscription<InboxSnapshot>;
  take(frame: InboxFrame): void;
  /** Forgets the sessions of an earlier user. */
  forget(): void;
};

export type InboxFrame = Extract<
  ServerFrame,
  { type: "inbox" | "inbox_changed" | "inbox_removed" | "error" }
>;

export function createInboxFeed(parts: FeedContext): InboxFeed {
  const { queue } = parts;
  const items = new Map<string, InboxItem>();
  let isLive = false;
  let asOf: number | undefined;
  const detach = () => {
    isLive = false;
  };
  const clear = () => {
    items.clear();
    asOf = undefined;
  };
  const subscription = createSubscription<InboxSnapshot>({
    ...parts,
    sendJoin() {
      detach();
      return queue.sendOnce({ type: "inbox" });
    },
    sendLeave: () => queue.sendOnce({ type: "inbox_leave" }),
    detach,
    onGone: clear,
    isLive: () => isLive,
    snapshot: (status, error) => ({
      status,
      sessions: [...items.values()].toSorted((a, b) => b.activeAtMs - a.activeAtMs),
      ...(asOf !== undefined && { asOf }),
      ...(error && { error }),
    }),
  });
  const put = (frame: Extract<InboxFrame, { readonly sessions: unknown }>) => {
    asOf = typeof frame.asOf === "number" ? frame.asOf : undefined;
    for (const item of frame.sessions) items.set(item.sessionId, item);
    subscription.invalidate();
  };

  return {
    subscription,
    take(frame) {
      if ("ref" in frame) {
        if (frame.ref !== subscription.ref) return;
        if (frame.type === "error") return subscription.onRefused(frame);
        subscription.onFound();
        items.clear();
        isLive = true;
        put(frame);
      } else if (isLive && frame.type === "inbox_changed") put(frame);
      else if (isLive && frame.type === "inbox_removed") {
        for (const sessionId of frame.sessionIds) items.delete(sessionId);
        subscription.invalidate();
      }
    },
    forget() {
      clear();
      subscription.invalidate();
    },
  };
}
