import fc from "fast-check";
import { expect, test } from "vitest";
import { createAssembler } from "./assembler/assembler.ts";
import { parseChunk } from "./chunk.ts";
import type { Part } from "./message.ts";
import { assembledByAi, plain } from "./contract/oracle.ts";
import { anyChunks } from "./contract/random-chunks.ts";

const messageId = "answer";

test("chunks are taken or refused, and make the same message, as in the AI SDK", async () => {
  await fc.assert(
    fc.asyncProperty(anyChunks(30), async (chunks) => {
      // What the AI SDK throws at ends its stream, so it is asked again without that chunk.
      const assembler = createAssembler({ messageId });
      const good = chunks.filter((chunk) => {
        expect(parseChunk(chunk)).toBe(chunk);
        return assembler.push(chunk).error === undefined;
      });
      const theirs = await assembledByAi(good, { messageId });
      expect(theirs.threw).toBe(false);
      expect(plain(assembler.message())).toEqual(theirs.message);

      const firstBad = chunks.findIndex((chunk, index) => chunk !== good[index]);
      const until = await assembledByAi(chunks.slice(0, firstBad + 1), { messageId });
      expect(until.threw).toBe(firstBad !== -1);
    }),
    { numRuns: 1_500 },
  );
});

test("a stored message goes on as it does in the AI SDK", async () => {
  await fc.assert(
    fc.asyncProperty(anyChunks(30), fc.nat(30), async (chunks, cut) => {
      const first = createAssembler({ messageId });
      for (const chunk of chunks.slice(0, cut)) first.push(chunk);
      const initial = first.message();
      // Such a part has lost the beginning of its input, and what is read of the rest is nothing.
      fc.pre(!initial.parts.some((part) => part["input"] !== undefined && hasNoRaw(part)));

      const assembler = createAssembler({ messageId, initial });
      const good = chunks.slice(cut).filter((chunk) => assembler.push(chunk).error === undefined);
      const theirs = await assembledByAi(good, { messageId, initial });
      expect(theirs.threw).toBe(false);
      expect(plain(assembler.message())).toEqual(theirs.message);
      expect(plain(initial)).toEqual(plain(first.message()));
    }),
    { numRuns: 500 },
  );
});

function hasNoRaw(part: Part): boolean {
  return part["state"] === "input-streaming" && part["rawInput"] === undefined;
}
