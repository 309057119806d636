import type { DecidedAct } from "../../audit/sql.ts";
import type { Entry } from "../../protocol/message.ts";
import type { TenantChange } from "../../quotas/sql.ts";
import type { StoredStep } from "../../steps/model.ts";
import type { NewTask } from "../../tasks/sql/enqueue.ts";
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
};

/** A head, and a number that grows while the owner of the log is alive. */
export type LiveHead = Head & {
  readonly beat: number;
  /** What a pod that is missing has last said of the log, if that is further than the log itself says. */
  readonly spoken?: Pick<Head, "term" | "offset">;
};

/**
 * One batch of decisions with everything that they change. `record-codec.ts` knows every member, as do all
 * that apply records.
 */
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
  /** The tasks and runs that start with it. Its headers have the sessions that they belong to. */
  readonly tasks?: readonly NewTask[];
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
 * because these client ids were stored long ago; decide the record again with their seqs. A log that cannot
 * compare ids with all that was ever stored never returns it. An unknown outcome is thrown as
 * `unknown_outcome`; committing the same record at the same position again resolves it. A stored record that
 * others follow may be `committed` or `fenced` when it is sent again. Every other error means that this call
 * has stored nothing: `payload_too_large` that the record has more bytes than the log takes, `overloaded`
 * that the log is full.
 */
export type CommitResult =
  | { readonly type: "committed"; readonly head: Head }
  | { readonly type: "fenced" }
  | { readonly type: "duplicate"; readonly found: readonly StoredClientId[] };

export type ClientIdRef = { readonly sessionId: string; readonly clientId: string };
export type StoredClientId = ClientIdRef & { readonly seq: number };

/** What a new owner begins with. */
export type Recovered = {
  /** Headers of the log's sessions that have work in progress. */
  readonly busy: readonly Header[];
};

/**
 * Orders the records of sessions, and keeps two owners apart. Every implementation passes the suite in
 * `contract/log.ts`.
 */
export type Log = {
  /** How many bytes a record may have as the log stores it. */
  readonly maxRecordBytes: number;
  /** All heads, ordered by log id; empty if no log has been created. */
  heads(): Promise<Head[]>;
  /** Creates the logs, unless they exist. Their number never changes afterwards. */
  create(logs: number): Promise<void>;
  /** Takes ownership with a record right after `seen`. Returns undefined if the head has moved. */
  take(
    seen: Head,
    owner: { podId: string; host: string | null; recordId: string },
  ): Promise<Head | undefined>;
  /** Reads what the owner needs before it serves, after it has taken the log at `head`. */
  recover(head: Head): Promise<Recovered>;
  /** Stores a record right after `at`. */
  commit(at: Head, record: LogRecord): Promise<CommitResult>;
  /**
   * Releases logs, so that other pods need not wait until their owner is silent. The heads are those that
   * their owner knows. A release may be a record of its own, which moves the head. Rejects if one of them
   * isn't released for certain.
   */
  release(podId: string, heads: readonly Head[]): Promise<void>;
  /**
   * The heads of logs that were to be released and aren't yet, because what they may lack of their records
   * only this process has. It goes on trying, and no other pod should take them until then. A log has it
   * where what was stored can be lost.
   */
  kept?(): readonly Head[];
  /**
   * Stores right after `at` that this owner has the log, and nothing else. Sent again with the same id, it
   * is the same. A log has it where its heads may be read from a server that is behind: then only what is
   * stored proves that no other pod had taken the log when it was sent.
   */
  prove?(at: Head, recordId: string): Promise<CommitResult>;
  /**
   * Resolves when a record would be stored at once; undefined when it would be now. An owner that waits
   * for it puts more into its record.
   */
  whenFree?(): Promise<void> | undefined;
};

/** Reads sessions. It needs no owner, and sees what is committed. */
export type Reads = {
  /**
   * `isFresh`: the id was drawn moments ago. If the database is away, what the log still has of these moments
   * tells whether the session was stored since.
   */
  header(sessionId: string, options?: { readonly isFresh?: boolean }): Promise<Header | undefined>;
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

/** A log, and reads that see all that it has committed. The suite is in `contract/journal.ts`. */
export type Journal = Log & Reads;

/**
 * Shows which owners are alive. It decides only which pod tries to take a log. The suite is in
 * `contract/presence.ts`.
 */
export type Presence = {
  /**
   * Shows that this pod is alive and owns these logs, as far as it knows. Returns which of them it still
   * owns, in order, and all heads after that. Without logs it only reads.
   */
  beat(podId: string, heads: readonly Head[]): Promise<Beaten>;
  /** Where pods hear each other. Absent where they read a database. Logs may be moved from one to the other. */
  readonly listening?: Listening | undefined;
};

/** What beats that pods hear tell besides, and sooner than rows of a database. */
export type Listening = {
  /** Sets where to read what each beat of this pod says. */
  speakFor(speech: () => Speech): void;
  /** Beats at once, because that has changed. */
  speak(): void;
  /** Whether this pod hears its own beats. While it doesn't, the silence of others says nothing. */
  readonly isHeard: boolean;
  /** Since when a log is free whose head names an owner. Undefined while that owner may have it. */
  freeSinceMs(head: Head): number | undefined;
};

/** What a pod says of itself. */
export type Speech = {
  /** The logs that it has. */
  readonly heads: readonly Head[];
  readonly isDraining: boolean;
};

/** What a beat has found. */
export type Beaten = { readonly owned: number[]; readonly heads: LiveHead[] };

export type TurnsPage = {
  readonly before?: { readonly epoch: number; readonly attempt: number } | undefined;
  readonly limit: number;
};
