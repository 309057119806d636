import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Chunk } from "../protocol/chunk.ts";
import { createChunkRedaction } from "./chunks.ts";
import { defaultRedactor } from "./redactor.ts";

const turn = { epoch: 1, attempt: 1 };
const said = (delta: string, id = "t"): Chunk => ({ type: "text-delta", id, delta });
const start: Chunk = { type: "text-start", id: "t" };
const end: Chunk = { type: "text-end", id: "t" };

/** Sends chunks one by one, and gives what a reader gets: all of it in order, with indexes checked. */
function read(batches: readonly (readonly Chunk[])[]) {
  const redaction = createChunkRedaction(defaultRedactor);
  const got: Chunk[] = [];
  const after: string[] = [];
  const indexes: { sent: number; next: number }[] = [];
  let index = 0;
  let next = 0;
  for (const chunks of batches) {
    const sent = redaction.push({ ...turn, index, chunks });
    index += chunks.length;
    if (sent) {
      indexes.push({ sent: sent.index, next });
      got.push(...sent.chunks);
      next = sent.nextIndex ?? sent.index + sent.chunks.length;
    }
    after.push(textOf(got));
  }
  expect(indexes.filter((each) => each.sent !== each.next)).toEqual([]);
  return { got, after };
}

function textOf(chunks: readonly Chunk[]): string {
  return chunks
    .map((chunk) => (chunk.type === "text-delta" ? String(chunk["delta"]) : ""))
    .join("");
}

describe("a streaming answer for a reader that is no member", () => {
  test("is redacted where a secret comes in pieces", () => {
    const secret = "sk-proj-4f9a8b7c6d5e4f3a2b1c";
    const { got } = read([
      [start],
      ..."use ".split("").map((each) => [said(each)]),
      ...secret.split("").map((each) => [said(each)]),
      [said(" now\nand")],
      [said(" go"), end],
    ]);
    expect(textOf(got)).toBe("use [redacted] now\nand go");
    expect(got.map(({ type }) => type).at(-1)).toBe("text-end");
    expect(got).toHaveLength(1 + 4 + secret.length + 3);
  });

  test("is redacted in a line without end, wherever that is cut", () => {
    const secret = "sk-proj-4f9a8b7c6d5e4f3a2b1c";
    for (const blank of [" ", ","]) {
      const line = `word${blank}`.repeat(4_000).slice(0, 16_370 + secret.length);
      const places = [16_345, 16_360, 16_375];
      for (const place of places) {
        const text = `${line.slice(0, place)}${blank}${secret} ${line}`;
        const deltas = text.match(/.{1,97}/g)!.map((delta) => [said(delta)]);
        const { got, after } = read([[start], ...deltas, [end]]);
        expect(textOf(got)).toBe(text.replace(secret, "[redacted]"));
        expect(after.at(-2)!.length).toBeGreaterThan(16_000);
      }
    }
  });

  test("comes line by line, and not only at its end", () => {
    const { after } = read([[start], [said("one\ntw")], [said("o\nthree")], [said("!")], [end]]);
    expect(after).toEqual(["", "", "one\ntwo\n", "one\ntwo\n", "one\ntwo\nthree!"]);
  });

  test("holds a private key back until its end", () => {
    const lines = ["-----BEGIN PRIVATE KEY-----\n", "MIIEow\n", "IBAAKC\n", "-----END PRIVATE"];
    const { got, after } = read([
      [start],
      [said("here:\n")],
      ...lines.map((line) => [said(line)]),
      [said(" KEY-----\ndone\n")],
      [end],
    ]);
    expect(after.join()).not.toContain("MIIEow");
    expect(textOf(got)).toBe("here:\n[redacted]\ndone\n");
  });

  test("has tools' inputs where their names can be read, and not before", () => {
    const call = { toolCallId: "c", toolName: "login" };
    const { got } = read([
      [{ type: "tool-input-start", ...call }],
      [{ type: "tool-input-delta", toolCallId: "c", inputTextDelta: '{"password":"hunter2"' }],
      [{ type: "tool-input-available", ...call, input: { password: "hunter2", user: "ada" } }],
      [{ type: "tool-output-available", toolCallId: "c", output: { token: "hunter2" } }],
    ]);
    expect(JSON.stringify(got)).not.toContain("hunter2");
    expect(got.at(2)).toMatchObject({ input: { password: "[redacted]", user: "ada" } });
  });

  test("begins again where the answer does, and goes on under the index that it is given", () => {
    const redaction = createChunkRedaction(defaultRedactor);
    expect(redaction.push({ ...turn, index: 0, chunks: [start, said("lost")] })).toEqual({
      ...turn,
      index: 0,
      nextIndex: 1,
      chunks: [start],
    });
    const again = { epoch: 1, attempt: 2 };
    const soFar = {
      ...again,
      index: 0,
      nextIndex: 40,
      chunks: [start, said("new "), said("text\n")],
    };
    expect(redaction.push(soFar)).toEqual({
      ...again,
      index: 0,
      nextIndex: 39,
      chunks: [start, said("new text\n")],
    });
    expect(redaction.push({ ...again, index: 40, chunks: [said("end"), end] })).toEqual({
      ...again,
      index: 39,
      chunks: [said("end"), said(""), end],
    });
  });

  test("says the same in the end, however it is cut, and has as many chunks", () => {
    const text = "one two\nBearer abc123def456 and\nsk-4f9a8b7c6d5e4f3a2b1c0\n\nthe end";
    const cuts = fc.uniqueArray(fc.integer({ min: 1, max: text.length - 1 }));
    fc.assert(
      fc.property(cuts, fc.boolean(), (at, together) => {
        const places = [0, ...at.toSorted((a, b) => a - b), text.length];
        const deltas = places.slice(1).map((to, index) => said(text.slice(places[index], to)));
        const all = [start, ...deltas, end];
        const { got } = read(together ? [all] : all.map((each) => [each]));
        expect(textOf(got)).toBe(defaultRedactor.text(text));
        expect(got).toHaveLength(all.length);
      }),
    );
  });
});
