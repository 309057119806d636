/**
 * Which statement of the product a write carries, and with which values. A statement is known by
 * its template, which is the same object every time it is made.
 */
import type { NewBulk } from "../../src/bulk/sql.ts";
import { insertBulk, stopBulk, writeBatch } from "../../src/bulk/sql.ts";
import type { StoredBulk } from "../../src/bulk/bulk.ts";
import { countStep, type StoredRedrive } from "../../src/dead-letters/redrive.ts";
import {
  cancelRedrive,
  endRedrive,
  insertRedrive,
  stopRedrive,
  takeStep,
} from "../../src/dead-letters/sql.ts";
import { resumeSetAside, retrySetAside } from "../../src/flows/sql.ts";
import { type FencedRun, releaseFinish } from "../../src/flows/drive/save.ts";
import { beat, finishPass, markLeft, markDown, prunePods } from "../../src/pods/sql.ts";
import { cancelTask, retryTask } from "../../src/tasks/sql/inspect.ts";
import {
  claimReserved,
  markBegun,
  releaseCall,
  reserveAlone,
  unparkDue,
} from "../../src/tasks/sql/claim.ts";
import { insertTasks } from "../../src/tasks/sql/enqueue.ts";
import { finishTasks, saveProgress } from "../../src/tasks/sql/finish.ts";
import { retentionOf } from "../../src/tasks/leader/prune.ts";
import { deleteFinished, recoverTasks } from "../../src/tasks/sql/recover.ts";
import { dropPause, putPause, notifyPod } from "../../src/tasks/sql/limits.ts";
import { keepRuns, leaveRuns } from "../../src/tasks/sql/runs.ts";
import { sendSignal } from "../../src/tasks/sql/signals.ts";
import { storeSteps } from "../../src/tasks/sql/steps.ts";
import { moveSchedules } from "../../src/schedules/sql.ts";
import type { Statement, Value } from "../../src/store/sql.ts";

export type Kind =
  | "beat"
  | "begin"
  | "bulk"
  | "bulk_batch"
  | "bulk_stop"
  | "cancel"
  | "claim"
  | "delete"
  | "enqueue"
  | "finish"
  | "fire"
  | "leave"
  | "mark_down"
  | "pass"
  | "pause"
  | "progress"
  | "prune"
  | "recover"
  | "redrive"
  | "redrive_cancel"
  | "redrive_end"
  | "redrive_step"
  | "redrive_stop"
  | "release"
  | "reserve"
  | "resume"
  | "resume_run"
  | "retry"
  | "run"
  | "signal"
  | "step"
  | "take_up"
  | "tell_pod"
  | "unpark";

const noCall = { podId: "", call: 0, names: [], limit: 0 };
const noWrite = { redrive: {} as StoredRedrive, step: countStep(0, []), writeId: "" };
const noReason = { code: "cancelled", message: "" } as const;

const noBulk = { filter: {}, options: {} } as NewBulk;
const noBatch = {
  bulk: { action: "retry", filter: {}, as: null } as StoredBulk,
  seen: [],
  lastTaskId: "",
  isLast: false,
};
const noRun = { taskId: "", token: 0, seq: 0, columns: {} } as FencedRun;
const leaving = releaseFinish(noRun);
const noResume = { runId: "", version: null, requestId: "", forget: [] };
const noSignal = { taskId: "", to: "run", signalId: "", name: "", payload: "" } as const;

/** What writes are recognised by: a mutation that changes one breaks the simulation, and shows nothing. */
export const markers: string[] = [];

/** The template of the one among several statements that says this, wherever it stands among them. */
function saying(text: string, statements: readonly Statement[]): Statement["strings"] {
  markers.push(text);
  const [found, ...others] = statements.filter(({ strings }) => strings.join("?").includes(text));
  if (found && others.length === 0) return found.strings;
  throw new Error(`of the statements, ${found ? "several say" : "none says"} "${text}"`);
}

const kinds = new Map<Statement["strings"], Kind>([
  [beat("", "", 0).strings, "beat"],
  [markBegun("", { call: 0, taskId: "", pauses: 0 }).strings, "begin"],
  [saying("insert into", insertBulk("", noBulk)), "bulk"],
  [saying("revision = revision + 1, cursor_id", writeBatch(noBatch)), "bulk_batch"],
  [saying("state = 'stopped'", stopBulk("")), "bulk_stop"],
  [saying("select status, cancel_requested", cancelTask("", "")), "cancel"],
  [claimReserved(noCall, "").strings, "claim"],
  // What refers to files is deleted in the same words.
  [deleteFinished([], retentionOf(60_000))[0]!.strings, "delete"],
  [insertTasks([]).strings, "enqueue"],
  [finishTasks([]).strings, "finish"],
  [moveSchedules([]).strings, "fire"],
  [markLeft("").strings, "leave"],
  [markDown([]).strings, "mark_down"],
  [finishPass("").strings, "pass"],
  [saveProgress([]).strings, "progress"],
  [prunePods(0).strings, "prune"],
  [putPause("", null, 0).strings, "pause"],
  [dropPause("", 0).strings, "resume"],
  [saying("set pauses = pauses", notifyPod("")), "tell_pod"],
  [saying("insert into", insertRedrive("", {}, { maxStep: 1, fromStart: false })), "redrive"],
  [saying("step_size = ?", takeStep(noWrite, [], { size: 0, remaining: 0 })), "redrive_step"],
  [stopRedrive(noWrite, noReason).strings, "redrive_stop"],
  [saying("state = 'stopping'", cancelRedrive("", noReason)), "redrive_cancel"],
  [endRedrive(noWrite, "done").strings, "redrive_end"],
  [recoverTasks([]).strings, "recover"],
  [saying("claimed_by = null, claim_call = null", releaseCall("", 0)), "release"],
  [reserveAlone("", []).strings, "reserve"],
  [saying("set_aside_version = null", resumeSetAside(noResume)), "resume_run"],
  [saying("as retried", retryTask("", "")), "retry"],
  [leaveRuns([leaving], false).strings, "run"],
  [keepRuns([{ ...leaving, status: "claimed" }]).strings, "run"],
  [saying("last_update = case", sendSignal(noSignal)), "signal"],
  [storeSteps([])[0]!.strings, "step"],
  [retrySetAside("", 0).strings, "take_up"],
  [unparkDue().strings, "unpark"],
]);

/** What one write is about: its main statement, with the rows that it binds. */
export type Intent = {
  readonly kind: Kind | "other";
  readonly rows: readonly Readonly<Record<string, Value>>[];
  /** The number of a claim call. */
  readonly call: number | undefined;
  /** What is cancelled, paused or resumed, or the redrive that takes a step; and the number that goes with it. */
  readonly subject?: string;
  readonly number?: number;
  /** The claim of its own pod that an enqueue ends with. */
  readonly carried?: Pick<Intent, "call" | "number">;
  /** What a pod says to begin of the tasks that it claimed ahead. */
  readonly mark?: Mark;
  /** The steps that it stores, maybe beside endings. */
  readonly steps?: readonly Readonly<Record<string, Value>>[];
};

export type Mark = {
  readonly call: number;
  readonly taskId: string;
  /** The place of the statement in its write. It answers with a row if the tasks may begin. */
  readonly at: number;
};

// A claim also unparks and reserves, any write may say what begins, and endings go with steps; those are
// never what a write is mainly about.
const aside: readonly (Kind | undefined)[] = ["begin", "reserve", "step", "unpark", undefined];

export function intentOf(statements: readonly Statement[]): Intent {
  const intent = withSteps(mainIntentOf(statements), statements);
  const mark = markOf(statements);
  if (!mark) return intent;
  return intent.kind === "other" ? { ...intent, kind: "begin", mark } : { ...intent, mark };
}

function withSteps(intent: Intent, statements: readonly Statement[]): Intent {
  const storing = statements.find(({ strings }) => kinds.get(strings) === "step");
  if (!storing) return intent;
  const steps = boundRows(storing);
  return intent.kind === "other" ? { ...intent, kind: "step", steps } : { ...intent, steps };
}

function mainIntentOf(statements: readonly Statement[]): Intent {
  // What runs have to say may begin with the runs that they start.
  const runs = statements.filter(({ strings }) => kinds.get(strings) === "run");
  if (runs.length > 0) return { kind: "run", rows: runs.flatMap(boundRows), call: undefined };
  for (const statement of statements) {
    const kind = kinds.get(statement.strings);
    if (kind === undefined || aside.includes(kind)) continue;
    const found = { kind, rows: boundRows(statement), call: 0 };
    if (kind === "claim") return { ...found, ...numbersOf(statement) };
    if (kind === "enqueue") {
      const claim = statements.find(({ strings }) => kinds.get(strings) === "claim");
      return claim ? { ...found, carried: numbersOf(claim) } : found;
    }
    // Which tasks a step takes is said by the statements behind the one that moves the redrive.
    if (kind === "redrive_step") {
      const taking = statements.map(boundRows).find(([first]) => first && "token" in first);
      return { ...found, rows: taking ?? [], ...last(statement) };
    }
    if (kind === "bulk_batch") return { ...found, ...last(statement) };
    if (kind === "cancel") return { ...found, subject: last(statement).subject };
    return kind === "pause" || kind === "resume" ? { ...found, ...last(statement) } : found;
  }
  return { kind: "other", rows: [], call: undefined };
}

/** The number of a claim call, and of the pauses that it says it knows. */
function numbersOf({ parts }: Statement): Pick<Intent, "call" | "number"> {
  const call = parts.find((part) => typeof part === "number");
  for (const part of parts) {
    if (typeof part !== "object" || part === null || !("strings" in part)) continue;
    const [number] = part.strings[0]?.includes("and pauses =") ? part.parts : [];
    if (typeof number === "number") return { call, number };
  }
  return { call };
}

function markOf(statements: readonly Statement[]): Mark | undefined {
  const at = statements.findIndex(({ strings }) => kinds.get(strings) === "begin");
  if (at < 0) return undefined;
  const { parts } = statements[at]!;
  const call = Number(parts.find((part) => typeof part === "number"));
  return { call, taskId: String(parts.find((part) => typeof part === "string")), at };
}

/** The last text and the last number of a statement's conditions. */
function last({ parts }: Statement): { subject: string; number: number } {
  const subject = parts.findLast((part) => typeof part === "string")!;
  return { subject, number: parts.findLast((part) => typeof part === "number")! };
}

function boundRows(statement: Statement): Readonly<Record<string, Value>>[] {
  for (const part of statement.parts) {
    if (typeof part !== "object" || part === null) continue;
    if ("rows" in part) {
      const names = Object.keys(part.columns);
      return part.rows.map((row) => Object.fromEntries(names.map((name, at) => [name, row[at]!])));
    }
  }
  return [];
}
