import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { afterAllIds, cursorsOf, walk, walkBounds, type WalkSpan } from "./walk.ts";

const idOf = (at: number) => `t${String(at).padStart(7, "0")}`;

/** A list of ids 0 to `count`, of which some match; every read takes some time. */
function scene(count: number, matches: (at: number) => boolean, { readMs = 0, bytes = 1 } = {}) {
  let nowMs = 0;
  let walked = 0;
  const spans: WalkSpan[] = [];
  return {
    spans,
    walked: () => walked,
    page: (limit: number, before = afterAllIds) =>
      walk({
        clock: { monotonic: () => nowMs },
        before,
        from: "",
        limit,
        async read(span, wanted) {
          nowMs += readMs;
          spans.push(span);
          const first = span.before === afterAllIds ? count : Number(span.before.slice(1));
          const places = Array.from(
            { length: Math.min(span.count, first) },
            (_, nth) => first - 1 - nth,
          );
          walked += places.length;
          const entry = (at: number) => ({ id: idOf(at), atMs: at, bytes });
          const last = places.at(-1);
          return {
            found: places.filter(matches).slice(0, wanted).map(entry),
            walked: places.length,
            last: last === undefined ? undefined : entry(last),
            isEnd: places.length < span.count,
          };
        },
      }),
  };
}

describe("a walk", () => {
  test("that finds nothing stops after 20,000 entries, says where, and goes on from there", async () => {
    const { page, walked } = scene(50_000, () => false);
    const first = await page(50);
    expect(first.found).toEqual([]);
    expect(first.stoppedAt).toMatchObject({ id: idOf(30_000), atMs: 30_000 });
    expect(walked()).toBe(walkBounds.entries);
    const second = await page(50, first.stoppedAt!.id);
    expect(second.stoppedAt).toMatchObject({ id: idOf(10_000) });
    const third = await page(50, second.stoppedAt!.id);
    expect(third).toEqual({ found: [], stoppedAt: undefined });
    expect(walked()).toBe(50_000);
  });

  test("begins no piece after 100 ms", async () => {
    const { page, spans } = scene(50_000, () => false, { readMs: 40 });
    const { stoppedAt } = await page(50);
    expect(spans).toHaveLength(4);
    expect(stoppedAt).toMatchObject({ id: idOf(50_000 - 51 - 3 * walkBounds.piece) });
  });

  test("reads a second piece however long the first took, so that few entries are one page", async () => {
    const { page, spans } = scene(1_000, () => false, { readMs: 5_000 });
    expect(await page(50)).toEqual({ found: [], stoppedAt: undefined });
    expect(spans).toHaveLength(2);
  });

  test("reads no more than the page where everything matches", async () => {
    const { page, walked } = scene(50_000, () => true);
    const { found, stoppedAt } = await page(50);
    expect(found).toHaveLength(50);
    expect(stoppedAt).toMatchObject({ id: idOf(50_000 - 50) });
    expect(walked()).toBe(51);
  });

  test("never reads more than 2,000 entries at once", async () => {
    const { page, spans } = scene(50_000, () => true);
    await page(5_000);
    expect(Math.max(...spans.map(({ count }) => count))).toBe(walkBounds.piece);
  });

  test("finds everything once, over its pages, whatever matches", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(fc.nat(3_000)),
        fc.integer({ min: 1, max: 20 }),
        fc.nat(3_000),
        async (matching, limit, count) => {
          const { page } = scene(count, (at) => matching.includes(at), { readMs: 60 });
          const found: number[] = [];
          let before: string | undefined = afterAllIds;
          while (before !== undefined) {
            const result: Awaited<ReturnType<typeof page>> = await page(limit, before);
            expect(result.found.length).toBeLessThanOrEqual(limit);
            found.push(...result.found.map(({ atMs }) => atMs));
            before = result.stoppedAt?.id;
          }
          expect(found).toEqual(
            matching.filter((at) => at < count).toSorted((one, other) => other - one),
          );
        },
      ),
      { numRuns: 50 },
    );
  });

  test("ends a page at its bytes, but never before its first entry", async () => {
    const { page } = scene(10, () => true, { bytes: 600_000 });
    const { found, stoppedAt } = await page(5);
    expect(found).toHaveLength(1);
    expect(stoppedAt).toMatchObject({ id: idOf(9) });
  });
});

describe("a cursor", () => {
  const cursors = cursorsOf("tasks", { name: "mail", tenant: undefined });

  test("is taken by the same list with the same filter, in whatever order it is given", () => {
    const again = cursorsOf("tasks", { name: "mail" });
    expect(again.decode(cursors.encode("t1"))).toBe("t1");
    const both = { name: "mail", status: "failed" };
    const turned = { status: "failed", name: "mail" };
    expect(cursorsOf("tasks", both).decode(cursorsOf("tasks", turned).encode("t1"))).toBe("t1");
  });

  test.each([
    ["of another filter", cursorsOf("tasks", { name: "other" }).encode("t1")],
    ["of no filter", cursorsOf("tasks", {}).encode("t1")],
    ["of another list", cursorsOf("runs", { name: "mail" }).encode("t1")],
    ["that was made up", "t1"],
    ["that is empty", ""],
    ["without a place", cursors.encode("")],
    ["with what no store can hold", cursors.encode("a\u0000b")],
    ["that is too long", cursors.encode("x".repeat(1_000))],
  ])("%s is refused", (_, cursor) => {
    expect(() => cursors.decode(cursor)).toThrow(
      expect.objectContaining({
        code: "invalid_option",
        message: expect.stringContaining("cursor must be the `next` of an earlier page"),
      }),
    );
  });
});
