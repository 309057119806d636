import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { header, turn } from "../../contract/journal-harness.ts";
import type { StoredMessage } from "./engine.ts";
import {
  decodeMark,
  decodeMessage,
  toBody,
  encodeMessage,
  firstChain,
  type LogMessage,
  nextChain,
} from "./message.ts";

const prefix = "flotilla.x.log.0.one";
const message: LogMessage = {
  kind: "owner",
  recordId: "r1",
  term: 3,
  owner: "pod-1",
  host: '{"machine":"mühle\\r\\n 7","pid":1}',
  chain: "0123456789abcdef",
  body: Buffer.from("{}"),
};
const stored = (changes: Partial<LogMessage> = {}): StoredMessage => ({
  ...encodeMessage(prefix, { ...message, ...changes }),
  sequence: 1,
});

describe("a message of a log", () => {
  test.each<Partial<LogMessage>>([
    {},
    { kind: "record", host: null },
    { kind: "mark", host: null },
    { owner: null, host: null },
    { term: 0 },
  ])("is read as it was written: %j", (changes) => {
    expect(decodeMessage(prefix, stored(changes))).toEqual({
      type: "message",
      message: { ...message, ...changes },
    });
  });

  test("holds nothing that could end a line of its headers", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), (host) => {
        const { headers } = stored({ host });
        expect(Object.values(headers).join("")).toMatch(/^[\x20-\x7e]*$/);
        expect(decodeMessage(prefix, stored({ host }))).toMatchObject({ message: { host } });
      }),
    );
  });

  test("without its headers isn't Flotilla's", () => {
    expect(decodeMessage(prefix, { ...stored(), headers: { other: "1" } })).toEqual({
      type: "stray",
    });
  });

  test.each<[string, Record<string, string> | string]>([
    ["of a newer release", { "Fl-V": "2" }],
    ["no record id", { "Fl-Record": "" }],
    ["a record id with a space", { "Fl-Record": "a b" }],
    ["no term", { "Fl-Term": "" }],
    ["a term below zero", { "Fl-Term": "-1" }],
    ["a term that is no number", { "Fl-Term": "1e3" }],
    ["a term beyond whole numbers", { "Fl-Term": "9".repeat(16) }],
    ["no chain", { "Fl-Chain": "" }],
    ["a chain that is none", { "Fl-Chain": "0123456789ABCDEF" }],
    ["an empty pod", { "Fl-Pod": "" }],
    ["a host that is no text", { "Fl-Host": "%" }],
    ["a strange subject", "flotilla.x.log.0.one.z"],
    ["the subject of another log", "flotilla.x.log.1.one.o"],
  ])("with %s is damaged", (_, wrong) => {
    const whole = stored();
    const found =
      typeof wrong === "string"
        ? { ...whole, subject: wrong }
        : { ...whole, headers: { ...whole.headers, ...wrong } };
    expect(decodeMessage(prefix, found)).toMatchObject({ type: "damaged" });
  });

  test("that is a record names its pod", () => {
    const { "Fl-Pod": _, ...headers } = stored({ kind: "record", host: null }).headers;
    const found = { ...stored({ kind: "record", host: null }), headers };
    expect(decodeMessage(prefix, found)).toMatchObject({ type: "damaged" });
  });
});

describe("the chain", () => {
  test("differs by every byte and id before it, and by the stream that it began in", () => {
    const chainOf = (incarnation: string, ...bodies: string[]) =>
      bodies.reduce(
        (chain, each) => nextChain(chain, { recordId: "r1", body: Buffer.from(each) }),
        firstChain(incarnation),
      );
    const all = [
      chainOf("one"),
      chainOf("two"),
      chainOf("one", ""),
      chainOf("one", "a"),
      chainOf("one", "a", "b"),
      chainOf("one", "b", "a"),
      chainOf("one", "ab"),
      chainOf("two", "ab"),
      nextChain(firstChain("one"), { recordId: "r2", body: Buffer.from("ab") }),
    ];
    expect(new Set(all).size).toBe(all.length);
    for (const each of all) expect(each).toMatch(/^[0-9a-f]{16}$/);
  });
});

describe("a mark", () => {
  const mark = {
    archived: 12,
    chain: "0123456789abcdef",
    busy: [header("s1", { lastSeq: 3, work: turn(), users: Array(100).fill("ada") })],
  };

  test("is read as it was written", () => {
    expect(decodeMark(toBody(mark))).toEqual(mark);
    expect(decodeMark(toBody({ ...mark, archived: 0, busy: [] }))).toBeDefined();
  });

  test.each([
    { ...mark, archived: -1 },
    { ...mark, archived: 1.5 },
    { ...mark, archived: "12" },
    { ...mark, chain: "" },
    { ...mark, chain: undefined },
    { ...mark, busy: {} },
    { ...mark, busy: [null] },
    { ...mark, busy: [{ sessionId: "s1", lastSeq: 1, work: null }] },
    { ...mark, busy: [{ sessionId: 1, lastSeq: 1, work: {} }] },
    [],
  ])("isn't read from what is none: %j", (found) => {
    expect(decodeMark(toBody(found))).toBeUndefined();
  });

  test.each(["", "null", "{", "\ufffd"])("isn't read from the bytes of %j", (text) => {
    expect(decodeMark(Buffer.from(text, "latin1"))).toBeUndefined();
  });
});
