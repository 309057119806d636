import { z } from "zod";
import {
  described,
  entryPart,
  json,
  named,
  next,
  paging,
  spec,
  taskName,
  wholeNumber,
} from "../schema.ts";
import {
  id,
  seqText,
  sessionErrors as found,
  sessionPath as at,
  stored,
} from "../sessions.schema.ts";
import { sessionSchema } from "./session.schema.ts";

const tag = "sessions";
const forkFields = {
  id: described(id(), "The id of the new session. Default: a fresh one.").optional(),
  agents: described(
    z.array(taskName()).max(16),
    "Default: those of the session that is forked.",
  ).optional(),
  users: described(z.array(id()).max(100), "Its members besides the caller.").optional(),
  metadata: described(json(), "Of the new session. Default: none.").optional(),
};
const edited = z.object({
  session: sessionSchema,
  seq: z.int(),
  messageId: z.string(),
  duplicate: described(z.boolean(), "It was stored before with the same id."),
});

/** Sessions that begin with entries of others. */
export const forkSpecs = {
  fork: spec({
    method: "post",
    path: `${at}/fork`,
    operationId: "forkSession",
    tag,
    summary:
      "Create a session that begins with the same entries up to `atSeq`, shared and not copied. Asking again with the same `id` returns the same one.",
    verb: "sessions:create",
    body: named(
      "ForkBody",
      z.strictObject({
        atSeq: described(z.int().min(0), "The last entry that both have; 1 at least."),
        ...forkFields,
      }),
    ),
    answers: { 201: sessionSchema },
    errors: stored,
  }),
  edit: spec({
    method: "post",
    path: `${at}/edit`,
    operationId: "editMessage",
    tag,
    summary:
      "Fork before a user's message, and say it anew there: both are stored, or neither. With an `id`, sending it again changes nothing.",
    verb: "sessions:create",
    body: named(
      "EditBody",
      z.strictObject({
        messageId: described(id(), "The message, which has the same id in the fork."),
        parts: z.array(entryPart()).max(1_000),
        author: described(id(), "The author, where the caller isn't a user.").optional(),
        messageMetadata: described(json(), "Metadata of the message.").optional(),
        ...forkFields,
      }),
    ),
    answers: {
      200: named("Edited", edited),
      201: named("Edited", edited),
    },
    errors: stored,
  }),
  forks: spec({
    method: "get",
    path: `${at}/forks`,
    operationId: "listForks",
    tag,
    summary: "A page of a session's forks, in the order of their places.",
    verb: "sessions:read",
    or: "fleet:read",
    query: z.strictObject({
      atSeq: described(seqText(), "Only those of this place.").optional(),
      cursor: paging.cursor,
      limit: described(wholeNumber({ min: 1, max: 200 }), "Default 50.").optional(),
    }),
    answers: { 200: named("Forks", z.object({ forks: z.array(sessionSchema), next })) },
    errors: found,
  }),
} as const;
