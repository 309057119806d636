import { createHash } from "node:crypto";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { openReadOnly } from "../../src/store/sqlite/inspect.ts";
import { type CopiedTable, describeTables } from "../../src/promote/tables.ts";

/** How many rows of a table there are, and a sum over their hashes, which knows no order. */
export type TableDigest = { readonly rows: number; readonly sum: string };
export type StoreDigest = Readonly<Record<string, TableDigest>>;

const fetched = 2_000;
/** What a promotion changes by intention: sessions are spread over more logs, which no pod owns yet. */
const replaced = new Set(["session.log_id"]);
const remade = new Set(["session_log"]);

/** The tables that a promotion moves, without what it changes. */
export async function comparedTables(path: string): Promise<readonly CopiedTable[]> {
  const source = openReadOnly(path);
  try {
    const tables = await describeTables(source);
    return tables
      .filter(({ name }) => !remade.has(name))
      .map((of) => ({
        ...of,
        columns: of.columns.filter((column) => !replaced.has(`${of.name}.${column.name}`)),
      }));
  } finally {
    await source.close();
  }
}

export function digestFile(path: string, tables: readonly CopiedTable[]): StoreDigest {
  const database = new DatabaseSync(path, { readOnly: true });
  try {
    return Object.fromEntries(
      tables.map((of) => {
        const sum = createSum();
        const all = database.prepare(`select ${texts(of)} from flotilla_${of.name}`).iterate();
        for (const row of all) sum.add(Object.values(row) as (string | null)[]);
        return [of.name, sum.end()];
      }),
    );
  } finally {
    database.close();
  }
}

export async function digestPostgres(
  url: string,
  tables: readonly CopiedTable[],
): Promise<StoreDigest> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    const digests: [string, TableDigest][] = [];
    for (const of of tables) {
      const sum = createSum();
      await client.query("begin");
      await client.query(
        `declare every no scroll cursor for select ${texts(of)} from flotilla.${of.name}`,
      );
      for (;;) {
        const text = `fetch ${fetched} from every`;
        const { rows } = await client.query<(string | null)[]>({ text, rowMode: "array" });
        for (const row of rows) sum.add(row);
        if (rows.length < fetched) break;
      }
      await client.query("commit");
      digests.push([of.name, sum.end()]);
    }
    return Object.fromEntries(digests);
  } finally {
    await client.end();
  }
}

function texts({ columns }: CopiedTable): string {
  return columns.map(({ name }) => `cast("${name}" as text) as "${name}"`).join(", ");
}

function createSum() {
  let rows = 0;
  const words = new BigUint64Array(4);
  return {
    add(row: readonly (string | null)[]) {
      rows++;
      const hash = createHash("sha256").update(JSON.stringify(row)).digest();
      for (let at = 0; at < words.length; at++) {
        words[at] = BigInt.asUintN(64, words[at]! + hash.readBigUInt64LE(8 * at));
      }
    },
    end: (): TableDigest => ({ rows, sum: [...words].map((word) => word.toString(16)).join("-") }),
  };
}
