import { FlotillaError } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import type { FrameMessage } from "../../protocol/frames.ts";
import { parseParts, parseToolResults } from "../../protocol/parse-frame.ts";
import type {
  SendMessage,
  Sent,
  SessionService,
  SessionView,
  StopTurn,
} from "../../sessions/service.ts";
import { type Caller, demand, localUser, may, userOf } from "../auth/caller.ts";
import type { CheckOptions, Members } from "../auth/members.ts";
import { route, type Route } from "../route.ts";
import { sessionSpecs } from "./sessions.schema.ts";
import { given, traceOf } from "./tasks.ts";

type SessionRoutes = {
  sessions: SessionService;
  members: Members;
  /** The longest body that is read. */
  maxBytes: number;
};

/** Sessions: making them, asking about them, writing in them. */
export function sessionRoutes({ sessions, members, maxBytes }: SessionRoutes): Route[] {
  /** The tenant and the id, once it is known that the caller may reach it. */
  const reached = async (caller: Caller, sessionId: string, options?: CheckOptions) => {
    await members.check(caller, sessionId, options);
    return [caller.tenant, sessionId] as const;
  };
  /** The same for what is to be stored, which waits for a store that is away. */
  const toChange = (caller: Caller, sessionId: string) =>
    reached(caller, sessionId, { patient: true });

  return [
    route(sessionSpecs.create, { maxBytes }).to(async ({ caller, body }) => {
      const asked = await body();
      const users = withCaller(caller, asked.users ?? []);
      checkNamed(caller, asked.sessionId);
      const { metadata, ...rest } = given(asked);
      const session = await sessions.create(caller.tenant, {
        ...rest,
        users,
        ...(metadata !== undefined && { metadata: metadata as Json }),
      });
      checkTakesPart(caller, session);
      return { status: 201, body: shown(session) };
    }),
    route(sessionSpecs.list).to(async ({ caller, query }) => {
      const user = listedUser(caller, query.user);
      const filter = { ...given(query), ...(user !== undefined && { user }) };
      const page = await sessions.list(caller.tenant, {
        ...filter,
        ...(caller.sessions && { only: [...caller.sessions] }),
      });
      return { status: 200, body: { ...page, sessions: page.sessions.map(shown) } };
    }),
    route(sessionSpecs.get).to(async ({ caller, params: { sessionId } }) => {
      const session = await sessions.get(...(await reached(caller, sessionId)));
      return { status: 200, body: shown(session) };
    }),
    route(sessionSpecs.remove).to(async ({ caller, params: { sessionId } }) => {
      await sessions.remove(...(await toChange(caller, sessionId)));
      members.forget(caller.tenant, sessionId);
      return { status: 200, body: { status: "deleted" } };
    }),
    route(sessionSpecs.metadata, { maxBytes }).to(
      async ({ caller, params: { sessionId }, body, context }) => {
        const { metadata, ifVersion = versionOf(context.req.header("if-match")) } = await body();
        const body200 = await sessions.setMetadata(
          ...(await toChange(caller, sessionId)),
          (metadata ?? null) as Json,
          ifVersion === undefined ? {} : { ifVersion },
        );
        return { status: 200, body: body200 };
      },
    ),
    route(sessionSpecs.members, { maxBytes }).to(
      async ({ caller, params: { sessionId }, body }) => {
        const change = given(await body());
        const place = await toChange(caller, sessionId);
        await sessions.changeMembers(...place, change);
        members.forget(...place);
        return { status: 200, body: shown(await sessions.get(...place, { patient: true })) };
      },
    ),
    route(sessionSpecs.archive).to(async ({ caller, params: { sessionId } }) => {
      await sessions.archive(...(await toChange(caller, sessionId)));
      return { status: 200, body: { status: "archived" } };
    }),
    route(sessionSpecs.unarchive).to(async ({ caller, params: { sessionId } }) => {
      await sessions.unarchive(...(await toChange(caller, sessionId)));
      return { status: 200, body: { status: "active" } };
    }),
    route(sessionSpecs.compact).to(async ({ caller, params: { sessionId } }) => {
      const done = await sessions.compact(...(await toChange(caller, sessionId)));
      return { status: 202, body: { done } };
    }),
    route(sessionSpecs.messages).to(async ({ caller, params: { sessionId }, query }) => {
      const place = await reached(caller, sessionId);
      const { entries, ...rest } = await sessions.entries(...place, given(query));
      return { status: 200, body: { entries: entries as never, ...rest } };
    }),
    route(sessionSpecs.send, { maxBytes }).to(
      async ({ caller, params: { sessionId }, body, context }) => {
        const { metadata, parts, ...rest } = given(await body());
        const written = asWritten(caller, {
          ...rest,
          parts: parseParts(parts),
          ...(metadata !== undefined && { metadata: metadata as Json }),
        });
        const message = { ...written, ...tracedBy(caller, traceOf(context)) };
        return stored(await sessions.send(...(await toChange(caller, sessionId)), message));
      },
    ),
    route(sessionSpecs.toolResults, { maxBytes }).to(
      async ({ caller, params: { sessionId }, body, context }) => {
        const { author, results, ...rest } = given(await body());
        const result = {
          ...rest,
          author: authorOf(as(caller, author)),
          results: parseToolResults(results),
          ...tracedBy(caller, traceOf(context)),
        };
        return stored(await sessions.toolResult(...(await toChange(caller, sessionId)), result));
      },
    ),
    route(sessionSpecs.regenerate).to(async ({ caller, params: { sessionId }, body, context }) => {
      const asked = { ...given(await body()), ...tracedBy(caller, traceOf(context)) };
      const body202 = await sessions.regenerate(...(await toChange(caller, sessionId)), asked);
      return { status: 202, body: body202 };
    }),
    route(sessionSpecs.stop).to(async ({ caller, params: { sessionId }, query }) => {
      const asked = { ...given(query), ...stopperOf(caller) };
      const done = await sessions.stop(...(await toChange(caller, sessionId)), asked);
      return { status: 202, body: { done } };
    }),
    route(sessionSpecs.read).to(async ({ caller, params: { sessionId }, body }) => {
      const { seq, user } = await body();
      const upTo = { user: userOf(as(caller, user)), seq };
      await sessions.read(...(await toChange(caller, sessionId)), upTo);
      return { status: 200, body: { seq } };
    }),
  ];
}

/** Programs may say for whom they ask; a user is who the token says. */
export function as(caller: Caller, user: string | undefined): Caller {
  if (user === undefined || user === caller.user) return caller;
  if (caller.kind !== "user") return { ...caller, user };
  throw new FlotillaError("forbidden", "this token is of another user");
}

function stored(sent: Sent) {
  return { status: sent.duplicate ? 200 : 201, body: sent } as const;
}

function shown(session: SessionView) {
  return { ...session, agents: [...session.agents], users: [...session.users] };
}

/**
 * Whoever makes a session takes part in it, as does whom a program makes it for; naming others as well is
 * a way into their inboxes.
 */
function withCaller(caller: Caller, users: readonly string[]): readonly string[] {
  if (caller.kind === "server" && caller.user === undefined) return users;
  // A program without a name that names others has made its choice.
  if (caller.kind === "local" && caller.user === undefined && users.length > 0) return users;
  const own = userOf(caller);
  const others = users.filter((user) => user !== own);
  if (caller.kind === "user" && others.length > 0) demand(caller, "sessions:manage");
  return [own, ...others];
}

function checkNamed({ sessions }: Caller, sessionId: string | undefined): void {
  if (!sessions || (sessionId !== undefined && sessions.has(sessionId))) return;
  throw new FlotillaError("forbidden", "this token is good for the sessions that it names only");
}

/** An id that is taken gives what is there, which isn't everybody's to see. */
function checkTakesPart(caller: Caller, { sessionId, users }: SessionView): void {
  if (may(caller, "sessions:any") || users.includes(userOf(caller))) return;
  throw new FlotillaError("conflict", `there is a session ${sessionId} already`);
}

/** Whose sessions are listed: the caller's own, unless it may see those of all. */
function listedUser(caller: Caller, asked: string | undefined): string | undefined {
  if (may(caller, "sessions:any")) return asked;
  return userOf(as(caller, asked));
}

function versionOf(match: string | undefined): number | undefined {
  if (match === undefined || match === "*") return undefined;
  const digits = /^(?:W\/)?"?(\d{1,15})"?$/.exec(match)?.[1];
  if (digits !== undefined) return Number(digits);
  throw new FlotillaError("invalid_input", 'If-Match must name a version: If-Match: "3"');
}

/** A message as its writer may write it: users only as themselves, programs as whom they say. */
export function asWritten(caller: Caller, message: FrameMessage): SendMessage {
  const { role = "user", author, tokens, ...rest } = message;
  if (caller.kind !== "user") {
    const counted = tokens === undefined ? {} : { tokens };
    return { ...rest, ...counted, role, author: author ?? authorOf(caller) };
  }
  if (role !== "user")
    throw new FlotillaError("forbidden", "a user's token writes messages of the role `user` only");
  if (author !== undefined && author !== caller.user)
    throw new FlotillaError("forbidden", "a user's token writes as that user only");
  return { ...rest, role, author: authorOf(caller) };
}

/**
 * The trace that what is asked belongs to, where a program says so. A user's token says nothing of it: it
 * would put answers below any span, and choose which of them are sampled.
 */
export function tracedBy<Trace>({ kind }: Caller, trace: Trace | undefined): { trace?: Trace } {
  return kind === "user" || trace === undefined ? {} : { trace };
}

/** Who stops an answer, as far as the server knows: a key needn't speak for a user. */
export function stopperOf({ kind, user, keyName }: Caller): Pick<StopTurn, "author" | "by"> {
  if (user !== undefined) return { author: user, by: "user" };
  if (kind === "local") return { author: localUser, by: "user" };
  return { author: keyName ?? "key", by: "key" };
}

export function authorOf({ kind, user }: Caller): string {
  if (user !== undefined) return user;
  if (kind === "local") return localUser;
  throw new FlotillaError(
    "invalid_input",
    "say who writes: `author`, `Flotilla-User` as a header, or `user` of a client",
  );
}
