import { hasCode, messageOf } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import type { Logger } from "../../base/log.ts";
import type { Bus } from "../../bus/bus.ts";
import type { LiveChunks } from "../runner.ts";
import { createDigestedSet, type DigestedSet } from "./digested-set.ts";
import type { Feed } from "./feed.ts";
import {
  asBusJson,
  type EnvelopeCount,
  fieldsOf,
  isSameSet,
  listOf,
  type SessionUpdate,
  readEnvelopeCount,
  readLive,
  readSessionUpdate,
  readAnswerProgress,
  readSets,
  readText,
  readTouched,
  readView,
  type SetState,
  topics,
  type Touched,
} from "./remote-protocol.ts";
import { turnOf, type HeaderView } from "./view.ts";

/**
 * The gateway's side of following entries: the pods whose sessions or users this process follows, and how
 * many of their envelopes it has received. After a missing envelope it sends that pod the whole follow
 * list again. The reply tells how far each session is, and the missing entries come from the journal.
 */
export type EntrySubscriber = {
  /** Follows a session and returns the owner's view of it; "elsewhere" if that pod is not the owner. */
  follow(address: string, sessionId: string): Promise<OwnerReply>;
  unfollow(address: string, sessionId: string): void;
  /** Watches a user at all these pods. */
  watch(addresses: readonly string[], user: string): void;
  unwatch(user: string): void;
  /**
   * Polls every pod for its envelope count. `owners` are the pods where users are watched; undefined if
   * they are unknown, and then the pods stay as they were.
   */
  tick(owners: readonly string[] | undefined): void;
  close(): void;
};

export type OwnerReply = { readonly view: HeaderView | undefined } | "elsewhere";

type EntrySubscriberParts = {
  bus: Bus;
  log: Logger;
  /** The users that are watched. */
  watchedUsers: DigestedSet;
  onUpdate: (update: SessionUpdate) => boolean;
  onTouched: (touched: Touched) => void;
  /** An update about a user may have been missed. */
  onMissed: () => void;
  /** Called with a pod's reply about a session when it is followed again. */
  onOwnerReply: (address: string, sessionId: string, reply: OwnerReply) => void;
};

type RemotePublisher = {
  readonly address: string;
  readonly sessions: DigestedSet;
  /** True while users are watched at this pod, because it owns logs. */
  watched: boolean;
  /** True when this pod may have another user list than ours. */
  usersDiffer: boolean;
  count: EnvelopeCount | undefined;
  pendingFollows: {
    sessionId: string;
    resolve: (reply: OwnerReply) => void;
    reject: (error: unknown) => void;
  }[];
  /** An envelope was missed: everything has to be followed again. */
  missed: boolean;
  repairing: boolean;
};

const requestTimeoutMs = 1_000;
const pageSize = 500;
const answerTimeoutMs = 1_000;
const none = setStateOf(createDigestedSet());

export function createEntrySubscriber(parts: EntrySubscriberParts): EntrySubscriber {
  const { bus, log } = parts;
  const pods = new Map<string, RemotePublisher>();

  const at = (address: string): RemotePublisher => {
    const known = pods.get(address);
    if (known) return known;
    const made: RemotePublisher = {
      address,
      sessions: createDigestedSet(),
      watched: false,
      usersDiffer: false,
      count: undefined,
      pendingFollows: [],
      missed: false,
      repairing: false,
    };
    pods.set(address, made);
    return made;
  };

  const request = ({ address }: RemotePublisher, topic: string, body: object): Promise<Json> =>
    bus.request(address, topic, asBusJson(body), { timeoutMs: requestTimeoutMs });

  /** A reply covers all envelopes before it. */
  const recordCount = (pod: RemotePublisher, answer: Json): void => {
    const count = readEnvelopeCount(answer);
    if (!count) return;
    if (pod.count?.born === count.born && pod.count.envelopes >= count.envelopes) return;
    pod.count = count;
  };

  const follow = async (pod: RemotePublisher, ids: readonly string[], only: boolean) => {
    const sessions = ids.map((sessionId) => ({ sessionId }));
    const answer = await request(pod, topics.follow, { sessions, ...(only && { only }) });
    const replies = new Map<string, OwnerReply>();
    listOf(fieldsOf(answer)["sessions"], (each) => {
      const { sessionId, view, gone } = fieldsOf(each);
      const id = readText(sessionId);
      if (id !== undefined) replies.set(id, gone === true ? "elsewhere" : { view: readView(view) });
      return undefined;
    });
    return { answer, replies };
  };

  const flush = async (pod: RemotePublisher): Promise<void> => {
    const requests = pod.pendingFollows.splice(0, pageSize);
    if (pod.pendingFollows.length > 0) queueMicrotask(() => void flush(pod));
    const ids = requests.map(({ sessionId }) => sessionId);
    try {
      const { answer, replies } = await follow(pod, ids, false);
      // Only the first reply sets the count: later ones cover only these sessions.
      if (!pod.count) recordCount(pod, answer);
      // The pod counts anew, so its follow list may be gone.
      else if (readEnvelopeCount(answer)?.born !== pod.count.born) void repair(pod);
      for (const { sessionId, resolve } of requests) resolve(replies.get(sessionId) ?? "elsewhere");
    } catch (error) {
      // The owner may not have received these sessions: the next tick follows everything again.
      pod.missed = true;
      for (const { reject } of requests) reject(error);
    }
  };

  const repair = async (pod: RemotePublisher): Promise<void> => {
    pod.missed = true;
    if (pod.repairing) return;
    pod.repairing = true;
    try {
      while (pod.missed) {
        pod.missed = false;
        await followAll(pod);
      }
    } catch (error) {
      pod.missed = true;
      // The next tick tries again.
      if (!hasCode(error, "timeout", "closed", "unavailable")) {
        const fields = { pod: pod.address, error: messageOf(error) };
        log.warn(fields, "following sessions failed, retrying");
      }
    } finally {
      pod.repairing = false;
    }
  };
  const followAll = async (pod: RemotePublisher): Promise<void> => {
    const ids = [...pod.sessions];
    for (let from = 0; from === 0 || from < ids.length; from += pageSize) {
      const { answer, replies } = await follow(pod, ids.slice(from, from + pageSize), from === 0);
      // Changes after the first page arrive as envelopes, which are counted from here.
      if (from === 0) recordCount(pod, answer);
      for (const [sessionId, each] of replies) {
        if (pod.sessions.has(sessionId)) parts.onOwnerReply(pod.address, sessionId, each);
      }
    }
    if (!pod.watched && !pod.usersDiffer) return;
    const users = pod.watched ? [...parts.watchedUsers] : [];
    for (let from = 0; from === 0 || from < users.length; from += pageSize) {
      const page = users.slice(from, from + pageSize);
      await request(pod, topics.watch, { users: page, ...(from === 0 && { only: true }) });
    }
    pod.usersDiffer = false;
    parts.onMissed();
  };

  const poll = async (pod: RemotePublisher): Promise<void> => {
    // Envelopes arrive in order, so an owner that got all earlier ones has exactly these lists.
    const wanted = {
      sessions: setStateOf(pod.sessions),
      users: pod.watched ? setStateOf(parts.watchedUsers) : none,
    };
    let answer: Json;
    try {
      answer = await request(pod, topics.moved, {});
    } catch (error) {
      if (!hasCode(error, "unsupported")) return;
      answer = null;
    }
    const reported = readSets(answer);
    const count = readEnvelopeCount(answer);
    const hasAll =
      count && count.born === pod.count?.born && count.envelopes <= pod.count.envelopes;
    pod.usersDiffer = !isSameSet(reported.users, wanted.users);
    const isSame = isSameSet(reported.sessions, wanted.sessions) && !pod.usersDiffer;
    if (!hasAll || !isSame || pod.missed) await repair(pod);
  };

  const receive = (from: string, body: Json): void => {
    const pod = pods.get(from);
    const count = readEnvelopeCount(body);
    if (!pod || !count) return;
    const { born, envelopes } = pod.count ?? { born: -1, envelopes: 0 };
    // A late or repeated envelope does not change the count.
    if (count.born === born && count.envelopes <= envelopes) return;
    pod.count = count;
    if (count.born !== born || count.envelopes > envelopes + 1) void repair(pod);
  };

  const unserve = [
    bus.serve(topics.committed, (body, from) => {
      const strays: string[] = [];
      for (const update of listOf(fieldsOf(body)["sessions"], readSessionUpdate)) {
        if (!parts.onUpdate(update)) strays.push(update.sessionId);
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
        if (pod.pendingFollows.push({ sessionId, resolve, reject }) === 1) {
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
        if (parts.watchedUsers.size === 0 || !isOwner) pod.watched = false;
        if (pod.sessions.size === 0 && !pod.watched) pods.delete(pod.address);
        else void poll(pod);
      }
    },
    close() {
      for (const each of unserve) each();
      pods.clear();
    },
  };
}

/** The gateway's side of live answers: the answers made by runners on other pods. */
type ChunkSubscriber = {
  /** Returns the answer so far. From then on its runner sends further chunks. */
  readAnswer(address: string, sessionId: string): Promise<LiveChunks | undefined>;
  /** Renews the subscription at every runner, and checks that no chunks were missed. */
  tick(feeds: Iterable<Feed>): void;
  close(): void;
};

export function createChunkSubscriber(
  bus: Bus,
  feedOf: (sessionId: string) => Feed | undefined,
): ChunkSubscriber {
  const unserve = bus.serve(topics.chunks, (body) => {
    for (const live of listOf(fieldsOf(body)["live"], readLive)) {
      feedOf(live.sessionId)?.chunks(live);
    }
    return null;
  });

  const request = async (address: string, sessions: object[]) => {
    const options = { timeoutMs: answerTimeoutMs };
    const answer = await bus.request(address, topics.listen, asBusJson({ sessions }), options);
    return fieldsOf(answer)["sessions"];
  };

  const renew = async (address: string, feeds: readonly Feed[]): Promise<void> => {
    const answers = await request(
      address,
      feeds.map(({ sessionId }) => ({ sessionId })),
    );
    for (const progress of listOf(answers, readAnswerProgress))
      feedOf(progress.sessionId)?.reportProgress(progress);
  };

  return {
    async readAnswer(address, sessionId) {
      const answers = await request(address, [{ sessionId, snapshot: true }]);
      return listOf(answers, (each) => readLive(fieldsOf(each)["live"]))[0];
    },
    tick(feeds) {
      const byRunner = new Map<string, Feed[]>();
      for (const feed of feeds) {
        const address = feed.subscribers > 0 && feed.view && runnerElsewhere(feed.view, bus);
        if (!address) continue;
        const known = byRunner.get(address);
        if (known) known.push(feed);
        else byRunner.set(address, [feed]);
      }
      // If a runner does not reply, the next tick tries again, or the owner names another runner.
      for (const [address, theirs] of byRunner) renew(address, theirs).catch(() => {});
    },
    close: unserve,
  };
}

/** The address of the current turn's runner, if that is another pod. */
export function runnerElsewhere(
  view: HeaderView,
  { address }: Pick<Bus, "address">,
): string | undefined {
  return turnOf(view) && view.runner !== null && view.runner !== address ? view.runner : undefined;
}

function setStateOf({ size, digest }: DigestedSet): SetState {
  return { size, digest };
}
