import type { SessionState } from "../../protocol/message.ts";

/**
 * All that is known of a session besides its entries. A record of the log carries whole headers, so
 * applying one needs no earlier state. Kept small, since nothing here grows with the conversation:
 * about 1 KiB where a few take part, and as many more bytes as the names of those take who may.
 */
export type Header = {
  readonly sessionId: string;
  readonly tenant: string;
  /** Who answers. The first does where a message names none; none at all makes it a plain log. */
  readonly agents: readonly string[];
  /** Who takes part. */
  readonly users: readonly string[];
  readonly status: "active" | "archived" | "deleted";
  readonly lastSeq: number;
  /** The newest entry that has taken the place of an earlier one; absent where none has. */
  readonly replacedSeq?: number;
  /** Of the latest turn or compaction. It only ever rises: what comes from an older one is refused. */
  readonly epoch: number;
  /** What is under way: nothing (`idle`), a turn (`catching_up`, `waiting`) or a compaction (`compacting`). */
  readonly work: Work | null;
  /** What is to be answered once the work that is under way has ended, in this order; see `pending.ts`. */
  readonly pending: readonly Pending[];
  /** The entry that holds the last summary, and the last one that it stands for; 0 where there is none. */
  readonly summarySeq: number;
  readonly compactedSeq: number;
  /** Tokens of what came after `compactedSeq`. */
  readonly tokens: number;
  /** Compactions that failed in a row: each makes the next wait for twice as much more to be said. */
  readonly compactionFailures: number;
  /** `tokens` when the last compaction failed, or didn't make it short enough; 0 where it did. */
  readonly failedAtTokens: number;
  /** Set where the agent's policy is `manual` and its budget is used up. */
  readonly needsCompaction: boolean;
  readonly metadataVersion: number;
  /** The start of what was said last, and who said it. */
  readonly preview: string;
  readonly previewAuthor: string;
  readonly createdAtMs: number;
  readonly activeAtMs: number;
};

/** How many take part: they are in every record that the session is in. */
export const maxAgents = 16;
export const maxUsers = 100;

export type Work = Turn | Compaction;

export type Turn = {
  readonly type: "turn";
  readonly epoch: number;
  /** Rises when another runner starts over. 0 while a debounce waits for more to be said. */
  readonly attempt: number;
  /** How many attempts were lost with their runners. Those that were handed on don't count. */
  readonly lost: number;
  readonly agent: string;
  /** The pod that runs it, null where none could be found yet. */
  readonly runner: string | null;
  /** The entries that it answers are those up to this one. */
  readonly upToSeq: number;
  readonly trigger: "submit" | "regenerate" | "tool_result";
  /** The id that the answer will have, the same in every attempt. */
  readonly messageId: string;
  /** The entry that the answer is to replace, where it continues or regenerates one. */
  readonly replaces: number | null;
  readonly stopping: boolean;
  /**
   * How often an attempt has begun or ended to wait for a permit of its agent's throttle: it waits while
   * the count is odd. The attempt is named because a pod of an earlier release copies this into the next.
   */
  readonly waits?: { readonly attempt: number; readonly count: number };
  readonly alone?: SuspectStage;
  /** The trace context of what started it, where that had one. */
  readonly trace?: string;
};

/**
 * Work that was lost with its pods so often that it is a suspect, which begins on its pod with nothing else
 * for a while. While it waits there, what ends the pod is another's; when it has `begun`, it is to blame;
 * and once others begin `beside` it, they may be. Absent where it is no suspect.
 */
export type SuspectStage = "waits" | "begun" | "beside";

export type Compaction = {
  readonly type: "compaction";
  readonly epoch: number;
  readonly attempt: number;
  readonly lost: number;
  readonly agent: string;
  readonly runner: string | null;
  /** What is to be summed up: from after the last summary's range to here. */
  readonly toSeq: number;
  /** How many of the header's `tokens` the summary takes the place of. */
  readonly tokens: number;
  readonly alone?: SuspectStage;
};

export type Pending = {
  readonly agent: string;
  /** The first entry that waits, and the header's `tokens` before it: no summary may stand for it yet. */
  readonly fromSeq: number;
  readonly tokensBefore: number;
  readonly upToSeq: number;
  readonly trigger: Turn["trigger"];
  readonly replaces: number | null;
  readonly messageId: string;
  readonly trace?: string;
};

export function sessionStateOf({ work }: Pick<Header, "work">): SessionState {
  if (work === null) return { state: "idle" };
  if (work.type === "compaction") return { state: "compacting", epoch: work.epoch };
  const { epoch, attempt, agent, messageId, upToSeq, stopping } = work;
  const state = !stopping && permitWaitsOf(work) % 2 === 1 ? "waiting" : "catching_up";
  return { state, epoch, attempt, agent, messageId, upToSeq, stopping };
}

/** How often this attempt has begun or ended to wait for a permit. */
export function permitWaitsOf({ waits, attempt }: Turn): number {
  return waits?.attempt === attempt ? waits.count : 0;
}

/** A session of which nothing was said yet. */
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
