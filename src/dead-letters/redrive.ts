import { FlotillaError } from "../base/errors.ts";
import { checkOptions, checkText } from "../base/options.ts";
import type { Row } from "../store/database.ts";
import { fingerprintVersion, groupVersion } from "./fingerprint.ts";

/**
 * A redrive restarts failed tasks: one first, then in steps of twice as many, each when the one
 * before has ended well. Its state is a row that is changed only by a writer that has read its last
 * revision, so any leader can continue it, and two leaders do what one would.
 *
 *   running ── the error comes back, too many others, cancelled ──▶ stopping ── all ended ──▶ stopped,
 *      └───── nothing is left ──▶ done                                                      cancelled
 */
export type RedriveState = "running" | "stopping" | "done" | "stopped" | "cancelled";

export type RedriveReason = {
  readonly code: "same_error" | "other_errors" | "cancelled";
  readonly message: string;
  /** A task with that error. */
  readonly taskId?: string;
};

export type Redrive = {
  readonly redriveId: string;
  readonly selection: Selection;
  readonly state: RedriveState;
  /** Why it takes no more tasks. */
  readonly reason: RedriveReason | null;
  /** The number of its current step, and that step's planned size. */
  readonly step: number;
  readonly stepSize: number;
  readonly maxStep: number;
  /** Whether it forgets the stored steps of its tasks, and how many it has forgotten. */
  readonly fromStart: boolean;
  readonly forgottenSteps: number;
  /** Tasks that it has restarted, and their outcomes. */
  readonly taken: number;
  readonly succeeded: number;
  /** Failed again, with the same error. */
  readonly failed: number;
  /** Failed again, with another error. */
  readonly failedOtherwise: number;
  /** Cancelled, or deleted before they could be counted. */
  readonly gone: number;
  /** Not ended yet. */
  readonly open: number;
  /** How many were left at the last count; null before the first. */
  readonly remaining: number | null;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
};

/** The tasks of one step, by outcome. */
export type StepCounts = {
  readonly taken: number;
  readonly open: number;
  readonly succeeded: number;
  readonly failed: number;
  readonly failedOtherwise: number;
  readonly gone: number;
  /** The first that failed with the same error, and the first that failed with another. */
  readonly again?: FailedAgain;
  readonly otherwise?: FailedAgain;
};

/** The failed tasks to restart or discard: a group, one task, all of a name, or all. */
export type Selection = {
  readonly group?: string;
  readonly taskId?: string;
  readonly name?: string;
  readonly all?: true;
  /** Of these, only those of a tenant. */
  readonly tenant?: string;
};

/** Further conditions on the tasks of a selection. */
export type Picking = {
  /** Only tasks that had failed by then. */
  readonly untilMs?: number;
  /** Not tasks that one of these redrives has restarted. */
  readonly notOf?: readonly string[];
};

/** A task of the current step, and the groups of its error before and now. */
export type StepTask = {
  readonly taskId: string;
  readonly status: string;
  readonly before?: string;
  readonly now?: string;
  readonly message?: string;
};

/** A redrive's row, without the counts of its current step. */
export type StoredRedrive = Omit<Redrive, "open"> & {
  readonly revision: number;
  readonly stepTaken: number;
};

type FailedAgain = { readonly taskId: string; readonly message: string };

type RedriveDecision =
  | { readonly type: "wait" }
  | { readonly type: "take"; readonly size: number }
  | { readonly type: "stop"; readonly reason: RedriveReason }
  | { readonly type: "end"; readonly state: "stopped" | "cancelled" };

/** A few other errors are tolerated, up to this share of a step. */
const otherErrorsShare = 0.2;

// The selection is stored with its redrive.
const maxValueChars = 500;
const kinds = ["group", "taskId", "name", "all"] as const;

/** Pure. Decides what a redrive does next, given its row and the tasks of its current step. */
export function decideRedrive(redrive: StoredRedrive, step: StepCounts): RedriveDecision {
  if (redrive.state === "stopping") {
    if (step.open > 0) return { type: "wait" };
    return { type: "end", state: redrive.reason?.code === "cancelled" ? "cancelled" : "stopped" };
  }
  if (step.failed > 0) {
    const message = `the error came back: ${step.again?.message ?? ""}`;
    return { type: "stop", reason: reasonOf("same_error", message, step.again) };
  }
  if (step.failedOtherwise > otherErrorsShare * step.taken) {
    const message = `${step.failedOtherwise} of ${step.taken} tasks of a step failed with other errors: ${step.otherwise?.message ?? ""}`;
    return { type: "stop", reason: reasonOf("other_errors", message, step.otherwise) };
  }
  if (step.open > 0) return { type: "wait" };
  // A step that took no tasks has shown nothing, so the size stays.
  const size = redrive.step === 0 ? 1 : redrive.stepSize * (step.taken > 0 ? 2 : 1);
  return { type: "take", size: Math.min(size, redrive.maxStep) };
}

/** Counts the tasks of a step by outcome. */
export function countStep(taken: number, tasks: readonly StepTask[]): StepCounts {
  const of = (...statuses: string[]) => tasks.filter((each) => statuses.includes(each.status));
  const failed = of("failed");
  const [again, otherwise] = [true, false].map((same) =>
    failed.filter((each) => (each.now === each.before) === same),
  ) as [StepTask[], StepTask[]];
  return {
    taken,
    open: of("pending", "claimed").length,
    succeeded: of("completed").length,
    failed: again.length,
    failedOtherwise: otherwise.length,
    gone: of("cancelled").length + Math.max(0, taken - tasks.length),
    ...(again[0] && { again: exampleOf(again[0]) }),
    ...(otherwise[0] && { otherwise: exampleOf(otherwise[0]) }),
  };
}

export function toStoredRedrive(row: Row): StoredRedrive {
  const number = (column: string) => Number(row[column] ?? 0);
  return {
    redriveId: row["redrive_id"],
    selection: JSON.parse(row["filter"]) as Selection,
    state: row["state"],
    reason: row["reason"] === null ? null : (JSON.parse(row["reason"]) as RedriveReason),
    revision: number("revision"),
    step: number("step"),
    stepSize: number("step_size"),
    maxStep: number("step_max"),
    fromStart: number("from_start") === 1,
    forgottenSteps: number("forgotten_steps"),
    stepTaken: number("step_taken"),
    taken: number("taken"),
    succeeded: number("succeeded"),
    failed: number("failed"),
    failedOtherwise: number("failed_otherwise"),
    gone: number("gone"),
    remaining: row["remaining"] === null ? null : number("remaining"),
    createdAtMs: number("created_at"),
    updatedAtMs: number("last_update"),
  };
}

/** A redrive in its public form: with the counts of its current step so far. */
export function withStep(stored: StoredRedrive, step: StepCounts): Redrive {
  const { revision: _, stepTaken: __, ...redrive } = stored;
  return {
    ...redrive,
    succeeded: stored.succeeded + step.succeeded,
    failed: stored.failed + step.failed,
    failedOtherwise: stored.failedOtherwise + step.failedOtherwise,
    gone: stored.gone + step.gone,
    open: step.open,
  };
}

export function hasEnded({ state }: Pick<Redrive, "state">): boolean {
  return state !== "running" && state !== "stopping";
}

/**
 * Throws unless the selection has exactly one kind, because a restart or discard must be intended.
 */
export function checkSelection(given: Selection): Selection {
  checkOptions("selection", given, [...kinds, "tenant"]);
  const { tenant } = given;
  if (tenant !== undefined) checkText("tenant", tenant, { max: maxValueChars });
  const ofTenant = tenant === undefined ? {} : { tenant };
  const named = kinds.filter((kind) => given[kind] !== undefined);
  const [kind] = named;
  if (kind === undefined || named.length > 1) {
    throw new FlotillaError(
      "invalid_option",
      `give exactly one of ${kinds.join(", ")}: ${named.length === 0 ? "none was" : `${named.join(" and ")} were`} given`,
    );
  }
  if (kind === "all") {
    if (given.all === true) return { all: true, ...ofTenant };
    throw new FlotillaError("invalid_option", "all must be true");
  }
  const value = given[kind];
  if (typeof value !== "string" || value === "") {
    throw new FlotillaError("invalid_option", `${kind} must be text`);
  }
  if (value.length > maxValueChars) {
    throw new FlotillaError(
      "invalid_option",
      `${kind} must have at most ${maxValueChars} characters`,
    );
  }
  if (kind === "group" && groupVersion(value) !== fingerprintVersion) {
    throw new FlotillaError(
      "invalid_option",
      `${JSON.stringify(value.slice(0, 40))} is no group of this release: list the groups with \`groups\``,
    );
  }
  return { [kind]: value, ...ofTenant };
}

function reasonOf(
  code: RedriveReason["code"],
  message: string,
  example: FailedAgain | undefined,
): RedriveReason {
  return { code, message, ...(example && { taskId: example.taskId }) };
}

function exampleOf({ taskId, message = "" }: StepTask): FailedAgain {
  return { taskId, message };
}
