import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import type { Bus } from "../../bus/bus.ts";
import type { Entry } from "../../protocol/message.ts";
import type { Header } from "../conversation/header.ts";
import type { Reads } from "../log/journal.ts";
import type { People } from "../people/people.ts";
import type { LiveChunks, Runner } from "../runner.ts";
import type { Joined, JoinPosition, FeedEvent, Sink } from "../service.ts";
import type { Touched } from "./remote-protocol.ts";

/**
 * Delivers what happens in sessions on any pod to the clients of this process. Joining and live delivery
 * are one operation: a client is subscribed first, then gets what it missed, then is live.
 */
export type Hub = {
  join(sessionId: string, position: JoinPosition, sink: Sink<FeedEvent>): Joined;
  /** True when a commit in this session must be passed to `committed`. */
  isFollowed(sessionId: string): boolean;
  /** Called by the local owner after each commit with the sessions that are followed. */
  committed(batch: readonly CommittedSession[]): void;
  /**
   * Called when this process has taken or lost a log. The last owner's final commits may not have been
   * published, even if this process was that owner. So everything is read again.
   */
  ownersMoved(): void;
  /** Called by the local runner with each batch of chunks. */
  chunks(live: LiveChunks): void;
  /** Reports changes in this user's sessions to `onTouched`, until the returned function is called. */
  watchUser(tenant: string, user: string): () => void;
  /** Called with changes in sessions of watched users; with undefined if some may have been missed. */
  onTouched(listener: (touched: Touched | undefined) => void): () => void;
  load(): HubLoad;
  close(): void;
};

/** The hub's current load. */
export type HubLoad = {
  /** Sessions followed here, and their subscribers. */
  readonly feeds: number;
  readonly subscribers: number;
  /** The size of the newest entries that are kept in memory. */
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
  /** Users that the commit removed from the session. */
  readonly formerUsers?: readonly string[];
};

export type HubParts = {
  bus: Bus;
  journal: Pick<Reads, "header" | "entries">;
  /** The same for missed entries of live clients, which must not queue behind joining clients. */
  liveJournal?: Pick<Reads, "entries">;
  clock: Clock;
  log: Logger;
  /** True when this process owns the session's log and its last beat is fresh. */
  isLocal: (sessionId: string) => boolean;
  /** True when the last beat of every log that this process owns is fresh. */
  isSure: () => boolean;
  /** The pod that owns the log; undefined if none does. */
  ownerOf: (sessionId: string) => Promise<string | undefined>;
  /** All pods that own logs. */
  owners: () => Promise<readonly string[]>;
  /** The local owner's committed header, if it is in memory. */
  localHeader: (sessionId: string) => { header: Header; incarnation: string } | undefined;
  incarnationOf: (sessionId: string) => Promise<string>;
  /** Who has sessions open, which ends with their membership. */
  people?: Pick<People, "has" | "membersRemoved">;
  /** This pod's runner, if it runs turns. */
  runner?: Pick<Runner, "snapshot">;
  limits?: Partial<HubLimits>;
};

export type HubLimits = {
  /** How many journal reads for joining clients run at once. */
  coldReads: number;
  /** How long such a read may wait for its turn. */
  coldWaitMs: number;
  /** How many reads of missed entries for live clients run at once. */
  liveReads: number;
  pageEntries: number;
  pageBytes: number;
  /** How much to keep of a session's newest entries, and of all sessions together. */
  ringBytes: number;
  ringsBytes: number;
  /** How long to keep a session without subscribers. */
  lingerMs: number;
};
