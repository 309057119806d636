import { describe, expect, test } from "vitest";
import { movableClock, eventLoopTurns } from "../../base/contract/movable-clock.ts";
import type { Head } from "./journal.ts";
import { createHeads } from "./heads.ts";

/** Heads over reads that a test answers by hand. */
function scened() {
  const clock = movableClock();
  const reads: PromiseWithResolvers<Head[]>[] = [];
  const journal = {
    heads() {
      const read = Promise.withResolvers<Head[]>();
      reads.push(read);
      return read.promise;
    },
  };
  return { clock, reads, heads: createHeads({ journal, clock }) };
}

const headOf = (term: number, logId = 0) => ({ logId, incarnation: "one", term }) as Head;

describe("heads", () => {
  test("are there for every caller once they are, also while an earlier read is under way", async () => {
    const { reads, heads } = scened();
    const early = heads.all(0);
    // The logs are made while the first look is under way.
    await eventLoopTurns();
    const late = heads.of("s", Infinity);
    reads[0]!.resolve([]);
    await eventLoopTurns();
    reads[1]?.resolve([headOf(1)]);
    expect(await early).toEqual([]);
    expect(await late).toMatchObject({ incarnation: "one" });
  });

  test("are no older than the caller allows, also while an earlier read is under way", async () => {
    const { clock, reads, heads } = scened();
    const early = heads.of("s", 0);
    await clock.advance(1_500);
    const [believing, late] = [heads.of("s", 2_000), heads.of("s", 1_000)];
    reads[0]!.resolve([headOf(1)]);
    await eventLoopTurns();
    // Both of those that ask anew share one look.
    const later = heads.of("s", 0);
    expect(reads).toHaveLength(2);
    reads[1]!.resolve([headOf(2)]);
    expect(await Promise.all([early, believing])).toMatchObject([{ term: 1 }, { term: 1 }]);
    expect(await Promise.all([late, later])).toMatchObject([{ term: 2 }, { term: 2 }]);
  });

  test("that one was seen by itself makes the others no younger", async () => {
    const { clock, reads, heads } = scened();
    heads.put([headOf(1), headOf(1, 1)], clock.monotonic());
    await clock.advance(1_500);
    heads.putOne(headOf(2), clock.monotonic());
    expect(await heads.all(2_000)).toMatchObject([{ term: 2 }, { term: 1 }]);
    const fresh = heads.all(1_000);
    expect(reads).toHaveLength(1);
    await clock.advance(1);
    reads[0]!.resolve([headOf(2), headOf(5, 1)]);
    expect(await fresh).toMatchObject([{ term: 2 }, { term: 5 }]);
  });

  test("one that was seen by itself takes no later owner's place", async () => {
    const { clock, heads } = scened();
    heads.put([headOf(3), headOf(1, 1)], clock.monotonic());
    await clock.advance(10);
    heads.putOne(headOf(2), clock.monotonic());
    expect(heads.last).toMatchObject([{ term: 3 }, { term: 1 }]);
    heads.putOne({ ...headOf(1), incarnation: "two" }, clock.monotonic());
    expect(heads.last).toMatchObject([{ incarnation: "two", term: 1 }, { term: 1 }]);
  });

  test("one that was read by itself during a read of all is kept, and the read counts for the others", async () => {
    const { clock, reads, heads } = scened();
    heads.put([headOf(1), headOf(1, 1)], clock.monotonic());
    await clock.advance(1_500);
    const asked = heads.all(0);
    await clock.advance(10);
    heads.putOne(headOf(2), clock.monotonic());
    reads[0]!.resolve([headOf(1), headOf(5, 1)]);
    expect(await asked).toMatchObject([{ term: 2 }, { term: 5 }]);
    await clock.advance(10);
    // A later look counts for all of them, also where the log was put back to an earlier state.
    heads.put([headOf(1), headOf(6, 1)], clock.monotonic());
    expect(heads.last).toMatchObject([{ term: 1 }, { term: 6 }]);
  });
});
