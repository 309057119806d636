import type { Clock } from "../../base/clock.ts";
import type { Json } from "../../base/json.ts";
import type { Bus } from "../../bus/bus.ts";
import type { LiveChunks, Runner } from "../runner.ts";
import { createDigestedSet, type DigestedSet } from "./digested-set.ts";
import {
  asBusJson,
  type EnvelopeCount,
  fieldsOf,
  listOf,
  type SessionUpdate,
  readText,
  encodeSets,
  topics,
  type Touched,
} from "./remote-protocol.ts";
import { estimateJsonBytes } from "./ring.ts";
import type { HeaderView } from "./view.ts";

/**
 * The owner's side of following entries: the processes that follow its sessions and users. Each process
 * gets one envelope for all changes in a turn of the event loop. Envelopes are counted, so that a gateway
 * that polls the count sees whether it got them all. A process that has not polled for five seconds is
 * dropped.
 */
export type EntryPublisher = {
  readonly size: number;
  readonly hasWatchers: boolean;
  of(sessionId: string): Iterable<RemoteSubscriber> | undefined;
  /** The processes that watch this user; undefined if there are none. */
  watching(user: string): Iterable<RemoteSubscriber> | undefined;
  publishUpdate(subscriber: RemoteSubscriber, update: SessionUpdate): void;
  publishTouched(subscriber: RemoteSubscriber, touched: Touched): void;
  /** The session was deleted, so nothing more is published about it. */
  drop(sessionId: string): void;
  /** Makes every subscriber follow everything again. */
  renew(): void;
  expire(): void;
  close(): void;
};

export type RemoteSubscriber = {
  readonly address: string;
  born: number;
  envelopes: number;
  heardMs: number;
  readonly sessions: DigestedSet;
  readonly users: DigestedSet;
  updates: SessionUpdate[];
  updateBytes: number;
  touched: Map<string, Touched>;
};

type EntryPublisherParts = {
  bus: Bus;
  clock: Clock;
  isLocal: (sessionId: string) => boolean;
  localView: (sessionId: string) => HeaderView | undefined;
  /** Called when the first subscriber appears. */
  onFirst: () => void;
};

const forgetAfterMs = 5_000;
const maxEnvelopeBytes = 256 * 1024;

export function createEntryPublisher(parts: EntryPublisherParts): EntryPublisher {
  const { bus, clock } = parts;
  const subscribers = new Map<string, RemoteSubscriber>();
  const ofSession = new Map<string, Set<RemoteSubscriber>>();
  const ofUser = new Map<string, Set<RemoteSubscriber>>();
  const unsent = new Set<RemoteSubscriber>();
  let born = Math.floor(clock.monotonic()) * 1_000;

  const heard = (address: string): RemoteSubscriber => {
    const known = subscribers.get(address);
    const heardMs = clock.monotonic();
    if (known) {
      known.heardMs = heardMs;
      return known;
    }
    const made: RemoteSubscriber = {
      address,
      born: ++born,
      envelopes: 0,
      heardMs,
      sessions: createDigestedSet(),
      users: createDigestedSet(),
      updates: [],
      updateBytes: 0,
      touched: new Map(),
    };
    subscribers.set(address, made);
    parts.onFirst();
    return made;
  };

  const countOf = ({ born, envelopes }: RemoteSubscriber): EnvelopeCount => ({ born, envelopes });

  const flush = () => {
    const batch = [...unsent];
    unsent.clear();
    for (const subscriber of batch) send(subscriber);
  };
  const later = (subscriber: RemoteSubscriber) => {
    if (unsent.size === 0) queueMicrotask(flush);
    unsent.add(subscriber);
  };
  const send = (subscriber: RemoteSubscriber): void => {
    if (subscriber.updates.length > 0) {
      subscriber.envelopes++;
      const sessions = subscriber.updates;
      bus.send(
        subscriber.address,
        topics.committed,
        asBusJson({ ...countOf(subscriber), sessions }),
      );
      subscriber.updates = [];
      subscriber.updateBytes = 0;
    }
    if (subscriber.touched.size > 0) {
      subscriber.envelopes++;
      const touched = [...subscriber.touched.values()];
      bus.send(subscriber.address, topics.touched, asBusJson({ ...countOf(subscriber), touched }));
      subscriber.touched = new Map();
    }
  };

  const forget = (subscriber: RemoteSubscriber) => {
    subscribers.delete(subscriber.address);
    unsent.delete(subscriber);
    for (const sessionId of subscriber.sessions) remove(ofSession, sessionId, subscriber);
    for (const user of subscriber.users) remove(ofUser, user, subscriber);
  };
  const dropSession = (subscriber: RemoteSubscriber, sessionId: string) => {
    subscriber.sessions.delete(sessionId);
    remove(ofSession, sessionId, subscriber);
  };
  const dropUser = (subscriber: RemoteSubscriber, user: string) => {
    subscriber.users.delete(user);
    remove(ofUser, user, subscriber);
  };

  const follow = (body: Json, from: string): Json => {
    const { sessions, drop, only } = fieldsOf(body);
    const subscriber = heard(from);
    const wanted = listOf(sessions, (each) => readText(fieldsOf(each)["sessionId"]));
    const dropped = only === true ? [...subscriber.sessions] : listOf(drop, readText);
    for (const sessionId of dropped) dropSession(subscriber, sessionId);
    const found = wanted.map((sessionId) => {
      if (!parts.isLocal(sessionId)) return { sessionId, gone: true };
      const view = parts.localView(sessionId) ?? null;
      if (view?.deleted) return { sessionId, view };
      subscriber.sessions.add(sessionId);
      add(ofSession, sessionId, subscriber);
      return { sessionId, view };
    });
    // The reply carries the current view; later changes come in envelopes.
    return asBusJson({ ...countOf(subscriber), sessions: found });
  };

  const watch = (body: Json, from: string): Json => {
    const { users, drop, only } = fieldsOf(body);
    const subscriber = heard(from);
    const dropped = only === true ? [...subscriber.users] : listOf(drop, readText);
    for (const user of dropped) dropUser(subscriber, user);
    for (const user of listOf(users, readText)) {
      subscriber.users.add(user);
      add(ofUser, user, subscriber);
    }
    return asBusJson(countOf(subscriber));
  };

  const moved = (_body: Json, from: string): Json => {
    const subscriber = heard(from);
    for (const sessionId of subscriber.sessions) {
      if (!parts.isLocal(sessionId)) dropSession(subscriber, sessionId);
    }
    return asBusJson({ ...countOf(subscriber), ...encodeSets(subscriber) });
  };

  const unserve = [
    bus.serve(topics.follow, follow),
    bus.serve(topics.watch, watch),
    bus.serve(topics.moved, moved),
  ];

  return {
    get size() {
      return subscribers.size;
    },
    get hasWatchers() {
      return ofUser.size > 0;
    },
    of: (sessionId) => ofSession.get(sessionId),
    watching: (user) => ofUser.get(user),
    publishUpdate(subscriber, update) {
      const bytes = estimateJsonBytes(update.entries);
      if (subscriber.updateBytes + bytes > maxEnvelopeBytes) send(subscriber);
      // An entry too large for an envelope is left out. The subscriber sees the gap and reads the journal.
      subscriber.updates.push(bytes > maxEnvelopeBytes ? { ...update, entries: [] } : update);
      subscriber.updateBytes += bytes;
      later(subscriber);
    },
    publishTouched(subscriber, touched) {
      const before = subscriber.touched.get(touched.sessionId);
      const users = [...new Set([...(before?.users ?? []), ...touched.users])];
      subscriber.touched.set(touched.sessionId, { ...touched, users });
      later(subscriber);
    },
    drop(sessionId) {
      for (const subscriber of ofSession.get(sessionId) ?? []) dropSession(subscriber, sessionId);
    },
    renew() {
      for (const subscriber of subscribers.values()) {
        subscriber.born = ++born;
        subscriber.envelopes = 0;
      }
    },
    expire() {
      const nowMs = clock.monotonic();
      for (const subscriber of subscribers.values()) {
        if (nowMs - subscriber.heardMs > forgetAfterMs) forget(subscriber);
      }
    },
    close() {
      for (const each of unserve) each();
      for (const subscriber of subscribers.values()) forget(subscriber);
    },
  };
}

/**
 * The runner's side of live answers: the processes that subscribe to them. Each gets one envelope with all
 * chunks of a turn of the event loop. Subscribers renew every second.
 */
type ChunkPublisher = {
  readonly size: number;
  chunks(live: LiveChunks): void;
  expire(): void;
  close(): void;
};

type ChunkSubscription = {
  /** When each subscriber last renewed. */
  readonly by: Map<string, number>;
  /** How far the chunks have been sent. */
  progress: { epoch: number; attempt: number; nextIndex: number } | undefined;
};

type ChunkPublisherParts = {
  bus: Bus;
  clock: Clock;
  snapshot: Runner["snapshot"];
  /** Called when there is a subscriber. */
  onFirst: () => void;
};

export function createChunkPublisher({
  bus,
  clock,
  snapshot,
  onFirst,
}: ChunkPublisherParts): ChunkPublisher {
  const subscriptions = new Map<string, ChunkSubscription>();
  let unsent = new Map<string, LiveChunks[]>();

  const flush = () => {
    const batches = unsent;
    unsent = new Map();
    for (const [to, live] of batches) bus.send(to, topics.chunks, asBusJson({ live }));
  };

  const listen = (from: string, request: unknown): object | undefined => {
    const { sessionId: id, snapshot: wantsSnapshot } = fieldsOf(request);
    const sessionId = readText(id);
    if (sessionId === undefined) return undefined;
    const known = subscriptions.get(sessionId);
    const subscription: ChunkSubscription = known ?? { by: new Map(), progress: undefined };
    subscription.by.set(from, clock.monotonic());
    subscriptions.set(sessionId, subscription);
    if (known && wantsSnapshot !== true) return { sessionId, ...subscription.progress };
    const live = snapshot(sessionId);
    if (!known && live) subscription.progress = progressOf(live);
    return { sessionId, ...subscription.progress, ...(wantsSnapshot === true && live && { live }) };
  };

  const unserve = bus.serve(topics.listen, (body, from) => {
    const sessions = listOf(fieldsOf(body)["sessions"], (each) => listen(from, each));
    if (subscriptions.size > 0) onFirst();
    return asBusJson({ sessions });
  });

  return {
    get size() {
      return subscriptions.size;
    },
    chunks(live) {
      const subscription = subscriptions.get(live.sessionId);
      if (!subscription) return;
      subscription.progress = progressOf(live);
      for (const address of subscription.by.keys()) {
        if (unsent.size === 0) queueMicrotask(flush);
        const batch = unsent.get(address);
        if (batch) batch.push(live);
        else unsent.set(address, [live]);
      }
    },
    expire() {
      const nowMs = clock.monotonic();
      for (const [sessionId, { by }] of subscriptions) {
        for (const [from, heardMs] of by) if (nowMs - heardMs > forgetAfterMs) by.delete(from);
        if (by.size === 0) subscriptions.delete(sessionId);
      }
    },
    close() {
      unserve();
      subscriptions.clear();
    },
  };
}

function add(
  map: Map<string, Set<RemoteSubscriber>>,
  key: string,
  subscriber: RemoteSubscriber,
): void {
  const known = map.get(key);
  if (known) known.add(subscriber);
  else map.set(key, new Set([subscriber]));
}

function remove(
  map: Map<string, Set<RemoteSubscriber>>,
  key: string,
  subscriber: RemoteSubscriber,
): void {
  const known = map.get(key);
  if (known?.delete(subscriber) && known.size === 0) map.delete(key);
}

function progressOf({ epoch, attempt, index, nextIndex, chunks }: LiveChunks) {
  return { epoch, attempt, nextIndex: nextIndex ?? index + chunks.length };
}
