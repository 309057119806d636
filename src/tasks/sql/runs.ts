import { holdTask, isAmong, sql, type Statement } from "../../store/sql.ts";
import { cancelChildren } from "./inspect.ts";
import { insertTasks, type NewTask } from "./enqueue.ts";
import { type Finish, inOrder, wakesOthers } from "./finish.ts";
import { noteKept, noteLeft } from "./run-events.ts";
import { fenceOf } from "./run-fence.ts";
import { forgetOthers, startOver, takeSignals, waitForChildren } from "./run-relations.ts";
import { keepRuns, leaveRuns } from "./run-rows.ts";
import { wakeIfNothingIsOpen, wakeWaitersOfChildren } from "./dependencies.ts";

/** What keeps a run from being claimed once it is given back. */
export type RunPark =
  /** Nothing, or a time that has yet to come. */
  | { readonly for: "time"; readonly untilMs: number | null }
  /** A signal of this name, however long that takes. */
  | { readonly for: "signal"; readonly name: string; readonly untilMs: number | null }
  /** Those children whose keys begin so, until all of them have ended. */
  | { readonly for: "children"; readonly keys: string }
  /** Room of a limit that whoever started it didn't know of. */
  | { readonly for: "room"; readonly scope: string }
  /** People: it can't be read. */
  | { readonly for: "people"; readonly why: string; readonly byVersion: number };

/** What the row of a run says after one write of whoever runs it. */
export type RunWrite = {
  /** How many such writes there were before: this one follows them, or isn't stored. */
  readonly seq: number;
  readonly version: number | null;
  readonly cursor: string | null;
  /** Null where it is what it was. */
  readonly state: string | null;
  readonly intent: string | null;
  readonly waiting: string | null;
  readonly stoppedAt: string | null;
  readonly failures: number;
  /** Whether what is at the cursor is another than before: nobody has died of that, or got anywhere with it. */
  readonly moved: boolean;
  /** The trace that it belongs to from now on; null where that is known already. */
  readonly trace: string | null;
  /** Only where it is given back. */
  readonly park: RunPark;
  readonly events: readonly {
    readonly type: string;
    readonly attempt: number | null;
    readonly detail: string | null;
  }[];
  /** Runs that it starts and waits for. */
  readonly children: readonly NewTask[];
  /** Whether those that it has started are to be cancelled. */
  readonly cancelsChildren: boolean;
  /** The signals that are used up. */
  readonly takes: readonly string[];
};

export type RunFinish = Finish & { readonly run: RunWrite };

export function isRunFinish(finish: Finish): finish is RunFinish {
  return finish.run !== undefined;
}

/** The statements of a transaction that stores writes of runs, and where among them the answers are. */
export type RunStatements = {
  /** Before whatever else ends tasks. */
  readonly statements: readonly Statement[];
  /** Which of them say what was stored. */
  readonly answers: readonly number[];
  /** What follows when all is stored. */
  readonly after: readonly Statement[];
  /** Whether there is something new to claim. */
  readonly news: boolean;
};

/** One transaction for all runs of a pod that have something to say: who goes on, who waits, who ends. */
export function storeRuns(podId: string, given: readonly RunFinish[]): RunStatements {
  const all = inOrder(given);
  const fence = fenceOf(all);
  const kept = all.filter(({ status }) => status === "claimed");
  const left = all.filter(({ status }) => status !== "claimed");
  const children = all.flatMap(({ taskId, run }) =>
    run.children.map((child, place) => ({ ...child, parentId: taskId, place })),
  );
  const cancelling = all.filter(({ run }) => run.cancelsChildren).map(({ taskId }) => taskId);
  const takes = all.flatMap(({ taskId, run }) => run.takes.map((id) => [taskId, id] as const));
  const statements: Statement[] = [];
  if (children.length + takes.length + cancelling.length > 0) {
    // What is done to other rows holds only if the runs themselves can be written, so nobody may
    // change those in between.
    statements.push(
      sql`select task.task_id from ${fence(sql`task`)} order by task.task_id ${holdTask}`,
    );
  }
  if (children.length > 0) {
    const parents = sql`select task.task_id from ${fence(sql`task`)}`;
    statements.push(insertTasks(children, sql`${isAmong(parents, sql`fresh.parent_id`)}`));
    statements.push(...startOver(children, fence));
    // Only what has stopped before can have started others.
    const again = new Set(all.filter(hasStopped).map(({ taskId }) => taskId));
    const anew = children.filter(({ parentId }) => again.has(parentId));
    if (anew.length > 0) statements.push(forgetOthers(anew, fence));
  }
  if (takes.length > 0) statements.push(takeSignals(takes, fence));
  if (cancelling.length > 0) statements.push(...cancelChildren(cancelling, fence));
  const answers: number[] = [];
  if (left.length > 0) {
    const wakes = wakesOthers(all);
    if (left.some(hasEvents)) statements.push(noteLeft(podId, left, wakes));
    answers.push(statements.push(leaveRuns(left, wakes)) - 1);
  }
  if (kept.length > 0) {
    answers.push(statements.push(keepRuns(kept)) - 1);
    if (kept.some(hasEvents)) statements.push(noteKept(podId, kept));
  }
  const parents = all.filter(({ run }) => run.park.for === "children").map(({ taskId }) => taskId);
  const after = [
    ...(children.length > 0 ? waitForChildren(children) : []),
    // One may have ended while its parent was claimed, when nobody could wake it.
    ...(parents.length > 0 ? [wakeIfNothingIsOpen(parents)] : []),
    ...(cancelling.length > 0 ? wakeWaitersOfChildren(cancelling) : []),
  ];
  return { statements, answers, after, news: children.length + cancelling.length > 0 };
}

function hasStopped({ run }: RunFinish): boolean {
  return run.stoppedAt !== null;
}

function hasEvents({ run }: RunFinish): boolean {
  return run.events.length > 0;
}
