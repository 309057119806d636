import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf, storeAwayCodes } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { settledWithin } from "../../base/timeout.ts";
import type { ArchiveState } from "../../sessions/log/archive/state.ts";
import type { Fleet } from "../../sessions/log/fleet.ts";
import type { MetaState } from "../../sessions/log/jetstream/streams.ts";
import type { Journal, Log, Presence, Reads } from "../../sessions/log/journal.ts";
import { type LogPlace, logPlaceOf } from "../../sessions/log/place.ts";
import type { Ahead } from "../../sessions/list.ts";
import type { Database } from "../../store/database.ts";

/** The logs of sessions in one place, as a process uses them there. */
export type LogSide = {
  readonly place: LogPlace["place"];
  readonly journal: Journal & Ahead;
  /** The same by cold reads, for clients that follow or read. */
  readonly cold: Reads;
  readonly presence: Presence;
  readonly fleet: Fleet;
  /** Where heads are read that a command needs. */
  readonly headSource: Pick<Log, "heads">;
  /** Begins to hear other pods, so that all are known when logs are taken. */
  listen(): void;
  /** Begins to move what the logs hold into the store, where they aren't in it. */
  start(): void;
  stop(): Promise<void>;
  state(): ArchiveState | undefined;
  /** What the streams say of the logs as a whole. */
  meta(): Promise<MetaState | undefined>;
};

export type PlacedLogsParts = {
  first: LogSide;
  /** Makes the other sides, when logs are moved there. */
  openStored: () => LogSide;
  openStreams: () => Promise<LogSide>;
  database: Pick<Database, "read">;
  clock: Clock;
  log: Logger;
  /** How old the last proof may be that the logs are in the database, before anything is read there. */
  proofMs: number;
  /** The logs leave their place: what this process has of them isn't served any more. */
  onLeave?: () => void;
  /** They are in their new place. */
  onArrived?: () => void;
};

/** The logs of sessions wherever the store has them, also while they are moved. */
export type PlacedLogs = Omit<LogSide, "listen" | "meta" | "place"> & {
  readonly place: LogPlace["place"];
  /** Whether they have left one place, and aren't in the other yet. */
  readonly isMoving: boolean;
  /** Opens what logs that are to be moved to streams need here, and refuses what can't work. */
  prepare(): Promise<void>;
  /** Looks where the logs are. Once it resolves, nothing is served from a place that they had left before. */
  look(): Promise<void>;
};

/** How long a call waits for logs that are being moved. */
const waitMs = 10_000;
const soonMs = 50;
const laterMs = 1_000;
/** How long logs are expected soon. */
const soonForMs = 10_000;
/** Logs on streams are looked after this often, in case that no promotion has told. */
const watchMs = 2_000;
/** What was opened for a move that doesn't come is closed. */
const unusedMs = 120_000;

/**
 * Follows the logs of sessions from the database to streams and back. The store says where they are, and the
 * streams say whether they may be taken there. What is asked meanwhile waits.
 */
export function createPlacedLogs(parts: PlacedLogsParts): PlacedLogs {
  const { database, clock, log, proofMs } = parts;
  let current = parts.first;
  let provenMs = -Infinity;
  let moving: Promise<void> | undefined;
  /** Resolves when the move can't go on by itself, and why. */
  let stuck = Promise.withResolvers<void>();
  let failure: unknown;
  let prepared: Promise<LogSide> | undefined;
  let cancelUnused = () => {};
  let cancelWatch = () => {};
  /** Reads under way, each of which begins anew where the logs go. */
  const waiting = new Set<() => void>();
  const ended = new WeakSet<LogSide>();
  let isStarted = false;
  let isStopped = false;

  const openStreams = (): Promise<LogSide> => {
    cancelUnused();
    prepared ??= parts.openStreams().then((side) => (side.listen(), side));
    const own = prepared;
    own.catch(() => {
      if (prepared === own) prepared = undefined;
    });
    return own;
  };

  const closeUnused = async (): Promise<void> => {
    cancelUnused();
    const unused = prepared;
    prepared = undefined;
    await (await unused?.catch(() => undefined))?.stop();
  };

  /** Whether the logs have left the place where this process has them. */
  const haveLeft = async (from: LogSide): Promise<boolean> => {
    if (from.place === "sql") return (await logPlaceOf(database)).place === "nats";
    const state = await from.meta();
    // They may be on their way to other streams by the time that this process asks again.
    return state === "closed" || state === "moving";
  };

  const look = async (): Promise<void> => {
    if (moving || isStopped) return;
    const from = current;
    const sentMs = clock.monotonic();
    const left = await haveLeft(from);
    if (moving || current !== from || isStopped) return;
    if (!left) return void (provenMs = Math.max(provenMs, sentMs));
    log.info({ from: from.place }, "the logs of sessions are being moved");
    parts.onLeave?.();
    for (const leave of waiting) leave();
    stuck = Promise.withResolvers();
    failure = undefined;
    moving = follow(from).finally(() => (moving = undefined));
  };

  /**
   * The side where logs may be taken. They may have been moved there and back before this process has looked: then
   * it is the one that they had left, or other streams than those.
   */
  const arrived = async (from: LogSide): Promise<LogSide | undefined> => {
    if ((await logPlaceOf(database)).place === "sql") {
      return from.place === "sql" ? from : parts.openStored();
    }
    // Two sides on streams would both answer for their logs.
    if (from.place === "nats") {
      if ((await from.meta()) !== "live") return undefined;
      await stopOnce(from);
    }
    const next = await openStreams();
    if ((await next.meta()) !== "live") return undefined;
    prepared = undefined;
    return next;
  };

  const stopOnce = async (side: LogSide): Promise<void> => {
    if (ended.has(side)) return;
    ended.add(side);
    await side.stop();
  };

  const follow = async (from: LogSide): Promise<void> => {
    const sinceMs = clock.monotonic();
    let hasWarned = false;
    while (!isStopped) {
      const sentMs = clock.monotonic();
      const isSoon = sentMs - sinceMs < soonForMs;
      try {
        const next = await arrived(from);
        if (next) return arrive(from, next, sentMs);
      } catch (error) {
        const fields = { error: messageOf(error) };
        if (!hasWarned) log.warn(fields, "the logs of sessions can't be used, retrying");
        hasWarned = true;
        failure = error;
        if (!hasCode(error, ...storeAwayCodes)) stuck.resolve();
      }
      await sleep(clock, isSoon ? soonMs : laterMs);
    }
  };

  const arrive = (from: LogSide, next: LogSide, atMs: number): void => {
    if (isStopped) return void stopOnce(next).catch(() => {});
    current = next;
    provenMs = atMs;
    if (next !== from) {
      if (isStarted) next.start();
      void stopOnce(from).catch(() => {});
    }
    log.info({ to: next.place }, "the logs of sessions have moved");
    // After what waits for the move has seen it.
    queueMicrotask(() => parts.onArrived?.());
  };

  /** Where the logs are for certain, or were within `proofMs`. */
  const here = async (): Promise<LogSide> => {
    const isProven = (): boolean =>
      current.place === "nats" || clock.monotonic() - provenMs < proofMs;
    if (!moving && !isProven()) await look();
    if (moving) await settledWithin(clock, waitMs, Promise.race([moving, stuck.promise]));
    if (moving) throw failure ?? beingMoved();
    if (isStopped) throw wasStopped();
    return current;
  };

  /** Reads where the logs are. In a place that they leave it might wait in vain for an owner. */
  const read: ReadAt = async (call) => {
    for (;;) {
      const side = await here();
      const left = Promise.withResolvers<typeof hasLeft>();
      const leave = () => left.resolve(hasLeft);
      waiting.add(leave);
      try {
        const found = await Promise.race([call(side), left.promise]);
        if (found !== hasLeft) return found;
      } catch (error) {
        // A pod that has followed before this process answers nothing any more in the old place.
        if (!moving && side === current && side.place === "nats") await look().catch(() => {});
        if (!moving && side === current) throw error;
      } finally {
        waiting.delete(leave);
      }
    }
  };

  const watch = (): void => {
    // A look that was under way at the stop ends after it.
    if (isStopped) return;
    cancelWatch = clock.after(watchMs, () => {
      const looked = current.place === "nats" ? look() : Promise.resolve();
      void looked.catch(() => {}).finally(watch);
    });
  };

  /** Heads, of which the database has none where the logs aren't in it. */
  const readHeads = async <Found>(
    read: (side: LogSide) => Promise<Found>,
    headsOf: (found: Found) => readonly unknown[],
  ): Promise<Found> => {
    const side = await here();
    const sentMs = clock.monotonic();
    const found = await read(side);
    if (side.place === "sql") {
      if (headsOf(found).length === 0) await look();
      else provenMs = Math.max(provenMs, sentMs);
    }
    if (moving || side !== current) throw beingMoved();
    return found;
  };

  const journal: Journal & Ahead = {
    get maxRecordBytes() {
      return current.journal.maxRecordBytes;
    },
    heads: () =>
      readHeads(
        ({ headSource }) => headSource.heads(),
        (found) => found,
      ),
    create: async (logs) => (await here()).journal.create(logs),
    take: async (seen, owner) => (await here()).journal.take(seen, owner),
    recover: async (head) => (await here()).journal.recover(head),
    commit: async (at, record) => (await here()).journal.commit(at, record),
    release: async (podId, heads) => (await here()).journal.release(podId, heads),
    async prove(at, recordId) {
      const { journal: own } = await here();
      return own.prove ? own.prove(at, recordId) : { type: "fenced" };
    },
    kept: () => current.journal.kept?.() ?? [],
    whenFree: () => current.journal.whenFree?.(),
    ...readsOf(read, ({ journal: own }) => own),
    unarchivedFacts: (sessionId) => read(({ journal: own }) => own.unarchivedFacts(sessionId)),
    behindMs: () => current.journal.behindMs(),
  };

  return {
    get place() {
      return current.place;
    },
    get isMoving() {
      return moving !== undefined;
    },
    journal,
    cold: readsOf(read, ({ cold }) => cold),
    headSource: journal,
    presence: {
      beat: (podId, heads) =>
        readHeads(
          ({ presence }) => presence.beat(podId, heads),
          (found) => found.heads,
        ),
      get listening() {
        return current.presence.listening;
      },
    },
    fleet: {
      pods: () => current.fleet.pods(),
      withAgent: (name) => current.fleet.withAgent(name),
      factsOf: (name) => current.fleet.factsOf(name),
      refresh: () => current.fleet.refresh(),
      // It is started and closed with its side.
      start() {},
      close() {},
    },
    state: () => current.state(),
    look: async () => {
      await look();
    },
    async prepare() {
      if (current.place === "nats") return;
      await openStreams();
      if (isStopped) throw wasStopped();
      // Another question may have come meanwhile.
      cancelUnused();
      cancelUnused = clock.after(unusedMs, () => {
        if (!moving) void closeUnused();
      });
    },
    start() {
      isStarted = true;
      current.start();
      watch();
    },
    async stop() {
      isStopped = true;
      cancelWatch();
      await closeUnused();
      await stopOnce(current);
    },
  };
}

type ReadAt = <Found>(call: (side: LogSide) => Promise<Found>) => Promise<Found>;

const hasLeft = Symbol("left");

function readsOf(read: ReadAt, at: (side: LogSide) => Reads): Reads {
  return {
    header: (sessionId, options) => read((side) => at(side).header(sessionId, options)),
    storedIds: (ids) => read((side) => at(side).storedIds(ids)),
    entries: (sessionId, page) => read((side) => at(side).entries(sessionId, page)),
    tail: (sessionId, page) => read((side) => at(side).tail(sessionId, page)),
    newest: (sessionId, messageId) => read((side) => at(side).newest(sessionId, messageId)),
    checkpoint: (sessionId) => read((side) => at(side).checkpoint(sessionId)),
    steps: (turn) => read((side) => at(side).steps(turn)),
    stepValue: (turn, key) => read((side) => at(side).stepValue(turn, key)),
    turns: (sessionId, page) => read((side) => at(side).turns(sessionId, page)),
  };
}

function wasStopped(): FlotillaError {
  return new FlotillaError("closed", "the pod was stopped");
}

function beingMoved(): FlotillaError {
  return new FlotillaError("store_unavailable", "the logs of sessions are being moved", {
    retryAfterMs: 1_000,
  });
}
