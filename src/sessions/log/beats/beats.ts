import type { Clock } from "../../../base/clock.ts";
import { messageOf } from "../../../base/errors.ts";
import type { Logger } from "../../../base/log.ts";
import type { BeatChannel } from "../../../bus/nats/beat-channel.ts";
import type { Fleet } from "../fleet.ts";
import type { Head, Listening, LiveHead, Log, Presence, Speech } from "../journal.ts";
import { placeLogs } from "../placement.ts";
import { type CodeAgents, createAgentSets, encodeAgents, maxAgentsBytes } from "./agents.ts";
import { type Beat, decodeBeat, encodeBeat, type SpokenLog } from "./beat.ts";
import { beatMs, createRoster, isFurther, silentMs, type Speaker } from "./roster.ts";

export type BeatsParts = {
  channel: BeatChannel;
  /** Says where logs stand that no pod speaks for. */
  journal: Pick<Log, "heads">;
  clock: Clock;
  log: Logger;
  /** The deployment. Beats of another are dropped. */
  clusterId: string;
  /** Undefined in a process that isn't a pod: it listens and sends nothing. */
  podId: string | undefined;
  host?: string | null;
  release: string;
  /** The agents in the code of this pod. */
  agents?: CodeAgents;
  /** Whether this pod reaches the database. Default: it does. */
  reachesStore?: () => boolean;
  /** The logs of this pod of which much isn't archived. Default: none. */
  backlogged?: () => readonly number[];
  /** For how long the oldest record of this pod's logs waits for the archive. Default: none does. */
  lagMs?: () => number;
};

/**
 * Presence by beats: every pod sends one four times a second, and hears those of all, its own too. They say
 * which pods are alive and which logs each has. This decides only which pod tries to take a log. What
 * excludes a second owner is the condition in every commit.
 */
export type Beats = Presence & {
  readonly listening: Listening;
  /** The pods that are heard. */
  readonly fleet: Fleet;
  /** All heads, from beats. Those of logs that no pod speaks for are read. */
  heads(): Promise<LiveHead[]>;
  /** Logs of other pods with a large backlog that this pod is the next to take, and where they stand. */
  standbyFor(): readonly Head[];
  /** How long ago it was that the archive had everything, as far as the pods say that have logs. */
  behindMs(): number;
  /** What was heard last of every pod that isn't missing. */
  present(): readonly Beat[];
  start(): void;
  close(): void;
};

const checkMs = beatMs / 2;
const questionLimitMs = 250;
/** A pod that hasn't told its agents is asked again after this long. */
const agentsAgainMs = 1_000;
/** A term that is further above the last one that was read isn't believed before it is read. */
const maxTermRise = 1_000;
const warnMs = 10_000;

type Claimed = Pick<Head, "logId" | "incarnation" | "term">;

export function createBeats(parts: BeatsParts): Beats {
  const { channel, journal, clock, log, clusterId, podId, host = null, release } = parts;
  const { agents = {}, reachesStore = () => true, backlogged = () => [], lagMs = () => 0 } = parts;
  const roster = createRoster(podId);
  const sets = createAgentSets();
  const own = encodeAgents(agents);
  /** The heads as the log said last. */
  let read: readonly Head[] = [];
  let reading: Promise<void> | undefined;
  let speech: (() => Speech) | undefined;
  /** What the last call of `beat` named, where nothing else says what this pod has. */
  let named: readonly Head[] = [];
  /** Own logs that were read since they were named, and those that turned out to be others'. */
  const confirmed = new Map<number, Claimed>();
  const refuted = new Map<number, Claimed>();
  /** Since when no pod speaks for a log. */
  const unspokenMs = new Map<number, number>();
  const queriedMs = new Map<string, number>();
  let waiters: { count: number; resolve: () => void }[] = [];
  let count = 0;
  let dropped = 0;
  let warnedMs = -Infinity;
  let state: "idle" | "started" | "closed" = "idle";
  let cancelBeat = () => {};
  let cancelCheck = () => {};
  let stops: (() => void)[] = [];

  const claims = (): readonly Head[] =>
    (speech?.().heads ?? named).filter((each) => !isSame(refuted.get(each.logId), each));
  const claimOf = (logId: number): Head | undefined =>
    claims().find((each) => each.logId === logId);

  const speak = (): void => {
    if (podId === undefined || state !== "started") return;
    const lag = Math.ceil(lagMs());
    cancelBeat();
    cancelBeat = clock.after(beatMs, speak);
    roster.sent(++count, clock.monotonic());
    channel.publish(
      encodeBeat({
        clusterId,
        podId,
        host,
        release,
        count,
        isDraining: speech?.().isDraining ?? false,
        logs: claims().map(toSpoken),
        agents: own.hash,
        reachesStore: reachesStore(),
        backlogged: backlogged(),
        ...(lag > 0 && { lagMs: lag }),
      }),
    );
  };

  const drop = (why: string): void => {
    dropped++;
    const nowMs = clock.monotonic();
    if (nowMs - warnedMs < warnMs) return;
    warnedMs = nowMs;
    log.warn({ beats: dropped, why }, "beats dropped: give Flotilla a NATS account of its own");
    dropped = 0;
  };

  const receive = (data: Uint8Array): void => {
    if (state !== "started") return;
    const beat = decodeBeat(data);
    if (!beat) return drop("not a beat of this release");
    if (beat.clusterId !== clusterId) return drop("of another deployment");
    const heard = roster.hear(beat, clock.monotonic());
    if (heard === "crowded") return drop("of more pods than a deployment has");
    if (heard === "late") return;
    const waited = waiters.filter((each) => each.count <= roster.echo);
    waiters = waiters.filter((each) => each.count > roster.echo);
    for (const { resolve } of waited) resolve();
    if (!sets.has(beat.agents)) void learnAgents(beat);
  };

  /** Asks a pod for its agents, once for all that have the same. */
  const learnAgents = async ({ podId: from, agents: hash }: Beat): Promise<void> => {
    const nowMs = clock.monotonic();
    if (nowMs - (queriedMs.get(hash) ?? -Infinity) < agentsAgainMs) return;
    for (const [each, atMs] of queriedMs) if (nowMs - atMs >= agentsAgainMs) queriedMs.delete(each);
    queriedMs.set(hash, nowMs);
    const answer = await channel.ask(from, { limitMs: questionLimitMs });
    if (answer.type === "answered" && !sets.add(hash, answer.data)) drop("with other agents");
  };

  /** Asks pods with logs that missed their beats whether they are there. */
  const check = (): void => {
    cancelCheck = clock.after(checkMs, check);
    const nowMs = clock.monotonic();
    noteUnspoken(nowMs);
    for (const each of roster.takeDoubted(nowMs)) {
      void channel.ask(each, { limitMs: questionLimitMs }).then(({ type }) => {
        roster.answered(each, type, clock.monotonic());
      });
    }
  };

  const noteUnspoken = (nowMs: number): void => {
    for (const head of read) {
      if (isSpokenFor(head)) unspokenMs.delete(head.logId);
      else if (!roster.isHeard(nowMs) || !unspokenMs.has(head.logId))
        unspokenMs.set(head.logId, nowMs);
    }
  };

  /** The one pod that speaks for a log. Where two do in one term, the log is read. */
  const speakerOf = ({ logId, incarnation, term }: Head): Speaker | undefined => {
    const [speaker, another] = roster.speakersOf(logId, incarnation);
    if (!speaker || another) return undefined;
    return speaker.log.term <= term + maxTermRise ? speaker : undefined;
  };

  const isSpokenFor = (head: Head): boolean => {
    const claim = claimOf(head.logId);
    if (claim?.incarnation === head.incarnation && claim.term >= head.term) return true;
    const speaker = speakerOf(head);
    if (!speaker || speaker.log.term < head.term) return false;
    // It was released behind what its owner has last said of it.
    if (head.owner === null && !isFurther(speaker.log, head)) return false;
    return roster.missingSinceMs(speaker.pod.beat.podId, clock.monotonic()) === undefined;
  };

  /** Reads all heads. What can't be read stays as it was known. */
  const look = (): Promise<void> => (reading ??= lookOnce().finally(() => (reading = undefined)));
  const lookOnce = async (): Promise<void> => {
    const claimed = claims();
    const before = read;
    try {
      read = await journal.heads();
    } catch (error) {
      if (read.length === 0) throw error;
      log.debug({ error: messageOf(error) }, "reading the heads of session logs failed");
      return;
    }
    for (const claim of claimed) {
      if (isLost(claim, read[claim.logId], podId)) refuted.set(claim.logId, claim);
      else confirmed.set(claim.logId, claim);
    }
    const nowMs = clock.monotonic();
    for (const head of read) {
      const known = before[head.logId];
      // A pod that has just taken it speaks for it with its next beat.
      if (known && isFurther(head, { ...known, offset: Infinity })) unspokenMs.delete(head.logId);
    }
    noteUnspoken(nowMs);
  };

  /** Whether another pod says that it has a log of this one's. A beat alone takes no log from its owner. */
  const isContested = ({ logId, incarnation, term }: Head): boolean =>
    roster
      .speakersOf(logId, incarnation)
      .some(({ pod, log: spoken }) => pod.beat.podId !== podId && spoken.term >= term);

  const headsNow = async (): Promise<LiveHead[]> => {
    if (read.length === 0 || !read.every(isSpokenFor)) await look();
    return read.map(toLive);
  };

  const toLive = (head: Head): LiveHead => {
    const speaker = speakerOf(head);
    const claim = claimOf(head.logId);
    const isMissing =
      speaker && roster.missingSinceMs(speaker.pod.beat.podId, clock.monotonic()) !== undefined;
    // What a pod that is missing has said may be of messages that servers have lost since: its log is taken
    // where it ends.
    const spoken = speaker && !isMissing ? headOf(speaker) : undefined;
    const [latest] = [head, spoken, claim]
      .filter((each) => each !== undefined)
      .filter(({ incarnation }) => incarnation === head.incarnation)
      .toSorted((one, other) => (isFurther(other, one) ? 1 : isFurther(one, other) ? -1 : 0));
    const isSpeakers = spoken?.owner === latest!.owner && spoken.term === latest!.term;
    const isLost = isMissing && isFurther(speaker.log, latest!);
    return {
      ...latest!,
      beat: isSpeakers ? speaker!.pod.beat.count : 0,
      ...(isLost && { spoken: { term: speaker.log.term, offset: speaker.log.offset } }),
    };
  };

  /** Waits until this pod has heard its last beat, or for as long as until the next. */
  const heardBack = (): Promise<void> => {
    if (podId === undefined || roster.echo >= count) return Promise.resolve();
    const { promise, resolve } = Promise.withResolvers<void>();
    const cancel = clock.after(beatMs, resolve);
    waiters.push({ count, resolve: () => (cancel(), resolve()) });
    return promise;
  };

  const ready = () => roster.present(clock.monotonic()).filter(({ beat }) => !beat.isDraining);
  const hasAgent =
    (name: string) =>
    (beat: Beat): boolean =>
      Object.hasOwn(sets.get(beat.agents) ?? {}, name);

  return {
    async beat(_, heads) {
      named = heads;
      for (const [logId, each] of refuted) {
        if (!heads.some((head) => head.logId === logId && isSame(each, head)))
          refuted.delete(logId);
      }
      const isNew = (head: Head): boolean => !isSame(confirmed.get(head.logId), head);
      if (heads.some((head) => isNew(head) || isContested(head))) await look();
      speak();
      await heardBack();
      const all = await headsNow();
      const owned = heads.filter((head) => !isSame(refuted.get(head.logId), head));
      return { owned: owned.map(({ logId }) => logId).toSorted((a, b) => a - b), heads: all };
    },

    listening: {
      speakFor: (source) => void (speech = source),
      speak,
      get isHeard() {
        return roster.isHeard(clock.monotonic());
      },
      freeSinceMs({ logId, owner }) {
        const nowMs = clock.monotonic();
        const missingMs = owner === null ? undefined : roster.missingSinceMs(owner, nowMs);
        if (missingMs !== undefined) return missingMs;
        const head = read[logId];
        if (head && isSpokenFor(head)) return undefined;
        // The owner is there and doesn't speak for it, or was never heard.
        const sinceMs = unspokenMs.get(logId);
        if (sinceMs === undefined || !roster.isHeard(nowMs)) return undefined;
        const freeMs = Math.max(sinceMs, roster.listensFromMs) + silentMs;
        return nowMs >= freeMs ? freeMs : undefined;
      },
    },

    heads: headsNow,
    behindMs() {
      const nowMs = clock.monotonic();
      const behind = roster
        .present(nowMs)
        .filter(({ beat }) => beat.logs.length > 0)
        // How long a beat was on its way isn't known: for less time than there is between two, as a rule.
        .map(({ beat, heardMs }) => nowMs - heardMs + beatMs + (beat.lagMs ?? 0));
      return Math.max(0, ...behind);
    },
    present: () => roster.present(clock.monotonic()).map(({ beat }) => beat),

    standbyFor() {
      const pods = ready().map(({ beat }) => beat.podId);
      if (podId === undefined || !pods.includes(podId)) return [];
      return roster.present(clock.monotonic()).flatMap((pod) => {
        const { podId: owner, logs, backlogged: behind } = pod.beat;
        if (owner === podId || behind.length === 0) return [];
        // As owners are chosen once that pod is missing.
        const next = placeLogs(read.length, pods.filter((each) => each !== owner).toSorted());
        return logs
          .filter(({ logId }) => behind.includes(logId) && next[logId] === podId)
          .map((log) => headOf({ pod, log }));
      });
    },

    fleet: {
      pods() {
        const nowMs = clock.monotonic();
        return new Map(ready().map(({ beat, sinceMs }) => [beat.podId, nowMs - sinceMs]));
      },
      withAgent: (name) =>
        ready()
          .map(({ beat }) => beat)
          .filter(hasAgent(name))
          .map((beat) => beat.podId),
      factsOf(name) {
        const found = roster.present(clock.monotonic()).find(({ beat }) => hasAgent(name)(beat));
        return found && sets.get(found.beat.agents)?.[name];
      },
      // What is heard is never older than a beat.
      refresh: async () => {},
      start: () => {},
      close: () => {},
    },

    start() {
      if (state !== "idle") return;
      state = "started";
      if (own.data.length > maxAgentsBytes) {
        log.warn({ bytes: own.data.length }, "too many agents in code: other pods won't know them");
      }
      sets.add(own.hash, own.data);
      stops = [channel.subscribe(receive)];
      if (podId !== undefined) stops.push(channel.serve(podId, () => own.data));
      check();
      speak();
    },
    close() {
      state = "closed";
      cancelBeat();
      cancelCheck();
      for (const stop of stops) stop();
      for (const { resolve } of waiters) resolve();
      waiters = [];
    },
  };
}

function toSpoken({ logId, incarnation, term, offset, recordId }: Head): SpokenLog {
  return { logId, incarnation, term, offset, recordId };
}

function headOf({ pod, log }: Speaker): Head {
  return { ...log, owner: pod.beat.podId, host: pod.beat.host };
}

function isSame(one: Claimed | undefined, other: Claimed): boolean {
  return one?.incarnation === other.incarnation && one.term === other.term;
}

/**
 * Whether a log was taken from the pod that claims it, or released, or has another life. A head that is
 * older than the claim says nothing: the server that answered may be behind.
 */
function isLost(claim: Claimed, seen: Head | undefined, podId: string | undefined): boolean {
  if (!seen) return false;
  if (seen.incarnation !== claim.incarnation) return true;
  if (seen.term !== claim.term) return seen.term > claim.term;
  return seen.owner !== podId;
}
