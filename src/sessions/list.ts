import { type Clock, systemClock } from "../base/clock.ts";
import { FlotillaError, hasCode } from "../base/errors.ts";
import type { Json } from "../base/json.ts";
import { checkChoice, checkNumber, checkOptions, isStorable } from "../base/options.ts";
import { fitPage, maxPageBytes } from "../base/page.ts";
import type { Entry } from "../protocol/message.ts";
import { parseStored } from "../store/codec/codec.ts";
import type { Database, Row } from "../store/database.ts";
import { checkJsonValues } from "../store/json-values.ts";
import { cursorsOf, walkBounds } from "../store/walk.ts";
import { type Header, sessionStateOf } from "./conversation/header.ts";
import type { Head, Reads } from "./log/journal.ts";
import {
  busySessionsBelow,
  countSessions,
  countSessionsOf,
  type SessionFilter,
  type SessionCursor,
  readInboxRows,
  readLogOf,
  readOwner,
  readSessions,
  sessionsBelow,
  walkSessionsBelow,
} from "./sql.ts";
import type { InboxItem, ListSessionsAmong, SessionPage, SessionView } from "./service.ts";
import { sessionNotFound } from "./validate.ts";

// A filtered page scans this many sessions at a time, within the bounds of all lists. If few sessions match,
// the page is short and has a cursor, instead of taking as long as there are sessions.
const windowSessions = 500;
/** All sessions of a user with more than these aren't read for a page: those of the tenant are walked. */
export const maxOfUser = 2_000;
const listOptions = [
  "user",
  "agent",
  "status",
  "state",
  "metadata",
  "only",
  "cursor",
  "limit",
] as const;
const listRange = { min: 1, max: 1_000 };
// The last code point, so that no id sorts after it.
const firstCursor: SessionCursor = { activeAtMs: Number.MAX_SAFE_INTEGER, sessionId: "\u{10ffff}" };
const expectedCursor = "the `next` of an earlier page";
const exportPage = { limit: 200, maxBytes: maxPageBytes };
/** For a user with more sessions than this, only the newest are considered. */
export const maxConsidered = 5_000;
/** Unread entries are counted up to this, since more makes no difference to a user. */
export const maxUnread = 1_000;

/** One session; undefined if the tenant has none of that id, or it was deleted. */
export async function readSession(
  database: Database,
  tenant: string,
  sessionId: string,
): Promise<SessionView | undefined> {
  const [row] = await database.read(readSessions(tenant, [sessionId]));
  return row && toView(row);
}

/** A journal that is ahead of the database. */
export type Ahead = Pick<Reads, "header"> & {
  /** What the database lacks yet of a session, beside what can be read of it. */
  unarchivedFacts(sessionId: string): Promise<{ readonly metadata?: string }>;
  /** How long ago it was that the database had everything; undefined while that isn't known. */
  behindMs(): number | undefined;
};

/** The same where the journal is ahead: what it has is read first, since it may reach the database meanwhile. */
export async function readSessionAhead(
  journal: Ahead,
  database: Database,
  {
    tenant,
    sessionId,
    withoutMetadata = false,
  }: { readonly tenant: string; readonly sessionId: string; readonly withoutMetadata?: boolean },
): Promise<SessionView | undefined> {
  const { metadata } = withoutMetadata ? {} : await journal.unarchivedFacts(sessionId);
  const header = await journal.header(sessionId);
  if (!header || header.tenant !== tenant || header.status === "deleted") return undefined;
  if (withoutMetadata) return viewOf(header, null);
  if (metadata !== undefined) return viewOf(header, JSON.parse(metadata) as Json);
  if (header.metadataVersion === 0) return viewOf(header, null);
  const stored = await readSession(database, tenant, sessionId);
  return viewOf(header, stored?.metadata ?? null);
}

/** The pod that owns the log of a session. */
export type SessionOwner = {
  readonly logId: number;
  /** Grows with every new owner. */
  readonly term: number;
  /** Null while the log is free. */
  readonly podId: string | null;
};

/**
 * Undefined if the tenant has no session of that id, or it was deleted. Where logs aren't in the database,
 * `heads` reads who owns them.
 */
export async function readSessionOwner(
  database: Pick<Database, "read">,
  tenant: string,
  sessionId: string,
  heads?: () => Promise<readonly Head[]>,
): Promise<SessionOwner | undefined> {
  if (heads) {
    const [found] = await database.read(readLogOf(tenant, sessionId));
    const head = found && (await heads())[Number(found["log_id"])];
    return head && { logId: head.logId, term: head.term, podId: head.owner };
  }
  const [row] = await database.read(readOwner(tenant, sessionId));
  if (!row) return undefined;
  return { logId: Number(row["log_id"]), term: Number(row["term"]), podId: row["owner"] };
}

/** `busy`: sessions with work in progress, such as an answer. */
export type SessionCounts = { readonly all: number; readonly busy: number };

/** Counts the sessions of all tenants, up to 10,000. */
export async function readSessionCounts(database: Database): Promise<SessionCounts> {
  const [row] = await database.read(countSessions());
  return { all: Number(row!["total"]), busy: Number(row!["busy"]) };
}

/**
 * A page of a tenant's sessions, the most recently active first. A session that becomes active between two
 * pages moves to the front, and may be missed by this listing.
 */
export async function listSessions(
  database: Database,
  tenant: string,
  options: ListSessionsAmong = {},
  clock: Pick<Clock, "monotonic"> = systemClock,
): Promise<SessionPage> {
  const { cursor, limit = 50, ...filter } = checkedList(database, options);
  if (filter.only?.length === 0) return { sessions: [], next: null, lookedBackTo: null };
  const { only: _, ...named } = filter;
  const { metadata } = named;
  const cursors = cursorsOf("sessions", {
    ...named,
    ...(metadata && { metadata: Object.entries(metadata) }),
    tenant,
  });
  const isBusy = !filter.only && filter.state !== undefined && filter.state !== "idle";
  const isFiltered = [filter.agent, filter.status, filter.state, metadata].some(
    (each) => each !== undefined,
  );
  const isMany = !isBusy && !filter.only && (await hasMany(database, tenant, filter.user));
  // One more than requested, to see whether there is another page.
  const count = (isFiltered && !isBusy) || isMany ? Math.max(windowSessions, limit + 1) : limit + 1;
  const below = isBusy ? busySessionsBelow : isMany ? walkSessionsBelow : sessionsBelow;
  const found = new Map<string, SessionCursor>();
  let bytes = 0;
  let isFull = false;
  let before = cursor === undefined ? firstCursor : placeOf(cursors.decode(cursor));
  let hasMore = true;
  let walked = 0;
  // From the first answer on, as in other lists.
  let startedMs: number | undefined;
  const isLate = () => startedMs !== undefined && clock.monotonic() - startedMs >= walkBounds.ms;
  while (hasMore && !isFull && walked < walkBounds.entries && !isLate()) {
    const window = await database.read(below(tenant, filter, { before, count }));
    walked += window.length;
    startedMs ??= clock.monotonic();
    for (const row of window) {
      if (row["bytes"] === null) continue;
      bytes += Number(row["bytes"]);
      isFull = found.size >= limit || (bytes > maxPageBytes && found.size > 0);
      if (isFull) break;
      found.set(row["session_id"], cursorOfRow(row));
    }
    hasMore = window.length === count;
    if (window.length > 0) before = cursorOfRow(window.at(-1)!);
  }
  // Reads only the sessions that fit on the page and still match the filter.
  const ids = [...found.keys()];
  const rows = ids.length === 0 ? [] : await database.read(readSessions(tenant, ids, filter));
  const byId = new Map(rows.map((row) => [row["session_id"] as string, row]));
  const views = readable(
    ids.flatMap((sessionId) => byId.get(sessionId) ?? []),
    toView,
  );
  const page = fitPage(views, isFull);
  const last = page.items.length < views.length ? page.items.at(-1)!.sessionId : ids.at(-1)!;
  const stoppedAt = page.hasMore ? found.get(last)! : hasMore ? before : undefined;
  if (!stoppedAt) return { sessions: page.items, next: null, lookedBackTo: null };
  const { activeAtMs, sessionId } = stoppedAt;
  return {
    sessions: page.items,
    next: cursors.encode(`${activeAtMs}.${sessionId}`),
    lookedBackTo: activeAtMs,
  };
}

/** Whether a user has more sessions than are worth reading all to show the first of them. */
async function hasMany(
  database: Database,
  tenant: string,
  user: string | undefined,
): Promise<boolean> {
  if (user === undefined) return false;
  const [row] = await database.read(countSessionsOf(tenant, user, maxOfUser + 1));
  return Number(row!["total"]) > maxOfUser;
}

export type ReadInboxOptions = {
  /** Default 100, at most 1,000. */
  limit?: number;
  /** Only these sessions, as far as they are the user's. */
  only?: readonly string[];
};

/** A user's sessions with unread counts, the most recently active first. */
export async function readInbox(
  database: Database,
  tenant: string,
  user: string,
  { limit = 100, only }: ReadInboxOptions = {},
): Promise<InboxItem[]> {
  checkNumber("limit", limit, listRange);
  if (only?.length === 0) return [];
  const query = { tenant, user, limit, maxConsidered, maxCounted: maxUnread };
  const found = await database.read(readInboxRows({ ...query, ...(only && { only }) }));
  return readable(found, toItem);
}

export type ExportPage = {
  /** The session when the export began; the same on every page. */
  readonly session: SessionView;
  readonly entries: readonly Entry[];
};

/**
 * All entries that a session had when the export began, page by page, with at least one page. Throws if
 * the session is deleted meanwhile, because the export would be incomplete.
 */
export async function* exportSession(
  { database, journal }: { database: Database; journal: Pick<Reads, "entries"> },
  tenant: string,
  sessionId: string,
): AsyncGenerator<ExportPage, void, undefined> {
  const session = await readSession(database, tenant, sessionId);
  if (!session) throw sessionNotFound(sessionId);
  let after = 0;
  do {
    const page = await journal.entries(sessionId, { after, ...exportPage });
    const entries = page.filter(({ seq }) => seq <= session.lastSeq);
    const reached = entries.at(-1)?.seq ?? 0;
    if (reached <= after && after < session.lastSeq) throw sessionNotFound(sessionId);
    yield { session, entries };
    after = reached;
  } while (after < session.lastSeq);
}

function cursorOfRow(row: Row): SessionCursor {
  return { activeAtMs: Number(row["active_at"]), sessionId: row["session_id"] };
}

function placeOf(place: string): SessionCursor {
  const [, activeAtMs, sessionId] = /^(\d{1,15})\.(.+)$/s.exec(place) ?? [];
  if (activeAtMs !== undefined && sessionId !== undefined) {
    return { activeAtMs: Number(activeAtMs), sessionId };
  }
  throw new FlotillaError("invalid_option", `cursor must be ${expectedCursor}`);
}

function checkedList(
  { encodesContent }: Pick<Database, "encodesContent">,
  options: ListSessionsAmong,
): SessionFilter & { cursor?: string; limit?: number } {
  checkOptions("sessions.list", options, listOptions);
  const { status, state, metadata, limit, cursor } = options;
  if (status !== undefined) checkChoice("status", status, ["active", "archived"]);
  if (state !== undefined)
    checkChoice("state", state, ["idle", "catching_up", "waiting", "compacting"]);
  if (limit !== undefined) checkNumber("limit", limit, listRange);
  for (const name of ["user", "agent"] as const) checkText(name, options[name]);
  checkText("cursor", cursor, expectedCursor);
  if (metadata === undefined) return options;
  if (encodesContent) {
    throw new FlotillaError(
      "unsupported",
      "sessions can't be found by values of their metadata in a store with a codec, which can't read them",
    );
  }
  return { ...options, metadata: checkJsonValues("metadata", metadata) };
}

function checkText(what: string, value: unknown, expected = "text of 1 to 500 characters"): void {
  if (value === undefined) return;
  const fits = typeof value === "string" && value !== "" && value.length <= 500;
  if (fits && isStorable(value)) return;
  throw new FlotillaError("invalid_option", `${what} must be ${expected}`);
}

/** What was written by a key that is missing fails where it is asked for, and no list. */
function readable<View>(rows: readonly Row[], toOne: (row: Row) => View): View[] {
  return rows.flatMap((row) => {
    try {
      return [toOne(row)];
    } catch (error) {
      if (hasCode(error, "codec_failed") || error instanceof SyntaxError) return [];
      throw error;
    }
  });
}

function toView(row: Row): SessionView {
  const header = parseStored(row["header"]) as Header;
  return viewOf(header, row["metadata"] === null ? null : (parseStored(row["metadata"]) as Json));
}

/** The same of a fork; undefined if it is deleted. */
export function toForkView(row: Row): SessionView | undefined {
  const { status } = parseStored(row["header"]) as Header;
  return status === "deleted" ? undefined : toView(row);
}

function viewOf(header: Header, metadata: Json): SessionView {
  const { sessionId, tenant, agents, users, status, lastSeq, tokens, needsCompaction } = header;
  const { metadataVersion, preview, previewAuthor, createdAtMs, activeAtMs, parent } = header;
  return {
    sessionId,
    tenant,
    agents,
    users,
    status: status === "archived" ? "archived" : "active",
    state: sessionStateOf(header),
    ...(parent && { parent }),
    lastSeq,
    tokens,
    needsCompaction,
    metadata,
    metadataVersion,
    preview,
    previewAuthor,
    createdAtMs,
    activeAtMs,
  };
}

function toItem(row: Row): InboxItem {
  const header = parseStored(row["header"]) as Header;
  const { sessionId, agents, status, lastSeq, preview, previewAuthor, activeAtMs } = header;
  return {
    sessionId,
    agents,
    status: status === "archived" ? "archived" : "active",
    state: sessionStateOf(header).state,
    lastSeq,
    readSeq: Number(row["read_seq"]),
    unread: Number(row["unread"]),
    preview,
    previewAuthor,
    activeAtMs,
  };
}
