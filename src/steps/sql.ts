import type { Row } from "../store/database.ts";
import { columnBytes } from "../store/page.ts";
import { now, sql, type Statement, table } from "../store/sql.ts";
import { maxReadTogetherBytes, type StoredStep } from "./model.ts";

const journal = table("step_journal");

/** Whose journal: a task has one, whose part is the empty text. */
export type JournalOwner = { readonly ownerId: string; readonly part: string };

/** All rows of a journal, in the order in which they were stored, without large values. */
export function readSteps({ ownerId, part }: JournalOwner): Statement {
  return sql`
    select key, seq, kind, input_hash, ${now} - at as age_ms, ${columnBytes(sql`value`)} as bytes,
      case when ${columnBytes(sql`value`)} <= ${maxReadTogetherBytes} then value end as value
    from ${journal} where owner_id = ${ownerId} and part = ${part} order by seq`;
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
