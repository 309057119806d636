import { FlotillaError } from "../base/errors.ts";
import { checkOptions } from "../base/options.ts";
import type { Row } from "../store/database.ts";
import { fingerprintVersion, groupVersion } from "./fingerprint.ts";

/**
 * A redrive starts failed tasks over: one first, then in steps of twice as many, each when the one
 * before has ended well. What it decides is a row of the store that is changed only by whoever has
 * seen its last revision, so any leader can go on with it, and two do what one would.
 *
 *   running ── the error comes back, too many others, cancelled ──▶ stopping ── all ended ──▶ stopped,
 *      └───── nothing is left ──▶ done                                                      cancelled
 */
export type RedriveState = "running" | "stopping" | "done" | "stopped" | "cancelled";

export type RedriveReason = {
  readonly code: "same_error" | "other_errors" | "cancelled";
  readonly message: string;
  /** A task that speaks for it. */
  readonly taskId?: string;
};

export type Redrive = {
  readonly redriveId: string;
  readonly selection: Selection;
  readonly state: RedriveState;
  /** Why it takes no more. */
  readonly reason: RedriveReason | null;
  /** The number of its present step, and how many tasks that was to take. */
  readonly step: number;
  readonly stepSize: number;
  readonly maxStep: number;
  /** Tasks that it has started over, and what became of them. */
  readonly taken: number;
  readonly succeeded: number;
  /** Failed again, with the error that they had before. */
  readonly failed: number;
  /** Failed again, with another error. */
  readonly failedOtherwise: number;
  /** Cancelled, or deleted before they could be counted. */
  readonly gone: number;
  /** Not ended yet. */
  readonly open: number;
  /** How many were left when it last looked; null before it has. */
  readonly remaining: number | null;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
};

/** What became of the tasks of one step. */
export type StepCounts = {
  readonly taken: number;
  readonly open: number;
  readonly succeeded: number;
  readonly failed: number;
  readonly failedOtherwise: number;
  readonly gone: number;
  /** The first that failed again as before, and the first that failed otherwise. */
  readonly again?: FailedAgain;
  readonly otherwise?: FailedAgain;
};

type FailedAgain = { readonly taskId: string; readonly message: string };

type RedriveDecision =
  | { readonly type: "wait" }
  | { readonly type: "take"; readonly size: number }
  | { readonly type: "stop"; readonly reason: RedriveReason }
  | { readonly type: "end"; readonly state: "stopped" | "cancelled" };

/** Other errors may be bad luck; in more than this share of a step they aren't. */
const otherErrorsShare = 0.2;

/** Decides; never does. What a redrive does next, given its row and the tasks of its present step. */
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
  // A step that took nothing has shown nothing either.
  const size = redrive.step === 0 ? 1 : redrive.stepSize * (step.taken > 0 ? 2 : 1);
  return { type: "take", size: Math.min(size, redrive.maxStep) };
}

function reasonOf(
  code: RedriveReason["code"],
  message: string,
  example: FailedAgain | undefined,
): RedriveReason {
  return { code, message, ...(example && { taskId: example.taskId }) };
}

/** A task of the present step, and the group that its error belonged to before and belongs to now. */
export type StepTask = {
  readonly taskId: string;
  readonly status: string;
  readonly before?: string;
  readonly now?: string;
  readonly message?: string;
};

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

function exampleOf({ taskId, message = "" }: StepTask): FailedAgain {
  return { taskId, message };
}

/** A row as it is stored: without what only the tasks of the present step can tell. */
export type StoredRedrive = Omit<Redrive, "open"> & {
  readonly revision: number;
  readonly stepTaken: number;
};

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

/** A redrive as people see it: with what has become of its present step so far. */
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

/** What is to be started over or given up: a group, one task, all of a name, or all. */
export type Selection = {
  readonly group?: string;
  readonly taskId?: string;
  readonly name?: string;
  readonly all?: true;
};

/** What of a selection may be picked. */
export type Picking = {
  /** Only what had failed by then. */
  readonly untilMs?: number;
  /** Not what one of these redrives has started over. */
  readonly notOf?: readonly string[];
};

// A redrive is kept with what it was asked for.
const maxValueChars = 500;
const kinds = ["group", "taskId", "name", "all"] as const;

/** Refuses a selection that doesn't say exactly one thing: what is started over or given up must be meant. */
export function checkSelection(given: Selection): Selection {
  checkOptions("selection", given, kinds);
  const named = kinds.filter((kind) => given[kind] !== undefined);
  const [kind] = named;
  if (kind === undefined || named.length > 1) {
    throw new FlotillaError(
      "invalid_option",
      `name one of ${kinds.join(", ")}: ${named.length === 0 ? "none was" : `${named.join(" and ")} were`} given`,
    );
  }
  if (kind === "all") {
    if (given.all === true) return { all: true };
    throw new FlotillaError("invalid_option", "all must be true");
  }
  const value = given[kind];
  if (typeof value !== "string" || value === "") {
    throw new FlotillaError("invalid_option", `${kind} must be text`);
  }
  if (value.length > maxValueChars) {
    throw new FlotillaError(
      "invalid_option",
      `${kind} must be ${maxValueChars} characters at most, as those of tasks are`,
    );
  }
  if (kind === "group" && groupVersion(value) !== fingerprintVersion) {
    throw new FlotillaError(
      "invalid_option",
      `${JSON.stringify(value.slice(0, 40))} is no group of this release: \`groups\` lists those there are`,
    );
  }
  return { [kind]: value };
}
