import { z } from "zod";
import { errorCodes } from "../../base/errors.ts";
import {
  type TaskOption,
  type TaskOptionName,
  taskOptionNames,
  taskOptions,
} from "../../protocol/task-options.ts";
import {
  content,
  eventDetail,
  eventPaging,
  json,
  label,
  links,
  named,
  nextAfter,
  described,
  paging,
  reach,
  shortText,
  sourced,
  spec,
  taskName,
  time,
} from "./schema.ts";
import { taskFilterQuery } from "./acts/task-filter.schema.ts";

const forgottenSteps = described(z.int(), "How many stored steps were forgotten.");

export const taskError = named(
  "TaskError",
  content(
    "error",
    z.object({
      code: z.string(),
      message: z.string(),
      stack: z.string().optional(),
      taskId: described(
        z.string(),
        "With `dependency_failed`: the dependency that failed.",
      ).optional(),
      by: described(
        z.enum(["system", "user"]),
        "Of a run: whose fault the error is, where the error says so.",
      ).optional(),
    }),
    { keeps: ["code", "taskId", "by"] },
  ),
  "Why a task failed. docs/errors.md lists the codes.",
);

const taskBase = {
  taskId: z.string(),
  tenant: z.string(),
  name: z.string(),
  priority: z.int(),
  payload: content("input", json()),
  key: label(z.string()).nullable(),
  createdAtMs: time(),
  updatedAtMs: time(),
  runAtMs: time(),
  scheduledAtMs: described(time().nullable(), "The time of its schedule that it was enqueued for."),
  startedAtMs: described(
    time().nullable(),
    "When the handler of its last attempt was called. Of a running task: of those that its pod has run for longest, not in lists. Null for a run.",
  ),
  failures: described(z.int(), "Attempts that have failed so far."),
  snoozes: described(z.int(), "How often it has snoozed."),
  maxAttempts: described(z.int().nullable(), "Null where the handler's own number counts."),
  deaths: described(z.int(), "Pods that died while they ran it."),
  claimToken: z.int(),
  progress: content("progress", json("The progress that it reported last.")),
  cancelRequested: z.boolean(),
  scope: described(label(z.string()).nullable(), "The scope of its concurrency limit by key."),
  waitsFor: described(z.array(z.string()).readonly(), "Its dependencies."),
  version: described(z.int().nullable(), "The highest version of its code that has stored a step."),
  flowVersion: described(
    z.int().nullable(),
    "Of a run: the highest version of its flow that has advanced it, 0 before the first. Null for a task.",
  ),
};

const taskUnion = z.discriminatedUnion("status", [
  z.object({
    ...taskBase,
    status: z.literal("pending"),
    error: taskError.nullable(),
    noWorker: described(
      z.boolean(),
      "No live pod has a handler for this name, or, of a run, none has its version or a later one.",
    ),
    paused: described(z.boolean(), "Its name, or everything, is paused."),
    blockedBy: described(label(z.string()).nullable(), "The concurrency limit that blocks it."),
    throttledBy: described(
      z
        .object({
          name: z.string(),
          key: described(
            label(z.string()).nullable(),
            "Null where the key depends on the task's input.",
          ),
          limit: described(z.int(), "How many calls all pods together may have in flight."),
          inFlight: z.int(),
          waiting: described(
            z.int(),
            "Calls and tasks that wait for a permit; tasks of a name to 10,000.",
          ),
          ahead: described(z.int(), "How many of those are ahead of the task."),
          aboutMs: described(
            z.int().nullable(),
            "An estimate of its wait, from the learned rate; null where unknown.",
          ),
        })
        .nullable(),
      "The throttle that it waits for a permit of.",
    ),
    setAside: described(
      z
        .object({
          reason: z.string(),
          message: content("error", z.string(), { as: "message" }),
          step: described(label(z.string()), "The key of the step.").optional(),
          stored: described(z.string(), "The hash of its stored input.").optional(),
          given: described(z.string(), "The hash of its present input.").optional(),
        })
        .nullable(),
      "Why no pod claims it until it is resumed.",
    ),
  }),
  z.object({
    ...taskBase,
    status: z.literal("claimed"),
    claimedBy: described(z.string(), "The pod that runs it."),
    error: taskError.nullable(),
  }),
  z.object({ ...taskBase, status: z.literal("completed"), result: content("result", json()) }),
  z.object({ ...taskBase, status: z.literal("failed"), error: taskError }),
  z.object({ ...taskBase, status: z.literal("cancelled"), error: taskError.nullable() }),
]);
export const taskSchema = named("Task", sourced(taskUnion, { contract: "name" }));

const taskEvent = named(
  "TaskEvent",
  z.object({
    seq: z.int(),
    atMs: time(),
    type: described(
      z.string(),
      "Such as `retry`, `failed`, `cancel_requested`, `pod_died`, `snoozed`.",
    ),
    attempt: z.int().nullable(),
    podId: z.string().nullable(),
    detail: eventDetail(),
  }),
  "Something that happened to a task.",
);

const stepEntry = named(
  "StepEntry",
  z.object({
    seq: z.int(),
    transition: described(z.string().nullable(), "Of a run: the transition that it is a step of."),
    key: described(label(z.string()), "The path of names that the step is found by."),
    kind: described(
      z.enum(["done", "failed", "begun", "round", "wait"]),
      "`begun` if it is called at most once and hasn't ended, `round` for a loop, `wait` for a wait.",
    ),
    token: described(z.int(), "The token of the claim that stored it."),
    startedAtMs: time(),
    atMs: time(),
    bytes: described(z.int(), "The size of its value."),
    requested: described(z.boolean(), "False if the code that completed the task has it no more."),
  }),
  "A stored step of a task, without its value.",
);

const runAt = z.union(
  [z.int().min(0), z.string()],
  "must be a time such as 2026-01-31T08:00:00Z, or milliseconds since 1970",
);

type OptionSchema<Option> = Option extends { type: "number" }
  ? z.ZodInt
  : Option extends { type: "text" }
    ? z.ZodString
    : Option extends { type: "choice"; choices: readonly (infer Choice extends string)[] }
      ? z.ZodEnum<{ [Each in Choice]: Each }>
      : Option extends { type: "ids" }
        ? z.ZodArray<z.ZodString>
        : typeof runAt;

type OptionsShape = {
  readonly [Name in TaskOptionName]: z.ZodOptional<OptionSchema<(typeof taskOptions)[Name]>>;
};

/** The schema of one option of a task, as the table of all options declares it. */
export function optionSchema<Name extends TaskOptionName>(
  name: Name,
): OptionSchema<(typeof taskOptions)[Name]> {
  const option: TaskOption<string> = taskOptions[name];
  const schema = () => {
    switch (option.type) {
      case "number":
        return z.int().min(option.min).max(option.max);
      case "text":
        return z.string().min(1).max(option.maxChars);
      case "choice":
        return z.enum(option.choices);
      case "time":
        return runAt;
      case "ids":
        return z.array(shortText()).max(option.max);
    }
  };
  return schema() as OptionSchema<(typeof taskOptions)[Name]>;
}

const optionShape = Object.fromEntries(
  taskOptionNames.map((name) => {
    const { description } = taskOptions[name];
    return [name, described<z.ZodType>(optionSchema(name), description).optional()];
  }),
) as OptionsShape;

export const enqueueOptions = named("EnqueueOptions", z.strictObject(optionShape));

export const newTask = named(
  "NewTask",
  z.strictObject({
    name: taskName(),
    input: json("What its handler gets. Default null.").optional(),
    options: enqueueOptions.optional(),
  }),
);

const enqueued = named(
  "Enqueued",
  z.object({
    taskId: z.string(),
    created: described(z.boolean(), "False where a task with that key existed already."),
    replaced: described(
      z.boolean(),
      "With `onDuplicate: replace`: whether the existing task was replaced.",
    ).optional(),
    noWorker: described(
      z.boolean(),
      "No live pod has a handler for this name: the task waits until one does.",
    ).optional(),
  }),
);

const counts = {
  rows: z.int(),
  created: z.int(),
  existing: z.int(),
  replaced: z.int(),
  rejected: z.int(),
};

const rowOutcome = named(
  "RowOutcome",
  z.discriminatedUnion("outcome", [
    z.object({
      index: described(z.int(), "Its index among the rows, from 0."),
      outcome: z.enum(["created", "existing", "replaced"]),
      taskId: z.string(),
    }),
    z.object({
      index: z.int(),
      outcome: z.literal("rejected"),
      code: z.enum(errorCodes),
      message: z.string(),
      details: z.record(z.string(), z.unknown()).readonly().optional(),
    }),
  ]),
);

export const graphRow = named(
  "GraphRow",
  z.strictObject({
    ref: described(shortText(), "Its name for the other rows' `after`, and its key in the answer."),
    name: taskName(),
    input: json("What its handler gets. Default null.").optional(),
    after: described(
      z.array(shortText()).max(1_000),
      "Refs of this request, or ids of existing tasks.",
    ).optional(),
    options: enqueueOptions.omit({ after: true }).optional(),
  }),
);

const tag = "tasks";
const refusals = [
  "invalid_input",
  "invalid_option",
  "payload_not_storable",
  "payload_too_deep",
  "payload_too_large",
  "unsupported",
] as const;

export const taskSpecs = {
  enqueue: spec({
    method: "post",
    path: "/v1/tasks",
    operationId: "enqueueTask",
    tag,
    summary: "Store a task. 200 where one with that key existed already.",
    verb: "admin",
    body: newTask,
    answers: { 200: enqueued, 201: enqueued },
    errors: [...refusals, "duplicate_key", "not_found"],
  }),
  bulk: spec({
    method: "post",
    path: "/v1/tasks/bulk",
    operationId: "enqueueTasks",
    tag,
    summary:
      "Store up to 100,000 tasks, each on its own, and return the outcome of each. As NDJSON, one per line, or as an array.",
    verb: "admin",
    body: z.array(newTask),
    bodyTypes: ["application/json", "application/x-ndjson"],
    answers: {
      200: named(
        "BulkResult",
        z.object({
          ...counts,
          outcomes: z.array(rowOutcome).readonly(),
          noWorker: described(
            z.array(z.string()),
            "Names of stored tasks that no live pod has a handler for: they wait until one does.",
          ),
        }),
      ),
    },
    errors: ["invalid_input", "payload_too_large", "unsupported", "cancelled"],
  }),
  graph: spec({
    method: "post",
    path: "/v1/tasks/graph",
    operationId: "enqueueGraph",
    tag,
    summary: "Store tasks that may depend on each other, all or none.",
    verb: "admin",
    body: named("GraphBody", z.strictObject({ tasks: z.array(graphRow).max(10_000) })),
    answers: {
      201: named(
        "GraphResult",
        z.object({ tasks: described(z.record(z.string(), enqueued), "By their refs.") }),
      ),
    },
    errors: [...refusals, "dependency_cycle", "duplicate_key", "not_found"],
  }),
  list: spec({
    method: "get",
    path: "/v1/tasks",
    operationId: "listTasks",
    tag,
    summary: "A page of tasks, newest first, at a cost that doesn't grow with the table.",
    verb: "fleet:read",
    ofTenant: true,
    query: z.strictObject({
      ...taskFilterQuery,
      ...paging,
    }),
    answers: {
      200: named("TaskPage", z.object({ tasks: z.array(taskSchema), ...reach })),
    },
    errors: ["invalid_option", "timeout", "unsupported"],
  }),
  get: spec({
    method: "get",
    path: "/v1/tasks/{taskId}",
    operationId: "getTask",
    tag,
    summary: "A task and its events. To a caller of one tenant: one of that tenant.",
    verb: "tasks:read",
    or: "fleet:read",
    answers: {
      200: named(
        "TaskWithEvents",
        z.object({ task: taskSchema, events: z.array(taskEvent), next: nextAfter, links }),
      ),
    },
    errors: ["not_found"],
  }),
  events: spec({
    method: "get",
    path: "/v1/tasks/{taskId}/events",
    operationId: "getTaskEvents",
    tag,
    summary: "A page of a task's events, oldest first.",
    verb: "fleet:read",
    ofTenant: true,
    query: eventPaging,
    answers: {
      200: named("TaskEvents", z.object({ events: z.array(taskEvent), next: nextAfter })),
    },
    errors: ["not_found", "invalid_option"],
  }),
  steps: spec({
    method: "get",
    path: "/v1/tasks/{taskId}/steps",
    operationId: "getTaskSteps",
    tag,
    summary: "A page of a task's stored steps, in the order in which they were stored.",
    verb: "fleet:read",
    ofTenant: true,
    query: eventPaging,
    answers: {
      200: named("TaskStepPage", z.object({ steps: z.array(stepEntry), next: nextAfter })),
    },
    errors: ["not_found", "invalid_option"],
  }),
  cancel: spec({
    method: "post",
    path: "/v1/tasks/{taskId}/cancel",
    operationId: "cancelTask",
    tag,
    summary: "Cancel a task: at once, or with 202 while a pod still runs it.",
    verb: "fleet:operate",
    ofTenant: true,
    answers: {
      200: named("Cancelled", z.object({ status: z.literal("cancelled") })),
      202: named("Cancelling", z.object({ status: z.literal("cancelling") })),
    },
    errors: ["not_found", "conflict"],
  }),
  signal: spec({
    method: "post",
    path: "/v1/tasks/{taskId}/signals",
    operationId: "signalTask",
    tag,
    summary:
      "Send a signal to a task whose steps wait for it. Sending the same id again does nothing.",
    verb: "fleet:operate",
    ofTenant: true,
    body: named(
      "NewTaskSignal",
      z.strictObject({
        name: described(z.string().min(1).max(200), "The name that `step.signal` waits for."),
        payload: json("What the step gets. Default null.").optional(),
        id: described(z.string().min(1).max(200), "Default: a fresh one.").optional(),
      }),
    ),
    answers: { 202: named("TaskSignalSent", z.object({ status: z.literal("sent") })) },
    errors: [...refusals, "not_found", "conflict", "overloaded"],
  }),
  resume: spec({
    method: "post",
    path: "/v1/tasks/{taskId}/resume",
    operationId: "resumeTask",
    tag,
    summary: "Let a task go on that was set aside, has failed or was cancelled.",
    verb: "fleet:operate",
    ofTenant: true,
    body: named(
      "TaskResume",
      z.strictObject({
        forget: described(
          z.array(z.string()).max(1_000),
          "The keys of stored steps that run again.",
        ).optional(),
      }),
    ),
    answers: { 200: named("TaskResumed", z.object({ status: z.literal("pending") })) },
    errors: [...refusals, "not_found", "conflict"],
  }),
  retry: spec({
    method: "post",
    path: "/v1/tasks/{taskId}/retry",
    operationId: "retryTask",
    tag,
    summary: "Start a failed or cancelled task over. Its stored steps are kept.",
    verb: "fleet:operate",
    ofTenant: true,
    query: z.strictObject({
      fromStart: described(
        z.enum(["true", "false"]),
        "`true` forgets its stored steps, so that all of them run again.",
      ).optional(),
    }),
    answers: {
      200: named("Retried", z.object({ status: z.literal("pending"), forgottenSteps })),
    },
    errors: ["not_found", "conflict", "invalid_option"],
  }),
};
