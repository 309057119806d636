import { FlotillaError, hasCode } from "../base/errors.ts";
import type { Database } from "../store/database.ts";
import { sqlState } from "../store/postgres/errors.ts";
import { type Batch, digestOf, readBatches } from "./batches.ts";
import { type CopyProgress, digestRange, insertCopied } from "./sql.ts";
import { unstorable } from "./source.ts";
import { type CopiedRow, type CopiedTable, rowKey } from "./tables.ts";
import type { HeldTarget } from "./target.ts";

export type CopyParts = {
  readonly source: Pick<Database, "read">;
  readonly target: HeldTarget;
  readonly tables: readonly CopiedTable[];
  readonly holder: string;
  /** How many rows of a table are copied or compared by now. */
  readonly onRows: (of: CopiedTable, rows: number) => void;
};

/**
 * Copies what isn't copied yet, batch by batch. A batch and the place after it are one transaction. Returns
 * what the target has then.
 */
export async function copyTables(parts: CopyParts): Promise<CopyProgress> {
  const { source, target, tables, holder, onRows } = parts;
  const { logs } = target.promotion;
  let progress: CopyProgress = target.promotion.progress;
  for (const of of tables) {
    const known = progress[of.name];
    if (known?.done) {
      onRows(of, known.rows);
      continue;
    }
    let rows = known?.after ? known.rows : 0;
    for await (const batch of readBatches(source, of, { after: known?.after, logs })) {
      rows += batch.rows.length;
      const before = progress;
      progress = { ...progress, [of.name]: { after: batch.last, rows } };
      await insertBatch(of, batch.rows, { target, holder, progress, before });
      onRows(of, rows);
    }
    progress = { ...progress, [of.name]: { rows, done: true } };
  }
  return progress;
}

type Inserted = Pick<CopyParts, "target" | "holder"> & {
  readonly progress: CopyProgress;
  /** How far the copy is without these rows. */
  readonly before: CopyProgress;
};

async function insertBatch(
  of: CopiedTable,
  rows: readonly CopiedRow[],
  given: Inserted,
): Promise<void> {
  const { target, holder, progress, before } = given;
  try {
    await target.save(progress, [insertCopied(of, rows, holder)]);
  } catch (error) {
    if (!hasCode(error, "internal", "duplicate_key", "overloaded")) throw error;
    if (rows.length === 1) throw unstorable(of, rowKey(of, rows[0]!), whyRefused(error));
    // One of them is refused: find it by halves. What is inserted on the way is inserted again later.
    const half = Math.ceil(rows.length / 2);
    // That there are some is known from now on, so that they can be taken back.
    const onTheWay = { ...given, progress: { [of.name]: { rows: 0 }, ...before } };
    await insertBatch(of, rows.slice(0, half), onTheWay);
    await insertBatch(of, rows.slice(half), onTheWay);
    throw error;
  }
}

/** The server's own words may quote the row. */
function whyRefused(error: unknown): string {
  const state = sqlState(error instanceof FlotillaError ? error.cause : error);
  if (state === "22021") return "one of its texts has a NUL";
  if (state?.startsWith("22")) return "one of its values has no place in its column";
  if (state?.startsWith("23")) return "it breaks a rule of the table";
  return `the server answered ${state ?? "with an error"}`;
}

/**
 * Reads both stores again and compares every table: how many rows there are, and a hash over them. Ranges
 * are those of the batches, so that a difference is found where it is.
 */
export async function compareTables(
  parts: CopyParts & {
    readonly database: Pick<Database, "read">;
    readonly progress: CopyProgress;
  },
): Promise<ReadonlyMap<CopiedTable, number>> {
  const { source, target, database, tables, progress, onRows } = parts;
  const { logs } = target.promotion;
  const counts = new Map<CopiedTable, number>();
  for (const of of tables) {
    let rows = 0;
    let after: Batch["after"];
    for await (const batch of readBatches(source, of, { after, logs })) {
      const { last } = batch;
      const [found] = await database.read(digestRange(of, { after, last }));
      const isEqual =
        Number(found!["count"]) === batch.rows.length && found!["digest"] === digestOf(batch.rows);
      if (!isEqual) throw differs(of, batch);
      rows += batch.rows.length;
      after = last;
      onRows(of, rows);
      await target.keep(progress);
    }
    const [rest] = await database.read(digestRange(of, { after }));
    if (Number(rest!["count"]) > 0) throw differs(of, { after });
    counts.set(of, rows);
  }
  return counts;
}

function differs(of: CopiedTable, { after }: Pick<Batch, "after">): FlotillaError {
  const from = after ? ` after the key ${JSON.stringify(after).slice(0, 200)}` : "";
  return new FlotillaError(
    "store_corrupt",
    `the table ${of.name} of the target differs from the source${from}, so that another program has written there meanwhile, or one of the stores is damaged: check both (\`flotilla doctor\`), then give it up with --undo and run \`flotilla promote\` again`,
    { details: { table: of.name } },
  );
}
