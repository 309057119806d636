import { beforeEach, describe, expect, test } from "vitest";
import type { Beat, SpokenLog } from "./beat.ts";
import { createRoster, type Roster } from "./roster.ts";

const spoken = (logId: number, term = 1, offset = 0): SpokenLog => ({
  logId,
  incarnation: "life",
  term,
  offset,
  recordId: `r-${term}-${offset}`,
});
const beatOf = (podId: string, count: number, logs: readonly SpokenLog[] = [spoken(0)]): Beat => ({
  clusterId: "c1",
  podId,
  host: null,
  release: "1",
  count,
  isDraining: false,
  logs,
  agents: "a".repeat(64),
  reachesStore: true,
  backlogged: [],
});

describe("a roster", () => {
  let roster: Roster;
  let count: number;
  beforeEach(() => {
    roster = createRoster("own");
    count = 0;
  });
  /** The pod hears its own beats, up to this time. */
  const listen = (fromMs: number, toMs: number): void => {
    for (let nowMs = fromMs; nowMs <= toMs; nowMs += 250) {
      roster.sent(++count, nowMs);
      roster.hear(beatOf("own", count, []), nowMs);
    }
  };
  const missing = (nowMs: number) => roster.missingSinceMs("other", nowMs);

  test("misses a pod that was silent for a second and a half", () => {
    listen(0, 0);
    roster.hear(beatOf("other", 1), 0);
    listen(250, 1_250);
    expect(missing(1_499)).toBeUndefined();
    listen(1_500, 1_750);
    expect(missing(1_750)).toBe(1_500);
    roster.hear(beatOf("other", 2), 1_800);
    expect(missing(1_800)).toBeUndefined();
    // It is as new, so that it isn't given logs at once.
    expect(roster.get("other")).toMatchObject({ heardMs: 1_800, sinceMs: 1_800 });
    roster.hear(beatOf("other", 3), 2_000);
    expect(roster.get("other")).toMatchObject({ heardMs: 2_000, sinceMs: 1_800 });
  });

  test("counts no silence while its own beats aren't heard, and anew once they are", () => {
    listen(0, 0);
    roster.hear(beatOf("other", 1), 0);
    roster.sent(++count, 5_000);
    expect(roster.isHeard(5_000)).toBe(false);
    expect(missing(5_000)).toBeUndefined();
    expect(roster.takeDoubted(5_000)).toEqual([]);
    listen(5_000, 6_250);
    expect(missing(6_400)).toBeUndefined();
    listen(6_500, 6_500);
    expect(missing(6_500)).toBe(6_500);
  });

  test("isn't told that it is heard by beats that it didn't send, or sent long ago", () => {
    roster.sent(1, 0);
    expect(roster.hear(beatOf("own", 2, []), 0)).toBe("late");
    expect(roster.hear(beatOf("own", 1, []), 701)).toBe("late");
    expect(roster.isHeard(701)).toBe(false);
    roster.sent(3, 800);
    expect(roster.hear(beatOf("own", 3, []), 900)).toBe("heard");
    expect(roster.isHeard(900)).toBe(true);
  });

  test("asks a pod with logs that missed two beats, and misses it if it is absent twice", () => {
    listen(0, 0);
    roster.hear(beatOf("other", 1), 0);
    roster.hear(beatOf("idle", 1, []), 0);
    listen(250, 750);
    expect(roster.takeDoubted(499)).toEqual([]);
    expect(roster.takeDoubted(500)).toEqual(["other"]);
    expect(roster.takeDoubted(500)).toEqual([]);
    roster.answered("other", "absent", 503);
    expect(missing(503)).toBeUndefined();
    expect(roster.takeDoubted(752)).toEqual([]);
    expect(roster.takeDoubted(753)).toEqual(["other"]);
    roster.answered("other", "absent", 756);
    expect(missing(756)).toBe(756);
    expect(roster.present(756).map(({ beat }) => beat.podId)).toEqual(["own", "idle"]);
  });

  test.each(["answered", "silent"] as const)(
    "doesn't count one absence and another across an answer: %s",
    (answer) => {
      listen(0, 0);
      roster.hear(beatOf("other", 1), 0);
      listen(250, 1_250);
      for (const [nowMs, found] of [
        [500, "absent"],
        [760, answer],
        [1_020, "absent"],
      ] as const) {
        expect(roster.takeDoubted(nowMs)).toEqual(["other"]);
        roster.answered("other", found, nowMs);
      }
      expect(missing(1_020)).toBeUndefined();
    },
  );

  test("forgets an absence that a beat has ended", () => {
    listen(0, 0);
    roster.hear(beatOf("other", 1), 0);
    listen(250, 1_250);
    roster.takeDoubted(500);
    roster.answered("other", "absent", 500);
    roster.takeDoubted(760);
    roster.hear(beatOf("other", 2), 770);
    // The answer was under way when the beat came.
    roster.answered("other", "absent", 780);
    expect(missing(1_250)).toBeUndefined();
    expect(roster.takeDoubted(1_270)).toEqual(["other"]);
    roster.answered("other", "absent", 1_270);
    expect(missing(1_270)).toBeUndefined();
  });

  test("doesn't believe an absence that it found before it was deaf", () => {
    listen(0, 0);
    roster.hear(beatOf("other", 1), 0);
    listen(250, 750);
    for (const nowMs of [500, 760]) {
      roster.takeDoubted(nowMs);
      roster.answered("other", "absent", nowMs);
    }
    expect(missing(760)).toBe(760);
    listen(60_000, 60_000);
    expect(missing(60_000)).toBeUndefined();
  });

  test("drops beats that are late or doubled, but heeds a pod whose name was used by another", () => {
    expect(roster.hear(beatOf("other", 5), 0)).toBe("heard");
    expect(roster.hear(beatOf("other", 5), 10)).toBe("late");
    expect(roster.hear(beatOf("other", 4), 20)).toBe("late");
    expect(roster.get("other")?.heardMs).toBe(0);
    expect(roster.hear(beatOf("other", 2 ** 52), 30)).toBe("heard");
    expect(roster.hear(beatOf("other", 6), 40)).toBe("heard");
    expect(roster.get("other")).toMatchObject({ heardMs: 40, sinceMs: 0 });
  });

  test("knows who speaks for a log in its highest term, and where two do in one", () => {
    roster.hear(beatOf("old", 1, [spoken(0, 4, 90)]), 0);
    roster.hear(beatOf("new", 1, [spoken(0, 5, 80), spoken(1, 2)]), 0);
    const speakers = (logId: number, life = "life") =>
      roster.speakersOf(logId, life).map(({ pod }) => pod.beat.podId);
    expect([speakers(0), speakers(1), speakers(2)]).toEqual([["new"], ["new"], []]);
    expect(speakers(0, "another life")).toEqual([]);
    roster.hear(beatOf("odd", 1, [spoken(0, 5, 81)]), 0);
    expect(speakers(0)).toEqual(["new", "odd"]);
    // What it says last counts: it has lost the log, or released it.
    roster.hear(beatOf("new", 2, []), 0);
    expect(speakers(0)).toEqual(["odd"]);
  });

  test("keeps a thousand pods at most, and forgets those that were silent for a minute", () => {
    for (let pod = 0; pod < 1_000; pod++) roster.hear(beatOf(`p${pod}`, 1, []), pod);
    expect(roster.hear(beatOf("another", 1, []), 2_000)).toBe("crowded");
    expect(roster.hear(beatOf("p7", 2, []), 2_000)).toBe("heard");
    expect(roster.hear(beatOf("another", 1, []), 60_001)).toBe("heard");
    expect(roster.get("p0")).toBeUndefined();
    expect(roster.get("p7")).toBeDefined();
  });
});
