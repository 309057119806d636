import { z } from "zod";
import { named, next, paging, described, spec, time } from "./schema.ts";

// As long as their declarations may be.
const throttleText = () => z.string().max(200);

const pod = named(
  "ThrottlePod",
  z.object({
    podId: z.string(),
    share: described(z.int(), "How many calls of it may be in flight."),
    inFlight: z.int(),
    waiting: described(
      z.int(),
      "Calls that wait for a permit, and tasks that aren't claimed for one.",
    ),
    callsWaiting: described(z.int(), "The calls among them."),
    reportedMs: described(
      z.int(),
      "How long ago it said so; absent where it hasn't lately.",
    ).optional(),
  }),
);

const outcomes = z.object({
  success: z.int(),
  throttled: described(z.int(), "Refused for want of capacity, as with 429."),
  timeout: z.int(),
  server_error: z.int(),
  ignored: described(
    z.int(),
    "Says nothing of the downstream: a mistake or an abort of the caller's.",
  ),
});

const throttle = named(
  "Throttle",
  z.object({
    name: z.string(),
    key: described(z.string(), "Empty where the throttle has no keys."),
    bound: described(z.int(), "How many calls all pods together may have in flight."),
    epoch: described(z.int(), "Rises with every change of the bound."),
    pinned: described(
      z.int(),
      "What it was set to by hand; absent where it is learned.",
    ).optional(),
    pinnedAtMs: described(
      z.int(),
      "When it was last pinned or unpinned, in ms since 1970.",
    ).optional(),
    settings: described(z.record(z.string(), z.unknown()).readonly(), "What its declaration says."),
    breaker: described(
      z.enum(["closed", "half_open", "open"]),
      "`open` lets no calls through, `half_open` a few to try.",
    ),
    holdMs: described(z.number(), "For how long the downstream has asked everybody to stay away."),
    refillPerS: described(
      z.number(),
      "Requests or tokens per second, where it has a bucket.",
    ).optional(),
    inFlight: z.int(),
    waiting: described(z.int(), "As pods count: a task that two pods could have counts twice."),
    callsWaiting: described(z.int(), "The calls among them."),
    outcomes: described(outcomes.readonly(), "How calls have ended since it is known."),
    p95Ms: described(z.number(), "Of successful calls of late.").optional(),
    firstTokenP95Ms: described(
      z.number(),
      "Until the first piece of a streamed answer.",
    ).optional(),
    meanMs: described(
      z.number(),
      "How long successful calls take on average, the latest most of all.",
    ).optional(),
    meanCost: described(z.number(), "What they cost on average in the bucket's unit.").optional(),
    pods: z.array(pod).readonly(),
    lastUpdateMs: time(),
  }),
);

const throttleAnswer = named("ThrottleShown", z.object({ throttle }));
const key = described(throttleText(), "Which of its limits is meant. Default: that without a key.");
const refusals = ["not_found", "invalid_input", "invalid_option", "unsupported"] as const;
const tag = "throttles";

export const throttleSpecs = {
  list: spec({
    method: "get",
    path: "/v1/throttles",
    operationId: "listThrottles",
    tag,
    summary: "A page of throttles as all pods share them, in the order of their names and keys.",
    query: z.strictObject(paging),
    answers: { 200: named("ThrottlePage", z.object({ throttles: z.array(throttle), next })) },
    errors: ["invalid_option"],
  }),
  get: spec({
    method: "get",
    path: "/v1/throttles/{name}",
    operationId: "getThrottle",
    tag,
    summary: "One throttle, with what each pod has of it.",
    query: z.strictObject({ key: key.optional() }),
    answers: { 200: throttleAnswer },
    errors: ["not_found", "invalid_option"],
  }),
  pin: spec({
    method: "post",
    path: "/v1/throttles/{name}/pin",
    operationId: "pinThrottle",
    tag,
    summary:
      "Hold its limit where you say. Nothing is learned until it is unpinned; 0 stops calls.",
    body: named(
      "PinBody",
      z.strictObject({ limit: z.int().min(0).max(100_000), key: key.optional() }),
    ),
    answers: { 200: throttleAnswer },
    errors: [...refusals, "payload_too_large"],
  }),
  unpin: spec({
    method: "post",
    path: "/v1/throttles/{name}/unpin",
    operationId: "unpinThrottle",
    tag,
    summary: "Let its limit be learned again, from what was known before.",
    body: named("UnpinBody", z.strictObject({ key: key.optional() })),
    answers: { 200: throttleAnswer },
    errors: [...refusals, "payload_too_large"],
  }),
};
