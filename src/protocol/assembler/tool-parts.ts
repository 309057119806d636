import { type MessageDraft, type DraftPart, isTool, type OpenPart } from "./draft.ts";
import type { KnownChunk } from "../chunk.ts";
import { parsePartialJson } from "./partial-json.ts";
import {
  chunkDepth,
  orphan,
  type ChunkRefusal,
  storable,
  textBytes,
  messageTooLarge,
} from "../limits.ts";

export type ToolChunk = Extract<KnownChunk, { type: `tool-${string}` }>;
type PushOptions = { readonly anyway?: boolean };

/** A tool's input so far, as text. */
type Partial = {
  text: string;
  readonly toolName: string;
  readonly dynamic: boolean;
  readonly inputEncoding: unknown;
  readonly title: unknown;
  readonly toolMetadata: unknown;
};

/** The fields that a call loses when a new input or output arrives. */
const cleared = {
  output: undefined,
  errorText: undefined,
  rawInput: undefined,
  inputEncoding: undefined,
  preliminary: undefined,
};

/**
 * The tool calls of a message. Streamed input is collected as text, and parsed only when the message is
 * read. Parsing it at every delta would cost its whole length each time.
 */
export function createToolParts(draft: MessageDraft) {
  const partials = new Map<string, Partial>();
  /** Parts whose input must be parsed from this text. */
  const unread = new Map<OpenPart, { readonly text: string; readonly plain: boolean }>();

  function push(chunk: ToolChunk, options: PushOptions = {}): ChunkRefusal {
    switch (chunk.type) {
      case "tool-input-start": {
        const { toolCallId, toolName, inputEncoding, title, toolMetadata } = chunk;
        const dynamic = chunk.dynamic === true;
        const fields = { state: "input-streaming", inputEncoding };
        if (!put(chunk, { dynamic, fields, ask: options })) return messageTooLarge;
        const partial = { text: "", toolName, dynamic, inputEncoding, title, toolMetadata };
        partials.set(toolCallId, partial);
        return undefined;
      }
      case "tool-input-delta": {
        const partial = partials.get(chunk.toolCallId);
        if (partial === undefined) return orphan(chunk, chunk.toolCallId, "tool-input-start");
        return more(chunk.toolCallId, partial, chunk.inputTextDelta) ? undefined : messageTooLarge;
      }
      case "tool-input-available": {
        const fields = { state: "input-available", input: chunk.input };
        return put(chunk, { dynamic: chunk.dynamic === true, fields, ask: options })
          ? undefined
          : messageTooLarge;
      }
      case "tool-input-error": {
        const known = draft.anyToolInStep(chunk.toolCallId);
        const dynamic =
          known === undefined ? chunk.dynamic === true : known.part.type === "dynamic-tool";
        const { title: _, ...untitled } = chunk;
        const { input, errorText } = chunk;
        const fields = { state: "output-error", input, errorText };
        return put(untitled, { dynamic, fields, ask: options }) ? undefined : messageTooLarge;
      }
      case "tool-approval-response": {
        const item = draft.approved(chunk.approvalId);
        if (item === undefined) return orphan(chunk, chunk.approvalId, "tool-approval-request");
        const { approved, reason, providerExecuted, providerMetadata } = chunk;
        const approval = { ...(item.part["approval"] as object), approved, ...some({ reason }) };
        const noted = some({ providerExecuted, callProviderMetadata: providerMetadata });
        const fits = draft.set(item, { state: "approval-responded", approval, ...noted });
        return fits ? undefined : messageTooLarge;
      }
      case "tool-approval-request":
      case "tool-output-available":
      case "tool-output-error":
      case "tool-output-denied": {
        const item = draft.tool(chunk.toolCallId);
        if (item === undefined) return orphan(chunk, chunk.toolCallId, "tool-input-available");
        return draft.set(item, settled(chunk, item), options) ? undefined : messageTooLarge;
      }
    }
  }

  type Named = Extract<ToolChunk, { toolName: string }>;

  /** Stores the fields of a call in the current step, or adds the call there. */
  function put(
    chunk: Named,
    { dynamic, fields, ask }: { dynamic: boolean; fields: { state: string }; ask: PushOptions },
  ): boolean {
    const { toolCallId, toolName, title, toolMetadata, providerExecuted, providerMetadata } = chunk;
    const metadata =
      fields.state === "output-error" ? "resultProviderMetadata" : "callProviderMetadata";
    const kind = dynamic ? { type: "dynamic-tool", toolName } : { type: `tool-${toolName}` };
    const kept = some({ title, toolMetadata, providerExecuted, [metadata]: providerMetadata });
    const item = draft.toolInStep(toolCallId, { dynamic });
    if (item === undefined) {
      return draft.add({ ...kind, toolCallId, ...fields, ...kept }, ask) !== undefined;
    }
    if (!draft.set(item, { ...cleared, input: undefined, ...kind, ...fields, ...kept }, ask)) {
      return false;
    }
    unread.delete(item.part);
    return true;
  }

  function more(toolCallId: string, partial: Partial, delta: string): boolean {
    const { toolName, dynamic, inputEncoding, title, toolMetadata } = partial;
    const kind = dynamic ? { type: "dynamic-tool", toolName } : { type: `tool-${toolName}` };
    const state = "input-streaming";
    let item = draft.toolInStep(toolCallId, { dynamic });
    // If a part begins in the middle of its input, because the call began in another step, a dynamic tool
    // has no raw input. User interfaces do the same.
    const raw = item !== undefined || !dynamic;
    const fresh = item?.part["state"] !== state || !unread.has(item.part);
    if (item === undefined) {
      const kept = some({ title, toolMetadata });
      item = draft.add({ ...kind, toolCallId, state, inputEncoding, ...kept });
      if (item === undefined) return false;
    } else if (fresh) {
      const kept = some({ title, toolMetadata });
      if (!draft.set(item, { ...cleared, ...kind, state, inputEncoding, ...kept })) return false;
    }
    const text = partial.text + delta;
    // Charges the whole text if the part had none of it yet. A parsed value takes no more than its text,
    // except for closing characters.
    const bytes = textBytes(fresh ? text : delta) + (fresh ? 80 : 0);
    const grown = (field: string) => (fresh ? 0 : (item.sizes.get(field) ?? 0)) + bytes;
    if (
      !draft.grow(item, [
        ["rawInput", raw ? grown("rawInput") : 0],
        ["input", grown("input")],
      ])
    ) {
      return false;
    }
    partial.text = text;
    item.part["rawInput"] = raw ? text : undefined;
    unread.set(item.part, { text, plain: inputEncoding === "text" });
    return true;
  }

  return {
    push,
    /** Parses the inputs that have grown since the last time. */
    read(): void {
      for (const [part, { text, plain }] of unread) {
        part["input"] = plain ? text : storable(parsePartialJson(text), chunkDepth);
      }
      unread.clear();
    },
    /** The chunks that end unfinished inputs. */
    endings(why: string): ToolChunk[] {
      const itemsInStep = new Set(draft.itemsInStep());
      return draft.items().flatMap((item): ToolChunk[] => {
        const { part } = item;
        const toolCallId = part["toolCallId"] as string;
        if (!isTool(part) || part["state"] !== "input-streaming") return [];
        const errorText = `The input of this call was interrupted: ${why}`;
        // Chunks refer to the newest call of an id, so an older one stays as it is in every copy.
        if (draft.tool(toolCallId) !== item) return [];
        if (!itemsInStep.has(item)) return [{ type: "tool-output-error", toolCallId, errorText }];
        const dynamic = part.type === "dynamic-tool";
        const toolName = dynamic ? (part["toolName"] as string) : part.type.slice("tool-".length);
        // Models refuse a call without input, and would do so in every later turn.
        const input = part["input"] ?? (part["inputEncoding"] === "text" ? "" : {});
        const call = { toolCallId, toolName, input, errorText, ...(dynamic ? { dynamic } : {}) };
        return [{ type: "tool-input-error", ...call }];
      });
    },
    /** Continues the unfinished inputs of a stored message. */
    resume(): void {
      for (const { part } of draft.itemsInStep()) {
        if (!isTool(part) || part["state"] !== "input-streaming") continue;
        const dynamic = part.type === "dynamic-tool";
        const { toolCallId, rawInput, inputEncoding, title, toolMetadata } = part;
        partials.set(toolCallId as string, {
          text: typeof rawInput === "string" ? rawInput : "",
          toolName: dynamic ? (part["toolName"] as string) : part.type.slice("tool-".length),
          dynamic,
          inputEncoding,
          title,
          toolMetadata,
        });
      }
    },
    forget(): void {
      partials.clear();
    },
  };
}

type Settling = Exclude<
  ToolChunk,
  { type: `tool-input-${string}` } | { type: "tool-approval-response" }
>;

function settled(chunk: Settling, { part }: DraftPart): { readonly [field: string]: unknown } {
  if (chunk.type === "tool-output-denied") return { state: "output-denied" };
  if (chunk.type === "tool-approval-request") {
    const { approvalId: id, approvalDescriptor: descriptor, reason, signature } = chunk;
    const approval = {
      id,
      ...some({ descriptor, requestReason: reason, signature }),
      ...(Object.hasOwn(chunk, "inputSchemaInput")
        ? { inputSchemaInput: chunk.inputSchemaInput }
        : {}),
      ...(chunk.isAutomatic === true ? { isAutomatic: true } : {}),
    };
    return { state: "approval-requested", approval };
  }
  const { toolMetadata, providerExecuted, providerMetadata } = chunk;
  const kept = some({ toolMetadata, providerExecuted, resultProviderMetadata: providerMetadata });
  if (chunk.type === "tool-output-available") {
    const { output, preliminary } = chunk;
    return { ...cleared, ...kept, state: "output-available", output, preliminary };
  }
  const rawInput = part.type === "dynamic-tool" ? undefined : part["rawInput"];
  return { ...cleared, ...kept, state: "output-error", errorText: chunk.errorText, rawInput };
}

/** The fields that are not null or undefined. */
function some(fields: { readonly [field: string]: unknown }): { [field: string]: unknown } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value != null));
}
