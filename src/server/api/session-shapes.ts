import { z } from "zod";
import { json, named, said, time } from "./schema.ts";

const state = named(
  "SessionState",
  z.union([
    z.object({ state: z.literal("idle") }),
    z.object({
      state: said(
        z.enum(["catching_up", "waiting"]),
        "`waiting`: its agent isn't asked before the agent's throttle has a permit.",
      ),
      epoch: z.int(),
      attempt: z.int(),
      agent: z.string(),
      messageId: z.string(),
      upToSeq: said(z.int(), "What was said up to here is being answered."),
      stopping: z.boolean(),
    }),
    z.object({ state: z.literal("compacting"), epoch: z.int() }),
  ]),
  "What goes on in a session right now.",
);

export const session = named(
  "Session",
  z.object({
    sessionId: z.string(),
    tenant: z.string(),
    agents: said(z.array(z.string()), "Who answers; the first where a message names none."),
    users: z.array(z.string()),
    status: z.enum(["active", "archived"]),
    state,
    lastSeq: z.int(),
    tokens: said(z.number(), "Tokens since the last summary."),
    needsCompaction: z.boolean(),
    metadata: json(),
    metadataVersion: z.int(),
    preview: z.string(),
    previewAuthor: z.string(),
    createdAtMs: time(),
    activeAtMs: time(),
  }),
);

export const role = () => z.enum(["system", "user", "assistant"]);
export const part = () => said(z.unknown(), "A part of a message, as the AI SDK has it.");

export const entry = named(
  "Entry",
  z.object({
    seq: said(z.int(), "Its place in the session: 1…n without gaps."),
    kind: z.enum(["message", "tool_result", "summary", "stop"]),
    role: role(),
    author: z.string(),
    messageId: z.string(),
    replaces: said(z.int(), "The entry in whose place this one is shown.").optional(),
    epoch: z.int().optional(),
    upToSeq: said(z.int(), "Of an answer: the last entry that it answers.").optional(),
    outcome: z.enum(["completed", "stopped", "cut", "failed"]).optional(),
    error: z.object({ code: z.string(), message: z.string() }).optional(),
    tokens: z.number(),
    parts: z.array(part()),
    metadata: json().optional(),
    results: z
      .object({ messageId: z.string(), results: z.array(said(z.unknown(), "A tool's result.")) })
      .optional(),
    throughSeq: z.int().optional(),
    stop: said(
      z.object({
        epoch: z.int(),
        messageId: z.string(),
        by: said(z.enum(["user", "key", "program"]), "What its author is."),
      }),
      "Of a `stop`: the turn that was stopped, and the message that it made.",
    ).optional(),
    atMs: time(),
  }),
  "One entry of a session's log.",
);

export const sent = named(
  "Sent",
  z.object({
    seq: z.int(),
    messageId: z.string(),
    duplicate: said(z.boolean(), "It was stored before, under the same id."),
  }),
);

export const inboxItem = named(
  "InboxItem",
  z.object({
    sessionId: z.string(),
    agents: z.array(z.string()),
    status: z.enum(["active", "archived"]),
    state: z.enum(["idle", "catching_up", "waiting", "compacting"]),
    lastSeq: z.int(),
    readSeq: z.int(),
    unread: z.int(),
    preview: z.string(),
    previewAuthor: z.string(),
    activeAtMs: time(),
  }),
);
