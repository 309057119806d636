import { z } from "zod";
import type { ErrorCode } from "../../base/errors.ts";
import type { Access } from "../auth/caller.ts";
import type { ContentName } from "../../redaction/paths.ts";

/**
 * What a route takes and answers, declared once: requests are validated against it, the compiler checks
 * handlers against it, and `/v1/openapi.json` is generated from it.
 */
export type RouteSpec = RouteShape & Needs;

/** A route that needs neither a verb nor `open` doesn't compile. */
type Needs =
  | (Access & { readonly open?: never })
  /** Needs no credentials. */
  | { readonly open: true; readonly verb?: never };

type RouteShape = {
  readonly method: "get" | "post" | "put" | "delete";
  /** As OpenAPI writes it: `/v1/tasks/{taskId}`. */
  readonly path: string;
  /** Its name in generated clients. */
  readonly operationId: string;
  readonly tag: string;
  readonly summary: string;
  readonly query?: z.ZodObject;
  readonly body?: z.ZodType;
  /** The body may be left out where all its fields are optional. */
  readonly bodyOptional?: true;
  /** The content types of the body. Default: JSON. */
  readonly bodyTypes?: readonly string[];
  /** The schemas of its answers, by status. */
  readonly answers: Readonly<Record<number, z.ZodType>>;
  /** The content type of its answer, where that isn't JSON. */
  readonly answerType?: string;
  /** It also answers with server-sent events, if it is asked for them. */
  readonly follows?: true;
  /** It may wait long for something to happen, so its handler itself reads pages in its caller's turn. */
  readonly waits?: true;
  /** Its own error codes, besides those that every route may answer. */
  readonly errors: readonly ErrorCode[];
};

/** Keeps the exact type of a declaration, which the handler is checked against. */
export function spec<const S extends RouteSpec>(declared: S): S {
  return declared;
}

type Documented = { id?: string; description?: string };

/** Names and descriptions of schemas. Not zod's global registry, which belongs to the application. */
export const documented = z.registry<Documented>();

/** Names a schema, so that the document contains it once and clients get a type of that name. */
export function named<S extends z.ZodType>(id: string, schema: S, description?: string): S {
  documented.add(schema, { id, ...(description !== undefined && { description }) });
  return schema;
}

/** Describes a field. */
export function described<S extends z.ZodType>(schema: S, description: string): S {
  documented.add(schema, { description });
  return schema;
}

/** What a field of an answer holds of what users put in, which not all callers may see. */
export type ContentMark =
  /** Redacted for all, and a shape without `payloads:read`. */
  | ({ readonly kind: "content"; readonly name: ContentName } & ContentOptions)
  /** What users or operators choose, such as a key or a reason: shown to all, without secrets. */
  | { readonly kind: "label" };

type ContentOptions = {
  /** The field that the value is, where it is shown without the object that paths name: `message`. */
  readonly as?: string;
  /** The fields of the value that are ours, and are shown where the others are shapes. */
  readonly keeps?: readonly string[];
  /** Fields of the value that hold other content: the `set` of an event holds state. */
  readonly holds?: Readonly<Record<string, ContentName>>;
};

/** Where the content of an object is from, as far as its readers depend on that. */
export type ContentSource =
  /** The field with the name of the task or flow, whose schemas may mark fields as sensitive. */
  | { readonly contract: string }
  /** The field with the users whose conversation it is: they see it as it is. */
  | { readonly members: string };

export const contents = new WeakMap<z.ZodType, ContentMark>();
export const contentSources = new WeakMap<z.ZodType, ContentSource>();

/** Marks a field that holds what users put in. */
export function content<S extends z.ZodType>(
  name: ContentName,
  schema: S,
  options: ContentOptions = {},
): S {
  contents.set(schema, { kind: "content", name, ...options });
  return schema;
}

/** Marks a field that holds what users or operators choose, and isn't content. */
export function label<S extends z.ZodType>(schema: S): S {
  contents.set(schema, { kind: "label" });
  return schema;
}

/** Names the field of an object that tells where its content is from. */
export function sourced<S extends z.ZodType>(schema: S, source: ContentSource): S {
  contentSources.set(schema, source);
  return schema;
}

/** Milliseconds since 1970. */
export const time = () => described(z.int(), "Milliseconds since 1970.");

export const json = (description = "Any JSON value.") => described(z.unknown(), description);

/** A whole number in a query, where everything is text. */
export function wholeNumber({ min, max }: { min: number; max: number }) {
  return z
    .string()
    .regex(/^-?\d{1,15}$/, "must be a whole number")
    .transform(Number)
    .pipe(z.int().min(min).max(max));
}

/** How many items a page has at most. */
export const pageLimit = (byDefault: string) =>
  described(
    wholeNumber({ min: 1, max: 1_000 }),
    `How many at most. Default ${byDefault}.`,
  ).optional();

/** Query parameters of a page. */
export const paging = {
  cursor: described(z.string().max(1_000), "The `next` of the page before.").optional(),
  limit: pageLimit("50"),
};

export const next = described(
  z.string().nullable(),
  "The cursor of the page that follows, or null.",
);

/** A time in a query. */
export const atMs = (description: string) =>
  described(wholeNumber({ min: 0, max: 2 ** 48 - 2 }), description).optional();

/** Query parameters that lists of tasks and of runs have in common. */
export const listing = {
  key: described(z.string().max(500), "The unique key. Found at once with a name.").optional(),
  pod: described(z.string().max(500), "Only those that run on this pod.").optional(),
  session: described(
    z.string().max(500),
    "Only those that turns of this session have started.",
  ).optional(),
  run: described(z.string().max(500), "Only those that this run or task has started.").optional(),
  sinceMs: atMs("Only those that were created from this time on, in milliseconds since 1970."),
  untilMs: atMs("Only those that were created up to this time."),
  ...paging,
};

/** Query parameters of a list of sessions. */
export const sessionListing = {
  user: z.string().min(1).max(500).optional(),
  agent: z.string().min(1).max(500).optional(),
  status: z.enum(["active", "archived"]).optional(),
  state: z.enum(["idle", "catching_up", "waiting", "compacting"]).optional(),
  metadata: described(
    z.string(),
    "As `metadata.<path>=<value>`: a value of the metadata, as JSON or as text. A caller that looks after sessions of others needs `payloads:read`.",
  ).optional(),
  ...paging,
};

/** Where a list has got to, in the answer of one that is searched only so far at a time. */
export const reach = {
  next: described(
    z.string().nullable(),
    "The cursor of the page that follows, or null. A page may be empty and have one.",
  ),
  lookedBackTo: described(
    z.int().nullable(),
    "Up to which time the list was searched so far, in milliseconds since 1970; null where it was to its end.",
  ),
};

/** Of a list that is read from a database which follows. */
export const asOfTime = described(
  z.number(),
  "With logs on NATS: up to which time the list has everything, in milliseconds since 1970. Absent where it has all that is stored.",
).optional();

/** Query parameters of a page of events, which are numbered. */
export const eventPaging = z.strictObject({
  after: described(
    wholeNumber({ min: 0, max: 2 ** 31 - 1 }),
    "The `next` of the page before.",
  ).optional(),
  limit: pageLimit("1,000"),
});

export const nextAfter = described(
  z.int().nullable(),
  "The `after` of the page that follows, or null.",
);

/** 1 to 500 characters, as keys and tenants are. */
export const shortText = () => z.string().min(1).max(500);

export const taskName = () =>
  described(
    z
      .string()
      .regex(
        /^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$/,
        "must be 1 to 200 letters, digits and _ . : / -, and begin with a letter, a digit or _",
      ),
    "The name of a task: 1 to 200 letters, digits and `_ . : / -`, beginning with a letter, a digit or `_`.",
  );

const linkKind = () =>
  described(
    z.enum(["session", "run", "task", "follow_up", "schedule"]),
    "What started it: a turn of a session, a run, a task's handler, a task's failure, or a schedule.",
  );

export const startedTask = named(
  "StartedTask",
  z.object({
    taskId: described(z.string(), "Of a task or a run."),
    what: linkKind(),
    name: z.string().nullable(),
    status: z.string().nullable(),
    tenant: z.string().nullable(),
    atMs: time(),
  }),
);

const linkedTask = startedTask.pick({ taskId: true, name: true, status: true, tenant: true });

export const links = named(
  "Links",
  z.object({
    startedBy: z
      .object({
        what: linkKind(),
        id: described(z.string(), "Of the session, run, task or schedule, which may be gone."),
        tenant: described(z.string().nullable(), "Null of a schedule, and of what is gone."),
        atMs: time(),
      })
      .nullable(),
    started: described(
      z.array(startedTask),
      "The tasks and runs that it has started, at most a hundred.",
    ),
    hasMore: z.boolean(),
    dependents: described(
      z.array(linkedTask),
      "The tasks and runs that come after it, at most a hundred.",
    ),
    copies: described(z.array(linkedTask), "The copies of it that were run, at most a hundred."),
  }),
  "Who started what. To a caller of one tenant: only what is of that tenant.",
);

/** What happened, of an event of a task or a run: some of its fields are ours. */
export const eventDetail = () =>
  content("detail", json(), {
    keeps: [
      "by",
      "byVersion",
      "claimedAtMs",
      "code",
      "count",
      "delayMs",
      "error",
      "followUp",
      "for",
      "from",
      "given",
      "intent",
      "next",
      "reason",
      "redriveId",
      "request",
      "retryAtMs",
      "sinceMs",
      "startedAtMs",
      "status",
      "step",
      "stored",
      "taskId",
      "times",
      "token",
      "transition",
      "type",
      "untilMs",
      "version",
      "waiting",
      "why",
    ],
    holds: { set: "state", error: "error" },
  });

const keptOfParts = ["type", "state", "toolCallId", "toolName", "id", "approval", "mediaType"];
export const entryRole = () => z.enum(["system", "user", "assistant"]);
export const entryPart = () => described(z.unknown(), "A part of a message, as the AI SDK has it.");

export const entrySchema = named(
  "Entry",
  z.object({
    seq: described(z.int(), "Its position in the session: 1…n without gaps."),
    kind: z.enum(["message", "tool_result", "summary", "stop", "wake"]),
    role: entryRole(),
    author: z.string(),
    messageId: z.string(),
    replaces: described(z.int(), "The entry in whose place this one is shown.").optional(),
    epoch: z.int().optional(),
    upToSeq: described(z.int(), "Of an answer: the last entry that it answers.").optional(),
    beganSeq: described(
      z.int(),
      "Of an answer that messages have reached while it was made: the last entry before it began.",
    ).optional(),
    outcome: z.enum(["completed", "stopped", "cut", "failed"]).optional(),
    error: content("error", z.object({ code: z.string(), message: z.string() }), {
      keeps: ["code"],
    }).optional(),
    tokens: z.number(),
    parts: z.array(content("parts", entryPart(), { keeps: keptOfParts })),
    metadata: content("metadata", json()).optional(),
    results: z
      .object({
        messageId: z.string(),
        results: z.array(
          content("results", described(z.unknown(), "A tool's result."), {
            keeps: ["toolCallId", "approved", "approvalId"],
          }),
        ),
      })
      .optional(),
    tasks: described(
      z.array(z.string()),
      "The ids of the tasks and runs stored with it.",
    ).optional(),
    throughSeq: z.int().optional(),
    stop: described(
      z.object({
        epoch: z.int(),
        messageId: z.string(),
        by: described(z.enum(["user", "key", "program"]), "What kind of caller its author is."),
      }),
      "Of a `stop`: the turn that was stopped, and the message that it made.",
    ).optional(),
    wake: described(
      z.object({
        event: z.enum(["set", "cancelled", "fired"]),
        key: z.string(),
        agent: z.string(),
        atMs: time(),
        cron: z.string().optional(),
        timezone: z.string().optional(),
      }),
      "Of a `wake`: which, and whether it was set, was cancelled, or is what the next answer follows.",
    ).optional(),
    atMs: time(),
  }),
  "One entry of a session's log.",
);
