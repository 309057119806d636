import { contentionMs } from "../../base/backoff.ts";
import { callbackBatcher } from "../../base/batcher.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { type ErrorCode, hasCode } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { Database, Row } from "../../store/database.ts";
import { writeUntilKnown, untilStoreRecovers } from "../../store/retry.ts";
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

/**
 * What became of a finish: stored; lost to another pod; or to be decided again, because the row has
 * been woken since its claim.
 */
export type FinishResult =
  | { readonly type: "stored"; readonly run?: StoredRun }
  | { readonly type: "lost" }
  | { readonly type: "woken"; readonly wake: number; readonly cancelRequested: boolean };

/** What a run's row says after a write of it. */
type StoredRun = {
  /** Whether this pod has it still: it may have been taken for dead. */
  readonly held: boolean;
  readonly wake: number;
  readonly cancelRequested: boolean;
};

// Somebody holds one of the rows, for as long as it pleases them: each goes its own way from here, so
// that the others needn't wait for that one.
type SendAlone = { readonly type: "apart" };
const sendAlone: SendAlone = { type: "apart" };
const storedResult: FinishResult = { type: "stored" };
// It was stored, and others have had the run since.
const storedEarlier: FinishResult = {
  type: "stored",
  run: { held: false, wake: 0, cancelRequested: false },
};
// Others have begun to wait for it since its claim: it is sent again, so that they are woken with it.
type HasDependents = { readonly type: "awaited" };
const hasDependents: HasDependents = { type: "awaited" };
const maxUnsplitRuns = 16;
const codesUnlessBusy = untilStoreRecovers.filter((code) => code !== "store_busy");

type FinishOptions = {
  /** Whether somebody probably holds the row, so that others had better not wait with this one. */
  alone: boolean;
};

export type FinishWriter = {
  finish(finish: Finish, how?: FinishOptions): Promise<FinishResult>;
  /** The same, but calls back: for what ends by the thousand, a promise each would be felt. */
  put(
    finish: Finish,
    onFinished: (finished: FinishResult) => void,
    onError: (error: unknown) => void,
  ): void;
  /** How tasks stand, by their ids. */
  readStates(taskIds: string[]): Promise<ReadonlyMap<string, Row>>;
  /** Lets others of a key, or of the same tenant, go on after an ending that wasn't stored here. */
  unblock(group: string | null): Promise<void>;
};

function toStoredRun(row: Row): StoredRun {
  return {
    held: row["status"] === "claimed",
    wake: Number(row["wake"]),
    cancelRequested: Number(row["cancel_requested"]) === 1,
  };
}

/** Whether an earlier send has stored it, and nobody has written it since. What is given back has another token. */
function isStoredRun(row: Row, { token, status, run }: Finish): boolean {
  const leaves = status === "pending" && row["status"] === "pending";
  const isOurs = Number(row["claim_token"]) === token + (leaves ? 1 : 0);
  return isOurs && Number(row["run_seq"]) === run!.seq + 1;
}

function hasNoted({ run }: Finish): boolean {
  return run !== undefined && run.events.length > 0;
}

/** The way out for attempts that have ended: whatever ended meanwhile is one statement. */
export function createFinishWriter(parts: {
  database: Database;
  clock: Clock;
  random: Random;
  podId: string;
  /** Fires when there is no more time to wait for the store. */
  signal: AbortSignal;
  /** Told when tasks that waited for others, or for room, may have become free. */
  onWoken?: () => void;
  /** Told when a send has failed and is to be made again. */
  onTrouble?: () => void;
}): FinishWriter {
  const { database, podId } = parts;

  const sendBatch = async (
    finishes: Finish[],
  ): Promise<(FinishResult | SendAlone | HasDependents)[]> => {
    try {
      return await send(finishes, codesUnlessBusy);
    } catch (error) {
      if (hasCode(error, "store_busy")) return finishes.map(() => sendAlone);
      throw error;
    }
  };

  const send = async (
    given: Finish[],
    codes: readonly ErrorCode[],
  ): Promise<(FinishResult | HasDependents)[]> => {
    // Tasks and runs have statements of their own, and either all of them wake others or none.
    const finishes = wakesDependents(given)
      ? given.map((each) => ({ ...each, awaited: true }))
      : given;
    const noted = finishes.some((each) => each.event !== null);
    const snoozed = finishes.filter((each) => each.snoozed).map(({ taskId }) => taskId);
    const { holding, freeing } = unblockAfter(finishes);
    const runFinishes = finishes.filter(isRunFinish);
    const runs = runFinishes.length > 0 ? storeRuns(podId, runFinishes) : undefined;
    const tasks = runs ? finishes.filter((each) => each.run === undefined) : finishes;
    const following = insertFinishFollowUps(tasks);
    const statements = [
      ...holding,
      ...(noted ? [noteFinishes(podId, tasks)] : []),
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
    const waking = [...(runs?.after ?? []), ...wakeDependentsAfter(finishes), ...freeing];
    // What went through a gate has made room, for others of its key or of its tenant.
    const woken =
      waking.length + following.length > 0 ||
      runs?.hasNewTasks === true ||
      finishes.some((each) => each.gate !== undefined);
    const { tables } = await writeUntilKnown(database, [...statements, ...waking], {
      ...parts,
      codes,
      ...(parts.onTrouble && { onFailed: parts.onTrouble }),
      hint: woken || finishes.some((each) => each.delayMs === 0),
    });
    if (woken) parts.onWoken?.();
    const stored =
      answers.length === 1 ? tables[answers[0]!]! : answers.flatMap((at) => tables[at]!);
    if (runs === undefined && stored.length === finishes.length) {
      return finishes.map(() => storedResult);
    }
    return decideResults(finishes, new Map(stored.map((row) => [row["task_id"] as string, row])));
  };

  // Zero rows means: look. What is terminal with our token was stored by an earlier send of ours.
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
   * A run that was given back can be claimed anew before the answer to that was missed, and then its row
   * says nothing of it. Those who count want to know, and the history does.
   */
  const findNoted = async (finishes: RunFinish[]): Promise<ReadonlySet<string>> => {
    const rows = await readWithRetry(() => database.read(findNotedWrites(podId, finishes)));
    return new Set(rows.map((row) => row["task_id"] as string));
  };

  const readStates = async (taskIds: string[]) => {
    const rows = await readWithRetry(() => database.read(readTaskStates(taskIds)));
    return new Map(rows.map((row) => [row["task_id"] as string, row]));
  };

  // A look that fails is made again; it rides the same patience as the writes.
  const readWithRetry = async (read: () => Promise<Row[]>): Promise<Row[]> => {
    for (;;) {
      try {
        return await read();
      } catch (error) {
        if (parts.signal.aborted || hasCode(error, "closed")) throw error;
        await new Promise<void>((resolve) => parts.clock.after(100, resolve));
      }
    }
  };

  const finishTask = callbackBatcher(sendBatch);
  // Runs that go on come back when they are stored: all at once they would wait for the store, and then
  // the store for them.
  const finishRun = callbackBatcher(sendBatch, { splitAbove: maxUnsplitRuns });
  const finishTogetherThen: typeof finishTask = (finish, resolve, reject) =>
    (finish.run === undefined ? finishTask : finishRun)(finish, resolve, reject);
  const finishTogether = (finish: Finish) =>
    new Promise<FinishResult | SendAlone | HasDependents>((resolve, reject) =>
      finishTogetherThen(finish, resolve, reject),
    );
  const sendOne = retryIndividually(
    parts,
    async (finish: Finish) => (await send([finish], codesUnlessBusy))[0]!,
  );

  /** Goes on with what wasn't stored with others, until it is known what became of it. */
  const retryUntilKnown = async (
    finish: Finish,
    first: SendAlone | HasDependents,
    how?: FinishOptions,
  ): Promise<FinishResult> => {
    let sent = finish;
    let finished: FinishResult | SendAlone | HasDependents = first;
    while (finished.type === "apart" || finished.type === "awaited") {
      const isAwaited: boolean = finished.type === "awaited";
      if (isAwaited) sent = { ...finish, awaited: true };
      // Where one task waits for a thousand, those become awaited in the same moment.
      finished = await (isAwaited && !how?.alone ? finishTogether : sendOne)(sent);
    }
    return finished;
  };

  const put: FinishWriter["put"] = (finish, onFinished, onError) =>
    finishTogetherThen(
      finish,
      (finished) => {
        const isOpen = finished.type === "apart" || finished.type === "awaited";
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
    readStates: readStates,
    async unblock(group) {
      await unblockScope(parts, group);
      parts.onWoken?.();
    },
  };
}

// Each occupies a connection for as long as the store waits for a lock, and there are four by default.
const maxAtOnce = 2;

/**
 * Sends items one by one whose rows somebody may hold for as long as it pleases them. Only a few wait
 * at a time, and those that have waited least come first, so that the ones that nobody holds aren't
 * kept up by the others, nor anything else by all of them.
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

  return async (item) => {
    for (let tries = 0; ; tries++) {
      await takeTurn(tries);
      try {
        return await send(item);
      } catch (error) {
        if (!hasCode(error, "store_busy") || parts.signal.aborted) throw error;
      } finally {
        underWay--;
        next();
      }
      await sleep(parts.clock, contentionMs(tries + 1, parts.random), parts.signal);
    }
  };
}
