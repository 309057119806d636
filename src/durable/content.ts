import { Buffer } from "node:buffer";
import { FlotillaError } from "../base/errors.ts";
import { isJsonObject, type Json, storableText } from "../base/json.ts";
import { reportedTokens } from "../base/usage.ts";
import type { CallUsage } from "./meter.ts";

/** A part of a model's answer, as models of the AI SDK stream it or return it. */
export type ModelPart = { readonly type: string } & Readonly<Record<string, unknown>>;

/** A model's answer as it is stored: what it said, without deltas, and never what it was asked. */
export type StoredCall = {
  /** Text and reasoning are joined; all other parts are as they came. */
  readonly content: readonly ModelPart[];
  /** The fields of the part that ended the stream, or of the result. */
  readonly finish: Readonly<Record<string, unknown>>;
  readonly warnings: readonly unknown[];
  /** The id, the time and the model that the provider has given. */
  readonly response: Readonly<Record<string, unknown>> | undefined;
};

/** Fields of a result that are not stored: what was asked, and what only debugging needs. */
const unstored = new Set(["content", "warnings", "request", "response"]);

/** What a model has returned. */
export function callOfResult(result: Readonly<Record<string, unknown>>): StoredCall {
  const { content, warnings, response } = result;
  const finish = Object.entries(result).filter(([name]) => !unstored.has(name));
  return {
    content: Array.isArray(content) ? (content as ModelPart[]) : [],
    finish: Object.fromEntries(finish),
    warnings: Array.isArray(warnings) ? warnings : [],
    response: responseOf(response),
  };
}

export function resultOfCall({ content, finish, warnings, response }: StoredCall) {
  const parts = content.map(({ id, ...part }) => (isJoined(part) ? part : { id, ...part }));
  return {
    ...finish,
    content: parts.map(withoutUndefined),
    warnings,
    ...(response && { response }),
  };
}

/** Collects the parts of a stream. */
export function callCollector() {
  const content: ModelPart[] = [];
  /** Places in `content` of text and reasoning that has not ended, by kind and id. */
  const open = new Map<string, number>();
  let finish: Readonly<Record<string, unknown>> | undefined;
  let warnings: readonly unknown[] = [];
  let response: Readonly<Record<string, unknown>> | undefined;

  const change = (part: ModelPart, kind: string, more: Readonly<Record<string, unknown>>): void => {
    const at = open.get(`${kind}:${String(part["id"])}`);
    if (at === undefined) return;
    const { type: _type, id: _id, delta: _delta, ...fields } = part;
    content[at] = withoutUndefined({ ...content[at]!, ...fields, ...more }) as ModelPart;
  };

  return {
    /** What was said so far. */
    get content(): readonly ModelPart[] {
      return content;
    },
    add(part: ModelPart): void {
      const { type, ...fields } = part;
      const [kind, what] = splitType(type);
      if (kind !== undefined) {
        if (what === "start") {
          open.set(`${kind}:${String(part["id"])}`, content.length);
          content.push({ ...fields, type: kind, text: "" });
        } else if (what === "delta") {
          const at = open.get(`${kind}:${String(part["id"])}`);
          const before = at === undefined ? "" : textOf(content[at]!["text"]);
          change(part, kind, { text: before + textOf(part["delta"]) });
        } else {
          change(part, kind, {});
          open.delete(`${kind}:${String(part["id"])}`);
        }
      } else if (type === "finish") finish = fields;
      else if (type === "stream-start") warnings = (fields["warnings"] as unknown[]) ?? [];
      else if (type === "response-metadata") response = { ...response, ...fields };
      else if (!isPassing(type)) content.push(part);
    },
    /** The whole answer; undefined if the stream ended without saying so. */
    get call(): StoredCall | undefined {
      return finish && { content, finish, warnings, response: responseOf(response) };
    },
  };
}

/** The parts of a stream that says the same, with each text in one piece. */
export function* partsOfCall(call: StoredCall): Generator<ModelPart> {
  yield { type: "stream-start", warnings: call.warnings };
  if (call.response) yield { type: "response-metadata", ...call.response };
  yield* partsOfContent(call.content);
  yield { type: "finish", ...call.finish };
}

export function* partsOfContent(content: readonly ModelPart[]): Generator<ModelPart> {
  for (const [index, part] of content.entries()) yield* partsOf(part, index);
}

function* partsOf(part: ModelPart, index: number): Generator<ModelPart> {
  if (!isJoined(part)) return yield part;
  const { type, text, ...fields } = part;
  const id = fields["id"] ?? `stored-${index}`;
  yield { ...fields, type: `${type}-start`, id };
  if (text !== "") yield { type: `${type}-delta`, id, delta: text };
  yield { ...fields, type: `${type}-end`, id };
}

/** True from the first part on that makes the caller run a tool. */
export function startsTool({ type, ...part }: ModelPart): boolean {
  return type === "tool-call" && part["providerExecuted"] !== true;
}

function isJoined({ type }: { readonly type?: unknown }): boolean {
  return type === "text" || type === "reasoning";
}

const pieces = /^(text|reasoning)-(start|delta|end)$/;

function splitType(type: string): [kind?: string, what?: string] {
  const found = pieces.exec(type);
  return found ? [found[1]!, found[2]!] : [];
}

/** Parts that only show how an answer comes along. The part that they lead to has all of them. */
function isPassing(type: string): boolean {
  return type === "raw" || type === "error" || /^tool-input-(start|delta|end)$/.test(type);
}

function responseOf(value: unknown): StoredCall["response"] {
  if (!isJsonObject(value)) return undefined;
  const { id, timestamp, modelId } = value;
  return withoutUndefined({ id, timestamp, modelId });
}

function withoutUndefined<Fields extends Readonly<Record<string, unknown>>>(fields: Fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

/** What a call has used, with what it had used `before` it was interrupted. */
export function usageOfCall(
  modelId: unknown,
  call: StoredCall,
  asked: {
    readonly prompt?: unknown;
    readonly before: Pick<CallUsage, "inputTokens" | "outputTokens">;
    readonly ms: number;
  },
): CallUsage {
  const reported = reportedTokens(call.finish["usage"]);
  const { inputTokens, outputTokens } = asked.before;
  return {
    model: typeof modelId === "string" ? modelId : "",
    calls: 1,
    inputTokens: inputTokens + (reported?.input ?? estimateTokens(asked.prompt)),
    // What was said before is a part of the content.
    outputTokens: reported ? outputTokens + reported.output : estimateTokens(call.content),
    cachedTokens: reported?.cached ?? 0,
    ms: asked.ms,
  };
}

const charsPerToken = 4;

/** About how many tokens a prompt or an answer has. */
export function estimateTokens(value: unknown): number {
  return Math.ceil(charsIn(value) / charsPerToken);
}

/** The characters of text, but not of files. */
function charsIn(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (Array.isArray(value)) return value.reduce<number>((sum, each) => sum + charsIn(each), 0);
  if (!isJsonObject(value)) return 0;
  return charsIn(value["text"] ?? value["content"] ?? value["input"] ?? value["output"]);
}

/** What is stored in the place of a value that JSON can't hold, or throws. */
type Unfit = (what: string) => Json;

/**
 * A call as JSON. Files are bytes, times are dates and addresses are URLs, each in an object of one field
 * that begins with a dollar; an object that looks like one of them is wrapped. All else is as
 * `JSON.stringify` writes it.
 */
export function encodeCall(value: unknown, unfit: Unfit = () => null): Json {
  return encodeWithin(value, "", unfit, new Set());
}

/** What a tool has returned, as JSON. Throws an error that is told to the model and says what to return. */
export function encodeOutput(toolName: string, output: unknown): Json {
  return encodeCall(output, (what) => {
    throw new FlotillaError(
      "payload_not_storable",
      `the tool "${toolName}" has returned ${what}, which JSON can't hold: return plain objects, arrays, texts and numbers, such as \`String(amount)\` for a BigInt`,
    );
  });
}

function encodeWithin(given: unknown, key: string, unfit: Unfit, around: Set<object>): Json {
  const value = isWrittenBySelf(given) ? given.toJSON(key) : given;
  if (typeof value === "string") return storableText(value);
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  if (value === null || typeof value === "boolean") return value;
  if (typeof value === "bigint") return unfit("a BigInt");
  if (typeof value !== "object") return null;
  if (value instanceof Date) return { $date: value.toJSON() };
  if (value instanceof URL) return { $url: value.href };
  if (value instanceof Uint8Array) return { $bytes: Buffer.from(value).toString("base64") };
  if (value instanceof Number || value instanceof String || value instanceof Boolean) {
    return encodeWithin(value.valueOf(), key, unfit, around);
  }
  if (around.has(value)) return unfit("an object that has itself within it");
  around.add(value);
  try {
    if (Array.isArray(value)) {
      return Array.from(value, (each, at) => encodeWithin(each, String(at), unfit, around));
    }
    const fields = Object.entries(value)
      .filter(([, field]) => !["undefined", "function", "symbol"].includes(typeof field))
      .map(
        ([name, field]) => [storableText(name), encodeWithin(field, name, unfit, around)] as const,
      );
    const encoded = Object.fromEntries(fields);
    return fields.length === 1 && fields[0]![0].startsWith("$") ? { $plain: encoded } : encoded;
  } finally {
    around.delete(value);
  }
}

/** Dates, addresses and bytes come back as what they are. */
function isWrittenBySelf(value: unknown): value is { toJSON(key: string): unknown } {
  if (typeof value !== "object" || value === null) return false;
  if (value instanceof Date || value instanceof URL || value instanceof Uint8Array) return false;
  return "toJSON" in value && typeof value.toJSON === "function";
}

export function decodeCall(value: Json): unknown {
  if (Array.isArray(value)) return value.map(decodeCall);
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value) as [string, Json][];
  const [name, only] = fields.length === 1 ? fields[0]! : [];
  if (name === "$date") return new Date(textOf(only));
  if (name === "$url") return new URL(textOf(only));
  if (name === "$bytes") return new Uint8Array(Buffer.from(textOf(only), "base64"));
  const plain = name === "$plain" ? (Object.entries(only as object) as [string, Json][]) : fields;
  return Object.fromEntries(plain.map(([key, field]) => [key, decodeCall(field)]));
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}
