import { z } from "zod";
import { content, described, label, named, spec, time } from "../schema.ts";

const seenPod = z.object({
  podId: z.string(),
  isUp: z.boolean(),
  lastHeartbeatMs: time(),
  version: described(z.int().nullable(), "Null where it declares none."),
});

const busyPod = z.object({
  podId: z.string(),
  held: described(z.int(), "How many tasks it holds, counted to 10,000."),
  holds: described(z.int().nullable(), "How many at most right now; null where it hasn't said so."),
  reasons: described(
    z
      .array(
        z.object({
          code: z.string(),
          text: described(label(z.string()), "Empty for a caller of one tenant."),
        }),
      )
      .readonly(),
    "Why it takes no more.",
  ),
});

const ended = z.object({
  status: z.enum(["completed", "failed", "cancelled"]),
  endedAtMs: time(),
});

const running = z.object({
  podId: z.string(),
  sinceMs: time(),
  attempt: z.int(),
  isPodUp: described(z.boolean(), "False if the pod has left or fallen silent."),
  waitsForSlot: described(z.boolean(), "It was claimed ahead, and waits on its pod for a slot."),
  cancelRequested: z.boolean(),
});

const setAside = z.object({
  reason: label(z.string()),
  message: content("error", z.string(), { as: "message" }),
  step: described(label(z.string()), "The key of the step.").optional(),
  byVersion: described(z.int(), "Of a run: the version that couldn't read it.").optional(),
});

const notDue = z.object({
  untilMs: time(),
  cause: z.enum(["delayed", "scheduled", "retry", "snoozed", "sleeping", "put_off"]),
  decidedAtMs: described(time().nullable(), "When that was decided; null where no event says so."),
  delayMs: described(z.int().nullable(), "For how long: the backoff of a retry."),
  failures: z.int(),
  maxAttempts: described(z.int().nullable(), "Null where the handler's own number counts."),
  snoozes: z.int(),
  errorCode: described(z.string().nullable(), "Of a retry: the code of the last error."),
  scheduledAtMs: time().nullable(),
});

const dependencies = z.object({
  total: z.int(),
  open: z.int(),
  failed: described(z.int(), "Failed or cancelled."),
  tasks: described(
    z
      .array(
        z.object({
          taskId: z.string(),
          name: described(
            z.string().nullable(),
            "Null where it was deleted, or is of another tenant.",
          ),
          status: z.string().nullable(),
          podId: z.string().nullable(),
          isChild: described(z.boolean(), "The task has started it itself."),
        }),
      )
      .readonly(),
    "The first hundred that haven't completed: those that failed, then those that are open.",
  ),
});

const signal = z.object({
  signal: label(z.string()),
  sinceMs: time(),
  untilMs: described(time().nullable(), "Null where it waits without a limit."),
});

const pause = z.object({
  name: described(z.string(), "The name that is paused, or `*` for all."),
  sinceMs: time(),
  reason: described(label(z.string()).nullable(), "Null for a caller of one tenant."),
  by: described(
    label(z.string()).nullable(),
    "The actor, as in the audit. Null for a caller of one tenant.",
  ),
});

const noWorker = z.object({
  name: z.string(),
  version: described(z.int().nullable(), "The version that a pod must have at least."),
  livePods: z.int(),
  pods: described(z.array(seenPod).readonly(), "Pods that were seen with a handler of this name."),
});

const limitReached = z.object({
  scope: label(z.string()),
  limit: z.int(),
  running: z.int(),
  blocked: described(z.int(), "Tasks that wait for a slot of the same scope, to 10,000."),
  holders: described(
    z
      .array(
        z.object({
          taskId: z.string(),
          name: z.string(),
          podId: z.string().nullable(),
          sinceMs: time(),
        }),
      )
      .readonly(),
    "Twenty of the tasks that use its slots, the longest first. To a caller of one tenant: of that tenant.",
  ),
});

const throttled = z.object({
  name: z.string(),
  key: described(label(z.string()).nullable(), "Null where the key depends on the task's input."),
  limit: described(z.int(), "How many calls all pods together may have in flight."),
  inFlight: z.int(),
  waiting: z.int(),
  ahead: described(z.int(), "How many of those are ahead of the task."),
  aboutMs: described(z.int().nullable(), "An estimate of its wait; null where unknown."),
});

const reason = named(
  "WhyReason",
  z.object({
    code: z.enum([
      "ended",
      "running",
      "set_aside",
      "not_due",
      "waits_for_tasks",
      "waits_for_signal",
      "paused",
      "no_worker",
      "limit_reached",
      "throttled",
      "must_run_alone",
      "no_free_pod",
      "queued",
    ]),
    sentence: label(z.string()),
    evidence: described(
      z.union([
        ended,
        running,
        setAside,
        notDue,
        dependencies,
        signal,
        pause,
        noWorker,
        limitReached,
        throttled,
        z.object({ deaths: z.int() }),
        z.object({ pods: z.array(busyPod).readonly() }),
        z.object({
          ahead: described(z.int(), "How many are claimed before it, counted to 10,000."),
          isMore: z.boolean(),
        }),
      ]),
      "The facts, of the kind that the code says.",
    ),
    links: z
      .array(
        z.object({
          what: z.enum(["task", "pod", "throttle", "limit", "pause"]),
          id: label(z.string()),
        }),
      )
      .readonly(),
    advice: described(z.string().nullable(), "What to do about it."),
    command: described(label(z.string()).nullable(), "The command that does it or shows more."),
  }),
);

const verdict = named(
  "Verdict",
  z.object({
    taskId: z.string(),
    name: z.string(),
    tenant: z.string(),
    isRun: z.boolean(),
    status: z.enum(["pending", "claimed", "completed", "failed", "cancelled"]),
    atMs: time(),
    reasons: described(z.array(reason).readonly(), "The one to begin with comes first."),
  }),
  "Why a task or run waits, where it runs, or how it has ended.",
);

export const whySpecs = {
  get: spec({
    method: "get",
    path: "/v1/tasks/{taskId}/why",
    operationId: "getWhy",
    tag: "tasks",
    summary: "Why a task or run waits: ordered reasons, with evidence and what to do.",
    verb: "fleet:read",
    ofTenant: true,
    answers: { 200: named("Why", z.object({ verdict })) },
    errors: ["not_found"],
  }),
};
