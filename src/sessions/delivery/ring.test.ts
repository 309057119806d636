import { describe, expect, test } from "vitest";
import type { Entry } from "../../protocol/message.ts";
import { createRing, type Ring, type RingBudget, estimateJsonBytes } from "./ring.ts";
import { upTo } from "../contract/delivery-harness.ts";

describe("a ring of the last entries", () => {
  test("keeps the newest, up to its bound", () => {
    const room = roomOf(1_000_000);
    const ring = createRing(room, 10_000);
    for (const seq of upTo(200)) ring.add([entry(seq)]);
    expect(room.usedBytes).toBeLessThanOrEqual(11_250);
    expect(room.usedBytes).toBeGreaterThan(8_000);
    expect(ring.after(199)).toEqual([entry(200)]);
    expect(ring.after(200)).toEqual([]);
    expect(ring.after(0)).toBeUndefined();
    expect([ring.at(200)?.seq, ring.at(1), ring.at(201)]).toEqual([200, undefined, undefined]);
    ring.clear();
    expect(room.usedBytes).toBe(0);
  });

  test("is cleared for the others where all together are too large", () => {
    const rings: Ring[] = [];
    const room = roomOf(20_000, () => rings[0]!.clear());
    rings.push(createRing(room, 15_000), createRing(room, 15_000));
    for (const ring of rings) ring.add(upTo(50).map(entry));
    expect(rings[0]!.after(49)).toBeUndefined();
    expect(rings[1]!.after(49)).toHaveLength(1);
    expect(room.usedBytes).toBeLessThanOrEqual(20_000);
  });

  test("takes what was read before it, without a gap and as far as it fits", () => {
    const ring = createRing(roomOf(100_000), 10_000);
    ring.addBefore(upTo(8, 5).map(entry), 9);
    expect(ring.after(4)).toBeUndefined();
    ring.addBefore(upTo(9, 5).map(entry), 9);
    expect(ring.after(4)?.map(({ seq }) => seq)).toEqual(upTo(9, 5));
    ring.addBefore(upTo(3).map(entry), 9);
    expect(ring.after(0)).toBeUndefined();
    const small = createRing(roomOf(100_000), 600);
    small.addBefore(upTo(9).map(entry), 9);
    expect(small.after(8)).toHaveLength(1);
    expect(small.after(0)).toBeUndefined();
  });

  test("is measured about as its text is", () => {
    const written = JSON.stringify(entry(3)).length;
    expect(Math.abs(estimateJsonBytes(entry(3)) - written)).toBeLessThan(written / 3);
  });
});

function roomOf(maxBytes: number, makeRoom = () => {}): RingBudget {
  return { usedBytes: 0, maxBytes, evict: makeRoom };
}

function entry(seq: number): Entry {
  const parts = [{ type: "text", text: "x".repeat(100) }];
  const said = { kind: "message", role: "user", author: "ann", tokens: 1, atMs: 0 } as const;
  return { ...said, seq, messageId: `m${seq}`, parts };
}
