import { FlotillaError, hasCode, storeWideCodes } from "./errors.ts";

export type BatcherOptions = {
  /** The largest batch. Default 500. */
  maxItems?: number;
  /** Batches in flight at once. Two let one be prepared while the other is committed. Default 2. */
  inFlight?: number;
  /**
   * More items than this are sent in as many parts as may be in flight, so that one is processed
   * while another is stored.
   */
  splitAbove?: number;
  /** The most items that may wait; more are rejected to bound memory. Default 100,000. */
  maxWaiting?: number;
};

/** Takes an item, and calls back once with its result. The callbacks must not throw. */
export type Put<Item, Result> = (
  item: Item,
  resolve: (result: Result) => void,
  reject: (error: unknown) => void,
) => void;

/**
 * Collects items that arrive during a write, and sends them as one batch. Nothing waits on a timer
 * to fill a batch. A refused batch is split in halves, so that only the faulty part fails. A batch
 * with an unknown outcome is not sent again here, because `send` must resolve that.
 */
export function batcher<Item, Result>(
  send: (items: Item[]) => Promise<Result[]>,
  options: BatcherOptions = {},
): (item: Item) => Promise<Result> {
  const put = callbackBatcher(send, options);
  return (item) => new Promise((resolve, reject) => put(item, resolve, reject));
}

/**
 * Like `batcher`, for callers with so many items that a promise for each would be too expensive.
 */
export function callbackBatcher<Item, Result>(
  send: (items: Item[]) => Promise<Result[]>,
  {
    maxItems = 500,
    inFlight = 2,
    maxWaiting = 100_000,
    splitAbove = Infinity,
  }: BatcherOptions = {},
): Put<Item, Result> {
  type Waiting = {
    item: Item;
    resolve: (result: Result) => void;
    reject: (error: unknown) => void;
  };
  let waiting: Waiting[] = [];
  let underWay = 0;
  let scheduled = false;

  const flush = () => {
    scheduled = false;
    while (waiting.length > 0 && underWay < inFlight) {
      const free = inFlight - underWay;
      const share = waiting.length > splitAbove ? Math.ceil(waiting.length / free) : Infinity;
      const size = Math.min(maxItems, share);
      const batch = waiting.length <= size ? waiting : waiting.slice(0, size);
      waiting = waiting.length <= size ? [] : waiting.slice(size);
      underWay++;
      void deliver(batch).finally(() => {
        underWay--;
        flush();
      });
    }
  };

  const deliver = async (batch: Waiting[]): Promise<void> => {
    let results: Result[];
    try {
      results = await send(batch.map((entry) => entry.item));
    } catch (error) {
      if (batch.length === 1 || hasCode(error, ...storeWideCodes)) {
        for (const entry of batch) entry.reject(error);
        return;
      }
      const middle = Math.ceil(batch.length / 2);
      await deliver(batch.slice(0, middle));
      await deliver(batch.slice(middle));
      return;
    }
    for (let at = 0; at < batch.length; at++) {
      try {
        batch[at]!.resolve(results[at]!);
      } catch (error) {
        // The other callbacks are called anyway. This is a bug, so it surfaces as an unhandled
        // rejection.
        void Promise.reject(error);
      }
    }
  };

  return (item, resolve, reject) => {
    if (waiting.length >= maxWaiting) {
      const message = `${maxWaiting} writes are waiting for the store already: slow down`;
      return reject(new FlotillaError("overloaded", message));
    }
    waiting.push({ item, resolve, reject });
    if (scheduled || underWay >= inFlight) return;
    scheduled = true;
    queueMicrotask(flush);
  };
}
