import { z } from "zod";
import {
  described,
  json,
  label,
  named,
  next,
  pageLimit,
  paging,
  shortText,
  spec,
  time,
} from "../schema.ts";
import { taskFilterBody, taskStatus } from "./task-filter.schema.ts";

const action = z.enum(["cancel", "retry", "delete", "signal", "resume"]);

const request = {
  action,
  filter: named(
    "BulkFilter",
    z.strictObject(taskFilterBody),
    "Which tasks and runs are meant: those that match all that is given, which must be something.",
  ),
  fromStart: described(
    z.boolean(),
    "Of `retry`: `true` forgets stored steps, so that all of them run again.",
  ).optional(),
  signal: described(shortText(), "Of `signal`: its name.").optional(),
  payload: json("Of `signal`: what it carries.").optional(),
  as: described(
    z.int().min(1).max(1_000_000_000),
    "Of `resume`: hands runs that a later version of the flow has advanced to this version.",
  ).optional(),
};

const bulkBody = named(
  "BulkBody",
  z.strictObject({
    ...request,
    reason: described(z.string().min(1).max(500), "The reason, for the audit.").optional(),
  }),
);

const bulk = named(
  "Bulk",
  z.object({
    bulkId: described(z.string(), "Also in the events of what it has changed, and in the audit."),
    action,
    filter: z.object(taskFilterBody),
    fromStart: z.boolean(),
    signal: z.string().nullable(),
    as: z.int().nullable(),
    state: z.enum(["running", "done", "stopped"]),
    matched: described(z.int(), "How many matched when it began, counted to 10,000."),
    isExact: described(z.boolean(), "False if more may have matched."),
    done: z.int(),
    skipped: described(z.int(), "Not as they were seen when it came to them."),
    refused: described(z.int(), "As they were seen, but the act wasn't possible."),
    lastTaskId: described(z.string().nullable(), "The last id that it has gone through."),
    createdBy: described(z.string().nullable(), "The actor, as the audit names it."),
    reason: label(z.string()).nullable(),
    createdAtMs: time(),
    updatedAtMs: time(),
  }),
  "One act on all tasks and runs that match a filter. The leader does it.",
);

const tag = "bulk";
const refusals = ["invalid_input", "invalid_option", "payload_too_large", "unsupported"] as const;

export const bulkSpecs = {
  preview: spec({
    method: "post",
    path: "/v1/bulk/preview",
    operationId: "previewBulk",
    tag,
    summary: "How many tasks and runs an act on a filter would be for. Changes nothing.",
    verb: "fleet:read",
    ofTenant: true,
    body: bulkBody,
    answers: {
      200: named(
        "BulkPreview",
        z.object({
          matched: described(z.int(), "Counted to 10,000."),
          isExact: described(z.boolean(), "False if there may be more."),
          sample: described(z.array(z.string()).readonly(), "The ids of the first of them."),
        }),
      ),
    },
    errors: refusals,
  }),
  start: spec({
    method: "post",
    path: "/v1/bulk",
    operationId: "startBulk",
    tag,
    summary:
      "Cancel, retry, delete, signal or resume all tasks and runs that match. The leader does it. `delete` needs `admin`.",
    verb: "fleet:operate",
    ofTenant: true,
    body: bulkBody,
    answers: { 202: bulk },
    errors: [...refusals, "conflict", "payload_not_storable", "payload_too_deep", "overloaded"],
  }),
  list: spec({
    method: "get",
    path: "/v1/bulk",
    operationId: "listBulks",
    tag,
    summary: "A page of bulks, newest first.",
    verb: "fleet:read",
    ofTenant: true,
    query: z.strictObject({
      cursor: paging.cursor,
      limit: pageLimit("20"),
      tenant: described(z.string(), "Only those on this tenant's tasks alone.").optional(),
    }),
    answers: { 200: named("Bulks", z.object({ bulks: z.array(bulk), next })) },
    errors: ["invalid_option"],
  }),
  get: spec({
    method: "get",
    path: "/v1/bulk/{bulkId}",
    operationId: "getBulk",
    tag,
    summary: "A bulk and its progress.",
    verb: "fleet:read",
    ofTenant: true,
    answers: { 200: bulk },
    errors: ["not_found"],
  }),
  outcomes: spec({
    method: "get",
    path: "/v1/bulk/{bulkId}/outcomes",
    operationId: "getBulkOutcomes",
    tag,
    summary: "What became of each task and run that a bulk names by `ids`.",
    verb: "fleet:read",
    ofTenant: true,
    answers: {
      200: named(
        "BulkOutcomes",
        z.object({
          outcomes: described(
            z.array(
              z.object({
                taskId: z.string(),
                outcome: described(
                  z.enum(["done", "waiting", "left", "gone"]),
                  "`waiting` until the bulk has come to it, `left` if it had changed or the act wasn't possible.",
                ),
                status: described(taskStatus.nullable(), "Its status of now; null if it is gone."),
              }),
            ),
            "Empty for a filter without `ids`.",
          ),
        }),
      ),
    },
    errors: ["not_found"],
  }),
  stop: spec({
    method: "post",
    path: "/v1/bulk/{bulkId}/stop",
    operationId: "stopBulk",
    tag,
    summary: "Stop a bulk. What it has done stays done.",
    verb: "fleet:operate",
    ofTenant: true,
    answers: { 200: bulk },
    errors: ["not_found", "conflict"],
  }),
};
