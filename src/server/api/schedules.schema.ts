import { z } from "zod";
import { yearMs } from "../../base/durations.ts";
import {
  content,
  json,
  label,
  named,
  next,
  paging,
  described,
  sourced,
  spec,
  taskName,
  time,
} from "./schema.ts";
import { optionSchema } from "./tasks.schema.ts";

const missed = z.enum(["once", "skip", "all"]);

const taskOptions = {
  priority: optionSchema("priority").optional(),
  attempts: optionSchema("attempts").optional(),
  tenant: optionSchema("tenant").optional(),
};

const schedule = named(
  "Schedule",
  sourced(
    z.object({
      scheduleId: z.string(),
      name: described(z.string(), "The name of the tasks that it enqueues."),
      pattern: described(z.string().nullable(), "A cron pattern; null where it has an interval."),
      zone: described(z.string().nullable(), "The time zone of the pattern."),
      everyMs: described(z.int().nullable(), "The interval; null where it has a pattern."),
      input: content("input", json()),
      options: z.object({ ...taskOptions, concurrencyKey: label(z.string()).optional() }),
      missed,
      state: z.enum(["active", "paused", "ended", "broken"]),
      revision: described(z.int(), "Rises with every change of the schedule."),
      nextAtMs: time().nullable(),
      lastAtMs: time().nullable(),
      lastTaskId: z.string().nullable(),
      error: described(label(z.string()).nullable(), "Why it is `broken`."),
      createdAtMs: time(),
      updatedAtMs: time(),
      noWorker: described(z.boolean(), "Whether no live pod has a handler for its tasks."),
    }),
    { contract: "name" },
  ),
);

const firing = named(
  "ScheduleFiring",
  z.object({
    taskId: z.string(),
    name: z.string(),
    tenant: z.string(),
    status: z.enum(["pending", "claimed", "completed", "failed", "cancelled"]),
    scheduledAtMs: described(time().nullable(), "Null where it was fired by hand."),
    createdAtMs: time(),
    lagMs: described(z.int().nullable(), "How much later than its time it was made."),
    endedAtMs: time().nullable(),
    failures: z.int(),
    skipped: described(
      z.int().nullable(),
      "How many times came since the firing before and got no task: missed, or paused. Null where unknown.",
    ),
  }),
  "A task that a schedule has made.",
);

const scheduleAnswer = named("ScheduleShown", z.object({ schedule }));
const tag = "schedules";

export const scheduleSpecs = {
  list: spec({
    method: "get",
    path: "/v1/schedules",
    operationId: "listSchedules",
    tag,
    summary: "A page of schedules, in order of their ids.",
    verb: "fleet:read",
    query: z.strictObject(paging),
    answers: { 200: named("SchedulePage", z.object({ schedules: z.array(schedule), next })) },
    errors: ["invalid_option"],
  }),
  get: spec({
    method: "get",
    path: "/v1/schedules/{scheduleId}",
    operationId: "getSchedule",
    tag,
    summary: "A schedule, and its next times.",
    verb: "fleet:read",
    answers: {
      200: named("ScheduleWithTimes", z.object({ schedule, upcomingMs: z.array(time()) })),
    },
    errors: ["not_found", "invalid_schedule"],
  }),
  firings: spec({
    method: "get",
    path: "/v1/schedules/{scheduleId}/firings",
    operationId: "listFirings",
    tag,
    summary: "The tasks that a schedule has made, newest first, as long as they are kept.",
    verb: "fleet:read",
    query: z.strictObject(paging),
    answers: { 200: named("FiringPage", z.object({ firings: z.array(firing), next })) },
    errors: ["not_found", "invalid_option", "invalid_schedule"],
  }),
  put: spec({
    method: "put",
    path: "/v1/schedules/{scheduleId}",
    operationId: "putSchedule",
    tag,
    summary: "Create or replace a schedule, with a pattern or an interval.",
    verb: "admin",
    body: named(
      "ScheduleBody",
      z.strictObject({
        name: taskName(),
        input: json("What its tasks get. Default null.").optional(),
        pattern: described(
          z.string(),
          "Cron: minute, hour, day of month, month, day of week.",
        ).optional(),
        zone: described(z.string(), "The time zone of the pattern. Default `UTC`.").optional(),
        everyMs: described(z.int().min(1_000).max(yearMs), "Instead of a pattern.").optional(),
        missed: described(
          missed,
          "What to do for times that were missed. Default `once`.",
        ).optional(),
        options: z
          .strictObject({
            ...taskOptions,
            concurrencyKey: optionSchema("concurrencyKey").optional(),
          })
          .optional(),
      }),
    ),
    answers: { 200: scheduleAnswer },
    errors: [
      "invalid_input",
      "invalid_option",
      "invalid_schedule",
      "payload_not_storable",
      "payload_too_deep",
      "payload_too_large",
      "unsupported",
    ],
  }),
  remove: spec({
    method: "delete",
    path: "/v1/schedules/{scheduleId}",
    operationId: "removeSchedule",
    tag,
    summary: "Remove a schedule. Its tasks stay.",
    verb: "admin",
    answers: { 200: named("ScheduleRemoved", z.object({ removed: z.literal(true) })) },
    errors: ["not_found", "invalid_schedule"],
  }),
  pause: spec({
    method: "post",
    path: "/v1/schedules/{scheduleId}/pause",
    operationId: "pauseSchedule",
    tag,
    summary: "Pause a schedule until it is resumed.",
    verb: "fleet:operate",
    answers: { 200: scheduleAnswer },
    errors: ["not_found", "invalid_schedule"],
  }),
  resume: spec({
    method: "post",
    path: "/v1/schedules/{scheduleId}/resume",
    operationId: "resumeSchedule",
    tag,
    summary: "Resume a schedule, from its next time after now.",
    verb: "fleet:operate",
    answers: { 200: scheduleAnswer },
    errors: ["not_found", "invalid_schedule"],
  }),
  fire: spec({
    method: "post",
    path: "/v1/schedules/{scheduleId}/fire",
    operationId: "fireSchedule",
    tag,
    summary: "Enqueue a task of a schedule now, in addition to its times.",
    verb: "fleet:operate",
    answers: { 201: named("ScheduleFired", z.object({ taskId: z.string() })) },
    errors: ["not_found", "invalid_schedule", "conflict"],
  }),
};
