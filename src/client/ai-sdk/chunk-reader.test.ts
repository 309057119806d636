import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createAssembler } from "../../protocol/assembler/assembler.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import type { UIMessage } from "../../protocol/message.ts";
import { assembledByAi, plain } from "../../protocol/contract/oracle.ts";
import { anyChunks } from "../../protocol/contract/random-chunks.ts";
import { createChunkReader } from "./chunk-reader.ts";

const messageId = "answer";

/** What agents really say: texts, reasonings, calls and data, each with an id of its own. */
const saidByAgents = fc
  .array(
    fc.record({
      kind: fc.constantFrom("text", "reasoning", "tool", "approval", "data", "step", "source"),
      words: fc.array(fc.constantFrom("a", "bb ", "😀", "\n"), { maxLength: 5 }),
    }),
    { maxLength: 8 },
  )
  .map((blocks) => blocks.flatMap(({ kind, words }, index) => blockOf(kind, `${index}`, words)));

describe("a reader that has a part of an answer", () => {
  test("is brought to the whole of it, in the AI SDK as here", async () => {
    await fc.assert(
      fc.asyncProperty(saidByAgents, fc.nat(60), async (chunks, cut) => {
        const reader = createChunkReader({ messageId });
        const wanted = createChunkReader({ messageId });
        for (const chunk of chunks.slice(0, cut)) reader.push(chunk);
        for (const chunk of chunks) wanted.push(chunk);
        const more = reader.catchUpTo(wanted.message(), wanted.openIds());
        expect(more).toBeDefined();
        const theirs = await assembledByAi([...chunks.slice(0, cut), ...more!], { messageId });
        expect(theirs.threw).toBe(false);
        expect(partsOf(theirs.message)).toEqual(partsOf(wanted.message()));
        expect([...reader.openIds()]).toEqual([...wanted.openIds()]);
      }),
      { numRuns: 500 },
    );
  });

  test("gets nothing that it has already", () => {
    fc.assert(
      fc.property(saidByAgents, (chunks) => {
        const reader = createChunkReader({ messageId });
        for (const chunk of chunks) reader.push(chunk);
        expect(reader.catchUpTo(reader.message(), reader.openIds())).toEqual([]);
      }),
    );
  });

  test("ends with the same message as the log, or is known to be of no use, whatever the chunks", async () => {
    await fc.assert(
      fc.asyncProperty(anyChunks(20), fc.nat(20), async (said, cut) => {
        const whole = createAssembler({ messageId });
        const chunks = said.filter((chunk) => whole.push(chunk).error === undefined);
        const reader = createChunkReader({ messageId });
        const wanted = createChunkReader({ messageId });
        for (const chunk of chunks.slice(0, cut)) reader.push(chunk);
        for (const chunk of chunks) wanted.push(chunk);
        const more = reader.catchUpTo(wanted.message(), wanted.openIds());
        if (!more) return;
        const theirs = await assembledByAi([...chunks.slice(0, cut), ...more], { messageId });
        expect(theirs.threw).toBe(false);
        expect(partsOf(theirs.message)).toEqual(partsOf(wanted.message()));
      }),
      { numRuns: 500 },
    );
  });

  test("can't be brought back from what it shouldn't have", () => {
    const reader = createChunkReader({ messageId });
    for (const chunk of blockOf("text", "t", ["one ", "two"])) reader.push(chunk);
    const other = createChunkReader({ messageId });
    for (const chunk of blockOf("text", "t", ["two "])) other.push(chunk);
    expect(reader.catchUpTo(other.message(), other.openIds())).toBeUndefined();
  });

  test("of a message that goes on gets only what is new in it", () => {
    const stored: UIMessage = {
      id: messageId,
      role: "assistant",
      parts: [
        { type: "step-start" },
        { type: "text", text: "may I?", state: "done" },
        { type: "tool-pay", toolCallId: "c", state: "approval-requested", input: {} },
      ],
    };
    const approval = { id: "p", approved: true };
    const shown: UIMessage = {
      ...stored,
      parts: stored.parts.with(2, {
        ...stored.parts[2]!,
        state: "approval-responded",
        approval,
      }),
    };
    const reader = createChunkReader({ messageId, initial: shown });
    const paid = { ...shown.parts[2]!, state: "output-available", output: "paid" };
    const parts = [...shown.parts.with(2, paid), { type: "text", text: "done", state: "done" }];
    expect(reader.catchUpTo({ ...stored, parts }, new Map())).toEqual([
      { type: "tool-output-available", toolCallId: "c", output: "paid" },
      { type: "text-start", id: "part-3" },
      { type: "text-delta", id: "part-3", delta: "done" },
      { type: "text-end", id: "part-3" },
    ]);
  });
});

describe("a reader that takes `reset-step`", () => {
  const steps = fc.array(saidByAgents, { minLength: 1, maxLength: 3 });
  const inSteps = (all: readonly (readonly Chunk[])[]): Chunk[] =>
    all.flatMap((said, at) => [
      { type: "start-step" },
      ...said.filter(({ type }) => type !== "start-step").map((chunk) => ofStep(chunk, at)),
    ]);

  test("is brought from half of a step to another, in the AI SDK as here, and keeps those before", async () => {
    await fc.assert(
      fc.asyncProperty(steps, saidByAgents, saidByAgents, async (before, lost, instead) => {
        const known = inSteps([...before, lost]);
        const reader = createChunkReader({ messageId });
        const wanted = createChunkReader({ messageId });
        for (const chunk of known) reader.push(chunk);
        for (const chunk of inSteps([...before, instead])) wanted.push(chunk);
        const more = reader.resetTo(wanted.message(), wanted.openIds());
        expect(more?.[0]).toEqual({ type: "reset-step" });
        const kept = more!.filter(({ type }) => type === "reset-step" || type === "start-step");
        expect(kept).toHaveLength(1);
        const theirs = await assembledByAi([...known, ...more!], { messageId });
        expect(partsOf(theirs.message)).toEqual(partsOf(wanted.message()));
        expect([...reader.openIds()]).toEqual([...wanted.openIds()]);
      }),
      { numRuns: 300 },
    );
  });

  test("knows whether it has all of an answer and more", () => {
    const has = createChunkReader({ messageId });
    const said = inSteps([blockOf("text", "a", ["one"]), blockOf("text", "b", ["two ", "three"])]);
    for (const chunk of said) has.push(chunk);
    const isAheadOf = (...chunks: Chunk[]) => {
      const other = createChunkReader({ messageId });
      for (const chunk of chunks) other.push(chunk);
      return has.isAheadOf(other.message());
    };
    for (let count = 0; count < said.length - 1; count++) {
      expect(isAheadOf(...said.slice(0, count))).toBe(true);
    }
    expect(isAheadOf(...said)).toBe(false);
    expect(isAheadOf(...said, { type: "start-step" })).toBe(false);
    const start = said.slice(0, -4);
    expect(isAheadOf(...start, ...blockOf("text", "x", ["two"]))).toBe(false);
    expect(isAheadOf(...start, ...blockOf("text", "x", ["tw", "o f"]).slice(0, -1))).toBe(false);
    expect(isAheadOf(...start, ...blockOf("text", "x", ["tw", "o "]).slice(0, -1))).toBe(true);
    expect(isAheadOf(...inSteps([blockOf("text", "a", ["other"])]))).toBe(false);
  });
});

/** Ids are of one step. */
function ofStep(chunk: Chunk, at: number): Chunk {
  const { id, toolCallId, approvalId } = chunk;
  return {
    ...chunk,
    ...(typeof id === "string" && { id: `${at}-${id}` }),
    ...(typeof toolCallId === "string" && { toolCallId: `${at}-${toolCallId}` }),
    ...(typeof approvalId === "string" && { approvalId: `${at}-${approvalId}` }),
  };
}

function blockOf(kind: string, id: string, words: readonly string[]): Chunk[] {
  const toolCallId = `call-${id}`;
  const call = { toolCallId, toolName: "search" };
  switch (kind) {
    case "text":
    case "reasoning":
      return [
        { type: `${kind}-start`, id },
        ...words.map((delta) => ({ type: `${kind}-delta`, id, delta })),
        { type: `${kind}-end`, id },
      ];
    case "tool":
      return [
        { type: "tool-input-start", ...call },
        { type: "tool-input-delta", toolCallId, inputTextDelta: '{"q":' },
        { type: "tool-input-delta", toolCallId, inputTextDelta: "1}" },
        { type: "tool-input-available", ...call, input: { q: 1 } },
        { type: "tool-output-available", toolCallId, output: words },
      ];
    case "approval":
      return [
        { type: "tool-input-available", ...call, input: words },
        { type: "tool-approval-request", toolCallId, approvalId: `p-${id}` },
      ];
    case "data":
      return words.map((data) => ({ type: "data-progress", id, data }));
    case "source":
      return [{ type: "source-url", sourceId: id, url: "https://example.com" }];
    default:
      return [{ type: "start-step" }];
  }
}

function partsOf(message: unknown): unknown {
  return (plain(message) as UIMessage | undefined)?.parts ?? [];
}
