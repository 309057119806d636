/**
 * Reads for clients that join, at most so many at once, in the order in which they were asked for. A
 * thousand clients that come back together then wait for each other, not everybody else for them; and
 * as every page of a long history queues anew, short ones aren't held up by it.
 */
export type ColdReads = {
  read<Found>(read: () => Promise<Found>): Promise<Found>;
  readonly underWay: number;
  readonly waiting: number;
};

export function createColdReads(atOnce: number): ColdReads {
  let waiting: (() => void)[] = [];
  let next = 0;
  let underWay = 0;

  const goOn = () => {
    const first = waiting[next];
    // Whoever waits takes the place over, so that nobody comes in between.
    if (!first) return void underWay--;
    next++;
    if (next === waiting.length || next > 1_000) {
      waiting = waiting.slice(next);
      next = 0;
    }
    first();
  };
  return {
    async read(read) {
      if (underWay < atOnce) underWay++;
      else await new Promise<void>((resolve) => waiting.push(resolve));
      try {
        return await read();
      } finally {
        goOn();
      }
    },
    get underWay() {
      return underWay;
    },
    get waiting() {
      return waiting.length - next;
    },
  };
}
