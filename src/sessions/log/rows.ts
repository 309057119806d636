import type { Entry } from "../../protocol/message.ts";
import type { Row } from "../../store/database.ts";
import type { Value } from "../../store/sql.ts";
import { type Header, stateOf } from "../conversation/header.ts";
import type { Head, LogRecord } from "./journal.ts";

export const entryColumns = {
  session_id: "text",
  seq: "integer",
  role: "text",
  author: "text",
  message_id: "text",
  client_id: "text",
  body: "text",
  at: "integer",
} as const;

/** What nobody looks for travels together as `body`, which costs less than a column each. */
export function fromEntry(entry: LogRecord["entries"][number]): Value[] {
  const { sessionId, seq, role, author, messageId, clientId, atMs } = entry;
  return [sessionId, seq, role, author, messageId, clientId, bodyOf(entry), atMs];
}

/** The columns that nearly every entry leaves at their defaults. */
export const rareColumns = { kind: "text", replaces: "integer" } as const;

export function rareOf({ kind, replaces = null }: { kind: string; replaces?: number | null }) {
  return [kind, replaces];
}

function bodyOf(entry: Entry): string {
  const { epoch, upToSeq, outcome, error, tokens, parts, metadata } = entry;
  const { results, throughSeq, stop } = entry;
  return JSON.stringify({
    epoch,
    upToSeq,
    outcome,
    error,
    tokens,
    parts,
    metadata,
    results,
    throughSeq,
    stop,
  });
}

export function toEntry(row: Row): Entry {
  const replaces = row["replaces"];
  return {
    seq: Number(row["seq"]),
    kind: row["kind"],
    role: row["role"],
    author: row["author"],
    messageId: row["message_id"],
    ...(replaces !== null && { replaces: Number(replaces) }),
    ...(JSON.parse(row["body"]) as Pick<Entry, "tokens" | "parts">),
    atMs: Number(row["at"]),
  };
}

export const headerColumns = {
  session_id: "text",
  tenant: "text",
  status: "text",
  state: "text",
  agent: "text",
  last_seq: "integer",
  header: "text",
  created_at: "integer",
  active_at: "integer",
} as const;

export function fromHeader(header: Header): Value[] {
  const { sessionId, tenant, status, agents, lastSeq, createdAtMs, activeAtMs } = header;
  const { state } = stateOf(header);
  const text = JSON.stringify(header);
  const agent = agents[0] ?? null;
  return [sessionId, tenant, status, state, agent, lastSeq, text, createdAtMs, activeAtMs];
}

export function toHeader(row: Row): Header {
  return JSON.parse(row["header"]) as Header;
}

export function toHead(row: Row): Head {
  return {
    logId: Number(row["log_id"]),
    incarnation: row["incarnation"],
    term: Number(row["term"]),
    owner: row["owner"],
    host: row["host"],
    offset: Number(row["log_offset"]),
    recordId: row["record_id"],
    beat: Number(row["beat"]),
  };
}
