import { sql, type Statement } from "../../store/sql.ts";
import type { TaskFilter } from "../filter.ts";
import { parkedAs } from "./task-state.ts";

/** What statements decide of a filter. The group of an error is known to code alone. */
export type StoredFilter = Omit<TaskFilter, "group">;

/** The columns that conditions of filters are about. */
export const filteredColumns = sql`task_id, name, tenant, status, claim_token, parked, cancel_requested,
  flow_version, cursor, created_at, last_update`;

/** The conditions of a filter, on columns with this prefix: `task.`, or none. */
export function filterConditions(filter: StoredFilter, row: Statement = sql``): Statement[] {
  const { name, status, tenant, at, setAside, from, to } = filter;
  return [
    ...(name === undefined ? [] : [sql`${row}name = ${name}`]),
    ...(status === undefined ? [] : [sql`${row}status = ${status}`]),
    ...(tenant === undefined ? [] : [sql`${row}tenant = ${tenant}`]),
    ...(at === undefined ? [] : [sql`${row}cursor = ${at}`]),
    ...(setAside === undefined
      ? []
      : [sql`${row}status = 'pending' and ${row}parked = ${parkedAs.setAside}`]),
    ...(from === undefined ? [] : [sql`${row}task_id >= ${from}`]),
    ...(to === undefined ? [] : [sql`${row}task_id <= ${to}`]),
  ];
}
