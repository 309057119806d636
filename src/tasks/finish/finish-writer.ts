import { callbackBatcher } from "../../base/batcher.ts";
import type { Clock } from "../../base/clock.ts";
import { type ErrorCode, hasCode, untilStoreRecovers } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { Database, Row } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import { callUntilAnswered, writeUntilKnown } from "../../store/retry.ts";
import { unblockScope } from "../concurrency/unblock.ts";
import { unblockAfter } from "../sql/concurrency.ts";
import {
  type Finish,
  finishTasks,
  insertFinishFollowUps,
  forgetEarlierSnoozes,
  readTaskStates,
  noteFinishes,
  wakeDependentsAfter,
  wakesDependents,
} from "../sql/finish.ts";
import { isRunFinish, findNotedWrites, type RunFinish, storeRuns } from "../sql/runs.ts";
import { cancelChildrenOf } from "../sql/inspect.ts";
import { wakeIfDependenciesEnded } from "../sql/dependencies.ts";
import { startStepChildren } from "../sql/step-children.ts";
import { selectStored, storeSteps, taskPart, type TaskStep } from "../sql/steps.ts";

/**
 * The result of a finish: stored; lost to another pod; or to be decided again, because the row has
 * been woken since the claim.
 */
export type FinishResult =
  | { readonly type: "stored"; readonly run?: StoredRun }
  | { readonly type: "lost" }
  | { readonly type: "woken"; readonly wake: number; readonly cancelRequested: boolean };

/** The result of storing a step: `lost` if another pod has the task, or it has ended. */
export type StepResult = { readonly type: "stored" } | { readonly type: "lost" };

type FinishOptions = {
  /**
   * True if another transaction probably holds the row, so that other finishes should not wait with
   * this one.
   */
  alone: boolean;
};

export type FinishWriter = {
  finish(finish: Finish, how?: FinishOptions): Promise<FinishResult>;
  /**
   * Like `finish`, with callbacks: a promise per finish would be too expensive for thousands of
   * them.
   */
  put(
    finish: Finish,
    onFinished: (finished: FinishResult) => void,
    onError: (error: unknown) => void,
  ): void;
  /** Stores a step together with the finishes and steps that come at the same time. */
  storeStep(step: TaskStep): Promise<StepResult>;
  /** The current rows of tasks, by id. */
  readStates(taskIds: string[]): Promise<ReadonlyMap<string, Row>>;
  /** Unblocks tasks of a scope or tenant after an outcome that this writer did not store. */
  unblock(scope: string | null): Promise<void>;
};

/** The row of a run after a write. */
type StoredRun = {
  /** False if another pod may have the run, because this one was believed dead. */
  readonly held: boolean;
  readonly wake: number;
  readonly cancelRequested: boolean;
};

// Another transaction holds one of the rows, maybe for long. Each finish is now sent on its own, so
// that the others need not wait for that row.
type SendAlone = { readonly type: "send_alone" };
const sendAlone: SendAlone = { type: "send_alone" };
const storedResult = { type: "stored" } as const;
const lostResult = { type: "lost" } as const;
// The finish was stored by an earlier send, and another pod has claimed the run since.
const storedEarlier: FinishResult = {
  type: "stored",
  run: { held: false, wake: 0, cancelRequested: false },
};
// Dependents were added since the claim. The finish is sent again, so that they are woken with it.
type HasDependents = { readonly type: "has_dependents" };
const hasDependents: HasDependents = { type: "has_dependents" };
const maxUnsplit = 16;
const codesUnlessBusy = untilStoreRecovers.filter((code) => code !== "store_busy");

const readRetryMs = 100;

// Each send occupies a connection while the store waits for a lock, and there are four by default.
const maxAtOnce = 2;

/**
 * Stores the outcomes of attempts. All outcomes that arrive during a write go into the next one.
 */
export function createFinishWriter(parts: {
  database: Database;
  clock: Clock;
  random: Random;
  podId: string;
  /** Aborts when there is no more time to wait for the store. */
  signal: AbortSignal;
  /** Called when dependents or blocked tasks may have become ready. */
  onWoken?: () => void;
  /** Called when a write failed and will be retried. */
  onTrouble?: () => void;
}): FinishWriter {
  const { database, podId } = parts;

  const sendBatch = async (
    items: (Finish | TaskStep)[],
  ): Promise<(FinishResult | SendAlone | HasDependents)[]> => {
    try {
      return await sendItems(items, codesUnlessBusy);
    } catch (error) {
      if (hasCode(error, "store_busy")) return items.map(() => sendAlone);
      throw error;
    }
  };

  /** Sends steps and finishes in one transaction. The steps of a task end before it does. */
  const sendItems = async (
    items: (Finish | TaskStep)[],
    codes: readonly ErrorCode[],
  ): Promise<(FinishResult | HasDependents)[]> => {
    const steps = items.filter(isStep);
    if (steps.length === 0) return (await send(items as Finish[], codes)).results;
    const finishes = items.filter((item): item is Finish => !isStep(item));
    const starting = startStepChildren(steps);
    const stepStatements = [...storeSteps(steps), ...starting];
    const { results, tables } = await send(finishes, codes, stepStatements, starting.length > 0);
    const stepResults = await decideSteps(steps, tables[0]!);
    const byItem = new Map<Finish | TaskStep, FinishResult | HasDependents>();
    steps.forEach((step, at) => byItem.set(step, stepResults[at]!));
    finishes.forEach((finish, at) => byItem.set(finish, results[at]!));
    return items.map((item) => byItem.get(item)!);
  };

  /** A step whose row was not written may have been stored by an earlier send. */
  const decideSteps = async (steps: TaskStep[], written: Row[]): Promise<StepResult[]> => {
    if (written.length === steps.length) return steps.map(() => storedResult);
    const rows = await readWithRetry(() => database.read(selectStored(steps)));
    const stored = new Set(rows.map((row) => `${row["owner_id"]} ${row["part"]} ${row["key"]}`));
    return steps.map(({ taskId, step, run }) =>
      stored.has(`${taskId} ${run?.part ?? taskPart} ${step.key}`) ? storedResult : lostResult,
    );
  };

  const send = async (
    batch: Finish[],
    codes: readonly ErrorCode[],
    steps: readonly Statement[] = [],
    hasChildren = false,
  ): Promise<{ results: (FinishResult | HasDependents)[]; tables: Row[][] }> => {
    // Tasks and runs have separate statements, and either all of them wake dependents or none do.
    const finishes = wakesDependents(batch)
      ? batch.map((each) => ({ ...each, hasDependents: true }))
      : batch;
    const hasEvents = finishes.some((each) => each.event !== null);
    const snoozed = finishes.filter((each) => each.snoozed).map(({ taskId }) => taskId);
    const { holding, freeing } = unblockAfter(finishes);
    const runFinishes = finishes.filter(isRunFinish);
    const runs = runFinishes.length > 0 ? storeRuns(podId, runFinishes) : undefined;
    const tasks = runs ? finishes.filter((each) => each.run === undefined) : finishes;
    const following = insertFinishFollowUps(tasks);
    const statements = [
      ...steps,
      ...holding,
      ...(hasEvents ? [noteFinishes(podId, tasks)] : []),
      ...(snoozed.length > 0 ? [forgetEarlierSnoozes(snoozed)] : []),
      ...following,
      ...(runs?.statements ?? []),
      ...(tasks.length > 0 ? [finishTasks(tasks)] : []),
    ];
    const before = statements.length - (tasks.length > 0 ? 1 : 0) - (runs?.statements.length ?? 0);
    const answers = [
      ...(runs?.answers.map((at) => before + at) ?? []),
      ...(tasks.length > 0 ? [statements.length - 1] : []),
    ];
    const waiting = tasks.filter(({ children }) => children).map(({ taskId }) => taskId);
    const cancelled = tasks.filter(({ status }) => status === "cancelled");
    const waking = [
      ...(runs?.after ?? []),
      // A child may have ended while its parent was claimed, when the parent could not be woken.
      ...(waiting.length > 0 ? [wakeIfDependenciesEnded(waiting)] : []),
      ...(cancelled.length > 0 ? cancelChildrenOf(cancelled) : []),
      ...wakeDependentsAfter(finishes),
      ...freeing,
    ];
    // A limited task has freed a slot for others of its key or tenant.
    const woken =
      waking.length + following.length > 0 ||
      runs?.hasNewTasks === true ||
      hasChildren ||
      finishes.some((each) => each.limited !== undefined);
    const { tables } = await writeUntilKnown(database, [...statements, ...waking], {
      ...parts,
      codes,
      ...(parts.onTrouble && { onFailed: parts.onTrouble }),
      notify: woken || finishes.some((each) => each.delayMs === 0),
    });
    if (woken) parts.onWoken?.();
    const stored =
      answers.length === 1 ? tables[answers[0]!]! : answers.flatMap((at) => tables[at]!);
    if (runs === undefined && stored.length === finishes.length) {
      return { results: finishes.map(() => storedResult), tables };
    }
    const byId = new Map(stored.map((row) => [row["task_id"] as string, row]));
    return { results: await decideResults(finishes, byId), tables };
  };

  // If a write changed no row, the row is read to find out why. A final status with this claim's
  // token was stored by an earlier send.
  const decideResults = async (
    finishes: Finish[],
    stored: ReadonlyMap<string, Row>,
  ): Promise<(FinishResult | HasDependents)[]> => {
    const missing = finishes.filter((each) => !stored.has(each.taskId));
    const seen =
      missing.length > 0 ? await readStates(missing.map(({ taskId }) => taskId)) : stored;
    const wakes = wakesDependents(finishes);
    const results = finishes.map((finish): FinishResult | HasDependents => {
      const done = stored.get(finish.taskId);
      if (done) return finish.run ? { type: "stored", run: toStoredRun(done) } : storedResult;
      const row = seen.get(finish.taskId);
      if (row && finish.run && isStoredRun(row, finish)) {
        return { type: "stored", run: toStoredRun(row) };
      }
      if (!row || Number(row["claim_token"]) !== finish.token) return { type: "lost" };
      const isSame = row["status"] === finish.status && finish.run === undefined;
      if (isSame && finish.status !== "pending") return { type: "stored" };
      const wake = Number(row["wake"]);
      const open = row["status"] === "claimed" || row["status"] === "pending";
      if (open && !wakes && Number(row["dependents"]) > 0) return hasDependents;
      if (!open || finish.wake === null || wake === finish.wake) return { type: "lost" };
      return { type: "woken", wake, cancelRequested: Number(row["cancel_requested"]) === 1 };
    });
    const isLost = (at: number) => results[at]!.type === "lost" && hasNoted(finishes[at]!);
    if (!results.some((_, at) => isLost(at))) return results;
    const noted = await findNoted(finishes.filter((_, at) => isLost(at)) as RunFinish[]);
    return results.map((each, at) =>
      isLost(at) && noted.has(finishes[at]!.taskId) ? storedEarlier : each,
    );
  };

  /**
   * A released run can be claimed again before its lost answer is noticed, and then its row no
   * longer shows the write. Its event history does, and metrics need to know.
   */
  const findNoted = async (finishes: RunFinish[]): Promise<ReadonlySet<string>> => {
    const rows = await readWithRetry(() => database.read(findNotedWrites(podId, finishes)));
    const details = new Map(finishes.map(({ taskId, run }) => [taskId, run.events.at(-1)!.detail]));
    const own = rows.filter((row) => details.get(row["task_id"] as string) === row["detail"]);
    return new Set(own.map((row) => row["task_id"] as string));
  };

  const readStates = async (taskIds: string[]) => {
    const rows = await readWithRetry(() => database.read(readTaskStates(taskIds)));
    return new Map(rows.map((row) => [row["task_id"] as string, row]));
  };

  // A failed read is retried for as long as the writes are.
  const readWithRetry = (read: () => Promise<Row[]>): Promise<Row[]> => {
    const { clock, random, signal } = parts;
    // A wait is not aborted, so that one more read follows the signal.
    const mayRetry = (error: unknown) => !signal.aborted && !hasCode(error, "closed");
    return callUntilAnswered(read, { clock, random, mayRetry, waitMs: () => readRetryMs });
  };

  const finishTask = callbackBatcher(sendBatch);
  // Runs and tasks that continue come back once they are stored. In one large batch, they would wait
  // for the store and then the store for them.
  const sendOngoing = callbackBatcher(sendBatch, { splitAbove: maxUnsplit });
  const isOngoing = (item: Finish | TaskStep) =>
    isStep(item) || item.run !== undefined || item.stepped === true;
  const sendTogetherThen: typeof finishTask = (item, resolve, reject) =>
    (isOngoing(item) ? sendOngoing : finishTask)(item, resolve, reject);
  const sendTogether = (item: Finish | TaskStep) =>
    new Promise<FinishResult | SendAlone | HasDependents>((resolve, reject) =>
      sendTogetherThen(item, resolve, reject),
    );
  const sendOne = retryIndividually(
    parts,
    async (item: Finish | TaskStep) => (await sendItems([item], codesUnlessBusy))[0]!,
  );

  /** Sends a finish that was not stored in a batch again, until its result is known. */
  const retryUntilKnown = async (
    finish: Finish,
    first: SendAlone | HasDependents,
    how?: FinishOptions,
  ): Promise<FinishResult> => {
    let sent = finish;
    let finished: FinishResult | SendAlone | HasDependents = first;
    while (finished.type === "send_alone" || finished.type === "has_dependents") {
      const hasNewDependents: boolean = finished.type === "has_dependents";
      if (hasNewDependents) sent = { ...finish, hasDependents: true };
      // If one task depends on a thousand others, all of those get a dependent at the same moment,
      // so batch them.
      finished = await (hasNewDependents && !how?.alone ? sendTogether : sendOne)(sent);
    }
    return finished;
  };

  const put: FinishWriter["put"] = (finish, onFinished, onError) =>
    sendTogetherThen(
      finish,
      (finished) => {
        const isOpen = finished.type === "send_alone" || finished.type === "has_dependents";
        if (isOpen) void retryUntilKnown(finish, finished).then(onFinished, onError);
        else onFinished(finished);
      },
      onError,
    );

  return {
    put,
    finish: (finish, how) =>
      how?.alone
        ? retryUntilKnown(finish, sendAlone, how)
        : new Promise((resolve, reject) => put(finish, resolve, reject)),
    async storeStep(step) {
      const sent = await sendTogether(step);
      const result = sent.type === "send_alone" ? await sendOne(step) : sent;
      return result.type === "stored" ? storedResult : lostResult;
    },
    readStates,
    async unblock(scope) {
      await unblockScope(parts, scope);
      parts.onWoken?.();
    },
  };
}

/**
 * Sends items one at a time, because another transaction may hold their rows for long. Only a few
 * are in flight at once, those with the fewest tries first. So rows that are free are not delayed
 * by locked ones, and all of them together do not use up the connections.
 */
export function retryIndividually<Item, Result>(
  parts: { clock: Clock; random: Random; signal: AbortSignal },
  send: (item: Item) => Promise<Result>,
): (item: Item) => Promise<Result> {
  const queue: { tries: number; go: () => void }[] = [];
  let underWay = 0;

  const next = () => {
    if (underWay >= maxAtOnce || queue.length === 0) return;
    const least = Math.min(...queue.map(({ tries }) => tries));
    const [first] = queue.splice(
      queue.findIndex(({ tries }) => tries === least),
      1,
    );
    underWay++;
    first!.go();
  };

  const takeTurn = (tries: number) =>
    new Promise<void>((resolve) => {
      queue.push({ tries, go: resolve });
      next();
    });

  return (item) => {
    let tries = 0;
    const sendInTurn = async () => {
      await takeTurn(tries++);
      try {
        return await send(item);
      } finally {
        underWay--;
        next();
      }
    };
    return callUntilAnswered(sendInTurn, { ...parts, codes: ["store_busy"] });
  };
}

function toStoredRun(row: Row): StoredRun {
  return {
    held: row["status"] === "claimed",
    wake: Number(row["wake"]),
    cancelRequested: Number(row["cancel_requested"]) === 1,
  };
}

/**
 * True if an earlier send stored this write and the run was not written since. A released run has
 * the next token.
 */
function isStoredRun(row: Row, { token, status, run }: Finish): boolean {
  const leaves = status === "pending" && row["status"] === "pending";
  const isOurs = Number(row["claim_token"]) === token + (leaves ? 1 : 0);
  return isOurs && Number(row["run_seq"]) === run!.seq + 1;
}

function isStep(item: Finish | TaskStep): item is TaskStep {
  return "step" in item;
}

function hasNoted({ run }: Finish): boolean {
  return run !== undefined && run.events.length > 0;
}
