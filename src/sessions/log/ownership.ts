import { type Clock, sleep } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Logger } from "../../base/log.ts";
import { settledWithin, untilIdle } from "../../base/timeout.ts";
import { createFreeLogs } from "./free-logs.ts";
import type { Heads } from "./heads.ts";
import { logOf, placeLogs, rankPods } from "./placement.ts";
import type { Head, Listening, LiveHead, Log, Presence, Recovered } from "./journal.ts";
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
  /** How many logs this pod has released, and keeps until nothing of them can be lost with it. */
  readonly kept: number;
  /** Creates the logs if there are none, and polls at once. */
  awaken(): Promise<void>;
  /** Polls at once, because a log may be free. Those that this pod was offered it takes before others do. */
  poll(offered?: readonly number[]): void;
  /**
   * Hands all logs to other pods and takes none any more. Resolves when they are handed over, or no pod
   * takes them, or the limit is over: this pod then keeps the rest until it is stopped.
   */
  leave(options: { limitMs: number }): Promise<void>;
  /** The logs are moved to another place: none of them is this pod's any more. */
  letGo(): void;
  stop(): Promise<void>;
};

export type OwnersParts = {
  podId: string;
  host: string | null;
  journal: Pick<Log, "create" | "take" | "recover" | "release" | "kept">;
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
/** How long a pod that stops waits for logs that it keeps, and how often it releases them again. */
const keptLimitMs = 5_000;
const keptPauseMs = 250;

export function createOwners(parts: OwnersParts): Owners {
  const { podId, journal, presence, heads, clock, log } = parts;
  /** Logs may be moved to where pods hear each other, or back. */
  const listeningNow = (): Listening | undefined => presence.listening;
  const pace = () => (listeningNow() ? paceOfBeats : paceOfRows);
  const held = new Map<number, Held>();
  /** Logs that this pod is about to take, up to when it serves them. */
  const taking = new Map<number, Promise<void>>();
  let takeFailure: unknown;
  /** Logs that are this pod's and not yet served, because they are being recovered. */
  const recovering = new Map<number, Head>();
  const free = createFreeLogs({ ...parts, listening: listeningNow, silentMs, gapMs });
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
  /** Passes that have failed one after the other. */
  let failures = 0;
  /** How often all logs were let go of. What was begun before isn't served. */
  let moves = 0;
  let speaksBy: Listening | undefined;

  const kept = (): readonly Head[] => journal.kept?.() ?? [];
  const isDraining = (): boolean => leaving || stopped || parts.drains?.() === true;
  const listen = (): Listening | undefined => {
    const listening = listeningNow();
    if (listening === speaksBy) return listening;
    speaksBy = listening;
    listening?.speakFor(() => ({
      heads: [
        // A log that was just recovered is in both for a moment, and a beat names it once.
        ...[...recovering.values()].filter(({ logId }) => !held.has(logId)),
        ...[...held.values()].map(({ owner }) => owner.head),
        ...kept().filter(({ logId }) => !held.has(logId) && !recovering.has(logId)),
      ],
      isDraining: isDraining(),
    }));
    return listening;
  };
  listen();

  const pass = async (): Promise<void> => {
    const startedMs = clock.monotonic();
    listen();
    const all = await beat();
    const listening = listen();
    heads.put(all, startedMs);
    free.see(all);
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
    const keeps = new Set(kept().map(({ logId }) => logId));
    const due = all.filter((head) => {
      if (isLeaving || held.has(head.logId) || keeps.has(head.logId)) return false;
      if (taking.has(head.logId) || !free.isFree(head)) return false;
      const rank = rankPods(head.logId, [podId, ...pods.keys()]).indexOf(podId);
      const isNext = desired[head.logId] === podId || isOffered(head.logId);
      const first = isNext ? 0 : Math.max(1, rank);
      return free.forMs(head) >= first * pace().rankMs;
    });
    // A log that doesn't answer, such as one without a leader, holds up no other.
    await settledWithin(clock, pace().passMs, Promise.all(due.map(startTake)));
    if (!stopped) await handOver(desired, pods);
    const failure = takeFailure;
    takeFailure = undefined;
    if (failure !== undefined) throw failure;
  };

  /** Never rejects: the next pass that ends says what failed. */
  const startTake = (seen: LiveHead): Promise<void> => {
    const taken = take(seen)
      .catch((error: unknown) => void (takeFailure = error))
      .finally(() => taking.delete(seen.logId));
    taking.set(seen.logId, taken);
    return taken;
  };

  /**
   * Leaves out pods whose processes have ended. They stay listed for a while, but no pod waits for them.
   */
  const othersAlive = (all: readonly Head[]): ReadonlyMap<string, number> => {
    const ended = new Set(all.filter(free.hasEnded).map(({ owner }) => owner));
    return new Map([...parts.pods()].filter(([id]) => !ended.has(id)));
  };

  const isOffered = (logId: number): boolean =>
    clock.monotonic() - (offeredMs.get(logId) ?? -Infinity) < silentMs;

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
        if (!listeningNow()) each.provenMs = sentMs;
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

  const take = async (seen: LiveHead): Promise<void> => {
    const { logId } = seen;
    const owner = { podId, host: parts.host, recordId: parts.ids.next() };
    const silent = free.isAtOnce(seen)
      ? undefined
      : { podId: seen.owner!, sinceMs: free.standsSinceMs(logId) };
    const sentMs = clock.monotonic();
    const place = moves;
    const head = await journal.take(seen, owner);
    if (!head || place !== moves) return;
    if (seen.spoken) {
      // The log has taken the message right behind `seen`, so what its owner had beyond it is gone.
      const fields = { log: logId, from: seen.offset + 1, through: seen.spoken.offset };
      log.error(fields, "servers have lost messages of a session log, and its owner is gone");
    }
    recovering.set(logId, head);
    try {
      await serve(seen, head, { sentMs, silent, place });
    } finally {
      recovering.delete(logId);
    }
  };

  /** Serves a log that was taken, once it is recovered. */
  const serve = async (
    seen: Head,
    head: Head,
    { sentMs, silent, place }: { sentMs: number; silent: SilentOwner | undefined; place: number },
  ): Promise<void> => {
    const { logId } = head;
    const takenMs = clock.monotonic();
    const recovered = await journal.recover(head);
    const gone = free.hasEnded(seen) ? seen.owner : null;
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
    if (place !== moves) return owned.end();
    if (stopped) {
      owned.end();
      return journal.release(podId, [owned.owner.head]);
    }
    held.set(logId, { ...owned, provenMs: sentMs, wantedMs: clock.monotonic() });
    offeredMs.delete(logId);
    listeningNow()?.speak();
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
    listeningNow()?.speak();
    handedOver.check();
  };

  const handedOver = untilIdle(clock, () => isAlone || (held.size === 0 && kept().length === 0));

  /** What only this pod has of a log ends with its process, so it isn't left before the log has it. */
  const releaseKept = async (): Promise<void> => {
    const endMs = clock.monotonic() + keptLimitMs;
    while (kept().length > 0) {
      const leftMs = endMs - clock.monotonic();
      if (leftMs <= 0) {
        const logs = kept().map(({ logId }) => logId);
        log.error({ logs }, "this process ends, and has messages of session logs that they lack");
        return;
      }
      await settledWithin(clock, leftMs, journal.release(podId, kept())).catch(() => {});
      if (kept().length > 0) await sleep(clock, keptPauseMs);
    }
  };

  /** Has the log itself prove that logs are still this pod's, as far as that is of interest. */
  const prove = (): void => {
    const nowMs = clock.monotonic();
    for (const each of held.values()) {
      if (isWanted(each) && nowMs - provenAtMs(each) >= proveMs) each.owner.prove();
    }
  };

  const run = (): Promise<void> =>
    (currentPass ??= pass()
      .then(() => void (failures = 0))
      .catch((error: unknown) => {
        // Once for an outage, during which passes are frequent.
        if (!stopped && failures++ === 0)
          log.warn({ error: messageOf(error) }, "session log pass failed, retrying");
      })
      .finally(() => {
        currentPass = undefined;
        if (stopped) return;
        const delayMs = heads.last.length === 0 ? dormantMs : pace().passMs;
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
  const isProven = (each: Held): boolean => {
    const listening = listeningNow();
    const atMs = listening ? provenAtMs(each) : each.provenMs;
    return clock.monotonic() - atMs < silentMs && listening?.isHeard !== false;
  };
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
      const listening = listeningNow();
      if (!listening) return [...held.values()].every(isProven);
      // What was of interest is so while there is a caller that has to be sure.
      const wanted = [...held.values()].filter(isWanted);
      for (const each of wanted) want(each);
      return listening.isHeard && wanted.every(isProven);
    },
    get owned() {
      return [...held.values()].map(({ owner }) => owner);
    },
    get kept() {
      return kept().length;
    },
    async awaken() {
      if (heads.last.length > 0 || stopped) return;
      await journal.create(parts.logs);
      await currentPass;
      if (!stopped) await run();
    },
    poll,
    async leave({ limitMs }) {
      if (stopped || (held.size === 0 && kept().length === 0)) return;
      leaving = true;
      listeningNow()?.speak();
      const left = handedOver.within(limitMs);
      poll();
      await left;
    },
    letGo() {
      moves++;
      for (const logId of held.keys()) lose(logId);
      handedOver.check();
    },
    async stop() {
      stopped = true;
      cancel();
      await currentPass;
      await Promise.all(taking.values());
      const others = [...parts.pods().keys()].filter((each) => each !== podId);
      if (held.size > 0) await giveUp([...held.keys()]).catch(() => {});
      await releaseKept();
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
