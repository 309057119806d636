import type { Clock } from "../../base/clock.ts";
import type { Ids } from "../../base/ids.ts";
import { checkOptions } from "../../base/options.ts";
import type { Random } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import type { NewTask } from "../sql/enqueue.ts";
import type { TaskContract } from "../task.ts";
import { activeTracer, passedOn, tracedEnqueue } from "../trace.ts";
import {
  type EachResult,
  enqueueEach,
  type EnqueueEachOptions,
  type EnqueueRow,
  type EnqueueRows,
} from "./each.ts";
import { checkKeys, type GraphOptions, type GraphRow, inOrderOfWaiting } from "./graph.ts";
import { createStoring, type Settled, storeWithin } from "./insert.ts";
import {
  checkBulk,
  duplicateKey,
  type Enqueued,
  type EnqueueManyOptions,
  type EnqueueOptions,
  namesOf,
  optionsOfOne,
  prepareTask,
} from "./options.ts";

type ProducingParts = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  maxPayloadBytes: number;
  /** Told after tasks were stored here, so that a pod in this process needn't wait for a hint. */
  onEnqueued?: () => void;
  /** Told of the names of what was stored here. */
  onNames?: (names: ReadonlySet<string>) => void;
};

/** What brings tasks in: one by one or many at once, traced where the program traces. */
export function createProducing(parts: ProducingParts) {
  const { database, onEnqueued } = parts;
  const storing = createStoring(parts);

  const one = async (
    task: TaskContract | string,
    input: unknown,
    options: EnqueueOptions,
    trace: string | null,
  ): Promise<Enqueued> => {
    const prepared = prepareTask(task, input, options, parts, trace);
    const news = prepared instanceof Promise ? await prepared : prepared;
    if (options.tx !== undefined) {
      const [enqueued] = await storeWithin(database.within(options.tx), [news], { whole: false });
      return unlessRejected(news, enqueued!);
    }
    // One that waits isn't stored where what it waits for is missing, which mustn't concern others.
    const [stored] = news.after ? await storing.all([news]) : [await storing.one(news)];
    const enqueued = unlessRejected(news, stored!);
    onEnqueued?.();
    parts.onNames?.(new Set([news.name]));
    return enqueued;
  };

  const many = async <Input>(
    task: TaskContract | string,
    inputs: readonly Input[],
    options: EnqueueManyOptions<Input>,
    trace: string | null,
  ): Promise<Enqueued[]> => {
    const prepared = inputs.map(async (input) =>
      prepareTask(task, input, optionsOfOne(options, input), parts, trace),
    );
    const news = await Promise.all(prepared);
    checkBulk(
      news.length,
      news.reduce((chars, each) => chars + each.payload.length, 0),
    );
    if (options.tx !== undefined) {
      return storeWithin(database.within(options.tx), news, { whole: true });
    }
    const enqueued = await storing.all(news);
    onEnqueued?.();
    parts.onNames?.(namesOf(news));
    return enqueued;
  };

  const graph = async (
    rows: readonly GraphRow[],
    { tx }: GraphOptions,
    trace: string | null,
  ): Promise<Record<string, Enqueued>> => {
    const ordered = inOrderOfWaiting(rows);
    if (ordered.length === 0) return {};
    checkKeys(ordered);
    const idsByRef = new Map<string, string>();
    const news: NewTask[] = [];
    for (const { ref, task, input, options, after = [] } of ordered) {
      const awaited = after.map((each) => (typeof each === "string" && idsByRef.get(each)) || each);
      const given = { ...options, ...(awaited.length > 0 && { after: awaited }) };
      const prepared = prepareTask(task, input, given, parts, trace);
      const made = prepared instanceof Promise ? await prepared : prepared;
      idsByRef.set(ref, made.taskId);
      news.push(made);
    }
    checkBulk(
      news.length,
      news.reduce((chars, each) => chars + each.payload.length, 0),
    );
    const whole = { whole: true };
    const enqueued =
      tx === undefined
        ? await storing.all(news)
        : await storeWithin(database.within(tx), news, whole);
    if (tx === undefined) {
      onEnqueued?.();
      parts.onNames?.(namesOf(news));
    }
    return Object.fromEntries(ordered.map(({ ref }, at) => [ref, enqueued[at]!]));
  };

  return {
    enqueueEach: createBulk(parts, storing),
    /** The answer's type follows from the rows; `Tasks` says how. */
    async enqueueGraph(rows: readonly GraphRow[], options: GraphOptions = {}): Promise<any> {
      checkOptions("enqueueGraph", options, ["tx", "trace"]);
      checkBulk(rows.length);
      const store = (carried: string | null) => graph(rows, options, carried);
      const { trace: given } = options;
      const tracer = activeTracer();
      if (!tracer) return store(passedOn(given));
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
      if (!tracer) return one(task, input, options, passedOn(given));
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
      if (!tracer) return many(task, inputs, options, passedOn(given));
      const span = { name: nameOf(task), batch: inputs.length, given };
      return tracedEnqueue(tracer, span, (carried) => many(task, inputs, options, carried));
    },
  };
}

function nameOf(task: TaskContract | string): string {
  return typeof task === "string" ? task : task.name;
}

/** A task whose key must be free is refused where it wasn't. */
function unlessRejected(news: NewTask, enqueued: Enqueued): Enqueued {
  if (enqueued.created || news.policy?.onDuplicate !== "reject") return enqueued;
  throw duplicateKey(news, enqueued.taskId);
}

/** Brings in any number of tasks, each on its own account, with a span for every transaction. */
function createBulk(parts: ProducingParts, storing: ReturnType<typeof createStoring>) {
  const { database, onEnqueued } = parts;
  const prepare = ({ task, input, options = {} }: EnqueueRow) =>
    prepareTask(task, input, options, parts, passedOn(options.trace));

  return async (rows: EnqueueRows, options: EnqueueEachOptions = {}): Promise<EachResult> => {
    const within = options.tx === undefined ? undefined : database.within(options.tx);
    const plain = async (news: readonly NewTask[]): Promise<Settled[]> => {
      if (within) return storeWithin(within, news, { whole: false });
      const settled = await storing.each(news);
      onEnqueued?.();
      parts.onNames?.(namesOf(news));
      return settled;
    };
    const store = (news: readonly NewTask[]): Promise<Settled[]> => {
      const tracer = activeTracer();
      if (!tracer) return plain(news);
      const names = [...namesOf(news)];
      const span = { name: names.slice(0, 10).join(","), batch: news.length, given: undefined };
      return tracedEnqueue(tracer, span, (carried) =>
        plain(news.map((each) => ({ ...each, trace: each.trace ?? carried }))),
      );
    };
    return enqueueEach(rows, options, { prepare, store, splits: !within });
  };
}
