import type { Entry } from "../../protocol/message.ts";
import type { DecidedEntry } from "../conversation/command.ts";
import type { Header } from "../conversation/header.ts";

/** Where a log stands, and whose it is. */
export type Head = {
  readonly logId: number;
  /** Chosen by chance when the log is made, so that another in its place is recognised. */
  readonly incarnation: string;
  /** Rises with every owner. */
  readonly term: number;
  readonly owner: string | null;
  /** The process of the owner, as others on its machine find it. */
  readonly host: string | null;
  /** Of the last record. */
  readonly offset: number;
  readonly recordId: string;
  /** Moves while the owner lives. */
  readonly beat: number;
};

/** One batch of decisions, and all of what they change. */
export type LogRecord = {
  readonly recordId: string;
  readonly entries: readonly (DecidedEntry & { readonly sessionId: string })[];
  readonly headers: readonly Header[];
  /** The sessions whose users have changed. Without it, those of any header here may have. */
  readonly members?: readonly string[];
  readonly metadata: readonly { readonly sessionId: string; readonly metadata: string }[];
  readonly reads: readonly {
    readonly sessionId: string;
    readonly user: string;
    readonly seq: number;
  }[];
  readonly checkpoints: readonly Checkpoint[];
};

export type Checkpoint = {
  readonly sessionId: string;
  readonly epoch: number;
  readonly attempt: number;
  readonly body: string;
};

/**
 * What became of a record. `fenced`: its place is taken by another's. `duplicate`: nothing was stored,
 * because these client ids were stored before, too long ago to be remembered; the record has to be
 * decided again with their seqs. What can't be known is thrown as `unknown_outcome`, and resolved by
 * committing the same record at the same place again. Every other error thrown is definite.
 */
export type CommitResult =
  | { readonly type: "committed"; readonly head: Head }
  | { readonly type: "fenced" }
  | { readonly type: "duplicate"; readonly found: readonly StoredClientId[] };

export type ClientIdRef = { readonly sessionId: string; readonly clientId: string };
export type StoredClientId = ClientIdRef & { readonly seq: number };

/** Where conversations are kept. Every implementation passes the suite in `contract/journal.ts`. */
export type Journal = {
  /** All heads in order of their numbers; none where no log was made yet. */
  heads(): Promise<Head[]>;
  /** Makes the logs, unless there are some. How many there are is never changed afterwards. */
  create(logs: number): Promise<void>;
  /** Becomes the owner by an owner record right behind `seen`; undefined where that isn't the end. */
  take(
    seen: Head,
    owner: { podId: string; host: string | null; recordId: string },
  ): Promise<Head | undefined>;
  /** Gives logs up, so that others needn't wait for their beat to stop. */
  release(podId: string, logs: readonly { logId: number; term: number }[]): Promise<void>;
  /** Shows that the owner lives, and gives the numbers of those logs that are still its own. */
  beat(podId: string, logs: readonly { logId: number; term: number }[]): Promise<number[]>;
  /** Stores a record right behind `at`. */
  commit(at: Head, record: LogRecord): Promise<CommitResult>;

  /** Reads need no owner: they see what is committed. */
  header(sessionId: string): Promise<Header | undefined>;
  /** Headers of a log that have work under way. */
  busy(logId: number): Promise<Header[]>;
  /** Which of these client ids are stored, and where. */
  storedIds(ids: readonly ClientIdRef[]): Promise<StoredClientId[]>;
  /** Entries with `seq > after`, in order. */
  entries(
    sessionId: string,
    page: { after: number; limit: number; maxBytes?: number },
  ): Promise<Entry[]>;
  /** The newest entries up to `upTo`, in order, none of them up to `after`. */
  tail(
    sessionId: string,
    page: { after: number; upTo: number; limit: number; maxBytes?: number },
  ): Promise<Entry[]>;
  /** The newest entry with this message id. */
  newest(sessionId: string, messageId: string): Promise<Entry | undefined>;
  checkpoint(sessionId: string): Promise<Checkpoint | undefined>;
};
