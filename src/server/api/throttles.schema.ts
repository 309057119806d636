import { z } from "zod";
import { label, named, next, pageLimit, paging, described, spec, time } from "./schema.ts";

// The maximum of a throttle's declaration.
const throttleText = () => z.string().max(200);
// As the list takes it in code: a name and a key of that length, escaped and encoded.
const maxCursorChars = 3_300;

const pod = named(
  "ThrottlePod",
  z.object({
    podId: z.string(),
    share: described(z.int(), "How many calls this pod may have in flight."),
    inFlight: z.int(),
    waiting: described(
      z.int(),
      "Calls that wait for a permit, and tasks that aren't claimed for lack of one.",
    ),
    callsWaiting: described(z.int(), "The calls among them."),
    reportedMs: described(
      z.int(),
      "How long ago it reported; absent where it hasn't lately.",
    ).optional(),
  }),
);

const outcomes = z.object({
  success: z.int(),
  throttled: described(z.int(), "Refused for lack of capacity, as with 429."),
  timeout: z.int(),
  server_error: z.int(),
  ignored: described(z.int(), "Not the downstream's fault: a mistake of the caller, or an abort."),
});

const throttle = named(
  "Throttle",
  z.object({
    name: z.string(),
    key: described(label(z.string()), "Empty where the throttle has no keys."),
    bound: described(z.int(), "How many calls all pods together may have in flight."),
    epoch: described(z.int(), "Rises with every change of the bound."),
    pinned: described(
      z.int(),
      "The limit it was pinned to; absent where it is learned.",
    ).optional(),
    pinnedAtMs: described(
      z.int(),
      "When it was last pinned or unpinned, in ms since 1970.",
    ).optional(),
    settings: described(
      label(z.record(z.string(), z.unknown()).readonly()),
      "The settings of its declaration.",
    ),
    breaker: described(
      z.enum(["closed", "half_open", "open"]),
      "`open` lets no calls through, `half_open` a few probes.",
    ),
    holdMs: described(
      z.number(),
      "How long the downstream still asks for no calls, as with Retry-After.",
    ),
    refillPerS: described(
      z.number(),
      "Requests or tokens per second, where it has a bucket.",
    ).optional(),
    inFlight: z.int(),
    waiting: described(
      z.int(),
      "The sum over pods: a task that two pods could claim counts twice.",
    ),
    callsWaiting: described(z.int(), "The calls among them."),
    outcomes: described(
      outcomes.readonly(),
      "Calls by outcome, since the throttle was first used.",
    ),
    p95Ms: described(z.number(), "The 95th percentile of recent successful calls.").optional(),
    firstTokenP95Ms: described(
      z.number(),
      "The 95th percentile until the first chunk of a streamed answer.",
    ).optional(),
    meanMs: described(
      z.number(),
      "The average of successful calls, recent ones weighted more.",
    ).optional(),
    meanCost: described(z.number(), "Their average cost, in the bucket's unit.").optional(),
    pods: z.array(pod).readonly(),
    lastUpdateMs: time(),
  }),
);

const permit = named(
  "PermitInUse",
  z.object({
    podId: z.string(),
    key: label(z.string()),
    sinceMs: time(),
    holder: described(
      z
        .object({
          what: z.enum(["task", "run", "turn"]),
          id: described(z.string(), "Of the task or run; of a turn: of its session."),
          name: described(z.string().nullable(), "Of the task, the flow or the agent."),
          tenant: described(z.string().nullable(), "Of a turn: of its session.").optional(),
          epoch: described(z.int().nullable(), "Of a turn.").optional(),
          attempt: described(z.int().nullable(), "Of a turn.").optional(),
        })
        .nullable(),
      "Null for code outside of handlers and agents.",
    ),
  }),
);

const holders = named(
  "PermitHolders",
  z.object({
    permits: described(z.array(permit).readonly(), "The longest held first."),
    inFlight: described(z.int(), "How many are in use on the pods that have answered."),
    answered: described(z.array(z.string()).readonly(), "The live pods that have answered."),
    unanswered: described(
      z.array(z.object({ podId: z.string(), reason: z.string() })).readonly(),
      "Those that have not: their permits aren't known.",
    ),
  }),
);

const boundEvent = named(
  "ThrottleEvent",
  z.object({
    seq: z.int(),
    atMs: time(),
    cause: described(
      z.enum([
        "first_use",
        "learned_up",
        "promised",
        "refused",
        "errors",
        "slow",
        "lowered",
        "settings",
        "breaker_opened",
        "breaker_half_opened",
        "breaker_closed",
        "pinned",
        "unpinned",
      ]),
      "`promised`: by the downstream's headers; `settings`: by the options in code.",
    ),
    before: described(z.int().nullable(), "The bound before; null for the first."),
    bound: z.int(),
    epoch: z.int(),
    breaker: z.enum(["closed", "half_open", "open"]),
    by: described(label(z.string()).nullable(), "Who pinned or unpinned it."),
  }),
  "A change of a throttle's bound or breaker.",
);

const throttleAnswer = named("ThrottleShown", z.object({ throttle }));
const key = described(throttleText(), "The key of its limit. Default: the one without a key.");
const refusals = ["not_found", "invalid_input", "invalid_option", "unsupported"] as const;
const tag = "throttles";

export const throttleSpecs = {
  list: spec({
    method: "get",
    path: "/v1/throttles",
    operationId: "listThrottles",
    tag,
    summary: "A page of throttles over all pods, ordered by name and key.",
    verb: "fleet:read",
    query: z.strictObject({
      ...paging,
      cursor: described(
        z.string().max(maxCursorChars),
        "The `next` of the page before. It has a name and a key in it.",
      ).optional(),
    }),
    answers: { 200: named("ThrottlePage", z.object({ throttles: z.array(throttle), next })) },
    errors: ["invalid_option"],
  }),
  get: spec({
    method: "get",
    path: "/v1/throttles/{name}",
    operationId: "getThrottle",
    tag,
    summary: "One throttle, with each pod's share.",
    verb: "fleet:read",
    query: z.strictObject({ key: key.optional() }),
    answers: { 200: throttleAnswer },
    errors: ["not_found", "invalid_option"],
  }),
  holders: spec({
    method: "get",
    path: "/v1/throttles/{name}/holders",
    operationId: "listPermitHolders",
    tag,
    summary:
      "Which tasks, runs and turns hold its permits now. All live pods are asked, for 3 seconds at most.",
    verb: "fleet:read",
    query: z.strictObject({
      key: described(throttleText(), "Only permits of this key. Default: of all keys.").optional(),
      limit: pageLimit("100"),
    }),
    answers: { 200: holders },
    errors: ["invalid_option"],
  }),
  events: spec({
    method: "get",
    path: "/v1/throttles/{name}/events",
    operationId: "listThrottleEvents",
    tag,
    summary: "How its bound has changed and why, newest first. The last thousand are kept.",
    verb: "fleet:read",
    query: z.strictObject({ key: key.optional(), ...paging }),
    answers: {
      200: named("ThrottleEventPage", z.object({ events: z.array(boundEvent), next })),
    },
    errors: ["invalid_option"],
  }),
  pin: spec({
    method: "post",
    path: "/v1/throttles/{name}/pin",
    operationId: "pinThrottle",
    tag,
    summary: "Pin a throttle's limit. Nothing is learned until it is unpinned; 0 stops calls.",
    verb: "admin",
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
    summary: "Unpin a throttle: its limit is learned again, from where it was before.",
    verb: "admin",
    body: named("UnpinBody", z.strictObject({ key: key.optional() })),
    answers: { 200: throttleAnswer },
    errors: [...refusals, "payload_too_large"],
  }),
};
