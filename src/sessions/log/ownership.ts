import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Logger } from "../../base/log.ts";
import type { Header } from "../conversation/header.ts";
import { logOf, placeLogs, rankPods } from "./placement.ts";
import type { Head, Journal } from "./journal.ts";
import type { Owner, OwnerParts } from "./owner.ts";
import type { SilentOwner } from "./turn-monitor.ts";

/**
 * The logs that this pod owns. Twice a second it reads all heads, beats for its own logs, takes logs that
 * are free, and hands over logs that another pod should own. This decides only which pod tries. What
 * excludes a second owner is the condition in every commit.
 */
export type Owners = {
  /** The owner of a session's log, if this pod owns it. */
  of(sessionId: string): Owner | undefined;
  /** True when this pod's memory of a session is current: no other pod can have taken its log since. */
  isFresh(sessionId: string): boolean;
  /** True when that holds for all logs of this pod. */
  readonly areFresh: boolean;
  readonly owned: readonly Owner[];
  /** Creates the logs if there are none, and polls at once. */
  awaken(): Promise<void>;
  /** Polls at once, because a log may be free. */
  poll(): void;
  stop(): Promise<void>;
};

export type OwnersParts = {
  podId: string;
  host: string | null;
  journal: Journal;
  heads: Heads;
  clock: Clock;
  ids: Ids;
  log: Logger;
  /** How many logs to create when there are none. */
  logs: number;
  /** Live pods that serve sessions, each with how long it has been known, in ms. */
  pods: () => ReadonlyMap<string, number>;
  isGone: (host: string) => boolean;
  /** Whether this pod hands its logs on and takes no others, as far as there are pods for them. */
  drains?: () => boolean;
  own: (head: Head, busy: readonly Header[], taken: TakenLog) => Promise<Owned>;
  onEvent: (event: LogEvent) => void;
  /** Asks a pod whether it accepts a log, because a dead pod stays listed for a while. Never rejects. */
  wouldTake: (podId: string) => Promise<boolean>;
  /** Notifies a pod that a log is free. */
  offer: (podId: string) => void;
};

export type TakenLog = Pick<OwnerParts, "isFresh" | "onFenced"> & {
  /** The previous owner, if its process is known to have ended. */
  readonly gone: string | null;
  /** The previous owner, if it was waited for in vain. */
  readonly silent: SilentOwner | undefined;
};

/** An owner, and the clean-up for when the log is lost. */
export type Owned = { readonly owner: Owner; end(): void };

/** Events about the logs that a pod owns. */
export type LogEvent =
  | { readonly type: "record"; readonly entries: number; readonly durationMs: number }
  /** `owned` is how many logs the pod owns now. */
  | { readonly type: "log_owned"; readonly owned: number }
  | { readonly type: "log_lost"; readonly owned: number };

type Held = Owned & { provenMs: number };
type Seen = { head: Head; movedMs: number };

const passMs = 500;
const dormantMs = 1_000;
/** A log whose head has not moved for this long is free. Reads from memory need a beat newer than this. */
const silentMs = 2_000;
/** After a longer gap between two passes, no head counts as silent. A busy machine can be this slow. */
const gapMs = 5_000;
/** Each pod further down the ranking of a free log waits this much longer. */
const rankMs = 1_000;
/** A pod gets logs handed over only once it has been up for this long. */
const settledMs = 5_000;

export function createOwners(parts: OwnersParts): Owners {
  const { podId, journal, heads, clock, log } = parts;
  const held = new Map<number, Held>();
  const seen = new Map<number, Seen>();
  /** Pods with a probe in flight, and when each pod last accepted. */
  const probing = new Set<string>();
  const willingMs = new Map<string, number>();
  let currentPass: Promise<void> | undefined;
  let isPollWanted = false;
  let cancel = () => {};
  let stopped = false;
  let lastPassMs = -Infinity;

  const pass = async (): Promise<void> => {
    const startedMs = clock.monotonic();
    const all = held.size === 0 ? await journal.heads() : await beat();
    heads.put(all, startedMs);
    recordHeads(all);
    if (stopped) return;
    const pods = othersAlive(all);
    const others = [...pods.keys()].filter((each) => each !== podId);
    // Without another pod, sessions would have no owner at all.
    const isLeaving = parts.drains?.() === true && others.length > 0;
    const desired = placeLogs(all.length, (isLeaving ? others : [podId, ...others]).toSorted());
    const due = all.filter((head) => {
      if (isLeaving || held.has(head.logId) || !isFree(head)) return false;
      const rank = rankPods(head.logId, [podId, ...pods.keys()]).indexOf(podId);
      const first = desired[head.logId] === podId ? 0 : Math.max(1, rank);
      return freeForMs(head) >= first * rankMs;
    });
    // The next pass begins only when none of them is in flight any more.
    const taken = await Promise.allSettled(due.map(take));
    const failed = taken.find((each) => each.status === "rejected");
    if (failed) throw failed.reason;
    if (stopped) return;
    await handOver(desired, pods);
  };

  /**
   * Leaves out pods whose processes have ended. They stay listed for a while, but no pod waits for them.
   */
  const othersAlive = (all: readonly Head[]): ReadonlyMap<string, number> => {
    const ended = new Set(all.filter(hasEnded).map(({ owner }) => owner));
    return new Map([...parts.pods()].filter(([id]) => !ended.has(id)));
  };

  const recordHeads = (all: readonly Head[]): void => {
    const nowMs = clock.monotonic();
    const gap = nowMs - lastPassMs > gapMs;
    lastPassMs = nowMs;
    for (const head of all) {
      const before = seen.get(head.logId);
      const moved = !before || gap || !isSame(before.head, head);
      seen.set(head.logId, { head, movedMs: moved ? nowMs : before.movedMs });
    }
  };

  const freeForMs = (head: Head): number => {
    const quietMs = clock.monotonic() - seen.get(head.logId)!.movedMs;
    return isFreeAtOnce(head) ? quietMs : quietMs - silentMs;
  };
  // If the head names this pod but the log is not held, the response to an earlier take was lost.
  const isFreeAtOnce = (head: Head): boolean =>
    head.owner === null || head.owner === podId || hasEnded(head);
  const hasEnded = ({ host }: Head): boolean => host !== null && parts.isGone(host);
  const isFree = (head: Head): boolean => isFreeAtOnce(head) || freeForMs(head) >= 0;

  /** Beats for the logs that this pod owns, and returns all heads. */
  const beat = async (): Promise<readonly Head[]> => {
    const sentMs = clock.monotonic();
    const beats = [...held].map(([logId, { owner }]) => ({ logId, term: owner.head.term }));
    const { owned, heads: all } = await journal.beat(podId, beats);
    const still = new Set(owned);
    for (const { logId, term } of beats) {
      const each = held.get(logId);
      if (!each || each.owner.head.term !== term) continue;
      if (still.has(logId)) each.provenMs = sentMs;
      else {
        log.warn({ log: logId, term }, "session log taken over by another pod");
        lose(logId);
      }
    }
    return all;
  };

  const lose = (logId: number): void => {
    drop(logId);
    parts.onEvent({ type: "log_lost", owned: held.size });
  };

  const take = async (free: Head): Promise<void> => {
    const { logId } = free;
    const owner = { podId, host: parts.host, recordId: parts.ids.next() };
    const silent = isFreeAtOnce(free)
      ? undefined
      : { podId: free.owner!, sinceMs: seen.get(logId)!.movedMs };
    const sentMs = clock.monotonic();
    const head = await journal.take(free, owner);
    if (!head) return;
    const takenMs = clock.monotonic();
    const busy = await journal.busy(logId);
    const gone = hasEnded(free) ? free.owner : null;
    const isFresh = () => {
      const each = held.get(logId);
      return each?.owner.head.term === head.term && isProven(each);
    };
    const owned = await parts.own(head, busy, {
      onFenced: () => lose(logId),
      isFresh,
      gone,
      silent,
    });
    if (stopped) {
      owned.end();
      return journal.release(podId, [{ logId, term: head.term }]);
    }
    held.set(logId, { ...owned, provenMs: sentMs });
    parts.onEvent({ type: "log_owned", owned: held.size });
    heads.putOne(head, takenMs);
    log.info({ log: logId, term: head.term, busy: busy.length }, "session log owned");
  };

  const drop = (logId: number): void => {
    const each = held.get(logId);
    if (!held.delete(logId)) return;
    each?.owner.drop();
    each?.end();
    parts.onEvent({ type: "log_owned", owned: held.size });
  };

  /** One log at a time, and only to pods that have been up for a while. */
  const handOver = async (
    desired: readonly string[],
    pods: ReadonlyMap<string, number>,
  ): Promise<void> => {
    for (const logId of held.keys()) {
      const to = desired[logId]!;
      if (to === podId || (pods.get(to) ?? 0) < settledMs) continue;
      if (clock.monotonic() - (willingMs.get(to) ?? -Infinity) >= gapMs) {
        probe(to);
        continue;
      }
      willingMs.delete(to);
      log.info({ log: logId, to }, "handing over session log");
      await giveUp([logId]);
      return parts.offer(to);
    }
  };

  /** A dead pod does not answer. The pass does not await the probe, because that would delay every beat. */
  const probe = (to: string): void => {
    if (probing.has(to)) return;
    probing.add(to);
    void parts.wouldTake(to).then((would) => {
      probing.delete(to);
      if (would) willingMs.set(to, clock.monotonic());
    });
  };

  const giveUp = async (logIds: readonly number[]): Promise<void> => {
    const releasing = logIds.flatMap((logId) => {
      const each = held.get(logId);
      return each ? [{ logId, each }] : [];
    });
    await Promise.all(releasing.map(({ each }) => each.owner.stop()));
    const terms = releasing.map(({ logId, each }) => ({ logId, term: each.owner.head.term }));
    for (const { logId } of releasing) drop(logId);
    await journal.release(podId, terms);
  };

  const run = (): Promise<void> =>
    (currentPass ??= pass()
      .catch((error: unknown) => {
        if (!stopped) log.warn({ error: messageOf(error) }, "session log pass failed, retrying");
      })
      .finally(() => {
        currentPass = undefined;
        if (stopped) return;
        const delayMs = heads.last.length === 0 ? dormantMs : passMs;
        cancel();
        cancel = clock.after(isPollWanted ? 0 : delayMs, () => void run());
        isPollWanted = false;
      }));
  void run();

  const heldOf = (sessionId: string): Held | undefined => {
    const logs = heads.last.length;
    return logs === 0 ? undefined : held.get(logOf(sessionId, logs));
  };

  const isProven = ({ provenMs }: Held): boolean => clock.monotonic() - provenMs < silentMs;

  return {
    of: (sessionId) => heldOf(sessionId)?.owner,
    isFresh(sessionId) {
      const each = heldOf(sessionId);
      return each !== undefined && isProven(each);
    },
    get areFresh() {
      return [...held.values()].every(isProven);
    },
    get owned() {
      return [...held.values()].map(({ owner }) => owner);
    },
    async awaken() {
      if (heads.last.length > 0 || stopped) return;
      await journal.create(parts.logs);
      await currentPass;
      if (!stopped) await run();
    },
    poll() {
      if (stopped) return;
      if (currentPass) isPollWanted = true;
      else {
        cancel();
        void run();
      }
    },
    async stop() {
      stopped = true;
      cancel();
      await currentPass;
      const others = [...parts.pods().keys()].filter((each) => each !== podId);
      if (held.size > 0) await giveUp([...held.keys()]).catch(() => {});
      for (const each of others) parts.offer(each);
    },
  };
}

/** The heads of all logs as last read, shared by all callers. */
export type Heads = {
  /** Heads read at most `maxAgeMs` ago. */
  all(maxAgeMs: number): Promise<readonly Head[]>;
  /** The head of a session's log; undefined if there are no logs yet. */
  of(sessionId: string, maxAgeMs: number): Promise<Head | undefined>;
  /** The heads as last read, however old. */
  readonly last: readonly Head[];
  put(heads: readonly Head[], atMs: number): void;
  /** Stores a head that was read alone, so the other heads get no newer. */
  putOne(head: Head, atMs: number): void;
};

export function createHeads({ journal, clock }: { journal: Journal; clock: Clock }): Heads {
  let last: readonly Head[] = [];
  let seenMs = -Infinity;
  /** When a head was last stored alone. */
  const seenAloneMs = new Map<number, number>();
  let reading: Promise<readonly Head[]> | undefined;

  const put = (heads: readonly Head[], atMs: number): void => {
    if (atMs < seenMs) return;
    // A read that began before `putOne` may hold an older version of that head.
    last = heads.map((head) => {
      const isOlder = atMs <= (seenAloneMs.get(head.logId) ?? -Infinity);
      return (isOlder && last[head.logId]) || head;
    });
    seenMs = atMs;
  };
  const putOne = (head: Head, atMs: number): void => {
    if (atMs < seenMs) return;
    // A read that began earlier may have ended since and seen a later owner.
    const known = last[head.logId];
    if (known?.incarnation === head.incarnation && known.term > head.term) return;
    last = last.map((each) => (each.logId === head.logId ? head : each));
    seenAloneMs.set(head.logId, atMs);
  };
  const readHeads = async (): Promise<readonly Head[]> => {
    const startedMs = clock.monotonic();
    try {
      const heads = await journal.heads();
      put(heads, startedMs);
      return last;
    } finally {
      reading = undefined;
    }
  };
  const all: Heads["all"] = async (maxAgeMs) => {
    const oldestMs = clock.monotonic() - maxAgeMs;
    // An empty list is never enough, whatever its age: logs may have been created since.
    const isKnown = () => last.length > 0 && seenMs >= oldestMs;
    if (isKnown()) return last;
    if (reading) {
      // A read that began earlier may be older than this caller allows.
      await reading;
      if (isKnown()) return last;
    }
    return (reading ??= readHeads());
  };
  return {
    all,
    put,
    putOne,
    get last() {
      return last;
    },
    async of(sessionId, maxAgeMs) {
      const heads = await all(maxAgeMs);
      return heads.length === 0 ? undefined : heads[logOf(sessionId, heads.length)];
    },
  };
}

function isSame(one: Head, other: Head): boolean {
  return (
    one.term === other.term &&
    one.offset === other.offset &&
    one.beat === other.beat &&
    one.owner === other.owner &&
    one.incarnation === other.incarnation
  );
}
