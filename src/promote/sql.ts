import type { Row } from "../store/database.ts";
import { columnBytes } from "../store/page.ts";
import { markStore, unmarkStore } from "../store/promotion-mark.ts";
import {
  column,
  type Columns,
  join,
  limit,
  literal,
  now,
  returning,
  rows,
  sql,
  type Statement,
  table,
  type TableName,
} from "../store/sql.ts";
import type { CopiedRow, CopiedTable, RowKey } from "./tables.ts";

const promotions = table("promotion");
const places = table("log_place");
const secrets = table("bus_secret");

/** Postgres has 32 bits for what both databases call an integer. */
const maxInteger = 2_147_483_647;

/** Rows after a key, up to another one with it; from the first row, or to the last, where it isn't given. */
export type KeyRange = { readonly after?: RowKey | undefined; readonly last?: RowKey | undefined };

const named = (columns: CopiedTable["columns"]) =>
  join(
    columns.map(({ name }) => column(name)),
    ", ",
  );

/** A key as a value to compare with. A number is bound as text, since it may be wider than JavaScript's. */
function keyValue({ key }: CopiedTable, values: RowKey): Statement {
  const each = key.map(({ type }, at) =>
    type === "text" ? sql`${values[at]!}` : sql`cast(${values[at]!} as bigint)`,
  );
  return sql`(${join(each, ", ")})`;
}

function within(of: CopiedTable, { after, last }: KeyRange): Statement {
  const own = sql`(${named(of.key)})`;
  const from = after ? sql`${own} > ${keyValue(of, after)}` : sql`true`;
  return last ? sql`${from} and ${own} <= ${keyValue(of, last)}` : from;
}

/** As text: both databases print a number alike, and none is too wide for it. */
function asText(columns: CopiedTable["columns"]): Statement {
  const each = columns.map(({ name }) => sql`cast(${column(name)} as text) as ${column(name)}`);
  return join(each, ", ");
}

/** The keys of the next rows, and how much they weigh, so that rows which don't fit aren't read. */
export function readSizes(of: CopiedTable, range: KeyRange, count: number): Statement {
  const bytes = of.columns.map(({ name, type }) =>
    type === "text" ? columnBytes(column(name)) : sql`8`,
  );
  return sql`
    select ${asText(of.key)}, ${join(bytes, " + ")} as bytes from ${table(of.name)} as copied
    where ${within(of, range)} order by ${ownKey(of)} ${limit(count)}`;
}

export function readRows(of: CopiedTable, range: KeyRange): Statement {
  return sql`
    select ${asText(of.columns)} from ${table(of.name)} as copied
    where ${within(of, range)} order by ${ownKey(of)}`;
}

/** The key as it is stored: the columns of a result have the same names, and are text. */
function ownKey({ key }: CopiedTable): Statement {
  return join(
    key.map(({ name }) => sql`copied.${column(name)}`),
    ", ",
  );
}

export function countRows(name: TableName): Statement {
  return sql`select count(*) as count from ${table(name)}`;
}

export function hasRows(name: TableName): Statement {
  return sql`select 1 as found from ${table(name)} ${limit(1)}`;
}

/** Names those of the tables that have rows. */
export function findFilled(names: readonly TableName[]): Statement {
  const each = names.map(
    (name) => sql`case when exists (select 1 from ${table(name)}) then ${`${name} `} else '' end`,
  );
  return sql`select ${join(each, " || ")} as filled`;
}

/**
 * The first row that Postgres can't hold, though SQLite does: with a NUL in a text, bytes in place of a text,
 * or what is no number, or too wide a one, in place of a number.
 */
export function findUnstorable(of: CopiedTable): Statement {
  const faults = of.columns.map(({ name, type }) => {
    const own = column(name);
    if (type === "text") return sql`(instr(${own}, char(0)) > 0 or typeof(${own}) = 'blob')`;
    const isNumber = sql`typeof(${own}) in ('integer', 'null')`;
    return type === "bigint"
      ? sql`not ${isNumber}`
      : sql`(not ${isNumber}
          or ${own} not between ${literal(-maxInteger - 1)} and ${literal(maxInteger)})`;
  });
  const first = of.columns.map(({ name }, at) => sql`when ${faults[at]!} then ${name}`);
  return sql`
    select ${asText(of.key)}, case ${join(first, " ")} end as faulty from ${table(of.name)}
    where ${join(faults, " or ")} ${limit(1)}`;
}

/** True while the copier holds the promotion. A transaction locks its row before it relies on this. */
function isHeld(holder: string): Statement {
  return sql`exists (
    select 1 from ${promotions} where id = 1 and holder = ${holder} and state = 'copying')`;
}

/** Inserts rows, unless they are there or the copier doesn't hold the promotion any more. */
export function insertCopied(
  of: CopiedTable,
  copied: readonly CopiedRow[],
  holder: string,
): Statement {
  const types: Columns = Object.fromEntries(
    of.columns.map(({ name, type }) => [name, type === "text" ? "text" : "integer"]),
  );
  return sql`
    insert into ${table(of.name)} (${named(of.columns)})
    select ${named(of.columns)} from ${rows(types, copied)} copied
    where ${isHeld(holder)}
    on conflict do nothing`;
}

/**
 * How many rows of a range there are, and a hash over them in the order of their keys: of each row the
 * length and the text of every column, or a dash for none.
 */
export function digestRange(of: CopiedTable, range: KeyRange): Statement {
  const texts = of.columns.map(({ name }) => {
    const text = sql`cast(${column(name)} as text)`;
    return sql`coalesce(octet_length(${text}) || ':' || ${text}, '-')`;
  });
  const hash = sql`sha256(convert_to(${join(texts, " || ")}, 'UTF8'))`;
  return sql`
    select count(*) as count,
      encode(sha256(coalesce(string_agg(${hash}, ''::bytea order by ${named(of.key)}), ''::bytea)), 'hex')
        as digest
    from ${table(of.name)} where ${within(of, range)}`;
}

/** Deletes some rows of a table that was being filled. */
export function deleteCopied(of: CopiedTable, count: number, holder: string): Statement {
  const own = named(of.key);
  return sql`
    delete from ${table(of.name)}
    where (${own}) in (select ${own} from ${table(of.name)} ${limit(count)}) and ${isHeld(holder)}`;
}

/** Has the planner know the rows of a table that was just filled. */
export function analyzeTable(name: TableName): Statement {
  return sql`analyze ${table(name)}`;
}

/**
 * The rows that a store is made with. Where its logs are: on streams they stay there, under the id of the
 * deployment. And its secret, which ids of groups of failed tasks are made with.
 */
export type SingleRows = {
  readonly place: string;
  readonly clusterId: string;
  readonly secret: string;
};

export function readSingles(): Statement {
  return sql`select place, cluster_id, secret from ${places}, ${secrets} ${limit(1)}`;
}

export function toSingles(row: Row): SingleRows {
  return { place: row["place"], clusterId: row["cluster_id"], secret: row["secret"] };
}

export function setSingles(
  { place, clusterId, secret }: SingleRows,
  holder: string,
): readonly Statement[] {
  return [
    sql`update ${places} set place = ${place}, cluster_id = ${clusterId} where ${isHeld(holder)}`,
    sql`update ${secrets} set secret = ${secret} where ${isHeld(holder)}`,
  ];
}

export type Promotion = {
  readonly promotionId: string;
  readonly sourceId: string;
  readonly source: string;
  readonly state: "copying" | "done";
  readonly logs: number;
  readonly holder: string | null;
  readonly host: string | null;
  /** How much longer its holder is left alone. */
  readonly heldMs: number;
  readonly progress: CopyProgress;
};

/**
 * By table: the key of the last row that is copied, how many there are, and whether these are all. Without
 * either, some rows may be there, and it is copied from the first.
 */
export type CopyProgress = Readonly<
  Partial<Record<TableName, { after?: RowKey; rows: number; done?: true }>>
>;

const columns = sql`promotion_id, source_id, source, state, logs, holder, host, progress,
  held_until - ${now} as held_ms`;

export function readPromotion(): Statement {
  return sql`select ${columns} from ${promotions} where id = 1`;
}

export function toPromotion(row: Row): Promotion {
  return {
    promotionId: row["promotion_id"],
    sourceId: row["source_id"],
    source: row["source"],
    state: row["state"],
    logs: Number(row["logs"]),
    holder: row["holder"],
    host: row["host"],
    heldMs: Number(row["held_ms"]),
    progress: JSON.parse(row["progress"] as string) as CopyProgress,
  };
}

/**
 * Begins a promotion, unless one is under way, and marks the store with it. An earlier one that is done
 * leaves its place. The store is as old as the source from now on: that names the folder of what pods keep
 * beside it.
 */
export function beginPromotion(
  given: Pick<Promotion, "promotionId" | "sourceId" | "source" | "logs"> & { createdAtMs: number },
): Statement[] {
  const { promotionId, sourceId, source, logs, createdAtMs } = given;
  const isOurs = sql`exists (
    select 1 from ${promotions} where id = 1 and promotion_id = ${promotionId})`;
  return [
    sql`
      insert into ${promotions} as known (id, promotion_id, source_id, source, logs)
      values (1, ${promotionId}, ${sourceId}, ${source}, ${logs})
      on conflict (id) do update
      set promotion_id = excluded.promotion_id, source_id = excluded.source_id,
        source = excluded.source, logs = excluded.logs, state = 'copying', holder = null,
        held_until = 0, progress = '{}', began_at = excluded.began_at,
        last_update = excluded.last_update
      where known.state = 'done'`,
    markStore({ promotionId, other: source, state: "filling" }, isOurs),
    sql`
      update ${table("migration")} set applied_at = ${createdAtMs} where id = 1 and ${isOurs}`,
  ];
}

export type Copier = { readonly holder: string; readonly host: string | null };

/** Takes a promotion that no other process holds, or whose holder is `gone`. */
export function takePromotion(
  promotionId: string,
  { holder, host }: Copier,
  { forMs, gone }: { forMs: number; gone: string | null },
): Statement {
  return sql`
    update ${promotions}
    set holder = ${holder}, host = ${host}, held_until = ${now} + ${forMs}, last_update = ${now}
    where id = 1 and promotion_id = ${promotionId} and state = 'copying'
      and (holder is null or holder = ${holder} or holder = ${gone} or held_until < ${now})
    ${returning(columns, { after: sql`${readPromotion()} and holder = ${holder}` })}`;
}

/** Stores how far the copy is, and holds the promotion for longer. Locks its row first of all. */
export function saveCopied(
  holder: string,
  progress: CopyProgress,
  { forMs }: { forMs: number },
): Statement {
  return sql`
    update ${promotions}
    set progress = ${JSON.stringify(progress)}, held_until = ${now} + ${forMs}, last_update = ${now}
    where id = 1 and holder = ${holder} and state = 'copying'
    ${returning(sql`id`, {
      after: sql`select id from ${promotions} where holder = ${holder} and state = 'copying'`,
    })}`;
}

/** Lets another process go on at once. */
export function releasePromotion(holder: string): Statement {
  return sql`
    update ${promotions} set holder = null, held_until = 0, last_update = ${now}
    where id = 1 and holder = ${holder} and state = 'copying'`;
}

/**
 * The rows are all there and compared: the store may be used. The holder keeps its name, so that a resend
 * finds it.
 */
export function finishPromotion(holder: string): Statement[] {
  return [
    sql`
      update ${promotions} set state = 'done', held_until = 0, last_update = ${now}
      where id = 1 and holder = ${holder}
      ${returning(sql`id`, { after: sql`select id from ${promotions} where holder = ${holder}` })}`,
    sql`${unmarkStore()} and exists (
      select 1 from ${promotions} where id = 1 and holder = ${holder} and state = 'done')`,
  ];
}

/** The store is empty again, and may be used for anything. */
export function forgetPromotion(holder: string): Statement[] {
  return [
    sql`${unmarkStore()} and ${isHeld(holder)}`,
    sql`delete from ${promotions} where id = 1 and holder = ${holder} and state = 'copying'`,
  ];
}
