import { z } from "zod";
import { content, described, named, spec, time } from "../schema.ts";
import { done, id, sessionErrors, sessionPath, stored } from "../sessions.schema.ts";

const tag = "sessions";
const at = sessionPath;
const wakeSchema = named(
  "Wake",
  z.object({
    key: z.string(),
    agent: z.string(),
    atMs: described(z.int(), "When the agent is asked next. Past while that is late."),
    cron: z.string().optional(),
    timezone: z.string().optional(),
    preview: content("parts", z.string()).optional(),
    author: z.string(),
    setAtMs: time(),
    setSeq: described(z.int(), "The entry that says that it was set."),
  }),
  "A time at which a session's agent is asked.",
);
const wakeSet = named(
  "WakeSet",
  z.object({ key: z.string(), atMs: time(), seq: z.int(), duplicate: z.boolean() }),
);
const wakeKey = () => z.string().min(1).max(100);

export const wakeSpecs = {
  setWake: spec({
    method: "post",
    path: `${at}/wakes`,
    operationId: "setWake",
    tag,
    summary:
      "Have an agent asked at a time, or again and again. Another one with the same key takes its place.",
    // As a message's: what a wake asks is said in the name of its author.
    verb: "sessions:write",
    body: named(
      "NewWake",
      z.strictObject({
        key: described(wakeKey(), "Names it in its session."),
        at: described(
          z.union([z.number(), z.string().max(100)]),
          "When, as milliseconds since 1970 or as in RFC 3339. A time that is over is due at once.",
        ).optional(),
        afterMs: described(z.number().min(0), "How long from now.").optional(),
        cron: described(
          z.string().max(200),
          "A pattern as of a schedule. At least a minute is between its times.",
        ).optional(),
        timezone: described(
          z.string().max(100),
          "The zone of the pattern. Default UTC.",
        ).optional(),
        message: described(
          z.string().min(1).max(2_000),
          "What the agent is asked. Without it the agent gets the conversation as it is.",
        ).optional(),
        to: described(id(), "The agent, where there are several.").optional(),
        id: id().optional(),
        author: described(id(), "The author, where the caller isn't a user.").optional(),
      }),
      "Exactly one of `at`, `afterMs` and `cron` is given.",
    ),
    answers: { 200: wakeSet, 201: wakeSet },
    errors: [...stored, "invalid_schedule"],
  }),
  wakes: spec({
    method: "get",
    path: `${at}/wakes`,
    operationId: "listWakes",
    tag,
    summary: "The wakes that are set in a session, the next one first. There are at most 20.",
    verb: "sessions:read",
    or: "fleet:read",
    answers: { 200: named("Wakes", z.object({ wakes: z.array(wakeSchema) })) },
    errors: sessionErrors,
  }),
  cancelWake: spec({
    method: "delete",
    path: `${at}/wakes/{key}`,
    operationId: "cancelWake",
    tag,
    summary: "Cancel a wake. `done` is false if none of this key is set.",
    verb: "sessions:write",
    or: "fleet:operate",
    answers: { 200: done },
    errors: sessionErrors,
  }),
};
