import { describe, expect, test } from "vitest";
import { toAnswer } from "./connect.ts";
import type { PublishAnswer, StoredMessage } from "./engine.ts";
import { encodeMessage, type LogMessage } from "./message.ts";
import { decideAnswer, decidePlace, type SentMessage } from "./outcome.ts";

const prefix = "flotilla.x.log.0.one";
const body = Buffer.from("{}");
const own: LogMessage = {
  kind: "record",
  recordId: "r1",
  term: 3,
  owner: "pod-1",
  host: null,
  chain: "0123456789abcdef",
  body,
};
const sent: SentMessage = { stream: "S", prefix, offset: 7, message: own, isOnlySend: true };
const at = (changes: Partial<LogMessage>): StoredMessage => ({
  ...encodeMessage(prefix, { ...own, ...changes }),
  sequence: 8,
});

describe("an answer to a publish behind 7", () => {
  test.each<[string, PublishAnswer, object]>([
    ["acked as 8", { type: "acked", stream: "S", sequence: 8 }, { type: "committed" }],
    ["acked as 9", { type: "acked", stream: "S", sequence: 9 }, { type: "unknown" }],
    ["acked as 7", { type: "acked", stream: "S", sequence: 7 }, { type: "unknown" }],
    ["acked by another stream", { type: "acked", stream: "T", sequence: 8 }, { type: "unknown" }],
    ["wrong last sequence", { type: "wrong_last", lastSequence: 8 }, { type: "read_place" }],
    ["full", { type: "full" }, { type: "full" }],
    ["too large", { type: "too_large" }, { type: "too_large" }],
    ["silent", { type: "silent", why: "no responders" }, { type: "unknown" }],
  ])("%s", (_, answer, outcome) => {
    expect(decideAnswer(answer, sent)).toMatchObject(outcome);
  });

  test.each<PublishAnswer>([{ type: "full" }, { type: "too_large" }])(
    "is no refusal while an earlier send may still be stored: %j",
    (answer) => {
      expect(decideAnswer(answer, { ...sent, isOnlySend: false })).toMatchObject({
        type: "unknown",
      });
    },
  );
});

describe("the place of a message", () => {
  const none = { found: undefined, state: undefined };

  test("with the message itself means that it is committed", () => {
    expect(decidePlace({ ...none, found: at({}) }, sent)).toEqual({ type: "committed" });
  });

  test.each<[string, StoredMessage]>([
    ["another record", at({ recordId: "r2" })],
    ["the same id of another term", at({ term: 4 })],
    ["the same id of another pod", at({ owner: "pod-2" })],
    ["a message that isn't Flotilla's", { sequence: 8, subject: "x", headers: {}, body }],
  ])("with %s means fenced", (_, found) => {
    expect(decidePlace({ ...none, found }, sent)).toEqual({ type: "fenced" });
  });

  test("that was trimmed means fenced", () => {
    const state = { firstSequence: 9, lastSequence: 12 };
    expect(decidePlace({ ...none, state }, sent)).toEqual({ type: "fenced" });
  });

  test.each([
    undefined,
    { firstSequence: 1, lastSequence: 7 },
    { firstSequence: 1, lastSequence: 12 },
    // All of it is trimmed, and nothing was ever behind 7.
    { firstSequence: 8, lastSequence: 7 },
    { firstSequence: 9, lastSequence: 7 },
  ])("with nothing there means nothing: %j", (state) => {
    expect(decidePlace({ ...none, state }, sent)).toMatchObject({ type: "unknown" });
  });
});

describe("an error of JetStream", () => {
  const failed = (code: number, message: string) => Object.assign(new Error(message), { code });

  test.each<[Error, PublishAnswer]>([
    [failed(10071, "wrong last sequence: 42"), { type: "wrong_last", lastSequence: 42 }],
    [failed(10077, "maximum bytes exceeded"), { type: "full" }],
    [failed(10077, "maximum messages exceeded"), { type: "full" }],
    [failed(10054, "message size exceeds maximum allowed"), { type: "too_large" }],
  ])("%s is an answer", (error, answer) => {
    expect(toAnswer(error)).toEqual(answer);
  });

  test.each([
    // One server's own disk: the others may have stored the message.
    failed(10077, "no space left on device"),
    failed(10071, "wrong last sequence"),
    failed(10008, "JetStream system temporarily unavailable"),
    failed(503, "no responders"),
    new Error("timeout"),
    "cut",
  ])("%s says nothing about the message", (error) => {
    expect(toAnswer(error)).toMatchObject({ type: "silent" });
  });
});
