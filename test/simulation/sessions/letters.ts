/**
 * Letters that are lost although the store said that it has them, as what was written without waiting for
 * the disk is when a database dies.
 */
import type { Database } from "../../../src/store/database.ts";
import { sql } from "../../../src/store/sql.ts";
import type { World } from "../world.ts";

export type Letters = {
  /** How likely a letter is lost. */
  lost: number;
  through(database: Database): Database;
};

const roundTrip = sql`select 1 as one`;

/** With `spares`, never two writes in a row of the same sender. */
export function createLetters(world: World, { spares }: { spares: boolean }): Letters {
  const letters: Letters = {
    lost: 0,
    through(database) {
      let lostLast = false;
      return {
        ...database,
        async write(statements, options) {
          const isLetter = options?.lossy === true && (options.mail?.length ?? 0) > 0;
          const loses = isLetter && !(spares && lostLast) && world.chance(letters.lost);
          if (isLetter) lostLast = loses;
          if (!loses) return database.write(statements, options);
          world.count("fault: letters lost");
          world.scheduler.note(`letters to ${options.mail!.join()} are lost`);
          await database.read(roundTrip).catch(() => {});
          return statements.map(() => []);
        },
      };
    },
  };
  return letters;
}
