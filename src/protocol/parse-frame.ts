import { FlotillaError } from "../base/errors.ts";
import type { Json } from "../base/json.ts";
import type { ClientFrame, FrameMessage, FrameTrace, Ref, ServerFrame } from "./frames.ts";
import type { Part, ToolResult } from "./message.ts";

/**
 * Checks by hand what a client has sent, because every message of every client passes here. Fields that
 * aren't known are left aside, so that a newer client can talk to an older server.
 */
export function parseClientFrame(value: unknown): ClientFrame {
  const given = fieldsOf("a frame", value);
  const ref = refOf(given);
  if (ref === undefined) refuse("ref", "text of 1 to 64 characters, or a whole number");
  const { type } = given;
  switch (type) {
    case "send":
      return {
        type,
        ref,
        session: sessionOf(given),
        message: messageOf(given["message"]),
        ...traceOf(given),
      };
    case "join":
      return {
        type,
        ref,
        session: sessionOf(given),
        lastSeq: seqOf("lastSeq", given["lastSeq"]),
        ...optionalText(given, "incarnation"),
        ...optionalText(given, "lastMessageId"),
      };
    case "leave":
      return { type, ref, session: sessionOf(given) };
    case "tool_result":
      return {
        type,
        ref,
        session: sessionOf(given),
        ...optionalText(given, "id"),
        messageId: textOf("messageId", given["messageId"]),
        results: parseToolResults(given["results"]),
        ...traceOf(given),
      };
    case "regenerate":
      return {
        type,
        ref,
        session: sessionOf(given),
        ...optionalText(given, "id"),
        ...optionalText(given, "messageId"),
        ...traceOf(given),
      };
    case "stop": {
      const { epoch } = given;
      const session = sessionOf(given);
      return epoch === undefined
        ? { type, ref, session }
        : { type, ref, session, epoch: seqOf("epoch", epoch) };
    }
    case "read":
      return { type, ref, session: sessionOf(given), seq: seqOf("seq", given["seq"]) };
    case "inbox":
    case "inbox_leave":
    case "ping":
      return { type, ref };
    case "token":
      return { type, ref, token: textOf("token", given["token"], tokenChars) };
    default:
      return refuse("type", `one of ${clientFrameTypes.join(", ")}`);
  }
}

export const clientFrameTypes = [
  "join",
  "leave",
  "send",
  "tool_result",
  "regenerate",
  "stop",
  "read",
  "inbox",
  "inbox_leave",
  "ping",
  "token",
] as const satisfies readonly ClientFrame["type"][];

// Ids are at home in indexes of databases, and in headers that stay small.
const idChars = 200;
const refChars = 64;
const tokenChars = 16_384;
const partsMost = 1_000;
const resultsMost = 100;

/** The ref, as far as there is one, so that even a refusal can say what it is about. */
export function refOf(value: unknown): Ref | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { ref } = value as { ref?: unknown };
  if (typeof ref === "string" && ref.length > 0 && ref.length <= refChars) return ref;
  return Number.isSafeInteger(ref) ? (ref as number) : undefined;
}

/** A place in a session: a whole number that JavaScript holds exactly, 0 or more. */
function seqOf(what: string, value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  return refuse(what, "a whole number from 0 to 9,007,199,254,740,991");
}

export function parseParts(value: unknown): Part[] {
  if (!Array.isArray(value) || value.length > partsMost)
    return refuse("parts", `a list of at most ${partsMost}`);
  for (const part of value as unknown[]) {
    const isPart = typeof part === "object" && part !== null && !Array.isArray(part);
    const { type } = (isPart ? part : {}) as { type?: unknown };
    if (typeof type !== "string" || type === "" || type.length > idChars)
      refuse("parts", `a list of objects, each with a \`type\``);
  }
  return value as Part[];
}

export function parseToolResults(value: unknown): ToolResult[] {
  if (!Array.isArray(value) || value.length === 0 || value.length > resultsMost)
    return refuse("results", `a list of 1 to ${resultsMost}`);
  return (value as unknown[]).map(toolResultOf);
}

function toolResultOf(value: unknown): ToolResult {
  const given = fieldsOf("results", value);
  const toolCallId = textOf("toolCallId", given["toolCallId"]);
  const { output, errorText, approved } = given;
  if (typeof approved === "boolean") {
    const { reason } = given;
    return {
      toolCallId,
      approved,
      ...optionalText(given, "approvalId"),
      ...(reason !== undefined && { reason: textOf("reason", reason, reasonChars) }),
    };
  }
  if (typeof errorText === "string") return { toolCallId, errorText };
  if (output !== undefined) return { toolCallId, output: output as Json };
  return refuse("results", "a list of objects with `output`, `errorText` or `approved`");
}

const reasonChars = 4_000;

function messageOf(value: unknown): FrameMessage {
  const given = fieldsOf("message", value);
  const { role, tokens, metadata } = given;
  if (role !== undefined && role !== "user" && role !== "assistant" && role !== "system")
    refuse("role", "one of user, assistant, system");
  return {
    parts: parseParts(given["parts"]),
    ...optionalText(given, "id"),
    ...(role !== undefined && { role }),
    ...optionalText(given, "author"),
    ...optionalText(given, "to"),
    ...(metadata !== undefined && { metadata: metadata as Json }),
    ...(tokens !== undefined && { tokens: seqOf("tokens", tokens) }),
  };
}

/** A context that isn't valid reads as none: a trace is never worth a refused message. */
function traceOf({ trace }: Fields): FrameTrace {
  if (typeof trace !== "object" || trace === null) return {};
  const { traceparent, tracestate } = trace as Fields;
  if (typeof traceparent !== "string") return {};
  return { trace: { traceparent, ...(typeof tracestate === "string" && { tracestate }) } };
}

function sessionOf(given: Fields): string {
  return textOf("session", given["session"]);
}

function textOf(what: string, value: unknown, maxChars = idChars): string {
  if (typeof value === "string" && value.length > 0 && value.length <= maxChars) return value;
  return refuse(what, `text of 1 to ${maxChars} characters`);
}

function optionalText<Name extends string>(given: Fields, name: Name): { [Key in Name]?: string } {
  const value = given[name];
  if (value === undefined) return {};
  return { [name]: textOf(name, value) } as { [Key in Name]?: string };
}

type Fields = Readonly<Record<string, unknown>>;

function fieldsOf(what: string, value: unknown): Fields {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Fields;
  return refuse(what, "an object");
}

function refuse(what: string, demand: string): never {
  throw new FlotillaError("invalid_input", `${what} must be ${demand}`, { details: { what } });
}

type Kind = "text" | "number" | "object" | "list" | "ref" | "one";

/** What each frame of a server has at least. A newer server may send more, and other frames. */
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
  ack: { ref: "ref" },
  error: { code: "text", message: "text", details: "object" },
  inbox: { ref: "ref", sessions: "list" },
  inbox_changed: { sessions: "list" },
  inbox_removed: { sessionIds: "list" },
  left: { session: "text", reason: "text" },
  pong: { ref: "ref" },
};

export const serverFrameTypes = Object.keys(required) as readonly ServerFrame["type"][];

/** The frames of one message of a server. Those of types that aren't known are left out. */
export function parseServerFrames(text: string): ServerFrame[] {
  const frames: unknown = JSON.parse(text);
  if (!Array.isArray(frames)) throw strange("a message must be a list of frames");
  return frames.filter(isKnown);
}

function isKnown(frame: unknown): frame is ServerFrame {
  if (typeof frame !== "object" || frame === null) throw strange("a frame must be an object");
  const fields = frame as Readonly<Record<string, unknown>>;
  const type = String(fields["type"]);
  if (!Object.hasOwn(required, type)) return false;
  for (const [name, kind] of Object.entries(required[type as ServerFrame["type"]])) {
    if (!isOf(kind, fields[name])) throw strange(`${type}.${name} isn't what it must be`);
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
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "list":
      return Array.isArray(value);
    case "ref":
      return typeof value === "string" || Number.isSafeInteger(value);
    case "one":
      return value === 1;
  }
}

function strange(message: string): FlotillaError {
  return new FlotillaError("invalid_input", `the server sent something strange: ${message}`);
}
