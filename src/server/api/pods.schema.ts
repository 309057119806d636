import { z } from "zod";
import { described, label, named, time } from "./schema.ts";

const drainState = () => z.enum(["draining", "drained"]);
const podState = () =>
  z
    .object({
      holds: described(z.int(), "How many tasks it holds at most, right now."),
      drain: drainState().optional(),
      reasons: z.array(z.object({ code: z.string(), text: z.string() })).readonly(),
    })
    .nullable();
const podPulse = z.object({
  claimed: described(z.int(), "Tasks that it has claimed since its start."),
  ended: described(
    z.record(z.string(), z.int()).readonly(),
    "How attempts and runs have ended since its start, by outcome.",
  ),
  chunks: described(z.int(), "Chunks of answers that have ended since its start."),
  lagMs: described(z.int(), "How late its event loop was."),
  memoryBytes: z.int().nullable(),
  held: described(z.int(), "How many tasks and runs it holds."),
  leadsSinceMs: described(
    z.int().nullable(),
    "Since when it leads the fleet, as it takes itself for the leader.",
  ),
  throttles: described(
    z.array(z.object({ name: z.string(), key: label(z.string()), inFlight: z.int() })).readonly(),
    "The throttles with the most of its calls in flight.",
  ),
  running: described(
    z.array(z.object({ taskId: z.string(), startedAtMs: time() })).readonly(),
    "The tasks that it has run for longest.",
  ),
  logs: described(
    z
      .array(
        z.object({
          logId: z.int(),
          bytes: described(z.int(), "What the database doesn't have of it yet."),
          lagMs: described(z.number(), "How long the oldest of that has waited."),
        }),
      )
      .readonly(),
    "Of its logs of sessions on NATS, those that the database is furthest behind.",
  ),
});
const leads = (description: string) => described(z.boolean(), description);

export const pod = named(
  "Pod",
  z.object({
    podId: z.string(),
    status: z.enum(["up", "down"]),
    birthMs: time(),
    lastHeartbeatMs: time(),
    beat: z.int(),
    drain: described(
      drainState().nullable(),
      "Set while it is to take no more work: `drained` once nothing that it had begun is left.",
    ),
    leads: leads(
      "Whether it leads the fleet, as of its last heartbeat; absent in the answer to a drain.",
    ).optional(),
    state: described(podState(), "Why it claims no more, as of its last heartbeat."),
    pulse: described(
      podPulse.nullable(),
      "What it stored of itself with its last heartbeat, in at most 600 bytes.",
    ),
    metadata: label(z.record(z.string(), z.unknown()).readonly()),
    logs: described(
      z.array(z.int()).readonly(),
      "The logs of sessions that it owns; absent in the answer to a drain.",
    ).optional(),
  }),
);

const podSummary = named(
  "PodSummary",
  z.object({
    podId: z.string(),
    status: z.enum(["up", "down"]),
    birthMs: time(),
    lastHeartbeatMs: described(
      z.int().nullable(),
      "Of a pod that is down; null of one that is up.",
    ),
    leads: leads("Whether it leads the fleet, as of its last heartbeat."),
    drain: drainState().nullable(),
    state: podState(),
    pulse: podPulse
      .pick({
        lagMs: true,
        memoryBytes: true,
        held: true,
        throttles: true,
        running: true,
        logs: true,
      })
      .nullable(),
    host: label(z.string()).nullable(),
    pid: z.int().nullable(),
    holds: described(z.int().nullable(), "How many tasks it holds at most, where it tells."),
    handlers: described(z.string().nullable(), "The key of what it has handlers for."),
    logs: described(z.array(z.int()).readonly(), "The logs of sessions that it owns."),
  }),
);

export const fleet = named(
  "Fleet",
  z.object({
    pods: described(
      z.array(podSummary).readonly(),
      "Those that are up, the oldest first, then those that went down within the hour.",
    ),
    handlers: described(
      z
        .record(
          z.string(),
          z.object({
            names: z
              .array(z.object({ name: z.string(), version: z.string().nullable() }))
              .readonly(),
            more: described(z.int(), "How many were left out for lack of room."),
          }),
        )
        .readonly(),
      "What pods have handlers for, once for all pods that have the same.",
    ),
    newestBeatMs: described(
      z.int().nullable(),
      "The last heartbeat of any pod that is up; null where none is.",
    ),
    gone: described(z.int(), "How many pods went down longer ago."),
    more: described(z.int(), "How many pods were left out for lack of room."),
  }),
  "The pods in brief: what pages show of them.",
);
