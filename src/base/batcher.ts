import { FlotillaError, hasCode } from "./errors.ts";

export type BatcherOptions = {
  /** No batch is larger. Default 500. */
  maxItems?: number;
  /** Batches under way at once. Two let one be prepared while the other is committed. Default 2. */
  inFlight?: number;
  /** More than this at once are sent in as many parts as may be under way, so that one is worked on while another is stored. */
  splitAbove?: number;
  /** Items that may wait. More are refused, since memory isn't endless. Default 100,000. */
  maxWaiting?: number;
};

/**
 * Collects what arrives while the last write is under way, and sends it as one. Nothing waits on a
 * timer to fill a batch. A batch that is refused is split in halves, so that only the guilty part
 * fails; one whose outcome is unknown is not sent again here, because that is for `send` to resolve.
 */
export function batcher<Item, Result>(
  send: (items: Item[]) => Promise<Result[]>,
  options: BatcherOptions = {},
): (item: Item) => Promise<Result> {
  const put = callbackBatcher(send, options);
  return (item) => new Promise((resolve, reject) => put(item, resolve, reject));
}

/** Takes an item, and calls back once with what became of it. What is called back must not throw. */
export type Put<Item, Result> = (
  item: Item,
  resolve: (result: Result) => void,
  reject: (error: unknown) => void,
) => void;

/** The same for those who send so much that a promise for each would be felt. */
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
        // The others are told all the same. This is a bug, so nobody handles it.
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

// Where the store itself is the trouble, halves would fare no better.
const storeWideCodes = [
  "closed",
  "store_busy",
  "store_corrupt",
  "store_full",
  "store_read_only",
  "store_unavailable",
  "unknown_outcome",
] as const;
