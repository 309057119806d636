import { FlotillaError } from "../base/errors.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import type { ClientFrame, FrameMessage, FrameTrace, Ref, ServerFrame } from "./frames.ts";
import type { Part, ToolResult } from "./message.ts";

type Fields = Readonly<Record<string, unknown>>;

// Ids are stored in database indexes and in headers, which must stay small.
const maxIdChars = 200;
const maxRefChars = 64;
const maxTokenChars = 16_384;
const maxParts = 1_000;
const maxResults = 100;
const maxReasonChars = 4_000;
const maxTopics = 100;
// Enough for the ids of all rows that a page shows.
const maxTopicChars = 16_384;

export const clientFrameTypes = [
  "join",
  "leave",
  "send",
  "tool_result",
  "signal",
  "regenerate",
  "stop",
  "read",
  "presence",
  "presence_leave",
  "inbox",
  "inbox_leave",
  "watch",
  "ping",
  "token",
] as const satisfies readonly ClientFrame["type"][];

type Kind = "text" | "number" | "object" | "list" | "ref" | "one";

/** The required fields of each server frame. A newer server may send more fields, and other frames. */
const required: { readonly [Type in ServerFrame["type"]]: Readonly<Record<string, Kind>> } = {
  hello: { protocol: "one", tenant: "text", maxFrameBytes: "number" },
  joined: {
    ref: "ref",
    session: "text",
    lastSeq: "number",
    incarnation: "text",
    state: "object",
  },
  reset: { session: "text", reason: "text" },
  entries: { session: "text", entries: "list" },
  state: { session: "text", state: "object" },
  chunks: {
    session: "text",
    epoch: "number",
    attempt: "number",
    index: "number",
    chunks: "list",
  },
  presence: { session: "text", people: "list" },
  ack: { ref: "ref" },
  error: { code: "text", message: "text", details: "object" },
  inbox: { ref: "ref", sessions: "list" },
  inbox_changed: { sessions: "list" },
  inbox_removed: { sessionIds: "list" },
  left: { session: "text", reason: "text" },
  pong: { ref: "ref" },
};

export const serverFrameTypes = Object.keys(required) as readonly ServerFrame["type"][];

/**
 * Validates a client's frame by hand, because every message of every client passes here. Unknown fields
 * are ignored, so that a newer client can talk to an older server.
 */
export function parseClientFrame(value: unknown): ClientFrame {
  const fields = fieldsOf("a frame", value);
  const ref = refOf(fields);
  if (ref === undefined) refuse("ref", "text of 1 to 64 characters, or a whole number");
  const { type } = fields;
  switch (type) {
    case "send":
      return {
        type,
        ref,
        session: sessionOf(fields),
        message: messageOf(fields["message"]),
        ...traceOf(fields),
      };
    case "join":
      return {
        type,
        ref,
        session: sessionOf(fields),
        lastSeq: seqOf("lastSeq", fields["lastSeq"]),
        ...optionalText(fields, "incarnation"),
        ...optionalText(fields, "lastMessageId"),
      };
    case "leave":
      return { type, ref, session: sessionOf(fields) };
    case "tool_result":
      return {
        type,
        ref,
        session: sessionOf(fields),
        ...optionalText(fields, "id"),
        messageId: textOf("messageId", fields["messageId"]),
        results: parseToolResults(fields["results"]),
        ...traceOf(fields),
      };
    case "signal": {
      const { payload } = fields;
      return {
        type,
        ref,
        session: sessionOf(fields),
        ...optionalText(fields, "id"),
        name: textOf("name", fields["name"]),
        ...(payload !== undefined && { payload: payload as Json }),
        ...traceOf(fields),
      };
    }
    case "regenerate":
      return {
        type,
        ref,
        session: sessionOf(fields),
        ...optionalText(fields, "id"),
        ...optionalText(fields, "messageId"),
        ...traceOf(fields),
      };
    case "stop": {
      const { epoch } = fields;
      const session = sessionOf(fields);
      return epoch === undefined
        ? { type, ref, session }
        : { type, ref, session, epoch: seqOf("epoch", epoch) };
    }
    case "read":
      return { type, ref, session: sessionOf(fields), seq: seqOf("seq", fields["seq"]) };
    case "presence": {
      const { typing = false } = fields;
      if (typeof typing !== "boolean") refuse("typing", "true or false");
      return { type, ref, session: sessionOf(fields), typing };
    }
    case "presence_leave":
      return { type, ref, session: sessionOf(fields) };
    case "watch":
      return { type, ref, topics: topicsOf(fields["topics"]) };
    case "inbox":
    case "inbox_leave":
    case "ping":
      return { type, ref };
    case "token":
      return { type, ref, token: textOf("token", fields["token"], maxTokenChars) };
    default:
      return refuse("type", `one of ${clientFrameTypes.join(", ")}`);
  }
}

/** Parses one message of a server. Frames of unknown types are left out. */
export function parseServerFrames(text: string): ServerFrame[] {
  const frames: unknown = JSON.parse(text);
  if (!Array.isArray(frames)) throw unreadable("a message must be a list of frames");
  return frames.filter(isKnown);
}

/** The ref, if there is one, so that even a refusal can name its frame. */
export function refOf(value: unknown): Ref | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { ref } = value as { ref?: unknown };
  if (typeof ref === "string" && ref.length > 0 && ref.length <= maxRefChars) return ref;
  return Number.isSafeInteger(ref) ? (ref as number) : undefined;
}

export function parseParts(value: unknown): Part[] {
  if (!Array.isArray(value) || value.length > maxParts)
    return refuse("parts", `a list of at most ${maxParts}`);
  for (const part of value as unknown[]) {
    const type = isJsonObject(part) ? part["type"] : undefined;
    if (typeof type !== "string" || type === "" || type.length > maxIdChars)
      refuse("parts", `a list of objects, each with a \`type\``);
  }
  return value as Part[];
}

export function parseToolResults(value: unknown): ToolResult[] {
  if (!Array.isArray(value) || value.length === 0 || value.length > maxResults)
    return refuse("results", `a list of 1 to ${maxResults}`);
  return (value as unknown[]).map(toolResultOf);
}

/** A seq: a safe integer, 0 or more. */
function seqOf(what: string, value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  return refuse(what, "a whole number from 0 to 9,007,199,254,740,991");
}

function toolResultOf(value: unknown): ToolResult {
  const fields = fieldsOf("results", value);
  const toolCallId = textOf("toolCallId", fields["toolCallId"]);
  const { output, errorText, approved } = fields;
  if (typeof approved === "boolean") {
    const { reason } = fields;
    return {
      toolCallId,
      approved,
      ...optionalText(fields, "approvalId"),
      ...(reason !== undefined && { reason: textOf("reason", reason, maxReasonChars) }),
    };
  }
  if (typeof errorText === "string") return { toolCallId, errorText };
  if (output !== undefined) return { toolCallId, output: output as Json };
  return refuse("results", "a list of objects with `output`, `errorText` or `approved`");
}

function messageOf(value: unknown): FrameMessage {
  const fields = fieldsOf("message", value);
  const { role, tokens, metadata } = fields;
  if (role !== undefined && role !== "user" && role !== "assistant" && role !== "system")
    refuse("role", "one of user, assistant, system");
  return {
    parts: parseParts(fields["parts"]),
    ...optionalText(fields, "id"),
    ...(role !== undefined && { role }),
    ...optionalText(fields, "author"),
    ...optionalText(fields, "to"),
    ...(metadata !== undefined && { metadata: metadata as Json }),
    ...(tokens !== undefined && { tokens: seqOf("tokens", tokens) }),
  };
}

/** An invalid trace context counts as none: a trace is never worth a refused message. */
function traceOf({ trace }: Fields): FrameTrace {
  if (typeof trace !== "object" || trace === null) return {};
  const { traceparent, tracestate } = trace as Fields;
  if (typeof traceparent !== "string") return {};
  return { trace: { traceparent, ...(typeof tracestate === "string" && { tracestate }) } };
}

function topicsOf(value: unknown): string[] {
  if (!Array.isArray(value) || value.length > maxTopics)
    return refuse("topics", `a list of at most ${maxTopics}`);
  return (value as unknown[]).map((topic) => textOf("topics", topic, maxTopicChars));
}

function sessionOf(fields: Fields): string {
  return textOf("session", fields["session"]);
}

function textOf(what: string, value: unknown, maxChars = maxIdChars): string {
  if (typeof value === "string" && value.length > 0 && value.length <= maxChars) return value;
  return refuse(what, `text of 1 to ${maxChars} characters`);
}

function optionalText<Name extends string>(fields: Fields, name: Name): { [Key in Name]?: string } {
  const value = fields[name];
  if (value === undefined) return {};
  return { [name]: textOf(name, value) } as { [Key in Name]?: string };
}

function fieldsOf(what: string, value: unknown): Fields {
  if (isJsonObject(value)) return value;
  return refuse(what, "an object");
}

function refuse(what: string, demand: string): never {
  throw new FlotillaError("invalid_input", `${what} must be ${demand}`, { details: { what } });
}

function isKnown(frame: unknown): frame is ServerFrame {
  if (typeof frame !== "object" || frame === null) throw unreadable("a frame must be an object");
  const fields = frame as Readonly<Record<string, unknown>>;
  const type = String(fields["type"]);
  if (!Object.hasOwn(required, type)) return false;
  for (const [name, kind] of Object.entries(required[type as ServerFrame["type"]])) {
    if (!isOf(kind, fields[name]))
      throw unreadable(`${type}.${name} is missing or has the wrong type`);
  }
  return true;
}

function isOf(kind: Kind, value: unknown): boolean {
  switch (kind) {
    case "text":
      return typeof value === "string";
    case "number":
      return Number.isSafeInteger(value);
    case "object":
      return isJsonObject(value);
    case "list":
      return Array.isArray(value);
    case "ref":
      return typeof value === "string" || Number.isSafeInteger(value);
    case "one":
      return value === 1;
  }
}

function unreadable(message: string): FlotillaError {
  return new FlotillaError("invalid_input", `cannot read the server's message: ${message}`);
}
