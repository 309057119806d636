import type { ErrorCode } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import type {
  Entry,
  EntryError,
  Part,
  ReplyOutcome,
  Stop,
  ToolResult,
} from "../../protocol/message.ts";
import type { Header } from "./header.ts";

/** What can be asked of a session. Those from outside carry an id, so that asking again asks once. */
export type Command =
  | {
      readonly type: "create";
      readonly sessionId: string;
      readonly tenant: string;
      readonly agents: readonly string[];
      readonly users: readonly string[];
      /** JSON text. */
      readonly metadata: string | null;
    }
  | ({ readonly type: "append"; readonly to?: string } & NewEntry & Traced)
  | ({
      readonly type: "tool_result";
      readonly clientId: string;
      readonly author: string;
      readonly messageId: string;
      readonly results: readonly ToolResult[];
      /** The seq and the author of the newest entry of that message, looked up before. */
      readonly target: Target;
      readonly tokens: number;
    } & Traced)
  | ({
      readonly type: "regenerate";
      readonly clientId: string;
      readonly target: Target;
    } & Traced)
  /** Without an epoch: whatever turn runs now. */
  | ({ readonly type: "stop"; readonly epoch?: number } & StoppedBy)
  | {
      readonly type: "turn_finished";
      readonly epoch: number;
      readonly attempt: number;
      readonly reply: Reply;
    }
  /** Its runner has to go, and hasn't finished. */
  | { readonly type: "turn_released"; readonly epoch: number; readonly attempt: number }
  /** A suspect has begun; with `beside`, others begin or are to blame from now on as well. */
  | {
      readonly type: "work_begun";
      readonly epoch: number;
      readonly attempt: number;
      readonly beside?: boolean;
    }
  /** Its runner has begun (an odd count) or ended (an even one) to wait for a permit. Only a higher counts. */
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
      /** The reply so far, as JSON text. */
      readonly body: string;
    }
  /** No runner has named the turn or compaction for too long. `checkpoint` is the last one stored. */
  | {
      readonly type: "work_lost";
      readonly epoch: number;
      readonly attempt: number;
      readonly checkpoint?: Reply;
    }
  /** A stop that the runner hasn't answered in time. */
  | { readonly type: "stop_expired"; readonly epoch: number; readonly checkpoint?: Reply }
  /** Nothing more was said for as long as the debounce lasts. */
  | { readonly type: "debounced"; readonly epoch: number; readonly upToSeq: number }
  | { readonly type: "compact"; readonly agent?: string }
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
  | {
      readonly type: "metadata";
      readonly metadata: string;
      readonly ifVersion?: number;
    }
  | {
      readonly type: "members";
      readonly addUsers?: readonly string[];
      readonly removeUsers?: readonly string[];
      readonly agents?: readonly string[];
    }
  | { readonly type: "archive" }
  | { readonly type: "unarchive" }
  | { readonly type: "delete" };

/** What the turn that it starts is traced below, as `contextOfText` reads it. */
export type Traced = { readonly trace?: string };

/** Who stops an answer. Pods of earlier releases don't say it. */
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

/** What a regeneration or a tool result is about: the newest entry with that message id. */
export type Target = {
  readonly seq: number;
  readonly messageId: string;
  readonly author: string;
  /** It was the newest among the entries up to this one. Pods of earlier releases don't say it. */
  readonly seenSeq?: number;
};

export type Reply = {
  readonly outcome: ReplyOutcome;
  readonly parts: readonly Part[];
  readonly metadata?: Json;
  readonly tokens: number;
  readonly error?: EntryError;
};

/** What the owner knows when it decides. Looked at once, before, so that deciding stays pure. */
export type Facts = {
  readonly nowMs: number;
  /** A fresh id for an answer. */
  readonly newId: () => string;
  readonly agent: (name: string) => AgentFacts | undefined;
  /** The pod that should run a turn of this agent now; null where no pod that is up can. */
  readonly runnerFor: (agent: string) => string | null;
};

export type AgentFacts = {
  /** What becomes of a message that comes during a turn. */
  readonly during: "queue" | "interrupt" | "merge";
  /** With `merge`, how long nothing more must be said before the turn starts. Default 500. */
  readonly debounceMs?: number;
  /** How many runners may lose a turn before it is given up. */
  readonly attempts: number;
  readonly compaction: CompactionFacts | null;
};

export type CompactionFacts = {
  /** `auto` compacts by itself, `manual` only says that it should be done. */
  readonly when: "auto" | "manual";
  readonly tokenBudget: number;
  readonly triggerRatio: number;
};

/** What is to be done once the decision is committed. Each carries the numbers it was decided in. */
export type SessionEffect =
  /** Also where the header names no runner yet: then one has to be asked for again, by `work_lost`. */
  | { readonly type: "start_turn"; readonly epoch: number; readonly attempt: number }
  | { readonly type: "start_compaction"; readonly epoch: number; readonly attempt: number }
  /** Tell the runner of a turn or compaction to abort; what it has is still wanted where `keep` is true. */
  | {
      readonly type: "abort_turn";
      readonly runner: string;
      readonly epoch: number;
      readonly attempt: number;
      readonly keep: boolean;
    }
  | { readonly type: "debounce"; readonly epoch: number; readonly upToSeq: number };

/** What the caller gets, after the commit. */
export type CommandResult = {
  readonly lastSeq: number;
  /** The place of what was stored, or of what was stored when the same was asked before. */
  readonly seq?: number;
  readonly duplicate?: true;
  /** False where there was nothing to do any more: a stop with no turn, an epoch that has passed. */
  readonly done?: boolean;
  readonly metadataVersion?: number;
};

export type CommandDecision =
  | {
      readonly type: "decided";
      /** The very object that was given, where nothing in it has changed. */
      readonly header: Header;
      /** With their seqs. */
      readonly entries: readonly DecidedEntry[];
      readonly read?: { readonly user: string; readonly seq: number };
      readonly metadata?: string;
      readonly checkpoint?: {
        readonly epoch: number;
        readonly attempt: number;
        readonly body: string;
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
  /** Under which it is found again when the same is asked once more; null where nobody can. */
  readonly clientId: string | null;
};
