import type { ActEntry } from "../../audit/sql.ts";
import type { ErrorCode } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import type {
  Entry,
  EntryError,
  Part,
  ReplyOutcome,
  Stop,
  ToolResult,
  TurnOutcome,
  Usage,
} from "../../protocol/message.ts";
import type { NewTask } from "../../tasks/sql/enqueue.ts";
import type { ForkStart, Header } from "./header.ts";

/**
 * Everything that changes a session. Commands from outside carry an id, so that a repeat takes effect
 * once.
 */
export type Command =
  | {
      readonly type: "create";
      readonly sessionId: string;
      readonly tenant: string;
      readonly agents: readonly string[];
      readonly users: readonly string[];
      /** JSON text. */
      readonly metadata: string | null;
      /** The id was drawn for this command, so no session had it before. Callers outside can't say so. */
      readonly isFresh?: true;
      /** Set if it begins with entries of another session. */
      readonly fork?: ForkStart;
      /** Its first message, which is stored with it or not at all. */
      readonly first?: NewEntry & Traced;
    }
  /** Takes the id of a session that was never created, so that it never will be. */
  | { readonly type: "abandon"; readonly sessionId: string; readonly tenant: string }
  /** Refused if one of these agents is unknown, as a command is that names it. Changes nothing. */
  | { readonly type: "check_agents"; readonly agents: readonly string[] }
  | ({ readonly type: "append"; readonly to?: string } & NewEntry & Traced & Starting)
  | ({
      readonly type: "tool_result";
      readonly clientId: string;
      readonly author: string;
      readonly messageId: string;
      readonly results: readonly ToolResult[];
      /** The seq and author of the newest entry of that message, read beforehand. */
      readonly target: Target;
      readonly tokens: number;
      /**
       * Set if other results must not have come since the target was read, because what follows depends on
       * them: whether calls of the message are still open.
       */
      readonly isExact?: true;
      /** Other calls of the message are open, so that the agent does not continue yet. */
      readonly waits?: true;
    } & Traced &
      Audited)
  | ({
      readonly type: "regenerate";
      readonly clientId: string;
      readonly target: Target;
    } & Traced &
      Audited)
  /** Without an epoch: the turn that runs now. */
  | ({ readonly type: "stop"; readonly epoch?: number } & StoppedBy & Audited)
  | {
      readonly type: "turn_finished";
      readonly epoch: number;
      readonly attempt: number;
      readonly reply: Reply;
    }
  /** The runner is shutting down before it could finish. */
  | { readonly type: "turn_released"; readonly epoch: number; readonly attempt: number }
  /** A suspect has begun. With `beside`, other work begins beside it and may be to blame too. */
  | {
      readonly type: "work_begun";
      readonly epoch: number;
      readonly attempt: number;
      readonly beside?: boolean;
    }
  /** The runner began (odd count) or ended (even count) waiting for a permit. A lower count is stale. */
  | {
      readonly type: "turn_waiting";
      readonly epoch: number;
      readonly attempt: number;
      readonly count: number;
    }
  | {
      readonly type: "checkpoint";
      readonly epoch: number;
      readonly attempt: number;
      /** The reply so far and what unfinished steps have made, as JSON text. */
      readonly body: string;
    }
  /** Steps of the turn that have ended, in the order of their numbers. */
  | ({
      readonly type: "turn_steps";
      readonly epoch: number;
      readonly attempt: number;
      readonly rows: readonly EndedStep[];
    } & Starting)
  /**
   * Asks which messages the turn may hear. With `heard`, it has heard these: the oldest of them, and the row
   * that a later attempt hears them from.
   */
  | {
      readonly type: "turn_hearing";
      readonly epoch: number;
      readonly attempt: number;
      readonly heard?: { readonly seqs: readonly number[]; readonly row: EndedStep };
    }
  /** No runner has confirmed the work for too long. `checkpoint` is the last one stored. */
  | {
      readonly type: "work_lost";
      readonly epoch: number;
      readonly attempt: number;
      readonly checkpoint?: Reply;
    }
  /** The runner did not end a stopped turn in time. */
  | { readonly type: "stop_expired"; readonly epoch: number; readonly checkpoint?: Reply }
  /** No further message came during the debounce. */
  | { readonly type: "debounced"; readonly epoch: number; readonly upToSeq: number }
  | ({ readonly type: "compact"; readonly agent?: string } & Audited)
  | {
      readonly type: "compaction_finished";
      readonly epoch: number;
      readonly attempt: number;
      readonly parts: readonly Part[];
      readonly tokens: number;
    }
  | {
      readonly type: "compaction_failed";
      readonly epoch: number;
      readonly attempt: number;
      readonly error: EntryError;
    }
  | { readonly type: "read"; readonly user: string; readonly seq: number }
  | ({
      readonly type: "metadata";
      readonly metadata: string;
      readonly ifVersion?: number;
    } & Audited)
  | ({
      readonly type: "members";
      readonly addUsers?: readonly string[];
      readonly removeUsers?: readonly string[];
      readonly agents?: readonly string[];
    } & Audited)
  | ({
      readonly type: "wake_set";
      readonly clientId: string;
      readonly author: string;
      readonly key: string;
      readonly agent?: string;
      readonly atMs: number;
      readonly cron?: string;
      readonly timezone?: string;
      readonly message?: string;
      /** The turn that sets it, if one does. */
      readonly epoch?: number;
      /** The one task among `tasks`, which fires it. */
      readonly taskId: string;
    } & Starting &
      Audited)
  /** Only the setting that this entry is about, so that a late copy cancels no later one. */
  | ({
      readonly type: "wake_cancel";
      readonly key: string;
      readonly setSeq: number;
      readonly author: string;
    } & Audited)
  /** The time of a wake has come, and its task says so. With `next`, it is set again. */
  | ({
      readonly type: "wake_fired";
      readonly key: string;
      readonly taskId: string;
      readonly message?: string;
      readonly next?: { readonly taskId: string; readonly atMs: number };
    } & Traced &
      Starting)
  | ({ readonly type: "archive" } & Audited)
  | ({ readonly type: "unarchive" } & Audited)
  | ({ readonly type: "delete" } & Audited);

/** The entry of the command in the audit, if its actor isn't a member of the session. */
export type Audited = { readonly act?: ActEntry };

/** The tasks and runs that start when the command is stored, in the same record. */
export type Starting = { readonly tasks?: readonly NewTask[] };

/** The trace context of the turn that the command starts, as `contextOfText` reads it. */
export type Traced = { readonly trace?: string };

/** The author of a stop. Absent in commands from earlier releases. */
export type StoppedBy = { readonly author?: string; readonly by?: Stop["by"] };

export type NewEntry = {
  readonly clientId: string;
  readonly messageId: string;
  readonly role: Entry["role"];
  readonly author: string;
  readonly parts: readonly Part[];
  readonly metadata?: Json;
  readonly tokens: number;
};

/** The subject of a regeneration or a tool result: the newest entry with that message id. */
export type Target = {
  readonly seq: number;
  readonly messageId: string;
  readonly author: string;
  /** The last seq when the target was read. Absent in commands from earlier releases. */
  readonly seenSeq?: number;
};

export type Reply = {
  readonly outcome: ReplyOutcome;
  readonly parts: readonly Part[];
  readonly metadata?: Json;
  readonly tokens: number;
  readonly error?: EntryError;
  readonly measured?: Measured;
  /** Messages that an earlier attempt has heard never reached this one, which has answered without them. */
  readonly unheard?: true;
};

/** What the runner has measured of an attempt. Absent in replies from earlier releases. */
export type Measured = {
  /** A checkpoint may be of an earlier attempt than the one that it is used for. */
  readonly attempt: number;
  /** From the start of the attempt to its first content. */
  readonly firstChunkMs?: number;
  readonly usage?: Usage;
  /** The usage is of stored calls, which the next attempt counts again. */
  readonly isStored?: boolean;
};

/** An attempt at a turn that has ended. Each is stored once, in the record that ends it. */
export type EndedTurn = {
  readonly epoch: number;
  readonly attempt: number;
  readonly agent: string;
  /** Null if no pod was found for it. */
  readonly podId: string | null;
  readonly beganAtMs: number;
  readonly firstChunkAtMs: number | null;
  readonly endedAtMs: number;
  readonly outcome: TurnOutcome;
  /** Null if nothing reported any tokens. */
  readonly usage: Usage | null;
};

/** What the journal of a turn keeps of a step. */
export type EndedStep = {
  readonly key: string;
  /** Numbers the rows of a turn, so that a late copy of one is known from a later one. */
  readonly seq: number;
  readonly kind: "done" | "failed" | "begun" | "round" | "wait";
  readonly inputHash: string | null;
  /** JSON text. */
  readonly value: string;
  readonly tookMs: number;
  /** True if rows of steps within this one may be stored, which it replaces. */
  readonly forgets: boolean;
};

/** What the owner knows when it decides. Gathered beforehand, so that deciding stays pure. */
export type Facts = {
  readonly nowMs: number;
  /** A new id for an answer. */
  readonly newId: () => string;
  readonly agent: (name: string) => AgentFacts | undefined;
  /** The pod that should run a turn of this agent now, never `except`; null if no pod that is up can. */
  readonly runnerFor: (agent: string, except?: string | null) => string | null;
};

export type AgentFacts = {
  /** What happens to a message that arrives during a turn. */
  readonly during: "queue" | "interrupt" | "merge";
  /**
   * The turn itself hears such a message, if it comes to a step. Owners of an earlier release don't know it,
   * and go by `during`, which is `queue` then.
   */
  readonly steers?: true;
  /** With `merge`, how long to wait for further messages before the turn starts. Default 500. */
  readonly debounceMs?: number;
  /** How many runners may be lost before the turn is given up. */
  readonly attempts: number;
  readonly compaction: CompactionFacts | null;
};

export type CompactionFacts = {
  /** `auto` starts compactions, `manual` only marks the session. */
  readonly when: "auto" | "manual";
  readonly tokenBudget: number;
  readonly triggerRatio: number;
};

/** What to do after the commit. Each effect carries the epoch and attempt that it was decided for. */
export type SessionEffect =
  /** Emitted even if the header names no runner yet; `work_lost` then looks for one again. */
  | { readonly type: "start_turn"; readonly epoch: number; readonly attempt: number }
  | { readonly type: "start_compaction"; readonly epoch: number; readonly attempt: number }
  /** Tells the runner to abort a turn or compaction. With `keep`, its partial answer is still wanted. */
  | {
      readonly type: "abort_turn";
      readonly runner: string;
      readonly epoch: number;
      readonly attempt: number;
      readonly keep: boolean;
    }
  | { readonly type: "debounce"; readonly epoch: number; readonly upToSeq: number };

/** The result for the caller, after the commit. */
export type CommandResult = {
  readonly lastSeq: number;
  /** The seq of the stored entry, also when a repeat was stored before. */
  readonly seq?: number;
  readonly duplicate?: true;
  /** False if there was nothing to do: a stop without a turn, or a past epoch. */
  readonly done?: boolean;
  readonly metadataVersion?: number;
  /** The messages that a turn may hear, or those that it now has heard. */
  readonly steering?: readonly number[];
};

export type CommandDecision =
  | {
      readonly type: "decided";
      /** The same object as before if nothing in it has changed. */
      readonly header: Header;
      readonly entries: readonly DecidedEntry[];
      readonly read?: { readonly user: string; readonly seq: number };
      readonly metadata?: string;
      readonly checkpoint?: {
        readonly epoch: number;
        readonly attempt: number;
        readonly body: string;
      };
      readonly steps?: {
        readonly epoch: number;
        readonly attempt: number;
        readonly rows: readonly EndedStep[];
      };
      readonly effects: readonly SessionEffect[];
      readonly answer: CommandResult;
    }
  | {
      readonly type: "refused";
      readonly code: ErrorCode;
      readonly message: string;
      readonly details?: Readonly<Record<string, unknown>>;
    };

export type DecidedEntry = Entry & {
  /** Finds the entry when the same command is sent again; null if the command cannot be repeated. */
  readonly clientId: string | null;
};
