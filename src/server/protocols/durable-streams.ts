import type { Context, Hono } from "hono";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Semaphore } from "../../base/semaphore.ts";
import type { EntriesPage, FeedEvent, SessionService } from "../../sessions/service.ts";
import type { Caller } from "../auth/caller.ts";
import { type Members, watchMembership } from "../auth/members.ts";
import { eventStream, type EventStreams, type EventWriter, unbuffered } from "../event-streams.ts";
import { route, type Route, withPageSlot } from "../route.ts";
import { seesContent, type Serializer } from "../serializer.ts";
import { frameErrorOf } from "../socket/send-buffer.ts";
import { durableStreamPath, durableStreamSpecs } from "./durable-streams.schema.ts";

export type DurableStreamParts = {
  sessions: Pick<SessionService, "entries" | "join">;
  members: Members;
  streams: EventStreams;
  serializer: Serializer;
  pageSemaphore: Semaphore;
  clock: Clock;
  log: Logger;
};

/** A place in a session's log: after this entry, of this incarnation where it is known. */
type Place = { readonly after: number | "end"; readonly incarnation?: string };
/** A place that is in the log. */
type Found = { readonly after: number; readonly incarnation: string };
type Reading = { caller: Caller; sessionId: string; isOwn: boolean; cursor: string };

// As the protocol has it by default: who asks again within an interval gets another cursor.
const cursorIntervalMs = 20_000;
const cursorEpochMs = Date.UTC(2024, 9, 9);
const longPollMs = 20_000;
// The protocol's clients connect again, from where they are.
const eventsForMs = 60_000;
const pageEntries = 500;
const seqDigits = 16;
const offsetPattern = /^(\d{16})_([\w-]{1,100})$/;

/**
 * A session's log by the Durable Streams protocol. It is JSON: each entry is a message, and an offset is
 * the number of the entry before it. What agents are still saying is no part of it, because an attempt may
 * be made again, and what is at an offset never changes.
 */
export function durableStreamRoutes(parts: DurableStreamParts): Route[] {
  const { sessions, members, streams, serializer, pageSemaphore, clock, log } = parts;

  const checkReader = (caller: Caller, sessionId: string) =>
    members.check(caller, sessionId, { or: "fleet:read" });
  const readPage = (context: Context, caller: Caller, sessionId: string, after: number) =>
    withPageSlot(context, pageSemaphore, () =>
      sessions.entries(caller.tenant, sessionId, { after, limit: pageEntries }),
    );
  const readEnd = async ({ tenant }: Caller, sessionId: string): Promise<Found> => {
    // No entry is after this one, so only where the log ends is read.
    const after = Number.MAX_SAFE_INTEGER;
    const { lastSeq, incarnation } = await sessions.entries(tenant, sessionId, { after, limit: 1 });
    return { after: lastSeq, incarnation };
  };

  /** Waits for entries after a place, for as long as a long-poll lasts. */
  const waitForEntry = (context: Context, { caller, sessionId }: Reading, place: Found) =>
    streams.wait(context, longPollMs, (done) => {
      const joined = sessions.join(caller.tenant, sessionId, positionOf(place), {
        push({ type }) {
          const isOver = type === "entries" || type === "deleted" || type === "reset";
          if (isOver) done();
          return !isOver;
        },
        // The read that follows tells why.
        fail: done,
      });
      joined.ready.catch(() => {});
      return () => joined.leave();
    });

  /** Entries from a place on, as events, until it is time to connect again. */
  const events = (context: Context, reading: Reading, place: Found) =>
    streams.open(context, (to) => {
      const { caller, sessionId, isOwn, cursor } = reading;
      const shown = serializer.feed({ caller, isOwn });
      let known = place.after;
      const sendPlace = (after: number) => {
        const { incarnation } = place;
        const control = {
          streamNextOffset: offsetOf({ after, incarnation }),
          streamCursor: cursor,
          ...(after >= known && { upToDate: true }),
        };
        return to.write({ type: "control", data: JSON.stringify(control) });
      };
      const membership = watchMembership({
        members,
        clock,
        caller: () => caller,
        sessionId,
        isOwn: () => isOwn,
        // Its client asks again, and then the status tells.
        onRemoved: () => to.end(),
      });
      const push = (event: FeedEvent): boolean => {
        if (event.type === "joined") {
          known = event.lastSeq;
          return known > place.after || sendPlace(place.after);
        }
        if (event.type === "deleted" || event.type === "reset") {
          to.end();
          return false;
        }
        if (event.type !== "entries") return true;
        membership.recheck();
        const last = event.entries.at(-1);
        const left = shown({ ...event, type: "entries" });
        if (!last || left?.type !== "entries") return true;
        const isSent = to.write({ type: "data", data: JSON.stringify(left.entries) });
        return isSent && sendPlace(last.seq);
      };
      const joined = sessions.join(caller.tenant, sessionId, positionOf(place), {
        push,
        fail: (error) => endAfter(error, to, log),
        drained: to.drained,
      });
      joined.ready.catch(() => {});
      const cancelEnd = clock.after(eventsForMs, () => to.end());
      return () => {
        cancelEnd();
        membership.stop();
        joined.leave();
      };
    });

  return [
    route(durableStreamSpecs.read).to(async ({ caller, params: { sessionId }, query, context }) => {
      const { live } = query;
      const asked = placeOf(offsetIn(context), live);
      await checkReader(caller, sessionId);
      if (context.req.method === "HEAD") {
        const headers = headersOf(await readEnd(caller, sessionId));
        return { status: 200, body: [], headers };
      }
      const isOwn = await members.isMember(caller, sessionId);
      const cursor = cursorAt(clock.now(), query.cursor);
      const reading = { caller, sessionId, isOwn, cursor };
      const liveHeaders = live ? { "Stream-Cursor": cursor } : {};

      if (asked.after === "end" || live === "sse") {
        const end = await readEnd(caller, sessionId);
        const place = asked.after === "end" ? end : foundIn(asked, end);
        if (live === "sse") {
          const body = events(context, reading, place);
          const headers = { ...isolated, ...unbuffered, "Content-Type": eventStream };
          return { status: 200, body, headers };
        }
        if (!live) return { status: 200, body: [], headers: { ...headersOf(end), ...upToDate } };
        return { ...(await polled(context, reading, end)), isOwn };
      }
      const page = await readPage(context, caller, sessionId, asked.after);
      const place = foundIn(asked, { after: page.lastSeq, incarnation: page.incarnation });
      if (live && page.entries.length === 0)
        return { ...(await polled(context, reading, place)), isOwn };
      const headers = { ...pageHeaders(reading, place, page), ...liveHeaders };
      const isKnown = !live && context.req.header("if-none-match") === headers["ETag"];
      if (isKnown) return { status: 304, body: null, headers };
      return { status: 200, body: [...page.entries] as never, headers, isOwn };
    }),
  ];

  async function polled(context: Context, reading: Reading, place: Found) {
    const { caller, sessionId, cursor } = reading;
    await waitForEntry(context, reading, place);
    // It may have been removed while it waited.
    await checkReader(caller, sessionId);
    const page = await readPage(context, caller, sessionId, place.after);
    const found = foundIn(place, { after: page.lastSeq, incarnation: page.incarnation });
    const headers = { ...pageHeaders(reading, found, page), "Stream-Cursor": cursor };
    if (page.entries.length === 0) return { status: 204, body: null, headers } as const;
    return { status: 200, body: [...page.entries] as never, headers } as const;
  }
}

/** Answers what would write: messages are sent to the session itself. */
export function refuseStreamWrites(app: Hono): void {
  app.use(durableStreamPath.replace("{sessionId}", ":sessionId"), (c, next) => {
    const { method } = c.req;
    if (method === "GET" || method === "HEAD") return next();
    throw new FlotillaError(
      "unsupported",
      "this stream is only read: send messages to /v1/sessions/{sessionId}/messages",
      { details: { allow: "GET, HEAD" } },
    );
  });
}

/** Orders as its number does. With the incarnation, as the log may be replaced by another. */
function offsetOf({ after, incarnation }: Found): string {
  return `${String(after).padStart(seqDigits, "0")}_${incarnation}`;
}

/** The offset of a request, of which there may be one. */
function offsetIn(context: Context): string | undefined {
  const offsets = context.req.queries("offset") ?? [];
  if (offsets.length > 1) throw noOffset("there are several");
  return offsets[0];
}

function placeOf(offset: string | undefined, live: string | undefined): Place {
  if (offset === undefined && live !== undefined) {
    const message = `offset is missing, which live=${live} needs: -1 is the beginning, now the end`;
    throw new FlotillaError("invalid_option", message);
  }
  if (offset === undefined || offset === "-1") return { after: 0 };
  if (offset === "now") return { after: "end" };
  const [, digits, incarnation] = offsetPattern.exec(offset) ?? [];
  const after = Number(digits);
  if (incarnation === undefined || !Number.isSafeInteger(after))
    throw noOffset("it must be a `Stream-Next-Offset` of this stream, -1 or now");
  return { after, incarnation };
}

/** The place, if it is in the log that has this end. */
function foundIn({ after, incarnation }: Place, end: Found): Found {
  if (incarnation !== undefined && incarnation !== end.incarnation) {
    throw new FlotillaError(
      "cursor_expired",
      "the log of this session was replaced since this offset: read it anew, from -1",
    );
  }
  if (after === "end") return end;
  if (after > end.after) throw noOffset(`it is behind the end, ${offsetOf(end)}`);
  return { after, incarnation: end.incarnation };
}

function noOffset(why: string): FlotillaError {
  return new FlotillaError("invalid_option", `offset isn't one: ${why}`);
}

/** A replaced log is noticed by its incarnation. */
function positionOf({ after, incarnation }: Found) {
  return { lastSeq: after, incarnation };
}

/** Grows with time, and always beyond the one that a client has, so that no cache answers it for ever. */
function cursorAt(nowMs: number, given: string | undefined): string {
  const current = Math.floor((nowMs - cursorEpochMs) / cursorIntervalMs);
  const known = given === undefined ? -1 : Number(given);
  // Answers aren't stored by caches, so that the next number is far enough.
  return String(known >= current ? known + 1 : current);
}

const upToDate = { "Stream-Up-To-Date": "true" };
// Only pages that may call at all read it, and none embeds it.
const isolated = { "Cross-Origin-Resource-Policy": "same-origin" };

function headersOf(end: Found) {
  return { ...isolated, "Stream-Next-Offset": offsetOf(end) };
}

function pageHeaders({ caller, isOwn }: Reading, place: Found, page: EntriesPage) {
  const next = { ...place, after: page.entries.at(-1)?.seq ?? place.after };
  // Readers that see less get other bytes.
  const view = isOwn ? "own" : seesContent(caller) ? "redacted" : "shapes";
  return {
    ...headersOf(next),
    ETag: `"${place.incarnation}:${place.after}:${next.after}:${view}"`,
    ...(page.next === null && upToDate),
  };
}

/** Logs what is no refusal. The protocol has no event for it: the client asks again. */
function endAfter(error: unknown, to: EventWriter, log: Logger): void {
  frameErrorOf(error, log);
  to.end();
}
