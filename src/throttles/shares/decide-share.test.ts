import { describe, expect, test } from "vitest";
import { between, type Random, seededRandom } from "../../base/random.ts";
import { decideShare, type OwnShare, type PodShare } from "./allocate.ts";

const me = (more: Partial<OwnShare> = {}): OwnShare => ({
  podId: "me",
  share: 0,
  inFlight: 0,
  demand: 0,
  idle: false,
  ...more,
});
const other = (podId: string, share: number, demand: number, silent = false): PodShare => ({
  podId,
  share,
  demand,
  silent,
});
const nowMs = 0;

describe("a pod", () => {
  test("takes what it needs, with spare to grow, where it is free", () => {
    expect(decideShare({ bound: 20, nowMs, me: me({ demand: 4 }), others: [] }).share).toBe(6);
  });

  test("takes only what is free, and is owed the rest", () => {
    const others = [other("b", 18, 20)];
    const decision = decideShare({ bound: 20, nowMs, me: me({ demand: 10 }), others });
    expect(decision).toEqual({ limit: 2, share: 2, owed: true });
  });

  test("gives up what others need, down to what is in flight, and grants no more meanwhile", () => {
    const others = [other("b", 0, 20)];
    const mine = me({ share: 20, inFlight: 14, demand: 30 });
    expect(decideShare({ bound: 20, nowMs, me: mine, others })).toEqual({
      limit: 10,
      share: 14,
      owed: false,
    });
  });

  test("keeps what no other pod wants, and gives it back when it is idle", () => {
    const others = [other("b", 2, 2)];
    const mine = me({ share: 10, demand: 1 });
    expect(decideShare({ bound: 20, nowMs, me: mine, others }).share).toBe(10);
    expect(decideShare({ bound: 20, nowMs, me: { ...mine, demand: 0 }, others }).share).toBe(10);
    const idle = { ...mine, demand: 0, idle: true };
    expect(decideShare({ bound: 20, nowMs, me: idle, others }).share).toBe(0);
  });

  test("lowers its share when the bound has fallen below what is held", () => {
    const others = [other("b", 10, 50)];
    const mine = me({ share: 10, inFlight: 3, demand: 50 });
    expect(decideShare({ bound: 10, nowMs, me: mine, others })).toEqual({
      limit: 5,
      share: 5,
      owed: false,
    });
  });

  test("never raises what it has by what it has in flight", () => {
    const mine = me({ share: 2, inFlight: 9, demand: 0, idle: true });
    expect(decideShare({ bound: 20, nowMs, me: mine, others: [] })).toMatchObject({ share: 2 });
  });

  test("leaves what silent pods hold alone, and doesn't wait for what they want", () => {
    const others = [other("gone", 8, 100, true), other("b", 6, 50)];
    const mine = me({ share: 3, demand: 50 });
    expect(decideShare({ bound: 20, nowMs, me: mine, others }).share).toBe(6);
  });
});

describe("pods that each change only their own share", () => {
  type Pod = { podId: string; share: number; demand: number; inFlight: number };

  /** Lets each look and write in turn; in-flight calls end between rounds. */
  const round = (bound: number, pods: Pod[], order: readonly number[], atMs: number): void => {
    for (const at of order) {
      const pod = pods[at]!;
      const others = pods
        .filter((each) => each !== pod)
        .map(({ podId, share, demand }) => other(podId, share, demand));
      const decision = decideShare({
        bound,
        nowMs: atMs,
        me: me({ ...pod, idle: pod.demand === 0 }),
        others,
      });
      pod.share = decision.share;
      pod.inFlight = Math.min(decision.limit, pod.demand);
    }
  };
  const shuffled = (count: number, random: Random) => {
    const order = Array.from({ length: count }, (_, at) => at);
    for (let at = count - 1; at > 0; at--) {
      const to = between(random, 0, at);
      [order[at], order[to]] = [order[to]!, order[at]!];
    }
    return order;
  };
  const sum = (pods: readonly Pod[]) => pods.reduce((all, { share }) => all + share, 0);

  test("never hold more than the bound while it doesn't fall, and all of it where all want it, soon", () => {
    const random = seededRandom(11);
    for (let run = 0; run < 30; run++) {
      const pods: Pod[] = Array.from({ length: between(random, 1, 32) }, (_, at) => ({
        podId: `p${at}`,
        share: 0,
        demand: between(random, 0, 30),
        inFlight: 0,
      }));
      let bound = between(random, 0, 60);
      for (let change = 0; change < 4; change++) {
        for (let looks = 0; looks < 4; looks++) {
          round(bound, pods, shuffled(pods.length, random), change * 1_000);
          expect(sum(pods)).toBeLessThanOrEqual(bound);
        }
        const wanted = pods.reduce((all, { demand }) => all + demand, 0);
        expect(sum(pods)).toBeGreaterThanOrEqual(Math.min(bound, wanted));
        expect(pods.filter(({ demand, share }) => demand === 0 && share > 0)).toEqual([]);
        for (const pod of pods)
          if (between(random, 0, 2) === 0) pod.demand = between(random, 0, 30);
        bound += between(random, 0, 20);
      }
      bound = Math.floor(bound / 2);
      for (let looks = 0; looks < 4; looks++) {
        round(bound, pods, shuffled(pods.length, random), 9_000);
      }
      expect(sum(pods)).toBeLessThanOrEqual(bound);
    }
  });

  test("with the same demand have the same, within one", () => {
    const random = seededRandom(12);
    for (const [bound, count] of [
      [20, 8],
      [200, 32],
      [200, 7],
    ] as const) {
      const pods: Pod[] = Array.from({ length: count }, (_, at) => ({
        podId: `p${at}`,
        share: 0,
        demand: 500,
        inFlight: 0,
      }));
      for (let looks = 0; looks < 5; looks++) {
        round(bound, pods, shuffled(count, random), 0);
      }
      const shares = pods.map(({ share }) => share);
      expect(sum(pods)).toBe(bound);
      expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(1);
    }
  });
});
