import { z } from "zod";
import {
  content,
  eventDetail,
  eventPaging,
  json,
  label,
  links,
  listing,
  named,
  nextAfter,
  described,
  reach,
  sourced,
  spec,
  taskName,
  time,
  wholeNumber,
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
      untilMs: described(time().nullable(), "Null where it waits without a deadline."),
    }),
    z.object({ type: z.literal("waiting_for_children"), sinceMs: time() }),
    z.object({ type: z.literal("waiting_for_others") }),
    z.object({ type: z.literal("waiting_for_room"), scope: label(z.string()).nullable() }),
    z.object({
      type: z.literal("set_aside"),
      reason: z.string(),
      message: content("error", z.string(), { as: "message" }),
      byVersion: z.int(),
    }),
  ]),
  "What a run that hasn't ended does right now.",
);

const run = named(
  "Run",
  sourced(
    z.object({
      runId: z.string(),
      flow: z.string(),
      version: described(
        z.int(),
        "The highest version of its flow that has advanced it; 0 before the first.",
      ),
      tenant: z.string(),
      key: label(z.string()).nullable(),
      priority: z.int(),
      input: content("input", json()),
      at: described(
        z.string().nullable(),
        "The current or next transition or finalizer; null before the run begins and after it ends.",
      ),
      state: described(
        content("state", z.record(z.string(), z.unknown()).readonly(), { keeps: [] }),
        "The results of its transitions so far.",
      ),
      attempt: described(z.int(), "The attempt at its current transition, from 1."),
      deaths: described(z.int(), "Pods that died while they ran its current transition."),
      status: z.enum(["open", "completed", "failed", "cancelled"]),
      doing: doing.nullable(),
      noWorker: described(
        z.boolean(),
        "No live pod can run it: none has its flow, or none has its version or a later one.",
      ),
      paused: described(z.boolean(), "Its flow, or everything, is paused."),
      intent: described(
        z.enum(["completed", "failed", "cancelled"]).nullable(),
        "The outcome after its finalizers; null while transitions run.",
      ),
      output: content("output", json("Its output, once it has completed.")),
      error: described(taskError.nullable(), "Why it failed, or the error of the last attempt."),
      progress: content("progress", json("The progress that it reported last.")),
      cancelRequested: z.boolean(),
      parentId: described(z.string().nullable(), "The run that started it."),
      waitsFor: described(
        z.array(z.string()).readonly(),
        "Its dependencies: what it was to run after, and its children.",
      ),
      createdAtMs: time(),
      updatedAtMs: time(),
    }),
    { contract: "flow" },
  ),
);

const entry = named(
  "RunEvent",
  z.object({
    seq: z.int(),
    atMs: time(),
    type: described(
      z.string(),
      "Such as `start`, `complete`, `error`, `park`, `cancel`, `finish`, `stepped`, `set_aside`, `given_up`, `resume`, `pod_died`.",
    ),
    attempt: z.int().nullable(),
    podId: z.string().nullable(),
    transition: z.string().nullable(),
    startedAtMs: described(time().nullable(), "When the attempt began that this event ends."),
    detail: eventDetail(),
  }),
  "Something that happened to a run.",
);

const signal = named(
  "RunSignal",
  z.object({ seq: z.int(), signalId: label(z.string()), name: label(z.string()), atMs: time() }),
  "A signal sent to a run that it hasn't used yet.",
);

const startOptions = named(
  "StartOptions",
  enqueueOptions.omit({ attempts: true, onDuplicate: true }).extend({
    onDuplicate: described(
      z.enum(["existing", "reject"]),
      "What to do where the key is taken. Default `existing`.",
    ).optional(),
  }),
);

const started = named(
  "StartedRun",
  z.object({
    runId: z.string(),
    created: described(z.boolean(), "False where a run with that key existed already."),
    noWorker: described(
      z.boolean(),
      "No live pod has this flow: the run waits until one does.",
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
    at: described(z.string().nullable(), "Their current transition; null before they have begun."),
    version: z.int(),
    runs: z.int(),
    runId: described(z.string(), "The oldest of them."),
    sinceMs: time(),
  }),
  "Runs that make no progress and may need an operator, counted by transition and version.",
);

const machine = named(
  "Machine",
  z.object({
    version: z.int(),
    queue: z.object({ name: z.string(), limit: z.int() }).nullable(),
    parts: z
      .array(
        z.object({
          name: z.string(),
          kind: z.enum(["work", "sleep", "signal", "children", "finally"]),
          does: described(z.string(), "Such as `waits for a signal, fails after 1 d`."),
        }),
      )
      .readonly(),
  }),
);

const flow = named(
  "Flow",
  z.object({
    flow: z.string(),
    machine: described(
      machine.nullable(),
      "Its parts in the order in which they run; null where this server doesn't have the flow.",
    ),
    workers: z
      .array(
        z.object({
          version: z.int(),
          pods: described(z.int(), "How many live pods have this version."),
          lastHeartbeatMs: time(),
        }),
      )
      .readonly(),
    places: described(
      places.readonly(),
      "Open runs by their current transition; `start` for those that haven't begun.",
    ),
    openByVersion: described(
      z.record(z.string(), z.int()).readonly(),
      "Open runs by the version that advanced them last; 0 before the first.",
    ),
    placesByVersion: described(
      z.record(z.string(), places.readonly()).readonly(),
      "`places` for each version that advanced runs last.",
    ),
    completed: z.int(),
    failed: z.int(),
    cancelled: z.int(),
    atLeast: described(
      z.boolean(),
      "The numbers are lower bounds: open runs are counted to 10,000, ended ones among the newest.",
    ),
    stuck: z.array(stuck).readonly(),
  }),
);

const times = named(
  "StateTimes",
  z.object({
    at: described(z.string(), "The transition or finalizer."),
    outcomes: described(
      z.record(z.string(), z.number()).readonly(),
      "How many attempts and waits ended how: `completed`, `retry`, `failed`, `parked` …",
    ),
    p50Ms: described(
      z.number().nullable(),
      "How long an attempt or a wait took, estimated within a factor of 2; null if none has ended.",
    ),
    p95Ms: z.number().nullable(),
  }),
  "What pods have counted at a transition in the last hour.",
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
    summary: "Start a run of a flow. 200 where one with that key existed already.",
    verb: "admin",
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
    summary: "A page of runs, newest first, at a cost that doesn't grow with the table.",
    verb: "fleet:read",
    ofTenant: true,
    query: z.strictObject({
      flow: anyName().optional(),
      status: described(statuses, "`open` is pending or claimed.").optional(),
      tenant: z.string().max(500).optional(),
      at: described(partName(), "Only those at this transition or finalizer.").optional(),
      parent: described(z.string().max(500), "Only those that this run started.").optional(),
      setAside: described(
        z.literal("true"),
        "Only those set aside, because no pod can read them.",
      ).optional(),
      version: described(
        wholeNumber({ min: 0, max: 1_000_000_000 }),
        "Only those that this version of their flow has advanced last; 0 for those that none has.",
      ).optional(),
      ...listing,
    }),
    answers: { 200: named("RunPage", z.object({ runs: z.array(run), ...reach })) },
    errors: ["invalid_option", "timeout"],
  }),
  get: spec({
    method: "get",
    path: at,
    operationId: "getRun",
    tag,
    summary: "A run. To a caller of one tenant: one of that tenant.",
    verb: "tasks:read",
    or: "fleet:read",
    answers: { 200: named("RunShown", z.object({ run, links })) },
    errors: ["not_found"],
  }),
  history: spec({
    method: "get",
    path: `${at}/history`,
    operationId: "getRunHistory",
    tag,
    summary: "A page of a run's events, oldest first.",
    verb: "fleet:read",
    ofTenant: true,
    query: eventPaging.extend({
      before: described(
        wholeNumber({ min: 1, max: 2 ** 31 - 1 }),
        "The last events before this number, such as the `previous` of the page after. The largest gives the newest.",
      ).optional(),
    }),
    answers: {
      200: named(
        "RunHistory",
        z.object({
          history: z.array(entry),
          next: nextAfter,
          previous: described(
            z.int().nullable(),
            "The `before` of the page that precedes, or null.",
          ),
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
    summary: "A page of the signals that a run hasn't used yet, oldest first.",
    verb: "fleet:read",
    ofTenant: true,
    query: eventPaging,
    answers: { 200: named("RunSignals", z.object({ signals: z.array(signal), next: nextAfter })) },
    errors: ["not_found", "invalid_option"],
  }),
  signal: spec({
    method: "post",
    path: `${at}/signals`,
    operationId: "signalRun",
    tag,
    summary: "Send a signal to a run. Sending the same id again does nothing.",
    verb: "fleet:operate",
    ofTenant: true,
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
        id: described(z.string().min(1).max(200), "Default: a fresh one.").optional(),
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
    summary: "Cancel a run. Its finalizers run first, unless it was set aside.",
    verb: "fleet:operate",
    ofTenant: true,
    answers: {
      200: named("RunCancelled", z.object({ status: z.literal("cancelled") })),
      202: named("RunCancelling", z.object({ status: z.literal("cancelling") })),
    },
    errors: ["not_found", "conflict"],
  }),
  resume: spec({
    method: "post",
    path: `${at}/resume`,
    operationId: "resumeRun",
    tag,
    summary: "Resume a run that was set aside, failed or cancelled, from where it stopped.",
    verb: "fleet:operate",
    ofTenant: true,
    body: named(
      "ResumeBody",
      z.strictObject({
        as: described(
          z.int().min(1).max(1_000_000_000),
          "Hands a run that a later version has advanced to this version.",
        ).optional(),
        forget: described(
          z.array(z.string()),
          "The keys of stored steps that run again.",
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
    summary: "Flows, their open runs by transition, and stuck runs.",
    verb: "fleet:read",
    answers: { 200: named("Flows", z.object({ flows: z.array(flow) })) },
    errors: ["timeout"],
  }),
  flow: spec({
    method: "get",
    path: "/v1/flows/{flow}",
    operationId: "getFlow",
    tag,
    summary: "A flow, its open runs by transition and version, and how long transitions took.",
    verb: "fleet:read",
    answers: {
      200: named("FlowShown", z.object({ flow, times: z.array(times).readonly() })),
    },
    errors: ["not_found", "invalid_option", "timeout"],
  }),
  machine: spec({
    method: "get",
    path: "/v1/flows/{flow}/machine",
    operationId: "getMachine",
    tag,
    summary:
      "What a flow is made of in a version. Pods are asked for what this server doesn't have.",
    verb: "fleet:read",
    query: z.strictObject({
      version: described(
        wholeNumber({ min: 1, max: 1_000_000_000 }),
        "Default: the one that this server has, else the latest.",
      ).optional(),
    }),
    answers: {
      200: named(
        "MachineShown",
        z.object({ machine: described(machine.nullable(), "Null if no pod has told it.") }),
      ),
    },
    errors: ["invalid_option"],
  }),
};
