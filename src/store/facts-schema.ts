import { jsonReader, sql, type Statement, table } from "./sql.ts";

// For lists by a value of the payload.
const lists: readonly Statement[] = [sql`${jsonReader}`];

/** What pages about the fleet are drawn from. */
export const facts: readonly Statement[] = [
  ...lists,
  // When the handler of the last attempt began, which may be long after the claim.
  sql`alter table ${table("task")} add column started_at bigint`,
];
