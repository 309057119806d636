import { type MessageDraft, type DraftPart, fieldBytes } from "./draft.ts";
import type { KnownChunk } from "../chunk.ts";
import { orphan, type ChunkRefusal, textBytes, messageTooLarge } from "../limits.ts";

export type TextChunk = Extract<KnownChunk, { type: `text-${string}` | `reasoning-${string}` }> & {
  readonly id: string;
};

/** The open texts and reasonings, by the id of their chunks. */
export function createTextParts(draft: MessageDraft) {
  const texts = new Map<string, DraftPart>();
  const reasonings = new Map<string, DraftPart>();

  return {
    push(chunk: TextChunk): ChunkRefusal {
      const isText = chunk.type.startsWith("text-");
      const open = isText ? texts : reasonings;
      const { id } = chunk;
      const providerMetadata = chunk.providerMetadata ?? undefined;
      if (chunk.type === "text-start" || chunk.type === "reasoning-start") {
        const kind = isText ? { type: "text" } : { type: "reasoning", id };
        const item = draft.add({ ...kind, text: "", state: "streaming", providerMetadata });
        if (item === undefined) return messageTooLarge;
        open.set(id, item);
        return undefined;
      }
      const item = open.get(id);
      if (item === undefined) return orphan(chunk, id, isText ? "text-start" : "reasoning-start");
      if (chunk.type === "text-delta" || chunk.type === "reasoning-delta") {
        const sizes: [string, number][] = [
          ["text", (item.sizes.get("text") ?? 0) + textBytes(chunk.delta)],
        ];
        if (providerMetadata !== undefined) {
          sizes.push(["providerMetadata", fieldBytes("providerMetadata", providerMetadata)]);
        }
        if (!draft.grow(item, sizes)) return messageTooLarge;
        item.part["text"] = (item.part["text"] as string) + chunk.delta;
        if (providerMetadata !== undefined) item.part["providerMetadata"] = providerMetadata;
        return undefined;
      }
      const citations = chunk.type === "text-end" ? chunk.citations : undefined;
      const fits = draft.set(
        item,
        {
          state: "done",
          ...(citations == null ? {} : { citations }),
          ...(providerMetadata === undefined ? {} : { providerMetadata }),
        },
        // The content fitted, so the end must fit too.
        { anyway: citations == null && providerMetadata === undefined },
      );
      if (!fits) return messageTooLarge;
      open.delete(id);
      return undefined;
    },
    /** The chunks that end open parts, in the order in which these began. */
    endings(): TextChunk[] {
      const all = [
        ...[...texts].map(([id, { order }]) => ({ order, type: "text-end" as const, id })),
        ...[...reasonings].map(([id, { order }]) => ({
          order,
          type: "reasoning-end" as const,
          id,
        })),
      ];
      all.sort((one, other) => one.order - other.order);
      return all.map(({ type, id }) => ({ type, id }));
    },
    /** The ids of open parts, by the index of the part. */
    openIds(): ReadonlyMap<number, string> {
      const ids = new Map([...texts, ...reasonings].map(([id, item]) => [item, id]));
      const found = new Map<number, string>();
      draft.items().forEach((item, index) => {
        const id = ids.get(item);
        if (id !== undefined) found.set(index, id);
      });
      return found;
    },
    forget(): void {
      texts.clear();
      reasonings.clear();
    },
  };
}
