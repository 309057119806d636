import { describe, expect, test } from "vitest";
import { createAssembler } from "../../../protocol/assembler/assembler.ts";
import type { Chunk } from "../../../protocol/chunk.ts";
import { type Entry, type SessionState, textOf } from "../../../protocol/message.ts";
import { createTail, type TailEvent } from "./tail.ts";

const entry = (seq: number, more: Partial<Entry> = {}): Entry => ({
  seq,
  kind: "message",
  role: "user",
  author: "ada",
  messageId: `m${seq}`,
  tokens: 1,
  parts: [{ type: "text", text: `word ${seq}` }],
  atMs: seq,
  ...more,
});
const range = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, at) => entry(from + at));
const turn = (epoch: number, more: object = {}): SessionState => ({
  state: "catching_up",
  epoch,
  attempt: 1,
  agent: "helper",
  messageId: `answer ${epoch}`,
  upToSeq: 1,
  stopping: false,
  ...more,
});
const joined = (state: SessionState = { state: "idle" }): TailEvent => ({
  type: "joined",
  lastSeq: 100,
  incarnation: "one",
  state,
});
const chunks = (
  index: number,
  texts: readonly string[],
  more: Partial<Extract<TailEvent, { type: "chunks" }>> = {},
): TailEvent => ({
  type: "chunks",
  epoch: 3,
  attempt: 1,
  index,
  chunks: texts.map((delta) =>
    delta === "start"
      ? ({ type: "text-start", id: "t" } as Chunk)
      : { type: "text-delta", id: "t", delta },
  ),
  ...more,
});
const begun = (from = 51, to = 100) => {
  const tail = createTail(createAssembler);
  tail.begin({ entries: range(from, to), lastSeq: to, incarnation: "one" });
  return tail;
};
const seqs = (tail: ReturnType<typeof createTail>) => tail.view().entries.map(({ seq }) => seq);

describe("the tail of a session", () => {
  test("begins at the end, and goes on behind it without a gap and without doubles", () => {
    const tail = begun();
    expect(tail.position()).toEqual({ lastSeq: 100, incarnation: "one", lastMessageId: "m100" });
    expect(tail.take(joined(), 0)).toBe("go on");
    expect(tail.take({ type: "entries", entries: range(99, 102) }, 0)).toBe("go on");
    expect(seqs(tail)).toEqual(range(51, 102).map(({ seq }) => seq));
    expect(tail.take({ type: "entries", entries: range(104, 105) }, 0)).toBe("start over");
    expect(tail.view()).toMatchObject({ status: "live", fromSeq: 51 });
  });

  test("takes older entries only where they join", () => {
    const tail = begun();
    tail.prepend(range(1, 20));
    expect(tail.view().fromSeq).toBe(51);
    tail.prepend(range(31, 55));
    expect(seqs(tail)).toEqual(range(31, 100).map(({ seq }) => seq));
    tail.prepend([]);
    expect(tail.view().fromSeq).toBe(31);
  });

  test("an empty session begins with nothing", () => {
    const tail = createTail(createAssembler);
    expect(tail.position()).toBeUndefined();
    tail.begin({ entries: [], lastSeq: 0, incarnation: "one" });
    expect(tail.position()).toEqual({ lastSeq: 0, incarnation: "one" });
    expect(tail.view()).toMatchObject({ fromSeq: 1, entries: [] });
    tail.take({ type: "entries", entries: range(1, 1) }, 0);
    expect(seqs(tail)).toEqual([1]);
  });

  test("assembles the answer as it comes, until its entry is there", () => {
    const tail = begun();
    tail.take(joined(turn(3)), 0);
    tail.take(chunks(0, ["start", "Hel"]), 700);
    expect([...tail.view().firstSeenAtMs]).toEqual([["3.1", 700]]);
    const before = tail.view();
    expect(tail.view()).toBe(before);
    tail.take(chunks(2, ["lo"]), 0);
    expect(textOf(tail.view().answer!)).toBe("Hello");
    expect(tail.view().answer).toMatchObject({ messageId: "answer 3", agent: "helper" });
    // What it has already, sent again with more.
    tail.take(chunks(2, ["lo", " you"]), 0);
    expect(textOf(tail.view().answer!)).toBe("Hello you");
    expect(tail.take(chunks(9, ["!"]), 0)).toBe("join again");
    const answer = entry(101, { role: "assistant", epoch: 3, outcome: "completed" });
    tail.take({ type: "entries", entries: [answer] }, 0);
    expect(tail.view().answer).toBeUndefined();
    // Late chunks of a turn that has its entry.
    tail.take(chunks(0, ["start", "Hello"]), 0);
    expect(tail.view().answer).toBeUndefined();
  });

  test("begins the answer again with another attempt, and ignores the attempt before", () => {
    const tail = begun();
    tail.take(joined(turn(3)), 0);
    tail.take(chunks(0, ["start", "lost"]), 0);
    tail.take({ type: "state", state: turn(3, { attempt: 2 }) }, 0);
    tail.take(chunks(0, ["start", "found"], { attempt: 2 }), 0);
    tail.take(chunks(2, [" more"]), 0);
    expect(textOf(tail.view().answer!)).toBe("found");
    expect(tail.view().answer).toMatchObject({ attempt: 2 });
  });

  test("counts on from what a shortened beginning stands for", () => {
    const tail = begun();
    tail.take(joined(turn(3)), 0);
    tail.take(chunks(0, ["start", "abc"], { nextIndex: 7 }), 0);
    expect(tail.take(chunks(7, ["d"]), 0)).toBe("go on");
    expect(textOf(tail.view().answer!)).toBe("abcd");
  });

  test("knows how long a turn was seen to wait for a permit, whatever the clock does", () => {
    const tail = begun();
    tail.take(joined(turn(3, { state: "waiting" })), 1_000);
    tail.take(
      {
        type: "chunks",
        epoch: 3,
        attempt: 1,
        index: 0,
        chunks: [{ type: "data-waiting", transient: true, data: { ahead: 4, aboutMs: 900 } }],
      },
      1_500,
    );
    expect(tail.view()).toMatchObject({ waiting: { ahead: 4, aboutMs: 900 }, answer: undefined });
    tail.take({ type: "state", state: turn(3) }, 4_000);
    expect(tail.view().waiting).toBeUndefined();
    expect([...tail.view().throttledMs]).toEqual([["3.1", 3_000]]);
    tail.take({ type: "state", state: turn(4, { state: "waiting" }) }, 9_000);
    tail.take({ type: "state", state: { state: "idle" } }, 2_000);
    expect(tail.view().throttledMs.get("4.1")).toBe(0);
  });

  test("is away while the connection is, and back with the next answer to a join", () => {
    const tail = begun();
    tail.lost();
    expect(tail.view().status).toBe("loading");
    tail.take(joined(), 0);
    tail.lost();
    expect(tail.view()).toMatchObject({ status: "away", fromSeq: 51 });
    tail.take(joined(), 0);
    expect(tail.view().status).toBe("live");
  });

  test("of another log starts over, and of a deleted session is gone with what was shown", () => {
    const tail = begun();
    tail.take(joined(), 0);
    expect(tail.take({ type: "reset" }, 0)).toBe("start over");
    expect(tail.position()).toBeUndefined();
    tail.begin({ entries: range(1, 2), lastSeq: 2, incarnation: "two" });
    expect(tail.take({ type: "deleted" }, 0)).toBe("gone");
    expect(tail.view()).toMatchObject({ status: "gone", entries: [{ seq: 1 }, { seq: 2 }] });
    tail.end(new Error("there is no session x"));
    expect(tail.view().error?.message).toBe("there is no session x");
  });

  test("ignores kinds of events that it doesn't know", () => {
    const tail = begun();
    expect(tail.take({ type: "later" } as unknown as TailEvent, 0)).toBe("go on");
  });
});
