import type { CallerTransaction, Database, Row, WriteOptions } from "../database.ts";
import { encodeContent, encodingOnce } from "../sql.ts";
import { isEncoded, type StoredText } from "./codec.ts";

/** The columns that hold what users put in, under the names that queries return them by. */
const contentColumns = [
  "payload",
  "state",
  "intent",
  "waiting",
  "progress",
  "result",
  "error",
  "set_aside",
  "detail",
  "value",
  "header",
  "metadata",
  "body",
  "secrets",
] as const;

/** The same database with content encoded on its way in, and decoded on its way out. */
export function withCodec(database: Database, text: StoredText): Database {
  const decodeAll = (tables: Row[][]): Row[][] => tables.map((rows) => decodeRows(rows, text));
  const encoded = (options: WriteOptions): WriteOptions => {
    if (!options.payloads) return options;
    const payloads = [...options.payloads].map(
      ([channel, payload]) => [channel, payload && text.encode(payload)] as const,
    );
    return { ...options, payloads: new Map(payloads) };
  };
  return {
    ...database,
    encodesContent: true,
    async read(statement, options) {
      return decodeRows(await database.read(encodeContent(statement, text.encode), options), text);
    },
    async write(statements, options = {}) {
      const encode = encodingOnce(text.encode);
      const changes = statements.map((each) => encodeContent(each, encode));
      return decodeAll(await database.write(changes, encoded(options)));
    },
    subscribe: (listener, channel) =>
      database.subscribe(
        (whose, payload) => listener(whose, payload && text.decode(payload)),
        channel,
      ),
    within: (handle) => transactionWithCodec(database.within(handle), text),
  };
}

/** The same of a transaction of the caller's. */
export function transactionWithCodec(
  transaction: CallerTransaction,
  text: StoredText,
): CallerTransaction {
  return {
    async write(statements, options) {
      const encode = encodingOnce(text.encode);
      const changes = statements.map((each) => encodeContent(each, encode));
      const tables = await transaction.write(changes, options);
      return tables.map((rows) => decodeRows(rows, text));
    },
  };
}

function decodeRows(rows: Row[], text: StoredText): Row[] {
  const [first] = rows;
  if (!first) return rows;
  const names = contentColumns.filter((name) => name in first);
  if (names.length === 0) return rows;
  for (const row of rows as Record<string, unknown>[]) {
    for (const name of names) {
      const stored = row[name];
      // In place: rows were made for this answer alone, and a copy takes as long as the decoding.
      if (typeof stored === "string" && isEncoded(stored)) row[name] = text.decode(stored);
    }
  }
  return rows;
}
