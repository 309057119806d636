import { describe, expect, test } from "vitest";
import { movableClock, eventLoopTurns } from "../../base/contract/movable-clock.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import type { Entry, SessionState, UIMessage } from "../../protocol/message.ts";
import type { SessionEvent } from "../session/session.ts";
import {
  regenerationOf,
  type AnswerOptions,
  answerTo,
  continuationOf,
  streamAnswer,
} from "./answer.ts";

/** A stream of an answer whose session says what the test says. */
function streaming(
  options: Pick<AnswerOptions, "target" | "initial"> & {
    isFollowed?: boolean;
    takesReset?: boolean;
  },
) {
  const clock = movableClock();
  const { isFollowed = true, takesReset = false, ...rest } = options;
  const ends: string[] = [];
  const read: Chunk[] = [];
  let take: (event: SessionEvent) => void = () => {};
  let outcome = "open";
  const stream = streamAnswer(
    { drainTo: (to) => (take = to), leave: () => (take = () => {}) },
    {
      ...rest,
      clock,
      isSynced: () => isFollowed,
      takesReset: () => takesReset,
      onEnd: ({ type }) => ends.push(type),
    },
  );
  const reading = (async () => {
    for await (const chunk of stream) read.push(chunk);
  })();
  reading.then(
    () => (outcome = "closed"),
    (error: unknown) => (outcome = String(error)),
  );
  return {
    clock,
    async hear(...events: SessionEvent[]) {
      for (const event of events) take(event);
      await eventLoopTurns(1);
    },
    read,
    ends,
    get outcome() {
      return outcome;
    },
    get types() {
      return read.map(({ type }) => type);
    },
  };
}

const idle: SessionState = { state: "idle" };
const working = (epoch: number, fields: Partial<SessionState> = {}): SessionState =>
  ({
    state: "catching_up",
    epoch,
    attempt: 1,
    agent: "helper",
    messageId: `@${epoch}`,
    upToSeq: 1,
    stopping: false,
    ...fields,
  }) as SessionState;
const joined = (lastSeq: number, state: SessionState): SessionEvent => ({
  type: "joined",
  lastSeq,
  state,
});
const entry = (seq: number, fields: Partial<Entry> = {}): SessionEvent => ({
  type: "entry",
  entry: {
    seq,
    kind: "message",
    role: "user",
    author: "ada",
    messageId: `m${seq}`,
    tokens: 1,
    parts: [{ type: "text", text: "hello" }],
    atMs: 0,
    ...fields,
  },
});
const answer = (seq: number, fields: Partial<Entry> = {}) =>
  entry(seq, { role: "assistant", author: "helper", outcome: "completed", ...fields });
const chunks = (epoch: number, fromStart: boolean, ...said: Chunk[]): SessionEvent => ({
  type: "chunks",
  epoch,
  attempt: 1,
  fromStart,
  chunks: said,
});
const start: Chunk[] = [{ type: "start" }, { type: "text-start", id: "t" }];
const word: Chunk = { type: "text-delta", id: "t", delta: "one" };

describe("the stream of an answer", () => {
  test("goes on where it learns only later that a pod works on it", async () => {
    const stream = streaming({ target: answerTo(1) });
    await stream.hear(joined(0, idle), entry(1));
    await stream.clock.advance(100);
    await stream.hear({ type: "state", state: working(1) }, chunks(1, true, ...start, word));
    await stream.hear(answer(2, { messageId: "@1", epoch: 1, upToSeq: 1 }));
    expect([stream.outcome, stream.ends]).toEqual(["closed", ["stored"]]);
    expect(stream.types).toContain("text-delta");
  });

  test("isn't ended by a connection that was cut before the end was sent", async () => {
    const stream = streaming({ target: answerTo(1) });
    await stream.hear(joined(0, idle), entry(1), { type: "away" });
    await stream.clock.advance(60_000);
    expect(stream.outcome).toBe("open");
    await stream.hear(joined(1, working(1)), chunks(1, true, ...start, word));
    expect(stream.types).toContain("text-delta");
  });

  test("ends where no agent answers", async () => {
    const stream = streaming({ target: answerTo(1) });
    await stream.hear(joined(0, idle), entry(1));
    expect(stream.outcome).toBe("open");
    await stream.clock.advance(1_000);
    expect([stream.outcome, stream.ends, stream.read]).toEqual(["closed", ["over"], []]);
  });

  test("never begins in the middle", async () => {
    for (const isFollowed of [true, false]) {
      const stream = streaming({ target: answerTo(1), isFollowed });
      await stream.hear(joined(1, working(1)), entry(1), chunks(1, false, word));
      expect([stream.ends, stream.read]).toEqual([["restarted"], []]);
      expect(stream.outcome).toMatch(isFollowed ? "closed" : "TypeError: network");
    }
  });

  test("ends where the answer is restarted, to be shown from its start", async () => {
    const stream = streaming({ target: answerTo(1) });
    await stream.hear(joined(1, working(1)), entry(1), chunks(1, true, ...start, word));
    await stream.hear({ type: "state", state: working(1, { attempt: 2 } as object) });
    const other: Chunk = { ...word, delta: "another" };
    await stream.hear({ ...chunks(1, true, ...start, other), attempt: 2 } as SessionEvent);
    expect([stream.outcome, stream.ends]).toEqual(["closed", ["restarted"]]);
    expect(stream.read.at(-1)).toEqual(word);
  });

  test("reports how a regeneration ended, though it has no content and this client didn't see it", async () => {
    const stream = streaming({ target: regenerationOf("@1", 2) });
    await stream.hear(joined(2, idle), entry(1), answer(2, { messageId: "@1" }), { type: "away" });
    const error = { code: "failed", message: "the model is on fire" };
    await stream.hear(joined(3, idle), answer(3, { outcome: "failed", parts: [], error }));
    expect([stream.outcome, stream.ends]).toEqual(["closed", ["stored"]]);
    expect(stream.read.at(-1)).toEqual({ type: "error", errorText: "the model is on fire" });
  });

  test("leaves a message as it was where continuing it failed before the first chunk", async () => {
    const initial: UIMessage = {
      id: "@1",
      role: "assistant",
      parts: [{ type: "text", text: "may I?", state: "done" }],
    };
    const stream = streaming({ target: continuationOf("@1", 3), initial });
    await stream.hear(joined(3, working(2, { messageId: "@1", upToSeq: 3 } as object)));
    await stream.hear(answer(4, { epoch: 2, outcome: "failed", parts: [] }));
    expect(stream.read[0]).toEqual({ type: "start", messageId: "@1" });
    expect(stream.types).toEqual(["start", "error"]);
  });
});

describe("the stream of an answer that another pod goes on with", () => {
  const text = (id: string, delta: string): Chunk[] => [
    { type: "text-start", id },
    { type: "text-delta", id, delta },
  ];
  const finished: Chunk[] = [
    { type: "start", messageId: "@1" },
    { type: "start-step" },
    ...text("a", "found it"),
    { type: "text-end", id: "a" },
    { type: "start-step" },
  ];
  const second = (fromStart: boolean, ...said: Chunk[]) =>
    ({ ...chunks(1, fromStart, ...said), attempt: 2 }) as SessionEvent;
  /** A stream that has a finished step and half words of the next; then a second attempt begins. */
  const interrupted = async (options: { takesReset: boolean; isFollowed?: boolean }) => {
    const stream = streaming({ target: answerTo(1), ...options });
    await stream.hear(joined(1, working(1)), entry(1));
    await stream.hear(chunks(1, true, ...finished, ...text("b", "one two three")));
    await stream.hear({ type: "state", state: working(1, { attempt: 2 } as object) });
    const before = stream.read.length;
    return { stream, more: () => stream.read.slice(before) };
  };

  test("gets what is new where the answer extends what it has", async () => {
    for (const takesReset of [true, false]) {
      const { stream, more } = await interrupted({ takesReset });
      await stream.hear(second(true, ...finished, ...text("b", "one two three four")));
      await stream.hear(second(false, { type: "text-delta", id: "b", delta: " five" }));
      expect(more()).toEqual([
        { type: "text-delta", id: "b", delta: " four" },
        { type: "text-delta", id: "b", delta: " five" },
      ]);
      expect(stream.outcome).toBe("open");
    }
  });

  test("keeps half words until others come, and gets those in their place with its finished steps left alone", async () => {
    const { stream, more } = await interrupted({ takesReset: true });
    await stream.hear(second(true, ...finished.slice(0, -1)));
    await stream.hear(second(false, { type: "start-step" }));
    await stream.hear(second(false, ...text("c", "one ")));
    expect(more()).toEqual([]);
    await stream.hear(second(false, { type: "text-delta", id: "c", delta: "other" }));
    await stream.hear(second(false, { type: "text-delta", id: "c", delta: " word" }));
    expect(more()).toEqual([
      { type: "reset-step" },
      ...text("c", "one other"),
      { type: "text-delta", id: "c", delta: " word" },
    ]);
    expect([stream.outcome, stream.ends]).toEqual(["open", []]);
  });

  test("is brought to the stored answer, however far the other attempt came", async () => {
    const parts = [
      { type: "step-start" },
      { type: "text", text: "found it", state: "done" },
      { type: "step-start" },
      { type: "text", text: "one", state: "done" },
    ];
    for (const stored of [parts, parts.slice(0, 3), parts.slice(0, 2)]) {
      const { stream, more } = await interrupted({ takesReset: true, isFollowed: false });
      await stream.hear(second(true, ...finished));
      await stream.hear(answer(2, { messageId: "@1", epoch: 1, upToSeq: 1, parts: stored }));
      const last = stored.length === 4 ? [{ type: "text-delta", delta: "one" }] : [];
      expect(more()).toMatchObject([
        { type: "reset-step" },
        ...(last.length > 0 ? [{ type: "text-start" }, ...last, { type: "text-end" }] : []),
        { type: "message-metadata" },
        { type: "finish" },
      ]);
      expect([stream.outcome, stream.ends]).toEqual(["closed", ["stored"]]);
    }
  });

  test("ends where a finished step is another one, or the reader can't go back", async () => {
    const other = await interrupted({ takesReset: true });
    const [start, step, ...rest] = finished;
    await other.stream.hear(second(true, start!, step!, ...text("x", "lost it"), ...rest));
    expect([other.stream.ends, other.more()]).toEqual([["restarted"], []]);
    const older = await interrupted({ takesReset: false });
    await older.stream.hear(second(true, ...finished, ...text("b", "one two")));
    expect([older.stream.ends, older.more()]).toEqual([["restarted"], []]);
  });

  test("never takes back what the message had before the answer", async () => {
    const initial: UIMessage = {
      id: "@1",
      role: "assistant",
      parts: [{ type: "text", text: "may I?", state: "done" }],
    };
    const stream = streaming({ target: continuationOf("@1", 3), initial, takesReset: true });
    await stream.hear(joined(3, working(1, { messageId: "@1", upToSeq: 3 } as object)));
    const before: Chunk[] = [...text("p", "may I?"), { type: "text-end", id: "p" }];
    await stream.hear(chunks(1, true, ...before, ...text("b", "one two")));
    await stream.hear(second(true, ...before, ...text("b", "other")));
    expect(stream.types).not.toContain("reset-step");
    expect(stream.ends).toEqual(["restarted"]);
  });
});

test("a turn that waits is reported beside the answer, which begins when the turn does", async () => {
  const stream = streaming({ target: answerTo(1) });
  const of = { type: "chunks", epoch: 1, attempt: 1 } as const;
  const waiting = (data: object | null) => ({ type: "data-waiting", transient: true, data });
  await stream.hear(joined(1, working(1)), entry(1));
  await stream.hear({ type: "state", state: working(1, { state: "waiting" }) });
  await stream.hear({ ...of, fromStart: true, chunks: [waiting({ ahead: 2 })] });
  await stream.hear({ ...of, fromStart: false, chunks: [waiting(null)] });
  expect(stream.types).toEqual(["data-waiting", "data-waiting"]);
  const said = [
    { type: "start", messageId: "@1" },
    { type: "text-start", id: "t" },
    { type: "text-delta", id: "t", delta: "hi" },
  ];
  await stream.hear({ ...of, fromStart: false, chunks: said });
  expect(stream.types.slice(2)).toEqual(["start", "text-start", "text-delta"]);
  expect(stream.outcome).toBe("open");
});

test.each([
  ["while it was away", 1, [{ type: "away" } as SessionEvent, joined(1, working(1))]],
  ["of another attempt", 2, []],
])("an answer whose start was missed %s isn't taken for whole", async (_, attempt, between) => {
  const stream = streaming({ target: answerTo(1) });
  const waiting = { type: "data-waiting", transient: true, data: { ahead: 2 } };
  const of = { type: "chunks", epoch: 1 } as const;
  await stream.hear(joined(1, working(1)), entry(1));
  await stream.hear({ ...of, attempt: 1, fromStart: true, chunks: [waiting] }, ...between);
  const rest = { type: "text-delta", id: "t", delta: "the end" };
  await stream.hear({ ...of, attempt, fromStart: false, chunks: [rest] });
  expect(stream.types).toEqual(["data-waiting"]);
  expect(stream.ends).toEqual(["restarted"]);
});
