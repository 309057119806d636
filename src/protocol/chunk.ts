import { isJsonObject, type Json } from "../base/json.ts";

/** One step of a streaming answer, as the AI SDK sends it. Unknown types pass through. */
export type Chunk = { readonly type: string; readonly [field: string]: unknown };

/** The chunks that are known here. `start-step` and the like carry nothing but their type. */
export type KnownChunk =
  | { readonly type: "start"; readonly messageId?: string; readonly messageMetadata?: unknown }
  | {
      readonly type: "finish";
      readonly finishReason?: FinishReason;
      readonly messageMetadata?: unknown;
    }
  | { readonly type: "abort"; readonly reason?: string }
  | { readonly type: "error"; readonly errorText: string }
  | { readonly type: "message-metadata"; readonly messageMetadata: unknown }
  | { readonly type: "start-step" }
  | { readonly type: "finish-step" }
  | { readonly type: "reset-step" }
  | ({ readonly type: "text-start"; readonly id: string } & Noted)
  | ({ readonly type: "text-delta"; readonly id: string; readonly delta: string } & Noted)
  | ({ readonly type: "text-end"; readonly id: string; readonly citations?: unknown } & Noted)
  | ({ readonly type: "reasoning-start"; readonly id: string } & Noted)
  | ({ readonly type: "reasoning-delta"; readonly id: string; readonly delta: string } & Noted)
  | ({ readonly type: "reasoning-end"; readonly id: string } & Noted)
  | ({ readonly type: "tool-input-start"; readonly inputEncoding?: "json" | "text" } & NamedCall)
  | {
      readonly type: "tool-input-delta";
      readonly toolCallId: string;
      readonly inputTextDelta: string;
    }
  | ({ readonly type: "tool-input-available"; readonly input: unknown } & NamedCall)
  | ({
      readonly type: "tool-input-error";
      readonly input: unknown;
      readonly errorText: string;
    } & NamedCall)
  | {
      readonly type: "tool-approval-request";
      readonly approvalId: string;
      readonly toolCallId: string;
      readonly approvalDescriptor?: unknown;
      readonly inputSchemaInput?: unknown;
      readonly reason?: string;
      readonly isAutomatic?: boolean;
      readonly signature?: string;
    }
  | ({
      readonly type: "tool-approval-response";
      readonly approvalId: string;
      readonly approved: boolean;
      readonly reason?: string;
      readonly providerExecuted?: boolean;
    } & Noted)
  | ({
      readonly type: "tool-output-available";
      readonly output: unknown;
      readonly preliminary?: boolean;
    } & Call)
  | ({ readonly type: "tool-output-error"; readonly errorText: string } & Call)
  | { readonly type: "tool-output-denied"; readonly toolCallId: string }
  | ({
      readonly type: "source-url";
      readonly sourceId: string;
      readonly url: string;
      readonly title?: string;
    } & Noted)
  | ({
      readonly type: "source-document";
      readonly sourceId: string;
      readonly mediaType: string;
      readonly title: string;
      readonly filename?: string;
    } & Noted)
  | ({ readonly type: "file"; readonly url: string; readonly mediaType: string } & Noted)
  | ({ readonly type: "reasoning-file"; readonly url: string; readonly mediaType: string } & Noted)
  | ({ readonly type: "custom"; readonly kind: `${string}.${string}` } & Noted)
  | { readonly type: "steering-message"; readonly id: string; readonly parts: readonly unknown[] }
  | DataChunk;

type DataChunk = {
  readonly type: `data-${string}`;
  readonly id?: string;
  readonly data: unknown;
  readonly transient?: boolean;
};

type FinishReason =
  | "stop"
  | "length"
  | "content-filter"
  | "tool-calls"
  | "error"
  | "interrupted"
  | "other";

type ProviderMetadata = Record<string, Record<string, Json | undefined>>;

type Noted = { readonly providerMetadata?: ProviderMetadata };

type Call = Noted & {
  readonly toolCallId: string;
  readonly providerExecuted?: boolean;
  readonly toolMetadata?: { readonly [key: string]: Json | undefined };
  readonly dynamic?: boolean;
};

type NamedCall = Call & { readonly toolName: string; readonly title?: string };

/**
 * Validates a chunk from an agent: only the fields that are used, by hand, because this runs for every
 * token. Unknown types and fields pass, because the AI SDK adds new ones every few releases. An optional
 * field that is null counts as absent and is removed, because the SDK's clients refuse it.
 */
export function parseChunk(value: unknown): Chunk | { readonly error: string } {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return { error: `a chunk must be an object with a type, not ${excerptOf(value)}` };
  }
  const chunk = value as { readonly [field: string]: unknown };
  const type = Object.hasOwn(chunk, "type") ? chunk["type"] : undefined;
  if (typeof type !== "string")
    return { error: `a chunk's type must be text, not ${excerptOf(type)}` };
  const { required, optional } = fieldsOf(type);
  for (const field of required) {
    const wrong = check(chunk, field);
    if (wrong !== undefined) return { error: `${type}: ${wrong}` };
  }
  let nulls = false;
  for (const field of optional) {
    const fieldValue = chunk[field.name];
    if (fieldValue === undefined) continue;
    if (fieldValue === null) nulls = true;
    else {
      const wrong = check(chunk, field);
      if (wrong !== undefined) return { error: `${type}: ${wrong}` };
    }
  }
  return nulls ? withoutNulls(chunk, optional, type) : (chunk as Chunk);
}

/**
 * Sets the message id of a `start` chunk. An agent may send any id or none, but an answer has the id of
 * its turn in every attempt.
 */
export function withMessageId(chunk: Chunk, messageId: string): Chunk {
  if (chunk.type !== "start" || chunk["messageId"] === messageId) return chunk;
  return { ...chunk, messageId };
}

/**
 * True if user interfaces stop reading at this chunk. Such a chunk is not passed on when it arrives. The
 * assembler's `close` returns it after the chunks that end open parts; otherwise clients would not see
 * those.
 */
export function isTerminal(chunk: Chunk): boolean {
  return chunk.type === "error" || chunk.type === "abort";
}

/** True if a client could see something of the answer at this chunk. Before that, a try may start over. */
export function hasContent(chunk: Chunk): boolean {
  return !silent.has(chunk.type);
}

const silent = new Set([
  "start",
  "start-step",
  "finish-step",
  "reset-step",
  "message-metadata",
  "finish",
  "abort",
  "error",
]);

type Field = { readonly name: string; readonly kind: Kind };
type Kind = "string" | "boolean" | "object" | "array";
type Fields = { readonly required: readonly Field[]; readonly optional: readonly Field[] };

function fieldsOf(type: string): Fields {
  switch (type) {
    case "text-delta":
    case "reasoning-delta":
      return delta;
    case "tool-input-delta":
      return inputDelta;
    case "text-start":
    case "reasoning-start":
    case "reasoning-end":
      return block;
    case "text-end":
      return textEnd;
    case "tool-input-start":
      return inputStart;
    case "tool-input-available":
      return inputAvailable;
    case "tool-input-error":
      return inputError;
    case "tool-approval-request":
      return approvalRequest;
    case "tool-approval-response":
      return approvalResponse;
    case "tool-output-available":
      return outputAvailable;
    case "tool-output-error":
      return outputError;
    case "tool-output-denied":
      return outputDenied;
    case "source-url":
      return sourceUrl;
    case "source-document":
      return sourceDocument;
    case "file":
    case "reasoning-file":
      return file;
    case "custom":
      return custom;
    case "steering-message":
      return steering;
    case "start":
      return start;
    case "finish":
      return finish;
    case "abort":
      return abort;
    case "error":
      return error;
    default:
      return type.startsWith("data-") ? data : nothing;
  }
}

// A question mark makes a field optional. A colon is followed by its kind; the default is text.
function fields(list: string): Fields {
  const all = list.split(" ").filter((word) => word !== "");
  const parsed = all.map((word) => {
    const [name = "", kind = "string"] = word.replace("?", "").split(":");
    return { name, kind: kind as Kind, optional: word.includes("?") };
  });
  return {
    required: parsed.filter((field) => !field.optional),
    optional: parsed.filter((field) => field.optional),
  };
}

const noted = "providerMetadata?:object";
const call = `toolCallId ${noted} providerExecuted?:boolean toolMetadata?:object dynamic?:boolean`;
const delta = fields(`id delta ${noted}`);
const block = fields(`id ${noted}`);
const textEnd = fields(`id citations?:array ${noted}`);
const inputStart = fields(`${call} toolName title? inputEncoding?`);
const inputDelta = fields("toolCallId inputTextDelta");
const inputAvailable = fields(`${call} toolName title?`);
const inputError = fields(`${call} toolName errorText title?`);
const approvalRequest = fields("approvalId toolCallId reason? isAutomatic?:boolean signature?");
const approvalResponse = fields(
  `approvalId approved:boolean reason? providerExecuted?:boolean ${noted}`,
);
const outputAvailable = fields(`${call} preliminary?:boolean`);
const outputError = fields(`${call} errorText`);
const outputDenied = fields("toolCallId");
const sourceUrl = fields(`sourceId url title? ${noted}`);
const sourceDocument = fields(`sourceId mediaType title filename? ${noted}`);
const file = fields(`url mediaType ${noted}`);
const custom = fields(`kind ${noted}`);
const steering = fields("id parts:array");
const data = fields("id? transient?:boolean");
const start = fields("messageId?");
const finish = fields("finishReason?");
const abort = fields("reason?");
const error = fields("errorText");
const nothing = fields("");

function check(chunk: { readonly [field: string]: unknown }, field: Field): string | undefined {
  const value = Object.hasOwn(chunk, field.name) ? chunk[field.name] : undefined;
  const fits =
    field.kind === "array"
      ? Array.isArray(value)
      : field.kind === "object"
        ? isJsonObject(value)
        : typeof value === field.kind;
  if (fits) return undefined;
  return `${field.name} must be ${kinds[field.kind]}, not ${excerptOf(value)}`;
}

const kinds = { string: "text", boolean: "true or false", object: "an object", array: "a list" };

function excerptOf(value: unknown): string {
  if (value === undefined) return "missing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

function withoutNulls(
  chunk: { readonly [field: string]: unknown },
  optional: readonly Field[],
  type: string,
): Chunk {
  const copy: { type: string; [field: string]: unknown } = { ...chunk, type };
  for (const { name } of optional) if (copy[name] === null) delete copy[name];
  return copy;
}
