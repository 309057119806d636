import { z } from "zod";
import { label, named, next, paging, described, spec, taskName, time } from "./schema.ts";

const paused = named(
  "Paused",
  z.object({
    name: described(z.string(), "A task's name, or `*` where everything is paused."),
    sinceMs: time(),
    reason: label(z.string()).nullable(),
    by: described(
      label(z.string()).nullable(),
      "The actor, as in the audit; null where that has no entry of it.",
    ),
  }),
);
const pauses = named("Pauses", z.object({ paused: z.array(paused) }));

const limit = named(
  "Limit",
  z.object({
    scope: described(label(z.string()), "`tenant/<tenant>` or `key/<name>/<key>`."),
    limit: described(z.int().nullable(), "How many may run at once; null where there is no limit."),
    byHand: described(z.boolean(), "Set through this API, which overrides the code."),
    running: z.int(),
    blocked: described(z.int(), "Tasks blocked by this limit."),
  }),
);
const limits = named("Limits", z.object({ limits: z.array(limit), next }));

const tenant = named(
  "Tenant",
  z.object({
    tenant: z.string(),
    limit: z.int().nullable(),
    running: z.int(),
    ready: z.int(),
    blocked: z.int(),
  }),
);

const refusals = ["invalid_input", "invalid_option", "payload_too_large", "unsupported"] as const;
const tag = "limits and pauses";

export const limitSpecs = {
  paused: spec({
    method: "get",
    path: "/v1/pauses",
    operationId: "listPauses",
    tag,
    summary: "What is paused.",
    verb: "fleet:read",
    answers: { 200: pauses },
    errors: [],
  }),
  pause: spec({
    method: "post",
    path: "/v1/pause",
    operationId: "pause",
    tag,
    summary: "Stop tasks of a name, or all, from being claimed. Running tasks go on.",
    verb: "fleet:operate",
    body: named(
      "PauseBody",
      z.strictObject({
        name: described(taskName(), "Default: everything.").optional(),
        reason: described(z.string().max(500), "The reason, for operators.").optional(),
      }),
    ),
    answers: { 200: pauses },
    errors: refusals,
  }),
  resume: spec({
    method: "post",
    path: "/v1/resume",
    operationId: "resume",
    tag,
    summary: "End the pause of a name, or of everything.",
    verb: "fleet:operate",
    body: named(
      "ResumeBody",
      z.strictObject({ name: described(taskName(), "Default: everything.").optional() }),
    ),
    answers: { 200: pauses },
    errors: refusals,
  }),
  limits: spec({
    method: "get",
    path: "/v1/limits",
    operationId: "listLimits",
    tag,
    summary: "Limits that were set or that block tasks; or the one of a scope.",
    verb: "fleet:read",
    query: z.strictObject({ scope: z.string().optional(), cursor: paging.cursor }),
    answers: { 200: limits },
    errors: ["invalid_option"],
  }),
  setLimit: spec({
    method: "put",
    path: "/v1/limits",
    operationId: "setLimit",
    tag,
    summary:
      "Set how many tasks of a scope may run at once, overriding the code; null removes the override.",
    verb: "admin",
    body: named(
      "LimitBody",
      z.strictObject({ scope: z.string(), limit: z.int().min(1).max(10_000).nullable() }),
    ),
    answers: { 200: limit },
    errors: refusals,
  }),
  tenants: spec({
    method: "get",
    path: "/v1/tenants",
    operationId: "listTenants",
    tag,
    summary: "Tenants that have a limit, or tasks that run or wait.",
    verb: "fleet:read",
    query: z.strictObject({ cursor: paging.cursor }),
    answers: { 200: named("Tenants", z.object({ tenants: z.array(tenant), next })) },
    errors: [],
  }),
};
