/**
 * Notes every change of heads, entries and sessions as it is committed, whoever wrote it and however, by
 * triggers in the simulated store.
 */
import { toEntry, toHead, toHeader } from "../../../src/session/journal/rows.ts";
import type { Head } from "../../../src/session/journal/journal.ts";
import type { Header } from "../../../src/session/header.ts";
import type { Entry } from "../../../src/protocol/message.ts";
import type { Database, Row } from "../../../src/store/database.ts";
import { sql, type Statement, table } from "../../../src/store/sql.ts";

/** How a row stood before and after, undefined where it wasn't there. */
export type Noted =
  | { readonly what: "head"; readonly before: Head | undefined; readonly after: Head | undefined }
  | {
      readonly what: "entry";
      readonly before: StoredEntry | undefined;
      readonly after: StoredEntry | undefined;
    }
  | {
      readonly what: "session";
      readonly before: StoredHeader | undefined;
      readonly after: StoredHeader | undefined;
    };

export type StoredEntry = {
  readonly sessionId: string;
  readonly clientId: string | null;
  readonly entry: Entry;
};
export type StoredHeader = {
  readonly sessionId: string;
  readonly logId: number;
  readonly offset: number;
  readonly header: Header;
  readonly metadata: string | null;
};

const columns = {
  head: ["log_id", "incarnation", "term", "owner", "host", "log_offset", "record_id", "beat"],
  entry: [
    "session_id",
    "seq",
    "kind",
    "role",
    "author",
    "message_id",
    "client_id",
    "replaces",
    "body",
    "at",
  ],
  session: ["session_id", "log_id", "last_offset", "header", "metadata"],
} as const;

const tables = { head: table("log_head"), entry: table("message"), session: table("session") };

export function auditStatements(): Statement[] {
  const all: Statement[] = [
    text(
      "create table if not exists sim_said (n integer primary key, what text, before text, after text)",
    ),
  ];
  for (const what of ["head", "entry", "session"] as const) {
    const row = (prefix: string) =>
      `json_object(${columns[what].map((name) => `'${name}', ${prefix}.${name}`).join()})`;
    const [old, fresh] = [row("old"), row("new")];
    const values = { insert: ["null", fresh], update: [old, fresh], delete: [old, "null"] };
    for (const [when, [before, after]] of Object.entries(values)) {
      const body = `insert into sim_said (what, before, after) values ('${what}', ${before}, ${after})`;
      all.push(
        sql`${text(`create trigger if not exists sim_${what}_${when} after ${when} on `)}${tables[what]}${text(
          ` begin ${body}; end`,
        )}`,
      );
    }
  }
  return all;
}

const text = (words: string): Statement => sql([words] as unknown as TemplateStringsArray);

const readAll = sql`select what, before, after from sim_said order by n`;
const forgetAll = [sql`delete from sim_said`];

/** What was committed since the last look. */
export async function takeNoted(database: Database): Promise<Noted[]> {
  const rows = await database.read(readAll);
  if (rows.length > 0) await database.write(forgetAll);
  return rows.map((row) => {
    const what = row["what"] as Noted["what"];
    const read = readers[what];
    const of = (found: string | null) => (found === null ? undefined : read(JSON.parse(found)));
    return { what, before: of(row["before"]), after: of(row["after"]) } as Noted;
  });
}

const readers = {
  head: toHead,
  entry: (row: Row): StoredEntry => ({
    sessionId: row["session_id"],
    clientId: row["client_id"],
    entry: toEntry(row),
  }),
  session: (row: Row): StoredHeader => ({
    sessionId: row["session_id"],
    logId: Number(row["log_id"]),
    offset: Number(row["last_offset"]),
    header: toHeader(row),
    metadata: row["metadata"],
  }),
};
