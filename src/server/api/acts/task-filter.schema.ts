import { z } from "zod";
import { atMs, content, described, json, label, wholeNumber } from "../schema.ts";

/**
 * The conditions that tasks are listed by and that bulks act on, once as the parameters of a query and once
 * as JSON. `checkTaskFilter` says how long each may be, and what can be combined.
 */

export const taskStatus = z.enum(["pending", "claimed", "completed", "failed", "cancelled"]);

const text = (description: string) => label(described(z.string(), description)).optional();

const inBoth = {
  name: text("Of a task, or of a flow for its runs."),
  status: taskStatus.optional(),
  state: described(
    z.enum(["ready", "delayed", "waiting", "blocked", "alone"]),
    "Only pending ones that stand so, as `GET /v1/depth` counts them: `waiting` is for other tasks, `blocked` by a limit.",
  ).optional(),
  tenant: text("Only those of this tenant."),
  key: text("The unique key. Found at once with a name."),
  scope: text("The scope of a concurrency limit by key."),
  pod: text("Only those that run on this pod."),
  group: text("Only failed ones whose error is of this group."),
  session: text("Only those that turns of this session have started."),
  run: text("Only those that this run or task has started."),
  at: text("Only runs at this transition or finalizer."),
  from: text("Only ids from this one on. Ids sort by age."),
  to: text("Only ids up to this one."),
};
const since = "Only those that were created from this time on, in milliseconds since 1970.";
const until = "Only those that were created up to this time.";
const aside = "Only those that were set aside.";
const ofVersion =
  "Only runs that this version of their flow has advanced last; 0 for those that none has.";
const versions = { min: 0, max: 1_000_000_000 };
const maxTimeMs = 2 ** 48 - 2;
const time = (description: string) =>
  described(z.int().min(0).max(maxTimeMs), description).optional();

export const taskFilterQuery = {
  ...inBoth,
  version: described(wholeNumber(versions), ofVersion).optional(),
  ids: described(z.string(), "Only these ids, with commas between them.").optional(),
  setAside: described(z.literal("true"), aside).optional(),
  sinceMs: atMs(since),
  untilMs: atMs(until),
  payload: described(
    z.string(),
    "As `payload.<path>=<value>`: a value of the payload, as JSON or as text. Needs `name`, `sinceMs` and `payloads:read`.",
  ).optional(),
};

export const taskFilterBody = {
  ...inBoth,
  version: described(z.int().min(versions.min).max(versions.max), ofVersion).optional(),
  ids: described(z.array(z.string()).readonly(), "Only these: 1 to 1,000 ids.").optional(),
  setAside: described(z.literal(true), aside).optional(),
  sinceMs: time(since),
  untilMs: time(until),
  // Not a record, which would drop a path such as `__proto__` in place of refusing it.
  payload: content(
    "input",
    json(
      'Values of the payload by their paths, such as `{ "order.id": 7 }`. Needs `name`, `sinceMs` and `payloads:read`.',
    ),
  ).optional(),
};
