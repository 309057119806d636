import { z } from "zod";
import { content, described, json, named, sourced, time } from "../schema.ts";

const state = named(
  "SessionState",
  z.union([
    z.object({ state: z.literal("idle") }),
    z.object({
      state: described(
        z.enum(["catching_up", "waiting"]),
        "`waiting`: the turn waits for a permit of the agent's throttle.",
      ),
      epoch: z.int(),
      attempt: z.int(),
      agent: z.string(),
      messageId: z.string(),
      upToSeq: described(z.int(), "The turn answers the entries up to this one."),
      stopping: z.boolean(),
    }),
    z.object({ state: z.literal("compacting"), epoch: z.int() }),
  ]),
  "What a session does right now.",
);

export const sessionSchema = named(
  "Session",
  sourced(
    z.object({
      sessionId: z.string(),
      tenant: z.string(),
      agents: described(
        z.array(z.string()),
        "The agents that answer; the first where a message names none.",
      ),
      users: z.array(z.string()),
      status: z.enum(["active", "archived"]),
      state,
      parent: described(
        z.object({ sessionId: z.string(), atSeq: z.int() }),
        "The session that it was forked from: its entries up to `atSeq` are that one's.",
      ).optional(),
      lastSeq: z.int(),
      tokens: described(z.number(), "Tokens since the last summary."),
      needsCompaction: z.boolean(),
      metadata: content("metadata", json()),
      metadataVersion: z.int(),
      preview: content("preview", z.string()),
      previewAuthor: z.string(),
      createdAtMs: time(),
      activeAtMs: time(),
    }),
    { members: "users" },
  ),
);
