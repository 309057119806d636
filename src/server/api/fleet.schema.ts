import { z } from "zod";
import { roles, verbs } from "../../protocol/verbs.ts";
import { fleet, pod } from "./pods.schema.ts";
import { described, label, named, next, paging, spec, time, wholeNumber } from "./schema.ts";

const natsState = () =>
  described(
    z.enum(["connected", "away"]).optional(),
    "With `nats` in the config. While it is away, work goes on more slowly.",
  );

const byStatus = z.object({
  pending: z.int(),
  claimed: z.int(),
  completed: z.int(),
  failed: z.int(),
  cancelled: z.int(),
});

const depth = named(
  "NameDepth",
  z.object({
    ready: z.int(),
    delayed: z.int(),
    waiting: described(z.int(), "Waits for other tasks."),
    blocked: described(z.int(), "Blocked by the concurrency limit of its key."),
    alone: described(z.int(), "Must run alone, because pods have died while they ran it."),
    running: z.int(),
    failed: z.int(),
    oldestMs: described(z.int(), "How long the oldest due task has waited."),
    paused: described(z.boolean(), "No pod claims any: the name is paused, or everything."),
  }),
);

const count = () => z.int();
const overview = named(
  "Overview",
  z.object({
    tasks: z.object({
      ready: count(),
      running: count(),
      delayed: count(),
      waiting: count(),
      blocked: count(),
      alone: count(),
      failed: count(),
    }),
    runs: z.object({
      running: count(),
      ready: count(),
      retrying: count(),
      delayed: count(),
      sleeping: count(),
      waiting_for_signal: count(),
      waiting_for_children: count(),
      waiting_for_others: count(),
      waiting_for_room: count(),
      set_aside: count(),
    }),
    sessions: z.object({
      all: count(),
      busy: described(count(), "Not idle: an answer is being made, for example."),
    }),
    pods: z.object({ up: count(), down: count() }),
    waiting: described(
      z.array(z.object({ runId: z.string(), flow: z.string(), signal: z.string() })).readonly(),
      "A few runs that wait for a signal, among the newest.",
    ),
  }),
  "What the store holds, counted every 2 seconds at most. No number is exact beyond 10,000.",
);

const durations = (description: string) =>
  described(
    z
      .object({
        count: z.int(),
        sumMs: z.number(),
        p50Ms: described(z.number(), "An estimate, right within a factor of 2."),
        p95Ms: z.number(),
        buckets: described(
          z.array(z.int()).readonly(),
          "Bucket `i` counts those up to `2 ** i` ms, the 24th all that are longer.",
        ),
      })
      .nullable(),
    description,
  );

const seriesStep = z.enum(["minute", "hour"]);

const series = named(
  "Series",
  z.object({
    subject: label(z.string()),
    step: seriesStep,
    fromMs: time(),
    toMs: time(),
    points: described(
      z
        .array(
          z.object({
            atMs: described(time(), "When its minute or hour begins."),
            counts: described(
              z.record(z.string(), z.number()).readonly(),
              "Such as `completed`, `failed` and `retry` of a task.",
            ),
            gauges: described(
              z.record(z.string(), z.number()).readonly(),
              "What was so many at a time, such as `inFlight` of a throttle: of an hour its highest minute.",
            ),
            wait: durations("How long tasks waited, or answers took to their first chunk."),
            run: durations("How long it took."),
          }),
        )
        .readonly(),
      "In the order of time. Where nothing was counted there is no point.",
    ),
  }),
  "What pods have counted of a subject over time. A pod that dies takes a minute of counts with it.",
);

const moment = (description: string) =>
  described(wholeNumber({ min: 0, max: 8.64e14 }), description).optional();

const caller = named(
  "Caller",
  z.object({
    kind: z.enum(["server", "user", "local"]),
    verbs: z.array(z.enum(verbs)),
    role: z.enum(roles).optional(),
    tenant: described(z.string(), "The only tenant whose tasks and runs it sees.").optional(),
    name: described(label(z.string()), "Of the user, or of the key.").optional(),
  }),
  "Who the server takes the caller for, and what it may do.",
);

const health = "health";

export const fleetSpecs = {
  home: spec({
    method: "get",
    path: "/",
    operationId: "getHome",
    tag: "fleet",
    summary:
      "What this server is and its links; to a browser its dashboard. Only a caller that may read the whole fleet gets the version, the store and its counts.",
    answers: {
      200: named(
        "Home",
        z.object({
          name: z.literal("flotilla"),
          links: described(z.record(z.string(), z.string()), "Paths on this server, by name."),
          advice: described(z.string(), "How to get more.").optional(),
          caller: caller.optional(),
          version: z.string().optional(),
          store: z.enum(["sqlite", "postgres"]).optional(),
          docs: described(
            z.record(z.string(), z.string()),
            "Paths of the docs that came with this server, by the name of the page.",
          ).optional(),
          overview: overview.optional(),
          trouble: described(
            z.string(),
            "The error code where the store can't be read.",
          ).optional(),
        }),
      ),
    },
    errors: [],
    open: true,
  }),
  docs: spec({
    method: "get",
    path: "/v1/docs/{page}",
    operationId: "getDocs",
    tag: "fleet",
    summary: "A page of the docs that came with this server, as Markdown.",
    verb: "fleet:read",
    ofTenant: true,
    answers: { 200: z.string() },
    answerType: "text/plain",
    errors: ["not_found"],
  }),
  pods: spec({
    method: "get",
    path: "/v1/pods",
    operationId: "listPods",
    tag: "fleet",
    summary: "The pods of this store, with their last heartbeats.",
    verb: "fleet:read",
    answers: { 200: named("Pods", z.object({ pods: z.array(pod) })) },
    errors: [],
  }),
  fleet: spec({
    method: "get",
    path: "/v1/fleet",
    operationId: "getFleet",
    tag: "fleet",
    summary: "The pods in brief, for pages about hundreds of them.",
    verb: "fleet:read",
    answers: { 200: fleet },
    errors: [],
  }),
  drain: spec({
    method: "post",
    path: "/v1/pods/{podId}/drain",
    operationId: "drainPod",
    tag: "fleet",
    summary:
      "Let a pod take no more work. What it has begun goes on, and its logs of sessions are handed on.",
    verb: "fleet:operate",
    answers: { 202: pod },
    errors: ["not_found", "conflict"],
  }),
  undrain: spec({
    method: "post",
    path: "/v1/pods/{podId}/undrain",
    operationId: "undrainPod",
    tag: "fleet",
    summary: "Let a pod that was drained take work again.",
    verb: "fleet:operate",
    answers: { 202: pod },
    errors: ["not_found", "conflict"],
  }),
  stats: spec({
    method: "get",
    path: "/v1/stats",
    operationId: "getStats",
    tag: "fleet",
    summary: "How many tasks there are of each name and status, counted to 10,000 of a kind.",
    verb: "fleet:read",
    query: z.strictObject({
      exact: described(
        z.enum(["true", "false"]),
        "`true` counts the table, which takes as long as there are tasks.",
      ).optional(),
    }),
    answers: {
      200: named(
        "Stats",
        z.object({
          byStatus,
          byName: z.record(z.string(), byStatus).readonly(),
          atLeast: described(
            z.array(z.enum(["pending", "claimed", "completed", "failed", "cancelled"])).readonly(),
            "Statuses with more tasks than were counted: their numbers are lower bounds.",
          ),
          noWorker: described(
            z.array(z.string()).readonly(),
            "Names that no live pod has a handler for.",
          ),
        }),
      ),
    },
    errors: ["invalid_option", "timeout"],
  }),
  depth: spec({
    method: "get",
    path: "/v1/depth",
    operationId: "getDepth",
    tag: "fleet",
    summary:
      "How many tasks wait and for how long, by name, at a cost that doesn't grow with the table.",
    verb: "fleet:read",
    answers: { 200: named("Depth", z.object({ names: z.record(z.string(), depth) })) },
    errors: [],
  }),
  series: spec({
    method: "get",
    path: "/v1/series",
    operationId: "getSeries",
    tag: "fleet",
    summary:
      "What was counted of a task, flow, agent, throttle or pod over time: at most 1,500 points.",
    verb: "fleet:read",
    query: z.strictObject({
      subject: described(
        z.string().min(1).max(1_000),
        "Such as `task:mail`, `flow:order pay`, `agent:support`, `throttle:openai`, `pod:<id>`, `other:task`, or `task` for all tasks.",
      ),
      from: moment(
        "From this time on, in milliseconds since 1970. Default: an hour or a day before.",
      ),
      to: moment("Up to this time. Default: now."),
      span: described(
        wholeNumber({ min: 1, max: 8.64e14 }),
        "How many milliseconds before `to` it begins, in place of `from`.",
      ).optional(),
      step: described(
        seriesStep,
        "How much time a point stands for. Default `minute`, of which a day is kept; of `hour` 30 days.",
      ).optional(),
    }),
    answers: { 200: series },
    errors: ["invalid_input", "invalid_option"],
  }),
  subjects: spec({
    method: "get",
    path: "/v1/series/subjects",
    operationId: "listSubjects",
    tag: "fleet",
    summary: "What there are series of, in the order of their names.",
    verb: "fleet:read",
    query: z.strictObject({
      kind: described(
        z.enum(["task", "flow", "agent", "throttle", "pod"]),
        "Only subjects of this kind.",
      ).optional(),
      ...paging,
    }),
    answers: {
      200: named(
        "Subjects",
        z.object({
          subjects: z
            .array(
              z.object({
                subject: label(z.string()),
                lastAtMs: described(time(), "The last minute or hour that has counts of it."),
              }),
            )
            .readonly(),
          next,
        }),
      ),
    },
    errors: ["invalid_input", "invalid_option"],
  }),
  openapi: spec({
    method: "get",
    path: "/v1/openapi.json",
    operationId: "getOpenApi",
    tag: "fleet",
    summary: "This document.",
    verb: "fleet:read",
    ofTenant: true,
    answers: { 200: z.record(z.string(), z.unknown()) },
    errors: [],
  }),
  metrics: spec({
    method: "get",
    path: "/metrics",
    operationId: "getMetrics",
    tag: health,
    summary: "Metrics for Prometheus.",
    verb: "fleet:read",
    answers: { 200: z.string() },
    answerType: "text/plain",
    errors: [],
  }),
  live: spec({
    method: "get",
    path: "/health/live",
    operationId: "getLive",
    tag: health,
    summary: "Whether this process answers.",
    answers: { 200: named("Live", z.object({ status: z.literal("live") })) },
    errors: [],
    open: true,
  }),
  ready: spec({
    method: "get",
    path: "/health/ready",
    operationId: "getReady",
    tag: health,
    summary: "Whether the store can be written to, or sessions go on without it.",
    answers: {
      200: named(
        "Ready",
        z.object({
          status: z.literal("ready"),
          nats: natsState(),
          archive: described(
            z.literal("away").optional(),
            "Where the logs of sessions are on NATS: the database is away. Sessions go on, and it gets what they store later; tasks wait.",
          ),
        }),
      ),
      503: named(
        "NotReady",
        z.object({
          status: z.literal("not ready"),
          reason: described(z.string(), "`stopping`, or the code of what went wrong."),
          nats: natsState(),
        }),
      ),
    },
    errors: [],
    open: true,
  }),
};
