import type { Bus } from "../../bus/bus.ts";
import { hasCode } from "../../base/errors.ts";
import type { Feed } from "./feed.ts";
import { missing } from "./feed.ts";
import type { Pods, Said } from "./remote-subscriber.ts";
import type { View } from "./view.ts";

/**
 * Keeps every feed at its source: this process where it owns the log, else the pod that does. While
 * nobody does, nothing can happen; what the last owner did before is in the journal.
 */
export type Following = {
  /** Brings a new feed its first view, or fails it. */
  attach(feed: Feed): void;
  detach(sessionId: string): void;
  /** Looks whether the source of a feed is still the same. */
  check(feed: Feed): void;
  /** Whether its source is this process, as far as is known. */
  isHere(sessionId: string): boolean;
  /** This process may have another part in it than before: its source is looked for again. */
  forget(sessionId: string): void;
  /** Takes what a pod said of a session when it was asked for again. */
  said(feed: Feed | undefined, address: string, sessionId: string, said: Said): void;
};

export type FollowingParts = {
  bus: Bus;
  pods: Pods;
  isLocal: (sessionId: string) => boolean;
  ownerOf: (sessionId: string) => Promise<string | undefined>;
  look: (sessionId: string) => View | undefined;
  readView: (sessionId: string) => Promise<View | undefined>;
  /** Not dropped meanwhile. */
  isCurrent: (feed: Feed) => boolean;
  /** Its source isn't this process: whether it is still the same is to be looked at every second. */
  onElsewhere: (sessionId: string) => void;
};

/** What is "unknown" is looked for again, and the journal is asked whatever is found. */
type Source = "here" | "nowhere" | "unknown" | { readonly address: string };

export function createFollowing(parts: FollowingParts): Following {
  const { bus, pods } = parts;
  const sources = new Map<string, Source>();
  /** Whose source is being looked for, so that each is looked for once at a time. */
  const looking = new Set<Feed>();

  const addressOf = (source: Source | undefined) =>
    typeof source === "object" ? source.address : undefined;

  const find = async (sessionId: string): Promise<Source> => {
    if (parts.isLocal(sessionId)) return "here";
    const address = await parts.ownerOf(sessionId);
    if (address === undefined || address === bus.address) return "nowhere";
    return { address };
  };

  const move = (sessionId: string, source: Source): void => {
    const before = addressOf(sources.get(sessionId));
    if (before !== undefined && before !== addressOf(source)) pods.unfollow(before, sessionId);
    sources.set(sessionId, source);
    if (source !== "here") parts.onElsewhere(sessionId);
  };

  /** What the source knows; undefined where only the journal can tell. */
  const ask = async (sessionId: string, source: Source): Promise<View | undefined> => {
    if (source === "here") return parts.look(sessionId);
    if (typeof source !== "object") return undefined;
    const said = await pods.follow(source.address, sessionId);
    if (said !== "elsewhere") return said.view;
    lose(sessionId, source.address);
    return undefined;
  };

  const lose = (sessionId: string, address: string): void => {
    if (addressOf(sources.get(sessionId)) === address) move(sessionId, "unknown");
  };

  const lookAgain = (feed: Feed): void => {
    if (parts.isCurrent(feed)) move(feed.sessionId, "unknown");
  };

  const bring = async (feed: Feed, source: Source): Promise<void> => {
    const { sessionId } = feed;
    if (!parts.isCurrent(feed)) return;
    move(sessionId, source);
    let view: View | undefined;
    try {
      view = await ask(sessionId, source);
    } catch (error) {
      // An owner that doesn't answer doesn't keep anybody from what the journal has.
      if (hasCode(error, "closed")) throw error;
    }
    view ??= await parts.readView(sessionId);
    if (view) feed.accept(view, []);
    else feed.fail(missing(sessionId));
  };

  const once = (feed: Feed, look: () => Promise<void>): void => {
    if (looking.has(feed)) return;
    looking.add(feed);
    look()
      .catch((error: unknown) => {
        // Where something is known already, the next second asks again.
        if (!feed.view) feed.fail(error);
        else lookAgain(feed);
      })
      .finally(() => looking.delete(feed));
  };

  return {
    attach: (feed) => once(feed, async () => bring(feed, await find(feed.sessionId))),
    check(feed) {
      const isHere = sources.get(feed.sessionId) === "here";
      if (isHere && parts.isLocal(feed.sessionId)) return;
      once(feed, async () => {
        const source = await find(feed.sessionId);
        const before = sources.get(feed.sessionId);
        const isSame = before === source || addressOf(before) === (addressOf(source) ?? null);
        if (!isSame) await bring(feed, source);
      });
    },
    forget(sessionId) {
      if (addressOf(sources.get(sessionId)) === undefined) move(sessionId, "unknown");
    },
    isHere: (sessionId) => sources.get(sessionId) === "here",
    detach(sessionId) {
      const address = addressOf(sources.get(sessionId));
      sources.delete(sessionId);
      if (address !== undefined) pods.unfollow(address, sessionId);
    },
    said(feed, address, sessionId, said) {
      if (!feed) return;
      if (said === "elsewhere") lose(sessionId, address);
      else if (said.view) feed.accept(said.view, []);
      else refresh(feed);
    },
  };

  function refresh(feed: Feed): void {
    // The next second asks the pod again where this fails.
    parts.readView(feed.sessionId).then(
      (view) => view && feed.accept(view, []),
      () => lookAgain(feed),
    );
  }
}
