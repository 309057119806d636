import type { Clock } from "../base/clock.ts";
import type { Ids } from "../base/ids.ts";
import type { Random } from "../base/random.ts";
import type { Database } from "../store/database.ts";
import {
  checkBulk,
  type Enqueued,
  type EnqueueManyOptions,
  type EnqueueOptions,
  optionsOfOne,
  prepareTask,
} from "./enqueue.ts";
import { createBulk } from "./bulk.ts";
import { duplicateKey } from "./keys.ts";
import { createStoring, storeWithin } from "./storing.ts";
import type { NewTask } from "./statements/enqueue.ts";
import type { TaskContract } from "./task.ts";
import { activeTracer, passedOn, tracedEnqueue } from "./trace.ts";

export type ProducingParts = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  maxPayloadBytes: number;
  /** Told after tasks were stored here, so that a pod in this process needn't wait for a hint. */
  onEnqueued?: () => void;
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
    const enqueued = unlessRejected(news, await storing.one(news));
    onEnqueued?.();
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
    return enqueued;
  };

  return {
    enqueueEach: createBulk(parts, storing),
    async enqueue(
      task: TaskContract | string,
      input: unknown,
      options: EnqueueOptions = {},
    ): Promise<Enqueued> {
      const { trace: given } = options;
      const tracer = activeTracer();
      if (!tracer) return one(task, input, options, passedOn(given));
      return tracedEnqueue(tracer, { name: nameOf(task), given }, (carried) =>
        one(task, input, options, carried),
      );
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
