import { z } from "zod";
import { described, named, pageLimit, shortText, spec, time } from "../api/schema.ts";

const kinds = ["task", "run", "turn", "session"] as const;

/** Names with commas between them. */
const list = (description: string) =>
  described(z.string().min(1).max(16_384), description).optional();

const change = named(
  "Change",
  z.object({
    cursor: described(z.string(), "The `after` of a reader that has dealt with this change."),
    kind: z.enum(kinds),
    id: described(
      z.string(),
      "The id of the task, run or session; of a turn, that of its session, a slash and its epoch.",
    ),
    name: described(
      z.string().nullable(),
      "The name of the task or flow, or of the agent; null of a session without one.",
    ),
    tenant: z.string(),
    change: z.enum([
      "created",
      "completed",
      "failed",
      "cancelled",
      "retried",
      "set_aside",
      "resumed",
      "archived",
      "deleted",
    ]),
    status: described(
      z.string(),
      "As it was right after the change; of a turn that has ended, its outcome.",
    ),
    attempt: described(
      z.int(),
      "Of a turn: which attempt has ended, or 1 for a turn that begins.",
    ).optional(),
    atMs: time(),
  }),
  "That a task, a run, a turn or a session was changed.",
);

export const changeSpecs = {
  list: spec({
    method: "get",
    path: "/v1/changes",
    operationId: "listChanges",
    tag: "fleet",
    summary:
      "Changes of tasks, runs, turns and sessions, the oldest first: a page, or with `follow` or `Accept: text/event-stream` as server-sent events that go on.",
    query: z.strictObject({
      after: described(
        z.string().min(1).max(200),
        "The `cursor` of the last change or page, or `now`. Default: the oldest that is kept. `Last-Event-ID` overrides it.",
      ).optional(),
      names: list("Only of tasks, flows and agents with these names, with commas between them."),
      kinds: list("Only of these kinds, with commas between them: `task,run`."),
      tenant: shortText().optional(),
      follow: described(z.enum(["true", "false"]), "As server-sent events.").optional(),
      limit: pageLimit("100"),
    }),
    answers: {
      200: named(
        "ChangePage",
        z.object({
          changes: z.array(change),
          cursor: described(z.string(), "The `after` of the page that follows."),
          more: described(
            z.boolean(),
            "Whether there was more. A page may be empty and have more behind it.",
          ),
        }),
      ),
    },
    follows: true,
    errors: ["conflict", "cursor_expired", "invalid_input", "invalid_option"],
    verb: "fleet:read",
    ofTenant: true,
  }),
};
