import type { Clock } from "../../base/clock.ts";
import type { Json } from "../../base/json.ts";
import type { Bus } from "../../bus/bus.ts";
import type { LiveChunks, Runner } from "../runner.ts";
import { createDigestedSet, type DigestedSet } from "./digested-set.ts";
import {
  asJson,
  type Count,
  fieldsOf,
  listOf,
  type News,
  readText,
  tellSets,
  topics,
  type Touched,
} from "./remote-protocol.ts";
import { sizeOf } from "./ring.ts";
import type { View } from "./view.ts";

/**
 * The owner's side of following: which other processes want to hear of which sessions and users. Each
 * is sent one letter for all that happened in a turn of the event loop. Letters are counted, so that a
 * gateway that asks how many there were sees whether it got them all. One that isn't heard of for five
 * seconds is forgotten.
 */
export type Followers = {
  readonly size: number;
  readonly hasWatchers: boolean;
  of(sessionId: string): Iterable<Follower> | undefined;
  /** Those who watch this user, undefined where nobody does. */
  watching(user: string): Iterable<Follower> | undefined;
  news(follower: Follower, news: News): void;
  touched(follower: Follower, touched: Touched): void;
  /** The session was deleted, so that there is nothing more to tell of it. */
  drop(sessionId: string): void;
  /** Makes everybody ask for everything again. */
  renew(): void;
  expire(): void;
  close(): void;
};

export type Follower = {
  readonly address: string;
  born: number;
  letter: number;
  heardMs: number;
  readonly sessions: DigestedSet;
  readonly users: DigestedSet;
  news: News[];
  newsBytes: number;
  touched: Map<string, Touched>;
};

type FollowersParts = {
  bus: Bus;
  clock: Clock;
  isLocal: (sessionId: string) => boolean;
  look: (sessionId: string) => View | undefined;
  /** There is somebody from now on. */
  onFirst: () => void;
};

const forgottenMs = 5_000;
const letterBytes = 256 * 1024;

export function createFollowers(parts: FollowersParts): Followers {
  const { bus, clock } = parts;
  const followers = new Map<string, Follower>();
  const ofSession = new Map<string, Set<Follower>>();
  const ofUser = new Map<string, Set<Follower>>();
  const unsent = new Set<Follower>();
  let born = Math.floor(clock.monotonic()) * 1_000;

  const heard = (address: string): Follower => {
    const known = followers.get(address);
    const heardMs = clock.monotonic();
    if (known) {
      known.heardMs = heardMs;
      return known;
    }
    const made: Follower = {
      address,
      born: ++born,
      letter: 0,
      heardMs,
      sessions: createDigestedSet(),
      users: createDigestedSet(),
      news: [],
      newsBytes: 0,
      touched: new Map(),
    };
    followers.set(address, made);
    parts.onFirst();
    return made;
  };

  const countOf = ({ born, letter }: Follower): Count => ({ born, letter });

  const flush = () => {
    const batch = [...unsent];
    unsent.clear();
    for (const follower of batch) send(follower);
  };
  const later = (follower: Follower) => {
    if (unsent.size === 0) queueMicrotask(flush);
    unsent.add(follower);
  };
  const send = (follower: Follower): void => {
    if (follower.news.length > 0) {
      follower.letter++;
      const sessions = follower.news;
      bus.send(follower.address, topics.committed, asJson({ ...countOf(follower), sessions }));
      follower.news = [];
      follower.newsBytes = 0;
    }
    if (follower.touched.size > 0) {
      follower.letter++;
      const touched = [...follower.touched.values()];
      bus.send(follower.address, topics.touched, asJson({ ...countOf(follower), touched }));
      follower.touched = new Map();
    }
  };

  const forget = (follower: Follower) => {
    followers.delete(follower.address);
    unsent.delete(follower);
    for (const sessionId of follower.sessions) remove(ofSession, sessionId, follower);
    for (const user of follower.users) remove(ofUser, user, follower);
  };
  const dropSession = (follower: Follower, sessionId: string) => {
    follower.sessions.delete(sessionId);
    remove(ofSession, sessionId, follower);
  };
  const dropUser = (follower: Follower, user: string) => {
    follower.users.delete(user);
    remove(ofUser, user, follower);
  };

  const follow = (body: Json, from: string): Json => {
    const { sessions, drop, only } = fieldsOf(body);
    const follower = heard(from);
    const wanted = listOf(sessions, (each) => readText(fieldsOf(each)["sessionId"]));
    const dropped = only === true ? [...follower.sessions] : listOf(drop, readText);
    for (const sessionId of dropped) dropSession(follower, sessionId);
    const found = wanted.map((sessionId) => {
      if (!parts.isLocal(sessionId)) return { sessionId, gone: true };
      const view = parts.look(sessionId) ?? null;
      if (view?.deleted) return { sessionId, view };
      follower.sessions.add(sessionId);
      add(ofSession, sessionId, follower);
      return { sessionId, view };
    });
    // What is known here is told in the answer; letters go on from there.
    return asJson({ ...countOf(follower), sessions: found });
  };

  const watch = (body: Json, from: string): Json => {
    const { users, drop, only } = fieldsOf(body);
    const follower = heard(from);
    const dropped = only === true ? [...follower.users] : listOf(drop, readText);
    for (const user of dropped) dropUser(follower, user);
    for (const user of listOf(users, readText)) {
      follower.users.add(user);
      add(ofUser, user, follower);
    }
    return asJson(countOf(follower));
  };

  const moved = (_body: Json, from: string): Json => {
    const follower = heard(from);
    for (const sessionId of follower.sessions) {
      if (!parts.isLocal(sessionId)) dropSession(follower, sessionId);
    }
    return asJson({ ...countOf(follower), ...tellSets(follower) });
  };

  const unserve = [
    bus.serve(topics.follow, follow),
    bus.serve(topics.watch, watch),
    bus.serve(topics.moved, moved),
  ];

  return {
    get size() {
      return followers.size;
    },
    get hasWatchers() {
      return ofUser.size > 0;
    },
    of: (sessionId) => ofSession.get(sessionId),
    watching: (user) => ofUser.get(user),
    news(follower, news) {
      const bytes = sizeOf(news.entries);
      if (follower.newsBytes + bytes > letterBytes) send(follower);
      // What is too large for a letter is fetched by those who hear that it is there.
      follower.news.push(bytes > letterBytes ? { ...news, entries: [] } : news);
      follower.newsBytes += bytes;
      later(follower);
    },
    touched(follower, touched) {
      const before = follower.touched.get(touched.sessionId);
      const users = [...new Set([...(before?.users ?? []), ...touched.users])];
      follower.touched.set(touched.sessionId, { ...touched, users });
      later(follower);
    },
    drop(sessionId) {
      for (const follower of ofSession.get(sessionId) ?? []) dropSession(follower, sessionId);
    },
    renew() {
      for (const follower of followers.values()) {
        follower.born = ++born;
        follower.letter = 0;
      }
    },
    expire() {
      const nowMs = clock.monotonic();
      for (const follower of followers.values()) {
        if (nowMs - follower.heardMs > forgottenMs) forget(follower);
      }
    },
    close() {
      for (const each of unserve) each();
      for (const follower of followers.values()) forget(follower);
    },
  };
}

function add(map: Map<string, Set<Follower>>, key: string, follower: Follower): void {
  const there = map.get(key);
  if (there) there.add(follower);
  else map.set(key, new Set([follower]));
}

function remove(map: Map<string, Set<Follower>>, key: string, follower: Follower): void {
  const there = map.get(key);
  if (there?.delete(follower) && there.size === 0) map.delete(key);
}

/**
 * The runner's side of live answers: which other processes listen to which, each told of all chunks of
 * a turn of the event loop in one letter. They say every second that they still do.
 */
type Listeners = {
  readonly size: number;
  chunks(live: LiveChunks): void;
  expire(): void;
  close(): void;
};

type Listened = {
  /** When each was heard of last. */
  readonly by: Map<string, number>;
  /** How far those who listen were told. */
  reach: { epoch: number; attempt: number; nextIndex: number } | undefined;
};

type ListenersParts = {
  bus: Bus;
  clock: Clock;
  snapshot: Runner["snapshot"];
  /** There is somebody from now on. */
  onFirst: () => void;
};

export function createListeners({ bus, clock, snapshot, onFirst }: ListenersParts): Listeners {
  const listened = new Map<string, Listened>();
  let unsent = new Map<string, LiveChunks[]>();

  const flush = () => {
    const letters = unsent;
    unsent = new Map();
    for (const [to, live] of letters) bus.send(to, topics.chunks, asJson({ live }));
  };

  const listen = (from: string, asked: unknown): object | undefined => {
    const { sessionId: id, snapshot: isAsked } = fieldsOf(asked);
    const sessionId = readText(id);
    if (sessionId === undefined) return undefined;
    const known = listened.get(sessionId);
    const there: Listened = known ?? { by: new Map(), reach: undefined };
    there.by.set(from, clock.monotonic());
    listened.set(sessionId, there);
    if (known && isAsked !== true) return { sessionId, ...there.reach };
    const live = snapshot(sessionId);
    if (!known && live) there.reach = reachOf(live);
    return { sessionId, ...there.reach, ...(isAsked === true && live && { live }) };
  };

  const unserve = bus.serve(topics.listen, (body, from) => {
    const sessions = listOf(fieldsOf(body)["sessions"], (each) => listen(from, each));
    if (listened.size > 0) onFirst();
    return asJson({ sessions });
  });

  return {
    get size() {
      return listened.size;
    },
    chunks(live) {
      const there = listened.get(live.sessionId);
      if (!there) return;
      there.reach = reachOf(live);
      for (const address of there.by.keys()) {
        if (unsent.size === 0) queueMicrotask(flush);
        const letter = unsent.get(address);
        if (letter) letter.push(live);
        else unsent.set(address, [live]);
      }
    },
    expire() {
      const nowMs = clock.monotonic();
      for (const [sessionId, { by }] of listened) {
        for (const [from, heardMs] of by) if (nowMs - heardMs > forgottenMs) by.delete(from);
        if (by.size === 0) listened.delete(sessionId);
      }
    },
    close() {
      unserve();
      listened.clear();
    },
  };
}

function reachOf({ epoch, attempt, index, nextIndex, chunks }: LiveChunks) {
  return { epoch, attempt, nextIndex: nextIndex ?? index + chunks.length };
}
