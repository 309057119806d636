/**
 * Stores in memory that simulations use one after the other. To make one and to prepare its
 * statements anew for each seed took as long as a third of what was then done with it.
 */
import type { Database } from "../../src/store/database.ts";
import { type Connection, openConnection } from "../../src/store/sqlite/connection.ts";
import { inlineDatabase } from "../../src/store/sqlite/inline.ts";

type Clock = { now(): number };

type Spare = { readonly connection: Connection; clock: Clock };

const spares: Spare[] = [];

/** An empty store, whose tables may be there already. Closed, it is emptied for the next. */
export function spareDatabase(clock: Clock): Database {
  const spare = spares.pop() ?? openSpare(clock);
  spare.clock = clock;
  return inlineDatabase({
    ...spare.connection,
    close() {
      empty(spare.connection);
      spares.push(spare);
    },
  });
}

function openSpare(first: Clock): Spare {
  const spare: Spare = {
    clock: first,
    connection: openConnection({ path: ":memory:", nowMs: () => spare.clock.now() }),
  };
  return spare;
}

/** What triggers note of the deletions goes last. */
function empty(connection: Connection): void {
  const { rows } = connection.read({
    text: `select name from sqlite_schema where type = 'table' and name not like '%migration'
      order by name like 'sim_%'`,
    values: [],
  });
  const deletes = rows.map(([name]) => ({ text: `delete from "${String(name)}"`, values: [] }));
  const [outcome] = connection.commit([deletes]);
  if ("error" in outcome!) throw outcome.error;
}
