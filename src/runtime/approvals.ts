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
  /** The nearest deadline first; then those without one, the longest waiting first. */
  readonly approvals: Approval[];
  readonly next: string | null;
  /**
   * False where more tasks and runs wait for signals than are looked at: some may be missing.
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

/** A position in the order: among those with a deadline, by that, or among those without, by their waits. */
type Place = Parameters<typeof readSessionsAwaiting>[1];

const firstPlace: Place = { by: "until", atMs: 0, id: "" };
const firstWithoutDeadline: Place = { by: "since", atMs: 0, id: "" };
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
    const readFrom = async (place: Place, count: number) => {
      const page = { tenant, count };
      const [{ tasks, isWhole }, sessions] = await Promise.all([
        readAwaiting(database, { ...place, taskId: place.id }, page),
        readSessionsAwaiting(database, place, page),
      ]);
      const found = [...tasks.map(ofTask), ...sessions.map(ofSession)].toSorted(byPlace);
      return { found: found.slice(0, count), isWhole };
    };
    const from = cursor === undefined ? firstPlace : placeIn(cursor);
    const first = await readFrom(from, limit + 1);
    const left = limit + 1 - first.found.length;
    const rest =
      from.by === "until" && left > 0 ? await readFrom(firstWithoutDeadline, left) : undefined;
    const all = [...first.found, ...(rest?.found ?? [])];
    const fitted = fitPage(all.slice(0, limit), all.length > limit);
    const last = fitted.items.at(-1);
    return {
      approvals: fitted.items,
      next: fitted.hasMore && last ? cursorAt(placeOf(last)) : null,
      isWhole: first.isWhole && (rest?.isWhole ?? true),
    };
  };
}

function ofTask({ taskId: id, isRun, tenant, name, signal, sinceMs, untilMs }: AwaitingTask) {
  const what = isRun ? "run" : "task";
  return { what, id, tenant, name, sinceMs, untilMs, signal, calls: [] } satisfies Approval;
}

function ofSession(session: AwaitingSession): Approval {
  const { sessionId: id, tenant, agent: name, sinceMs, untilMs, calls } = session;
  return { what: "session", id, tenant, name, sinceMs, untilMs, signal: null, calls };
}

/** In the order of the store, of one kind of place: by time, then by the bytes of ids. */
function byPlace(one: Approval, other: Approval): number {
  const [a, b] = [placeOf(one), placeOf(other)];
  if (a.atMs !== b.atMs) return a.atMs - b.atMs;
  return Buffer.compare(Buffer.from(a.id), Buffer.from(b.id));
}

function placeOf({ id, sinceMs, untilMs }: Approval): Place {
  return untilMs === null ? { by: "since", atMs: sinceMs, id } : { by: "until", atMs: untilMs, id };
}

function cursorAt({ by, atMs, id }: Place): string {
  return `${by}.${atMs}.${id}`;
}

function placeIn(cursor: string): Place {
  const [, by, atMs, id] = /^(until|since)\.(\d{1,15})\.(.+)$/s.exec(cursor) ?? [];
  if (id !== undefined) return { by: by as Place["by"], atMs: Number(atMs), id };
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}
