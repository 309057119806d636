import type { SessionState, WakeView } from "../../protocol/message.ts";

/**
 * Everything about a session except its entries. A log record carries whole headers, so applying one needs
 * no earlier state. Nothing here grows with the conversation: about 1 KiB for a few members, plus the
 * bytes of their names.
 */
export type Header = {
  readonly sessionId: string;
  readonly tenant: string;
  /** The session's agents. The first answers messages that name none. Without agents it is a plain log. */
  readonly agents: readonly string[];
  /** The session's members. */
  readonly users: readonly string[];
  readonly status: "active" | "archived" | "deleted";
  /** The session that it was forked from; absent in one that begins by itself. */
  readonly parent?: ForkPlace;
  readonly lastSeq: number;
  /** The newest entry that replaces an earlier one; absent if none does. */
  readonly replacedSeq?: number;
  /** The newest tool result whose command was exact; absent if there is none. */
  readonly resultSeq?: number;
  /** The epoch of the latest turn or compaction. It only rises, so commands from an older one are stale. */
  readonly epoch: number;
  /**
   * The work in progress: none (`idle`), a turn (`catching_up`, `waiting`) or a compaction (`compacting`).
   */
  readonly work: Work | null;
  /** What to answer after the current work, in this order; see `pending.ts`. */
  readonly pending: readonly Pending[];
  /** The entry with the last summary, and the last entry that it covers; 0 if there is none. */
  readonly summarySeq: number;
  readonly compactedSeq: number;
  /** Tokens of the entries after `compactedSeq`. */
  readonly tokens: number;
  /** Compactions that failed in a row. Each doubles the growth needed before the next. */
  readonly compactionFailures: number;
  /** `tokens` when the last compaction failed or its summary was too long; 0 otherwise. */
  readonly failedAtTokens: number;
  /** Set when the agent's policy is `manual` and its budget is used up. */
  readonly needsCompaction: boolean;
  readonly metadataVersion: number;
  /** The beginning of the last message, and its author. */
  readonly preview: string;
  readonly previewAuthor: string;
  readonly createdAtMs: number;
  readonly activeAtMs: number;
  /** The calls that wait for a person; absent before the first. */
  readonly approvals?: SessionApprovals;
  /** Bytes of the entries that were stored while pods count them for quotas; absent before the first. */
  readonly bytes?: number;
  /** The wakes that are set, in the order of their keys' first setting; absent before the first. */
  readonly wakes?: readonly Wake[];
  /**
   * The tasks of wakes that were cancelled or ended by archiving since one was set last, so at most as many
   * as a session has wakes.
   */
  readonly endedWakes?: readonly string[];
};

/** A wake that is set. At its time the task brings the command that fires it, and no other task can. */
export type Wake = WakeView & { readonly taskId: string };

/** What a turn was woken by. The message is asked after everything that the log has. */
export type WokenBy = {
  readonly key: string;
  /** The time that it was set for. */
  readonly atMs: number;
  readonly author: string;
  readonly message?: string;
};

/** Where a session was forked from: it begins with the entries of that session up to `atSeq`. */
export type ForkPlace = { readonly sessionId: string; readonly atSeq: number };

/** What a fork begins with, as its parent was at that place. */
export type ForkStart = ForkPlace &
  Pick<Header, "epoch" | "summarySeq" | "compactedSeq" | "tokens" | "preview" | "previewAuthor">;

/** A tool call of an answer that waits for a person: to approve it, or to send it a signal. */
export type PendingApproval = {
  readonly messageId: string;
  readonly toolCallId: string;
  readonly tool: string;
  /** The signal that it waits for. Absent for a call that is to be approved or denied. */
  readonly signal?: string;
  readonly approvalId?: string;
  readonly sinceMs: number;
  /** About when it fails if nothing comes; absent if it waits without a limit. */
  readonly untilMs?: number;
};

/**
 * The calls of a session that wait for a person. `seq` is the entry up to which that is known: a pod of an
 * earlier release stores entries without it, and then nothing is known any more.
 */
export type SessionApprovals = {
  readonly seq: number;
  readonly calls: readonly PendingApproval[];
};

/** Bounds the members, because every record about the session carries them. */
export const maxAgents = 16;
export const maxUsers = 100;
/** Bounds the wakes likewise. */
export const maxWakes = 20;
/** Bounds the messages that wait to be heard. The next turn answers those that come then. */
export const maxSteering = 100;

export type Work = Turn | Compaction;

export type Turn = {
  readonly type: "turn";
  readonly epoch: number;
  /** Rises when another runner starts over. 0 during a debounce. */
  readonly attempt: number;
  /** How many attempts were lost with their runners. Released attempts do not count. */
  readonly lost: number;
  readonly agent: string;
  /** The pod that runs the turn; null if none was found yet. */
  readonly runner: string | null;
  /** When the runner was assigned, or looked for in vain. Absent in headers from earlier releases. */
  readonly beganAtMs?: number;
  /** The turn answers the entries up to this one. */
  readonly upToSeq: number;
  readonly trigger: "submit" | "regenerate" | "tool_result" | "wake";
  /** Set exactly if its trigger is `wake`. */
  readonly wake?: WokenBy;
  /** The message id of the answer, the same in every attempt. */
  readonly messageId: string;
  /** The entry that the answer replaces, if it continues or regenerates one. */
  readonly replaces: number | null;
  readonly stopping: boolean;
  /**
   * How often an attempt has begun or ended waiting for a permit of its agent's throttle: it waits while
   * the count is odd. The attempt is stored because a pod of an earlier release copies this into the next
   * attempt.
   */
  readonly waits?: { readonly attempt: number; readonly count: number };
  readonly alone?: SuspectStage;
  /** Absent until a message has come that the turn may hear. */
  readonly steering?: Steering;
  /** True once a step of the turn is stored. Messages no longer drop the turn, and its answer is kept. */
  readonly hasSteps?: true;
  /** The trace context of the command that started the turn, if it had one. */
  readonly trace?: string;
};

/**
 * Messages that came while a turn works. Each is pending besides until it is heard, so that the next turn
 * answers what this one ends without.
 */
export type Steering = {
  /** The seqs of those that may be heard, the oldest first. */
  readonly waiting: readonly number[];
  /** The newest that was heard; 0 before the first. */
  readonly heardSeq: number;
};

/**
 * A suspect is work that was lost with its pods so often that it must begin alone on its pod. While it
 * `waits`, other work is to blame for a lost pod. Once it has `begun`, it is to blame. Once other work
 * begins `beside` it, either may be. Absent for work that is no suspect.
 */
export type SuspectStage = "waits" | "begun" | "beside";

export type Compaction = {
  readonly type: "compaction";
  readonly epoch: number;
  readonly attempt: number;
  readonly lost: number;
  readonly agent: string;
  readonly runner: string | null;
  /** The range to summarise: from after the last summary's range to here. */
  readonly toSeq: number;
  /** How many of the header's `tokens` the summary replaces. */
  readonly tokens: number;
  readonly alone?: SuspectStage;
};

export type Pending = {
  readonly agent: string;
  /** The first pending entry, and the header's `tokens` before it: no summary may cover it yet. */
  readonly fromSeq: number;
  readonly tokensBefore: number;
  readonly upToSeq: number;
  readonly trigger: Turn["trigger"];
  readonly replaces: number | null;
  readonly messageId: string;
  readonly wake?: WokenBy;
  readonly trace?: string;
};

export function sessionStateOf({ work }: Pick<Header, "work">): SessionState {
  if (work === null) return { state: "idle" };
  if (work.type === "compaction") return { state: "compacting", epoch: work.epoch };
  const { epoch, attempt, agent, messageId, stopping } = work;
  const upToSeq = heardUpTo(work);
  const state = !stopping && permitWaitsOf(work) % 2 === 1 ? "waiting" : "catching_up";
  return { state, epoch, attempt, agent, messageId, upToSeq, stopping };
}

/** The last entry that a turn answers, with what it has heard. */
function heardUpTo({ upToSeq, steering }: Pick<Turn, "upToSeq" | "steering">): number {
  return Math.max(upToSeq, steering?.heardSeq ?? 0);
}

/** How often this attempt has begun or ended waiting for a permit. */
export function permitWaitsOf({ waits, attempt }: Turn): number {
  return waits?.attempt === attempt ? waits.count : 0;
}

/** The header of a session without entries. */
export function newHeader(
  made: Pick<Header, "sessionId" | "tenant" | "agents" | "users">,
  { nowMs, metadataVersion = 0 }: { nowMs: number; metadataVersion?: number },
): Header {
  const { sessionId, tenant, agents, users } = made;
  return {
    sessionId,
    tenant,
    agents,
    users,
    status: "active",
    lastSeq: 0,
    epoch: 0,
    work: null,
    pending: [],
    summarySeq: 0,
    compactedSeq: 0,
    tokens: 0,
    compactionFailures: 0,
    failedAtTokens: 0,
    needsCompaction: false,
    metadataVersion,
    preview: "",
    previewAuthor: "",
    createdAtMs: nowMs,
    activeAtMs: nowMs,
  };
}
