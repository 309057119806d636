import { describe, expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import {
  createJoiner,
  cutIntoPieces,
  maxEnvelopeBytes,
  maxPieceBytes,
  readPiece,
} from "./pieces.ts";

const key = { secret: "secret", address: "bob" };
const mebi = 1024 * 1024;

const cut = (text: string, { sender = "alice", seq = 1 } = {}) =>
  cutIntoPieces(key, { sender, seq, text })!;
const read = (frame: Uint8Array) => readPiece(key, frame);

describe("a message", () => {
  test.each(["", "short", "漢😀", "x".repeat(maxPieceBytes), "y".repeat(maxPieceBytes + 1)])(
    "arrives as it was sent, in as many pieces as it needs (%#)",
    (text) => {
      const joiner = createJoiner({ clock: movableClock() });
      const pieces = cut(text, { sender: 'a "b"\n c' });
      expect(pieces).toHaveLength(text.length > maxPieceBytes ? 2 : 1);
      const got = pieces.map((frame) => joiner.add(read(frame)!));
      expect(got.at(-1)).toBe(text);
      expect(got.slice(0, -1).every((each) => each === undefined)).toBe(true);
      expect(joiner.openBytes).toBe(0);
    },
  );

  test("may be split within a character", () => {
    const text = "漢".repeat(maxPieceBytes);
    const joiner = createJoiner({ clock: movableClock() });
    expect(
      cut(text)
        .map((frame) => joiner.add(read(frame)!))
        .at(-1),
    ).toBe(text);
  });

  test("isn't sent if it is too large", () => {
    expect(cut("x".repeat(maxEnvelopeBytes))).toHaveLength(32);
    const message = { sender: "alice", seq: 1, text: "x".repeat(maxEnvelopeBytes + 1) };
    expect(cutIntoPieces(key, message)).toBeUndefined();
  });
});

describe("a piece is dropped", () => {
  const [frame] = cut("hello") as [Uint8Array];

  test.each([
    ["nothing", new Uint8Array()],
    ["garbage", Buffer.from("hello, nobody has signed this\n and it is long enough to be one")],
    ["no head", Buffer.alloc(2_000, 1)],
    ["one that was cut off", frame.subarray(0, -1)],
    ["one with another byte", Buffer.from(frame).fill(7, frame.length - 1)],
    ["more than a piece may have", Buffer.alloc(maxPieceBytes + 4_096, "\n")],
  ])("if it is %s", (_, data) => {
    expect(read(data)).toBeUndefined();
  });

  test("if it was made for another address, or with another secret", () => {
    expect(read(frame)).toMatchObject({ sender: "alice", seq: 1, nth: 0, of: 1 });
    expect(readPiece({ ...key, address: "eve" }, frame)).toBeUndefined();
    expect(readPiece({ ...key, secret: "guessed" }, frame)).toBeUndefined();
  });
});

describe("messages that are not whole", () => {
  const joining = () => {
    const clock = movableClock();
    const joiner = createJoiner({ clock });
    const add = (frames: readonly Uint8Array[]) =>
      frames.map((frame) => joiner.add(read(frame)!)).at(-1);
    return { clock, joiner, add };
  };
  const large = "x".repeat(2 * mebi);

  test("are dropped when the next of their sender comes", () => {
    const { joiner, add } = joining();
    add(cut(large).slice(0, -1));
    expect(joiner.openBytes).toBeGreaterThan(mebi);
    expect(add(cut("next", { seq: 2 }))).toBe("next");
    expect(joiner.openBytes).toBe(0);
    expect(add(cut(large).slice(-1))).toBeUndefined();
  });

  test("are dropped when a piece is missing, and the following message arrives", () => {
    const { joiner, add } = joining();
    const pieces = cut(large);
    expect(add(pieces.toSpliced(1, 1))).toBeUndefined();
    expect(add(pieces.slice(1))).toBeUndefined();
    expect(joiner.openBytes).toBe(0);
    expect(add(cut(large, { seq: 2 }))).toBe(large);
  });

  test("are dropped after a while", async () => {
    const { clock, joiner, add } = joining();
    const pieces = cut(large);
    add(pieces.slice(0, 1));
    await clock.advance(29_000);
    add(pieces.slice(1, 2));
    await clock.advance(29_000);
    expect(joiner.openBytes).toBe(2 * maxPieceBytes);
    await clock.advance(1_001);
    expect(joiner.openBytes).toBe(0);
    expect(add(pieces.slice(2))).toBeUndefined();
    expect(clock.timers).toBe(0);
  });

  test("never hold more than 64 MiB, whatever the number of senders", () => {
    const { joiner, add } = joining();
    const whole = "x".repeat(16 * mebi);
    let most = 0;
    for (let nth = 0; nth < 6; nth++) {
      add(cut(whole, { sender: `sender ${nth}` }).slice(0, -1));
      most = Math.max(most, joiner.openBytes);
    }
    expect(most).toBeGreaterThan(48 * mebi);
    expect(most).toBeLessThanOrEqual(64 * mebi);
    joiner.clear();
    expect(joiner.openBytes).toBe(0);
  });
});

test("a message that was overtaken or comes twice is dropped, so that the order holds", () => {
  const joiner = createJoiner({ clock: movableClock() });
  const add = (text: string, seq: number, sender = "alice") =>
    joiner.add(read(cut(text, { seq, sender })[0]!)!);
  expect(add("first", 1)).toBe("first");
  expect(add("third", 3)).toBe("third");
  expect(add("second", 2)).toBeUndefined();
  expect(add("third", 3)).toBeUndefined();
  expect(add("another's", 1, "carol")).toBe("another's");
});
