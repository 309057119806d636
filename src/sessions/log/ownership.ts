import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Logger } from "../../base/log.ts";
import { untilIdle } from "../../base/timeout.ts";
import type { Heads } from "./heads.ts";
import { logOf, placeLogs, rankPods } from "./placement.ts";
import type { Head, LiveHead, Log, Presence, Recovered } from "./journal.ts";
import type { Owner, OwnerParts } from "./owner.ts";
import type { SilentOwner } from "./turn-monitor.ts";

/**
 * The logs that this pod owns. Twice a second, or more often where pods hear each other, it beats for its own
 * logs, learns all heads, takes logs that are free, and hands over logs that another pod should own. This
 * decides only which pod tries. What excludes a second owner is the condition in every commit.
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
  /** Polls at once, because a log may be free. Those that this pod was offered it takes before others do. */
  poll(offered?: readonly number[]): void;
  /**
   * Hands all logs to other pods and takes none any more. Resolves when they are handed over, or no pod
   * takes them, or the limit is over: this pod then keeps the rest until it is stopped.
   */
  leave(options: { limitMs: number }): Promise<void>;
  stop(): Promise<void>;
};

export type OwnersParts = {
  podId: string;
  host: string | null;
  journal: Pick<Log, "create" | "take" | "recover" | "release">;
  presence: Presence;
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
  own: (head: Head, recovered: Recovered, taken: TakenLog) => Promise<Owned>;
  onEvent: (event: LogEvent) => void;
  /** Asks a pod whether it accepts a log, because a dead pod stays listed for a while. Never rejects. */
  wouldTake: (podId: string) => Promise<boolean>;
  /** Notifies a pod that logs are free, and of those among them that it should take. */
  offer: (podId: string, logIds: readonly number[]) => void;
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

/** `wantedMs`: when freshness was last of interest, where it has to be proven by the log itself. */
type Held = Owned & { provenMs: number; wantedMs: number };
type Seen = { head: LiveHead; movedMs: number };

/** How often a pod looks, and how much longer each pod further down the ranking of a free log waits. */
const paceOfRows = { passMs: 500, rankMs: 1_000 };
const paceOfBeats = { passMs: 250, rankMs: 500 };
const dormantMs = 1_000;
/** A log whose head has not moved for this long is free. Reads from memory need a proof newer than this. */
const silentMs = 2_000;
/** After a longer gap between two passes, no head counts as silent. A busy machine can be this slow. */
const gapMs = 5_000;
/** A pod gets logs handed over only once it has been up for this long. */
const settledMs = 5_000;
/** Where only the log proves that it is still this pod's, that is done so often while it is of interest. */
const proveMs = 1_000;
const wantedForMs = 10_000;

export function createOwners(parts: OwnersParts): Owners {
  const { podId, journal, presence, heads, clock, log } = parts;
  const { listening } = presence;
  const { passMs, rankMs } = listening ? paceOfBeats : paceOfRows;
  const held = new Map<number, Held>();
  /** Logs that are this pod's and not yet served, because they are being recovered. */
  const recovering = new Map<number, Head>();
  const seen = new Map<number, Seen>();
  /** Pods with a probe in flight, and when each pod last accepted. */
  const probing = new Set<string>();
  const willingMs = new Map<string, number>();
  /** Logs that this pod was offered, and when. Which pods there are may look different from here. */
  const offeredMs = new Map<number, number>();
  let currentPass: Promise<void> | undefined;
  let isPollWanted = false;
  let cancel = () => {};
  let stopped = false;
  let leaving = false;
  /** Whether no other pod was there at the last pass. */
  let isAlone = false;
  let lastPassMs = -Infinity;

  const isDraining = (): boolean => leaving || stopped || parts.drains?.() === true;
  listening?.speakFor(() => ({
    heads: [
      // A log that was just recovered is in both for a moment, and a beat names it once.
      ...[...recovering.values()].filter(({ logId }) => !held.has(logId)),
      ...[...held.values()].map(({ owner }) => owner.head),
    ],
    isDraining: isDraining(),
  }));

  const pass = async (): Promise<void> => {
    const startedMs = clock.monotonic();
    const all = await beat();
    heads.put(all, startedMs);
    recordHeads(all);
    if (stopped) return;
    if (listening) prove();
    const pods = othersAlive(all);
    const others = [...pods.keys()].filter((each) => each !== podId);
    // Without another pod, sessions would have no owner at all.
    isAlone = others.length === 0;
    const isLeaving = isDraining() && !isAlone;
    handedOver.check();
    const takers = isLeaving ? settledAmong(others, pods) : [podId, ...others];
    const desired = placeLogs(all.length, takers.toSorted());
    const due = all.filter((head) => {
      if (isLeaving || held.has(head.logId) || !isFree(head)) return false;
      const rank = rankPods(head.logId, [podId, ...pods.keys()]).indexOf(podId);
      const isNext = desired[head.logId] === podId || isOffered(head.logId);
      const first = isNext ? 0 : Math.max(1, rank);
      return freeForMs(head) >= first * rankMs;
    });
    // The next pass begins only when none of them is in flight any more.
    const taken = await Promise.allSettled(due.map(take));
    if (!stopped) await handOver(desired, pods);
    const failed = taken.find((each) => each.status === "rejected");
    if (failed) throw failed.reason;
  };

  /**
   * Leaves out pods whose processes have ended. They stay listed for a while, but no pod waits for them.
   */
  const othersAlive = (all: readonly Head[]): ReadonlyMap<string, number> => {
    const ended = new Set(all.filter(hasEnded).map(({ owner }) => owner));
    return new Map([...parts.pods()].filter(([id]) => !ended.has(id)));
  };

  const recordHeads = (all: readonly LiveHead[]): void => {
    const nowMs = clock.monotonic();
    const gap = nowMs - lastPassMs > gapMs;
    lastPassMs = nowMs;
    for (const head of all) {
      const before = seen.get(head.logId);
      const moved = !before || gap || !isSame(before.head, head);
      seen.set(head.logId, { head, movedMs: moved ? nowMs : before.movedMs });
    }
  };

  const isOffered = (logId: number): boolean =>
    clock.monotonic() - (offeredMs.get(logId) ?? -Infinity) < silentMs;

  const freeForMs = (head: Head): number => {
    const nowMs = clock.monotonic();
    const quietMs = nowMs - seen.get(head.logId)!.movedMs;
    if (isFreeAtOnce(head)) return quietMs;
    if (listening) return nowMs - (listening.freeSinceMs(head) ?? Infinity);
    return quietMs - silentMs;
  };
  // If the head names this pod but the log is not held, the response to an earlier take was lost.
  const isFreeAtOnce = (head: Head): boolean =>
    head.owner === null || head.owner === podId || hasEnded(head);
  const hasEnded = ({ host }: Head): boolean => host !== null && parts.isGone(host);
  const isFree = (head: Head): boolean => isFreeAtOnce(head) || freeForMs(head) >= 0;

  /** Beats for the logs that this pod owns, and returns all heads. */
  const beat = async (): Promise<readonly LiveHead[]> => {
    const sentMs = clock.monotonic();
    const beats = [...held.values()].map(({ owner }) => owner.head);
    const { owned, heads: all } = await presence.beat(podId, beats);
    const still = new Set(owned);
    for (const { logId, term } of beats) {
      const each = held.get(logId);
      if (!each || each.owner.head.term !== term) continue;
      if (still.has(logId)) {
        // What was heard or read may be old: there only the log itself proves that it is this pod's.
        if (!listening) each.provenMs = sentMs;
      } else {
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

  const take = async (free: LiveHead): Promise<void> => {
    const { logId } = free;
    const owner = { podId, host: parts.host, recordId: parts.ids.next() };
    const silent = isFreeAtOnce(free)
      ? undefined
      : { podId: free.owner!, sinceMs: seen.get(logId)!.movedMs };
    const sentMs = clock.monotonic();
    const head = await journal.take(free, owner);
    if (!head) return;
    if (free.spoken) {
      // The log has taken the message right behind `free`, so what its owner had beyond it is gone.
      const fields = { log: logId, from: free.offset + 1, through: free.spoken.offset };
      log.error(fields, "servers have lost messages of a session log, and its owner is gone");
    }
    recovering.set(logId, head);
    try {
      await serve(free, head, { sentMs, silent });
    } finally {
      recovering.delete(logId);
    }
  };

  /** Serves a log that was taken, once it is recovered. */
  const serve = async (
    free: Head,
    head: Head,
    { sentMs, silent }: { sentMs: number; silent: SilentOwner | undefined },
  ): Promise<void> => {
    const { logId } = head;
    const takenMs = clock.monotonic();
    const recovered = await journal.recover(head);
    const gone = hasEnded(free) ? free.owner : null;
    const isFresh = () => {
      const each = held.get(logId);
      return each?.owner.head.term === head.term && isProven(each);
    };
    const owned = await parts.own(head, recovered, {
      onFenced: () => lose(logId),
      isFresh,
      gone,
      silent,
    });
    if (stopped) {
      owned.end();
      return journal.release(podId, [owned.owner.head]);
    }
    held.set(logId, { ...owned, provenMs: sentMs, wantedMs: clock.monotonic() });
    offeredMs.delete(logId);
    listening?.speak();
    parts.onEvent({ type: "log_owned", owned: held.size });
    heads.putOne(head, takenMs);
    const busy = recovered.busy.length;
    log.info({ log: logId, term: head.term, busy }, "session log owned");
  };

  const drop = (logId: number): void => {
    const each = held.get(logId);
    if (!held.delete(logId)) return;
    each?.owner.drop();
    each?.end();
    parts.onEvent({ type: "log_owned", owned: held.size });
  };

  /** One log at a time, and only to pods that have been up for a while. A pod that leaves can't wait. */
  const handOver = async (
    desired: readonly string[],
    pods: ReadonlyMap<string, number>,
  ): Promise<void> => {
    const moving = new Map<number, string>();
    for (const logId of held.keys()) {
      const to = desired[logId]!;
      if (to === podId || !(leaving || isSettled(to, pods))) continue;
      if (clock.monotonic() - (willingMs.get(to) ?? -Infinity) >= gapMs) {
        probe(to);
        continue;
      }
      moving.set(logId, to);
      if (!leaving) break;
    }
    if (moving.size === 0) return;
    for (const [logId, to] of moving) {
      if (!leaving) willingMs.delete(to);
      log.info({ log: logId, to }, "handing over session log");
    }
    await giveUp([...moving.keys()]);
    for (const [to, each] of Map.groupBy(moving, ([, podTo]) => podTo)) {
      parts.offer(
        to,
        each.map(([logId]) => logId),
      );
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
    const last = releasing.map(({ each }) => each.owner.head);
    for (const { logId } of releasing) drop(logId);
    await journal.release(podId, last);
    // Others learn that no pod speaks for them before they are offered.
    listening?.speak();
    handedOver.check();
  };

  const handedOver = untilIdle(clock, () => held.size === 0 || isAlone);

  /** Has the log itself prove that logs are still this pod's, as far as that is of interest. */
  const prove = (): void => {
    const nowMs = clock.monotonic();
    for (const each of held.values()) {
      if (isWanted(each) && nowMs - provenAtMs(each) >= proveMs) each.owner.prove();
    }
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

  const poll = (offered: readonly number[] = []): void => {
    if (stopped) return;
    for (const logId of offered) offeredMs.set(logId, clock.monotonic());
    if (currentPass) isPollWanted = true;
    else {
      cancel();
      void run();
    }
  };

  const heldOf = (sessionId: string): Held | undefined => {
    const logs = heads.last.length;
    return logs === 0 ? undefined : held.get(logOf(sessionId, logs));
  };

  const provenAtMs = ({ provenMs, owner }: Held): number => Math.max(provenMs, owner.provenMs);
  // A pod that doesn't hear itself is missed by others, which may take its logs sooner than that.
  const isProven = (each: Held): boolean =>
    clock.monotonic() - (listening ? provenAtMs(each) : each.provenMs) < silentMs &&
    listening?.isHeard !== false;
  const isWanted = ({ wantedMs }: Held): boolean => clock.monotonic() - wantedMs < wantedForMs;
  const want = (each: Held): void => void (each.wantedMs = clock.monotonic());

  return {
    of: (sessionId) => heldOf(sessionId)?.owner,
    isFresh(sessionId) {
      const each = heldOf(sessionId);
      if (!each) return false;
      want(each);
      return isProven(each);
    },
    get areFresh() {
      if (!listening) return [...held.values()].every(isProven);
      // What was of interest is so while there is a caller that has to be sure.
      const wanted = [...held.values()].filter(isWanted);
      for (const each of wanted) want(each);
      return listening.isHeard && wanted.every(isProven);
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
    poll,
    async leave({ limitMs }) {
      if (stopped || held.size === 0) return;
      leaving = true;
      listening?.speak();
      const left = handedOver.within(limitMs);
      poll();
      await left;
    },
    async stop() {
      stopped = true;
      cancel();
      await currentPass;
      const others = [...parts.pods().keys()].filter((each) => each !== podId);
      if (held.size > 0) await giveUp([...held.keys()]).catch(() => {});
      for (const each of others) parts.offer(each, []);
    },
  };
}

function isSettled(podId: string, pods: ReadonlyMap<string, number>): boolean {
  return (pods.get(podId) ?? 0) >= settledMs;
}

/** A pod that has just started is slow at first, and gets its logs from others once it has settled. */
function settledAmong(podIds: readonly string[], pods: ReadonlyMap<string, number>): string[] {
  const settled = podIds.filter((each) => isSettled(each, pods));
  return settled.length > 0 ? settled : [...podIds];
}

function isSame(one: LiveHead, other: LiveHead): boolean {
  return (
    one.term === other.term &&
    one.offset === other.offset &&
    one.beat === other.beat &&
    one.owner === other.owner &&
    one.incarnation === other.incarnation
  );
}
