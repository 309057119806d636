import { fraction, type Random } from "../../src/base/random.ts";
import type { Database } from "../../src/store/database.ts";
import type { VirtualTime } from "./virtual-time.ts";

/** One way to the store takes this long, at least and at most. */
const wayMs = { least: 1, most: 5 };

type DistantOptions = {
  readonly time: VirtualTime;
  readonly random: Random;
  /** Called when something was committed, while its answer is still on the way. */
  readonly onCommitted?: () => void;
};

/** A store in memory as if it were a database on the network. */
export function distant(database: Database, options: DistantOptions): Database {
  const { time, random, onCommitted } = options;
  const travel = (arrive: () => void) =>
    time.in(wayMs.least + (wayMs.most - wayMs.least) * fraction(random), arrive);
  const ask = <Answer>(question: () => Promise<Answer>): Promise<Answer> =>
    new Promise((resolve, reject) => {
      travel(() => {
        question().then(
          (answer) => travel(() => resolve(answer)),
          (error: unknown) => travel(() => reject(error as Error)),
        );
      });
    });
  return {
    ...database,
    read: (statement) => ask(() => database.read(statement)),
    write: (statements) =>
      ask(async () => {
        const tables = await database.write(statements);
        onCommitted?.();
        return tables;
      }),
  };
}
