import { hasCode } from "../../base/errors.ts";
import type { Bus } from "../../bus/bus.ts";
import { sessionNotFound } from "../validate.ts";
import type { Feed } from "./feed.ts";
import type { EntrySubscriber, OwnerReply } from "./remote-subscriber.ts";
import type { HeaderView } from "./view.ts";

/**
 * Keeps every feed connected to its source: this process if it owns the log, else the pod that owns it.
 * While no pod owns the log nothing can happen, and what its last owner committed is in the journal.
 */
type FeedSources = {
  /** Gives a new feed its first view, or fails it. */
  attach(feed: Feed): void;
  detach(sessionId: string): void;
  /** Checks whether the source of a feed is still the same. */
  check(feed: Feed): void;
  /** True when this process is the source, as far as is known. */
  isLocal(sessionId: string): boolean;
  /** This process may have become or ceased to be the owner, so the source is looked up again. */
  forget(sessionId: string): void;
  /** Handles a pod's reply about a session that was followed again. */
  acceptReply(feed: Feed | undefined, address: string, sessionId: string, reply: OwnerReply): void;
};

type FeedSourcesParts = {
  bus: Bus;
  subscriber: EntrySubscriber;
  isLocal: (sessionId: string) => boolean;
  ownerOf: (sessionId: string) => Promise<string | undefined>;
  localView: (sessionId: string) => HeaderView | undefined;
  readView: (sessionId: string) => Promise<HeaderView | undefined>;
  /** The life of a session's log, as far as this process knows; empty if there is none. */
  incarnationOf: (sessionId: string) => Promise<string>;
  /** True unless the feed was dropped meanwhile. */
  isCurrent: (feed: Feed) => boolean;
  /** The source is not this process, so it is checked every second. */
  onElsewhere: (sessionId: string) => void;
};

/** An "unknown" source is looked up again, and the journal is read whatever is found. */
type Source = "here" | "nowhere" | "unknown" | { readonly address: string };

export function createFeedSources(parts: FeedSourcesParts): FeedSources {
  const { bus, subscriber } = parts;
  const sources = new Map<string, Source>();
  /** Feeds whose source is being looked up, so that each has one lookup at a time. */
  const resolving = new Set<Feed>();

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
    if (before !== undefined && before !== addressOf(source))
      subscriber.unfollow(before, sessionId);
    sources.set(sessionId, source);
    if (source !== "here") parts.onElsewhere(sessionId);
  };

  /** The source's view; undefined if it must be read from the journal. */
  const readSource = async (sessionId: string, source: Source): Promise<HeaderView | undefined> => {
    if (source === "here") return parts.localView(sessionId);
    if (typeof source !== "object") return undefined;
    const reply = await subscriber.follow(source.address, sessionId);
    if (reply !== "elsewhere") return reply.view;
    lose(sessionId, source.address);
    return undefined;
  };

  const lose = (sessionId: string, address: string): void => {
    if (addressOf(sources.get(sessionId)) === address) move(sessionId, "unknown");
  };

  const markUnknown = (feed: Feed): void => {
    if (parts.isCurrent(feed)) move(feed.sessionId, "unknown");
  };

  const bring = async (feed: Feed, source: Source): Promise<void> => {
    const { sessionId } = feed;
    if (!parts.isCurrent(feed)) return;
    move(sessionId, source);
    let view: HeaderView | undefined;
    try {
      view = await readSource(sessionId, source);
    } catch (error) {
      // If the owner does not respond, the client still gets what the journal has.
      if (hasCode(error, "closed")) throw error;
    }
    view ??= await parts.readView(sessionId);
    if (view) feed.accept(view, []);
    else feed.fail(sessionNotFound(sessionId));
  };

  /** An owner that goes on in a new log has nothing to tell of a quiet session, which is followed all the same. */
  const compareLives = async (feed: Feed): Promise<void> => {
    const incarnation = await parts.incarnationOf(feed.sessionId);
    const { view } = feed;
    if (!view || incarnation === "" || incarnation === view.incarnation) return;
    feed.accept({ ...view, incarnation }, []);
  };

  const once = (feed: Feed, resolve: () => Promise<void>): void => {
    if (resolving.has(feed)) return;
    resolving.add(feed);
    resolve()
      .catch((error: unknown) => {
        // If the feed has a view already, the next tick tries again.
        if (!feed.view) feed.fail(error);
        else markUnknown(feed);
      })
      .finally(() => resolving.delete(feed));
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
        if (isSame) await compareLives(feed);
        else await bring(feed, source);
      });
    },
    forget(sessionId) {
      if (addressOf(sources.get(sessionId)) === undefined) move(sessionId, "unknown");
    },
    isLocal: (sessionId) => sources.get(sessionId) === "here",
    detach(sessionId) {
      const address = addressOf(sources.get(sessionId));
      sources.delete(sessionId);
      if (address !== undefined) subscriber.unfollow(address, sessionId);
    },
    acceptReply(feed, address, sessionId, reply) {
      if (!feed) return;
      if (reply === "elsewhere") lose(sessionId, address);
      else if (reply.view) feed.accept(reply.view, []);
      else refresh(feed);
    },
  };

  function refresh(feed: Feed): void {
    // If this fails, the next tick asks the pod again.
    parts.readView(feed.sessionId).then(
      (view) => view && feed.accept(view, []),
      () => markUnknown(feed),
    );
  }
}
