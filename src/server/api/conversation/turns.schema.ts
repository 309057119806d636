import { z } from "zod";
import {
  described,
  named,
  next,
  shortText,
  spec,
  startedTask,
  time,
  wholeNumber,
} from "../schema.ts";
import { sessionErrors, sessionPath } from "../sessions.schema.ts";

const usage = named(
  "Usage",
  z.object({
    input: described(z.number(), "All tokens of the input, those from a cache too."),
    output: z.number(),
    cached: z.number(),
    model: described(
      z.string().nullable(),
      "The models, the one with the most tokens first, with a comma between them.",
    ),
    cost: described(
      z.number().nullable(),
      "In the currency of the config's `prices`. Null if the price of a model isn't known.",
    ),
  }),
  "The tokens of an answer. Its metadata has the same as `usage`.",
);

const turn = named(
  "Turn",
  z.object({
    epoch: described(z.int(), "The number of the turn."),
    attempt: described(z.int(), "Rises when another pod starts the turn over."),
    agent: z.string(),
    podId: described(z.string().nullable(), "The pod that ran it. Null for a user's token."),
    beganAtMs: time(),
    firstChunkAtMs: time().nullable(),
    endedAtMs: described(time().nullable(), "Null while it is under way."),
    outcome: z
      .enum(["completed", "stopped", "cut", "failed", "dropped", "released", "lost"])
      .nullable(),
    usage: described(usage.nullable(), "Null where nothing reported any tokens."),
  }),
  "An attempt at a turn.",
);

const owner = named(
  "SessionOwner",
  z.object({
    logId: described(z.int(), "The log that the session is in, as `GET /v1/pods` lists them."),
    term: described(z.int(), "Grows with every new owner of the log."),
    podId: described(z.string().nullable(), "Null while the log is free."),
  }),
  "The pod that owns the log of a session.",
);

/** What became of a session's turns: attempts, what they started, and the pod that sees to them. */
export const turnSpecs = {
  turns: spec({
    method: "get",
    path: `${sessionPath}/turns`,
    operationId: "listTurns",
    tag: "sessions",
    summary: "Attempts at the turns of a session, the newest first, with their tokens and cost.",
    verb: "sessions:read",
    or: "fleet:read",
    query: z.strictObject({
      cursor: described(shortText(), "The `next` of the page before.").optional(),
      limit: described(wholeNumber({ min: 1, max: 1_000 }), "Default 100.").optional(),
    }),
    answers: { 200: named("Turns", z.object({ turns: z.array(turn), next })) },
    errors: sessionErrors,
  }),
  owner: spec({
    method: "get",
    path: `${sessionPath}/owner`,
    operationId: "getSessionOwner",
    tag: "sessions",
    summary: "The pod that owns the log of a session, and with it decides what is stored in it.",
    verb: "fleet:read",
    answers: { 200: owner },
    errors: sessionErrors,
  }),
  tasks: spec({
    method: "get",
    path: `${sessionPath}/tasks`,
    operationId: "listSessionTasks",
    tag: "sessions",
    summary:
      "The first hundred tasks and runs that the turns of a session have started. To a caller of one tenant: those of that tenant.",
    verb: "tasks:read",
    or: "fleet:read",
    answers: {
      200: named("StartedTasks", z.object({ started: z.array(startedTask), hasMore: z.boolean() })),
    },
    errors: sessionErrors,
  }),
};
