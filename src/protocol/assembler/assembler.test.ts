import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { createAssembler } from "./assembler.ts";
import { type Chunk, isTerminal } from "../chunk.ts";
import { assembledByAi, plain } from "../contract/oracle.ts";
import type { UIMessage } from "../message.ts";
import { anyChunks } from "../contract/random-chunks.ts";

const messageId = "answer";
const text = (id: string, delta: string): Chunk => ({ type: "text-delta", id, delta });

function assemble(
  chunks: readonly Chunk[],
  options: { maxBytes?: number; maxParts?: number } = {},
) {
  const assembler = createAssembler({ messageId, ...options });
  const errors = chunks.flatMap((chunk) => assembler.push(chunk).error ?? []);
  return { assembler, errors };
}

describe("closing an answer", () => {
  test("gives the chunks that make every reader's copy the stored one", async () => {
    await fc.assert(
      fc.asyncProperty(
        anyChunks(25),
        fc.constantFrom("finish", "abort", "error"),
        async (all, how) => {
          const assembler = createAssembler({ messageId });
          const good = all.filter((chunk) => assembler.push(chunk).error === undefined);
          const ends = assembler.close(how, "the agent is gone");
          // What ends the listening is held back until the end.
          const sent = [...good.filter((chunk) => !isTerminal(chunk)), ...ends];
          expect(ends.findIndex(isTerminal)).toBe(
            assembler.outcome.type === "finish" ? -1 : ends.length - 1,
          );
          const theirs = await assembledByAi(sent, { messageId });
          expect(theirs.threw).toBe(false);
          expect(theirs.message).toEqual(plain(assembler.message()));
        },
      ),
      { numRuns: 300 },
    );
  });

  test("ends texts, reasonings and inputs, then gives the reason", () => {
    const { assembler } = assemble([
      { type: "reasoning-start", id: "r" },
      { type: "text-start", id: "t" },
      { type: "tool-input-start", toolCallId: "c", toolName: "search" },
      { type: "tool-input-delta", toolCallId: "c", inputTextDelta: '{"q":"da' },
      { type: "tool-input-start", toolCallId: "d", toolName: "search", dynamic: true },
    ]);
    const errorText = "The input of this call was interrupted: the pod went away";
    const call = { type: "tool-input-error", toolName: "search", errorText };
    expect(assembler.close("error", "the pod went away")).toEqual([
      { type: "reasoning-end", id: "r" },
      { type: "text-end", id: "t" },
      { ...call, toolCallId: "c", input: { q: "da" } },
      { ...call, toolCallId: "d", input: {}, dynamic: true },
      { type: "error", errorText: "the pod went away" },
    ]);
    expect(assembler.message().parts.map((part) => part["state"])).toEqual(
      "done done output-error output-error".split(" "),
    );
    expect(assembler.close("abort")).toEqual([]);
    expect(assembler.push({ type: "start-step" }).error?.code).toBe("invalid_output");
  });

  test("leaves calls alone that wait for a result or an approval", () => {
    const { assembler } = assemble([
      { type: "tool-input-available", toolCallId: "c", toolName: "locate", input: {} },
      { type: "finish", finishReason: "tool-calls" },
    ]);
    expect(assembler.close("finish")).toEqual([]);
    expect(assembler.message().parts).toMatchObject([{ state: "input-available" }]);
  });
});

test("an output is for the last call of its id, where the current step has none", () => {
  const call = { type: "tool-input-available", toolCallId: "c", toolName: "t", input: {} };
  const step = { type: "start-step" };
  const output = { type: "tool-output-available", toolCallId: "c", output: 1 };
  const { assembler } = assemble([call, step, call, step, output]);
  expect(assembler.message().parts.map((part) => part["output"])).toEqual(
    Array.of<unknown>(undefined, undefined, 1, undefined),
  );
});

test("an input that goes on in another step is a part there, as in the AI SDK", async () => {
  for (const dynamic of [true, false]) {
    const delta = { type: "tool-input-delta", toolCallId: "c", inputTextDelta: "[1" };
    const chunks = [
      { type: "tool-input-start", toolCallId: "c", toolName: "t", dynamic },
      { type: "start-step" },
      delta,
    ];
    const theirs = await assembledByAi(chunks, { messageId });
    expect(plain(assemble(chunks).assembler.message())).toEqual(theirs.message);
  }
});

describe("the outcome of an answer", () => {
  const outcomeOf = (...types: string[]) =>
    assemble(types.map((type) => ({ type, errorText: "broken", reason: "stopped" }))).assembler
      .outcome;

  test("is what its chunks hold, and nothing where they hold nothing", () => {
    expect(outcomeOf("start")).toEqual({ type: "none" });
    expect(outcomeOf("start", "finish")).toEqual({ type: "finish" });
    expect(outcomeOf("start", "abort")).toEqual({ type: "abort", reason: "stopped" });
  });

  test("stays an error, whatever comes behind it", () => {
    expect(outcomeOf("start", "error", "finish-step", "finish")).toEqual({
      type: "error",
      errorText: "broken",
    });
    expect(outcomeOf("error", "abort", "start")).toMatchObject({ type: "error" });
  });

  test("is open again where a second stream starts in the same body", () => {
    expect(outcomeOf("start", "finish", "start")).toEqual({ type: "none" });
    expect(outcomeOf("start", "finish", "start", "finish")).toEqual({ type: "finish" });
  });
});

describe("the limits of an answer", () => {
  test("what is too much is refused and changes nothing, and what fits is taken again", () => {
    const { assembler } = assemble([{ type: "text-start", id: "1" }], { maxBytes: 1_000 });
    const before = assembler.message();
    expect(assembler.push(text("1", "x".repeat(1_000))).error?.code).toBe("payload_too_large");
    expect(assembler.message()).toEqual(before);
    expect(assembler.push(text("1", "x".repeat(500)))).toEqual({});
  });

  test("parts are counted too", () => {
    const { assembler, errors } = assemble(
      Array.from({ length: 8 }, () => ({ type: "start-step" })),
      { maxParts: 5 },
    );
    expect([errors.length, assembler.parts]).toEqual([3, 5]);
  });

  test("what replaces a part takes over its bytes", () => {
    const update = { type: "data-report", id: "1", data: "x".repeat(600) };
    const output = { type: "tool-output-available", toolCallId: "c", output: "x".repeat(600) };
    const call = { type: "tool-input-available", toolCallId: "c", toolName: "t", input: {} };
    expect(assemble([update, update, update], { maxBytes: 1_000 }).errors).toEqual([]);
    expect(assemble([call, output, output, output], { maxBytes: 1_000 }).errors).toEqual([]);
    const step = { type: "start-step" };
    const reset = { type: "reset-step" };
    const steps = [step, update, reset, update, reset, update];
    expect(assemble(steps, { maxBytes: 1_000 }).errors).toEqual([]);
  });

  test("are never passed by the message as JSON, and not far from it", () => {
    fc.assert(
      fc.property(anyChunks(40), (chunks) => {
        const { assembler } = assemble(chunks, { maxBytes: 2_000 });
        const bytes = new TextEncoder().encode(JSON.stringify(assembler.message())).length;
        expect(bytes).toBeLessThanOrEqual(assembler.bytes);
        expect(assembler.bytes).toBeLessThanOrEqual(2_000);
      }),
      { numRuns: 500 },
    );
  });
});

test("a message that was read stays as it was, whatever comes after it", () => {
  fc.assert(
    fc.property(anyChunks(30), (chunks) => {
      const assembler = createAssembler({ messageId });
      const often = createAssembler({ messageId });
      const read: { message: UIMessage; text: string }[] = [];
      for (const chunk of chunks) {
        assembler.push(chunk);
        often.push(chunk);
        const message = often.message();
        read.push({ message, text: JSON.stringify(message) });
      }
      assembler.close("finish");
      often.close("finish");
      for (const { message, text: before } of read) expect(JSON.stringify(message)).toBe(before);
      // Reading it after each chunk makes no other message of it.
      expect(plain(often.message())).toEqual(plain(assembler.message()));
    }),
    { numRuns: 500 },
  );
});

describe("the cost of a chunk", () => {
  const deltas = 100_000;

  test("doesn't grow with the text", () => {
    // Copying the text at each delta would move a hundred gigabytes.
    const maxBytes = 10 * deltas;
    const { assembler, errors } = assemble([{ type: "text-start", id: "1" }], { maxBytes });
    for (let index = 0; index < deltas; index++) assembler.push(text("1", "token "));
    expect(errors).toEqual([]);
    expect(assembler.message().parts[0]?.["text"]).toHaveLength(6 * deltas);
  });

  test("is the copy of one part, however many there are, when each is read", () => {
    const count = 2_000;
    const many = Array.from({ length: count }, (_, at): Chunk[] => [
      { type: "text-start", id: `${at}` },
      text(`${at}`, "said"),
      { type: "text-end", id: `${at}` },
    ]);
    const { assembler } = assemble([...many.flat(), { type: "text-start", id: "last" }]);
    let before = assembler.message().parts;
    for (let index = 0; index < 100; index++) {
      assembler.push(text("last", "x"));
      const { parts } = assembler.message();
      expect(parts.filter((part, at) => part !== before[at])).toEqual([parts[count]]);
      expect(before[count]?.["text"]).toHaveLength(index);
      before = parts;
    }
    expect(assembler.message().parts).toBe(before);
  });

  test("is not to read a tool's input again: it is read on demand", () => {
    const { assembler } = assemble([
      { type: "tool-input-start", toolCallId: "c", toolName: "write" },
      { type: "tool-input-delta", toolCallId: "c", inputTextDelta: '{"text":"' },
    ]);
    const parse = vi.spyOn(JSON, "parse");
    for (let index = 0; index < 10_000; index++) {
      assembler.push({ type: "tool-input-delta", toolCallId: "c", inputTextDelta: "token " });
    }
    expect(parse).toHaveBeenCalledTimes(0);
    expect(assembler.message().parts).toMatchObject([{ input: { text: "token ".repeat(10_000) } }]);
    const reads = parse.mock.calls.length;
    assembler.message();
    expect(parse).toHaveBeenCalledTimes(reads);
    parse.mockRestore();
  });
});

test("nothing that agents send changes anything but the message", () => {
  const bad = JSON.parse(
    '{"type":"start","messageMetadata":{"a":1,"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}}',
  ) as Chunk;
  const data = JSON.parse(
    '{"type":"data-x","id":"__proto__","data":{},"__proto__":{"polluted":1}}',
  ) as Chunk;
  const { assembler, errors } = assemble([bad, bad, data, data]);
  expect(errors).toEqual([]);
  const [part] = assembler.message().parts;
  expect([part?.["polluted"], ({} as { polluted?: unknown }).polluted]).toEqual([
    undefined,
    undefined,
  ]);
});
