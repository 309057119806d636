/** Every change of heads, entries and sessions as it is committed, by whichever process. */
import { toHead } from "../../../src/sessions/log/sql/heads.ts";
import { toEntry, toHeader } from "../../../src/sessions/log/sql/reading.ts";
import type { Head } from "../../../src/sessions/log/journal.ts";
import type { Header } from "../../../src/sessions/conversation/header.ts";
import type { Entry } from "../../../src/protocol/message.ts";
import type { Row } from "../../../src/store/database.ts";
import type { Noted as Written } from "../audit.ts";
import type { StepRow } from "./ledger.ts";

/** How a row stood before and after, undefined where it wasn't there. */
export type Noted =
  | {
      readonly what: "step";
      readonly before: StepRow | undefined;
      readonly after: StepRow | undefined;
    }
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

const kinds = {
  session_log: "head",
  message: "entry",
  session: "session",
  step_journal: "step",
} as const;

/** What a commit did to sessions and their logs. */
export function saidOf(written: readonly Written[]): Noted[] {
  return written.flatMap(({ table, before, after }) => {
    const what = kinds[table as keyof typeof kinds];
    if (what === undefined) return [];
    const read = readers[what] as (row: Row) => unknown;
    return [{ what, before: before && read(before), after: after && read(after) } as Noted];
  });
}

const readers = {
  head: toHead,
  step: (row: Row): StepRow => ({
    sessionId: row["owner_id"],
    epoch: Number(row["part"]),
    key: row["key"],
    seq: Number(row["seq"]),
    attempt: Number(row["token"]),
    kind: row["kind"],
    value: row["value"],
  }),
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
