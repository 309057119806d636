import { FlotillaError } from "../base/errors.ts";
import { checkSchema, type Schema } from "../base/schema.ts";
import type { Path } from "./paths.ts";

/** Schemas that were marked, each with the paths in it that are sensitive; an empty one is all of it. */
const marked = new WeakMap<object, readonly Path[]>();

// Deeper than any payload.
const maxDepth = 64;
const maxPaths = 1_000;

/**
 * Marks what a schema is for as sensitive: servers whose config has the task or flow show `[redacted]` in
 * its place. Returns the same schema, so that it works inside of others: `z.object({ card:
 * sensitive(z.string()) })`. Call it last, because methods of a schema return another one. With paths it
 * marks those fields, in a schema of any library: `sensitive(type({ card: "string" }), "card")`.
 */
export function sensitive<S extends Schema<any, any>>(schema: S, ...paths: string[]): S {
  checkSchema("sensitive", schema);
  const given = paths.length === 0 ? [[]] : paths.map(stepsOf);
  marked.set(schema, [...(marked.get(schema) ?? []), ...given]);
  return schema;
}

/** The paths of what is sensitive in a value of a schema. */
export function sensitivePaths(schema: object | undefined): Path[] {
  const found: Path[] = [];
  if (schema) collect(schema, [], new Map(), found);
  return found;
}

function stepsOf(path: string): Path {
  const steps = typeof path === "string" ? path.split(".") : [""];
  if (!steps.includes("")) return steps;
  throw new FlotillaError(
    "invalid_option",
    `sensitive: ${JSON.stringify(path)} isn't a path: write names with dots between, such as card.number`,
  );
}

/*
 * Where the schemas of zod (3 and 4) and valibot keep those that they are made of. Schemas of other
 * libraries are opaque: in those, paths mark the fields.
 */
const sameValue = ["innerType", "wrapped", "in", "out", "left", "right", "schema", "rest"];
const items = ["element", "item", "type"];
const several = ["options", "items", "pipe"];
const anyField = ["valueType", "value"];

/** The schemas that a schema is in, and whether they have been met again inside of themselves. */
type Within = Map<object, { containsItself: boolean }>;

function collect(schema: object, at: Path, within: Within, found: Path[]): void {
  const outer = within.get(schema);
  if (outer) outer.containsItself = true;
  if (outer || at.length > maxDepth || found.length >= maxPaths) return;
  const own = { containsItself: false };
  const before = found.length;
  within.set(schema, own);
  for (const path of marked.get(schema) ?? []) found.push([...at, ...path]);
  const definition = definitionOf(schema);
  const visit = (value: unknown, path: Path) => {
    if (isPart(value)) collect(value, path, within, found);
  };
  for (const name of [...sameValue, ...items]) visit(read(definition, name), at);
  for (const name of several) {
    const list = read(definition, name);
    if (Array.isArray(list)) for (const each of list) visit(each, at);
  }
  for (const name of anyField) visit(read(definition, name), [...at, "*"]);
  visit(called(read(definition, "getter")), at);
  const shape = read(definition, "shape");
  const fields =
    typeof shape === "function" ? called(shape) : (shape ?? read(definition, "entries"));
  if (typeof fields === "object" && fields !== null) {
    for (const [name, field] of Object.entries(fields)) visit(field, [...at, name]);
  }
  within.delete(schema);
  // What it marks is sensitive at any depth then.
  if (own.containsItself) {
    for (const path of found.slice(before)) found.push([...at, "**", ...path.slice(at.length)]);
  }
}

function definitionOf(schema: object): object {
  const { _zod, _def } = schema as { _zod?: { def?: object }; _def?: object };
  return _zod?.def ?? _def ?? schema;
}

function read(definition: object, name: string): unknown {
  return (definition as Record<string, unknown>)[name];
}

function called(value: unknown): unknown {
  try {
    return typeof value === "function" ? (value as () => unknown)() : undefined;
  } catch {
    // A schema that refers to one that isn't there yet.
    return undefined;
  }
}

function isPart(value: unknown): value is object {
  return typeof value === "object" && value !== null && ("~standard" in value || "_def" in value);
}
