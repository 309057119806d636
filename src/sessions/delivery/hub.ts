import { FlotillaError, tooManyReads } from "../../base/errors.ts";
import { createSemaphore } from "../../base/semaphore.ts";
import type { Entry } from "../../protocol/message.ts";
import { createDigestedSet } from "./digested-set.ts";
import { createFeed, type Feed, type FeedParts } from "./feed.ts";
import { createFeedSources } from "./feed-sources.ts";
import { createEntryPublisher, createChunkPublisher } from "./remote-publisher.ts";
import {
  createChunkSubscriber,
  createEntrySubscriber,
  runnerElsewhere,
} from "./remote-subscriber.ts";
import type { Hub, HubLimits, HubParts } from "./delivery.ts";
import { createRing, type RingBudget } from "./ring.ts";
import { createWatchedUsers } from "./watched-users.ts";
import { turnOf, type HeaderView, headerViewOf } from "./view.ts";

export type { CommittedSession, Hub, HubLimits, HubParts } from "./delivery.ts";

const defaults: HubLimits = {
  coldReads: 8,
  coldWaitMs: 30_000,
  liveReads: 2,
  pageEntries: 500,
  pageBytes: 256 * 1024,
  ringBytes: 256 * 1024,
  ringsBytes: 64 * 1024 * 1024,
  lingerMs: 2_000,
};

const tickMs = 1_000;

type PageRequest = { after: number; limit: number; maxBytes: number };

/** Creates the hub: feeds for the sessions followed here, and their exchange with other pods. */
export function createHub(parts: HubParts): Hub {
  const { bus, journal, liveJournal = journal, clock, log, isLocal, isSure, runner } = parts;
  const limits = { ...defaults, ...parts.limits };
  const feeds = new Map<string, Feed>();
  // Most feeds are quiet and have a local source, and there may be one per client. These are the others.
  const polledFeeds = new Set<Feed>();
  const readWaits = { clock, waitMs: limits.coldWaitMs, late: tooManyReads };
  const coldReads = createSemaphore(limits.coldReads, readWaits);
  const coldRead = coldReads.run;
  const liveReads = createSemaphore(limits.liveReads, readWaits);
  let cancelTick: (() => void) | undefined;
  let closed = false;

  const ringBudget: RingBudget = {
    usedBytes: 0,
    maxBytes: limits.ringsBytes,
    evict() {
      for (const feed of feeds.values()) {
        if (ringBudget.usedBytes <= ringBudget.maxBytes * 0.75) return;
        feed.forget();
      }
    },
  };

  const localView = (sessionId: string): HeaderView | undefined => {
    const local = parts.localHeader(sessionId);
    return local && headerViewOf(local.header, local.incarnation);
  };
  const readView = (sessionId: string): Promise<HeaderView | undefined> =>
    coldRead(async () => {
      const [header, incarnation] = await Promise.all([
        journal.header(sessionId),
        parts.incarnationOf(sessionId),
      ]);
      return header && headerViewOf(header, incarnation);
    });

  const schedule = () => {
    if (cancelTick || closed) return;
    if (feeds.size + entryPublisher.size + chunkPublisher.size + watchedKeys.size === 0) return;
    cancelTick = clock.after(tickMs, () => {
      cancelTick = undefined;
      tick();
      schedule();
    });
  };

  const entryPublisher = createEntryPublisher({
    bus,
    clock,
    isLocal,
    localView,
    onFirst: schedule,
  });
  const chunkPublisher = createChunkPublisher({
    bus,
    clock,
    snapshot: (sessionId) => runner?.snapshot(sessionId),
    onFirst: schedule,
  });
  const chunkSubscriber = createChunkSubscriber(bus, (sessionId) => feeds.get(sessionId));
  const watchedKeys = createDigestedSet();
  const entrySubscriber = createEntrySubscriber({
    bus,
    log,
    watchedUsers: watchedKeys,
    onUpdate({ sessionId, view, entries }) {
      const feed = feeds.get(sessionId);
      feed?.accept(view, entries);
      return feed !== undefined;
    },
    onTouched: (touched) => watchedUsers.notify(touched),
    onMissed: () => watchedUsers.notify(undefined),
    onOwnerReply: (address, sessionId, reply) =>
      feedSources.acceptReply(feeds.get(sessionId), address, sessionId, reply),
  });
  const watchedUsers = createWatchedUsers({
    owners: parts.owners,
    publisher: entryPublisher,
    subscriber: entrySubscriber,
    watched: watchedKeys,
  });
  const feedSources = createFeedSources({
    ...parts,
    subscriber: entrySubscriber,
    localView,
    readView,
    isCurrent: (feed) => feeds.get(feed.sessionId) === feed,
    onElsewhere(sessionId) {
      const feed = feeds.get(sessionId);
      if (feed) polledFeeds.add(feed);
    },
  });

  /** Page reads in flight, shared because clients that reconnect together want the same pages. */
  const pages = new Map<string, Promise<Entry[]>>();
  const readPage = (
    kind: "cold" | "live",
    sessionId: string,
    after: number,
    read: (page: PageRequest) => Promise<Entry[]>,
  ): Promise<Entry[]> => {
    const key = `${kind} ${after} ${sessionId}`;
    const underWay = pages.get(key);
    if (underWay) return underWay;
    const page = { after, limit: limits.pageEntries, maxBytes: limits.pageBytes };
    const reading = read(page).finally(() => pages.delete(key));
    pages.set(key, reading);
    return reading;
  };
  // Shared by all feeds, because there may be one per client.
  const feedParts: FeedParts = {
    monotonic: clock.monotonic,
    newRing: () => createRing(ringBudget, limits.ringBytes),
    page: (sessionId, after) =>
      readPage("cold", sessionId, after, (page) =>
        coldRead(() => journal.entries(sessionId, page)),
      ),
    readMissed: (sessionId, after) =>
      readPage("live", sessionId, after, (page) =>
        liveReads.run(() => liveJournal.entries(sessionId, page)),
      ),
    readView,
    answerSoFar(sessionId, view) {
      const address = runnerElsewhere(view, bus);
      return address === undefined
        ? runner?.snapshot(sessionId)
        : chunkSubscriber.readAnswer(address, sessionId);
    },
    onEnded: (feed) => drop(feed),
    onNeedsPolling(feed) {
      if (feeds.get(feed.sessionId) === feed) polledFeeds.add(feed);
    },
  };

  const open = (sessionId: string): Feed => {
    const feed = createFeed(sessionId, feedParts);
    feeds.set(sessionId, feed);
    polledFeeds.add(feed);
    feedSources.attach(feed);
    schedule();
    return feed;
  };

  const drop = (feed: Feed) => {
    if (feeds.get(feed.sessionId) !== feed) return;
    feeds.delete(feed.sessionId);
    polledFeeds.delete(feed);
    feed.forget();
    feedSources.detach(feed.sessionId);
  };

  const isSettled = ({ sessionId, view, needsRepair }: Feed): boolean =>
    view !== undefined && !needsRepair && !turnOf(view) && feedSources.isLocal(sessionId);

  /** Users watch for any session of theirs. */
  const isWatched = () => watchedKeys.size > 0 || entryPublisher.hasWatchers;

  const tick = () => {
    const nowMs = clock.monotonic();
    // If this process has not beaten for a while, another pod may have taken its logs.
    for (const feed of isSure() ? polledFeeds : feeds.values()) {
      if (feed.subscribers > 0) {
        feed.repair();
        feedSources.check(feed);
        if (isSettled(feed)) polledFeeds.delete(feed);
      } else if (nowMs - feed.emptySinceMs >= limits.lingerMs) drop(feed);
    }
    chunkSubscriber.tick(polledFeeds);
    entryPublisher.expire();
    chunkPublisher.expire();
    watchedUsers.tick();
  };

  return {
    join: (sessionId, position, sink) =>
      (feeds.get(sessionId) ?? open(sessionId)).join(position, sink),
    isFollowed: (sessionId) =>
      isWatched() ||
      feeds.has(sessionId) ||
      entryPublisher.of(sessionId) !== undefined ||
      parts.people?.has(sessionId) === true,
    committed(batch) {
      for (const each of batch) {
        if (isWatched()) watchedUsers.committed(each);
        const { sessionId, formerUsers = [] } = each;
        if (formerUsers.length > 0) parts.people?.membersRemoved(sessionId);
        const feed = feeds.get(sessionId);
        const others = entryPublisher.of(sessionId);
        if (!feed && !others) continue;
        const view = headerViewOf(each.header, each.incarnation);
        const entries = each.entries.map(plain);
        feed?.accept(view, entries);
        for (const subscriber of others ?? [])
          entryPublisher.publishUpdate(subscriber, { sessionId, view, entries });
        if (view.deleted) entryPublisher.drop(sessionId);
      }
    },
    ownersMoved() {
      entryPublisher.renew();
      watchedUsers.notify(undefined);
      for (const feed of feeds.values()) {
        feedSources.forget(feed.sessionId);
        if (feed.subscribers > 0) feedSources.check(feed);
      }
    },
    chunks(live) {
      feeds.get(live.sessionId)?.chunks(live);
      chunkPublisher.chunks(live);
    },
    watchUser(tenant, user) {
      const unwatch = watchedUsers.watch(tenant, user);
      schedule();
      return unwatch;
    },
    onTouched: watchedUsers.listen,
    load() {
      let subscribers = 0;
      for (const feed of feeds.values()) subscribers += feed.subscribers;
      const { underWay, waiting } = coldReads;
      const { usedBytes: ringBytes } = ringBudget;
      return { feeds: feeds.size, subscribers, ringBytes, coldReads: { underWay, waiting } };
    },
    close() {
      closed = true;
      cancelTick?.();
      for (const feed of feeds.values()) feed.fail(ended());
      for (const reads of [coldReads, liveReads]) reads.refuse(ended());
      entryPublisher.close();
      chunkPublisher.close();
      chunkSubscriber.close();
      entrySubscriber.close();
      watchedUsers.close();
    },
  };
}

/** An entry as clients and journals know it, without the record's fields. */
function plain(entry: Entry & { clientId?: unknown; sessionId?: unknown }): Entry {
  const { clientId: _, sessionId: __, ...rest } = entry;
  return rest;
}

function ended(): FlotillaError {
  return new FlotillaError("closed", "this pod is shutting down: join again at another pod");
}
