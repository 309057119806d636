import type { FlotillaError } from "../base/errors.ts";
import type { ServerFrame } from "../protocol/frames.ts";
import type { InboxItem } from "../protocol/message.ts";
import { type FollowedParts, isDefinite } from "./followed.ts";
import { errorOf } from "./http.ts";
import { lingering, type Want } from "./linger.ts";
import { createRejoin } from "./rejoin.ts";
import { createListeners, type Listeners, type Store } from "./store.ts";

/** The sessions of the user, followed while somebody listens. */
export type Inbox = Store<InboxSnapshot>;

export type InboxSnapshot = {
  /** As of a session. `gone`: the user may not see an inbox. */
  readonly status: "idle" | "joining" | "live" | "away" | "gone";
  /** Those where something happened last come first. */
  readonly sessions: readonly InboxItem[];
  readonly error?: FlotillaError;
};

export type FollowedInbox = Inbox & {
  readonly isFollowed: boolean;
  opened(): void;
  lost(): void;
  take(frame: InboxFrame): void;
  end(error: FlotillaError): void;
  revive(): void;
  flush(): void;
};

export type InboxFrame = Extract<
  ServerFrame,
  { type: "inbox" | "inbox_changed" | "inbox_removed" | "error" }
>;

export function createInbox(parts: FollowedParts): FollowedInbox {
  const { exchange, clock, random } = parts;
  const rejoin = createRejoin(clock, random);
  const items = new Map<string, InboxItem>();
  let isFollowed = false;
  let phase: "away" | "joining" | "live" = "away";
  let isLost = false;
  let ref: string | undefined;
  let error: FlotillaError | undefined;
  let snapshot: InboxSnapshot | undefined;
  let hasChanged = false;

  const listeners: Listeners<[]> = createListeners((): void => want(listeners.size > 0));
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
      exchange.tell({ type: "inbox_leave" });
      away();
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
  const join = () => {
    rejoin.cancel();
    if (!isFollowed || error) return;
    ref = exchange.tell({ type: "inbox" });
    phase = ref === undefined ? "away" : "joining";
    change();
  };
  const away = () => {
    rejoin.cancel();
    ref = undefined;
    phase = "away";
    change();
  };
  const status = (): InboxSnapshot["status"] => {
    if (!isFollowed) return "idle";
    if (error) return "gone";
    return phase === "live" ? "live" : phase === "away" && isLost ? "away" : "joining";
  };
  const put = (sessions: readonly InboxItem[]) => {
    for (const item of sessions) items.set(item.sessionId, item);
    change();
  };
  const end = (why: FlotillaError) => {
    if (!isFollowed || error) return;
    away();
    items.clear();
    error = why;
  };

  return {
    get: () =>
      (snapshot ??= {
        status: status(),
        sessions: [...items.values()].toSorted((a, b) => b.activeAtMs - a.activeAtMs),
        ...(error && { error }),
      }),
    subscribe: (listener) => listeners.add(listener),
    get isFollowed() {
      return isFollowed;
    },
    opened() {
      isLost = false;
      join();
    },
    lost() {
      isLost = true;
      if (isFollowed) away();
    },
    take(frame) {
      if ("ref" in frame) {
        if (frame.ref !== ref) return;
        if (frame.type === "inbox") {
          items.clear();
          phase = "live";
          return put(frame.sessions);
        }
        if (isDefinite(frame.code)) return end(errorOf(frame));
        away();
        rejoin.plan(() => (join(), flush()), frame.retryAfterMs);
      } else if (phase === "live" && frame.type === "inbox_changed") put(frame.sessions);
      else if (phase === "live" && frame.type === "inbox_removed") {
        for (const sessionId of frame.sessionIds) items.delete(sessionId);
        change();
      }
    },
    end,
    revive() {
      if (!error) return;
      error = undefined;
      change();
      join();
    },
    flush,
  };
}
