import { z } from "zod";
import { type ErrorCode, errorCodes } from "../base/errors.ts";
import { leastRole } from "../protocol/verbs.ts";
import { bulkSpecs } from "./api/acts/bulk.schema.ts";
import { agentSpecs } from "./api/agents.schema.ts";
import { auditSpecs } from "./api/access/audit.schema.ts";
import { deadLetterSpecs } from "./api/dead-letters.schema.ts";
import { fileSpecs } from "./files/files.schema.ts";
import { fleetSpecs } from "./api/fleet.schema.ts";
import { keySpecs } from "./api/access/keys.schema.ts";
import { quotaSpecs } from "./api/access/quotas.schema.ts";
import { limitSpecs } from "./api/limits.schema.ts";
import { signInSpecs } from "./api/access/sign-ins.schema.ts";
import { runSpecs } from "./api/runs.schema.ts";
import { scheduleSpecs } from "./api/schedules.schema.ts";
import { documented, named, type RouteSpec } from "./api/schema.ts";
import { sessionSpecs } from "./api/sessions.schema.ts";
import { taskSpecs } from "./api/tasks.schema.ts";
import { throttleSpecs } from "./api/throttles.schema.ts";
import { turnSpecs } from "./api/conversation/turns.schema.ts";
import { forkSpecs } from "./api/conversation/forks.schema.ts";
import { wakeSpecs } from "./api/conversation/wakes.schema.ts";
import { approvalSpecs } from "./api/waiting/approvals.schema.ts";
import { whySpecs } from "./api/waiting/why.schema.ts";
import type { Access } from "./auth/caller.ts";
import { hookSpecs } from "./hooks/hooks.schema.ts";
import { agUiSpecs } from "./protocols/ag-ui.schema.ts";
import { durableStreamSpecs } from "./protocols/durable-streams.schema.ts";
import { eventStream } from "./event-streams.ts";
import { changeSpecs } from "./watch/changes.schema.ts";
import { watchSpecs } from "./watch/watch.schema.ts";
import { statusOf } from "./errors.ts";

type JsonObject = Record<string, unknown>;

const errorBody = named(
  "Error",
  z.object({
    error: z.object({
      code: named("ErrorCode", z.enum(errorCodes)),
      message: z.string(),
      details: z.record(z.string(), z.unknown()),
    }),
  }),
  "The body of every error. docs/errors.md lists the codes.",
);

/** The codes of every route that isn't open. */
const commonCodes: readonly ErrorCode[] = [
  "unauthorized",
  "forbidden",
  "closed",
  "unavailable",
  "internal",
  ...errorCodes.filter((code) => code.startsWith("store_")),
  "overloaded",
  "quota_exceeded",
  "unknown_outcome",
];
const commonByStatus = byStatus(commonCodes);

const statusTexts: Readonly<Record<number, string>> = {
  200: "Success.",
  201: "Created.",
  202: "Accepted: stored, and performed later.",
  204: "Nothing.",
  206: "The range that was asked for.",
  304: "Not modified.",
  416: "The range isn't within the file.",
  503: "Not ready.",
};

const schemasAt = "#/components/schemas/";

const shared = {
  metadata: documented,
  /** Leaves out the default range of integers, and `readOnly`, which only concerns TypeScript. */
  override({ jsonSchema }: { jsonSchema: z.core.JSONSchema.BaseSchema }) {
    if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
    if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    delete jsonSchema.readOnly;
  },
};

/** The OpenAPI document, generated from the specs of all routes. */
export function openApi({ version }: { version: string }): JsonObject {
  const paths: Record<string, JsonObject> = {};
  for (const spec of allSpecs) (paths[spec.path] ??= {})[spec.method] = operationOf(spec);
  const tags = [...new Set(allSpecs.map((spec) => spec.tag))].map((name) => ({ name }));
  return {
    openapi: "3.1.1",
    info: {
      title: "Flotilla",
      version,
      description: "Tasks that survive crashes, on a database.",
      license: { name: "MIT", identifier: "MIT" },
    },
    // The server that the document was fetched from.
    servers: [{ url: "/" }],
    security: [{ key: [] }],
    tags,
    paths,
    components: {
      schemas: components(),
      responses: Object.fromEntries(
        [...commonByStatus].map(([status, codes]) => [`Refused${status}`, refusal(codes)]),
      ),
      securitySchemes: {
        key: {
          type: "http",
          scheme: "bearer",
          description:
            "One of the server's keys, or a user's token. Where the server has neither, only this machine may call.",
        },
      },
    },
  };
}

/** The error codes that a route may answer with. */
export function errorsOf(spec: RouteSpec): ErrorCode[] {
  if (spec.open) return [];
  return [...new Set([...spec.errors, ...commonCodes])];
}

function operationOf(spec: RouteSpec): JsonObject {
  const { operationId, summary, tag, path, query, body, open } = spec;
  const parameters = [
    ...[...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
      name,
      in: "path",
      required: true,
      schema: { type: "string" },
    })),
    ...Object.entries(query?.shape ?? {}).map(([name, schema]) => parameterOf(name, schema)),
  ];
  return {
    operationId,
    summary,
    ...(!spec.open && { description: needsOf(spec) }),
    tags: [tag],
    ...(parameters.length > 0 && { parameters }),
    ...(body && { requestBody: { required: !spec.bodyOptional, content: bodyOf(spec, body) } }),
    responses: responsesOf(spec),
    // Needs no credentials.
    ...(open && { security: [] }),
  };
}

function needsOf({ verb, or, ofTenant }: Access): string {
  const role = leastRole(or ?? verb);
  const verbs = `Needs the verb \`${verb}\`${or === undefined ? "" : ` or \`${or}\``}`;
  const least = role === undefined ? "" : `, which the role \`${role}\` has`;
  const isOfAll = (verb === "fleet:read" || verb === "fleet:operate") && !ofTenant;
  return `${verbs}${least}.${isOfAll ? " Refused to callers of one tenant." : ""}`;
}

function parameterOf(name: string, schema: z.core.$ZodType): JsonObject {
  // The schema of the parsed number, not of its text.
  const { $schema: _, ...jsonSchema } = z.toJSONSchema(schema, { ...shared, io: "output" });
  const { description, ...rest } = jsonSchema;
  return { name, in: "query", ...(description !== undefined && { description }), schema: rest };
}

function bodyOf({ bodyTypes = ["application/json"] }: RouteSpec, body: z.ZodType): JsonObject {
  const schema = reference(body);
  // NDJSON has no schema as a whole; each line is as an item of the array.
  const of = (type: string) => (type === "application/json" ? { schema } : {});
  return Object.fromEntries(bodyTypes.map((type) => [type, of(type)]));
}

function responsesOf(spec: RouteSpec): JsonObject {
  const type = spec.answerType ?? "application/json";
  const responses: Record<string, JsonObject> = {};
  for (const [status, schema] of Object.entries(spec.answers)) {
    const content = {
      [type]: { schema: reference(schema) },
      ...(spec.follows && { [eventStream]: { schema: { type: "string" } } }),
    };
    const description = statusTexts[Number(status)] ?? "Success.";
    const hasBody = status !== "204" && status !== "304";
    responses[status] = { description, ...(hasBody && { content }) };
  }
  for (const [status, codes] of byStatus(errorsOf(spec))) {
    const isUsual = String(codes) === String(commonByStatus.get(status));
    responses[status] = isUsual
      ? { $ref: `#/components/responses/Refused${status}` }
      : refusal(codes);
  }
  return responses;
}

function refusal(codes: readonly ErrorCode[]): JsonObject {
  const narrowed = { properties: { error: { properties: { code: { enum: codes } } } } };
  return {
    description: codes.map((code) => `\`${code}\``).join(", "),
    content: { "application/json": { schema: { allOf: [reference(errorBody), narrowed] } } },
  };
}

function byStatus(codes: readonly ErrorCode[]): Map<number, ErrorCode[]> {
  const found = new Map<number, ErrorCode[]>();
  const add = (status: number, code: ErrorCode) =>
    found.set(status, [...(found.get(status) ?? []), code]);
  for (const code of codes.toSorted()) {
    add(statusOf(code), code);
    // Of a quota that passes by itself.
    if (code === "overloaded") add(statusOf(code, { quota: "turnsAtOnce" }), code);
  }
  return found;
}

/** Refers to a schema that has a name; inlines the few others. */
function reference(schema: z.ZodType): JsonObject {
  const id = documented.get(schema)?.id;
  if (id !== undefined) return { $ref: `${schemasAt}${id}` };
  if (schema instanceof z.ZodArray) {
    return { type: "array", items: reference(schema.element as z.ZodType) };
  }
  const { $schema: _, ...inline } = z.toJSONSchema(schema, { ...shared, io: "input" });
  return inline;
}

function components(): Record<string, JsonObject> {
  const { schemas } = z.toJSONSchema(documented, {
    ...shared,
    io: "input",
    uri: (id) => `${schemasAt}${id}`,
  });
  const byId: Record<string, JsonObject> = {};
  for (const [id, { $schema: _s, $id: _i, ...schema }] of Object.entries(schemas)) {
    byId[id] = schema;
  }
  return byId;
}

/** The specs of all routes. */
export const allSpecs: readonly RouteSpec[] = [
  ...Object.values(taskSpecs),
  ...Object.values(whySpecs),
  ...Object.values(runSpecs),
  ...Object.values(scheduleSpecs),
  ...Object.values(deadLetterSpecs),
  ...Object.values(bulkSpecs),
  ...Object.values(limitSpecs),
  ...Object.values(throttleSpecs),
  ...Object.values(agentSpecs),
  ...Object.values(auditSpecs),
  ...Object.values(approvalSpecs),
  ...Object.values(sessionSpecs),
  ...Object.values(forkSpecs),
  ...Object.values(turnSpecs),
  ...Object.values(durableStreamSpecs),
  ...Object.values(agUiSpecs),
  ...Object.values(wakeSpecs),
  ...Object.values(fileSpecs),
  ...Object.values(keySpecs),
  ...Object.values(signInSpecs),
  ...Object.values(quotaSpecs),
  ...Object.values(fleetSpecs),
  ...Object.values(watchSpecs),
  ...Object.values(changeSpecs),
  ...Object.values(hookSpecs),
];
