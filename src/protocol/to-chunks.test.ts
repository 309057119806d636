import fc from "fast-check";
import { expect, test } from "vitest";
import { createAssembler } from "./assembler/assembler.ts";
import type { Chunk } from "./chunk.ts";
import type { Part, UIMessage } from "./message.ts";
import { assembledByAi, plain } from "./contract/oracle.ts";
import { anyChunks } from "./contract/random-chunks.ts";
import { messageToChunks } from "./to-chunks.ts";

const messageId = "answer";

function assembled(...bodies: (readonly Chunk[])[]) {
  const assembler = createAssembler({ messageId });
  const refused = bodies.flat().filter((chunk) => assembler.push(chunk).error !== undefined);
  return { assembler, refused, message: assembler.message() };
}

test("a message as chunks makes the same message again, here and in the AI SDK", async () => {
  await fc.assert(
    fc.asyncProperty(anyChunks(30), async (chunks) => {
      const { message } = assembled(chunks);
      fc.pre(isReported(message));
      const again = messageToChunks(message, { live: false });
      const theirs = await assembledByAi(again, { messageId });
      expect(theirs.threw).toBe(false);
      expect(withoutRaw(theirs.message)).toEqual(withoutRaw(message));
      const ours = assembled(again);
      expect(ours.refused).toEqual([]);
      expect(withoutRaw(ours.message)).toEqual(withoutRaw(message));
    }),
    { numRuns: 500 },
  );
});

test("the chunks that come behind a snapshot go on with what is open", () => {
  fc.assert(
    fc.property(anyChunks(30), fc.nat(30), (chunks, cut) => {
      const first = createAssembler({ messageId });
      const early = chunks.slice(0, cut).filter((chunk) => first.push(chunk).error === undefined);
      fc.pre(isReported(first.message()));
      const snapshot = first.snapshot();
      // Open are texts, and inputs in the current step; a call that went back to its input isn't.
      const late = chunks
        .slice(cut)
        .filter((chunk) => !chunk.type.startsWith("tool-"))
        .filter((chunk) => first.push(chunk).error === undefined);
      const joined = assembled(snapshot, late);
      expect(joined.refused).toEqual([]);
      expect(withoutRaw(joined.message)).toEqual(withoutRaw(assembled(early, late).message));
    }),
    { numRuns: 500 },
  );
});

test("a client that joins while an input comes reads all of it", () => {
  const before = [
    { type: "start-step" },
    { type: "tool-input-start", toolCallId: "a", toolName: "search" },
    { type: "tool-input-delta", toolCallId: "a", inputTextDelta: '{"q":"da' },
  ];
  const after = [{ type: "tool-input-delta", toolCallId: "a", inputTextDelta: 'wn"}' }];
  const { assembler } = assembled(before);
  expect(assembled(assembler.snapshot(), after).message).toEqual(assembled(before, after).message);
});

test("a client that joins while texts come gets the rest of each", () => {
  const before = [
    { type: "text-start", id: "part-1" },
    { type: "text-start", id: "2" },
    { type: "reasoning-start", id: "2" },
    { type: "text-delta", id: "2", delta: "a" },
  ];
  const after = ["part-1", "2"].map((id) => ({ type: "text-delta", id, delta: `of ${id}` }));
  const { assembler } = assembled(before);
  const joined = assembled(assembler.snapshot(), after);
  expect(joined.refused).toEqual([]);
  expect(joined.message).toEqual(assembled(before, after).message);
});

test("an answer that is over is finished in its chunks, and one that isn't isn't", () => {
  const { assembler } = assembled([{ type: "text-start", id: "1" }]);
  expect(assembler.snapshot().map(({ type }) => type)).toEqual(["start", "text-start"]);
  assembler.close("abort");
  expect(assembler.snapshot().map(({ type }) => type)).toEqual(
    "start text-start text-end finish".split(" "),
  );
});

/**
 * Whether chunks can tell the parts apart: two calls of one id in one step, and two approvals of one
 * id, can only come from an agent that mixed up its ids.
 */
function isReported({ parts }: UIMessage): boolean {
  let here: unknown[] = [];
  const approvals: unknown[] = [];
  for (const part of parts) {
    if (part.type === "step-start") here = [];
    const approval = part["approval"] as { id: string } | undefined;
    if (approval !== undefined) approvals.push(approval.id);
    if (part["toolCallId"] !== undefined) here.push(part["toolCallId"]);
    if (new Set(here).size < here.length) return false;
  }
  return new Set(approvals).size === approvals.length;
}

/** A dynamic call whose input began in an earlier step has no raw input, which chunks can't say. */
function withoutRaw(message: unknown): unknown {
  const { parts, ...rest } = plain(message) as UIMessage;
  return { ...rest, parts: parts.map((part): Part => ({ ...part, rawInput: undefined })) };
}
