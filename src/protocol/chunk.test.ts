import {
  asSchema,
  type UIMessage as AiMessage,
  type UIMessageChunk,
  uiMessageChunkSchema,
} from "ai";
import fc from "fast-check";
import { describe, expect, expectTypeOf, test } from "vitest";
import { type Chunk, isTerminal, type KnownChunk, parseChunk, withMessageId } from "./chunk.ts";
import type { UIMessage } from "./message.ts";
import { anyChunk } from "./contract/random-chunks.ts";

async function accepted(chunk: unknown): Promise<boolean> {
  const result = await asSchema(uiMessageChunkSchema).validate?.(chunk);
  return result?.success === true;
}
const isChunk = (value: unknown): boolean => "type" in parseChunk(value);

describe("a chunk", () => {
  test("has the types that the AI SDK has", () => {
    expectTypeOf<KnownChunk["type"]>().toEqualTypeOf<UIMessageChunk["type"]>();
    expectTypeOf<UIMessageChunk>().toExtend<KnownChunk>();
    expectTypeOf<UIMessageChunk>().toExtend<Chunk>();
    expectTypeOf<AiMessage>().toExtend<UIMessage>();
    type Loose = Extract<KnownChunk, { type: "text-end" | "steering-message" | `data-${string}` }>;
    expectTypeOf<Exclude<KnownChunk, Loose>>().toExtend<UIMessageChunk>();
    expectTypeOf<Loose["type"]>().toExtend<UIMessageChunk["type"]>();
  });

  test("is refused where the AI SDK would: a field that it needs is missing, or of another kind", async () => {
    const passing = ["something-new", "message-metadata"];
    const known = anyChunk.filter(({ type }) => !passing.includes(type));
    await fc.assert(
      fc.asyncProperty(
        known,
        fc.nat(),
        fc.constantFrom<unknown>(undefined, 7, []),
        async (chunk, at, wrong) => {
          expect(isChunk(chunk)).toBe(await accepted(chunk));
          const fields = Object.keys(chunk).filter((field) => !anything.has(field));
          const field = fields[at % fields.length] ?? "type";
          const { [field]: _, ...without } = chunk;
          const broken = wrong === undefined ? without : { ...chunk, [field]: wrong };
          expect(isChunk(broken)).toBe(await accepted(broken));
        },
      ),
      { numRuns: 500 },
    );
  });

  test("of a new type, or with new fields, passes as it is", () => {
    const fresh = { type: "something-new", any: [1] };
    expect(parseChunk(fresh)).toBe(fresh);
    const more = { type: "text-delta", id: "1", delta: "x", fresh: true };
    expect(parseChunk(more)).toBe(more);
  });

  test("must be an object with a type of its own", () => {
    for (const value of [null, 7, "start", [], {}, { type: 7 }, Object.create({ type: "start" })]) {
      expect(parseChunk(value)).toEqual({ error: expect.stringContaining("chunk") });
    }
  });

  test("loses optional fields that are null", () => {
    const chunk = { type: "text-start", id: "1", providerMetadata: null };
    expect(parseChunk(chunk)).toEqual({ type: "text-start", id: "1" });
  });

  test("that starts an answer gets the answer's id", () => {
    expect(withMessageId({ type: "start", messageId: "theirs" }, "ours")).toEqual({
      type: "start",
      messageId: "ours",
    });
    const other = { type: "text-start", id: "1" };
    expect(withMessageId(other, "ours")).toBe(other);
    expect([isTerminal({ type: "error" }), isTerminal(other)]).toEqual([true, false]);
  });
});

// These may hold anything, in the AI SDK as here, or are looked into more closely there.
const anything = new Set([
  "type",
  "input",
  "output",
  "data",
  "messageMetadata",
  "approvalDescriptor",
  "inputSchemaInput",
  "citations",
  "parts",
  "finishReason",
]);
