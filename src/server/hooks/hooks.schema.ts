import { z } from "zod";
import { described, named, spec } from "../api/schema.ts";

export const hookSpecs = {
  deliver: spec({
    method: "post",
    path: "/v1/hooks/{name}",
    operationId: "deliverToHook",
    tag: "sessions",
    summary:
      "What another service tells, signed by it: a hook of the config names the session and what is said there.",
    open: true,
    bodyTypes: ["application/json", "application/x-www-form-urlencoded"],
    body: z.unknown(),
    answers: {
      200: named(
        "HookAnswer",
        z.object({
          status: described(
            z.enum(["stored", "duplicate", "ignored", "answered"]),
            "`duplicate`: the same delivery was stored before. `ignored`: the hook had nothing to say. `answered`: the sender only asked whether it is there.",
          ),
          challenge: described(
            z.string().optional(),
            "What the sender asked for, with `answered`.",
          ),
        }),
      ),
    },
    errors: ["not_found", "unauthorized", "payload_too_large", "unavailable", "internal"],
  }),
} as const;
