import { z } from "zod";
import { isJsonObject } from "../base/json.ts";
import type { Entry } from "../protocol/message.ts";
import type { Machine } from "../flows/machine.ts";
import { createChunkRedaction } from "../redaction/chunks.ts";
import type { Path } from "../redaction/paths.ts";
import { defaultRedactor, type Redactor } from "../redaction/redactor.ts";
import { sensitivePaths } from "../redaction/sensitive.ts";
import { shapeAround, contentShape } from "../redaction/shape.ts";
import type { TaskContract } from "../tasks/model.ts";
import { type ContentMark, contents, contentSources } from "./api/schema.ts";
import { entrySchema } from "./api/schema.ts";
import { type Caller, may } from "./auth/caller.ts";
import { isAmongMembers } from "./auth/members.ts";
import type { SharedEvent } from "./socket/send-buffer.ts";

/**
 * The way out of the server: every answer, stream and frame with what users put in is made text after it
 * has passed here. What that is, the schemas of the answers say.
 */
export type Serializer = {
  /** A value as a caller may see it: the same one where nothing is hidden, else a copy. */
  shown(schema: z.ZodType, value: unknown, reader: Reader): unknown;
  /** The events of a session as a caller may see them. */
  feed(reader: Reader): (event: SharedEvent) => SharedEvent | undefined;
};

export type Reader = {
  readonly caller: Caller | undefined;
  /** The content is of the caller's own conversation, and is shown as it is. */
  readonly isOwn?: boolean | undefined;
};

export type SerializerParts = {
  /** Default: one without rules of a config. */
  redactor?: Redactor | undefined;
  /** Tasks and flows whose schemas may mark fields as sensitive. */
  contracts?: ReadonlyMap<string, TaskContract> | undefined;
  machines?: readonly Machine[] | undefined;
};

/** How one reader sees content. */
type View = {
  readonly mode: "redacted" | "shapes";
  readonly redactor: Redactor;
  readonly caller: Caller | undefined;
  /** The redactor for content of a task or flow. */
  readonly of: (name: unknown) => Redactor;
};

/** Walks a value along its schema. Undefined where the schema has no content. */
type Walk = (value: unknown, view: View) => unknown;

const walks = new WeakMap<z.ZodType, { walk: Walk | undefined }>();
// Verbs for what is the caller's own or its tenant's: such a caller needs no other to see it.
const fleetVerbs = /^fleet:/;
const ownVerbs = /^(?:tasks|sessions|inbox):/;

export function createSerializer(parts: SerializerParts = {}): Serializer {
  const { redactor = defaultRedactor } = parts;
  const paths = sensitiveByName(parts);
  const byName = new Map([...paths].map(([name, found]) => [name, redactor.with(found)]));
  // Some content doesn't say whose it is: then what is sensitive for any of them is hidden.
  const ofAny = redactor.with([...paths.values()].flat());
  const of = (name: unknown) => byName.get(name as string) ?? redactor;
  const viewOf = ({ caller }: Reader): View => ({
    mode: caller && !seesContent(caller) ? "shapes" : "redacted",
    redactor: ofAny,
    caller,
    of,
  });

  return {
    shown(schema, value, reader) {
      const walk = walkOf(schema);
      return walk && !reader.isOwn ? walk(value, viewOf(reader)) : value;
    },
    feed(reader) {
      if (reader.isOwn) return (event) => event;
      const view = viewOf(reader);
      const chunks = createChunkRedaction(redactor);
      const walk = walkOf(entrySchema)!;
      return (event) => {
        if (event.type === "entries")
          return { ...event, entries: event.entries.map((each) => walk(each, view) as Entry) };
        if (event.type !== "chunks") return event;
        // The entry follows with its shape. Chunks have none: each is a part of something.
        if (view.mode === "shapes") return undefined;
        const left = chunks.push(event);
        return left && { type: "chunks", ...left };
      };
    },
  };
}

/**
 * Whether a caller sees content, and not its shape. `fleet:read` is for looking after tasks and sessions of
 * all, so it needs `payloads:read` besides; verbs for what is one's own don't.
 */
export function seesContent(caller: Caller): boolean {
  if (may(caller, "payloads:read")) return true;
  const verbs = [...caller.verbs];
  return verbs.some((verb) => ownVerbs.test(verb)) && !verbs.some((verb) => fleetVerbs.test(verb));
}

/** What is sensitive in tasks and flows, by their names. */
function sensitiveByName({
  contracts = new Map(),
  machines = [],
}: SerializerParts): Map<string, Path[]> {
  const paths = new Map<string, Path[]>();
  const add = (name: string, from: Path, schema: object | undefined) => {
    const found = sensitivePaths(schema).map((path) => [...from, ...path]);
    if (found.length > 0) paths.set(name, [...(paths.get(name) ?? []), ...found]);
  };
  for (const { name, input, output, isFlow } of [...contracts.values(), ...machines]) {
    add(name, ["input"], input);
    // A run is shown as a task, too. Its output is made of its state, which is shown with the run.
    for (const place of isFlow ? ["result", "output", "state"] : ["result"])
      add(name, [place], output);
  }
  for (const { name, parts } of machines) {
    for (const part of parts) {
      if (part.kind !== "signal") continue;
      for (const place of ["result", "output", "state"]) add(name, [place, part.name], part.schema);
    }
  }
  return paths;
}

/** The walk along a schema, compiled once. */
function walkOf(schema: z.ZodType): Walk | undefined {
  let known = walks.get(schema);
  if (!known) walks.set(schema, (known = { walk: compile(schema) }));
  return known.walk;
}

function compile(schema: z.ZodType): Walk | undefined {
  const mark = contents.get(schema);
  if (mark) return walkContent(mark);
  const walk = compileParts(schema);
  const source = contentSources.get(schema);
  if (!walk || !source) return walk;
  if ("contract" in source) {
    return (value, view) =>
      walk(value, { ...view, redactor: view.of(isJsonObject(value) && value[source.contract]) });
  }
  return (value, view) => {
    const members = isJsonObject(value) ? value[source.members] : undefined;
    const isOwn = view.caller && Array.isArray(members) && isAmongMembers(view.caller, members);
    return isOwn ? value : walk(value, view);
  };
}

function compileParts(schema: z.ZodType): Walk | undefined {
  if (schema instanceof z.ZodObject) return walkFields(fieldsOf([schema]));
  if (schema instanceof z.ZodArray) return walkItems(walkOf(schema.element as z.ZodType));
  if (schema instanceof z.ZodRecord) return walkValues(walkOf(schema.valueType as z.ZodType));
  if (
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodNullable ||
    schema instanceof z.ZodReadonly
  ) {
    const walk = walkOf(schema.unwrap() as z.ZodType);
    return walk && ((value, view) => (value == null ? value : walk(value, view)));
  }
  // A value has the fields of its own kind alone, so those of all kinds can be walked.
  if (schema instanceof z.ZodUnion)
    return walkFields(fieldsOf(schema.options as readonly z.ZodType[]));
  return undefined;
}

function fieldsOf(schemas: readonly z.ZodType[]): Map<string, Walk> {
  const fields = new Map<string, Walk>();
  for (const schema of schemas) {
    if (!(schema instanceof z.ZodObject)) continue;
    for (const [name, field] of Object.entries(schema.shape)) {
      const walk = walkOf(field as z.ZodType);
      if (walk) fields.set(name, walk);
    }
  }
  return fields;
}

function walkFields(fields: ReadonlyMap<string, Walk>): Walk | undefined {
  if (fields.size === 0) return undefined;
  const list = [...fields];
  return (value, view) => {
    if (!isJsonObject(value)) return value;
    let copy: Record<string, unknown> | undefined;
    for (const [name, walk] of list) {
      const before = value[name];
      if (before === undefined) continue;
      const after = walk(before, view);
      if (after !== before) (copy ??= { ...value })[name] = after;
    }
    return copy ?? value;
  };
}

function walkItems(walk: Walk | undefined): Walk | undefined {
  if (!walk) return undefined;
  return (value, view) => {
    if (!Array.isArray(value)) return value;
    let copy: unknown[] | undefined;
    for (let at = 0; at < value.length; at++) {
      const after = walk(value[at], view);
      if (after !== value[at]) (copy ??= [...(value as unknown[])])[at] = after;
    }
    return copy ?? value;
  };
}

function walkValues(walk: Walk | undefined): Walk | undefined {
  if (!walk) return undefined;
  return (value, view) => {
    if (!isJsonObject(value)) return value;
    const fields = Object.entries(value).map(([name, field]) => [name, walk(field, view)] as const);
    return fields.some(([name, field]) => field !== value[name])
      ? Object.fromEntries(fields)
      : value;
  };
}

function walkContent(mark: ContentMark): Walk {
  if (mark.kind === "label") {
    return (value, { redactor }) =>
      typeof value === "string" ? redactor.text(value) : redactor.value(value, "settings");
  }
  const { name, as, keeps, holds = {} } = mark;
  const kept = keeps && new Set(keeps);
  const redactField = (field: string, value: unknown, redactor: Redactor): unknown => {
    const left = redactor.value({ [field]: value }, name);
    return isJsonObject(left) ? left[field] : left;
  };
  const redact = (value: unknown, redactor: Redactor): unknown => {
    if (as !== undefined) return redactField(as, value, redactor);
    if (!isJsonObject(value) || !Object.keys(holds).some((each) => Object.hasOwn(value, each)))
      return redactor.value(value, name);
    const fields = Object.entries(value).map(([field, inner]) => {
      const held = Object.hasOwn(holds, field) ? holds[field] : undefined;
      return [field, held ? redactor.value(inner, held) : redactField(field, inner, redactor)];
    });
    return Object.fromEntries(fields);
  };
  return (value, { mode, redactor }) => {
    if (mode === "shapes") return kept ? shapeAround(value, kept) : contentShape(value);
    const left = redact(value, redactor);
    // A path may hide the whole; readers need what it is even so.
    if (!kept || !isJsonObject(value) || isJsonObject(left)) return left;
    return Object.fromEntries(Object.entries(value).filter(([field]) => kept.has(field)));
  };
}
