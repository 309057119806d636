import { FlotillaError } from "../../base/errors.ts";
import { createFewAtOnce } from "../../base/semaphore.ts";
import type { Entry } from "../../protocol/message.ts";
import { createDigestedSet } from "./digested-set.ts";
import { createFeed, type Feed, type FeedParts } from "./feed.ts";
import { createFollowers, createListeners } from "./remote-publisher.ts";
import {
  createFollowing,
  createListening,
  createPods,
  runnerElsewhere,
} from "./remote-subscriber.ts";
import type { Hub, HubLimits, HubParts } from "./delivery.ts";
import { createRing, type Room } from "./ring.ts";
import { createUsers } from "./watched-users.ts";
import { turnOf, type View, viewOf } from "./view.ts";

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

type PageAsked = { after: number; limit: number; maxBytes: number };

export function createHub(parts: HubParts): Hub {
  const { bus, journal, liveJournal = journal, clock, log, isLocal, isSure, runner } = parts;
  const limits = { ...defaults, ...parts.limits };
  const feeds = new Map<string, Feed>();
  // Most feeds are quiet and at their source, and there may be as many as clients: these are the others.
  const restless = new Set<Feed>();
  const waits = { clock, waitMs: limits.coldWaitMs };
  const coldReads = createFewAtOnce(limits.coldReads, waits);
  const coldRead = coldReads.run;
  const liveReads = createFewAtOnce(limits.liveReads, waits);
  let cancelTick: (() => void) | undefined;
  let closed = false;

  const room: Room = {
    usedBytes: 0,
    maxBytes: limits.ringsBytes,
    makeRoom() {
      for (const feed of feeds.values()) {
        if (room.usedBytes <= room.maxBytes * 0.75) return;
        feed.forget();
      }
    },
  };

  const look = (sessionId: string): View | undefined => {
    const local = parts.lookLocal(sessionId);
    return local && viewOf(local.header, local.incarnation);
  };
  const readView = (sessionId: string): Promise<View | undefined> =>
    coldRead(async () => {
      const [header, incarnation] = await Promise.all([
        journal.header(sessionId),
        parts.incarnationOf(sessionId),
      ]);
      return header && viewOf(header, incarnation);
    });

  const schedule = () => {
    if (cancelTick || closed) return;
    if (feeds.size + followers.size + listeners.size + watched.size === 0) return;
    cancelTick = clock.after(tickMs, () => {
      cancelTick = undefined;
      tick();
      schedule();
    });
  };

  const followers = createFollowers({ bus, clock, isLocal, look, onFirst: schedule });
  const listeners = createListeners({
    bus,
    clock,
    snapshot: (sessionId) => runner?.snapshot(sessionId),
    onFirst: schedule,
  });
  const listening = createListening(bus, (sessionId) => feeds.get(sessionId));
  const watched = createDigestedSet();
  const pods = createPods({
    bus,
    log,
    users: watched,
    onNews({ sessionId, view, entries }) {
      const feed = feeds.get(sessionId);
      feed?.accept(view, entries);
      return feed !== undefined;
    },
    onTouched: (touched) => users.tell(touched),
    onMissed: () => users.tell(undefined),
    onSaid: (address, sessionId, said) =>
      following.said(feeds.get(sessionId), address, sessionId, said),
  });
  const users = createUsers({ owners: parts.owners, followers, pods, watched });
  const following = createFollowing({
    ...parts,
    pods,
    look,
    readView,
    isCurrent: (feed) => feeds.get(feed.sessionId) === feed,
    onElsewhere(sessionId) {
      const feed = feeds.get(sessionId);
      if (feed) restless.add(feed);
    },
  });

  /** Pages that are being read: those who come back together want the same ones. */
  const pages = new Map<string, Promise<Entry[]>>();
  const readPage = (
    kind: "cold" | "live",
    sessionId: string,
    after: number,
    read: (page: PageAsked) => Promise<Entry[]>,
  ): Promise<Entry[]> => {
    const key = `${kind} ${after} ${sessionId}`;
    const underWay = pages.get(key);
    if (underWay) return underWay;
    const page = { after, limit: limits.pageEntries, maxBytes: limits.pageBytes };
    const reading = read(page).finally(() => pages.delete(key));
    pages.set(key, reading);
    return reading;
  };
  // Shared by all feeds, of which there may be as many as clients.
  const forFeeds: FeedParts = {
    monotonic: clock.monotonic,
    newRing: () => createRing(room, limits.ringBytes),
    page: (sessionId, after) =>
      readPage("cold", sessionId, after, (page) =>
        coldRead(() => journal.entries(sessionId, page)),
      ),
    missed: (sessionId, after) =>
      readPage("live", sessionId, after, (page) =>
        liveReads.run(() => liveJournal.entries(sessionId, page)),
      ),
    readView,
    answerSoFar(sessionId, view) {
      const address = runnerElsewhere(view, bus);
      return address === undefined
        ? runner?.snapshot(sessionId)
        : listening.ask(address, sessionId);
    },
    onOver: (feed) => drop(feed),
    onRestless(feed) {
      if (feeds.get(feed.sessionId) === feed) restless.add(feed);
    },
  };

  const open = (sessionId: string): Feed => {
    const feed = createFeed(sessionId, forFeeds);
    feeds.set(sessionId, feed);
    restless.add(feed);
    following.attach(feed);
    schedule();
    return feed;
  };

  const drop = (feed: Feed) => {
    if (feeds.get(feed.sessionId) !== feed) return;
    feeds.delete(feed.sessionId);
    restless.delete(feed);
    feed.forget();
    following.detach(feed.sessionId);
  };

  const isAtRest = ({ sessionId, view, isBehind }: Feed): boolean =>
    view !== undefined && !isBehind && !turnOf(view) && following.isHere(sessionId);

  const tick = () => {
    const nowMs = clock.monotonic();
    // Another may have taken what this process has had no word of for a while.
    for (const feed of isSure() ? restless : feeds.values()) {
      if (feed.subscribers > 0) {
        feed.repair();
        following.check(feed);
        if (isAtRest(feed)) restless.delete(feed);
      } else if (nowMs - feed.emptySinceMs >= limits.lingerMs) drop(feed);
    }
    listening.tick(restless);
    followers.expire();
    listeners.expire();
    users.tick();
  };

  return {
    join: (sessionId, place, sink) => (feeds.get(sessionId) ?? open(sessionId)).join(place, sink),
    committed(batch) {
      const isWatched = watched.size > 0 || followers.hasWatchers;
      for (const each of batch) {
        if (isWatched) users.committed(each);
        const { sessionId } = each;
        const feed = feeds.get(sessionId);
        const others = followers.of(sessionId);
        if (!feed && !others) continue;
        const view = viewOf(each.header, each.incarnation);
        const entries = each.entries.map(plain);
        feed?.accept(view, entries);
        for (const follower of others ?? []) followers.news(follower, { sessionId, view, entries });
        if (view.deleted) followers.drop(sessionId);
      }
    },
    ownersMoved() {
      followers.renew();
      users.tell(undefined);
      for (const feed of feeds.values()) {
        following.forget(feed.sessionId);
        if (feed.subscribers > 0) following.check(feed);
      }
    },
    chunks(live) {
      feeds.get(live.sessionId)?.chunks(live);
      listeners.chunks(live);
    },
    watchUser(tenant, user) {
      const unwatch = users.watch(tenant, user);
      schedule();
      return unwatch;
    },
    onTouched: users.listen,
    load() {
      let subscribers = 0;
      for (const feed of feeds.values()) subscribers += feed.subscribers;
      const { underWay, waiting } = coldReads;
      const { usedBytes: ringBytes } = room;
      return { followed: feeds.size, subscribers, ringBytes, coldReads: { underWay, waiting } };
    },
    close() {
      closed = true;
      cancelTick?.();
      for (const feed of feeds.values()) feed.fail(ended());
      for (const line of [coldReads, liveReads]) line.refuse(ended());
      followers.close();
      listeners.close();
      listening.close();
      pods.close();
      users.close();
    },
  };
}

/** An entry as clients and journals know it, without what its record had besides. */
function plain(entry: Entry & { clientId?: unknown; sessionId?: unknown }): Entry {
  const { clientId: _, sessionId: __, ...rest } = entry;
  return rest;
}

function ended(): FlotillaError {
  return new FlotillaError("closed", "this pod is leaving: join again at another");
}
