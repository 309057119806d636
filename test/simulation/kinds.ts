/**
 * Which statement of the product a write carries, and with which values. A statement is known by
 * its template, which is the same object every time it is made.
 */
import { beat, finishPass, leave, markDown, prunePods } from "../../src/pods/statements.ts";
import { cancelTask, retryTask } from "../../src/queue/statements/ask.ts";
import {
  claimReserved,
  releaseCall,
  reserveAlone,
  unparkDue,
} from "../../src/queue/statements/claim.ts";
import { insertTasks } from "../../src/queue/statements/enqueue.ts";
import { finishTasks, saveProgress } from "../../src/queue/statements/finish.ts";
import { retentionOf } from "../../src/queue/retention.ts";
import { deleteFinished, recoverTasks } from "../../src/queue/statements/recover.ts";
import { moveSchedules } from "../../src/schedules/statements.ts";
import type { Statement, Value } from "../../src/store/sql.ts";

export type Kind =
  | "beat"
  | "cancel"
  | "claim"
  | "delete"
  | "enqueue"
  | "finish"
  | "fire"
  | "leave"
  | "mark_down"
  | "pass"
  | "progress"
  | "prune"
  | "recover"
  | "release"
  | "reserve"
  | "retry"
  | "unpark";

const noCall = { podId: "", call: 0, names: [], limit: 0 };

const kinds = new Map<Statement["strings"], Kind>([
  [beat("", "", 0).strings, "beat"],
  [cancelTask("")[1]!.strings, "cancel"],
  [claimReserved(noCall, "").strings, "claim"],
  [deleteFinished([], retentionOf(0))[0]!.strings, "delete"],
  [insertTasks([]).strings, "enqueue"],
  [finishTasks([]).strings, "finish"],
  [moveSchedules([]).strings, "fire"],
  [leave("").strings, "leave"],
  [markDown([]).strings, "mark_down"],
  [finishPass("").strings, "pass"],
  [saveProgress([]).strings, "progress"],
  [prunePods(0).strings, "prune"],
  [recoverTasks([]).strings, "recover"],
  [releaseCall("", 0).at(-1)!.strings, "release"],
  [reserveAlone("", []).strings, "reserve"],
  [retryTask("", "")[1]!.strings, "retry"],
  [unparkDue().strings, "unpark"],
]);

/** What one write is about: its main statement, with the rows that it binds. */
export type Intent = {
  readonly kind: Kind | "other";
  readonly rows: readonly Readonly<Record<string, Value>>[];
  /** The number of a claim call. */
  readonly call: number | undefined;
};

// A claim also unparks and reserves; those are never what a write is mainly about.
const aside: readonly (Kind | undefined)[] = ["reserve", "unpark", undefined];

export function intentOf(statements: readonly Statement[]): Intent {
  for (const statement of statements) {
    const kind = kinds.get(statement.strings);
    if (kind === undefined || aside.includes(kind)) continue;
    const call = kind === "claim" ? statement.parts.find((part) => typeof part === "number") : 0;
    return { kind, rows: boundRows(statement), call: call as number | undefined };
  }
  return { kind: "other", rows: [], call: undefined };
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
