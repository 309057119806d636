/** Values for requests and frames: those that a schema allows, and what becomes of them by accident or malice. */
import { z } from "zod";
import type { Draw } from "./draw.ts";

export type JsonSchema = {
  readonly type?: string;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | JsonSchema;
  readonly items?: JsonSchema;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
};

// A body that JSON Schema can't describe is one that takes anything.
const anything = { unrepresentable: "any", target: "draft-2020-12" } as const;

/** What a body must be. */
export function bodySchema(schema: z.ZodType): JsonSchema {
  return z.toJSONSchema(schema, { io: "input", ...anything }) as JsonSchema;
}

/** What each parameter of a query must be, as the handler gets it. */
export function querySchemas(query: z.ZodObject | undefined): Readonly<Record<string, JsonSchema>> {
  const names = Object.entries(query?.shape ?? {});
  return Object.fromEntries(
    names.map(([name, schema]) => [
      name,
      z.toJSONSchema(schema as z.ZodType, { io: "output", ...anything }) as JsonSchema,
    ]),
  );
}

const optionalShare = 0.35;
const knownShare = 0.8;
const words = ["mail", "a", "Zoë", "two words", "x-1", "2026", "日本", "key/mail/7"];

/** Fields that take more than their schema says. */
const shapes: Readonly<Record<string, (draw: Draw) => unknown>> = {
  settings: (draw) => ({
    url: `https://agent.example/${draw.pick(words)}`,
    ...(draw.chance(0.3) && { headers: { "X-Api-Key": "of-the-fuzz" } }),
    ...(draw.chance(0.2) && { during: draw.pick(["queue", "interrupt", "merge"]) }),
  }),
  parts: (draw) => ({ type: "text", text: draw.pick(words) }),
  results: (draw) => ({
    toolCallId: draw.pick(["c", "d"]),
    ...draw.pick<object>([{ approved: true }, { output: 7 }, { errorText: "no" }]),
  }),
  pattern: (draw) => draw.pick(["0 3 * * *", "*/5 * * * *", "0 0 29 2 *"]),
  zone: (draw) => draw.pick(["UTC", "Europe/Berlin"]),
  scope: (draw) => draw.pick(["tenant/acme", "tenant/umbra", "key/mail/7"]),
  secret: () => `whsec_${Buffer.from("twenty-four bytes, or more").toString("base64")}`,
};
// In the year 2096, so that what ends by itself doesn't while it is tried.
const farAtMs = 4_000_000_000_000;
/** Of these the shape is the whole value; of others it is one item of a list, or one choice. */
const whole = new Set(["pattern", "zone", "scope", "settings"]);

/** A value that the schema allows, of a field of this name. */
export function valueOf(schema: JsonSchema, field: string, draw: Draw): unknown {
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return draw.pick(schema.enum);
  const branches = schema.anyOf ?? schema.oneOf;
  if (branches) return valueOf(draw.pick(branches), field, draw);
  if (whole.has(field)) return shapes[field]!(draw);
  switch (schema.type ?? "any") {
    case "object":
      return objectOf(schema, draw);
    case "array": {
      const { items = {}, minItems = 0, maxItems = 3 } = schema;
      const length = draw.between(minItems, Math.max(minItems, Math.min(maxItems, 3)));
      return Array.from({ length }, () => valueOf(items, field, draw));
    }
    case "string":
      return textOf(schema, field, draw);
    case "integer":
    case "number": {
      const { maximum = Number.MAX_SAFE_INTEGER } = schema;
      const minimum = Math.max(schema.minimum ?? 0, field.endsWith("AtMs") ? farAtMs : 0);
      const near = Math.min(maximum, minimum + 100);
      return draw.chance(0.8) ? draw.between(minimum, near) : draw.pick([minimum, maximum]);
    }
    case "boolean":
      return draw.chance(0.5);
    case "null":
      return null;
    default:
      return shapes[field]?.(draw) ?? anyJson(draw);
  }
}

function objectOf(schema: JsonSchema, draw: Draw): Record<string, unknown> {
  const { properties = {}, required = [], additionalProperties } = schema;
  const names = Object.keys(properties).filter(
    (name) => required.includes(name) || draw.chance(optionalShare),
  );
  const object = Object.fromEntries(
    names.map((name) => [name, valueOf(properties[name]!, name, draw)]),
  );
  if (typeof additionalProperties === "object" && draw.chance(0.5))
    object[draw.pick(words)] = valueOf(additionalProperties, "", draw);
  return object;
}

function textOf(schema: JsonSchema, field: string, draw: Draw): string {
  const { minLength = 0, maxLength = 500, pattern } = schema;
  const allowed = pattern === undefined ? undefined : new RegExp(pattern, "u");
  const fits = (text: string) =>
    text.length >= minLength && text.length <= maxLength && (allowed?.test(text) ?? true);
  const known = (draw.known[field] ?? []).filter(fits);
  if (known.length > 0 && draw.chance(knownShare)) return draw.pick(known);
  if (shapes[field] && !whole.has(field)) {
    const shaped = shapes[field](draw);
    if (typeof shaped === "string" && fits(shaped)) return shaped;
  }
  const fitting = [...words, "x".repeat(Math.min(maxLength, 200))].filter(fits);
  return fitting.length > 0 ? draw.pick(fitting) : "x".repeat(Math.max(1, minLength));
}

function anyJson(draw: Draw): unknown {
  return draw.pick<unknown>([null, 7, "text", [1, "two"], { note: "x", deep: [{ a: null }] }]);
}

const texts = [
  "",
  " ",
  "\0",
  "a\0b",
  "\ud800",
  "x\udfff",
  "\ud83d\ude00".repeat(70),
  "\u202eevil\u2066",
  "\u2028\r\nX-Header: 1",
  "e\u0301".repeat(120),
  "__proto__",
  "constructor",
  "hasOwnProperty",
  "toString",
  "../../etc/passwd",
  "%",
  "%zz%00",
  "' or 1=1 --",
  "${7*7}{{7*7}}",
  "<script>alert(1)</script>",
  "x".repeat(201),
  "x".repeat(501),
  "x".repeat(5_000),
  "-1",
  "1e999",
  "99999999999999999999",
  "null",
  "2026-13-45T99:99:99Z",
  "275760-09-13T00:00:00.001Z",
  "~1:AAAA",
  "[redacted]",
  "*",
  "tenant/",
  "key//",
  "\ufeff",
  "\uffff",
];

const numbers = [
  -1,
  0,
  -0,
  0.1,
  1e-7,
  2 ** 31,
  2 ** 32,
  2 ** 53,
  -(2 ** 53),
  2 ** 63,
  1e21,
  1e308,
  -1e308,
  8.64e15,
  8.64e15 + 1,
];

/** A value that hardly any field allows. */
export function hostileValue(draw: Draw): unknown {
  switch (draw.between(0, 6)) {
    case 0:
    case 1:
    case 2:
      return draw.pick(texts);
    case 3:
      return draw.pick(numbers);
    case 4:
      return draw.pick<unknown>([null, true, false, [], {}, [[]], [null], { "": "" }]);
    case 5:
      return nested(draw.pick([3, 60, 130, 1_500]), draw.chance(0.5));
    default:
      return draw.pick<unknown>([
        Array.from({ length: 1_001 }, (_, at) => at),
        Object.fromEntries(Array.from({ length: 300 }, (_, at) => [`k${at}`, at])),
        "x".repeat(20_000),
        // As text it is an own field of that name, not the prototype.
        JSON.parse('{"__proto__":{"admin":true},"constructor":1}'),
      ]);
  }
}

export function hostileText(draw: Draw): string {
  return draw.pick(texts);
}

function nested(depth: number, isList: boolean): unknown {
  let value: unknown = 1;
  for (let at = 0; at < depth; at++) value = isList ? [value] : { a: value };
  return value;
}

/** The same with one thing in it changed: replaced, left out, renamed, doubled or added. */
export function mutated(value: unknown, draw: Draw): unknown {
  if (Array.isArray(value)) {
    const items = value as unknown[];
    if (items.length === 0 || draw.chance(0.2)) return hostileValue(draw);
    if (draw.chance(0.2)) return [...items, ...items];
    const at = draw.between(0, items.length - 1);
    return items.map((item, index) => (index === at ? mutated(item, draw) : item));
  }
  if (typeof value !== "object" || value === null) return hostileValue(draw);
  const fields = Object.entries(value);
  if (fields.length === 0 || draw.chance(0.15))
    return { ...value, [hostileText(draw)]: hostileValue(draw) };
  if (draw.chance(0.08)) return hostileValue(draw);
  const at = draw.between(0, fields.length - 1);
  const [name, inner] = fields[at]!;
  const others = fields.filter((_, index) => index !== at);
  if (draw.chance(0.15)) return Object.fromEntries(others);
  if (draw.chance(0.1)) return Object.fromEntries([...others, [hostileText(draw), inner]]);
  return Object.fromEntries([...others, [name, mutated(inner, draw)]]);
}
