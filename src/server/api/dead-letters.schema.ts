import { z } from "zod";
import { content, named, next, pageLimit, paging, described, spec, time } from "./schema.ts";

const message = () => content("error", z.string(), { as: "message" });

const ofTenant = described(z.string(), "Only those of this tenant.").optional();

const selection = {
  group: z.string().optional(),
  taskId: z.string().optional(),
  name: z.string().optional(),
  all: z.literal(true).optional(),
  tenant: ofTenant,
};

const selectionBody = named(
  "Selection",
  z.strictObject(selection),
  "Failed tasks: exactly one of `group`, `taskId`, `name` and `all`.",
);

const states = z.enum(["open", "resolved", "ignored"]);

const standing = {
  state: states,
  stateAtMs: described(z.int().nullable(), "Since when; null if it has been open from the first."),
  untilMs: described(
    z.int().nullable(),
    "Until when it is ignored; null if that is until a task of it fails.",
  ),
  firstSeenMs: described(time(), "When the first task of it failed, also if that is gone."),
  cameBackAtMs: described(
    z.int().nullable(),
    "When a task of it failed though it was resolved or ignored.",
  ),
};

const changedGroup = named("ChangedGroup", z.object({ group: z.string(), ...standing }));

const errorGroup = named(
  "ErrorGroup",
  z.object({
    group: z.string(),
    name: z.string(),
    code: z.string(),
    message: described(message(), "The message of the latest."),
    tasks: z.int(),
    firstAtMs: time(),
    lastAtMs: time(),
    taskIds: described(z.array(z.string()).readonly(), "Some of its tasks, the latest first."),
    ...standing,
    trend: described(
      z.array(z.int()).readonly(),
      "How many of its tasks failed in each of the last 24 hours by the clock, the present one last.",
    ),
  }),
);

const deadLetter = named(
  "DeadLetter",
  z.object({
    taskId: z.string(),
    name: z.string(),
    tenant: z.string(),
    group: described(z.string(), "The group of its error."),
    code: z.string(),
    message: message(),
    failures: z.int(),
    deaths: z.int(),
    failedAtMs: time(),
    redriveId: described(z.string().nullable(), "The last redrive that started it over."),
    token: z.int(),
  }),
  "A failed task.",
);

const redrive = named(
  "Redrive",
  z.object({
    redriveId: z.string(),
    selection: z.object(selection),
    state: z.enum(["running", "stopping", "done", "stopped", "cancelled"]),
    reason: described(
      z
        .object({
          code: z.enum(["same_error", "other_errors", "cancelled"]),
          message: message(),
          taskId: z.string().optional(),
        })
        .nullable(),
      "Why it starts no more tasks over.",
    ),
    step: z.int(),
    stepSize: z.int(),
    maxStep: z.int(),
    fromStart: z.boolean(),
    forgottenSteps: described(z.int(), "How many stored steps it has forgotten."),
    taken: described(z.int(), "Tasks that it has started over."),
    succeeded: z.int(),
    failed: described(z.int(), "Failed again with the same error."),
    failedOtherwise: described(z.int(), "Failed again with another error."),
    gone: described(z.int(), "Cancelled, or deleted before they could be counted."),
    open: described(z.int(), "Not ended yet."),
    remaining: described(z.int().nullable(), "How many were left when it last counted."),
    createdAtMs: time(),
    updatedAtMs: time(),
  }),
);

const tag = "dead letters";
const refusals = ["invalid_input", "invalid_option", "payload_too_large", "unsupported"] as const;

export const deadLetterSpecs = {
  groups: spec({
    method: "get",
    path: "/v1/dlq/groups",
    operationId: "listErrorGroups",
    tag,
    summary: "Failed tasks grouped by their errors, the largest group first.",
    verb: "fleet:read",
    ofTenant: true,
    query: z.strictObject({
      name: z.string().optional(),
      tenant: ofTenant,
      state: described(states, "Default: all that aren't ignored.").optional(),
      limit: paging.limit,
    }),
    answers: {
      200: named(
        "ErrorGroups",
        z.object({
          groups: z.array(errorGroup).readonly(),
          count: z.int(),
          tasks: z.int(),
          ignored: described(
            z.object({ groups: z.int(), tasks: z.int() }),
            "The groups that are ignored, and their tasks.",
          ),
        }),
      ),
    },
    errors: ["invalid_option"],
  }),
  resolve: spec({
    method: "post",
    path: "/v1/dlq/groups/{group}/resolve",
    operationId: "resolveErrorGroup",
    tag,
    summary: "Say that the error of a group is fixed. It is open again when a task of it fails.",
    verb: "fleet:operate",
    answers: { 200: changedGroup },
    errors: ["invalid_option", "not_found", "overloaded"],
  }),
  ignore: spec({
    method: "post",
    path: "/v1/dlq/groups/{group}/ignore",
    operationId: "ignoreErrorGroup",
    tag,
    summary: "Leave a group out of lists, until a task of it fails or until a time.",
    verb: "fleet:operate",
    body: named(
      "IgnoreBody",
      z.strictObject({
        untilMs: described(
          z.int().min(0).max(8.64e15),
          "Milliseconds since 1970. Default: until a task of it fails.",
        ).optional(),
      }),
    ),
    bodyOptional: true,
    answers: { 200: changedGroup },
    errors: [...refusals, "not_found", "overloaded"],
  }),
  reopen: spec({
    method: "post",
    path: "/v1/dlq/groups/{group}/reopen",
    operationId: "reopenErrorGroup",
    tag,
    summary: "Take back that a group was resolved or ignored.",
    verb: "fleet:operate",
    answers: { 200: changedGroup },
    errors: ["invalid_option", "not_found", "overloaded"],
  }),
  tasks: spec({
    method: "get",
    path: "/v1/dlq/tasks",
    operationId: "listDeadLetters",
    tag,
    summary: "A page of failed tasks, the latest first.",
    verb: "fleet:read",
    ofTenant: true,
    query: z.strictObject({
      group: z.string().optional(),
      name: z.string().optional(),
      tenant: ofTenant,
      ...paging,
    }),
    answers: { 200: named("DeadLetterPage", z.object({ tasks: z.array(deadLetter), next })) },
    errors: ["invalid_option"],
  }),
  discard: spec({
    method: "post",
    path: "/v1/dlq/discard",
    operationId: "discardDeadLetters",
    tag,
    summary: "Discard failed tasks: they become cancelled and keep their errors.",
    verb: "admin",
    body: selectionBody,
    answers: { 200: named("Discarded", z.object({ discarded: z.int() })) },
    errors: [...refusals, "not_found", "conflict"],
  }),
  redrive: spec({
    method: "post",
    path: "/v1/dlq/redrives",
    operationId: "startRedrive",
    tag,
    summary: "Start failed tasks over: first one, then in growing steps. The leader does it.",
    verb: "fleet:operate",
    ofTenant: true,
    body: named(
      "RedriveBody",
      z.strictObject({
        ...selection,
        maxStep: described(z.int().min(1).max(1_000), "The largest step. Default 256.").optional(),
        fromStart: described(
          z.boolean(),
          "`true` forgets the stored steps of its tasks, so that all of them run again.",
        ).optional(),
      }),
      "Exactly one of `group`, `taskId`, `name` and `all`.",
    ),
    answers: { 202: redrive },
    errors: [...refusals, "not_found", "conflict", "overloaded"],
  }),
  redrives: spec({
    method: "get",
    path: "/v1/dlq/redrives",
    operationId: "listRedrives",
    tag,
    summary: "A page of redrives, newest first.",
    verb: "fleet:read",
    ofTenant: true,
    query: z.strictObject({
      cursor: paging.cursor,
      limit: pageLimit("20"),
      tenant: described(z.string(), "Only those of this tenant's tasks alone.").optional(),
    }),
    answers: { 200: named("Redrives", z.object({ redrives: z.array(redrive), next })) },
    errors: ["invalid_option"],
  }),
  getRedrive: spec({
    method: "get",
    path: "/v1/dlq/redrives/{redriveId}",
    operationId: "getRedrive",
    tag,
    summary: "A redrive and its progress.",
    verb: "fleet:read",
    ofTenant: true,
    answers: { 200: redrive },
    errors: ["not_found"],
  }),
  cancelRedrive: spec({
    method: "post",
    path: "/v1/dlq/redrives/{redriveId}/cancel",
    operationId: "cancelRedrive",
    tag,
    summary: "Stop a redrive from starting more tasks over. Those it has started go on.",
    verb: "fleet:operate",
    ofTenant: true,
    answers: { 202: redrive },
    errors: ["not_found", "conflict"],
  }),
};
