import { callingBatcher } from "../../base/batcher.ts";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { CallerTransaction, Database, Row } from "../../store/database.ts";
import { passing, resend, untilKnown } from "../../store/retry.ts";
import type { Statement } from "../../store/sql.ts";
import { unknownAwaited, type Waiting, waitingOf } from "../dependencies.ts";
import {
  findKeys,
  findOwn,
  findReplaced,
  holdHolders,
  insertTasks,
  type NewTask,
  noteReplaced,
  releaseKeys,
  replaceHolders,
  trimReplaced,
  undoUnlessStored,
} from "../sql/enqueue.ts";
import { duplicateKey, type Enqueued, inRounds, keyId, lastOfEachKey } from "./options.ts";

/** The way in for new tasks: what arrives while a write is under way goes into the next one. */
export function createStoring(parts: { database: Database; clock: Clock; random: Random }) {
  const { database, clock, random } = parts;

  const send = (news: readonly NewTask[], { whole }: { whole: boolean }): Promise<Settled[]> =>
    store(news, { whole }, (statements, { again, begun }) =>
      // The ids are made before the first send, so sending again can't make a second task.
      resend(database, statements, {
        clock,
        random,
        ...untilKnown,
        // The caller gets one answer for all of them, and a refusal of the rest would be none.
        ...(whole && begun && { codes: passing }),
        hint: anyDue(news),
        ...(again && { again }),
      }),
    );
  const put = callingBatcher((news: NewTask[]) => send(news, { whole: false }));
  return {
    /** Stores a task, together with those of other callers. */
    one: (news: NewTask): Promise<Enqueued> =>
      new Promise((resolve, reject) =>
        put(
          news,
          (settled) => (isUnsettled(settled) ? reject(settled.error) : resolve(settled)),
          reject,
        ),
      ),
    /** Stores all of them or none, where one that must not be a duplicate is one. */
    all: async (news: readonly NewTask[]) => allOf(await send(news, { whole: true })),
    /** Stores each that can be stored. */
    each: (news: readonly NewTask[]) => send(news, { whole: false }),
  };
}

/** Puts tasks into the caller's own transaction. */
export async function storeWithin(
  transaction: CallerTransaction,
  news: readonly NewTask[],
  options: { whole: boolean },
): Promise<Enqueued[]> {
  const settled = await store(news, options, async (statements) => ({
    tables: await transaction.write(statements, { hint: anyDue(news) }),
    repeated: false,
  }));
  // The transaction isn't committed yet, so that nothing of it is stored.
  return settled.map((each) => {
    if (isUnsettled(each)) throw each.error;
    return each;
  });
}

/** The answer of a call that stores all or none. Once some are stored, a refusal of the rest isn't `none`. */
function allOf(settled: readonly Settled[]): Enqueued[] {
  const stored = settled.filter(isStored).length;
  return settled.map((each) => {
    if (!isUnsettled(each)) return each;
    if (stored === 0) throw each.error;
    throw new FlotillaError(
      "unknown_outcome",
      `${stored} of ${settled.length} tasks are stored, and the store didn't say who holds the keys of the others: ${messageOf(each.error)}`,
      { cause: each.error },
    );
  });
}

function anyDue(news: readonly NewTask[]): boolean {
  return news.some((each) => each.delayMs === 0);
}

async function store(
  news: readonly NewTask[],
  { whole }: { whole: boolean },
  send: Send,
): Promise<Settled[]> {
  if (news.every(({ key }) => key === null)) return storePlain(news, send);
  const isSpecial = news.some(({ policy, after }) => policy !== undefined || after !== undefined);
  if (!isSpecial) return storeKeyed(news, send);
  return settleEach(news, async (left, known, begun) => {
    const rounds = inRounds(left);
    const waiting = waitingOf(left, news);
    const asks = (again: boolean) =>
      rounds.map((round) => asksOf(round, { again, whole, when: waiting?.when }));
    const ends = waiting?.statements ?? [];
    const first = asks(false);
    const { tables, repeated } = await send([...statementsOf(first), ...ends], {
      again: () => [...statementsOf(asks(true)), ...ends],
      begun: begun(),
    });
    let at = 0;
    const answers = (repeated ? asks(true) : first).map((asked) =>
      answersOf(asked, tables.slice(at, (at += asked.length))),
    );
    const unknown = waiting ? tables.at(-1)! : [];
    if (unknown.length > 0 && rounds.some((round, index) => isOpen(round, answers[index]!))) {
      throw unknownAwaited(unknown);
    }
    return rounds.flatMap((round, index) =>
      readRound(round, answers[index]!, { repeated, whole }, known),
    );
  });
}

/** The usual case, worth a short way: nothing can be in the way of tasks without keys. */
async function storePlain(news: readonly NewTask[], send: Send): Promise<Enqueued[]> {
  const waiting = waitingOf(news);
  if (waiting) return storeWaiting(news, waiting, send);
  const statements = [insertTasks(news)];
  const { tables, repeated } = await send(statements, { begun: false });
  if (tables[0]!.length < news.length && !repeated) {
    throw new FlotillaError("internal", "new tasks have ids that are taken");
  }
  return news.map(({ taskId }) => ({ taskId, created: true }));
}

/** Tasks that wait for others are stored if those are there. */
async function storeWaiting(
  news: readonly NewTask[],
  { when, statements }: Waiting,
  send: Send,
): Promise<Enqueued[]> {
  const all = [insertTasks(news, when), findOwn(news), ...statements];
  const { tables } = await send(all, { begun: false });
  if (tables[1]!.length < news.length) throw unknownAwaited(tables.at(-1)!);
  return news.map(({ taskId }) => ({ taskId, created: true }));
}

/** A statement, and what its answer is good for, if for anything. */
type Ask = { readonly statement: Statement; readonly tells?: Telling };
type Telling = "holders" | "inserted" | "own" | "replaced";

function statementsOf(rounds: readonly (readonly Ask[])[]): Statement[] {
  return rounds.flat().map(({ statement }) => statement);
}

/** What stores the tasks of a round. Whoever asks nothing special of a key pays for nothing special. */
function asksOf(
  news: readonly NewTask[],
  { again, whole, when }: { again: boolean; whole: boolean; when: Statement | undefined },
): Ask[] {
  const keyed = news.filter(({ key }) => key !== null);
  const releasing = keyed.filter(
    ({ policy }) => policy !== undefined && (policy.whileUnfinished || policy.forMs !== null),
  );
  const replacing = lastOfEachKey(keyed.filter(({ policy }) => policy?.onDuplicate === "replace"));
  const needed = whole ? keyed.filter(mayNotBeDuplicate) : [];
  const asks: Ask[] = [];
  if (releasing.length > 0) {
    asks.push({ statement: holdHolders(releasing) }, { statement: releaseKeys(releasing) });
  }
  asks.push({ statement: insertTasks(news, when), tells: "inserted" });
  // Only now: an insert waits for others who are storing the same key, and theirs is to be replaced.
  if (replacing.length > 0) {
    asks.push(
      { statement: holdHolders(replacing) },
      { statement: noteReplaced(replacing, { again, needed }) },
      { statement: replaceHolders(replacing) },
      { statement: trimReplaced(replacing) },
      { statement: findReplaced(replacing), tells: "replaced" },
    );
  }
  asks.push({ statement: findKeys(keyed), tells: "holders" });
  if (again) asks.push({ statement: findOwn(news), tells: "own" });
  if (needed.length > 0) asks.push({ statement: undoUnlessStored(news, needed) });
  return asks;
}

function mayNotBeDuplicate({ policy }: NewTask): boolean {
  return policy?.onDuplicate === "reject";
}

type Answers = {
  /** The ids of tasks that are in the store. */
  readonly stored: ReadonlySet<string>;
  /** The ids of those that have replaced another. */
  readonly replaced: ReadonlySet<string>;
  /** Who holds each key. */
  readonly holders: ReadonlyMap<string, string>;
};

function answersOf(asked: readonly Ask[], tables: readonly Row[][]): Answers {
  const told = (...what: Telling[]) =>
    asked.flatMap(({ tells }, at) => (tells && what.includes(tells) ? tables[at]! : []));
  const ids = (rows: readonly Row[]) => new Set(rows.map((row) => row["task_id"] as string));
  return {
    stored: ids(told("inserted", "own")),
    replaced: ids(told("replaced")),
    holders: holdersOf(told("holders")),
  };
}

/** Whether one of these was neither stored nor there already. */
function isOpen(news: readonly NewTask[], { stored, holders }: Answers): boolean {
  return news.some(
    (each) => !stored.has(each.taskId) && (each.key === null || !holders.has(keyId(each))),
  );
}

/** Says what became of each task, and gives those whose key was taken by a task that is gone by now. */
function readRound(
  news: readonly NewTask[],
  { stored, replaced, holders }: Answers,
  { repeated, whole }: { repeated: boolean; whole: boolean },
  known: Map<string, Enqueued>,
): readonly NewTask[] {
  const duplicate = whole
    ? news.find((each) => mayNotBeDuplicate(each) && !stored.has(each.taskId))
    : undefined;
  if (duplicate) {
    const holder = holders.get(keyId(duplicate));
    // Nothing was stored, and nothing is in the way any more.
    if (holder === undefined) return news;
    throw duplicateKey(duplicate, holder);
  }
  const replacedKeys = new Set(
    news.filter(({ taskId }) => replaced.has(taskId)).map((each) => keyId(each)),
  );
  return news.filter((each) => {
    const { taskId, key, policy } = each;
    const replaces = policy?.onDuplicate === "replace";
    // Without a key, only an earlier send can have been in the way.
    if (stored.has(taskId) || (key === null && repeated)) {
      known.set(taskId, { taskId, created: true, ...(replaces && { replaced: false }) });
      return false;
    }
    if (key === null) {
      throw new FlotillaError("internal", `task ${taskId} was neither stored nor found`);
    }
    const holder = holders.get(keyId(each));
    if (holder === undefined) return true;
    known.set(taskId, {
      taskId: holder,
      created: false,
      ...(replaces && { replaced: replacedKeys.has(keyId(each)) }),
    });
    return false;
  });
}

type Send = (
  statements: readonly Statement[],
  options: {
    /** What is sent once an earlier send may have been stored. Default: the very same. */
    again?: () => readonly Statement[];
    /** Whether an earlier write of the same call has stored something. */
    begun: boolean;
  },
) => Promise<{ tables: Row[][]; repeated: boolean }>;

/** What became of a task, or why the store didn't say. */
export type Settled = Enqueued | Unsettled;
type Unsettled = { readonly error: unknown };

export function isUnsettled(settled: Settled): settled is Unsettled {
  return "error" in settled;
}

/** Whether this is there because it was asked for, and not by an earlier call. */
function isStored(settled: Settled): boolean {
  return !isUnsettled(settled) && (settled.created || settled.replaced === true);
}

// Each time a task that held a key was deleted after the key was found to be taken.
const mostTries = 10;

/**
 * Stores tasks in as many writes as it takes, each of which stores some and gives those that are left. A
 * write that is refused says nothing about those that the ones before it have stored: only what is left
 * has its error.
 */
async function settleEach(
  news: readonly NewTask[],
  write: (
    left: readonly NewTask[],
    known: Map<string, Enqueued>,
    begun: () => boolean,
  ) => Promise<readonly NewTask[]>,
): Promise<Settled[]> {
  const known = new Map<string, Enqueued>();
  const begun = () => [...known.values()].some(isStored);
  let left = news;
  let error: unknown;
  try {
    for (let tries = 0; left.length > 0; tries++) {
      if (tries >= mostTries) throw keysVanish();
      left = await write(left, known, begun);
    }
  } catch (thrown) {
    if (known.size === 0) throw thrown;
    error = thrown;
  }
  return news.map(({ taskId }) => known.get(taskId) ?? { error });
}

function keysVanish(): FlotillaError {
  return new FlotillaError("store_busy", "tasks that hold keys kept being deleted: try again");
}

/**
 * Stores tasks of which some have keys, where nothing special is asked of those. Nearly always all of
 * them go in, so who holds a key is asked only for those that didn't.
 */
function storeKeyed(news: readonly NewTask[], send: Send): Promise<Settled[]> {
  return settleEach(news, async (left, known, begun) => {
    const insert = insertTasks(left);
    const { tables } = await send([insert], {
      again: () => [insert, findOwn(left)],
      begun: begun(),
    });
    for (const row of tables.flat()) {
      known.set(row["task_id"], { taskId: row["task_id"], created: true });
    }
    const refused = left.filter(({ taskId }) => !known.has(taskId));
    if (refused.length === 0) return refused;
    const keyless = refused.find(({ key }) => key === null);
    if (keyless) {
      throw new FlotillaError("internal", `task ${keyless.taskId} was neither stored nor found`);
    }
    const found = await send([findKeys(refused)], { begun: begun() });
    const holders = holdersOf(found.tables[0]!);
    for (const each of refused) {
      const holder = holders.get(keyId(each));
      if (holder !== undefined) known.set(each.taskId, { taskId: holder, created: false });
    }
    return refused.filter(({ taskId }) => !known.has(taskId));
  });
}

/** Who holds which key. */
function holdersOf(rows: readonly Row[]): Map<string, string> {
  return new Map(
    rows.map((row) => [
      keyId({ tenant: row["tenant"], name: row["name"], key: row["unique_key"] }),
      row["task_id"] as string,
    ]),
  );
}
