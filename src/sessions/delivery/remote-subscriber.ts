import { hasCode, messageOf } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import type { Logger } from "../../base/log.ts";
import type { Bus } from "../../bus/bus.ts";
import type { LiveChunks } from "../runner.ts";
import { createDigestedSet, type DigestedSet } from "./digested-set.ts";
import { type Feed, missing } from "./feed.ts";
import {
  asJson,
  type Count,
  fieldsOf,
  isSameSet,
  listOf,
  type News,
  readCount,
  readLive,
  readNews,
  readReach,
  readSets,
  readText,
  readTouched,
  readView,
  type SetState,
  topics,
  type Touched,
} from "./remote-protocol.ts";
import { turnOf, type View } from "./view.ts";

/**
 * The gateway's side of following: the pods whose sessions or users this process wants to hear of, and
 * how many of their letters it has. A letter that is missing makes everything at that pod asked for
 * again, which tells how far each session is; what was in the letter comes from the journal.
 */
export type Pods = {
  /** What its owner says of a session, from now on told of it: "elsewhere" where it isn't the owner. */
  follow(address: string, sessionId: string): Promise<Said>;
  unfollow(address: string, sessionId: string): void;
  /** Users to hear of, at all these pods. */
  watch(addresses: readonly string[], user: string): void;
  unwatch(user: string): void;
  /**
   * Asks every pod how much there was to hear. `owners` are those whose users are watched; undefined
   * where that isn't known, so that it stays as it was.
   */
  tick(owners: readonly string[] | undefined): void;
  close(): void;
};

type Said = { readonly view: View | undefined } | "elsewhere";

type PodsParts = {
  bus: Bus;
  log: Logger;
  /** Those that are watched. */
  users: DigestedSet;
  onNews: (news: News) => boolean;
  onTouched: (touched: Touched) => void;
  /** Something about users may have been missed. */
  onMissed: () => void;
  /** Said of a session when it was asked for again. */
  onSaid: (address: string, sessionId: string, said: Said) => void;
};

type Pod = {
  readonly address: string;
  readonly sessions: DigestedSet;
  /** Its users are watched, as it owns logs. */
  watched: boolean;
  /** It may have other users than those that are watched. */
  usersDiffer: boolean;
  count: Count | undefined;
  asking: { sessionId: string; resolve: (said: Said) => void; reject: (error: unknown) => void }[];
  /** Something was missed: everything has to be asked for again. */
  missed: boolean;
  repairing: boolean;
};

const followMs = 1_000;
const pageSize = 500;

export function createPods(parts: PodsParts): Pods {
  const { bus, log } = parts;
  const pods = new Map<string, Pod>();

  const at = (address: string): Pod => {
    const known = pods.get(address);
    if (known) return known;
    const made: Pod = {
      address,
      sessions: createDigestedSet(),
      watched: false,
      usersDiffer: false,
      count: undefined,
      asking: [],
      missed: false,
      repairing: false,
    };
    pods.set(address, made);
    return made;
  };

  const request = ({ address }: Pod, topic: string, body: object): Promise<Json> =>
    bus.request(address, topic, asJson(body), { timeoutMs: followMs });

  /** An answer stands for all letters before it. */
  const counted = (pod: Pod, answer: Json): void => {
    const count = readCount(answer);
    if (!count) return;
    if (pod.count?.born === count.born && pod.count.letter >= count.letter) return;
    pod.count = count;
  };

  const follow = async (pod: Pod, ids: readonly string[], only: boolean) => {
    const sessions = ids.map((sessionId) => ({ sessionId }));
    const answer = await request(pod, topics.follow, { sessions, ...(only && { only }) });
    const said = new Map<string, Said>();
    listOf(fieldsOf(answer)["sessions"], (each) => {
      const { sessionId, view, gone } = fieldsOf(each);
      const id = readText(sessionId);
      if (id !== undefined) said.set(id, gone === true ? "elsewhere" : { view: readView(view) });
      return undefined;
    });
    return { answer, said };
  };

  const flush = async (pod: Pod): Promise<void> => {
    const asked = pod.asking.splice(0, pageSize);
    if (pod.asking.length > 0) queueMicrotask(() => void flush(pod));
    const ids = asked.map(({ sessionId }) => sessionId);
    try {
      const { answer, said } = await follow(pod, ids, false);
      // Only the first answer tells where counting begins: later ones are about these sessions alone.
      if (!pod.count) counted(pod, answer);
      // It has forgotten everything that it was asked for before.
      else if (readCount(answer)?.born !== pod.count.born) void repair(pod);
      for (const { sessionId, resolve } of asked) resolve(said.get(sessionId) ?? "elsewhere");
    } catch (error) {
      // The owner may not have heard of these sessions: the next second asks for all.
      pod.missed = true;
      for (const { reject } of asked) reject(error);
    }
  };

  const repair = async (pod: Pod): Promise<void> => {
    pod.missed = true;
    if (pod.repairing) return;
    pod.repairing = true;
    try {
      while (pod.missed) {
        pod.missed = false;
        await askForAll(pod);
      }
    } catch (error) {
      pod.missed = true;
      // The next second asks again.
      if (!hasCode(error, "timeout", "closed")) {
        log.warn({ pod: pod.address, error: messageOf(error) }, "sessions couldn't be followed");
      }
    } finally {
      pod.repairing = false;
    }
  };
  const askForAll = async (pod: Pod): Promise<void> => {
    const ids = [...pod.sessions];
    for (let from = 0; from === 0 || from < ids.length; from += pageSize) {
      const { answer, said } = await follow(pod, ids.slice(from, from + pageSize), from === 0);
      // What happens after the first page is told by letters, which are counted from here.
      if (from === 0) counted(pod, answer);
      for (const [sessionId, each] of said) {
        if (pod.sessions.has(sessionId)) parts.onSaid(pod.address, sessionId, each);
      }
    }
    if (!pod.watched && !pod.usersDiffer) return;
    const users = pod.watched ? [...parts.users] : [];
    for (let from = 0; from === 0 || from < users.length; from += pageSize) {
      const page = users.slice(from, from + pageSize);
      await request(pod, topics.watch, { users: page, ...(from === 0 && { only: true }) });
    }
    pod.usersDiffer = false;
    parts.onMissed();
  };

  const ask = async (pod: Pod): Promise<void> => {
    // Letters come in order, so that an owner that got all before this one has what is wanted now.
    const wanted = {
      sessions: stateOf(pod.sessions),
      users: pod.watched ? stateOf(parts.users) : none,
    };
    let answer: Json;
    try {
      answer = await request(pod, topics.moved, {});
    } catch (error) {
      if (!hasCode(error, "unsupported")) return;
      answer = null;
    }
    const told = readSets(answer);
    const count = readCount(answer);
    const hasAll = count && count.born === pod.count?.born && count.letter <= pod.count.letter;
    pod.usersDiffer = !isSameSet(told.users, wanted.users);
    const isSame = isSameSet(told.sessions, wanted.sessions) && !pod.usersDiffer;
    if (!hasAll || !isSame || pod.missed) await repair(pod);
  };

  const receive = (from: string, body: Json): void => {
    const pod = pods.get(from);
    const count = readCount(body);
    if (!pod || !count) return;
    const { born, letter } = pod.count ?? { born: -1, letter: 0 };
    // One that is late or comes twice tells nothing new of how many there are.
    if (count.born === born && count.letter <= letter) return;
    pod.count = count;
    if (count.born !== born || count.letter > letter + 1) void repair(pod);
  };

  const unserve = [
    bus.serve(topics.committed, (body, from) => {
      const strays: string[] = [];
      for (const news of listOf(fieldsOf(body)["sessions"], readNews)) {
        if (!parts.onNews(news)) strays.push(news.sessionId);
      }
      receive(from, body);
      if (strays.length > 0) bus.send(from, topics.follow, { drop: strays });
      return null;
    }),
    bus.serve(topics.touched, (body, from) => {
      for (const touched of listOf(fieldsOf(body)["touched"], readTouched)) {
        parts.onTouched(touched);
      }
      receive(from, body);
      return null;
    }),
  ];

  return {
    follow(address, sessionId) {
      const pod = at(address);
      pod.sessions.add(sessionId);
      return new Promise((resolve, reject) => {
        if (pod.asking.push({ sessionId, resolve, reject }) === 1) {
          queueMicrotask(() => void flush(pod));
        }
      });
    },
    unfollow(address, sessionId) {
      const pod = pods.get(address);
      if (!pod?.sessions.delete(sessionId)) return;
      bus.send(address, topics.follow, { drop: [sessionId] });
    },
    watch(addresses, user) {
      for (const address of addresses) {
        if (address === bus.address) continue;
        const pod = at(address);
        if (pod.watched) bus.send(address, topics.watch, { users: [user] });
        else {
          pod.watched = true;
          void repair(pod);
        }
      }
    },
    unwatch(user) {
      for (const { address, watched } of pods.values()) {
        if (watched) bus.send(address, topics.watch, { drop: [user] });
      }
    },
    tick(owners) {
      for (const address of owners ?? []) if (address !== bus.address) at(address).watched = true;
      for (const pod of pods.values()) {
        const isOwner = owners?.includes(pod.address) ?? true;
        if (parts.users.size === 0 || !isOwner) pod.watched = false;
        if (pod.sessions.size === 0 && !pod.watched) pods.delete(pod.address);
        else void ask(pod);
      }
    },
    close() {
      for (const each of unserve) each();
      pods.clear();
    },
  };
}

const none = stateOf(createDigestedSet());

function stateOf({ size, digest }: DigestedSet): SetState {
  return { size, digest };
}

/** The gateway's side of live answers: those that runners elsewhere make. */
type Listening = {
  /** The answer so far; from now on its runner tells of what comes after. */
  ask(address: string, sessionId: string): Promise<LiveChunks | undefined>;
  /** Says to every runner that it is still listened to, and sees whether all that it said was heard. */
  tick(feeds: Iterable<Feed>): void;
  close(): void;
};

const answerMs = 1_000;

export function createListening(
  bus: Bus,
  feedOf: (sessionId: string) => Feed | undefined,
): Listening {
  const unserve = bus.serve(topics.chunks, (body) => {
    for (const live of listOf(fieldsOf(body)["live"], readLive)) {
      feedOf(live.sessionId)?.chunks(live);
    }
    return null;
  });

  const request = async (address: string, sessions: object[]) => {
    const options = { timeoutMs: answerMs };
    const answer = await bus.request(address, topics.listen, asJson({ sessions }), options);
    return fieldsOf(answer)["sessions"];
  };

  const renew = async (address: string, feeds: readonly Feed[]): Promise<void> => {
    const answers = await request(
      address,
      feeds.map(({ sessionId }) => ({ sessionId })),
    );
    for (const reach of listOf(answers, readReach)) feedOf(reach.sessionId)?.heardOf(reach);
  };

  return {
    async ask(address, sessionId) {
      const answers = await request(address, [{ sessionId, snapshot: true }]);
      return listOf(answers, (each) => readLive(fieldsOf(each)["live"]))[0];
    },
    tick(feeds) {
      const byRunner = new Map<string, Feed[]>();
      for (const feed of feeds) {
        const address = feed.subscribers > 0 && feed.view && runnerElsewhere(feed.view, bus);
        if (!address) continue;
        const there = byRunner.get(address);
        if (there) there.push(feed);
        else byRunner.set(address, [feed]);
      }
      // Where none answers, the next second asks again, or the owner names another runner.
      for (const [address, theirs] of byRunner) renew(address, theirs).catch(() => {});
    },
    close: unserve,
  };
}

/** The address of the runner of the turn that goes on, if that isn't here. */
export function runnerElsewhere(view: View, { address }: Pick<Bus, "address">): string | undefined {
  return turnOf(view) && view.runner !== null && view.runner !== address ? view.runner : undefined;
}

/**
 * Keeps every feed at its source: this process where it owns the log, else the pod that does. While
 * nobody does, nothing can happen; what the last owner did before is in the journal.
 */
type Following = {
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

type FollowingParts = {
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
