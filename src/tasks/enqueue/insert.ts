import { callbackBatcher } from "../../base/batcher.ts";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf, transientCodes } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { CallerTransaction, Database, Row } from "../../store/database.ts";
import { writeUntilKnown, untilKnown } from "../../store/retry.ts";
import type { Statement } from "../../store/sql.ts";
import {
  missingDependencyError,
  type DependencyWrites,
  dependencyWritesOf,
} from "../dependencies.ts";
import {
  findKeys,
  findOwn,
  findReplaced,
  lockHolders,
  insertTasks,
  linkTasks,
  type NewTask,
  noteReplaced,
  releaseKeys,
  replaceHolders,
  trimReplaced,
  undoUnlessStored,
} from "../sql/enqueue.ts";
import { type Send, withFiles } from "./with-files.ts";
import { duplicateKey, type Enqueued, inRounds, keyId, lastOfEachKey } from "./options.ts";

/** The result of a task, or the error of the write. */
export type InsertResult = Enqueued | InsertFailure;
type InsertFailure = { readonly error: unknown };

/** How often calls are still to go by their policies at once, because keys were held lately. */
type KeysHeld = { calls: number };

// Keys that come again and again are usually held by tasks that have ended, and then an insert alone
// is in vain. Every 16th call tries it all the same, because that may have changed.
const callsByPolicy = 15;
const maxCarrying = 50;
// Each try is lost when the holder of a key is deleted right after the conflict.
const maxTries = 10;

export type InsertParts = {
  database: Database;
  clock: Clock;
  random: Random;
  /** Called when tasks are stored, so that a pod in this process claims at once. */
  onEnqueued?: (() => void) | undefined;
  /** A claim of a pod in this process, for a write that stores tasks of these names. */
  claimWithin?: ((names: ReadonlySet<string>) => CarriedClaim | undefined) | undefined;
};

/** Inserts new tasks. Tasks that arrive during a write go into the next one. */
export function createInsert(parts: InsertParts) {
  const { database, clock, random, onEnqueued } = parts;
  const keysHeld: KeysHeld = { calls: 0 };

  const send = (
    newTasks: readonly NewTask[],
    { whole }: { whole: boolean },
  ): Promise<InsertResult[]> =>
    insertAll(
      newTasks,
      { whole, keysHeld },
      withFiles(newTasks, async (statements, { again, begun }) => {
        const due = newTasks.filter(({ delayMs }) => delayMs === 0).map(({ name }) => name);
        const claim = mayCarry(newTasks, due) ? parts.claimWithin?.(new Set(due)) : undefined;
        let claimed = false;
        const carrier = claim ? carrying(claim, database, () => (claimed = true)) : database;
        // The ids are made before the first send, so a repeated send cannot create a second task.
        const stored = await writeUntilKnown(carrier, statements, {
          clock,
          random,
          ...untilKnown,
          // The caller gets one answer for all tasks, so once some are stored,
          // transient refusals are retried too.
          ...(whole && begun && { codes: transientCodes }),
          notify: due.length > 0,
          ...(again && { again }),
        });
        if (!claimed) onEnqueued?.();
        return stored;
      }),
    );
  const insertOne = callbackBatcher((newTasks: NewTask[]) => send(newTasks, { whole: false }));
  return {
    /** Stores a task, batched with those of other callers. */
    one: (newTask: NewTask): Promise<Enqueued> =>
      new Promise((resolve, reject) =>
        insertOne(
          newTask,
          (result) => (isInsertFailure(result) ? reject(result.error) : resolve(result)),
          reject,
        ),
      ),
    /** Stores all tasks, or none if one with `onDuplicate: "reject"` is a duplicate. */
    all: async (newTasks: readonly NewTask[]) => allOrThrow(await send(newTasks, { whole: true })),
    /** Stores as many of the tasks as possible. */
    each: (newTasks: readonly NewTask[]) => send(newTasks, { whole: false }),
  };
}

/**
 * A claim goes only with a write that is short and waits for no other transaction, because the pod
 * makes no other claim meanwhile.
 */
function mayCarry(newTasks: readonly NewTask[], due: readonly string[]): boolean {
  if (due.length === 0 || newTasks.length > maxCarrying) return false;
  return newTasks.every(({ key, after }) => key === null && after === undefined);
}

type CarriedClaim = {
  readonly statements: readonly Statement[];
  settle(answers: Promise<Row[][]>): void;
};

/** A database whose first write ends with a claim. It is not sent again: its number is used once. */
function carrying(claim: CarriedClaim, database: Database, onClaimed: () => void): Database {
  let carried = false;
  return {
    ...database,
    async write(statements, options) {
      if (carried) return database.write(statements, options);
      carried = true;
      const written = database.write([...statements, ...claim.statements], options);
      claim.settle(written.then((tables) => tables.slice(statements.length)));
      try {
        const tables = await written;
        onClaimed();
        return tables.slice(0, statements.length);
      } catch (error) {
        if (hasCode(error, "unknown_outcome")) throw error;
        // Nothing has landed, and it may have been the claim that was refused.
        return database.write(statements, options);
      }
    },
  };
}

/** Stores tasks within the caller's own transaction. */
export async function insertWithin(
  transaction: CallerTransaction,
  newTasks: readonly NewTask[],
  options: { whole: boolean },
): Promise<Enqueued[]> {
  const given = { ...options, keysHeld: { calls: 0 } };
  const send: Send = async (statements) => ({
    tables: await transaction.write(statements, { notify: anyDue(newTasks) }),
    repeated: false,
  });
  const results = await insertAll(newTasks, given, withFiles(newTasks, send));
  // The transaction is not committed yet, so throwing leaves nothing stored.
  return results.map((each) => {
    if (isInsertFailure(each)) throw each.error;
    return each;
  });
}

export function isInsertFailure(result: InsertResult): result is InsertFailure {
  return "error" in result;
}

/**
 * The answer of an all-or-none call. Once some tasks are stored, a refusal of the rest is an
 * unknown outcome.
 */
function allOrThrow(results: readonly InsertResult[]): Enqueued[] {
  const stored = results.filter(wasInserted).length;
  return results.map((each) => {
    if (!isInsertFailure(each)) return each;
    if (stored === 0) throw each.error;
    throw new FlotillaError(
      "unknown_outcome",
      `${stored} of ${results.length} tasks are stored, but the holders of the other keys couldn't be read: ${messageOf(each.error)}`,
      { cause: each.error },
    );
  });
}

function anyDue(newTasks: readonly NewTask[]): boolean {
  return newTasks.some((each) => each.delayMs === 0);
}

/**
 * Usually no task holds the keys, so the insert alone is sent first, and more only for the tasks
 * that it left out. All statements are sent together where the outcome of one task depends on
 * another's, where a task may be replaced, and where most keys were held lately.
 */
async function insertAll(
  newTasks: readonly NewTask[],
  { whole, keysHeld }: { whole: boolean; keysHeld: KeysHeld },
  send: Send,
): Promise<InsertResult[]> {
  if (newTasks.every(({ key }) => key === null)) return insertPlain(newTasks, send);
  const hasPolicies = newTasks.some(({ policy }) => policy !== undefined);
  const isExpectedHeld = hasPolicies && keysHeld.calls > 0;
  if (isExpectedHeld) keysHeld.calls--;
  const insertFirst =
    !isExpectedHeld &&
    newTasks.every(
      (each) =>
        each.after === undefined &&
        each.policy?.onDuplicate !== "replace" &&
        !(whole && mayNotBeDuplicate(each)),
    );
  return insertUntilKnown(newTasks, async (left, known, begun) => {
    const refused = insertFirst ? await insertKeyed(left, { known, begun, send }) : left;
    if (refused.length === 0) return refused;
    const isHeld = insertFirst && hasPolicies && refused.length * 2 > left.length;
    if (isHeld) keysHeld.calls = callsByPolicy;
    return insertFirst && refused.every(({ policy }) => policy === undefined)
      ? readHolders(refused, { known, begun, send })
      : insertByPolicy(refused, { newTasks, whole, known, begun, send });
  });
}

type InsertTry = {
  readonly known: Map<string, Enqueued>;
  readonly begun: () => boolean;
  readonly send: Send;
};

/** Inserts tasks, and returns those whose keys are held. */
async function insertKeyed(
  left: readonly NewTask[],
  { known, begun, send }: InsertTry,
): Promise<readonly NewTask[]> {
  const insert = [insertTasks(left), ...linkTasks(left)];
  const { tables } = await send(insert, {
    again: () => [...insert, findOwn(left)],
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
  // Of tasks with the same key, this insert has stored one. It may have ended since, and is what
  // the others duplicate all the same.
  const own = new Map(
    left
      .filter(({ taskId }) => known.has(taskId))
      .map((each) => [keyId(each), known.get(each.taskId)!.taskId]),
  );
  return refused.filter((each) => {
    const holder = own.get(keyId(each));
    if (holder !== undefined) known.set(each.taskId, { taskId: holder, created: false });
    return holder === undefined;
  });
}

/** Reads the holders of keys, and returns the tasks whose key no task holds any more. */
async function readHolders(
  refused: readonly NewTask[],
  { known, begun, send }: InsertTry,
): Promise<readonly NewTask[]> {
  const { tables } = await send([findKeys(refused)], { begun: begun() });
  const holders = holdersOf(tables[0]!);
  for (const each of refused) {
    const holder = holders.get(keyId(each));
    if (holder !== undefined) known.set(each.taskId, { taskId: holder, created: false });
  }
  return refused.filter(({ taskId }) => !known.has(taskId));
}

/** Does what the policies ask where a key is held: takes the key, or replaces its holder. */
async function insertByPolicy(
  left: readonly NewTask[],
  {
    newTasks,
    whole,
    known,
    begun,
    send,
  }: InsertTry & { newTasks: readonly NewTask[]; whole: boolean },
): Promise<readonly NewTask[]> {
  const rounds = inRounds(left);
  const dependencies = dependencyWritesOf(left, newTasks);
  const steps = (again: boolean) =>
    rounds.map((round) => insertSteps(round, { again, whole, when: dependencies?.when }));
  const ends = dependencies?.statements ?? [];
  const first = steps(false);
  const { tables, repeated } = await send([...statementsOf(first), ...ends], {
    again: () => [...statementsOf(steps(true)), ...ends],
    begun: begun(),
  });
  let at = 0;
  const answers = (repeated ? steps(true) : first).map((round) =>
    answersOf(round, tables.slice(at, (at += round.length))),
  );
  const unknown = dependencies ? tables.at(-1)! : [];
  if (unknown.length > 0 && rounds.some((round, index) => isAnyMissing(round, answers[index]!))) {
    throw missingDependencyError(unknown);
  }
  return rounds.flatMap((round, index) =>
    readRound(round, answers[index]!, { repeated, whole }, known),
  );
}

/** The fast path for the usual case: tasks without keys cannot conflict. */
async function insertPlain(newTasks: readonly NewTask[], send: Send): Promise<Enqueued[]> {
  const dependencies = dependencyWritesOf(newTasks);
  if (dependencies) return insertDependent(newTasks, dependencies, send);
  const statements = [insertTasks(newTasks), ...linkTasks(newTasks)];
  const { tables, repeated } = await send(statements, { begun: false });
  if (tables[0]!.length < newTasks.length && !repeated) {
    throw new FlotillaError("internal", "the ids of new tasks are taken");
  }
  return newTasks.map(({ taskId }) => ({ taskId, created: true }));
}

/** Dependent tasks are stored only if all dependencies exist. */
async function insertDependent(
  newTasks: readonly NewTask[],
  { when, statements }: DependencyWrites,
  send: Send,
): Promise<Enqueued[]> {
  const insert = [insertTasks(newTasks, when), findOwn(newTasks), ...linkTasks(newTasks)];
  const { tables } = await send([...insert, ...statements], { begun: false });
  if (tables[1]!.length < newTasks.length) throw missingDependencyError(tables.at(-1)!);
  return newTasks.map(({ taskId }) => ({ taskId, created: true }));
}

/** A statement, and which answer its rows give, if any. */
type InsertStep = { readonly statement: Statement; readonly answers?: StepAnswer };
type StepAnswer = "holders" | "inserted" | "own" | "replaced";

function statementsOf(rounds: readonly (readonly InsertStep[])[]): Statement[] {
  return rounds.flat().map(({ statement }) => statement);
}

/**
 * The statements that insert the tasks of a round. Tasks with the default policy need only the
 * insert.
 */
function insertSteps(
  newTasks: readonly NewTask[],
  { again, whole, when }: { again: boolean; whole: boolean; when: Statement | undefined },
): InsertStep[] {
  const keyed = newTasks.filter(({ key }) => key !== null);
  const releasing = keyed.filter(
    ({ policy }) => policy !== undefined && (policy.whileUnfinished || policy.forMs !== null),
  );
  const replacing = lastOfEachKey(keyed.filter(({ policy }) => policy?.onDuplicate === "replace"));
  const needed = whole ? keyed.filter(mayNotBeDuplicate) : [];
  const steps: InsertStep[] = [];
  if (releasing.length > 0) {
    steps.push({ statement: lockHolders(releasing) }, { statement: releaseKeys(releasing) });
  }
  steps.push({ statement: insertTasks(newTasks, when), answers: "inserted" });
  // After the insert, because an insert waits for concurrent transactions with the same key, and
  // their tasks must be replaced too.
  if (replacing.length > 0) {
    steps.push(
      { statement: lockHolders(replacing) },
      { statement: noteReplaced(replacing, { again, needed }) },
      { statement: replaceHolders(replacing) },
      { statement: trimReplaced(replacing) },
      { statement: findReplaced(replacing), answers: "replaced" },
    );
  }
  steps.push({ statement: findKeys(keyed), answers: "holders" });
  if (again) steps.push({ statement: findOwn(newTasks), answers: "own" });
  if (needed.length > 0) steps.push({ statement: undoUnlessStored(newTasks, needed) });
  steps.push(...linkTasks(newTasks).map((statement) => ({ statement })));
  return steps;
}

function mayNotBeDuplicate({ policy }: NewTask): boolean {
  return policy?.onDuplicate === "reject";
}

type Answers = {
  /** The ids of tasks that are stored. */
  readonly stored: ReadonlySet<string>;
  /** The ids of tasks that replaced another. */
  readonly replaced: ReadonlySet<string>;
  /** The task that holds each key. */
  readonly holders: ReadonlyMap<string, string>;
};

function answersOf(steps: readonly InsertStep[], tables: readonly Row[][]): Answers {
  const answersTo = (...what: StepAnswer[]) =>
    steps.flatMap(({ answers }, at) => (answers && what.includes(answers) ? tables[at]! : []));
  const ids = (rows: readonly Row[]) => new Set(rows.map((row) => row["task_id"] as string));
  return {
    stored: ids(answersTo("inserted", "own")),
    replaced: ids(answersTo("replaced")),
    holders: holdersOf(answersTo("holders")),
  };
}

/** True if a task was neither stored nor existed already. */
function isAnyMissing(newTasks: readonly NewTask[], { stored, holders }: Answers): boolean {
  return newTasks.some(
    (each) => !stored.has(each.taskId) && (each.key === null || !holders.has(keyId(each))),
  );
}

/**
 * Records the result of each task. Returns the tasks whose key was held by a task that is deleted
 * by now.
 */
function readRound(
  newTasks: readonly NewTask[],
  { stored, replaced, holders }: Answers,
  { repeated, whole }: { repeated: boolean; whole: boolean },
  known: Map<string, Enqueued>,
): readonly NewTask[] {
  const duplicate = whole
    ? newTasks.find((each) => mayNotBeDuplicate(each) && !stored.has(each.taskId))
    : undefined;
  if (duplicate) {
    const holder = holders.get(keyId(duplicate));
    // Nothing was stored, and the duplicate is gone. So try again.
    if (holder === undefined) return newTasks;
    throw duplicateKey(duplicate, holder);
  }
  const replacedKeys = new Set(
    newTasks.filter(({ taskId }) => replaced.has(taskId)).map((each) => keyId(each)),
  );
  return newTasks.filter((each) => {
    const { taskId, key, policy } = each;
    const replaces = policy?.onDuplicate === "replace";
    // Without a key, only an earlier send of the same task can conflict.
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

/** True if this call stored or replaced the task, not an earlier one. */
function wasInserted(result: InsertResult): boolean {
  return !isInsertFailure(result) && (result.created || result.replaced === true);
}

/**
 * Stores tasks in as many writes as needed; each write stores some and returns the rest. A refused
 * write does not affect tasks that earlier writes stored: only the rest gets its error.
 */
async function insertUntilKnown(
  newTasks: readonly NewTask[],
  write: (
    left: readonly NewTask[],
    known: Map<string, Enqueued>,
    begun: () => boolean,
  ) => Promise<readonly NewTask[]>,
): Promise<InsertResult[]> {
  const known = new Map<string, Enqueued>();
  const begun = () => [...known.values()].some(wasInserted);
  let left = newTasks;
  let error: unknown;
  try {
    for (let tries = 0; left.length > 0; tries++) {
      if (tries >= maxTries) throw keysVanish();
      left = await write(left, known, begun);
    }
  } catch (thrown) {
    if (known.size === 0) throw thrown;
    error = thrown;
  }
  return newTasks.map(({ taskId }) => known.get(taskId) ?? { error });
}

function keysVanish(): FlotillaError {
  const message = "the holders of keys were deleted again and again during the insert: try again";
  return new FlotillaError("store_busy", message);
}

/** The task that holds each key. */
function holdersOf(rows: readonly Row[]): Map<string, string> {
  return new Map(
    rows.map((row) => [
      keyId({ tenant: row["tenant"], name: row["name"], key: row["unique_key"] }),
      row["task_id"] as string,
    ]),
  );
}
