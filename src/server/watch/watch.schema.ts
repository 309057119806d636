import { z } from "zod";
import { described, spec } from "../api/schema.ts";

export const watchSpecs = {
  watch: spec({
    method: "get",
    path: "/v1/watch",
    operationId: "watchTopics",
    tag: "fleet",
    summary:
      "Topics as server-sent events: each as a snapshot first, then what has changed. A topic needs what its route needs.",
    verb: "fleet:read",
    ofTenant: true,
    query: z.strictObject({
      topics: described(
        z.string().min(1).max(16_384),
        "1 to 16, with commas between them: `overview,throttle:openai`.",
      ),
    }),
    answers: { 200: z.string() },
    answerType: "text/event-stream",
    errors: ["invalid_input", "invalid_option"],
  }),
};
