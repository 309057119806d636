import type { Chunk } from "./chunk.ts";
import type { Part, UIMessage } from "./message.ts";

export type ToChunksOptions = {
  /** True for an answer in progress, which then gets no `finish` at the end. */
  readonly live: boolean;
  /** The ids of open texts and reasonings, by the index of their parts. */
  readonly openIds?: ReadonlyMap<number, string>;
};

/**
 * A message as chunks that rebuild it, with one large delta per text: for a client that joins in the
 * middle or after the end. Open parts stay open, so that further chunks continue them.
 */
export function messageToChunks(
  message: UIMessage,
  { live, openIds = new Map() }: ToChunksOptions,
): Chunk[] {
  const { id: messageId, metadata: messageMetadata, parts } = message;
  const taken = new Set(openIds.values());
  const chunks = [some({ type: "start", messageId, messageMetadata })];
  parts.forEach((part, index) => {
    let id = openIds.get(index);
    for (let free = index; id === undefined; free += parts.length) {
      if (!taken.has(`part-${free}`)) id = `part-${free}`;
    }
    chunks.push(...partToChunks(part, id));
  });
  if (!live) chunks.push({ type: "finish" });
  return chunks;
}

/** One part as chunks. A text without an id gets `freeId`. */
export function partToChunks(part: Part, freeId: string): Chunk[] {
  switch (part.type) {
    case "text":
      return textChunks(part, freeId);
    case "reasoning":
      return textChunks(part, typeof part["id"] === "string" ? part["id"] : freeId);
    case "step-start":
      return [{ type: "start-step" }];
    case "file":
    case "reasoning-file":
    case "source-url":
    case "source-document":
    case "custom":
    case "steering-message":
      return [part];
    default:
      if (part.type.startsWith("data-")) return [part];
      return typeof part["toolCallId"] === "string" ? callChunks(part) : [];
  }
}

function textChunks(part: Part, id: string): Chunk[] {
  const { type, text, state, citations, providerMetadata } = part;
  const chunks = [some({ type: `${type}-start`, id, providerMetadata })];
  if (text !== "") chunks.push({ type: `${type}-delta`, id, delta: text });
  if (state !== "streaming") chunks.push(some({ type: `${type}-end`, id, citations }));
  return chunks;
}

/** The chunks of a call, in an order that leaves it in its state: input, output, approval, state. */
function callChunks(part: Part): Chunk[] {
  const { toolCallId, state, approval } = part;
  const input = inputChunks(part);
  const output = outputChunk(part);
  const hasOutput = state === "output-available" || state === "output-error";
  const chunks = [...input];
  if (output !== undefined && !hasOutput) {
    chunks.push(output);
    // Only metadata is left of that output, because the call was made again since.
    if (part["output"] === undefined && part["errorText"] === undefined) chunks.push(...input);
  }
  if (isObject(approval)) chunks.push(...approvalChunks(toolCallId, approval));
  if (output !== undefined && hasOutput) chunks.push(output);
  if (state === "output-denied") chunks.push({ type: "tool-output-denied", toolCallId });
  if (state === "input-streaming" || state === "input-available") {
    if (chunks.length > input.length) chunks.push(...input);
  }
  return chunks;
}

function inputChunks(part: Part): Chunk[] {
  const { type, toolCallId, title, toolMetadata, providerExecuted, input, rawInput } = part;
  const dynamic = type === "dynamic-tool";
  const call = {
    toolCallId,
    toolName: dynamic ? part["toolName"] : type.slice("tool-".length),
    title,
    toolMetadata,
    providerExecuted,
    providerMetadata: part["callProviderMetadata"],
    dynamic: dynamic ? true : undefined,
  };
  const streaming = part["state"] === "input-streaming";
  if (!streaming && typeof rawInput !== "string" && input !== undefined) {
    return [some({ type: "tool-input-available", ...call, input })];
  }
  // An error drops the encoding. Input equal to its raw text must be plain text.
  const plain = typeof input === "string" && input === rawInput;
  const inputEncoding = part["inputEncoding"] ?? (plain && !streaming ? "text" : undefined);
  const chunks = [some({ type: "tool-input-start", ...call, inputEncoding })];
  const text = typeof rawInput === "string" ? rawInput : textOf(input, inputEncoding);
  if (text !== undefined) {
    chunks.push({ type: "tool-input-delta", toolCallId, inputTextDelta: text });
  }
  return chunks;
}

function textOf(input: unknown, encoding: unknown): string | undefined {
  return encoding === "text" && typeof input === "string" ? input : JSON.stringify(input);
}

function outputChunk(part: Part): Chunk | undefined {
  const { toolCallId, output, errorText, preliminary, resultProviderMetadata, state } = part;
  const common = { toolCallId, providerMetadata: resultProviderMetadata };
  if (errorText !== undefined) return some({ type: "tool-output-error", ...common, errorText });
  if (
    output === undefined &&
    resultProviderMetadata === undefined &&
    state !== "output-available"
  ) {
    return undefined;
  }
  return some({ type: "tool-output-available", ...common, output, preliminary });
}

function approvalChunks(toolCallId: unknown, approval: { [field: string]: unknown }): Chunk[] {
  const { id: approvalId, approved, reason, requestReason, descriptor, ...rest } = approval;
  const { inputSchemaInput, isAutomatic, signature } = rest;
  const request = some({
    type: "tool-approval-request",
    approvalId,
    toolCallId,
    approvalDescriptor: descriptor,
    inputSchemaInput,
    reason: requestReason,
    isAutomatic,
    signature,
  });
  if (typeof approved !== "boolean") return [request];
  return [request, some({ type: "tool-approval-response", approvalId, approved, reason })];
}

function isObject(value: unknown): value is { [field: string]: unknown } {
  return typeof value === "object" && value !== null;
}

/** The chunk without undefined fields. */
function some(chunk: { type: string; [field: string]: unknown }): Chunk {
  const copy: { type: string; [field: string]: unknown } = { type: chunk.type };
  for (const field in chunk) if (chunk[field] !== undefined) copy[field] = chunk[field];
  return copy;
}
