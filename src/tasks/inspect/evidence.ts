import type { HeldByThrottle, TaskStatus } from "../rows.ts";
import type { Reason } from "../run/pod-status.ts";

/** Why a task or run has not ended, or how it has. The first reason is the one to begin with. */
export type Verdict = {
  readonly taskId: string;
  readonly name: string;
  readonly tenant: string;
  readonly isRun: boolean;
  readonly status: TaskStatus;
  /** The store's time of this verdict. */
  readonly atMs: number;
  readonly reasons: readonly WhyReason[];
};

/** One reason, in words for people and in fields for programs. */
export type WhyReason = WhyFacts & {
  readonly sentence: string;
  /** What it refers to. */
  readonly links: readonly WhyLink[];
  /** What to do about it, and the command that does it or shows more; null if nothing is to be done. */
  readonly advice: string | null;
  readonly command: string | null;
};

export type WhyLink = {
  /** A run is a task, and has the same id. */
  readonly what: "task" | "pod" | "throttle" | "limit" | "pause";
  readonly id: string;
};

export type WhyFacts =
  | { readonly code: "ended"; readonly evidence: EndedFacts }
  | { readonly code: "running"; readonly evidence: RunningFacts }
  | { readonly code: "set_aside"; readonly evidence: SetAsideFacts }
  | { readonly code: "not_due"; readonly evidence: NotDueFacts }
  | { readonly code: "waits_for_tasks"; readonly evidence: DependencyFacts }
  | { readonly code: "waits_for_signal"; readonly evidence: SignalFacts }
  | { readonly code: "paused"; readonly evidence: PauseFacts }
  | { readonly code: "no_worker"; readonly evidence: NoWorkerFacts }
  | { readonly code: "limit_reached"; readonly evidence: LimitFacts }
  | { readonly code: "throttled"; readonly evidence: HeldByThrottle }
  | { readonly code: "must_run_alone"; readonly evidence: { readonly deaths: number } }
  | { readonly code: "no_free_pod"; readonly evidence: { readonly pods: readonly BusyPod[] } }
  | { readonly code: "queued"; readonly evidence: QueuedFacts };

export type WhyCode = WhyFacts["code"];

export type EndedFacts = {
  readonly status: "completed" | "failed" | "cancelled";
  readonly endedAtMs: number;
};

export type RunningFacts = {
  readonly podId: string;
  readonly sinceMs: number;
  readonly attempt: number;
  /** False if the pod has left or fallen silent: the leader gives its tasks to others. */
  readonly isPodUp: boolean;
  /** True if its pod has claimed it ahead, and it waits there for a slot. */
  readonly waitsForSlot: boolean;
  readonly cancelRequested: boolean;
};

export type SetAsideFacts = {
  readonly reason: string;
  readonly message: string;
  /** The key of the step that can't be used. */
  readonly step?: string;
  /** Of a run: the version that couldn't read it. */
  readonly byVersion?: number;
};

/** What a task that isn't due has been put off by. */
export type NotDueCause = "delayed" | "scheduled" | "retry" | "snoozed" | "sleeping" | "put_off";

export type NotDueFacts = {
  readonly untilMs: number;
  readonly cause: NotDueCause;
  /** When that was decided, and for how long it was put off; null where no event says so. */
  readonly decidedAtMs: number | null;
  readonly delayMs: number | null;
  readonly failures: number;
  /** Null where the handler's own number applies. */
  readonly maxAttempts: number | null;
  readonly snoozes: number;
  /** The code of the last error, of a retry. */
  readonly errorCode: string | null;
  readonly scheduledAtMs: number | null;
};

export type DependencyFacts = {
  readonly total: number;
  readonly open: number;
  /** Failed or cancelled. */
  readonly failed: number;
  /** The first of them: those that have failed, then those that are open. */
  readonly tasks: readonly DependencyState[];
};

export type DependencyState = {
  readonly taskId: string;
  /** Null of one that was deleted, or that the caller may not see. */
  readonly name: string | null;
  readonly status: string | null;
  readonly podId: string | null;
  /** True if the task has started it itself. */
  readonly isChild: boolean;
};

export type SignalFacts = {
  readonly signal: string;
  readonly sinceMs: number;
  readonly untilMs: number | null;
};

export type PauseFacts = {
  /** The name that is paused, or `*`. */
  readonly name: string;
  readonly sinceMs: number;
  readonly reason: string | null;
  /** The actor, as the audit names it; null where no entry is kept. */
  readonly by: string | null;
};

export type NoWorkerFacts = {
  readonly name: string;
  /** The version that a pod must have at least; null if any will do. */
  readonly version: number | null;
  readonly livePods: number;
  /** The pods that have been seen with a handler of this name. */
  readonly pods: readonly SeenPod[];
};

export type SeenPod = {
  readonly podId: string;
  readonly isUp: boolean;
  readonly lastHeartbeatMs: number;
  readonly version: number | null;
};

export type LimitFacts = {
  readonly scope: string;
  readonly limit: number;
  readonly running: number;
  /** Tasks that wait for a free slot of the same scope. */
  readonly blocked: number;
  /** The tasks that use its slots, the longest first; not all of them where there are many. */
  readonly holders: readonly SlotHolder[];
};

export type SlotHolder = {
  readonly taskId: string;
  readonly name: string;
  readonly podId: string | null;
  readonly sinceMs: number;
};

/** A pod that could run the task and takes no more now. */
export type BusyPod = {
  readonly podId: string;
  readonly held: number;
  /** How many tasks it holds at most right now; null if it has not said so. */
  readonly holds: number | null;
  readonly reasons: readonly Reason[];
};

export type QueuedFacts = {
  /** How many are claimed before it, of its name or of its limit's scope. */
  readonly ahead: number;
  /** True if there may be more: counting has ended. */
  readonly isMore: boolean;
};

/** The row, as far as the verdict depends on it. */
export type Standing = {
  readonly taskId: string;
  readonly name: string;
  readonly tenant: string;
  readonly status: TaskStatus;
  readonly isRun: boolean;
  readonly nowMs: number;
  /** A value of the column `parked`. */
  readonly parked: number;
  readonly runAtMs: number;
  readonly updatedAtMs: number;
  readonly scheduledAtMs: number | null;
  readonly failures: number;
  readonly maxAttempts: number | null;
  readonly snoozes: number;
  readonly deaths: number;
  readonly cancelRequested: boolean;
  readonly claim: { readonly podId: string; readonly sinceMs: number } | null;
  readonly waitsForSlot: boolean;
  /** The signal that it is parked for. */
  readonly signal: Pick<SignalFacts, "signal" | "sinceMs"> | null;
  /** It is parked for children that its own code has started. */
  readonly waitsForChildren: boolean;
  readonly isSleeping: boolean;
  /** True if a pod has claimed it before. */
  readonly wasClaimed: boolean;
  readonly setAside: SetAsideFacts | null;
  /** The version of its flow or of its code that a pod must have at least. */
  readonly version: number | null;
};

/** Why it was put off, by its newest event that says so. */
export type Lateness = {
  readonly cause: "retry" | "snoozed";
  readonly atMs: number;
  readonly delayMs: number | null;
  readonly errorCode: string | null;
};

/** A pod that may run the task, and what it says of itself. */
export type CapablePod = BusyPod;

/** All that a verdict is decided from. What needs no reading for this task is empty. */
export type WhyKnown = {
  readonly standing: Standing;
  readonly lateness: Lateness | null;
  readonly dependencies: DependencyFacts;
  readonly pauses: readonly PauseFacts[];
  /** Null if a live pod can take it. */
  readonly noWorker: NoWorkerFacts | null;
  readonly isPodUp: boolean;
  /** The limits that are reached. */
  readonly limits: readonly LimitFacts[];
  readonly throttledBy: HeldByThrottle | null;
  /** The live pods that can take it. */
  readonly pods: readonly CapablePod[];
  readonly queued: QueuedFacts | null;
};
