import { hasCode } from "../base/errors.ts";
import { parseStored } from "../store/codec/codec.ts";
import type { Database, Row } from "../store/database.ts";
import { approvalsOf } from "./conversation/approvals.ts";
import type { Header, PendingApproval } from "./conversation/header.ts";
import { type ApprovalCursor, sessionsAwaiting } from "./sql.ts";

/** A session with calls that wait for a person. */
export type AwaitingSession = {
  readonly sessionId: string;
  readonly tenant: string;
  readonly agent: string | null;
  /** Since when the first of them has waited. */
  readonly sinceMs: number;
  /** When the first of them ends by itself; null if none does. */
  readonly untilMs: number | null;
  readonly calls: readonly PendingApproval[];
};

/** The next sessions that wait for a person, in the order of their positions. */
export async function readSessionsAwaiting(
  database: Pick<Database, "read">,
  after: ApprovalCursor,
  page: { tenant: string | undefined; count: number },
): Promise<AwaitingSession[]> {
  const rows = await database.read(sessionsAwaiting(after, page), { cold: true });
  return rows.map((row) => ({
    sessionId: row["session_id"],
    tenant: row["tenant"],
    agent: row["agent"],
    sinceMs: Number(row["approval_since"]),
    untilMs: row["approval_until"] === null ? null : Number(row["approval_until"]),
    calls: callsOf(row),
  }));
}

/** What was written by a key that is missing fails where it is asked for, and no list. */
function callsOf(row: Row): readonly PendingApproval[] {
  try {
    return approvalsOf(parseStored(row["header"]) as Header);
  } catch (error) {
    if (hasCode(error, "codec_failed") || error instanceof SyntaxError) return [];
    throw error;
  }
}
