import { FlotillaError } from "../base/errors.ts";
import type { Row } from "./database.ts";
import { literal, now, sql, type Statement, table } from "./sql.ts";

/**
 * What a store says that isn't to be used: its data is moved to another one, or isn't all there yet. It is
 * stored as a step of the schema that no release knows and all would need, so that a release from before
 * promotions doesn't start there either.
 */
export type PromotionMark = {
  readonly promotionId: string;
  /** The other store, without secrets. */
  readonly other: string;
  /** `moving` and `moved` are of the store that the data comes from, `filling` is of the one that it goes to. */
  readonly state: "moving" | "moved" | "filling";
};

/** Higher than the number of any step that will ever be. */
export const markId = 1_000_000_000;

const states = ["moving", "moved", "filling"];

/** Marks a store, or changes its mark, if a condition holds. */
export function markStore(mark: PromotionMark, when: Statement = sql`true`): Statement {
  return sql`
    insert into ${table("migration")} (id, name, needs, applied_at)
    select ${literal(markId)}, cast(${JSON.stringify(mark)} as text), ${literal(markId)}, ${now}
    where ${when}
    on conflict (id) do update set name = excluded.name, applied_at = excluded.applied_at`;
}

/** Takes the mark away; only this one, if it is given. */
export function unmarkStore(mark?: PromotionMark): Statement {
  const marked = sql`delete from ${table("migration")} where id = ${markId}`;
  return mark ? sql`${marked} and name = ${JSON.stringify(mark)}` : marked;
}

/** True while a store has no mark. */
export const isUnmarked = sql`
  not exists (select 1 from ${table("migration")} where id = ${literal(markId)})`;

/** True while a store has this mark. */
export function isMarked(mark: PromotionMark): Statement {
  return sql`exists (
    select 1 from ${table("migration")}
    where id = ${literal(markId)} and name = ${JSON.stringify(mark)})`;
}

/** The mark in the last row of the steps of a schema, if it is one. */
export function markIn(row: Row | undefined): PromotionMark | undefined {
  if (Number(row?.["id"]) !== markId) return undefined;
  try {
    const mark = JSON.parse(row!["name"] as string) as PromotionMark;
    if (states.includes(mark.state)) return mark;
  } catch {
    // Below.
  }
  throw new FlotillaError(
    "store_newer",
    "the store was promoted by a newer release of flotilla: update flotilla to see where its data is",
  );
}

/** Throws if a store isn't to be used, with where to go instead. */
export function refuseMarked(mark: PromotionMark | undefined): void {
  if (!mark) return;
  const { state, other } = mark;
  if (state === "moved") {
    throw new FlotillaError(
      "store_read_only",
      `the data of this store was moved to ${other} by \`flotilla promote\`: start with that store`,
      { details: { state, other } },
    );
  }
  throw new FlotillaError(
    "store_unavailable",
    state === "moving"
      ? `the data of this store is being moved to ${other}, which isn't finished: run the same \`flotilla promote\` again, or give it up with its --undo`
      : `this store is being filled from ${other}, and isn't whole yet: run the same \`flotilla promote\` again, and start pods when it is done, or empty it with its --undo`,
    { details: { state, other } },
  );
}
