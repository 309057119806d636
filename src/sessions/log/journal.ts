import type { DecidedAct } from "../../audit/sql.ts";
import type { Entry } from "../../protocol/message.ts";
import type { TenantChange } from "../../quotas/sql.ts";
import type { StoredStep } from "../../steps/model.ts";
import type { DecidedEntry, EndedStep, EndedTurn } from "../conversation/command.ts";
import type { Header } from "../conversation/header.ts";

/** A log's position and its owner. */
export type Head = {
  readonly logId: number;
  /** Random, chosen when the log is created, so that a log that replaces it is recognised. */
  readonly incarnation: string;
  /** Grows with every new owner. */
  readonly term: number;
  readonly owner: string | null;
  /** The process of the owner, as other processes on its machine can find it. */
  readonly host: string | null;
  /** The offset of the last record. */
  readonly offset: number;
  readonly recordId: string;
  /** Grows while the owner is alive. */
  readonly beat: number;
};

/** One batch of decisions with everything that they change. */
export type LogRecord = {
  readonly recordId: string;
  readonly entries: readonly (DecidedEntry & { readonly sessionId: string })[];
  readonly headers: readonly Header[];
  /** Sessions whose users changed. Without it, the users of any header here may have changed. */
  readonly members?: readonly string[];
  readonly metadata: readonly { readonly sessionId: string; readonly metadata: string }[];
  readonly reads: readonly {
    readonly sessionId: string;
    readonly user: string;
    readonly seq: number;
  }[];
  readonly checkpoints: readonly Checkpoint[];
  readonly steps: readonly TurnSteps[];
  /** Turns with stored steps that ended: their answers are stored, so their journals are deleted. */
  readonly stepsOver: readonly TurnRef[];
  /** The attempts at turns that it ends. */
  readonly turns?: readonly (EndedTurn & { readonly sessionId: string })[];
  /** The acts of operators among its commands. */
  readonly acts?: readonly DecidedAct[];
  /** What it changes in the counts of tenants. Absent where pods don't count for quotas. */
  readonly tenants?: readonly TenantChange[];
};

/** A turn of a session. */
export type TurnRef = { readonly sessionId: string; readonly epoch: number };

/** Steps of a turn that have ended. */
export type TurnSteps = TurnRef & {
  readonly attempt: number;
  readonly rows: readonly EndedStep[];
};

export type Checkpoint = {
  readonly sessionId: string;
  readonly epoch: number;
  readonly attempt: number;
  readonly body: string;
};

/**
 * The outcome of a commit. `fenced`: another record is in its position. `duplicate`: nothing was stored,
 * because these client ids were stored long ago; decide the record again with their seqs. An unknown
 * outcome is thrown as `unknown_outcome`; committing the same record at the same position again resolves
 * it. Every other error means that nothing was stored.
 */
export type CommitResult =
  | { readonly type: "committed"; readonly head: Head }
  | { readonly type: "fenced" }
  | { readonly type: "duplicate"; readonly found: readonly StoredClientId[] };

export type ClientIdRef = { readonly sessionId: string; readonly clientId: string };
export type StoredClientId = ClientIdRef & { readonly seq: number };

/** What a beat has found. */
export type Beaten = { readonly owned: number[]; readonly heads: Head[] };

/** Stores conversations. Every implementation passes the suite in `contract/journal.ts`. */
export type Journal = {
  /** All heads, ordered by log id; empty if no log has been created. */
  heads(): Promise<Head[]>;
  /** Creates the logs, unless they exist. Their number never changes afterwards. */
  create(logs: number): Promise<void>;
  /** Takes ownership with a record right after `seen`. Returns undefined if the head has moved. */
  take(
    seen: Head,
    owner: { podId: string; host: string | null; recordId: string },
  ): Promise<Head | undefined>;
  /** Releases logs, so that other pods need not wait for the beat to stop. */
  release(podId: string, logs: readonly { logId: number; term: number }[]): Promise<void>;
  /** Shows that the owner is alive. Returns which of these logs it still owns, and all heads after that. */
  beat(podId: string, logs: readonly { logId: number; term: number }[]): Promise<Beaten>;
  /** Stores a record right after `at`. */
  commit(at: Head, record: LogRecord): Promise<CommitResult>;
  /**
   * Resolves when a record would be stored at once; undefined when it would be now. An owner that waits
   * for it puts more into its record.
   */
  whenFree?(): Promise<void> | undefined;

  /** Reads need no owner: they see committed state. */
  header(sessionId: string): Promise<Header | undefined>;
  /** Headers of a log's sessions that have work in progress. */
  busy(logId: number): Promise<Header[]>;
  /** Finds which of these client ids are stored, with their seqs. */
  storedIds(ids: readonly ClientIdRef[]): Promise<StoredClientId[]>;
  /** Entries with `seq > after`, in order. */
  entries(
    sessionId: string,
    page: { after: number; limit: number; maxBytes?: number },
  ): Promise<Entry[]>;
  /** The newest entries with `after < seq <= upTo`, in order. */
  tail(
    sessionId: string,
    page: { after: number; upTo: number; limit: number; maxBytes?: number },
  ): Promise<Entry[]>;
  /** The newest entry with this message id. */
  newest(sessionId: string, messageId: string): Promise<Entry | undefined>;
  checkpoint(sessionId: string): Promise<Checkpoint | undefined>;
  /** The stored steps of a turn, in the order of their numbers. Large values are left out. */
  steps(turn: TurnRef): Promise<StoredStep[]>;
  /** The value of a stored step. */
  stepValue(turn: TurnRef, key: string): Promise<string | undefined>;
  /** Attempts at turns that have ended, the newest first, from before the given one. */
  turns(sessionId: string, page: TurnsPage): Promise<EndedTurn[]>;
};

export type TurnsPage = {
  readonly before?: { readonly epoch: number; readonly attempt: number } | undefined;
  readonly limit: number;
};
