import { FlotillaError } from "../../base/errors.ts";
import type { Bus } from "../../bus/bus.ts";
import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import type { Entry } from "../../protocol/message.ts";
import type { Header } from "../header.ts";
import type { Journal } from "../journal/journal.ts";
import type { LiveChunks, Runner } from "../running.ts";
import type { Joined, Place, SessionEvent, Sink } from "../service.ts";
import { createColdReads } from "./cold-reads.ts";
import { createFeed, type Feed, missing } from "./feed.ts";
import { createRing, type Room } from "./ring.ts";
import { type View, viewOf } from "./view.ts";

/**
 * Brings what happens in sessions to the clients of this process, wherever it happens. Joining and live
 * delivery are one operation: a client is subscribed first, then told what it missed, then it is live.
 */
export type Hub = {
  join(sessionId: string, place: Place, sink: Sink<SessionEvent>): Joined;
  /** Called by the local owner after each commit, before its effects. Cheap where nobody follows. */
  committed(batch: readonly CommittedSession[]): void;
  /** Called by the local runner with each part of an answer. */
  chunks(live: LiveChunks): void;
  close(): void;
};

export type CommittedSession = {
  readonly sessionId: string;
  readonly entries: readonly Entry[];
  readonly header: Header;
  readonly incarnation: string;
  readonly logId: number;
  readonly offset: number;
};

export type HubParts = {
  bus: Bus;
  journal: Pick<Journal, "header" | "entries">;
  clock: Clock;
  log: Logger;
  /** This process owns the session's log right now, and its last beat is fresh. */
  isLocal: (sessionId: string) => boolean;
  /** The pod that owns the log; undefined while none does. */
  ownerOf: (sessionId: string) => Promise<string | undefined>;
  /** What the local owner has committed, if it has it in memory. */
  lookLocal: (sessionId: string) => { header: Header; incarnation: string } | undefined;
  incarnationOf: (sessionId: string) => Promise<string>;
  /** This pod's, if it runs turns. */
  runner?: Pick<Runner, "snapshot">;
  limits?: Partial<HubLimits>;
};

export type HubLimits = {
  /** Reads of the journal at once. */
  coldReads: number;
  pageEntries: number;
  pageBytes: number;
  /** What is kept of a session's newest entries, and of all sessions together. */
  ringBytes: number;
  ringsBytes: number;
  /** How long a session that nobody follows any more is kept. */
  lingerMs: number;
};

const defaults: HubLimits = {
  coldReads: 8,
  pageEntries: 500,
  pageBytes: 256 * 1024,
  ringBytes: 256 * 1024,
  ringsBytes: 64 * 1024 * 1024,
  lingerMs: 2_000,
};

const tickMs = 1_000;

export function createHub(parts: HubParts): Hub {
  const { journal, clock } = parts;
  const limits = { ...defaults, ...parts.limits };
  const feeds = new Map<string, Feed>();
  const coldRead = createColdReads(limits.coldReads);
  let cancelTick: (() => void) | undefined;
  let closed = false;

  const room: Room = {
    usedBytes: 0,
    maxBytes: limits.ringsBytes,
    makeRoom() {
      for (const { ring } of feeds.values()) {
        if (room.usedBytes <= room.maxBytes * 0.75) return;
        ring.clear();
      }
    },
  };

  const readView = (sessionId: string): Promise<View | undefined> =>
    coldRead(async () => {
      const [header, incarnation] = await Promise.all([
        journal.header(sessionId),
        parts.incarnationOf(sessionId),
      ]);
      return header && viewOf(header, incarnation);
    });

  const open = (sessionId: string): Feed => {
    const pages = new Map<number, Promise<Entry[]>>();
    const readPage = (after: number): Promise<Entry[]> => {
      // Those who come back together want the same page.
      const underWay = pages.get(after);
      if (underWay) return underWay;
      const page = { after, limit: limits.pageEntries, maxBytes: limits.pageBytes };
      const read = coldRead(() => journal.entries(sessionId, page)).finally(() =>
        pages.delete(after),
      );
      pages.set(after, read);
      return read;
    };
    const feed = createFeed(sessionId, {
      ring: createRing(room, limits.ringBytes),
      monotonic: clock.monotonic,
      page: readPage,
      readView: () => readView(sessionId),
      answerSoFar: () => parts.runner?.snapshot(sessionId),
      onView: () => {},
      onOver() {
        if (feeds.get(sessionId) === feed) feeds.delete(sessionId);
      },
    });
    feeds.set(sessionId, feed);
    find(feed).catch((error: unknown) => feed.view ?? feed.fail(error));
    schedule();
    return feed;
  };

  /** Finds out how far a session is, from whoever knows. */
  const find = async (feed: Feed): Promise<void> => {
    const local = parts.isLocal(feed.sessionId) ? parts.lookLocal(feed.sessionId) : undefined;
    if (local) return feed.accept(viewOf(local.header, local.incarnation), []);
    const view = await readView(feed.sessionId);
    if (view) feed.accept(view, []);
    else if (!feed.view) feed.fail(missing(feed.sessionId));
  };

  const schedule = () => {
    if (cancelTick || closed || feeds.size === 0) return;
    cancelTick = clock.after(tickMs, () => {
      cancelTick = undefined;
      tick();
      schedule();
    });
  };

  const tick = () => {
    const nowMs = clock.monotonic();
    for (const [sessionId, feed] of feeds) {
      if (feed.subscribers > 0) feed.repair();
      else if (nowMs - feed.emptySinceMs >= limits.lingerMs) {
        feed.ring.clear();
        feeds.delete(sessionId);
      }
    }
  };

  return {
    join: (sessionId, place, sink) => (feeds.get(sessionId) ?? open(sessionId)).join(place, sink),
    committed(batch) {
      for (const { sessionId, entries, header, incarnation } of batch) {
        const feed = feeds.get(sessionId);
        if (feed) feed.accept(viewOf(header, incarnation), entries.map(plain));
      }
    },
    chunks: (live) => feeds.get(live.sessionId)?.chunks(live),
    close() {
      closed = true;
      cancelTick?.();
      for (const feed of feeds.values()) feed.fail(ended());
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
