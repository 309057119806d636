/**
 * Does what is asked of it, at most so much at once, in the order in which it was asked. A thousand
 * clients that come back together then wait for each other, not everybody else for them; and as every
 * page of a long history queues anew, short ones aren't held up by it.
 */
export type FewAtOnce = {
  run<Answer>(act: () => Promise<Answer>): Promise<Answer>;
  readonly underWay: number;
  readonly waiting: number;
};

export function createFewAtOnce(atOnce: number): FewAtOnce {
  let waiting: (() => void)[] = [];
  let next = 0;
  let underWay = 0;

  const goOn = () => {
    const first = waiting[next];
    // What waits takes the place over, so that nothing comes in between.
    if (!first) return void underWay--;
    next++;
    if (next === waiting.length || next > 1_000) {
      waiting = waiting.slice(next);
      next = 0;
    }
    first();
  };
  return {
    async run(act) {
      if (underWay < atOnce) underWay++;
      else await new Promise<void>((resolve) => waiting.push(resolve));
      try {
        return await act();
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
