import type { Context } from "hono";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { FewAtOnce } from "../../base/semaphore.ts";
import type { Logger } from "../../base/log.ts";
import { fitPage } from "../../base/page.ts";
import type {
  InboxEvent,
  InboxItem,
  SessionService,
  SessionView,
  Sink,
} from "../../sessions/service.ts";
import type { Authenticator } from "../auth/authenticate.ts";
import { type Caller, userOf } from "../auth/caller.ts";
import { type Members, ownInbox, watchMember } from "../auth/members.ts";
import { inTurn, route, type Route } from "../route.ts";
import { frameErrorOf, prepareEvent } from "../socket/send-buffer.ts";
import { sessionSpecs } from "./sessions.schema.ts";
import type { EventWriter, Streams } from "../event-streams.ts";
import { pagedBody } from "../admission/admission.ts";
import { as } from "./sessions.ts";

export type SessionStreams = {
  sessions: SessionService;
  members: Members;
  streams: Streams;
  pageTurns: FewAtOnce;
  authenticator: Authenticator;
  clock: Clock;
  log: Logger;
};

// Proxies that collect an answer before they pass it on would keep it for ever.
const unbuffered = { "X-Accel-Buffering": "no" };
const exportPage = 200;

/** Answers that come bit by bit: what happens in sessions and inboxes, and whole sessions. */
export function sessionStreamRoutes(parts: SessionStreams): Route[] {
  const { sessions, members, streams, pageTurns, authenticator, clock, log } = parts;
  return [
    route(sessionSpecs.events).to(async ({ caller, params: { sessionId }, query, context }) => {
      await members.check(caller, sessionId);
      // What isn't there is said by the status, which can't be taken back once events are sent.
      await sessions.get(caller.tenant, sessionId);
      const { lastSeq, ...rest } = query;
      const place = { lastSeq: lastEventId(context) ?? lastSeq ?? 0, ...defined(rest) };
      const body = streams.open(context, (to) => {
        const still = watchMember({
          members,
          clock,
          caller: () => caller,
          sessionId,
          onRemoved: (error) => ended(to, error, log),
        });
        const joined = sessions.join(caller.tenant, sessionId, place, {
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
            still.look();
            const id = event.type === "entries" ? event.entries.at(-1)?.seq : undefined;
            const { text: data } = prepareEvent(sessionId, event);
            return to.write({ type: event.type, ...(id !== undefined && { id }), data });
          },
          fail: (error) => ended(to, error, log),
          drained: to.drained,
        });
        joined.ready.catch(() => {});
        return () => {
          still.stop();
          joined.leave();
        };
      });
      return { status: 200, body, headers: unbuffered };
    }),
    route(sessionSpecs.inbox).to(async ({ caller, query: { user, cursor } }) => {
      const whose = userOf(as(caller, user));
      const items = await snapshotOf(sessions, caller, whose);
      return { status: 200, body: inboxPage(items, cursor) };
    }),
    route(sessionSpecs.inboxEvents).to(({ caller, query: { user }, context }) => {
      const whose = userOf(as(caller, user));
      const body = streams.open(context, (to) => {
        const sink: Sink<InboxEvent> = {
          push: ({ type, ...data }) => to.write({ type, data: JSON.stringify(data) }),
          fail: (error) => ended(to, error, log),
          drained: to.drained,
        };
        const joined = sessions.inbox(caller.tenant, whose, ownInbox(caller, sink));
        joined.ready.catch(() => {});
        return () => joined.leave();
      });
      return { status: 200, body, headers: unbuffered };
    }),
    route(sessionSpecs.exported).to(async ({ caller, params: { sessionId }, context }) => {
      await members.check(caller, sessionId);
      const session = await sessions.get(caller.tenant, sessionId);
      const nextPage = linesOf(sessions, session);
      const body = await pagedBody(
        context,
        () => inTurn(context, pageTurns, nextPage),
        (error) => void frameErrorOf(error, log),
      );
      return { status: 200, body };
    }),
    route(sessionSpecs.ticket).to(({ caller }) => {
      return { status: 201, body: authenticator.tickets.issue(caller) };
    }),
  ];
}

/** The lines of a session, a page with each call, then undefined. */
function linesOf(
  sessions: SessionService,
  session: SessionView,
): () => Promise<Uint8Array | undefined> {
  const { tenant, sessionId, lastSeq } = session;
  let after: number | undefined;
  return async () => {
    const lines: object[] = after === undefined ? [{ session }] : [];
    after ??= 0;
    // What is added meanwhile isn't part of it, or it might never end.
    const limit = Math.min(exportPage, lastSeq - after);
    if (limit > 0) {
      const { entries } = await sessions.entries(tenant, sessionId, { after, limit });
      after = entries.at(-1)?.seq ?? lastSeq;
      lines.push(...entries.map((entry) => ({ entry })));
    }
    if (lines.length === 0) return undefined;
    return Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  };
}

function snapshotOf(
  sessions: SessionService,
  caller: Caller,
  user: string,
): Promise<readonly InboxItem[]> {
  return new Promise((resolve, reject) => {
    const sink: Sink<InboxEvent> = {
      push(event) {
        if (event.type === "snapshot") resolve(event.sessions);
        return event.type !== "snapshot";
      },
      fail: reject,
    };
    const joined = sessions.inbox(caller.tenant, user, ownInbox(caller, sink));
    joined.ready.then(() => joined.leave(), reject);
  });
}

function ended(to: EventWriter, error: unknown, log: Logger): void {
  to.write({ type: "error", data: JSON.stringify(frameErrorOf(error, log)) });
  to.end();
}

/** Browsers send it when they come back by themselves. */
function lastEventId(context: Context): number | undefined {
  const given = context.req.header("last-event-id");
  if (given === undefined || given === "") return undefined;
  if (/^\d{1,15}$/.test(given)) return Number(given);
  throw new FlotillaError("invalid_input", "Last-Event-ID must be the id of an event: a number");
}

/** A page of an inbox, the session that something happened in last first. */
export function inboxPage(items: readonly InboxItem[], cursor?: string) {
  const after = cursor === undefined ? undefined : inboxPlace(cursor);
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

type InboxPlace = Pick<InboxItem, "activeAtMs" | "sessionId">;

function inboxOrder(one: InboxPlace, other: InboxPlace): number {
  if (one.activeAtMs !== other.activeAtMs) return other.activeAtMs - one.activeAtMs;
  if (one.sessionId === other.sessionId) return 0;
  return one.sessionId < other.sessionId ? -1 : 1;
}

function inboxPlace(cursor: string): InboxPlace {
  const [, atMs, sessionId] = /^(\d{1,16})\.(.+)$/s.exec(cursor) ?? [];
  if (sessionId !== undefined) return { activeAtMs: Number(atMs), sessionId };
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}

function defined(place: { incarnation?: string | undefined; lastMessageId?: string | undefined }) {
  const { incarnation, lastMessageId } = place;
  return {
    ...(incarnation !== undefined && { incarnation }),
    ...(lastMessageId !== undefined && { lastMessageId }),
  };
}
