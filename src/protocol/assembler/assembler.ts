import type { Chunk, KnownChunk } from "../chunk.ts";
import { isJsonObject } from "../../base/json.ts";
import { invalidChunk, jsonBytes, type ChunkRefusal, messageTooLarge } from "../limits.ts";
import type { EntryError, UIMessage } from "../message.ts";
import { messageToChunks } from "../to-chunks.ts";
import { createMessageDraft, type OpenPart } from "./draft.ts";
import { createTextParts, type TextChunk } from "./text-parts.ts";
import { createToolParts, type ToolChunk } from "./tool-parts.ts";

type AssemblerOptions = {
  /** The id of the message, whatever a `start` chunk contains. */
  readonly messageId: string;
  /** A stored message that this one continues. */
  readonly initial?: UIMessage;
  /** Default 10,000. */
  readonly maxParts?: number;
  /** The maximum size of the message as JSON. Default 1 MiB. Chunks of `close` are exempt. */
  readonly maxBytes?: number;
};

/**
 * How the answer ended, by its own chunks. The first `abort` or `error` stays, because clients stop
 * reading there. A `start` after a `finish` opens the answer again, as when an agent merges two streams.
 */
type AssemblyOutcome =
  | { readonly type: "none" }
  | { readonly type: "finish"; readonly finishReason?: string }
  | { readonly type: "abort"; readonly reason?: string }
  | { readonly type: "error"; readonly errorText: string };

/** A message that is built from chunks. */
export type Assembler = {
  /** Adds a chunk that `parseChunk` has accepted. A refused chunk changes nothing. */
  push(chunk: Chunk): { readonly error?: EntryError };
  /** The message so far. Later chunks do not change it. Parts that they leave alone are the same in the next. */
  message(): UIMessage;
  /** The message so far as chunks, which later chunks continue. */
  snapshot(): readonly Chunk[];
  readonly outcome: AssemblyOutcome;
  /** An upper bound for the size of the message as JSON. */
  readonly bytes: number;
  /** The number of parts so far, including those of `initial`. */
  readonly parts: number;
  /**
   * Ends the answer, once. Returns the chunks that end open parts, then the `abort` or `error` that ended
   * it, or a `finish` if it had none. Sent to all clients that got the other chunks, they keep all copies
   * alike.
   */
  close(how: "finish" | "abort" | "error", reason?: string): readonly Chunk[];
};

/** The fields that these parts keep of their chunks. */
const fieldsOf = {
  file: ["mediaType", "url", "providerMetadata"],
  "reasoning-file": ["mediaType", "url", "providerMetadata"],
  "source-url": ["sourceId", "url", "title", "providerMetadata"],
  "source-document": ["sourceId", "mediaType", "title", "filename", "providerMetadata"],
  custom: ["kind", "providerMetadata"],
  "steering-message": ["id", "parts"],
};

// Deeper than any storable value.
const maxDepth = 64;
// Assigning to these keys would change more than the object.
const refused = new Set(["__proto__", "constructor", "prototype"]);

/**
 * Builds a message from the chunks that an agent streams, by the rules of the AI SDK, so that the stored
 * message is what user interfaces show. Every chunk costs its own size, however long the message is.
 */
export function createAssembler({
  messageId,
  initial,
  maxParts = 10_000,
  maxBytes = 1024 * 1024,
}: AssemblerOptions): Assembler {
  const draft = createMessageDraft({ maxParts, maxBytes });
  const texts = createTextParts(draft);
  const tools = createToolParts(draft);
  const sizes = new Map<string, number>();
  let metadata: unknown = initial?.metadata;
  let outcome: AssemblyOutcome = { type: "none" };
  let closed = false;

  draft.charge(sizes, "id", jsonBytes({ id: messageId, role: "assistant", parts: [] }), true);
  draft.charge(sizes, "metadata", jsonBytes({ metadata }), true);
  for (const part of initial?.parts ?? []) draft.add({ ...part }, { anyway: true });
  tools.resume();

  function take(raw: Chunk): ChunkRefusal {
    const chunk = raw as KnownChunk;
    switch (chunk.type) {
      case "text-start":
      case "text-delta":
      case "text-end":
      case "reasoning-start":
      case "reasoning-delta":
      case "reasoning-end":
        return texts.push(chunk);
      case "tool-input-start":
      case "tool-input-delta":
      case "tool-input-available":
      case "tool-input-error":
      case "tool-approval-request":
      case "tool-approval-response":
      case "tool-output-available":
      case "tool-output-error":
      case "tool-output-denied":
        return tools.push(chunk);
      case "file":
      case "reasoning-file":
      case "source-url":
      case "source-document":
      case "custom":
      case "steering-message":
        return add(pick(raw, fieldsOf[chunk.type]));
      case "start-step":
        return add({ type: "step-start" });
      case "finish-step":
        return undefined;
      case "reset-step":
        tools.forget();
        texts.forget();
        draft.reset();
        return undefined;
      case "start":
      case "finish":
      case "message-metadata": {
        const refusal = note(chunk.messageMetadata);
        if (refusal === undefined) outcome = outcomeAfter(outcome, chunk);
        return refusal;
      }
      case "abort":
      case "error":
        outcome = outcomeAfter(outcome, chunk);
        return undefined;
      default:
        return raw.type.startsWith("data-") ? addData(raw) : undefined;
    }
  }

  function add(part: OpenPart): ChunkRefusal {
    return draft.add(part) === undefined ? messageTooLarge : undefined;
  }

  function addData(chunk: Chunk): ChunkRefusal {
    if (chunk["transient"] === true) return undefined;
    const id = chunk["id"];
    const known = typeof id === "string" ? draft.data(chunk.type, id) : undefined;
    if (known === undefined) return add({ ...chunk });
    return draft.set(known, { data: chunk["data"] }) ? undefined : messageTooLarge;
  }

  function note(more: unknown): ChunkRefusal {
    if (more == null) return undefined;
    const merged = metadata == null ? more : mergeMetadata(metadata, more);
    if (merged === undefined)
      return invalidChunk("cannot merge metadata: the existing metadata is not an object");
    if (!draft.charge(sizes, "metadata", jsonBytes({ metadata: merged }))) return messageTooLarge;
    metadata = merged;
    return undefined;
  }

  function message(): UIMessage {
    tools.read();
    const parts = draft.copies();
    return { id: messageId, role: "assistant", ...(metadata == null ? {} : { metadata }), parts };
  }

  return {
    push(chunk) {
      const error = closed ? invalidChunk("the answer has ended already") : take(chunk);
      return error === undefined ? {} : { error };
    },
    message,
    snapshot: () => messageToChunks(message(), { live: !closed, openIds: texts.openIds() }),
    get outcome() {
      return outcome;
    },
    get bytes() {
      return draft.bytes();
    },
    get parts() {
      return draft.items().length;
    },
    close(how, reason) {
      if (closed) return [];
      tools.read();
      const ends: (TextChunk | ToolChunk)[] = texts.endings();
      for (const end of ends) texts.push(end as TextChunk);
      const why = reason ?? (how === "abort" ? "the answer was stopped" : "the answer ended");
      for (const end of tools.endings(why)) {
        tools.push(end, { anyway: true });
        ends.push(end);
      }
      closed = true;
      const hadFinish = outcome.type === "finish";
      outcome = outcomeAfter(outcome, endingOf(how, reason));
      const last = outcome.type === "finish" && hadFinish ? [] : [outcome as Chunk];
      return [...(ends as Chunk[]), ...last];
    },
  };
}

type Ending = Extract<
  KnownChunk,
  { type: "start" | "finish" | "message-metadata" | "abort" | "error" }
>;

function endingOf(how: "finish" | "abort" | "error", reason: string | undefined): Ending {
  if (how === "finish") return { type: "finish" };
  if (how === "abort") return { type: "abort", ...(reason === undefined ? {} : { reason }) };
  return { type: "error", errorText: reason ?? "the answer ended early" };
}

function outcomeAfter(outcome: AssemblyOutcome, chunk: Ending): AssemblyOutcome {
  if (outcome.type === "abort" || outcome.type === "error") return outcome;
  switch (chunk.type) {
    case "start":
      return { type: "none" };
    case "message-metadata":
      return outcome;
    case "finish": {
      const before = outcome.type === "finish" ? outcome.finishReason : undefined;
      const finishReason = chunk.finishReason ?? before;
      return { type: "finish", ...(finishReason === undefined ? {} : { finishReason }) };
    }
    case "abort":
      return { type: "abort", ...(chunk.reason === undefined ? {} : { reason: chunk.reason }) };
    case "error":
      return { type: "error", errorText: chunk.errorText };
  }
}

function pick(chunk: Chunk, fields: readonly string[]): OpenPart {
  const part: OpenPart = { type: chunk.type };
  for (const field of fields) part[field] = chunk[field] ?? undefined;
  return part;
}

/**
 * Merges metadata that arrives in pieces: objects field by field, everything else is replaced. Returns
 * undefined if the base is not an object. Copies what it changes, because pieces are also passed on.
 */
function mergeMetadata(base: unknown, more: unknown): unknown {
  const keys = Object.keys(Object(more)).filter((key) => !refused.has(key));
  if (keys.length > 0 && typeof base !== "object") return undefined;
  return merged(base as object, more as object, 0);
}

function merged(base: object, more: object, depth: number): object {
  const result: Record<string, unknown> = { ...base };
  for (const [key, value] of Object.entries(more)) {
    if (refused.has(key) || value === undefined) continue;
    const before = Object.hasOwn(base, key) ? (base as Record<string, unknown>)[key] : undefined;
    result[key] =
      isJsonObject(value) && isJsonObject(before) && depth < maxDepth
        ? merged(before, value, depth + 1)
        : value;
  }
  return result;
}
