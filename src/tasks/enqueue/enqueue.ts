import { FlotillaError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { checkOptions } from "../../base/options.ts";
import { currentOrigin } from "../../pods/unhandled-errors.ts";
import { newFilesIn } from "../../files/new-file.ts";
import type { TaskFiles } from "../files/task-files.ts";
import type { NewTask } from "../sql/enqueue.ts";
import { activeTracer, givenTrace, tracedEnqueue } from "../trace.ts";
import {
  type EachResult,
  enqueueEach,
  type EnqueueEachOptions,
  type EnqueueRow,
  type EnqueueRows,
} from "./each.ts";
import { checkKeys, type GraphOptions, type GraphRow, inDependencyOrder } from "./graph.ts";
import { createInsert, type InsertParts, type InsertResult, insertWithin } from "./insert.ts";
import {
  checkBulk,
  duplicateKey,
  type Enqueued,
  type EnqueueManyOptions,
  type EnqueueOptions,
  taskNamesOf,
  optionsOfOne,
  prepareTask,
} from "./options.ts";
import type { TaskContract } from "../model.ts";

type EnqueueParts = InsertParts & {
  ids: Ids;
  maxPayloadBytes: number;
  files: TaskFiles;
  /** Called with the names of stored tasks. */
  onNames?: (names: ReadonlySet<string>) => void;
};

/** Enqueues tasks: one, many, or a graph. Traced if the program traces. */
export function createEnqueue(given: EnqueueParts) {
  const { database } = given;
  const parts = { ...given, originOf: currentOrigin };
  const insert = createInsert(parts);
  const prepare = preparing(parts);

  const one = async (
    task: TaskContract | string,
    input: unknown,
    options: EnqueueOptions,
    trace: string | null,
  ): Promise<Enqueued> => {
    const prepared = prepare(task, input, options, trace);
    const newTask = prepared instanceof Promise ? await prepared : prepared;
    if (options.tx !== undefined) {
      const [enqueued] = await insertWithin(database.within(options.tx), [newTask], {
        whole: false,
      });
      return unlessRejected(newTask, enqueued!);
    }
    // A task is refused if a dependency or a file of it is missing, which must not fail other callers'
    // tasks in the batch.
    const alone = newTask.after !== undefined || newTask.files !== undefined;
    const [stored] = alone ? await insert.all([newTask]) : [await insert.one(newTask)];
    const enqueued = unlessRejected(newTask, stored!);
    parts.onNames?.(new Set([newTask.name]));
    return enqueued;
  };

  const many = async <Input>(
    task: TaskContract | string,
    given: readonly Input[],
    options: EnqueueManyOptions<Input>,
    trace: string | null,
  ): Promise<Enqueued[]> => {
    // A file that several tasks have is stored once.
    checkNoFiles(given, options.tx);
    const taken = parts.files.take(given, options.tenant ?? "default", given.length);
    const inputs = (taken instanceof Promise ? await taken : taken) as readonly Input[];
    const prepared = inputs.map(async (input) =>
      prepare(task, input, optionsOfOne(options, input), trace),
    );
    const newTasks = await Promise.all(prepared);
    checkBulk(
      newTasks.length,
      newTasks.reduce((chars, each) => chars + each.payload.length, 0),
    );
    if (options.tx !== undefined) {
      return insertWithin(database.within(options.tx), newTasks, { whole: true });
    }
    const enqueued = await insert.all(newTasks);
    parts.onNames?.(taskNamesOf(newTasks));
    return enqueued;
  };

  const graph = async (
    rows: readonly GraphRow[],
    { tx }: GraphOptions,
    trace: string | null,
  ): Promise<Record<string, Enqueued>> => {
    const ordered = inDependencyOrder(rows);
    if (ordered.length === 0) return {};
    checkKeys(ordered);
    const idsByRef = new Map<string, string>();
    const newTasks: NewTask[] = [];
    for (const { ref, task, input, options, after = [] } of ordered) {
      const dependencies = after.map(
        (each) => (typeof each === "string" && idsByRef.get(each)) || each,
      );
      const rowOptions = { ...options, ...(dependencies.length > 0 && { after: dependencies }) };
      const prepared = prepare(
        task,
        input,
        { ...rowOptions, ...(tx !== undefined && { tx }) },
        trace,
      );
      const made = prepared instanceof Promise ? await prepared : prepared;
      idsByRef.set(ref, made.taskId);
      newTasks.push(made);
    }
    checkBulk(
      newTasks.length,
      newTasks.reduce((chars, each) => chars + each.payload.length, 0),
    );
    const whole = { whole: true };
    const enqueued =
      tx === undefined
        ? await insert.all(newTasks)
        : await insertWithin(database.within(tx), newTasks, whole);
    if (tx === undefined) parts.onNames?.(taskNamesOf(newTasks));
    return Object.fromEntries(ordered.map(({ ref }, at) => [ref, enqueued[at]!]));
  };

  return {
    enqueueEach: createEnqueueEach(parts, insert),
    /** `Tasks` derives the answer's type from the rows. */
    async enqueueGraph(rows: readonly GraphRow[], options: GraphOptions = {}): Promise<any> {
      checkOptions("enqueueGraph", options, ["tx", "trace"]);
      checkBulk(rows.length);
      const store = (carried: string | null) => graph(rows, options, carried);
      const { trace: given } = options;
      const tracer = activeTracer();
      if (!tracer) return store(givenTrace(given));
      const names = new Set(rows.map(({ task }) => nameOf(task)));
      const span = { name: [...names].slice(0, 10).join(","), batch: rows.length, given };
      return tracedEnqueue(tracer, span, store);
    },
    async enqueue(
      task: TaskContract | string,
      input: unknown,
      options: EnqueueOptions = {},
    ): Promise<Enqueued> {
      const { trace: given } = options;
      const tracer = activeTracer();
      if (!tracer) return one(task, input, options, givenTrace(given));
      const isFlow = typeof task !== "string" && task.isFlow === true;
      const span = { name: nameOf(task), given, ...(isFlow && { verb: "start" as const }) };
      return tracedEnqueue(tracer, span, (carried) => one(task, input, options, carried));
    },
    async enqueueMany<Input>(
      task: TaskContract | string,
      inputs: readonly Input[],
      options: EnqueueManyOptions<Input> = {},
    ): Promise<Enqueued[]> {
      checkBulk(inputs.length);
      if (inputs.length === 0) return [];
      const { trace: given } = options;
      const tracer = activeTracer();
      if (!tracer) return many(task, inputs, options, givenTrace(given));
      const span = { name: nameOf(task), batch: inputs.length, given };
      return tracedEnqueue(tracer, span, (carried) => many(task, inputs, options, carried));
    },
  };
}

function nameOf(task: TaskContract | string): string {
  return typeof task === "string" ? task : task.name;
}

/** Makes the row of a task, with the files that its payload refers to. A promise only where there is something to await. */
function preparing(parts: EnqueueParts & { originOf: typeof currentOrigin }) {
  const { files } = parts;
  return (
    task: TaskContract | string,
    input: unknown,
    options: EnqueueOptions,
    trace: string | null,
  ): NewTask | Promise<NewTask> => {
    const prepare = (given: unknown) => {
      const made = prepareTask(task, given, options, parts, trace);
      return made instanceof Promise
        ? made.then((newTask) => files.link(newTask, given))
        : files.link(made, given);
    };
    checkNoFiles(input, options.tx);
    const taken = files.take(input, options.tenant ?? "default");
    return taken instanceof Promise ? taken.then(prepare) : prepare(taken);
  };
}

/** A transaction of the caller would be open while bytes arrive, and a SQLite file locked against them. */
function checkNoFiles(input: unknown, tx: unknown): void {
  if (tx === undefined || newFilesIn(input).size === 0) return;
  throw new FlotillaError(
    "unsupported",
    "new files aren't stored within your transaction: before it begins, store them by `tasks.files.store(file(…))`, and give what that returns",
  );
}

/** Throws if the key of a task with `onDuplicate: "reject"` was taken. */
function unlessRejected(newTask: NewTask, enqueued: Enqueued): Enqueued {
  if (enqueued.created || newTask.policy?.onDuplicate !== "reject") return enqueued;
  throw duplicateKey(newTask, enqueued.taskId);
}

/** Enqueues any number of tasks, each with its own outcome, with a span per transaction. */
function createEnqueueEach(
  parts: EnqueueParts & { originOf: typeof currentOrigin },
  insert: ReturnType<typeof createInsert>,
) {
  const { database } = parts;
  const prepared = preparing(parts);

  return async (rows: EnqueueRows, options: EnqueueEachOptions = {}): Promise<EachResult> => {
    const { tx } = options;
    const prepare = ({ task, input, options: own = {} }: EnqueueRow) =>
      prepared(task, input, { ...own, ...(tx !== undefined && { tx }) }, givenTrace(own.trace));
    const within = options.tx === undefined ? undefined : database.within(options.tx);
    const insertChunk = async (newTasks: readonly NewTask[]): Promise<InsertResult[]> => {
      if (within) return insertWithin(within, newTasks, { whole: false });
      const results = await insert.each(newTasks);
      parts.onNames?.(taskNamesOf(newTasks));
      return results;
    };
    const store = (newTasks: readonly NewTask[]): Promise<InsertResult[]> => {
      const tracer = activeTracer();
      if (!tracer) return insertChunk(newTasks);
      const names = [...taskNamesOf(newTasks)];
      const span = { name: names.slice(0, 10).join(","), batch: newTasks.length, given: undefined };
      return tracedEnqueue(tracer, span, (carried) =>
        insertChunk(newTasks.map((each) => ({ ...each, trace: each.trace ?? carried }))),
      );
    };
    return enqueueEach(rows, options, { prepare, insert: store, splits: !within });
  };
}
