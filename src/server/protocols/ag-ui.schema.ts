import { z } from "zod";
import { described, json, named, spec } from "../api/schema.ts";
import { sessionErrors } from "../api/sessions.schema.ts";

const id = () => z.string().min(1).max(200);
const maxMessages = 10_000;

const text = z.string();
const source = z.object({
  type: z.enum(["data", "url", "file"]),
  value: text,
  mimeType: text.optional(),
});
const contentPart = z.union([
  z.object({ type: z.literal("text"), text }),
  z.object({ type: z.enum(["image", "audio", "video", "document"]), source }),
]);

/** Only what is read of it: later versions of the protocol may have more. */
const message = named(
  "AgUiMessage",
  z.looseObject({
    id: text,
    role: text,
    content: described(z.unknown(), "Text, or parts.").optional(),
    toolCallId: text.optional(),
    error: text.optional(),
    toolCalls: z.array(z.looseObject({ id: text })).optional(),
  }),
);

export type AgUiMessage = z.infer<typeof message>;

/** What a user's message says. */
export const agUiContent = z.union([text, z.array(contentPart).max(1_000)]);

export const agUiSpecs = {
  run: spec({
    method: "post",
    path: "/v1/agui/{agent}",
    operationId: "runAgent",
    tag: "sessions",
    summary:
      "A run of AG-UI: says the newest message in the session `threadId`, and answers with the events of what the agent says. The same run again is no other: with `Last-Event-ID` it is told what comes after that event.",
    verb: "sessions:write",
    body: named(
      "RunAgentInput",
      z.looseObject({
        threadId: described(id(), "The session. It is made where there is none."),
        runId: id(),
        messages: z.array(message).max(maxMessages),
        tools: z.array(z.unknown()).max(1_000).optional(),
        context: z.array(z.unknown()).max(1_000).optional(),
        state: json().optional(),
        forwardedProps: json().optional(),
        resume: z
          .array(
            z.looseObject({
              interruptId: text,
              status: z.enum(["resolved", "cancelled"]),
              payload: json().optional(),
            }),
          )
          .max(100)
          .optional(),
      }),
    ),
    answers: { 200: z.string() },
    answerType: "text/event-stream",
    errors: [...sessionErrors, "payload_too_large", "payload_too_deep", "payload_not_storable"],
  }),
} as const;

export type RunAgentInput = z.infer<(typeof agUiSpecs)["run"]["body"]>;
