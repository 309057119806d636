import { z } from "zod";
import { described, label, named, next, paging, spec, time } from "../schema.ts";

const call = named(
  "ApprovalCall",
  z.object({
    messageId: z.string(),
    toolCallId: z.string(),
    tool: label(z.string()),
    signal: described(
      label(z.string()),
      "The signal that it waits for; absent for a call that is to be approved.",
    ).optional(),
    approvalId: z.string().optional(),
    sinceMs: time(),
    untilMs: described(time(), "About when it fails if nothing comes.").optional(),
  }),
  "A tool call that waits for a person.",
);

const approval = named(
  "Approval",
  z.object({
    what: z.enum(["run", "task", "session"]),
    id: z.string(),
    tenant: z.string(),
    name: described(z.string().nullable(), "Of the flow, the task or the agent."),
    sinceMs: time(),
    untilMs: described(time().nullable(), "When the first of it ends by itself."),
    signal: described(
      label(z.string()).nullable(),
      "The signal that a run or task waits for; null for a session.",
    ),
    calls: described(z.array(call).readonly(), "The calls of a session, at most 16."),
  }),
  "Something that waits for a person.",
);

export const approvalSpecs = {
  list: spec({
    method: "get",
    path: "/v1/approvals",
    operationId: "listApprovals",
    tag: "approvals",
    summary:
      "Everything that waits for a person, the nearest deadline first, then the longest waiting: runs and tasks that wait for a signal, and tool calls of sessions.",
    verb: "fleet:read",
    ofTenant: true,
    query: z.strictObject({ tenant: z.string().max(500).optional(), ...paging }),
    answers: {
      200: named(
        "ApprovalPage",
        z.object({
          approvals: z.array(approval),
          next,
          isWhole: described(
            z.boolean(),
            "False where so many wait that some that wait for a signal may be missing.",
          ),
        }),
      ),
    },
    errors: ["invalid_option"],
  }),
};
