import fc from "fast-check";
import type { Chunk } from "../chunk.ts";

// Few ids, so that chunks meet: the same call in two steps, an output before its input, two texts at once.
const id = fc.constantFrom("1", "2", "__proto__", "constructor");
const call = fc.constantFrom("a", "b", "toString");
const approval = fc.constantFrom("p", "q");
const word = fc.constantFrom("", "hello ", "wörld", "😀", '"quoted"\n', "\\");
const json = fc.oneof(
  fc.constantFrom<unknown>(null, 0, "x", true, [1, { a: 1 }], {
    city: "Paris",
    deep: { list: [1] },
  }),
  fc.jsonValue({ maxDepth: 2 }),
);
const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined, freq: 3 });
const noted = optional(
  fc.constantFrom({ openai: { itemId: "x" } }, { anthropic: { a: 1, b: [2] } }),
);
const metadata = optional(
  fc.constantFrom<unknown>(
    { model: "m" },
    { usage: { in: 1 } },
    { usage: { out: 2, list: [1] } },
    { usage: { list: [2, 3] } },
    { usage: null },
    JSON.parse('{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}'),
  ),
);
const chunk = (type: string, fields: Record<string, fc.Arbitrary<unknown>> = {}) =>
  fc.record(fields).map((given): Chunk => {
    const present = Object.entries(given).filter(([, value]) => value !== undefined);
    return { type, ...Object.fromEntries(present) };
  });

const flag = optional(fc.boolean());
const described = {
  toolCallId: call,
  providerExecuted: flag,
  providerMetadata: noted,
  toolMetadata: optional(fc.constantFrom({ a: 1 }, { b: "2" })),
  dynamic: flag,
};
const named = {
  ...described,
  toolName: fc.constantFrom("search", "get-weather"),
  title: optional(fc.constant("Title")),
};
const starts = fc.oneof(
  chunk("text-start", { id, providerMetadata: noted }),
  chunk("reasoning-start", { id, providerMetadata: noted }),
  chunk("tool-input-start", { ...named, inputEncoding: optional(fc.constantFrom("json", "text")) }),
  chunk("tool-input-available", { ...named, input: json }),
  chunk("start-step"),
);
const goings = fc.oneof(
  chunk("text-delta", { id, delta: word, providerMetadata: noted }),
  chunk("reasoning-delta", { id, delta: word, providerMetadata: noted }),
  chunk("tool-input-delta", { toolCallId: call, inputTextDelta: fc.constantFrom("1", "5", "20") }),
  chunk("text-end", {
    id,
    providerMetadata: noted,
    citations: optional(
      fc.constant([
        { source: { type: "source", sourceType: "url", id: "s", url: "https://x.test" } },
      ]),
    ),
  }),
  chunk("reasoning-end", { id, providerMetadata: noted }),
);
const calls = fc.oneof(
  chunk("tool-output-available", { ...described, output: json, preliminary: flag }),
  chunk("tool-output-error", { ...described, errorText: word }),
  chunk("tool-input-error", { ...named, input: json, errorText: word }),
  chunk("tool-output-denied", { toolCallId: call }),
  chunk("tool-approval-request", {
    approvalId: approval,
    toolCallId: call,
    reason: optional(word),
    isAutomatic: flag,
    signature: optional(word),
    approvalDescriptor: optional(json),
    inputSchemaInput: optional(json),
  }),
  chunk("tool-approval-response", {
    approvalId: approval,
    approved: fc.boolean(),
    reason: optional(word),
    providerExecuted: flag,
    providerMetadata: noted,
  }),
);
const others = fc.oneof(
  chunk("start", { messageMetadata: metadata }),
  chunk("finish", {
    finishReason: optional(fc.constantFrom("stop", "tool-calls")),
    messageMetadata: metadata,
  }),
  chunk("message-metadata", { messageMetadata: metadata }),
  chunk("finish-step"),
  chunk("reset-step"),
  chunk("abort", { reason: optional(word) }),
  chunk("error", { errorText: word }),
  chunk("file", { url: word, mediaType: word, providerMetadata: noted }),
  chunk("reasoning-file", { url: word, mediaType: word, providerMetadata: noted }),
  chunk("source-url", { sourceId: id, url: word, title: optional(word), providerMetadata: noted }),
  chunk("source-document", {
    sourceId: id,
    mediaType: word,
    title: word,
    filename: optional(word),
    providerMetadata: noted,
  }),
  chunk("custom", { kind: fc.constant("openai.thing"), providerMetadata: noted }),
  chunk("steering-message", { id, parts: fc.constant([{ type: "text", text: "faster" }]) }),
  chunk("data-progress", { id: optional(id), data: json, transient: flag }),
  chunk("data-step-start", { id: optional(id), data: json }),
  chunk("something-new", { id, value: json }),
);

export const anyChunk: fc.Arbitrary<Chunk> = fc.oneof(
  { arbitrary: starts, weight: 3 },
  { arbitrary: goings, weight: 4 },
  { arbitrary: calls, weight: 3 },
  { arbitrary: others, weight: 2 },
);

export const anyChunks = (maxLength: number): fc.Arbitrary<Chunk[]> =>
  fc.array(anyChunk, { maxLength }).map(withInputs);

/** Texts that inputs come from, piece by piece. */
export const inputs = [
  '{"city":"Par\\u00efs \\"x\\\\","n":[1,-2.5e-1,true, null ],"o":{},"l":[],"s":"","deep":[{"a":[false]}]}',
  '[ 12.75 , "😀", {"key":"\\n"} ]',
  '"just text"',
  "-120.5E+3",
  "true",
];

/** Makes the deltas of each input the pieces of one text, so many characters each as they say. */
function withInputs(chunks: Chunk[]): Chunk[] {
  const left = new Map<unknown, string>();
  let next = 0;
  return chunks.map((given) => {
    const { toolCallId } = given;
    if (given.type === "tool-input-start")
      left.set(toolCallId, inputs[next++ % inputs.length] ?? "");
    if (given.type !== "tool-input-delta") return given;
    const text = left.get(toolCallId) ?? "";
    const length = Number(given["inputTextDelta"]);
    left.set(toolCallId, text.slice(length));
    return { ...given, inputTextDelta: text.slice(0, length) };
  });
}
