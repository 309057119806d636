import { FlotillaError } from "../base/errors.ts";
import { checkNumber, checkOptions, checkText } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import { type AwaitingSession, readSessionsAwaiting } from "../sessions/approvals.ts";
import type { PendingApproval } from "../sessions/conversation/header.ts";
import type { Database } from "../store/database.ts";
import { type AwaitingTask, readAwaiting } from "../tasks/inspect/awaiting.ts";

/** Something that waits for a person: a run or task for a signal, or calls of a session. */
export type Approval = {
  readonly what: "run" | "task" | "session";
  readonly id: string;
  readonly tenant: string;
  /** Of the flow, the task or the agent. */
  readonly name: string | null;
  readonly sinceMs: number;
  /** When the first of it ends by itself; null if it waits without a limit. */
  readonly untilMs: number | null;
  /** The signal that a run or task waits for; null for a session. */
  readonly signal: string | null;
  /** The calls of a session that wait to be approved, or for a signal. */
  readonly calls: readonly PendingApproval[];
};

export type ApprovalPage = {
  /** The longest waiting first. */
  readonly approvals: Approval[];
  readonly next: string | null;
  /**
   * False where more tasks and runs wait, for signals or for a time, than are looked at: some that wait for
   * a signal may be missing.
   */
  readonly isWhole: boolean;
};

export type ApprovalListOptions = {
  /** Only what belongs to this tenant. */
  tenant?: string;
  /** The `next` of the page before. */
  cursor?: string;
  /** 1 to 1,000. Default 50. */
  limit?: number;
};

type Place = { readonly sinceMs: number; readonly id: string };

const firstPlace: Place = { sinceMs: 0, id: "" };
const maxTenantChars = 500;

/** Lists everything that waits for a person. */
export function createApprovals({
  database,
}: {
  database: Database;
}): (options?: ApprovalListOptions) => Promise<ApprovalPage> {
  return async (options = {}) => {
    checkOptions("approvals", options, ["tenant", "cursor", "limit"]);
    const { tenant, cursor, limit = 50 } = options;
    checkNumber("limit", limit, { min: 1, max: 1_000 });
    if (tenant !== undefined) checkText("tenant", tenant, { max: maxTenantChars });
    const { sinceMs, id } = cursor === undefined ? firstPlace : placeOf(cursor);
    const page = { tenant, count: limit + 1 };
    const [{ tasks, isWhole }, sessions] = await Promise.all([
      readAwaiting(database, { sinceMs, taskId: id }, page),
      readSessionsAwaiting(database, { sinceMs, id }, page),
    ]);
    const all = [...tasks.map(ofTask), ...sessions.map(ofSession)].toSorted(byPlace);
    const fitted = fitPage(all.slice(0, limit), all.length > limit);
    const last = fitted.items.at(-1);
    return {
      approvals: fitted.items,
      next: fitted.hasMore && last ? `${last.sinceMs}.${last.id}` : null,
      isWhole,
    };
  };
}

function ofTask({ taskId: id, isRun, tenant, name, signal, sinceMs, untilMs }: AwaitingTask) {
  const what = isRun ? "run" : "task";
  return { what, id, tenant, name, sinceMs, untilMs, signal, calls: [] } satisfies Approval;
}

function ofSession({ sessionId: id, tenant, agent, sinceMs, calls }: AwaitingSession): Approval {
  const untilMs = Math.min(...calls.map((call) => call.untilMs ?? Infinity));
  return {
    what: "session",
    id,
    tenant,
    name: agent,
    sinceMs,
    untilMs: untilMs === Infinity ? null : untilMs,
    signal: null,
    calls,
  };
}

/** In the order of the store: by time, then by the bytes of ids. */
function byPlace(one: Place, other: Place): number {
  if (one.sinceMs !== other.sinceMs) return one.sinceMs - other.sinceMs;
  return Buffer.compare(Buffer.from(one.id), Buffer.from(other.id));
}

function placeOf(cursor: string): Place {
  const [, sinceMs, id] = /^(\d{1,15})\.(.+)$/s.exec(cursor) ?? [];
  if (id !== undefined) return { sinceMs: Number(sinceMs), id };
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}
