import { z } from "zod";
import {
  content,
  described,
  json,
  label,
  named,
  next,
  paging,
  spec,
  time,
  wholeNumber,
} from "../schema.ts";

const entry = named(
  "AuditEntry",
  z.object({
    id: described(z.string(), "Also in the events of what the act has changed."),
    atMs: time(),
    actor: described(
      z.string(),
      "`key/<name>`, `user/<user>`, `local`, `program` or `cli/<user>`.",
    ),
    kind: described(z.string(), "The first part of `actor`."),
    tenant: z.string(),
    keyName: z.string().nullable(),
    user: described(z.string().nullable(), "The user itself, or whom a key acted for."),
    role: z.string().nullable(),
    address: described(z.string().nullable(), "An address, or the name of a machine."),
    action: described(z.string(), "Such as `tasks.cancel`."),
    subject: described(label(z.string()).nullable(), "The id or name of what was changed."),
    filter: content("detail", json("What was selected, where that may be many.")),
    count: described(z.int().nullable(), "How many were changed, where that is known."),
    before: content("detail", json("How it was before.")),
    after: content("detail", json("How it was afterwards.")),
    outcome: described(
      z.enum(["begun", "done", "full", "over"]),
      "`begun` while an act of several transactions goes on, or where it was cut short.",
    ),
    reason: label(z.string()).nullable(),
    actId: described(z.string().nullable(), "The id that the caller gave the act."),
  }),
  "An act of an operator or an administrator.",
);

const at = (description: string) =>
  described(wholeNumber({ min: 0, max: 8.64e14 }), description).optional();
const text = (description: string) =>
  described(z.string().min(1).max(1_000), description).optional();

export const auditSpecs = {
  list: spec({
    method: "get",
    path: "/v1/audit",
    operationId: "listAudit",
    tag: "audit",
    summary: "A page of the audit, newest first: who did what.",
    query: z.strictObject({
      actor: text("Only of this actor, such as `key/web`."),
      action: text("Only this action, such as `tasks.cancel`."),
      subject: text("Only on what has this id or name."),
      sinceMs: at("Only from this time on."),
      untilMs: at("Only up to this time."),
      ...paging,
    }),
    answers: { 200: named("AuditPage", z.object({ entries: z.array(entry), next })) },
    errors: ["invalid_input", "invalid_option"],
    verb: "admin",
  }),
};
