import { z } from "zod";
import { label, named, next, paging, described, spec, taskName, time } from "./schema.ts";

const facts = named(
  "AgentFacts",
  z.object({
    during: described(
      z.enum(["queue", "interrupt", "merge"]),
      "What happens to a message that arrives during a turn.",
    ),
    steers: described(
      z.literal(true),
      "Such a message reaches the turn itself, if that comes to a step: `steer` in code.",
    ).optional(),
    debounceMs: described(
      z.number(),
      "With `merge`: how long no message must arrive before it answers.",
    ).optional(),
    attempts: z.int(),
    compaction: z
      .object({
        when: z.enum(["auto", "manual"]),
        tokenBudget: z.number(),
        triggerRatio: z.number(),
      })
      .readonly()
      .nullable(),
  }),
);

const signing = described(
  z
    .array(
      z
        .object({
          id: described(z.string(), "The start of its SHA-256, which identifies it."),
          addedAtMs: time(),
          untilMs: described(
            z.int().nullable(),
            "Until when a replaced secret still signs; null for the current one.",
          ),
        })
        .readonly(),
    )
    .readonly(),
  "The secrets that sign its requests, newest first. Their values are never shown.",
);

const agent = named(
  "Agent",
  z.union([
    z.object({
      name: z.string(),
      source: described(z.literal("code"), "Declared in the code of live pods; change it there."),
      facts: facts.readonly(),
      shadows: described(
        z.literal(true).optional(),
        "An agent of that name is stored too; it isn't used while pods declare one in code.",
      ),
    }),
    z.object({
      name: z.string(),
      source: described(z.literal("stored"), "Created over HTTP."),
      settings: described(
        label(z.record(z.string(), z.unknown()).readonly()),
        "Its settings. Of headers only the names are shown, with null for their values.",
      ),
      signing,
      compactionSigning: signing,
      revision: described(z.int(), "Rises with every change."),
      createdAtMs: time(),
      lastUpdateMs: time(),
    }),
  ]),
);

const settings = described(
  z.record(z.string(), z.unknown()),
  "A `url`, and an agent's other settings: `headers`, `during`, `history`, `compaction` and others. A header whose value is null keeps its stored value.",
);
const secret = () => described(z.string().max(200).nullable(), "`whsec_…`; null removes it.");
const written = {
  settings,
  secret: described(
    secret(),
    "Signs its requests: `whsec_` and 24 to 64 bytes in base64. The secret that it replaces goes on signing for a while; null removes all.",
  ).optional(),
  compactionSecret: described(secret(), "The same for its compactor.").optional(),
  keepOldSecretMs: described(
    z
      .int()
      .min(0)
      .max(30 * 86_400_000),
    "How long a replaced secret still signs. Default: a day.",
  ).optional(),
};

const agentAnswer = named("AgentShown", z.object({ agent }));
const tag = "agents";
const refusals = ["invalid_input", "invalid_option", "payload_too_large", "unsupported"] as const;
const stored = [...refusals, "payload_too_deep", "payload_not_storable", "conflict"] as const;

export const agentSpecs = {
  list: spec({
    method: "get",
    path: "/v1/agents",
    operationId: "listAgents",
    tag,
    summary: "A page of agents, including those in code, ordered by name.",
    verb: "fleet:read",
    ofTenant: true,
    query: z.strictObject(paging),
    answers: {
      200: named("AgentPage", z.object({ agents: z.array(agent).readonly(), next })),
    },
    errors: ["invalid_option"],
  }),
  create: spec({
    method: "post",
    path: "/v1/agents",
    operationId: "createAgent",
    tag,
    summary: "Create an agent that answers at a URL.",
    verb: "admin",
    body: named("CreateAgentBody", z.strictObject({ name: taskName(), ...written })),
    answers: { 201: agentAnswer },
    errors: [...stored, "overloaded"],
  }),
  get: spec({
    method: "get",
    path: "/v1/agents/{name}",
    operationId: "getAgent",
    tag,
    summary: "One agent, without its secrets.",
    verb: "fleet:read",
    ofTenant: true,
    answers: { 200: agentAnswer },
    errors: ["not_found", "invalid_option"],
  }),
  replace: spec({
    method: "put",
    path: "/v1/agents/{name}",
    operationId: "replaceAgent",
    tag,
    summary: "Replace an agent's settings. Secrets that the body leaves out stay.",
    verb: "admin",
    body: named(
      "ReplaceAgentBody",
      z.strictObject({
        ...written,
        ifRevision: described(
          z.int().min(1),
          "Refused with `conflict` where the agent has another revision.",
        ).optional(),
      }),
    ),
    answers: { 200: agentAnswer },
    errors: [...stored, "not_found"],
  }),
  remove: spec({
    method: "delete",
    path: "/v1/agents/{name}",
    operationId: "removeAgent",
    tag,
    summary:
      "Remove an agent and its secrets. Sessions keep its name, and wait for it or fail visibly.",
    verb: "admin",
    answers: { 200: z.object({ status: z.literal("removed") }) },
    errors: ["not_found", "conflict", "invalid_option"],
  }),
};
