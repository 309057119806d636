import { describe, expect, test } from "vitest";
import type { Entry, SessionState } from "../../protocol/message.ts";
import {
  isCaughtUp,
  initialPosition,
  type SessionPosition,
  type PositionFrame,
  applyFrame,
} from "./position.ts";

const session = "s";
const idle: SessionState = { state: "idle" };
const entry = (seq: number, more: Partial<Entry> = {}): Entry => ({
  seq,
  kind: "message",
  role: "user",
  author: "ada",
  messageId: `m${seq}`,
  tokens: 1,
  parts: [],
  atMs: 0,
  ...more,
});
const entries = (...some: Entry[]): PositionFrame => ({ type: "entries", session, entries: some });
const joined = (lastSeq: number, incarnation = "i", state: SessionState = idle): PositionFrame => {
  return { type: "joined", ref: "j", session, lastSeq, incarnation, state };
};
const chunks = (
  index: number,
  deltas: string[],
  { epoch = 1, attempt = 1 } = {},
): PositionFrame => ({
  type: "chunks",
  session,
  epoch,
  attempt,
  index,
  chunks: deltas.map((delta) => ({ type: "text-delta", id: "t", delta })),
});
const busy = (epoch = 1): SessionState => ({
  state: "catching_up",
  epoch,
  attempt: 1,
  agent: "bot",
  messageId: `@${epoch}`,
  upToSeq: 1,
  stopping: false,
});
const joining: SessionPosition = { ...initialPosition, phase: "joining" };

/** Takes all of them; what was told, in short. */
function take(start: SessionPosition, ...frames: PositionFrame[]) {
  let place = start;
  let gaps = 0;
  const told: string[] = [];
  for (const frame of frames) {
    const taken = applyFrame(place, frame);
    place = taken.position;
    if (taken.gap) gaps++;
    for (const event of taken.events) {
      const { type } = event;
      if (type === "entry") told.push(`${event.entry.seq}`);
      else if (type === "chunks") {
        const text = event.chunks.map(({ delta }) => delta as string).join("");
        told.push(`${event.fromStart ? "anew" : "on"} ${text}`);
      } else told.push(type);
    }
  }
  return { place, told, gaps };
}

describe("a position in a session", () => {
  test("takes entries once and in order, and knows when it has all", () => {
    const { place, told, gaps } = take(
      joining,
      joined(3),
      entries(entry(1), entry(2)),
      entries(entry(2), entry(3)),
    );
    expect(told).toEqual(["joined", "1", "2", "3"]);
    expect(gaps).toBe(0);
    expect(place).toMatchObject({ lastSeq: 3, lastMessageId: "m3", incarnation: "i" });
    expect(isCaughtUp(place)).toBe(true);
    expect(isCaughtUp(take(joining, joined(3), entries(entry(1))).place)).toBe(false);
  });

  test("shows nothing behind a gap", () => {
    const { place, told, gaps } = take(joining, joined(5), entries(entry(1), entry(3), entry(4)));
    expect(told).toEqual(["joined", "1"]);
    expect([gaps, place.lastSeq]).toEqual([1, 1]);
  });

  test("ignores everything before the answer to its own join", () => {
    const known: SessionPosition = { ...joining, lastSeq: 4, lastMessageId: "m4" };
    const early = [entries(entry(5)), chunks(0, ["a"]), { type: "state", session, state: busy() }];
    const reset: PositionFrame = { type: "reset", session, reason: "ahead" };
    expect(take(known, ...(early as PositionFrame[]), reset)).toEqual({
      place: known,
      told: [],
      gaps: 0,
    });
    const away: SessionPosition = { ...known, phase: "away" };
    expect(take(away, joined(9)).place).toBe(away);
  });

  test("begins with nothing after a reset, and is of the other log only then", () => {
    const known: SessionPosition = {
      ...joining,
      lastSeq: 4,
      lastMessageId: "m4",
      incarnation: "old",
    };
    const before = take(known, joined(2, "new"));
    expect(before.place).toMatchObject({ incarnation: "old", lastSeq: 4 });
    const after = take(
      before.place,
      { type: "reset", session, reason: "incarnation" },
      entries(entry(1), entry(2)),
    );
    expect(after.told).toEqual(["reset", "1", "2"]);
    expect(after.place).toMatchObject({ incarnation: "new", lastSeq: 2 });
  });

  test.each([
    ["what it has already", [chunks(0, ["a", "b"]), chunks(1, ["b", "c"])], ["anew ab", "on c"], 0],
    [
      "an answer that begins anew",
      [chunks(0, ["a"]), chunks(0, ["x"], { attempt: 2 })],
      ["anew a", "anew x"],
      0,
    ],
    ["an older attempt", [chunks(0, ["x"], { attempt: 2 }), chunks(1, ["b"])], ["anew x"], 0],
    ["nothing that is new", [chunks(0, ["a", "b"]), chunks(1, ["b"])], ["anew ab"], 0],
    ["a gap", [chunks(0, ["a"]), chunks(2, ["c"])], ["anew a"], 1],
    ["the middle of what it hasn't begun", [chunks(2, ["c"])], [], 1],
  ])("takes chunks without gaps: %s", (_, frames, told, gaps) => {
    const taken = take(joining, joined(0, "i", busy()), ...frames);
    expect(taken.told.slice(1)).toEqual(told);
    expect(taken.gaps).toBe(gaps);
  });

  test("counts on from what a shortened beginning stands for", () => {
    const short = { ...chunks(0, ["abc"]), nextIndex: 7 } as PositionFrame;
    const { told, gaps } = take(joining, joined(0, "i", busy()), short, chunks(7, ["d"]));
    expect(told).toEqual(["joined", "anew abc", "on d"]);
    expect(gaps).toBe(0);
  });

  test("keeps an answer whose turn waits for a permit, and goes on with it", () => {
    const state = { ...busy(), state: "waiting" } as SessionState;
    const frames: PositionFrame[] = [chunks(0, ["a"]), { type: "state", session, state }];
    const taken = take(joining, joined(0, "i", busy()), ...frames, chunks(1, ["b"]));
    expect(taken).toMatchObject({ gaps: 0, place: { answer: { nextIndex: 2 } } });
    expect(taken.told).toEqual(["joined", "anew a", "state", "on b"]);
  });

  test("forgets an answer when its entry comes, or when no pod makes it any more", () => {
    const live = take(joining, joined(0, "i", busy()), chunks(0, ["a"])).place;
    expect(live.answer).toMatchObject({ epoch: 1, nextIndex: 1 });
    const said = entry(1, { role: "assistant", epoch: 1, outcome: "completed" });
    const stored = take(live, entries(said), chunks(1, ["late"]), chunks(0, ["later"]));
    expect(stored.place.answer).toBeUndefined();
    expect(stored.gaps).toBe(0);
    expect(stored.told).toEqual(["1"]);
    expect(take(live, { type: "state", session, state: idle }).place.answer).toBeUndefined();
  });

  test("ignores late chunks of a turn that has ended, though an older entry came last", () => {
    const said = (seq: number, epoch: number) =>
      entry(seq, { role: "assistant", epoch, outcome: "completed" });
    const { told } = take(
      joining,
      joined(2),
      entries(said(1, 2), said(2, 1)),
      chunks(0, ["late"], { epoch: 2 }),
    );
    expect(told).toEqual(["joined", "1", "2"]);
  });

  test("keeps showing an answer that ended while it was away, until the entry is here", () => {
    const live = take(joining, joined(0, "i", busy()), chunks(0, ["a"])).place;
    const back = take({ ...live, phase: "joining" }, joined(1));
    expect(back.place.answer).toBeDefined();
    const said = entry(1, { role: "assistant", epoch: 1, outcome: "completed" });
    expect(take(back.place, entries(said)).place.answer).toBeUndefined();
  });

  test("ignores unknown fields of a newer server", () => {
    const place = take(joining, joined(0)).place;
    const strange = { type: "typing", session } as unknown as PositionFrame;
    expect(applyFrame(place, strange)).toEqual({ position: place, events: [], gap: false });
  });
});
