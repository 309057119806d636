import { z } from "zod";
import {
  eventPaging,
  json,
  named,
  next,
  nextAfter,
  paging,
  described,
  spec,
  taskName,
  time,
} from "./schema.ts";
import { enqueueOptions, taskError } from "./tasks.schema.ts";

const statuses = z.enum(["open", "pending", "claimed", "completed", "failed", "cancelled"]);
const partName = () => z.string().max(100);
const anyName = () => z.string().max(200);

const doing = named(
  "RunDoing",
  z.discriminatedUnion("type", [
    z.object({ type: z.literal("running"), podId: z.string(), sinceMs: time() }),
    z.object({ type: z.literal("ready") }),
    z.object({ type: z.literal("retrying"), atMs: time() }),
    z.object({ type: z.literal("delayed"), untilMs: time() }),
    z.object({ type: z.literal("sleeping"), sinceMs: time(), untilMs: time() }),
    z.object({
      type: z.literal("waiting_for_signal"),
      name: z.string(),
      sinceMs: time(),
      untilMs: described(time().nullable(), "Null where it waits for as long as it takes."),
    }),
    z.object({ type: z.literal("waiting_for_children"), sinceMs: time() }),
    z.object({ type: z.literal("waiting_for_others") }),
    z.object({ type: z.literal("waiting_for_room"), scope: z.string().nullable() }),
    z.object({
      type: z.literal("set_aside"),
      reason: z.string(),
      message: z.string(),
      byVersion: z.int(),
    }),
  ]),
  "What a run that hasn't ended does right now.",
);

const run = named(
  "Run",
  z.object({
    runId: z.string(),
    flow: z.string(),
    version: described(
      z.int(),
      "The highest version of its flow that has advanced it; 0 before any has.",
    ),
    tenant: z.string(),
    key: z.string().nullable(),
    priority: z.int(),
    input: json(),
    at: described(
      z.string().nullable(),
      "The transition or finalizer that is next or runs; null before it has begun and once it has ended.",
    ),
    state: described(
      z.record(z.string(), z.unknown()).readonly(),
      "What transitions have returned so far.",
    ),
    attempt: described(z.int(), "1 on the first try of what it stands at."),
    deaths: described(z.int(), "Pods that have died while they ran what it stands at."),
    status: z.enum(["open", "completed", "failed", "cancelled"]),
    doing: doing.nullable(),
    noWorker: described(
      z.boolean(),
      "No pod that is up may take it: none works on its flow, or none in its version or a later one.",
    ),
    paused: described(z.boolean(), "Its flow, or everything, is paused."),
    intent: described(
      z.enum(["completed", "failed", "cancelled"]).nullable(),
      "The ending that its finalizers lead to; null while transitions run.",
    ),
    output: json("What it gives, once it has completed."),
    error: described(taskError.nullable(), "Why it failed, or what the last attempt failed with."),
    progress: json("What it said last of how far it is."),
    cancelRequested: z.boolean(),
    parentId: described(z.string().nullable(), "The run that has started it."),
    waitsFor: described(
      z.array(z.string()).readonly(),
      "What it waits or has waited for: those that it was to run after, and its children.",
    ),
    createdAtMs: time(),
    updatedAtMs: time(),
  }),
);

const entry = named(
  "RunEvent",
  z.object({
    seq: z.int(),
    atMs: time(),
    type: described(
      z.string(),
      "Such as `start`, `complete`, `error`, `park`, `cancel`, `finish`, `set_aside`, `given_up`, `resume`, `pod_died`.",
    ),
    attempt: z.int().nullable(),
    podId: z.string().nullable(),
    transition: z.string().nullable(),
    startedAtMs: described(time().nullable(), "When the attempt began that it tells the end of."),
    detail: json(),
  }),
  "Something that happened to a run.",
);

const signal = named(
  "RunSignal",
  z.object({ seq: z.int(), signalId: z.string(), name: z.string(), atMs: time() }),
  "Something that was said to a run, and that it hasn't used yet.",
);

const startOptions = named(
  "StartOptions",
  enqueueOptions.omit({ attempts: true, onDuplicate: true }).extend({
    onDuplicate: described(
      z.enum(["existing", "reject"]),
      "Where the key is taken. Default `existing`.",
    ).optional(),
  }),
);

const started = named(
  "StartedRun",
  z.object({
    runId: z.string(),
    created: described(z.boolean(), "False where a run with that key was there already."),
    noWorker: described(
      z.boolean(),
      "No pod that is up works on runs of this flow: it waits until one does.",
    ).optional(),
  }),
);

const count = () => z.int().optional();
const places = z.record(
  z.string(),
  z.object({
    running: count(),
    ready: count(),
    retrying: count(),
    waiting: count(),
    setAside: count(),
  }),
);

const stuck = named(
  "StuckRuns",
  z.object({
    flow: z.string(),
    why: z.enum(["set_aside", "no_worker", "retrying", "waiting"]),
    at: described(z.string().nullable(), "Where they stand; null before they have begun."),
    version: z.int(),
    runs: z.int(),
    runId: described(z.string(), "The oldest of them."),
    sinceMs: time(),
  }),
  "Runs that don't get on and may need somebody, counted together where they stand alike.",
);

const flow = named(
  "Flow",
  z.object({
    flow: z.string(),
    machine: described(
      z
        .object({
          version: z.int(),
          queue: z.object({ name: z.string(), limit: z.int() }).nullable(),
          parts: z.array(
            z.object({
              name: z.string(),
              kind: z.enum(["work", "sleep", "signal", "children", "finally"]),
            }),
          ),
        })
        .nullable(),
      "In the order in which parts are run; null where this server doesn't have the flow.",
    ),
    workers: z
      .array(
        z.object({
          version: z.int(),
          pods: described(z.int(), "How many pods that are up work with this version."),
          lastHeartbeatMs: time(),
        }),
      )
      .readonly(),
    places: described(
      places.readonly(),
      "How many open runs stand where. Those that haven't begun are under `start`.",
    ),
    openByVersion: described(
      z.record(z.string(), z.int()).readonly(),
      "Open runs by the version that has advanced them last; 0 before any has.",
    ),
    completed: z.int(),
    failed: z.int(),
    cancelled: z.int(),
    stuck: z.array(stuck).readonly(),
  }),
);

const tag = "runs";
const at = "/v1/runs/{runId}";
const refusals = [
  "invalid_input",
  "invalid_option",
  "payload_not_storable",
  "payload_too_deep",
  "payload_too_large",
  "unsupported",
] as const;

export const runSpecs = {
  start: spec({
    method: "post",
    path: "/v1/runs",
    operationId: "startRun",
    tag,
    summary: "Start a run of a flow. 200 where one with that key was there already.",
    body: named(
      "NewRun",
      z.strictObject({
        flow: taskName(),
        input: json("What its transitions get. Default null.").optional(),
        options: startOptions.optional(),
      }),
    ),
    answers: { 200: started, 201: started },
    errors: [...refusals, "duplicate_key", "not_found"],
  }),
  list: spec({
    method: "get",
    path: "/v1/runs",
    operationId: "listRuns",
    tag,
    summary: "A page of runs, newest first.",
    query: z.strictObject({
      flow: anyName().optional(),
      status: described(statuses, "`open` is pending or claimed.").optional(),
      tenant: z.string().max(500).optional(),
      at: described(
        partName(),
        "Only those that stand at this transition or finalizer.",
      ).optional(),
      parent: described(z.string().max(500), "Only those that this run has started.").optional(),
      setAside: described(
        z.literal("true"),
        "Only those that can't be read, and that nobody touches.",
      ).optional(),
      ...paging,
    }),
    answers: { 200: named("RunPage", z.object({ runs: z.array(run), next })) },
    errors: ["invalid_option"],
  }),
  get: spec({
    method: "get",
    path: at,
    operationId: "getRun",
    tag,
    summary: "Where a run stands. Without `admin`: one of the caller's tenant.",
    verb: "tasks:read",
    answers: { 200: named("RunShown", z.object({ run })) },
    errors: ["not_found"],
  }),
  history: spec({
    method: "get",
    path: `${at}/history`,
    operationId: "getRunHistory",
    tag,
    summary: "A page of what happened to a run, oldest first.",
    query: eventPaging,
    answers: {
      200: named(
        "RunHistory",
        z.object({
          history: z.array(entry),
          next: nextAfter,
        }),
      ),
    },
    errors: ["not_found", "invalid_option"],
  }),
  signals: spec({
    method: "get",
    path: `${at}/signals`,
    operationId: "getRunSignals",
    tag,
    summary: "A page of what was said to a run and not used yet, oldest first.",
    query: eventPaging,
    answers: { 200: named("RunSignals", z.object({ signals: z.array(signal), next: nextAfter })) },
    errors: ["not_found", "invalid_option"],
  }),
  signal: spec({
    method: "post",
    path: `${at}/signals`,
    operationId: "signalRun",
    tag,
    summary:
      "Say something to a run that waits for it, or will. The same id again says nothing new.",
    body: named(
      "NewSignal",
      z.strictObject({
        name: described(
          z
            .string()
            .regex(
              /^[A-Za-z][A-Za-z0-9_.:-]{0,99}$/,
              "must be 1 to 100 letters, digits and _ . : -, and begin with a letter",
            ),
          "The name of a signal of its flow.",
        ),
        payload: json("What the run gets. Default null.").optional(),
        id: described(z.string().min(1).max(200), "Default: one of its own.").optional(),
      }),
    ),
    answers: { 202: named("SignalSent", z.object({ status: z.literal("sent") })) },
    errors: [...refusals, "not_found", "conflict", "overloaded"],
  }),
  cancel: spec({
    method: "post",
    path: `${at}/cancel`,
    operationId: "cancelRun",
    tag,
    summary: "Ask for a run to be cancelled. Its finalizers run first.",
    answers: { 202: named("RunCancelling", z.object({ status: z.literal("cancelling") })) },
    errors: ["not_found", "conflict"],
  }),
  resume: spec({
    method: "post",
    path: `${at}/resume`,
    operationId: "resumeRun",
    tag,
    summary:
      "Let a run go on that was set aside, has failed or was cancelled, from where it stopped.",
    body: named(
      "ResumeBody",
      z.strictObject({
        as: described(
          z.int().min(1).max(1_000_000_000),
          "Gives a run that a later version has advanced to this one.",
        ).optional(),
      }),
    ),
    answers: { 200: named("RunResumed", z.object({ status: z.literal("open") })) },
    errors: [
      "invalid_input",
      "invalid_option",
      "unsupported",
      "payload_too_large",
      "not_found",
      "conflict",
    ],
  }),
  flows: spec({
    method: "get",
    path: "/v1/flows",
    operationId: "listFlows",
    tag,
    summary: "Flows, how many runs of each stand where, and which are stuck. Counts the table.",
    answers: { 200: named("Flows", z.object({ flows: z.array(flow) })) },
    errors: [],
  }),
};
