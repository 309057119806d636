import { contentionMs } from "../../base/backoff.ts";
import { callingBatcher } from "../../base/batcher.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { type ErrorCode, hasCode } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { Database, Row } from "../../store/database.ts";
import { resend, untilMended } from "../../store/retry.ts";
import { freeKey } from "../concurrency/unblock.ts";
import { freeRoom } from "../sql/concurrency.ts";
import {
  type Finish,
  finishTasks,
  followFinishes,
  forgetEarlierSnoozes,
  lookAt,
  noteFinishes,
  wakeAfter,
  wakesOthers,
} from "../sql/finish.ts";
import { isRunFinish, lookForNotes, type RunFinish, storeRuns } from "../sql/runs.ts";

/**
 * What became of a finish: stored; lost to another pod; or to be decided again, because the row has
 * been woken since its claim.
 */
export type Finished =
  | { readonly type: "stored"; readonly run?: RunStored }
  | { readonly type: "lost" }
  | { readonly type: "woken"; readonly wake: number; readonly cancelRequested: boolean };

/** What a run's row says after a write of it. */
type RunStored = {
  /** Whether this pod has it still: it may have been taken for dead. */
  readonly held: boolean;
  readonly wake: number;
  readonly cancelRequested: boolean;
};

// Somebody holds one of the rows, for as long as it pleases them: each goes its own way from here, so
// that the others needn't wait for that one.
type Apart = { readonly type: "apart" };
const apart: Apart = { type: "apart" };
const storedAll: Finished = { type: "stored" };
// It was stored, and others have had the run since.
const storedAndLeft: Finished = {
  type: "stored",
  run: { held: false, wake: 0, cancelRequested: false },
};
// Others have begun to wait for it since its claim: it is sent again, so that they are woken with it.
type Awaited = { readonly type: "awaited" };
const awaited: Awaited = { type: "awaited" };
const splitRuns = 16;
const unlessBusy = untilMended.filter((code) => code !== "store_busy");

type StoreHow = {
  /** Whether somebody probably holds the row, so that others had better not wait with this one. */
  apart: boolean;
};

export type Finishing = {
  store(finish: Finish, how?: StoreHow): Promise<Finished>;
  /** The same, but calls back: for what ends by the thousand, a promise each would be felt. */
  put(
    finish: Finish,
    onFinished: (finished: Finished) => void,
    onError: (error: unknown) => void,
  ): void;
  /** How tasks stand, by their ids. */
  look(taskIds: string[]): Promise<ReadonlyMap<string, Row>>;
  /** Lets others of a key, or of the same tenant, go on after an ending that wasn't stored here. */
  madeRoom(group: string | null): Promise<void>;
};

function toRunStored(row: Row): RunStored {
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
export function createFinishing(parts: {
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
}): Finishing {
  const { database, podId } = parts;

  const sendTogether = async (finishes: Finish[]): Promise<(Finished | Apart | Awaited)[]> => {
    try {
      return await send(finishes, unlessBusy);
    } catch (error) {
      if (hasCode(error, "store_busy")) return finishes.map(() => apart);
      throw error;
    }
  };

  const send = async (
    given: Finish[],
    codes: readonly ErrorCode[],
  ): Promise<(Finished | Awaited)[]> => {
    // Tasks and runs have statements of their own, and either all of them wake others or none.
    const finishes = wakesOthers(given) ? given.map((each) => ({ ...each, awaited: true })) : given;
    const noted = finishes.some((each) => each.event !== null);
    const snoozed = finishes.filter((each) => each.snoozed).map(({ taskId }) => taskId);
    const { holding, freeing } = freeRoom(finishes);
    const runFinishes = finishes.filter(isRunFinish);
    const runs = runFinishes.length > 0 ? storeRuns(podId, runFinishes) : undefined;
    const tasks = runs ? finishes.filter((each) => each.run === undefined) : finishes;
    const following = followFinishes(tasks);
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
    const waking = [...(runs?.after ?? []), ...wakeAfter(finishes), ...freeing];
    // What went through a gate has made room, for others of its key or of its tenant.
    const woken =
      waking.length + following.length > 0 ||
      runs?.news === true ||
      finishes.some((each) => each.gate !== undefined);
    const { tables } = await resend(database, [...statements, ...waking], {
      ...parts,
      codes,
      ...(parts.onTrouble && { onFailed: parts.onTrouble }),
      hint: woken || finishes.some((each) => each.delayMs === 0),
    });
    if (woken) parts.onWoken?.();
    const stored =
      answers.length === 1 ? tables[answers[0]!]! : answers.flatMap((at) => tables[at]!);
    if (runs === undefined && stored.length === finishes.length) {
      return finishes.map(() => storedAll);
    }
    return judge(finishes, new Map(stored.map((row) => [row["task_id"] as string, row])));
  };

  // Zero rows means: look. What is terminal with our token was stored by an earlier send of ours.
  const judge = async (
    finishes: Finish[],
    stored: ReadonlyMap<string, Row>,
  ): Promise<(Finished | Awaited)[]> => {
    const missing = finishes.filter((each) => !stored.has(each.taskId));
    const seen =
      missing.length > 0 ? await patientRead(missing.map(({ taskId }) => taskId)) : stored;
    const wakes = wakesOthers(finishes);
    const judged = finishes.map((finish): Finished | Awaited => {
      const done = stored.get(finish.taskId);
      if (done) return finish.run ? { type: "stored", run: toRunStored(done) } : storedAll;
      const row = seen.get(finish.taskId);
      if (row && finish.run && isStoredRun(row, finish)) {
        return { type: "stored", run: toRunStored(row) };
      }
      if (!row || Number(row["claim_token"]) !== finish.token) return { type: "lost" };
      const isSame = row["status"] === finish.status && finish.run === undefined;
      if (isSame && finish.status !== "pending") return { type: "stored" };
      const wake = Number(row["wake"]);
      const open = row["status"] === "claimed" || row["status"] === "pending";
      if (open && !wakes && Number(row["dependents"]) > 0) return awaited;
      if (!open || finish.wake === null || wake === finish.wake) return { type: "lost" };
      return { type: "woken", wake, cancelRequested: Number(row["cancel_requested"]) === 1 };
    });
    const isLost = (at: number) => judged[at]!.type === "lost" && hasNoted(finishes[at]!);
    if (!judged.some((_, at) => isLost(at))) return judged;
    const noted = await notedOf(finishes.filter((_, at) => isLost(at)) as RunFinish[]);
    return judged.map((each, at) =>
      isLost(at) && noted.has(finishes[at]!.taskId) ? storedAndLeft : each,
    );
  };

  /**
   * A run that was given back can be claimed anew before the answer to that was missed, and then its row
   * says nothing of it. Those who count want to know, and the history does.
   */
  const notedOf = async (finishes: RunFinish[]): Promise<ReadonlySet<string>> => {
    const rows = await patiently(() => database.read(lookForNotes(podId, finishes)));
    return new Set(rows.map((row) => row["task_id"] as string));
  };

  const patientRead = async (taskIds: string[]) => {
    const rows = await patiently(() => database.read(lookAt(taskIds)));
    return new Map(rows.map((row) => [row["task_id"] as string, row]));
  };

  // A look that fails is made again; it rides the same patience as the writes.
  const patiently = async (look: () => Promise<Row[]>): Promise<Row[]> => {
    for (;;) {
      try {
        return await look();
      } catch (error) {
        if (parts.signal.aborted || hasCode(error, "closed")) throw error;
        await new Promise<void>((resolve) => parts.clock.after(100, resolve));
      }
    }
  };

  const putTasks = callingBatcher(sendTogether);
  // Runs that go on come back when they are stored: all at once they would wait for the store, and then
  // the store for them.
  const putRuns = callingBatcher(sendTogether, { splitAbove: splitRuns });
  const putTogether: typeof putTasks = (finish, resolve, reject) =>
    (finish.run === undefined ? putTasks : putRuns)(finish, resolve, reject);
  const together = (finish: Finish) =>
    new Promise<Finished | Apart | Awaited>((resolve, reject) =>
      putTogether(finish, resolve, reject),
    );
  const one = byTurns(parts, async (finish: Finish) => (await send([finish], unlessBusy))[0]!);

  /** Goes on with what wasn't stored with others, until it is known what became of it. */
  const goOn = async (
    finish: Finish,
    first: Apart | Awaited,
    how?: StoreHow,
  ): Promise<Finished> => {
    let sent = finish;
    let finished: Finished | Apart | Awaited = first;
    while (finished.type === "apart" || finished.type === "awaited") {
      const isAwaited: boolean = finished.type === "awaited";
      if (isAwaited) sent = { ...finish, awaited: true };
      // Where one task waits for a thousand, those become awaited in the same moment.
      finished = await (isAwaited && !how?.apart ? together : one)(sent);
    }
    return finished;
  };

  const put: Finishing["put"] = (finish, onFinished, onError) =>
    putTogether(
      finish,
      (finished) => {
        const isOpen = finished.type === "apart" || finished.type === "awaited";
        if (isOpen) void goOn(finish, finished).then(onFinished, onError);
        else onFinished(finished);
      },
      onError,
    );

  return {
    put,
    store: (finish, how) =>
      how?.apart
        ? goOn(finish, apart, how)
        : new Promise((resolve, reject) => put(finish, resolve, reject)),
    look: patientRead,
    async madeRoom(group) {
      await freeKey(parts, group);
      parts.onWoken?.();
    },
  };
}

// Each occupies a connection for as long as the store waits for a lock, and there are four by default.
const atOnceMost = 2;

/**
 * Sends items one by one whose rows somebody may hold for as long as it pleases them. Only a few wait
 * at a time, and those that have waited least come first, so that the ones that nobody holds aren't
 * kept up by the others, nor anything else by all of them.
 */
export function byTurns<Item, Result>(
  parts: { clock: Clock; random: Random; signal: AbortSignal },
  send: (item: Item) => Promise<Result>,
): (item: Item) => Promise<Result> {
  const queue: { tries: number; go: () => void }[] = [];
  let underWay = 0;

  const next = () => {
    if (underWay >= atOnceMost || queue.length === 0) return;
    const least = Math.min(...queue.map(({ tries }) => tries));
    const [first] = queue.splice(
      queue.findIndex(({ tries }) => tries === least),
      1,
    );
    underWay++;
    first!.go();
  };

  const turn = (tries: number) =>
    new Promise<void>((resolve) => {
      queue.push({ tries, go: resolve });
      next();
    });

  return async (item) => {
    for (let tries = 0; ; tries++) {
      await turn(tries);
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
