import type { Row } from "./database.ts";
import { limit, sql, type Statement } from "./sql.ts";

/** A part of a list: at most so many rows, and so many bytes unless its first row alone takes more. */
export type PageRequest = {
  /** What the list is ordered by, which no two rows share. */
  readonly key: Statement;
  readonly order: "asc" | "desc";
  /** `from …`, with the conditions. */
  readonly from: Statement;
  /** What a row takes. */
  readonly bytes: Statement;
  readonly limit: number;
  readonly maxBytes: number;
};

/**
 * Finds the rows of a page by their keys and lengths alone, so that what doesn't fit is never read.
 * `found` is a column for `hasMore`.
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

/** Whether the list goes on after the rows of a page. */
export function hasMore(rows: readonly Row[]): boolean {
  return rows.length < Number(rows[0]?.["found"] ?? 0);
}

/** What a text takes, nothing where it is null. */
export function columnBytes(column: Statement): Statement {
  return sql`coalesce(octet_length(${column}), 0)`;
}
