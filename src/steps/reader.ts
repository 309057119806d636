import { batcher } from "../base/batcher.ts";
import type { Database, Row } from "../store/database.ts";
import { type JournalOwner, maxRowsTogether, readSteps, readStepsOfMany } from "./sql.ts";

/** Reads the rows of a journal. */
export type ReadSteps = (owner: JournalOwner) => Promise<Row[]>;

// With `maxRowsTogether` this bounds what one read brings: 100 journals of 30 rows.
const maxOwnersTogether = 100;

/**
 * Journals that are asked for at the same time are read together: when the tasks of a dead pod go on,
 * thousands are. One with many rows has a read of its own.
 */
export function createStepReader(database: Pick<Database, "read">): ReadSteps {
  return batcher(
    async (owners) => {
      const [only] = owners;
      if (owners.length === 1) return [await database.read(readSteps(only!))];
      const found = Map.groupBy(await database.read(readStepsOfMany(owners)), (row) =>
        Number(row["owner_at"]),
      );
      return Promise.all(
        owners.map(async (owner, at) => {
          const rows = found.get(at) ?? [];
          return rows.length > maxRowsTogether ? database.read(readSteps(owner)) : rows;
        }),
      );
    },
    { maxItems: maxOwnersTogether },
  );
}
