import type { Row } from "../store/database.ts";
import { columnBytes } from "../store/page.ts";
import { now, rows, sql, type Statement, table } from "../store/sql.ts";
import { maxReadTogetherBytes, type StoredStep } from "./model.ts";

const journal = table("step_journal");

/** Of a journal with more rows, `readStepsOfMany` returns one row more than this. */
export const maxRowsTogether = 30;

/** Whose journal: a task has one, whose part is the empty text. */
export type JournalOwner = { readonly ownerId: string; readonly part: string };

/** What is read of a row: no large value. */
const shown = sql`key, seq, kind, input_hash, ${now} - at as age_ms, ${columnBytes(sql`value`)} as bytes,
      case when ${columnBytes(sql`value`)} <= ${maxReadTogetherBytes} then value end as value`;

/** All rows of a journal, in the order in which they were stored, without large values. */
export function readSteps({ ownerId, part }: JournalOwner): Statement {
  return sql`
    select ${shown}
    from ${journal} where owner_id = ${ownerId} and part = ${part} order by seq`;
}

/** The same of several journals: `owner_at` says which. */
export function readStepsOfMany(owners: readonly JournalOwner[]): Statement {
  const given = rows(
    { owner_at: "integer", owner_id: "text", part: "text" },
    owners.map(({ ownerId, part }, at) => [at, ownerId, part]),
  );
  return sql`
    select owner_at, ${shown}
    from (
      select given.owner_at, own.key, own.seq, own.kind, own.input_hash, own.at, own.value,
        row_number() over (partition by given.owner_at order by own.seq) as place
      from ${given} given join ${journal} own
        on own.owner_id = given.owner_id and own.part = given.part
    ) found
    where place <= ${maxRowsTogether + 1} order by owner_at, seq`;
}

export function readStepValue({ ownerId, part }: JournalOwner, key: string): Statement {
  return sql`
    select value from ${journal} where owner_id = ${ownerId} and part = ${part} and key = ${key}`;
}

export function toStoredStep(row: Row): StoredStep {
  return {
    key: row["key"],
    seq: Number(row["seq"]),
    kind: row["kind"],
    inputHash: row["input_hash"],
    value: row["value"] ?? undefined,
    bytes: Number(row["bytes"]),
    ageMs: Number(row["age_ms"]),
  };
}

/** Finds a row by the write that stored it. */
export function findStep(
  { ownerId, part }: JournalOwner,
  { key, seq, token }: { readonly key: string; readonly seq: number; readonly token: number },
): Statement {
  return sql`
    select key from ${journal}
    where owner_id = ${ownerId} and part = ${part} and key = ${key}
      and seq = ${seq} and token = ${token}`;
}
