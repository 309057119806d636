/**
 * Stores in memory that simulations use one after the other. To make one and to prepare its
 * statements anew for each seed took as long as a third of what was then done with it.
 */
import type { Database } from "../../src/store/database.ts";
import type { Value } from "../../src/store/sql.ts";
import { type SqliteConnection, openConnection } from "../../src/store/sqlite/connection.ts";
import { inlineDatabase } from "../../src/store/sqlite/inline.ts";

export type StoreHooks = {
  now(): number;
  /** Called by triggers, with what they pass to `sim_note`. */
  note(values: readonly Value[]): void;
};

type Spare = { readonly connection: SqliteConnection; hooks: StoreHooks };

const spares: Spare[] = [];

/** An empty store, whose tables may be there already. Closed, it is emptied for the next. */
export function spareDatabase(hooks: StoreHooks): Database {
  const spare = spares.pop() ?? openSpare(hooks);
  spare.hooks = hooks;
  return inlineDatabase({
    ...spare.connection,
    close() {
      spare.hooks = { now: hooks.now, note: () => {} };
      empty(spare.connection);
      spares.push(spare);
    },
  });
}

function openSpare(first: StoreHooks): Spare {
  const spare: Spare = {
    hooks: first,
    connection: openConnection({
      path: ":memory:",
      nowMs: () => spare.hooks.now(),
      functions: {
        sim_note: (...values) => {
          spare.hooks.note(values);
          return null;
        },
      },
    }),
  };
  return spare;
}

/** Leaves what the steps of the schema have put there. */
function empty(connection: SqliteConnection): void {
  const { rows } = connection.read({
    text: `select name from sqlite_schema where type = 'table'
      and name not like '%migration' and name not like '%log_place'`,
    values: [],
  });
  const deletes = rows.map(([name]) => ({ text: `delete from "${String(name)}"`, values: [] }));
  const [outcome] = connection.commit([deletes]);
  if ("error" in outcome!) throw outcome.error;
}
