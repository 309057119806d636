import { z } from "zod";
import { described, entrySchema, spec } from "../api/schema.ts";
import { sessionErrors } from "../api/sessions.schema.ts";

export const durableStreamPath = "/v1/streams/sessions/{sessionId}";

export const durableStreamSpecs = {
  read: spec({
    method: "get",
    path: durableStreamPath,
    operationId: "readSessionStream",
    tag: "sessions",
    summary:
      "The entries of a session as a Durable Stream: a page, or live by long-poll or server-sent events. `Stream-Next-Offset` is where to go on.",
    verb: "sessions:read",
    or: "fleet:read",
    // Not strict: the protocol may be extended, and what an extension asks for may be ignored.
    query: z.object({
      offset: described(
        z.string().min(1).max(200),
        "A `Stream-Next-Offset`, `-1` for the beginning, or `now` for the end. Default `-1`; needed with `live`.",
      ).optional(),
      live: described(
        z.enum(["long-poll", "sse"]),
        "Wait for entries where there are none yet: once, or for a minute as server-sent events.",
      ).optional(),
      cursor: described(
        z.string().regex(/^\d{1,15}$/, "must be the `Stream-Cursor` of an answer"),
        "The `Stream-Cursor` of the answer before.",
      ).optional(),
    }),
    answers: {
      200: z.array(entrySchema),
      204: described(z.null(), "With `live=long-poll`: nothing came for 20 seconds."),
      304: described(z.null(), "With `If-None-Match`: the same as before."),
    },
    waits: true,
    follows: true,
    errors: [...sessionErrors, "cursor_expired"],
  }),
} as const;
