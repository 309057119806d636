import { createAssembler } from "../../protocol/assembler/assembler.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import type { Part, UIMessage } from "../../protocol/message.ts";
import { partToChunks } from "../../protocol/to-chunks.ts";
import { isEqual } from "./tool-decisions.ts";

/** The message that a reader of chunks has. */
export type ChunkReaderOptions = {
  readonly messageId: string;
  /** The message before the first chunk. */
  readonly initial?: UIMessage | undefined;
};

export type ChunkReader = ReturnType<typeof createChunkReader>;

/**
 * Tracks the message that a reader of a stream of chunks has. `useChat` can't go back, so a chunk must
 * not be repeated, and only what is missing may be sent.
 */
export function createChunkReader({ messageId, initial }: ChunkReaderOptions) {
  const assembler = createAssembler({
    messageId,
    maxParts: Infinity,
    maxBytes: Infinity,
    ...(initial && { initial }),
  });
  /** The ids of open texts, by the index of their parts. */
  const openIds = new Map<number, string>();
  /** Chunks were applied that did not lead to the wanted message, so that nothing more is known. */
  let isLost = false;

  const trackOpenIds = (chunk: Chunk): void => {
    const { type, id } = chunk;
    if (type === "text-start" || type === "reasoning-start") {
      openIds.set(assembler.parts, id as string);
    } else if (type === "text-end" || type === "reasoning-end") {
      for (const [index, open] of openIds) if (open === id) openIds.delete(index);
    }
  };

  const push = (chunk: Chunk): void => {
    trackOpenIds(chunk);
    assembler.push(chunk);
    for (const index of openIds.keys()) if (index >= assembler.parts) openIds.delete(index);
  };

  const catchUpTo = (
    wanted: UIMessage,
    wantedIds: ReadonlyMap<number, string>,
  ): Chunk[] | undefined => {
    const has = assembler.message();
    if (isLost || has.parts.length > wanted.parts.length) return undefined;
    const chunks: Chunk[] = [];
    for (const [index, part] of wanted.parts.entries()) {
      const known = has.parts[index];
      const id = wantedIds.get(index) ?? `part-${index}`;
      const more = known
        ? catchUpPart(known, part, openIds.get(index), wantedIds.get(index))
        : partToChunks(part, id);
      if (more === undefined) return undefined;
      chunks.push(...more);
    }
    if (wanted.metadata !== undefined && !isEqual(has.metadata, wanted.metadata)) {
      chunks.push({ type: "message-metadata", messageMetadata: wanted.metadata });
    }
    for (const chunk of chunks) push(chunk);
    // Chunks can't express everything, such as which of two calls with one id they belong to.
    isLost = !areAlike(assembler.message().parts, wanted.parts);
    return isLost ? undefined : chunks;
  };

  return {
    push,
    openIds: (): ReadonlyMap<number, string> => openIds,
    message: (): UIMessage => assembler.message(),
    /**
     * Returns the chunks that bring the reader to the wanted message, and applies them. Undefined where
     * the reader has something that the wanted message lacks, which only `resetTo` takes back.
     */
    catchUpTo,
    /**
     * The same where the reader takes `reset-step`: all that it has of its last step is replaced. Steps
     * before that stay. Undefined where something of theirs would have to go; the reader is of no more
     * use then.
     */
    resetTo(wanted: UIMessage, wantedIds: ReadonlyMap<number, string>): Chunk[] | undefined {
      const kept = assembler.message().parts.findLastIndex(isStepStart) + 1;
      if (isLost || kept < (initial?.parts.length ?? 0)) return undefined;
      const reset: Chunk = { type: "reset-step" };
      push(reset);
      // The step that has begun stays, also in a message that ended before it.
      const isBefore = kept > 0 && wanted.parts.length === kept - 1;
      const parts = isBefore ? [...wanted.parts, { type: "step-start" }] : wanted.parts;
      const more = catchUpTo({ ...wanted, parts }, wantedIds);
      return more && [reset, ...more];
    },
    /** Whether the reader has all of the wanted message and more, so that nothing has to change yet. */
    isAheadOf({ parts: wanted }: UIMessage): boolean {
      const has = assembler.message().parts;
      return (
        !isLost &&
        wanted.length <= has.length &&
        wanted.every((part, index) =>
          isContained(part, has[index]!, index === wanted.length - 1),
        ) &&
        !areAlike(has, wanted)
      );
    },
  };
}

function isStepStart({ type }: Part): boolean {
  return type === "step-start";
}

/**
 * Whether these parts are the same for their reader. What a provider has noted on one can't be taken back,
 * and isn't shown.
 */
function areAlike(has: readonly Part[], wanted: readonly Part[]): boolean {
  return has.length === wanted.length && has.every((part, index) => isAlike(part, wanted[index]!));
}

function isAlike(part: Part, wanted: Part): boolean {
  const { providerMetadata: _, ...rest } = part;
  return isEqual(wanted["providerMetadata"] === undefined ? rest : part, wanted);
}

/** Whether a part has come as far as this one. The last one may go on. */
function isContained(part: Part, known: Part, isLast: boolean): boolean {
  if (isLast && part["state"] === "streaming" && known.type === part.type) {
    return String(known["text"]).startsWith(String(part["text"]));
  }
  return isAlike(known, part);
}

function catchUpPart(
  known: Part,
  wanted: Part,
  openId: string | undefined,
  wantedId: string | undefined,
): Chunk[] | undefined {
  if (known.type !== wanted.type) return undefined;
  if (known.type === "text" || known.type === "reasoning") {
    return catchUpText(known, wanted, openId, wantedId);
  }
  if (typeof known["toolCallId"] === "string") return catchUpCall(known, wanted);
  if (isEqual(known, wanted)) return [];
  const isData = known.type.startsWith("data-") && typeof known["id"] === "string";
  return isData && known["id"] === wanted["id"] ? [wanted] : undefined;
}

function catchUpText(
  known: Part,
  wanted: Part,
  openId: string | undefined,
  wantedId: string | undefined,
): Chunk[] | undefined {
  const [has, wants] = [String(known["text"]), String(wanted["text"])];
  if (openId === undefined) return has === wants ? [] : undefined;
  if (!wants.startsWith(has) || (wantedId !== undefined && wantedId !== openId)) return undefined;
  const chunks = partToChunks({ ...wanted, id: openId, text: wants.slice(has.length) }, openId);
  // Drop the start chunk: the part has begun already.
  return chunks.slice(1);
}

/** Where the input is known, only the rest of the call: a stock client takes an input for a new call. */
function catchUpCall(known: Part, wanted: Part): Chunk[] | undefined {
  if (known["toolCallId"] !== wanted["toolCallId"]) return undefined;
  if (isEqual(known, wanted)) return [];
  const hasInput = known["state"] !== "input-streaming" && isEqual(known["input"], wanted["input"]);
  const [had, has] = [approvalOf(known), approvalOf(wanted)];
  return partToChunks(wanted, "").filter(({ type }) => {
    if (type.startsWith("tool-input-")) return !hasInput;
    if (type === "tool-approval-request") return had["id"] !== has["id"];
    if (type === "tool-approval-response") return had["approved"] !== has["approved"];
    return true;
  });
}

function approvalOf(part: Part): { readonly [field: string]: unknown } {
  return (part["approval"] ?? {}) as { readonly [field: string]: unknown };
}
