import {
  type EachResult,
  enqueueEach,
  type EnqueueEachOptions,
  type EnqueueRow,
  type EnqueueRows,
} from "./each.ts";
import { namesOf, prepareTask } from "./options.ts";
import type { ProducingParts } from "./enqueue.ts";
import type { NewTask } from "../sql/enqueue.ts";
import { type createStoring, storeWithin } from "./insert.ts";
import type { Settled } from "./storing-keyed.ts";
import { activeTracer, passedOn, tracedEnqueue } from "../trace.ts";

/** Brings in any number of tasks, each on its own account, with a span for every transaction. */
export function createBulk(parts: ProducingParts, storing: ReturnType<typeof createStoring>) {
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
