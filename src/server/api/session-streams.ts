import type { Context } from "hono";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Semaphore } from "../../base/semaphore.ts";
import type { Logger } from "../../base/log.ts";
import { fitPage } from "../../base/page.ts";
import type { Entry } from "../../protocol/message.ts";
import type {
  InboxEvent,
  InboxItem,
  SessionService,
  SessionView,
  Sink,
} from "../../sessions/service.ts";
import type { Authenticator } from "../auth/authenticate.ts";
import type { Caller } from "../auth/caller.ts";
import {
  type Members,
  filterInbox,
  inboxUserOf,
  isAmongMembers,
  watchMembership,
} from "../auth/members.ts";
import { withPageSlot, route, type Route } from "../route.ts";
import type { Serializer } from "../serializer.ts";
import { frameErrorOf, encodeEvent } from "../socket/send-buffer.ts";
import { entrySchema } from "./schema.ts";
import { sessionSpecs } from "./sessions.schema.ts";
import { sessionSchema } from "./conversation/session.schema.ts";
import { type EventWriter, type EventStreams, unbuffered } from "../event-streams.ts";
import { pagedBody } from "../admission/admission.ts";
import { actingAs } from "./sessions.ts";

export type SessionStreamParts = {
  sessions: SessionService;
  members: Members;
  streams: EventStreams;
  serializer: Serializer;
  pageSemaphore: Semaphore;
  authenticator: Authenticator;
  clock: Clock;
  log: Logger;
};

/** A session and its entries, as the reader of an export may see them. */
type ExportView = { session: unknown; shown: (entry: Entry) => unknown };

type InboxCursor = Pick<InboxItem, "activeAtMs" | "sessionId">;

const exportPageEntries = 200;

/** Streamed answers: events of sessions and inboxes, and exports of whole sessions. */
export function sessionStreamRoutes(parts: SessionStreamParts): Route[] {
  const { sessions, members, streams, serializer, pageSemaphore, authenticator, clock, log } =
    parts;
  return [
    route(sessionSpecs.events).to(async ({ caller, params: { sessionId }, query, context }) => {
      await members.check(caller, sessionId, { or: "fleet:read" });
      // Answer `not_found` by the status, which can't change once events are sent.
      const { users } = await sessions.get(caller.tenant, sessionId, { withoutMetadata: true });
      const isOwn = isAmongMembers(caller, users);
      const shown = serializer.feed({ caller, isOwn });
      const { lastSeq, ...rest } = query;
      const position = { lastSeq: lastEventId(context) ?? lastSeq ?? 0, ...definedPosition(rest) };
      const body = streams.open(context, (to) => {
        const membership = watchMembership({
          members,
          clock,
          caller: () => caller,
          sessionId,
          isOwn: () => isOwn,
          onRemoved: (error) => endWithError(to, error, log),
        });
        const joined = sessions.join(caller.tenant, sessionId, position, {
          push(event) {
            if (event.type === "deleted") {
              to.write({ type: "deleted", data: JSON.stringify({ session: sessionId }) });
              to.end();
              return false;
            }
            if (event.type === "joined") {
              const data = JSON.stringify({ ...event, session: sessionId });
              return to.write({ type: "joined", data });
            }
            membership.recheck();
            const left = shown(event);
            if (left === undefined) return true;
            const id = event.type === "entries" ? event.entries.at(-1)?.seq : undefined;
            const { text: data } = encodeEvent(sessionId, left);
            return to.write({ type: event.type, ...(id !== undefined && { id }), data });
          },
          fail: (error) => endWithError(to, error, log),
          drained: to.drained,
        });
        joined.ready.catch(() => {});
        return () => {
          membership.stop();
          joined.leave();
        };
      });
      return { status: 200, body, headers: unbuffered };
    }),
    route(sessionSpecs.inbox).to(async ({ caller, query: { user, cursor } }) => {
      const inboxUser = inboxUserOf(actingAs(caller, user));
      const { sessions: items, asOf } = await snapshotOf(sessions, caller, inboxUser);
      const page = { ...inboxPage(items, cursor), ...(asOf !== undefined && { asOf }) };
      return { status: 200, body: page, isOwn: true };
    }),
    route(sessionSpecs.inboxEvents).to(({ caller, query: { user }, context }) => {
      const inboxUser = inboxUserOf(actingAs(caller, user));
      const body = streams.open(context, (to) => {
        const sink: Sink<InboxEvent> = {
          push: ({ type, ...data }) => to.write({ type, data: JSON.stringify(data) }),
          fail: (error) => endWithError(to, error, log),
          drained: to.drained,
        };
        const joined = sessions.inbox(caller.tenant, inboxUser, filterInbox(caller, sink));
        joined.ready.catch(() => {});
        return () => joined.leave();
      });
      return { status: 200, body, headers: unbuffered };
    }),
    route(sessionSpecs.exported).to(async ({ caller, params: { sessionId }, context }) => {
      await members.check(caller, sessionId, { or: "fleet:read" });
      const session = await sessions.get(caller.tenant, sessionId);
      const reader = { caller, isOwn: isAmongMembers(caller, session.users) };
      const nextPage = linesOf(sessions, session, {
        session: serializer.shown(sessionSchema, session, reader),
        shown: (entry) => serializer.shown(entrySchema, entry, reader),
      });
      const nextAllowed = () => {
        const refusal = authenticator.refusalOf(caller);
        return refusal ? Promise.reject(refusal) : nextPage();
      };
      const body = await pagedBody(
        context,
        () => withPageSlot(context, pageSemaphore, nextAllowed),
        (error) => void frameErrorOf(error, log),
      );
      return { status: 200, body };
    }),
    route(sessionSpecs.ticket).to(({ caller }) => {
      return { status: 201, body: authenticator.tickets.issue(caller) };
    }),
  ];
}

/** A page of an inbox, the most recently active session first. */
export function inboxPage(items: readonly InboxItem[], cursor?: string) {
  const after = cursor === undefined ? undefined : parseInboxCursor(cursor);
  const left = items
    .toSorted(inboxOrder)
    .filter((item) => after === undefined || inboxOrder(item, after) > 0);
  const page = fitPage(left, false);
  const last = page.items.at(-1);
  return {
    sessions: page.items.map((item) => ({ ...item, agents: [...item.agents] })),
    next: page.hasMore && last ? `${last.activeAtMs}.${last.sessionId}` : null,
  };
}

/** Returns one page of a session's export lines per call, then undefined. */
function linesOf(
  sessions: SessionService,
  session: SessionView,
  { session: shownSession, shown }: ExportView,
): () => Promise<Uint8Array | undefined> {
  const { tenant, sessionId, lastSeq } = session;
  let after: number | undefined;
  return async () => {
    const lines: object[] = after === undefined ? [{ session: shownSession }] : [];
    after ??= 0;
    // Entries added during the export aren't part of it, or it might never end.
    const limit = Math.min(exportPageEntries, lastSeq - after);
    if (limit > 0) {
      const { entries } = await sessions.entries(tenant, sessionId, { after, limit });
      after = entries.at(-1)?.seq ?? lastSeq;
      lines.push(...entries.map((entry) => ({ entry: shown(entry) })));
    }
    if (lines.length === 0) return undefined;
    return Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  };
}

function snapshotOf(
  sessions: SessionService,
  caller: Caller,
  user: string,
): Promise<Extract<InboxEvent, { type: "snapshot" }>> {
  return new Promise((resolve, reject) => {
    const sink: Sink<InboxEvent> = {
      push(event) {
        if (event.type === "snapshot") resolve(event);
        return event.type !== "snapshot";
      },
      fail: reject,
    };
    const joined = sessions.inbox(caller.tenant, user, filterInbox(caller, sink));
    joined.ready.then(() => joined.leave(), reject);
  });
}

function endWithError(to: EventWriter, error: unknown, log: Logger): void {
  to.write({ type: "error", data: JSON.stringify(frameErrorOf(error, log)) });
  to.end();
}

/** Browsers send this header when they reconnect by themselves. */
function lastEventId(context: Context): number | undefined {
  const header = context.req.header("last-event-id");
  if (header === undefined || header === "") return undefined;
  if (/^\d{1,15}$/.test(header)) return Number(header);
  throw new FlotillaError("invalid_input", "Last-Event-ID must be the id of an event: a number");
}

function inboxOrder(one: InboxCursor, other: InboxCursor): number {
  if (one.activeAtMs !== other.activeAtMs) return other.activeAtMs - one.activeAtMs;
  if (one.sessionId === other.sessionId) return 0;
  return one.sessionId < other.sessionId ? -1 : 1;
}

function parseInboxCursor(cursor: string): InboxCursor {
  const [, atMs, sessionId] = /^(\d{1,16})\.(.+)$/s.exec(cursor) ?? [];
  if (sessionId !== undefined) return { activeAtMs: Number(atMs), sessionId };
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}

function definedPosition(position: {
  incarnation?: string | undefined;
  lastMessageId?: string | undefined;
}) {
  const { incarnation, lastMessageId } = position;
  return {
    ...(incarnation !== undefined && { incarnation }),
    ...(lastMessageId !== undefined && { lastMessageId }),
  };
}
