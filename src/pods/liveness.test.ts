import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  afterFailedBeat,
  leaderOf,
  type Liveness,
  emptyLiveness,
  type Observation,
  observe,
  type PodSeen,
  silenceOf,
  silentPods,
} from "./liveness.ts";

const limits = { heartbeatMs: 1_000, deadAfterMs: 5_000, gapMs: 3_000 };

const pod = (podId: string, beat: number, more: Partial<PodSeen> = {}): PodSeen => ({
  podId,
  beat,
  birthMs: 0,
  status: "up",
  passes: 0,
  ...more,
});
const observed = (seen: readonly Observation[]): Liveness =>
  seen.reduce((before, each) => observe(before, each, limits), emptyLiveness);
const silentIds = (seen: readonly Observation[]) =>
  silentPods(observed(seen), limits).map((each) => each.podId);

/** One observation a second, with the beats of pod `b` as given. */
const seconds = (beats: readonly number[], startMs = 0): Observation[] =>
  beats.map((beat, at) => ({ atMs: startMs + at * 1_000, pods: [pod("b", beat)] }));

describe("a pod is silent", () => {
  test.each([
    { when: "not when it was just seen", beats: [1], silent: false },
    { when: "not before the limit", beats: [1, 1, 1, 1, 1], silent: false },
    { when: "at the limit", beats: [1, 1, 1, 1, 1, 1], silent: true },
    { when: "not when it beat in between", beats: [1, 1, 1, 2, 2, 2], silent: false },
    { when: "not any more once it beats again", beats: [1, 1, 1, 1, 1, 1, 2], silent: false },
    {
      when: "also when its beat went back and stayed there",
      beats: [9, 1, 1, 1, 1, 1, 1],
      silent: true,
    },
    { when: "not when it began anew at a lower beat", beats: [9, 9, 9, 9, 9, 1], silent: false },
  ])("$when", ({ beats, silent }) => {
    expect(silentIds(seconds(beats))).toEqual(silent ? ["b"] : []);
  });

  test("only by time that was counted: after a gap in the observer's own beats it starts anew", () => {
    const before = seconds([1, 1, 1, 1, 1]);
    expect(silentIds([...before, ...seconds([1], 7_001)])).toEqual([]);
    expect(silentIds([...before, ...seconds([1, 1, 1, 1, 1], 60_000)])).toEqual([]);
    expect(silentIds([...before, ...seconds([1, 1, 1, 1, 1, 1], 60_000)])).toEqual(["b"]);
    // Three seconds are slow, but no gap.
    expect(silentIds([...before, ...seconds([1], 7_000)])).toEqual(["b"]);
  });

  test("with the beat that it stopped at, which recovery needs", () => {
    expect(silentPods(observed(seconds([4, 4, 4, 4, 4, 4])), limits)).toMatchObject([{ beat: 4 }]);
  });

  test("also when it is marked down already, since its claims may not be recovered yet", () => {
    const seen = seconds([1, 1, 1, 1, 1, 1]).map((each) => ({
      ...each,
      pods: [pod("b", 1, { status: "down" })],
    }));
    expect(silentIds(seen)).toEqual(["b"]);
  });

  test("not from the time before it was forgotten", () => {
    const seen = seconds([1, 1, 1, 1, 1]);
    const forgotten = { atMs: 5_000, pods: [] };
    expect(silentIds([...seen, forgotten, ...seconds([1], 6_000)])).toEqual([]);
  });
});

describe("a pod whose process is known to be gone", () => {
  const gone = pod("b", 7, { gone: true });
  const lost = (beat: number, atMs: number): Observation => ({
    atMs,
    pods: [pod("b", beat, { gone: true })],
  });

  test("is silent at once, also to an observer that has just come", () => {
    expect(silentIds([{ atMs: 0, pods: [gone] }])).toEqual(["b"]);
    expect(silentIds([...seconds([5, 6]), { atMs: 2_000, pods: [gone] }])).toEqual(["b"]);
  });

  test("is silent with the beat that was seen, which recovery compares", () => {
    const [silent] = silentPods(observed([...seconds([6]), lost(7, 1_000)]), limits);
    expect(silent).toMatchObject({ beat: 7, silentMs: 0 });
  });

  test("waits for the limit after a gap of the observer: its results may be on their way", () => {
    const before = seconds([1, 2]);
    const after = (count: number) =>
      Array.from({ length: count }, (_, at) => lost(2, 60_000 + at * 1_000));
    expect(silentIds([...before, ...after(5)])).toEqual([]);
    expect(silentIds([...before, ...after(6)])).toEqual(["b"]);
    // One that dies later is known to have died while the store was there.
    const steady = seconds([3, 4, 5, 6, 7, 8], 60_000);
    expect(silentIds([...before, ...steady, lost(8, 66_000)])).toEqual(["b"]);
  });

  test("waits for the limit after a beat of the observer that failed, however short the outage", () => {
    const failed = afterFailedBeat(observed(seconds([1, 2])));
    let liveness = observe(failed, lost(2, 2_000), limits);
    expect(silentPods(liveness, limits)).toEqual([]);
    for (let second = 3; second <= 6; second++) {
      liveness = observe(liveness, lost(2, second * 1_000), limits);
    }
    expect(silentPods(liveness, limits)).toMatchObject([{ podId: "b" }]);
  });

  test("is still silent when its last beat lands late, but not when it goes on beating", () => {
    const late = [...seconds([1]), lost(1, 1_000), lost(2, 2_000)];
    expect(silentIds(late)).toEqual(["b"]);
    expect(silentIds([...late, lost(2, 3_000)])).toEqual(["b"]);
    const mistaken = [...late, lost(3, 3_000)];
    expect(silentIds(mistaken)).toEqual([]);
    const still = (count: number) =>
      Array.from({ length: count }, (_, at) => lost(3, 4e3 + at * 1e3));
    expect(silentIds([...mistaken, ...still(4)])).toEqual([]);
    expect(silentIds([...mistaken, ...still(5)])).toEqual(["b"]);
  });

  test("doesn't lead: the next one does with the same beat", () => {
    const pods = [pod("a", 1, { gone: true }), pod("b", 1, { birthMs: 1 })];
    const seen = observed([{ atMs: 0, pods }]);
    expect(leaderOf(seen, limits, "b")).toBe("b");
    expect(silenceOf("a", emptyLiveness, seen)).toBe(0);
  });
});

describe("a pod whose connection has ended", () => {
  type Sight = { beat: number; id?: number; isOpen?: boolean };
  /** One observation a second on the observer's connection 1, with pod `b` as given. */
  const watched = (sights: readonly Sight[], { own = [1], startMs = 0, everyMs = 1_000 } = {}) =>
    sights.map(({ beat, id = 7, isOpen = false }, at): Observation => {
      const connection = { id, isOpen };
      const connectionId = own[Math.min(at, own.length - 1)];
      return { atMs: startMs + at * everyMs, pods: [pod("b", beat, { connection })], connectionId };
    });
  const open = (beat: number, id = 7): Sight => ({ beat, id, isOpen: true });
  const ended = (beat: number, id = 7): Sight => ({ beat, id });

  test.each([
    { when: "not when that is seen first", sights: [open(1), ended(1)], silent: false },
    { when: "not a heartbeat later", sights: [open(1), ended(1), ended(1)], silent: false },
    { when: "two heartbeats later", sights: [open(1), ended(1), ended(1), ended(1)], silent: true },
    {
      when: "two heartbeats later though it beat before it died",
      sights: [open(1), ended(2), ended(2), ended(2)],
      silent: true,
    },
    {
      when: "not if it beats again, on another connection",
      sights: [open(1), ended(1), ended(1), open(2, 8), open(2, 8)],
      silent: false,
    },
    {
      when: "not if it beats again, on one that has ended as well",
      sights: [open(1), ended(1), ended(1), ended(2, 8), ended(2, 8), ended(2, 8)],
      silent: false,
    },
    {
      when: "not if a beat that it sent on that connection landed late",
      sights: [open(1), ended(1), ended(1), ended(2)],
      silent: false,
    },
    {
      when: "not if the connection was never seen open: another server may have it",
      sights: [ended(1), ended(1), ended(1), ended(1)],
      silent: false,
    },
    {
      when: "not if its number belongs to another connection by then",
      sights: [open(1), ended(1), open(1), ended(1), ended(1)],
      silent: false,
    },
    { when: "not while it is open", sights: [open(1), open(1), open(1), open(1)], silent: false },
  ])("is silent: $when", ({ sights, silent }) => {
    expect(silentIds(watched(sights))).toEqual(silent ? ["b"] : []);
  });

  test("isn't silent where the observer's connection ended too: the server did", () => {
    const sights = [open(1), ended(1), ended(1), ended(1), ended(1)];
    expect(silentIds(watched(sights, { own: [1, 2] }))).toEqual([]);
    expect(silentIds(watched(sights, { own: [] }))).toEqual([]);
    expect(silentIds(watched(sights))).toEqual(["b"]);
  });

  test("isn't silent by one late beat of the observer, nor over a gap", () => {
    const sights = [open(1), ended(1), ended(1)];
    expect(silentIds(watched(sights, { everyMs: 2_400 }))).toEqual([]);
    const again = watched([ended(1), ended(1), ended(1)], { startMs: 60_000 });
    expect(silentIds([...watched(sights), ...again])).toEqual([]);
  });

  test("doesn't lead once it is silent", () => {
    const other = (beat: number) => pod("c", beat, { birthMs: 1, passes: beat });
    const seen = watched([open(1), ended(1), ended(1), ended(1)]).map((each, at) => ({
      ...each,
      pods: [...each.pods, other(at)],
    }));
    expect(leaderOf(observed(seen.slice(0, 3)), limits, "c")).toBe("b");
    expect(leaderOf(observed(seen), limits, "c")).toBe("c");
  });
});

/** Any history: how long between the observer's beats, and whether each pod moved or was missing. */
const histories = fc.array(
  fc.record({
    afterMs: fc.oneof(fc.integer({ min: 1, max: 3_000 }), fc.integer({ min: 3_001, max: 60_000 })),
    b: fc.constantFrom("beats", "is still", "is still", "is still", "is gone"),
    c: fc.constantFrom("beats", "is still", "is still"),
  }),
  { minLength: 1, maxLength: 40 },
);

type Step = { afterMs: number; b: string; c: string };

function play(steps: readonly Step[], { birthMs = 0, startMs = 0 } = {}): Observation[] {
  let atMs = startMs;
  const beats = { b: 0, c: 0 };
  return steps.map((step) => {
    atMs += step.afterMs;
    if (step.b === "beats") beats.b++;
    if (step.c === "beats") beats.c++;
    const b = step.b === "is gone" ? [] : [pod("b", beats.b, { birthMs })];
    return { atMs, pods: [...b, pod("c", beats.c, { birthMs: birthMs + 1 })] };
  });
}

/** The same question answered by looking back from the end. */
function countedSilence(history: readonly Observation[], podId: string): number {
  const beatAt = (at: number) => history[at]!.pods.find((each) => each.podId === podId)?.beat;
  let silentMs = 0;
  for (let at = history.length - 1; at > 0; at--) {
    const elapsedMs = history[at]!.atMs - history[at - 1]!.atMs;
    const still = beatAt(at) !== undefined && beatAt(at) === beatAt(at - 1);
    if (!still || elapsedMs > limits.gapMs) break;
    silentMs += elapsedMs;
  }
  return silentMs;
}

describe("in any history", () => {
  test("silence is counted time since the last change, and nothing else", () => {
    fc.assert(
      fc.property(histories, (steps) => {
        const history = play(steps);
        const silent = history
          .at(-1)!
          .pods.filter((each) => countedSilence(history, each.podId) >= limits.deadAfterMs);
        expect(silentIds(history)).toEqual(silent.map((each) => each.podId));
      }),
      { numRuns: 1_000 },
    );
  });

  test("a pod that beats between all of ours is never silent, however slow we are", () => {
    fc.assert(
      fc.property(histories, (steps) => {
        const lively = play(steps.map((step) => ({ ...step, c: "beats" })));
        expect(silentIds(lively)).not.toContain("c");
      }),
    );
  });

  test("the clocks of others, and where ours began, change nothing", () => {
    fc.assert(
      fc.property(histories, fc.integer(), fc.nat(1e9), (steps, birthMs, startMs) => {
        expect(silentIds(play(steps, { birthMs, startMs }))).toEqual(silentIds(play(steps)));
      }),
    );
  });

  test("two observers agree after both have watched a still pod for the limit", () => {
    const offset = fc.integer({ min: 1, max: 2_999 });
    fc.assert(
      fc.property(histories, offset, (steps, offsetMs) => {
        const first = play(steps);
        const startMs = first.at(-1)!.atMs;
        const still = Array.from({ length: 8 }, () => ({
          afterMs: 1_000,
          b: "is still",
          c: "is still",
        }));
        const ends = [0, offsetMs].map((shiftMs) =>
          silentIds([...first, ...play(still, { startMs: startMs + shiftMs })]),
        );
        expect(ends[0]).toEqual(ends[1]);
        expect(ends[0]).toEqual(["b", "c"]);
      }),
    );
  });
});

describe("the leader", () => {
  const leading = (pods: readonly PodSeen[], self = "z") =>
    leaderOf(observed([{ atMs: 0, pods }]), limits, self);

  test("is the oldest pod, by birth and then by id", () => {
    expect(leading([pod("b", 1, { birthMs: 2 }), pod("a", 1, { birthMs: 3 })])).toBe("b");
    expect(leading([pod("b", 1), pod("a", 1)])).toBe("a");
    expect(leading([])).toBeUndefined();
  });

  test("isn't one that has left", () => {
    expect(leading([pod("a", 1, { status: "down" }), pod("b", 1, { birthMs: 5 })])).toBe("b");
  });

  /** `a` is older than `b`; every second both are seen as given. */
  const watched = (
    look: (second: number) => { a: Partial<PodSeen>; b: Partial<PodSeen> },
    count: number,
  ) =>
    observed(
      Array.from({ length: count }, (_, second) => {
        const { a, b } = look(second);
        return { atMs: second * 1_000, pods: [pod("a", 1, a), pod("b", 1, { birthMs: 1, ...b })] };
      }),
    );

  test("isn't one that has fallen silent", () => {
    const look = (second: number) => ({ a: {}, b: { beat: second, passes: second } });
    expect(leaderOf(watched(look, 5), limits, "b")).toBe("a");
    expect(leaderOf(watched(look, 6), limits, "b")).toBe("b");
  });

  test("isn't one whose heartbeat has stopped though it still finishes passes", () => {
    const look = (second: number) => ({
      a: { passes: second },
      b: { beat: second, passes: second },
    });
    expect(leaderOf(watched(look, 5), limits, "b")).toBe("a");
    expect(leaderOf(watched(look, 6), limits, "b")).toBe("b");
  });

  test("isn't one whose heartbeat goes on but which has finished no pass lately", () => {
    const look = (second: number) => ({ a: { beat: second }, b: { beat: second } });
    expect(leaderOf(watched(look, 5), limits, "b")).toBe("a");
    expect(leaderOf(watched(look, 6), limits, "b")).toBe("b");
    const working = (second: number) => ({
      a: { beat: second, passes: second },
      b: { beat: second },
    });
    expect(leaderOf(watched(working, 60), limits, "b")).toBe("a");
  });

  test("is the same for every pod that sees the same beats, but each also trusts itself", () => {
    const idle = (second: number) => ({ a: { beat: second }, b: { beat: second } });
    const seen = watched(idle, 10);
    // Both try, which is safe; the first pass that is finished settles it.
    expect(leaderOf(seen, limits, "a")).toBe("a");
    expect(leaderOf(seen, limits, "b")).toBe("b");
    const settled = observe(
      seen,
      {
        atMs: 10_000,
        pods: [pod("a", 10, { passes: 1 }), pod("b", 10, { birthMs: 1, passes: 1 })],
      },
      limits,
    );
    expect(["a", "b", "z"].map((self) => leaderOf(settled, limits, self))).toEqual(["a", "a", "a"]);
  });

  test("is always one that is up and not silent", () => {
    fc.assert(
      fc.property(histories, fc.constantFrom("b", "c", "z"), (steps, self) => {
        const history = play(steps);
        const leader = leaderOf(observed(history), limits, self);
        const silent = silentIds(history);
        expect(leader === undefined || !silent.includes(leader)).toBe(true);
        expect(history.at(-1)!.pods.map((each) => each.podId)).toEqual(
          expect.arrayContaining(leader === undefined ? [] : [leader]),
        );
        // A pod that looks for a leader finds at least itself.
        expect(
          leader !== undefined || silent.includes(self) || self === "z" || !hasPod(history, self),
        ).toBe(true);
      }),
    );
  });
});

describe("how long a leader had been silent when another was seen to lead", () => {
  const seen = (atMs: number, ...pods: PodSeen[]): Observation => ({ atMs, pods });
  const told = (before: Observation[], last: Observation) =>
    silenceOf("b", observed(before), observed([...before, last]));

  test("is the time since its beat last moved", () => {
    expect(told(seconds([1, 2, 2, 2, 2, 2, 2]), seen(7_000, pod("b", 2)))).toBe(6_000);
  });

  test("counts to the read at which it was gone or down", () => {
    expect(told(seconds([1, 2, 2]), seen(3_000))).toBe(2_000);
    expect(told(seconds([1, 2]), seen(2_000, pod("b", 3, { status: "down" })))).toBe(1_000);
  });

  test("is nothing where it still beats, so that nothing had to be noticed", () => {
    expect(told(seconds([1, 2]), seen(2_000, pod("b", 3)))).toBeUndefined();
    expect(told([seen(0)], seen(1_000))).toBeUndefined();
  });
});

function hasPod(history: readonly Observation[], podId: string): boolean {
  return history.at(-1)!.pods.some((each) => each.podId === podId);
}
