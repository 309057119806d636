import type { Row } from "./database.ts";
import { limit, sql, type Statement } from "./sql.ts";

/**
 * A page of a list: at most `limit` rows, and at most `maxBytes` unless the first row alone is
 * larger.
 */
export type PageRequest = {
  /** The unique key that the list is ordered by. */
  readonly key: Statement;
  readonly order: "asc" | "desc";
  /** `from …`, with the conditions. */
  readonly from: Statement;
  /** The size of a row. */
  readonly bytes: Statement;
  readonly limit: number;
  readonly maxBytes: number;
};

/**
 * Finds the rows of a page by their keys and lengths only, so that rows that do not fit are never
 * read. `found` is a column for `hasMore`.
 */
export function pageQuery(request: PageRequest): {
  begin: Statement;
  keys: Statement;
  found: Statement;
} {
  const { key, from, bytes } = request;
  const order = request.order === "asc" ? sql`asc` : sql`desc`;
  return {
    begin: sql`
      with listed as (
        select ${key} as place, ${bytes} as bytes ${from}
        order by ${key} ${order} ${limit(request.limit + 1)}),
      measured as (
        select place, row_number() over (order by place ${order}) as nth,
          sum(bytes) over (order by place ${order}) as up_to
        from listed)`,
    keys: sql`select place from measured
      where nth = 1 or (nth <= ${request.limit} and up_to <= ${request.maxBytes})`,
    found: sql`(select count(*) from listed) as found`,
  };
}

/** True if the list continues after the rows of a page. */
export function hasMore(rows: readonly Row[]): boolean {
  return rows.length < Number(rows[0]?.["found"] ?? 0);
}

/** The size of a text column; 0 if it is null. */
export function columnBytes(column: Statement): Statement {
  return sql`coalesce(octet_length(${column}), 0)`;
}
