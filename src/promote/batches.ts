import crypto from "node:crypto";
import type { Database } from "../store/database.ts";
import { readRows, readSizes } from "./sql.ts";
import { type CopiedRow, type CopiedTable, rowKey, placeRows, type RowKey } from "./tables.ts";

/** How much of a table is read, sent and compared at once: what is in memory at a time, twice over. */
export const batchLimits = { rows: 1_000, bytes: 4 * 1024 * 1024 } as const;

/** Rows of a table as the target has them, in the order of their keys. */
export type Batch = {
  readonly rows: readonly CopiedRow[];
  /** The key before the first row; undefined for the first batch. */
  readonly after: RowKey | undefined;
  /** The key of the last row. */
  readonly last: RowKey;
};

/** The rows of a table after a key, batch by batch. The next batch is read while the caller has one. */
export async function* readBatches(
  source: Pick<Database, "read">,
  of: CopiedTable,
  { after, logs }: { after: RowKey | undefined; logs: number },
): AsyncGenerator<Batch> {
  let next: Promise<Batch | undefined> | undefined = readBatch(source, of, { after, logs });
  try {
    for (let batch = await next; batch; batch = await next) {
      // All logs are one batch, since each of the target's is made of one of the source's.
      next =
        of.name === "session_log"
          ? Promise.resolve(undefined)
          : readBatch(source, of, { after: batch.last, logs });
      // It is awaited later, or never.
      next.catch(() => {});
      yield batch;
    }
  } finally {
    await next?.catch(() => {});
  }
}

async function readBatch(
  source: Pick<Database, "read">,
  of: CopiedTable,
  { after, logs }: { after: RowKey | undefined; logs: number },
): Promise<Batch | undefined> {
  const isWhole = of.name === "session_log";
  if (isWhole && after) return undefined;
  const end = isWhole ? undefined : await endOfBatch(source, of, after);
  if (!isWhole && !end) return undefined;
  const found = await source.read(readRows(of, { after, last: end }));
  if (found.length === 0) return undefined;
  const read = found.map((row) => of.columns.map(({ name }) => row[name] as string | null));
  const rows = placeRows(of, read, logs);
  return { rows, after, last: rowKey(of, rows.at(-1)!) };
}

/** The key of the last row that fits. */
async function endOfBatch(
  source: Pick<Database, "read">,
  of: CopiedTable,
  after: RowKey | undefined,
): Promise<RowKey | undefined> {
  const sizes = await source.read(readSizes(of, { after }, batchLimits.rows));
  let bytes = 0;
  const tooMuch = sizes.findIndex((row, at) => {
    bytes += Number(row["bytes"]);
    return at > 0 && bytes > batchLimits.bytes;
  });
  const last = tooMuch < 0 ? sizes.at(-1) : sizes[tooMuch - 1];
  return last && of.key.map(({ name }) => last[name] as string);
}

/** The hash that `digestRange` computes of the same rows in the target. */
export function digestOf(rows: readonly CopiedRow[]): string {
  const hashes = rows.map((row) => {
    const text = row
      .map((value) => (value === null ? "-" : `${Buffer.byteLength(value)}:${value}`))
      .join("");
    return crypto.hash("sha256", text, "buffer");
  });
  return crypto.hash("sha256", Buffer.concat(hashes), "hex");
}
