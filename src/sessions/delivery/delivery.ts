import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import type { Bus } from "../../bus/bus.ts";
import type { Entry } from "../../protocol/message.ts";
import type { Header } from "../conversation/header.ts";
import type { Journal } from "../log/journal.ts";
import type { LiveChunks, Runner } from "../runner.ts";
import type { Joined, JoinPosition, FeedEvent, Sink } from "../service.ts";
import type { Touched } from "./remote-protocol.ts";

/**
 * Brings what happens in sessions to the clients of this process, wherever it happens. Joining and live
 * delivery are one operation: a client is subscribed first, then told what it missed, then it is live.
 */
export type Hub = {
  join(sessionId: string, position: JoinPosition, sink: Sink<FeedEvent>): Joined;
  /** Called by the local owner after each commit, before its effects. Cheap where nobody follows. */
  committed(batch: readonly CommittedSession[]): void;
  /**
   * Called when this process has taken a log or lost one. What the last owner has stored may not have
   * been told of by anybody, even where that was this process: all is asked for again.
   */
  ownersMoved(): void;
  /** Called by the local runner with each part of an answer. */
  chunks(live: LiveChunks): void;
  /** Sessions of these users are told of to `onTouched`, until the function that it gives is called. */
  watchUser(tenant: string, user: string): () => void;
  /** Told of what happened in sessions of watched users; undefined where something may have been missed. */
  onTouched(listener: (touched: Touched | undefined) => void): () => void;
  load(): HubLoad;
  close(): void;
};

/** How much the hub has to do right now. */
export type HubLoad = {
  /** Sessions that are followed here, and by how many. */
  readonly feeds: number;
  readonly subscribers: number;
  /** What is kept of the newest entries. */
  readonly ringBytes: number;
  readonly coldReads: { readonly underWay: number; readonly waiting: number };
};

export type CommittedSession = {
  readonly sessionId: string;
  readonly entries: readonly Entry[];
  readonly header: Header;
  readonly incarnation: string;
  readonly logId: number;
  readonly offset: number;
  /** Those who take part no more. */
  readonly formerUsers?: readonly string[];
};

export type HubParts = {
  bus: Bus;
  journal: Pick<Journal, "header" | "entries">;
  /** The same for what clients that are live haven't been told, which waits for no client that joins. */
  liveJournal?: Pick<Journal, "entries">;
  clock: Clock;
  log: Logger;
  /** This process owns the session's log right now, and its last beat is fresh. */
  isLocal: (sessionId: string) => boolean;
  /** The last beat of every log that it owns is fresh. */
  isSure: () => boolean;
  /** The pod that owns the log; undefined while none does. */
  ownerOf: (sessionId: string) => Promise<string | undefined>;
  /** All pods that own logs. */
  owners: () => Promise<readonly string[]>;
  /** What the local owner has committed, if it has it in memory. */
  localHeader: (sessionId: string) => { header: Header; incarnation: string } | undefined;
  incarnationOf: (sessionId: string) => Promise<string>;
  /** This pod's, if it runs turns. */
  runner?: Pick<Runner, "snapshot">;
  limits?: Partial<HubLimits>;
};

export type HubLimits = {
  /** Reads of the journal at once, for clients that join. */
  coldReads: number;
  /** How long such a read waits for its turn. */
  coldWaitMs: number;
  /** Reads at once of what clients that are live haven't been told. */
  liveReads: number;
  pageEntries: number;
  pageBytes: number;
  /** What is kept of a session's newest entries, and of all sessions together. */
  ringBytes: number;
  ringsBytes: number;
  /** How long a session that nobody follows any more is kept. */
  lingerMs: number;
};
