import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import {
  type MovableClock,
  movableClock,
  eventLoopTurns,
} from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import { headOf, record } from "../contract/journal-harness.ts";
import type { Head, Journal, Listening, Presence, Speech } from "./journal.ts";
import { createMemoryJournal, createMemoryPresence } from "./memory-journal.ts";
import { createHeads } from "./heads.ts";
import { createOwners, type Owners, type OwnersParts } from "./ownership.ts";
import type { Owner } from "./owner.ts";
import { placeLogs } from "./placement.ts";

const logs = 4;

describe("the owners of logs", () => {
  let clock: MovableClock;
  let journal: Journal;
  let presence: Presence;
  let all: Map<string, Owners>;
  /** Pods that others know of, and whether they would take a log. */
  let up: Map<string, boolean>;
  let gone: Set<string>;
  const ids = uuidv7({ now: () => 1_800_000_000_000 }, seededRandom(3));

  beforeEach(async () => {
    clock = movableClock();
    journal = createMemoryJournal({ ids });
    presence = createMemoryPresence(journal);
    all = new Map();
    up = new Map();
    gone = new Set();
    killed.clear();
    await journal.create(logs);
  });
  afterEach(async () => {
    for (const owners of all.values()) await owners.stop();
    // What was killed hangs at its next step.
    await clock.advance(1_000);
    if (clock.timers > 0) throw new Error(`${clock.timers} timers are left`);
  });

  const start = (podId: string, parts: Partial<OwnersParts> = {}): Owners => {
    up.set(podId, true);
    const owners = createOwners({
      podId,
      host: podId,
      journal,
      presence,
      heads: createHeads({ journal, clock }),
      clock,
      ids,
      log: silentLogger,
      logs,
      pods: () => new Map([...up.keys()].map((each) => [each, 60_000])),
      isGone: (host) => gone.has(host),
      own: async (head) => ({ owner: ownerOf(head), end: () => {} }),
      onEvent: () => {},
      wouldTake: async (to) => up.get(to)!,
      offer: (to, logIds) => all.get(to)?.poll(logIds),
      ...parts,
    });
    all.set(podId, owners);
    return owners;
  };
  /** Stops without a word. */
  const kill = (podId: string): void => {
    all.delete(podId);
    killed.add(podId);
  };
  const killed = new Set<string>();
  const startMortal = (podId: string): Owners => {
    const dead = () => killed.has(podId);
    const never = () => new Promise<never>(() => {});
    const mortal: Presence = {
      beat: (...asked) => (dead() ? never() : presence.beat(...asked)),
    };
    return start(podId, { presence: mortal });
  };
  const owned = async (): Promise<(string | null)[]> =>
    (await journal.heads()).map(({ owner }) => owner);
  const held = (podId: string) => all.get(podId)!.owned.map(({ head }) => head.logId);

  test("one pod takes all logs at once, and keeps them by beating", async () => {
    start("a");
    await eventLoopTurns();
    expect(held("a")).toEqual([0, 1, 2, 3]);
    await clock.advance(20_000);
    expect((await journal.heads()).map(({ term }) => term)).toEqual([1, 1, 1, 1]);
  });

  test("S7: what it remembers counts only while its beats are answered", async () => {
    let answers = true;
    const beat: Presence["beat"] = (...asked) =>
      answers ? presence.beat(...asked) : new Promise(() => {});
    const told: (() => boolean)[] = [];
    const own: OwnersParts["own"] = async (head, _recovered, { isFresh }) => {
      told.push(isFresh);
      return { owner: ownerOf(head), end: () => {} };
    };
    const a = start("a", { presence: { beat }, own });
    await eventLoopTurns();
    const toldFresh = () => told.map((isFresh) => isFresh());
    expect([a.isFresh("s"), a.areFresh]).toEqual([true, true]);
    expect(toldFresh()).toEqual([true, true, true, true]);
    answers = false;
    await clock.advance(2_600);
    expect([a.isFresh("s"), a.areFresh]).toEqual([false, false]);
    expect(toldFresh()).toEqual([false, false, false, false]);
    expect(a.of("s")).toBeDefined();
    all.delete("a");
    expect(clock.timers).toBe(0);
  });

  test("O4: two pods share the logs by placement, and don't take them from each other in turns", async () => {
    start("a");
    await eventLoopTurns();
    start("b");
    await clock.advance(30_000);
    const places = placeLogs(logs, ["a", "b"]);
    expect(await owned()).toEqual(places);
    const terms = (await journal.heads()).map(({ term }) => term);
    await clock.advance(60_000);
    expect((await journal.heads()).map(({ term }) => term)).toEqual(terms);
    expect(Math.max(...terms)).toBeLessThanOrEqual(2);
  });

  test("L2: the logs of a pod that fell silent are taken once their heads haven't moved for two seconds", async () => {
    startMortal("a");
    await eventLoopTurns();
    start("b");
    up.delete("b");
    await clock.advance(1_000);
    kill("a");
    up.delete("a");
    await clock.advance(1_400);
    expect(await owned()).toEqual(["a", "a", "a", "a"]);
    await clock.advance(4_000);
    expect(await owned()).toEqual(["b", "b", "b", "b"]);
  });

  test("those of a process that is seen to be gone are taken at once, and the taker learns whose they were", async () => {
    startMortal("a");
    await eventLoopTurns();
    kill("a");
    // Others know it for a while longer, which mustn't keep them waiting for it.
    up.set("a", false);
    gone.add("a");
    const told: (string | null)[] = [];
    const own: OwnersParts["own"] = async (head, _recovered, { gone: before }) => {
      told.push(before);
      return { owner: ownerOf(head), end: () => {} };
    };
    start("b", { own });
    await eventLoopTurns(10);
    expect(await owned()).toEqual(["b", "b", "b", "b"]);
    expect(told).toEqual(["a", "a", "a", "a"]);
  });

  test("a pod that is paused for long takes nothing from the living when it wakes", async () => {
    startMortal("a");
    await eventLoopTurns();
    start("b");
    up.delete("b");
    await clock.advance(1_000);
    // The machine stood still; the other pod's next beat is only about to come.
    clock.jump(60_000);
    kill("a");
    await clock.advance(1_500);
    expect(await owned()).toEqual(["a", "a", "a", "a"]);
  });

  test("O3: a pod that learns by a heartbeat that another has the log drops it", async () => {
    const a = start("a");
    await eventLoopTurns();
    const [head] = await journal.heads();
    await journal.take(head!, { podId: "z", host: null, recordId: "x" });
    await clock.advance(600);
    expect(held("a")).toEqual([1, 2, 3]);
    expect(a.owned).toHaveLength(3);
  });

  test("nothing is handed to a pod that doesn't confirm that it would take it", async () => {
    start("a");
    up.set("ghost", false);
    await clock.advance(30_000);
    expect(await owned()).toEqual(["a", "a", "a", "a"]);
  });

  test("O4: a pod that is gone and still known doesn't cost the others their logs", async () => {
    const wouldTake: OwnersParts["wouldTake"] = async (to) => {
      if (up.get(to)) return true;
      await new Promise<void>((resolve) => clock.after(1_000, resolve));
      return false;
    };
    // Enough that a pod has several which it would hand to one that is gone.
    journal = createMemoryJournal({ ids });
    presence = createMemoryPresence(journal);
    await journal.create(32);
    startMortal("c");
    await eventLoopTurns(20);
    kill("c");
    up.set("c", false);
    start("a", { wouldTake });
    start("b", { wouldTake });
    await clock.advance(10_000);
    const taken = await journal.heads();
    expect(new Set(taken.map(({ owner }) => owner))).toEqual(new Set(["a", "b"]));
    await clock.advance(30_000);
    expect((await journal.heads()).map(({ term }) => term)).toEqual(taken.map(({ term }) => term));
  });

  test("a pod that leaves gives its logs up, and others take them without waiting", async () => {
    start("a");
    await eventLoopTurns();
    start("b");
    await clock.advance(30_000);
    const a = all.get("a")!;
    up.delete("a");
    await a.stop();
    all.delete("a");
    await clock.advance(600);
    expect(await owned()).toEqual(["b", "b", "b", "b"]);
  });

  test("a pod that leaves offers its logs to pods that have settled, and these take them at once", async () => {
    const known = new Map([["a", 60_000]]);
    const a = start("a", { pods: () => known });
    await eventLoopTurns();
    start("b", { pods: () => known });
    known.set("b", 60_000).set("c", 1_000);
    // For the other, the pod that has just come ranks first for some of them.
    expect(placeLogs(logs, ["b", "c"])).toContain("c");
    const left = a.leave({ limitMs: 10_000 });
    known.delete("a");
    await clock.advance(600);
    await left;
    expect(await owned()).toEqual(["b", "b", "b", "b"]);
  });

  test("a pod that drains hands its logs on and takes none, unless it is the only one", async () => {
    let drains = false;
    start("a", { drains: () => drains });
    await eventLoopTurns();
    drains = true;
    up.delete("a");
    await clock.advance(30_000);
    expect(await owned()).toEqual(["a", "a", "a", "a"]);
    start("b");
    await clock.advance(30_000);
    expect(await owned()).toEqual(["b", "b", "b", "b"]);
    await clock.advance(30_000);
    expect((await journal.heads()).map(({ term }) => term)).toEqual([2, 2, 2, 2]);
    drains = false;
    up.set("a", true);
    await clock.advance(30_000);
    expect(await owned()).toEqual(placeLogs(logs, ["a", "b"]));
  });

  describe("that can't be released yet, because only their pod has what they lack,", () => {
    let isStuck: boolean;
    let stuck: readonly Head[];
    const keeping = (): Journal => ({
      ...journal,
      async release(podId, heads) {
        stuck = isStuck ? [...new Set([...stuck, ...heads])] : [];
        if (isStuck) throw new Error("there is no new stream yet");
        return journal.release(podId, heads);
      },
      kept: () => stuck,
    });
    beforeEach(() => {
      isStuck = true;
      stuck = [];
    });
    afterEach(() => {
      isStuck = false;
      stuck = [];
    });

    test("S2: are neither left to others nor taken again, and the pod hasn't drained", async () => {
      let speech: (() => Speech) | undefined;
      const listening: Listening = {
        speakFor: (source) => void (speech = source),
        speak: () => {},
        isHeard: true,
        freeSinceMs: () => undefined,
      };
      const known = new Map([["a", 60_000]]);
      const pods = () => known;
      const a = start("a", { journal: keeping(), presence: { ...presence, listening }, pods });
      await clock.advance(1_000);
      const before = await journal.heads();
      up.set("b", true);
      known.set("b", 60_000);
      await clock.advance(1_000);
      let hasLeft = false;
      const left = a.leave({ limitMs: 10_000 }).then(() => (hasLeft = true));
      await clock.advance(8_000);
      expect([hasLeft, a.owned, a.kept]).toEqual([false, [], logs]);
      expect(new Set(speech!().heads.map(({ logId }) => logId))).toEqual(new Set([0, 1, 2, 3]));
      expect((await journal.heads()).map(({ term }) => term)).toEqual(
        before.map(({ term }) => term),
      );
      [isStuck, stuck] = [false, []];
      await clock.advance(1_000);
      await left;
      expect(a.kept).toBe(0);
    });

    test("S2: are released again while their pod stops", async () => {
      const a = start("a", { journal: keeping() });
      await eventLoopTurns();
      const stopped = a.stop();
      await clock.advance(2_000);
      expect(await owned()).toEqual(["a", "a", "a", "a"]);
      isStuck = false;
      await clock.advance(500);
      await stopped;
      expect(await owned()).toEqual([null, null, null, null]);
    });

    test("hold up the end of their pod for a while, which then says what is lost", async () => {
      const errors: unknown[] = [];
      const log = { ...silentLogger, error: (fields: unknown) => void errors.push(fields) };
      const a = start("a", { journal: keeping(), log });
      await eventLoopTurns();
      const stopped = a.stop();
      await clock.advance(6_000);
      await stopped;
      expect(errors).toEqual([{ logs: [0, 1, 2, 3] }]);
    });
  });

  test("a log that is taken while its pod begins to leave is given up as well", async () => {
    const gate = Promise.withResolvers<void>();
    const take: Journal["take"] = async (...asked) => {
      const head = await journal.take(...asked);
      await gate.promise;
      return head;
    };
    const a = start("a", { journal: { ...journal, take } });
    await eventLoopTurns();
    expect((await owned()).filter((each) => each === "a")).toHaveLength(4);
    const stopped = a.stop();
    gate.resolve();
    await stopped;
    expect(await owned()).toEqual([null, null, null, null]);
  });

  test("a log that doesn't answer holds up no other, and is tried by one take at a time", async () => {
    const gate = Promise.withResolvers<void>();
    let takes = 0;
    const take: Journal["take"] = async (seen, owner) => {
      if (seen.logId === 0) {
        takes++;
        await gate.promise;
      }
      return journal.take(seen, owner);
    };
    const a = start("a", { journal: { ...journal, take } });
    await eventLoopTurns();
    expect(held("a").toSorted((one, other) => one - other)).toEqual([1, 2, 3]);
    // Another pod's log becomes free meanwhile.
    await journal.release("a", [a.owned[0]!.head]);
    await clock.advance(2_000);
    expect(held("a").toSorted((one, other) => one - other)).toEqual([1, 2, 3]);
    expect((await journal.heads()).map(({ term }) => term)).toEqual([0, 2, 1, 1]);
    expect(takes).toBe(1);
    gate.resolve();
    await eventLoopTurns();
    expect(held("a").toSorted((one, other) => one - other)).toEqual([0, 1, 2, 3]);
  });

  test("a log is released behind the last record of its owner, and not behind an earlier one", async () => {
    const own: OwnersParts["own"] = async (taken) => {
      const committed = headOf(await journal.commit(taken, record()));
      return { owner: ownerOf(committed), end: () => {} };
    };
    const a = start("a", { own });
    await eventLoopTurns();
    await a.stop();
    expect(await owned()).toEqual([null, null, null, null]);
  });

  test("O2: a take whose answer was lost is found, and made again", async () => {
    let lost = 1;
    const take: Journal["take"] = async (...asked) => {
      const head = await journal.take(...asked);
      if (lost-- > 0) throw new Error("the answer was lost");
      return head;
    };
    start("a", { journal: { ...journal, take } });
    await clock.advance(2_000);
    expect(new Set(held("a"))).toEqual(new Set([0, 1, 2, 3]));
  });
});

test("placement gives every pod its fair part, and moves little when one comes", () => {
  const pods = ["a", "b", "c"];
  const before = placeLogs(256, pods);
  const counts = pods.map((pod) => before.filter((each) => each === pod).length);
  expect(counts.toSorted((a, b) => a - b)).toEqual([85, 85, 86]);
  const after = placeLogs(256, [...pods, "d"]);
  const moved = before.filter((each, at) => each !== after[at]).length;
  expect(moved).toBeLessThan(256 * 0.5);
  expect(placeLogs(256, pods.toReversed().toSorted())).toEqual(before);
});

test("placement leaves no pod without a log while there are as many logs as pods", () => {
  for (let fleet = 0; fleet < 200; fleet++) {
    const pods = ["a", "b", "c"].map((name) => `${name}-${fleet}`);
    expect(new Set(placeLogs(4, pods))).toEqual(new Set(pods));
    expect(new Set(placeLogs(2, pods)).size).toBe(2);
  }
});

function ownerOf(head: Head): Owner {
  return {
    head,
    provenMs: -Infinity,
    prove: () => {},
    submit: () => Promise.reject(new Error("not asked here")),
    cachedHeader: () => undefined,
    stop: async () => {},
    drop: () => {},
  };
}
