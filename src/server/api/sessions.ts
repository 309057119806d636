import { minuteMs } from "../../base/durations.ts";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import { asTime } from "../../base/time.ts";
import type { FrameMessage } from "../../protocol/frames.ts";
import type { ToolResult } from "../../protocol/message.ts";
import { checkUnredacted } from "../../redaction/redactor.ts";
import type { FleetPages } from "../../runtime/fleet/pages.ts";
import { parseParts, parseToolResults } from "../../protocol/parse-frame.ts";
import type {
  SendMessage,
  Sent,
  SessionService,
  SessionView,
  StopTurn,
} from "../../sessions/service.ts";
import type { TaskToStart } from "../../tasks/enqueue/logged-tasks.ts";
import type { TaskContract } from "../../tasks/model.ts";
import { type TenantQuotas, whileAdmitted, type Written } from "../admission/tenant-quotas.ts";
import type { Uploads } from "../admission/uploads.ts";
import {
  type Caller,
  canSee,
  localUser,
  may,
  mayInAll,
  noSession,
  onlyTenant,
  requireVerb,
  userOf,
} from "../auth/caller.ts";
import type { CheckOptions, Members } from "../auth/members.ts";
import { route, type Route } from "../route.ts";
import { seesContent } from "../serializer.ts";
import { maxInlineBodyBytes } from "../../protocol/file.ts";
import { sessionSpecs, type StartedBody } from "./sessions.schema.ts";
import { turnSpecs } from "./conversation/turns.schema.ts";
import { forkSpecs } from "./conversation/forks.schema.ts";
import { wakeSpecs } from "./conversation/wakes.schema.ts";
import { checkMetadataFilter, traceOf, valuesIn, withoutUndefined } from "./tasks.ts";

type SessionRoutes = {
  sessions: SessionService;
  pages: Pick<FleetPages, "sessionOwner">;
  members: Members;
  quotas?: Pick<TenantQuotas, "session" | "write"> | undefined;
  /** Tasks and flows whose input is checked before it is stored. */
  contracts?: ReadonlyMap<string, TaskContract> | undefined;
  uploads: Uploads;
  clock: Pick<Clock, "now">;
  /** The longest body that is read, but for the files of a message. */
  maxBytes: number;
};

/** Sessions: create, read, change and write to them. */
export function sessionRoutes(parts: SessionRoutes): Route[] {
  const { sessions, pages, members, quotas, contracts, uploads, clock, maxBytes } = parts;
  /** The tenant and the id, after checking that the caller may use the session. */
  const checkedKey = async (caller: Caller, sessionId: string, options: CheckOptions) => {
    await members.check(caller, sessionId, options);
    return [caller.tenant, sessionId] as const;
  };
  const keyForRead = (caller: Caller, sessionId: string) =>
    checkedKey(caller, sessionId, { or: "fleet:read" });
  /** For a change, which waits while the store is unreachable. */
  const keyForChange = (caller: Caller, sessionId: string) =>
    checkedKey(caller, sessionId, { retries: true });
  /** For a change that operators may make as well. */
  const keyForOperation = (caller: Caller, sessionId: string) =>
    checkedKey(caller, sessionId, { retries: true, or: "fleet:operate" });

  /** A fork is its maker's own, and shown as it is: so is what it shares with a session of others. */
  const keyForFork = async (caller: Caller, sessionId: string) => {
    const key = await keyForChange(caller, sessionId);
    if (seesContent(caller) || (await members.isMember(caller, sessionId))) return key;
    throw new FlotillaError(
      "forbidden",
      "forks are for members, and for callers with payloads:read",
      { details: { verb: "payloads:read" } },
    );
  };

  /** Does what stores entries, if the quotas of the tenant have room. */
  const writing = <Result>(
    caller: Caller,
    sessionId: string | undefined,
    act: () => Promise<Result>,
    { begins = true, id }: Partial<Written>,
  ): Promise<Result> =>
    quotas ? whileAdmitted(quotas.write(caller, sessionId, { begins, id }), act) : act();

  const contractOf = (name: string) => contracts?.get(name) ?? name;
  /** A task of a message, as code would give it. */
  const toStart = ({ task, flow, input, options, ...rest }: StartedBody): TaskToStart => {
    checkUnredacted("input", input);
    const { runAt, ...others } = withoutUndefined(options ?? {});
    return {
      ...withoutUndefined(rest),
      ...(input !== undefined && { input }),
      options: { ...others, ...(runAt !== undefined && { runAt: asTime(runAt) }) },
      // What names both or neither is refused as it is in code.
      ...(task !== undefined && { task: contractOf(task) }),
      ...(flow !== undefined && { flow: contractOf(flow) }),
    } as TaskToStart;
  };

  return [
    route(sessionSpecs.create, { maxBytes }).to(async ({ caller, body }) => {
      const input = await body();
      const users = withCaller(caller, input.users ?? []);
      checkNamed(caller, input.sessionId);
      const { metadata, ...rest } = withoutUndefined(input);
      const create = () =>
        sessions.create(caller.tenant, {
          ...rest,
          users,
          ...(metadata !== undefined && { metadata: metadata as Json }),
        });
      const session = await whileAdmitted(quotas?.session(caller, input.sessionId), create);
      checkCreated(caller, session);
      return { status: 201, body: sessionBody(session) };
    }),
    route(sessionSpecs.list).to(async ({ caller, query }) => {
      const { metadata, ...given } = query;
      const user = listedUser(caller, query.user);
      const values = metadata === undefined ? undefined : valuesIn(metadata);
      if (values) checkMetadataFilter(caller, values);
      const page = await sessions.list(caller.tenant, {
        ...withoutUndefined(given),
        ...(user !== undefined && { user }),
        ...(values && { metadata: values }),
        ...(caller.sessions && { only: [...caller.sessions] }),
      });
      return { status: 200, body: { ...page, sessions: page.sessions.map(sessionBody) } };
    }),
    route(sessionSpecs.get).to(async ({ caller, params: { sessionId } }) => {
      const session = await sessions.get(...(await keyForRead(caller, sessionId)));
      return { status: 200, body: sessionBody(session) };
    }),
    route(sessionSpecs.remove).to(async ({ caller, params: { sessionId } }) => {
      await sessions.remove(...(await keyForChange(caller, sessionId)));
      members.forget(caller.tenant, sessionId);
      return { status: 200, body: { status: "deleted" } };
    }),
    route(sessionSpecs.metadata, { maxBytes }).to(
      async ({ caller, params: { sessionId }, body, context }) => {
        const { metadata, ifVersion = versionOf(context.req.header("if-match")) } = await body();
        checkUnredacted("metadata", metadata);
        const body200 = await sessions.setMetadata(
          ...(await keyForChange(caller, sessionId)),
          (metadata ?? null) as Json,
          ifVersion === undefined ? {} : { ifVersion },
        );
        return { status: 200, body: body200 };
      },
    ),
    route(sessionSpecs.members, { maxBytes }).to(
      async ({ caller, params: { sessionId }, body }) => {
        const change = withoutUndefined(await body());
        const sessionKey = await keyForChange(caller, sessionId);
        await sessions.changeMembers(...sessionKey, change);
        members.forget(...sessionKey);
        return {
          status: 200,
          body: sessionBody(await sessions.get(...sessionKey, { retries: true })),
        };
      },
    ),
    route(sessionSpecs.archive).to(async ({ caller, params: { sessionId } }) => {
      await sessions.archive(...(await keyForOperation(caller, sessionId)));
      return { status: 200, body: { status: "archived" } };
    }),
    route(sessionSpecs.unarchive).to(async ({ caller, params: { sessionId } }) => {
      await sessions.unarchive(...(await keyForOperation(caller, sessionId)));
      return { status: 200, body: { status: "active" } };
    }),
    route(sessionSpecs.compact).to(async ({ caller, params: { sessionId } }) => {
      const done = await sessions.compact(...(await keyForOperation(caller, sessionId)));
      return { status: 202, body: { done } };
    }),
    route(sessionSpecs.messages).to(async ({ caller, params: { sessionId }, query }) => {
      const sessionKey = await keyForRead(caller, sessionId);
      const [{ entries, ...rest }, isOwn] = await Promise.all([
        sessions.entries(...sessionKey, withoutUndefined(query)),
        members.isMember(caller, sessionId),
      ]);
      return { status: 200, body: { entries: entries as never, ...rest }, isOwn };
    }),
    route(turnSpecs.turns).to(async ({ caller, params: { sessionId }, query }) => {
      const sessionKey = await keyForRead(caller, sessionId);
      const { turns, next } = await sessions.turns(...sessionKey, withoutUndefined(query));
      // Pods are no business of users, unless they look after the whole fleet.
      const ofFleet = may(caller, "fleet:read") && onlyTenant(caller) === undefined;
      const isShown = caller.kind !== "user" || ofFleet;
      const shown = isShown ? turns : turns.map((turn) => ({ ...turn, podId: null }));
      return { status: 200, body: { turns: [...shown], next } };
    }),
    route(turnSpecs.owner).to(async ({ caller, params: { sessionId } }) => {
      const owner = await pages.sessionOwner(...(await keyForRead(caller, sessionId)));
      if (!owner) throw noSession(sessionId);
      return { status: 200, body: owner };
    }),
    route(turnSpecs.tasks).to(async ({ caller, params: { sessionId } }) => {
      const found = await sessions.started(...(await keyForRead(caller, sessionId)));
      const started = found.started.filter((each) => canSee(caller, each));
      return { status: 200, body: { started, hasMore: found.hasMore } };
    }),
    route(forkSpecs.fork, { maxBytes }).to(async ({ caller, params: { sessionId }, body }) => {
      const { metadata, ...input } = withoutUndefined(await body());
      checkUnredacted("metadata", metadata);
      checkNamed(caller, input.id);
      const users = withCaller(caller, input.users ?? []);
      const key = await keyForFork(caller, sessionId);
      const fork = () =>
        sessions.fork(...key, {
          ...input,
          users,
          ...(metadata !== undefined && { metadata: metadata as Json }),
        });
      const session = await whileAdmitted(quotas?.session(caller, input.id), fork);
      checkCreated(caller, session);
      return { status: 201, body: sessionBody(session) };
    }),
    route(forkSpecs.edit, { maxBytes: maxBytes + maxInlineBodyBytes }).to(
      ({ caller, params: { sessionId }, body, context }) =>
        uploads.runLarge(context, maxBytes, async () => {
          const { metadata, messageMetadata, author, parts, ...input } = withoutUndefined(
            await body(),
          );
          checkUnredacted("metadata", metadata);
          checkNamed(caller, input.id);
          const said = messageFrom(caller, {
            id: input.messageId,
            parts: parseParts(parts),
            ...(author !== undefined && { author }),
          });
          const users = withCaller(caller, input.users ?? []);
          const key = await keyForFork(caller, sessionId);
          const edit = () =>
            sessions.edit(...key, {
              ...input,
              users,
              author: said.author,
              parts: said.parts,
              ...(metadata !== undefined && { metadata: metadata as Json }),
              ...(messageMetadata !== undefined && { messageMetadata: messageMetadata as Json }),
              ...traceFrom(caller, traceOf(context)),
            });
          // What is said is said in the fork, which no other turn is in.
          const admitted = () => writing(caller, input.id, edit, { id: input.messageId });
          const { session, ...sent } = await whileAdmitted(
            quotas?.session(caller, input.id),
            admitted,
          );
          checkCreated(caller, session);
          const status = sent.duplicate ? 200 : 201;
          return { status, body: { session: sessionBody(session), ...sent } };
        }),
    ),
    route(forkSpecs.forks).to(async ({ caller, params: { sessionId }, query }) => {
      const key = await keyForRead(caller, sessionId);
      const user = listedUser(caller, undefined);
      const of = user === undefined ? {} : { user };
      const { forks, next } = await sessions.forks(...key, { ...withoutUndefined(query), ...of });
      const seen = forks.filter((each) => caller.sessions?.has(each.sessionId) ?? true);
      return { status: 200, body: { forks: seen.map(sessionBody), next } };
    }),
    // Files within the message leave it before its own size is looked at.
    route(sessionSpecs.send, { maxBytes: maxBytes + maxInlineBodyBytes }).to(
      ({ caller, params: { sessionId }, body, context }) =>
        uploads.runLarge(context, maxBytes, async () => {
          const { metadata, parts, tasks, ...rest } = withoutUndefined(await body());
          const written = messageFrom(caller, {
            ...rest,
            parts: parseParts(parts),
            ...(metadata !== undefined && { metadata: metadata as Json }),
          });
          // Starting a task needs what `POST /v1/tasks` needs, whatever it is sent with.
          if (tasks) requireVerb(caller, "admin");
          const message = {
            ...written,
            ...traceFrom(caller, traceOf(context)),
            ...(tasks && { tasks: tasks.map(toStart) }),
          };
          const key = await keyForChange(caller, sessionId);
          const begins = message.role === "user";
          const send = () => sessions.send(...key, message);
          return stored(await writing(caller, sessionId, send, { begins, id: message.id }));
        }),
    ),
    route(sessionSpecs.toolResults, { maxBytes }).to(
      async ({ caller, params: { sessionId }, body, context }) => {
        const { author, results, ...rest } = withoutUndefined(await body());
        const parsed = parseToolResults(results);
        const result = {
          ...rest,
          author: authorOf(actingAs(caller, author)),
          results: parsed,
          ...traceFrom(caller, traceOf(context)),
        };
        const isDecision = areDecisions(parsed);
        if (!isDecision) requireVerb(caller, "sessions:write");
        const keyFor = isDecision ? keyForOperation : keyForChange;
        const key = await keyFor(caller, sessionId);
        const send = () => sessions.toolResult(...key, result);
        return stored(await writing(caller, sessionId, send, { id: result.id }));
      },
    ),
    route(sessionSpecs.signals, { maxBytes }).to(
      async ({ caller, params: { sessionId }, body, context }) => {
        const { author, payload, ...rest } = withoutUndefined(await body());
        const key = await keyForOperation(caller, sessionId);
        const signal = {
          ...rest,
          author: authorOf(actingAs(caller, author)),
          ...(payload !== undefined && { payload: payload as Json }),
          ...traceFrom(caller, traceOf(context)),
        };
        const send = () => sessions.signal(...key, signal);
        const sent = await writing(caller, sessionId, send, { id: signal.id });
        return { status: sent.duplicate ? 200 : 201, body: sent };
      },
    ),
    route(wakeSpecs.setWake).to(async ({ caller, params: { sessionId }, body }) => {
      const { author, ...rest } = withoutUndefined(await body());
      const key = await keyForChange(caller, sessionId);
      const wake = { ...rest, author: authorOf(actingAs(caller, author)) };
      const set = () => sessions.wake(...key, wake);
      const begins = isDueSoon(wake, clock.now());
      const done = await writing(caller, sessionId, set, { begins, id: wake.id });
      return { status: done.duplicate ? 200 : 201, body: done };
    }),
    route(wakeSpecs.wakes).to(async ({ caller, params: { sessionId } }) => {
      const wakes = await sessions.wakes(...(await keyForRead(caller, sessionId)));
      return { status: 200, body: { wakes: [...wakes] } };
    }),
    route(wakeSpecs.cancelWake).to(async ({ caller, params: { sessionId, key } }) => {
      const of = await keyForOperation(caller, sessionId);
      const { author = localUser } = stopperOf(caller);
      const done = await sessions.cancelWake(...of, { key, author });
      return { status: 200, body: { done } };
    }),
    route(sessionSpecs.regenerate).to(async ({ caller, params: { sessionId }, body, context }) => {
      const options = { ...withoutUndefined(await body()), ...traceFrom(caller, traceOf(context)) };
      const key = await keyForOperation(caller, sessionId);
      const ask = () => sessions.regenerate(...key, options);
      const body202 = await writing(caller, sessionId, ask, { id: options.id });
      return { status: 202, body: body202 };
    }),
    route(sessionSpecs.stop).to(async ({ caller, params: { sessionId }, query }) => {
      const options = { ...withoutUndefined(query), ...stopperOf(caller) };
      const done = await sessions.stop(...(await keyForOperation(caller, sessionId)), options);
      return { status: 202, body: { done } };
    }),
    route(sessionSpecs.read).to(async ({ caller, params: { sessionId }, body }) => {
      const { seq, user } = await body();
      const upTo = { user: userOf(actingAs(caller, user)), seq };
      await sessions.read(...(await keyForChange(caller, sessionId)), upTo);
      return { status: 200, body: { seq } };
    }),
  ];
}

/** A program may act for any user; a user acts as the token's user only. */
export function actingAs(caller: Caller, user: string | undefined): Caller {
  if (user === undefined || user === caller.user) return caller;
  if (caller.kind !== "user") return { ...caller, user };
  throw new FlotillaError("forbidden", "this token belongs to another user");
}

/** A message as its caller may send it: users write as themselves, programs as any author. */
export function messageFrom(caller: Caller, message: FrameMessage): SendMessage {
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

/** Whether all results approve or deny calls. Operators may do that, and make up no outputs. */
export function areDecisions(results: readonly ToolResult[]): boolean {
  return results.every((result) => "approved" in result);
}

/**
 * The trace that a program's request belongs to. A user's token may not set it: a user could attach
 * answers to any span, and choose which of them are sampled.
 */
export function traceFrom<Trace>({ kind }: Caller, trace: Trace | undefined): { trace?: Trace } {
  return kind === "user" || trace === undefined ? {} : { trace };
}

/** The author of a stop; a key acts without a user where it names none. */
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
    "the author is missing: set `author`, the header `Flotilla-User`, or `user` of the client",
  );
}

function stored(sent: Sent) {
  return { status: sent.duplicate ? 200 : 201, body: sent } as const;
}

function sessionBody(session: SessionView) {
  return { ...session, agents: [...session.agents], users: [...session.users] };
}

/**
 * The caller that creates a session is a member of it, as is the user a program acts for. A user's token
 * needs `sessions:manage` to name others, because that puts the session into their inboxes.
 */
export function withCaller(caller: Caller, users: readonly string[]): readonly string[] {
  if (caller.kind === "server" && caller.user === undefined) return users;
  // A local program without a user of its own that names users isn't a member itself.
  if (caller.kind === "local" && caller.user === undefined && users.length > 0) return users;
  const own = userOf(caller);
  const others = users.filter((user) => user !== own);
  if (caller.kind === "user" && others.length > 0) requireVerb(caller, "sessions:manage");
  return [own, ...others];
}

export function checkNamed({ sessions }: Caller, sessionId: string | undefined): void {
  if (!sessions || (sessionId !== undefined && sessions.has(sessionId))) return;
  throw new FlotillaError("forbidden", "this token only allows the sessions that it names");
}

/** Creating with an existing id returns that session, which only its members may see. */
export function checkCreated(caller: Caller, { sessionId, users }: SessionView): void {
  if (mayInAll(caller, "sessions:any") || users.includes(userOf(caller))) return;
  throw new FlotillaError("conflict", `there is a session ${sessionId} already`);
}

/** The user whose sessions are listed: the caller, unless it may see those of all users. */
function listedUser(caller: Caller, requested: string | undefined): string | undefined {
  if (may(caller, "sessions:any") || may(caller, "fleet:read")) return requested;
  return userOf(actingAs(caller, requested));
}

function versionOf(match: string | undefined): number | undefined {
  if (match === undefined || match === "*") return undefined;
  const digits = /^(?:W\/)?"?(\d{1,15})"?$/.exec(match)?.[1];
  if (digits !== undefined) return Number(digits);
  throw new FlotillaError("invalid_input", 'If-Match must name a version: If-Match: "3"');
}

/**
 * Whether setting a wake is as good as asking, which begins a turn. A pattern's first time isn't computed for it:
 * it may be as soon.
 */
function isDueSoon(
  { at, afterMs }: { readonly at?: string | number; readonly afterMs?: number },
  nowMs: number,
): boolean {
  const atMs = afterMs === undefined ? new Date(at ?? nowMs).getTime() : nowMs + afterMs;
  return !(atMs >= nowMs + minuteMs);
}
