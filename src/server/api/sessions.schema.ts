import { z } from "zod";
import { sessionSchema } from "./conversation/session.schema.ts";
import { enqueueOptions } from "./tasks.schema.ts";
import {
  asOfTime,
  content,
  json,
  named,
  next,
  nextAfter,
  paging,
  described,
  entryPart,
  entryRole,
  entrySchema,
  reach,
  sessionListing,
  spec,
  taskName,
  time,
  wholeNumber,
} from "./schema.ts";

export const id = () => z.string().min(1).max(200);
const maxStarted = 100;
const sent = named(
  "Sent",
  z.object({
    seq: z.int(),
    messageId: z.string(),
    duplicate: described(z.boolean(), "It was stored before with the same id."),
    tasks: described(
      z.array(z.object({ taskId: z.string() }).readonly()).readonly(),
      "The tasks and runs that are stored with it, in the given order.",
    ).optional(),
  }),
);

const taskToStart = named(
  "TaskToStart",
  z.strictObject({
    task: described(taskName(), "The name of a task. Either this or `flow`.").optional(),
    flow: described(taskName(), "The name of a flow, for a run of it.").optional(),
    input: json("What its handler gets. Default null.").optional(),
    ref: described(id(), "Its name for the `after` of others in the same list.").optional(),
    after: described(
      z.array(id()).max(maxStarted),
      "Others of the same list that must have ended before it runs, by their refs.",
    ).optional(),
    options: enqueueOptions
      .pick({
        priority: true,
        delayMs: true,
        runAt: true,
        attempts: true,
        concurrencyKey: true,
        key: true,
        afterFailed: true,
      })
      .optional(),
  }),
);

export type StartedBody = z.infer<typeof taskToStart>;

const inboxItem = named(
  "InboxItem",
  z.object({
    sessionId: z.string(),
    agents: z.array(z.string()),
    status: z.enum(["active", "archived"]),
    state: z.enum(["idle", "catching_up", "waiting", "compacting"]),
    lastSeq: z.int(),
    readSeq: z.int(),
    unread: z.int(),
    preview: content("preview", z.string()),
    previewAuthor: z.string(),
    activeAtMs: time(),
  }),
);

const inboxAsOf = described(
  z.number(),
  "With logs on NATS, where the database is away or more than five seconds behind: up to which time the inbox has everything, in milliseconds since 1970. Absent where it is newer.",
).optional();

const seq = () => z.int().min(0);
/** The same in a query, where everything is text. */
export const seqText = () => wholeNumber({ min: 0, max: Number.MAX_SAFE_INTEGER });
const tag = "sessions";
export const sessionPath = "/v1/sessions/{sessionId}";
const at = sessionPath;

export const sessionErrors = [
  "invalid_input",
  "invalid_option",
  "not_found",
  "conflict",
  "overloaded",
  "timeout",
  "unavailable",
  "unsupported",
] as const;
const found = sessionErrors;
const signalSent = named("SessionSignalSent", z.object({ seq: z.int(), duplicate: z.boolean() }));
export const stored = [
  ...found,
  "payload_too_large",
  "payload_too_deep",
  "payload_not_storable",
] as const;

export const done = z.object({ done: z.boolean() });
const ofUser = described(id(), "The user, where the caller isn't one.").optional();
const lastSeq = described(
  seqText(),
  "The last entry that the client has. `Last-Event-ID` overrides it. Default 0.",
).optional();

export const sessionSpecs = {
  create: spec({
    method: "post",
    path: "/v1/sessions",
    operationId: "createSession",
    tag,
    summary: "Create a session. With the id of an existing one, return that.",
    verb: "sessions:create",
    body: named(
      "CreateSessionBody",
      z.strictObject({
        sessionId: described(
          id(),
          "Default: a fresh one, which the server draws. Where the logs of sessions are on NATS and the database is away, a session is made without this alone: only the database knows whether an id from outside is new, so that one that isn't known is `store_unavailable`, and nothing that a caller says of it counts.",
        ).optional(),
        agents: z.array(taskName()).max(16).optional(),
        users: z.array(id()).max(100).optional(),
        metadata: json().optional(),
      }),
    ),
    answers: { 201: sessionSchema },
    errors: stored,
  }),
  list: spec({
    method: "get",
    path: "/v1/sessions",
    operationId: "listSessions",
    tag,
    summary: "A page of sessions, the most recently active first.",
    verb: "sessions:read",
    or: "fleet:read",
    query: z.strictObject(sessionListing),
    answers: {
      200: named(
        "Sessions",
        z.object({ sessions: z.array(sessionSchema), ...reach, asOf: asOfTime }),
      ),
    },
    errors: found,
  }),
  get: spec({
    method: "get",
    path: at,
    operationId: "getSession",
    tag,
    summary: "A session.",
    verb: "sessions:read",
    or: "fleet:read",
    answers: { 200: sessionSchema },
    errors: found,
  }),
  remove: spec({
    method: "delete",
    path: at,
    operationId: "deleteSession",
    tag,
    summary: "Delete a session and all its messages for good.",
    verb: "sessions:manage",
    answers: { 200: z.object({ status: z.literal("deleted") }) },
    errors: found,
  }),
  metadata: spec({
    method: "put",
    path: `${at}/metadata`,
    operationId: "setSessionMetadata",
    tag,
    summary: "Set a session's metadata. `If-Match` may name the version to replace.",
    verb: "sessions:manage",
    body: named(
      "SessionMetadataBody",
      z.strictObject({
        metadata: json(),
        ifVersion: described(
          seq(),
          "Refused with `conflict` where the metadata has another version.",
        ).optional(),
      }),
    ),
    answers: { 200: z.object({ metadataVersion: z.int() }) },
    errors: stored,
  }),
  members: spec({
    method: "put",
    path: `${at}/members`,
    operationId: "changeSessionMembers",
    tag,
    summary: "Change a session's users and agents.",
    verb: "sessions:manage",
    body: named(
      "SessionMembersBody",
      z.strictObject({
        addUsers: z.array(id()).max(100).optional(),
        removeUsers: z.array(id()).max(100).optional(),
        agents: described(z.array(taskName()).max(16), "All of them, in order.").optional(),
      }),
    ),
    answers: { 200: sessionSchema },
    errors: stored,
  }),
  archive: spec({
    method: "post",
    path: `${at}/archive`,
    operationId: "archiveSession",
    tag,
    summary: "Archive a session: it can be read, but nothing can be added.",
    verb: "sessions:manage",
    or: "fleet:operate",
    answers: { 200: z.object({ status: z.literal("archived") }) },
    errors: found,
  }),
  unarchive: spec({
    method: "post",
    path: `${at}/unarchive`,
    operationId: "unarchiveSession",
    tag,
    summary: "Open an archived session again.",
    verb: "sessions:manage",
    or: "fleet:operate",
    answers: { 200: z.object({ status: z.literal("active") }) },
    errors: found,
  }),
  compact: spec({
    method: "post",
    path: `${at}/compact`,
    operationId: "compactSession",
    tag,
    summary: "Summarize a session's messages.",
    verb: "sessions:manage",
    or: "fleet:operate",
    answers: { 202: done },
    errors: found,
  }),
  messages: spec({
    method: "get",
    path: `${at}/messages`,
    operationId: "listMessages",
    tag,
    summary: "Entries of a session, in order.",
    verb: "sessions:read",
    or: "fleet:read",
    query: z.strictObject({
      after: described(seqText(), "Only those after this one. Default 0.").optional(),
      limit: described(wholeNumber({ min: 1, max: 1_000 }), "Default 100.").optional(),
    }),
    answers: {
      200: named(
        "Entries",
        z.object({
          entries: z.array(entrySchema),
          next: nextAfter,
          lastSeq: z.int(),
          incarnation: z.string(),
        }),
      ),
    },
    errors: found,
  }),
  send: spec({
    method: "post",
    path: `${at}/messages`,
    operationId: "sendMessage",
    tag,
    summary: "Add a message. With an `id`, sending it again stores nothing new.",
    verb: "sessions:write",
    body: named(
      "SendMessageBody",
      z.strictObject({
        id: id().optional(),
        role: described(
          entryRole(),
          "Default `user`. Only a user's message starts a turn.",
        ).optional(),
        author: described(id(), "The author, where the caller isn't a user.").optional(),
        parts: z.array(entryPart()).max(1_000),
        metadata: json().optional(),
        to: described(taskName(), "The agent that answers, where there are several.").optional(),
        tokens: described(
          seq(),
          "The tokens it takes of a model's context. Default: an estimate.",
        ).optional(),
        tasks: described(
          z.array(taskToStart).max(maxStarted),
          "Tasks and runs that are stored in one commit with the message. They need `admin`.",
        ).optional(),
      }),
    ),
    answers: { 200: sent, 201: sent },
    errors: stored,
  }),
  toolResults: spec({
    method: "post",
    path: `${at}/tool-results`,
    operationId: "sendToolResults",
    tag,
    summary: "Send results of a message's tool calls: outputs, errors or approvals.",
    verb: "sessions:write",
    or: "fleet:operate",
    body: named(
      "ToolResultsBody",
      z.strictObject({
        id: id().optional(),
        author: described(id(), "The author, where the caller isn't a user.").optional(),
        messageId: id(),
        results: z
          .array(
            described(
              z.unknown(),
              "`toolCallId`, and `output`, `errorText` or `approved` with `approvalId` and `reason`.",
            ),
          )
          .min(1)
          .max(100),
      }),
    ),
    answers: { 200: sent, 201: sent },
    errors: stored,
  }),
  signals: spec({
    method: "post",
    path: `${at}/signals`,
    operationId: "signalSession",
    tag,
    summary:
      "Send a signal to the tool call that waits for it. Sending the same id again does nothing.",
    verb: "sessions:write",
    or: "fleet:operate",
    body: named(
      "NewSessionSignal",
      z.strictObject({
        name: described(z.string().min(1).max(200), "The name that the call waits for."),
        payload: json("The output that the call gets. Default null.").optional(),
        id: id().optional(),
        author: described(id(), "The author, where the caller isn't a user.").optional(),
      }),
    ),
    answers: { 200: signalSent, 201: signalSent },
    errors: stored,
  }),
  regenerate: spec({
    method: "post",
    path: `${at}/regenerate`,
    operationId: "regenerateMessage",
    tag,
    summary: "Regenerate an answer. Default: the last one.",
    verb: "sessions:write",
    or: "fleet:operate",
    body: named(
      "RegenerateBody",
      z.strictObject({ id: id().optional(), messageId: id().optional() }),
    ),
    bodyOptional: true,
    answers: { 202: sent },
    errors: stored,
  }),
  stop: spec({
    method: "post",
    path: `${at}/stop`,
    operationId: "stopTurn",
    tag,
    summary: "Stop the answer that is being made, and keep what it has so far.",
    verb: "sessions:write",
    or: "fleet:operate",
    query: z.strictObject({
      epoch: described(seqText(), "Only this turn. Default: whatever runs now.").optional(),
    }),
    answers: { 202: done },
    errors: found,
  }),
  read: spec({
    method: "post",
    path: `${at}/read`,
    operationId: "markRead",
    tag,
    summary: "Mark a session as read by a user up to an entry.",
    verb: "sessions:write",
    body: named("ReadBody", z.strictObject({ seq: seq(), user: ofUser })),
    answers: { 200: z.object({ seq: z.int() }) },
    errors: stored,
  }),
  exported: spec({
    method: "get",
    path: `${at}/export`,
    operationId: "exportSession",
    tag,
    summary: "The session, then all its entries, as JSON lines.",
    verb: "sessions:read",
    or: "fleet:read",
    answers: { 200: z.string() },
    answerType: "application/x-ndjson",
    errors: found,
  }),
  events: spec({
    method: "get",
    path: `${at}/events`,
    operationId: "followSession",
    tag,
    summary: "Events of a session since `lastSeq` and from now on, as server-sent events.",
    verb: "sessions:read",
    or: "fleet:read",
    query: z.strictObject({
      lastSeq,
      incarnation: id().optional(),
      lastMessageId: id().optional(),
    }),
    answers: { 200: z.string() },
    answerType: "text/event-stream",
    errors: found,
  }),
  inbox: spec({
    method: "get",
    path: "/v1/inbox",
    operationId: "getInbox",
    tag,
    summary: "A page of a user's sessions with unread counts, the most recently active first.",
    verb: "inbox:read",
    query: z.strictObject({ user: ofUser, cursor: paging.cursor }),
    answers: {
      200: named("Inbox", z.object({ sessions: z.array(inboxItem), next, asOf: inboxAsOf })),
    },
    errors: found,
  }),
  inboxEvents: spec({
    method: "get",
    path: "/v1/inbox/events",
    operationId: "followInbox",
    tag,
    summary: "A user's inbox, then its changes, as server-sent events.",
    verb: "inbox:read",
    query: z.strictObject({ user: ofUser }),
    answers: { 200: z.string() },
    answerType: "text/event-stream",
    errors: found,
  }),
  ticket: spec({
    method: "post",
    path: "/v1/tickets",
    operationId: "issueTicket",
    tag,
    summary: "Issue a ticket that opens one socket, as `/v1/socket?ticket=…`, within 30 seconds.",
    verb: "sessions:read",
    or: "fleet:read",
    answers: { 201: named("Ticket", z.object({ ticket: z.string(), expiresAtMs: time() })) },
    errors: ["overloaded"],
  }),
};
