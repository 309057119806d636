import { sql, type Statement, table } from "./sql.ts";

/** What pages about the fleet are drawn from. */
export const facts: readonly Statement[] = [
  // When the handler of the last attempt began, which may be long after the claim.
  sql`alter table ${table("task")} add column started_at bigint`,
];
