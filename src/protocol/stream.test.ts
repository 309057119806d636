import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type BodyFormat, type BodyItem, createBodyReader, formatOf } from "./stream.ts";

const utf8 = new TextEncoder();

function read(
  body: string | Uint8Array,
  format: BodyFormat,
  options: { cuts?: number[]; maxLineBytes?: number } = {},
) {
  const { cuts = [], ...limits } = options;
  const bytes = typeof body === "string" ? utf8.encode(body) : body;
  const reader = createBodyReader({ format, ...limits });
  const items: BodyItem[] = [];
  let from = 0;
  for (const cut of [...cuts.toSorted((one, other) => one - other), bytes.length]) {
    const to = Math.min(cut, bytes.length);
    // The buffer is used again, as sockets do.
    const piece = bytes.slice(from, to);
    items.push(...reader.push(piece));
    piece.fill(0x7b);
    from = to;
  }
  return [...items, ...reader.end()];
}

const delta = (text: string) => ({ type: "text-delta", id: "1", delta: text });
const chunk = (text: string): BodyItem => ({ type: "chunk", chunk: delta(text) });
const done: BodyItem = { type: "done" };

describe("the body of an agent's answer", () => {
  test("is read the same wherever it is cut, even within a character", () => {
    const line = fc.oneof(
      fc.constantFrom("😀", "é", "\u2028", "x\\n", "").map((text) => JSON.stringify(delta(text))),
      fc.constantFrom("{broken", '{"type":1}', "[DONE]"),
    );
    const end = fc.constantFrom("\n", "\r\n", "\r");
    const event = fc.oneof(
      fc.tuple(line, end).map(([data, by]) => `data: ${data}${by}${by}`),
      fc.constantFrom(": keep-alive\n\n", "event: x\nid: 2\n", "data\n\n", "\n"),
    );
    const cuts = fc.array(fc.nat(400), { maxLength: 40 });
    fc.assert(
      fc.property(fc.array(event, { maxLength: 6 }), cuts, (events, cut) => {
        const body = `\ufeff${events.join("")}`;
        expect(read(body, "sse", { cuts: cut })).toEqual(read(body, "sse"));
      }),
      { numRuns: 300 },
    );
    fc.assert(
      fc.property(fc.array(line, { maxLength: 6 }), cuts, (lines, cut) => {
        const body = lines.join("\n");
        expect(read(body, "jsonl", { cuts: cut })).toEqual(read(body, "jsonl"));
      }),
      { numRuns: 300 },
    );
  });

  test("has its chunks in the data of events, and nothing counts behind [DONE]", () => {
    const body = `: hello\n\ndata: ${JSON.stringify(delta("a"))}\r\n\r\nevent: x\nretry: 5\ndata:${JSON.stringify(delta("b"))}\n\ndata: [DONE]\n\ndata: {}\n\n`;
    expect(read(body, "sse")).toEqual([chunk("a"), chunk("b"), done]);
  });

  test("may spread one chunk over several lines of data", () => {
    const body = 'data: {"type":"text-delta",\ndata: "id":"1",\ndata:"delta":"é"}\n\n';
    expect(read(body, "sse")).toEqual([chunk("é")]);
    expect(read(body.replaceAll("\n", "\r\n"), "sse", { cuts: [28, 29] })).toEqual([chunk("é")]);
    expect(read(body.replaceAll("\n", "\r"), "sse")).toEqual([chunk("é")]);
  });

  test("counts to its end, even without the line that should end it", () => {
    expect(read(`data: ${JSON.stringify(delta("a"))}`, "sse")).toEqual([chunk("a")]);
    expect(read(JSON.stringify(delta("a")), "jsonl")).toEqual([chunk("a")]);
  });

  test("has one chunk in each line where it is JSON lines", () => {
    const body = `${JSON.stringify(delta("a"))}\r\n\n  ${JSON.stringify(delta("b"))}\n`;
    expect(read(body, "jsonl")).toEqual([chunk("a"), chunk("b")]);
  });

  test("is read on behind a line that can't be used, which is named", () => {
    const body = `{"type":\n{"type":"text-delta","id":"1"}\n${JSON.stringify(delta("a"))}\n`;
    expect(read(body, "jsonl")).toEqual([
      error('line 1 isn\'t JSON: {"type":'),
      error("line 2: text-delta: delta must be text, not missing"),
      chunk("a"),
    ]);
  });

  test.each(["sse", "jsonl"] as const)("ends at a line without end: %s", (format) => {
    const bytes = new Uint8Array(2_000).fill(0x78);
    const reader = createBodyReader({ format, maxLineBytes: 1_000 });
    const items = Array.from({ length: 20 }, (_, index) =>
      reader.push(bytes.subarray(index * 100, index * 100 + 100)),
    ).flat();
    const message = "line 1 is longer than 1000 bytes";
    expect(items).toEqual([
      { type: "error", error: { code: "payload_too_large", message }, fatal: true },
    ]);
    expect(reader.end()).toEqual([]);
  });

  test("ends at an event without end", () => {
    const body = "data: xxxxxxxx\n".repeat(100);
    expect(read(body, "sse", { maxLineBytes: 500 })).toMatchObject([
      { type: "error", fatal: true },
    ]);
  });
});

test("the format of a body is known by its content type", () => {
  expect(formatOf("text/event-stream; charset=utf-8")).toBe("sse");
  expect(formatOf("Application/X-NDJSON")).toBe("jsonl");
  expect(formatOf("text/html")).toBeUndefined();
  expect(formatOf(null)).toBeUndefined();
});

function error(message: string): BodyItem {
  return { type: "error", error: { code: "invalid_output", message }, fatal: false };
}
