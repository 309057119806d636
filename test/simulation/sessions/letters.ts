/**
 * Letters that are lost although the store said that it has them, as what was written without waiting for
 * the disk is when a database dies.
 */
import type { Database } from "../../../src/store/database.ts";
import { sql, type Statement } from "../../../src/store/sql.ts";
import type { World } from "../world.ts";

export type Letters = {
  /** How likely a letter is lost. */
  lost: number;
  through(database: Database): Database;
};

const start =
  /session\.start.*?sessionId\W+(\w+).*?work\W+type\W+\w+\W+epoch\W+(\d+)\W+attempt\W+(\d+)/g;
const roundTrip = sql`select 1 as one`;

/**
 * With `once`, what starts work is lost only the first time, and what says that work is under way never,
 * so that no runner that is well can be taken for lost.
 */
export function createLetters(world: World, { once }: { once: boolean }): Letters {
  const started = new Set<string>();
  const isSpared = (statements: readonly Statement[]): boolean => {
    const text = JSON.stringify(statements);
    if (text.includes("session.named")) return true;
    // By session, epoch and attempt: the rest of a header changes while its work waits to be begun.
    const starts = [...text.matchAll(start)].map(([, ...name]) => name.join());
    const isAgain = starts.some((each) => started.has(each));
    for (const each of starts) started.add(each);
    return isAgain;
  };
  const letters: Letters = {
    lost: 0,
    through: (database) => ({
      ...database,
      async write(statements, options) {
        const isLetter = options?.lossy === true && (options.mail?.length ?? 0) > 0;
        const loses = isLetter && world.chance(letters.lost) && !(once && isSpared(statements));
        if (!loses) return database.write(statements, options);
        world.count("fault: letters lost");
        world.scheduler.note(`letters to ${options.mail!.join()} are lost`);
        await database.read(roundTrip).catch(() => {});
        return statements.map(() => []);
      },
    }),
  };
  return letters;
}
