/**
 * Does what is asked of it, at most so much at once, in the order in which it was asked. A thousand
 * clients that come back together then wait for each other, not everybody else for them; and as every
 * page of a long history queues anew, short ones aren't held up by it.
 */
export type FewAtOnce = {
  /** Lines take turns, so that a long one holds up the others by one each time. Without a name it's one line. */
  run<Answer>(act: () => Promise<Answer>, line?: string): Promise<Answer>;
  readonly underWay: number;
  readonly waiting: number;
};

type Line = { starts: (() => void)[]; next: number };

export function createFewAtOnce(atOnce: number): FewAtOnce {
  /** Those in which something waits, in the order of their turns. */
  const lines = new Map<string, Line>();
  let waiting = 0;
  let underWay = 0;

  const wait = (name: string) =>
    new Promise<void>((resolve) => {
      const line = lines.get(name) ?? { starts: [], next: 0 };
      line.starts.push(resolve);
      lines.set(name, line);
      waiting++;
    });
  const goOn = () => {
    const [first] = lines;
    // What waits takes the place over, so that nothing comes in between.
    if (!first) return void underWay--;
    const [name, line] = first;
    const start = line.starts[line.next++]!;
    waiting--;
    lines.delete(name);
    if (line.next < line.starts.length) lines.set(name, line);
    if (line.next > 1_000) {
      line.starts = line.starts.slice(line.next);
      line.next = 0;
    }
    start();
  };
  return {
    async run(act, line = "") {
      if (underWay < atOnce) underWay++;
      else await wait(line);
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
      return waiting;
    },
  };
}
