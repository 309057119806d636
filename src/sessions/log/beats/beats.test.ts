import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  eventLoopTurns,
  type MovableClock,
  movableClock,
} from "../../../base/contract/movable-clock.ts";
import { uuidv7 } from "../../../base/ids.ts";
import { type Logger, silentLogger } from "../../../base/log.ts";
import { seededRandom } from "../../../base/random.ts";
import { take } from "../../contract/journal-harness.ts";
import {
  createMemoryChannels,
  type MemoryChannel,
  type MemoryChannels,
  presenceOfPods,
} from "../../contract/memory-channel.ts";
import { presenceContract } from "../../contract/presence.ts";
import type { AgentFacts } from "../../conversation/command.ts";
import type { Head, Journal } from "../journal.ts";
import { createMemoryJournal } from "../memory-journal.ts";
import { placeLogs } from "../placement.ts";
import { type Beat, encodeBeat } from "./beat.ts";
import { type Beats, type BeatsParts, createBeats } from "./beats.ts";

const clusterId = "c1";
const ids = uuidv7({ now: () => 1_800_000_000_000 }, seededRandom(5));

presenceContract({
  name: "by beats over a memory channel",
  async open() {
    const clock = movableClock();
    const journal = createMemoryJournal({ ids });
    const channels = createMemoryChannels({ clock });
    const presence = presenceOfPods((podId) => {
      const channel = channels.connect();
      const parts = { clock, log: silentLogger, clusterId, release: "1" };
      const beats = createBeats({ ...parts, channel, journal, podId });
      beats.start();
      return beats;
    });
    return { log: journal, presence, close: async () => presence.close() };
  },
});

describe("beats", () => {
  let clock: MovableClock;
  let journal: Journal;
  let channels: MemoryChannels;
  let reads: number;
  let warnings: object[];
  let started: Beats[];
  const logs = 2;
  const facts: AgentFacts = { during: "queue", attempts: 3, compaction: null };

  beforeEach(async () => {
    clock = movableClock();
    journal = createMemoryJournal({ ids });
    channels = createMemoryChannels({ clock });
    reads = 0;
    warnings = [];
    started = [];
    await journal.create(logs);
  });
  afterEach(async () => {
    for (const beats of started) beats.close();
    await clock.advance(1_000);
    if (clock.timers > 0) throw new Error(`${clock.timers} timers are left`);
  });

  const start = (
    podId: string | undefined,
    parts: Partial<BeatsParts> = {},
  ): { beats: Beats; channel: MemoryChannel } => {
    const channel = channels.connect();
    const warn: Logger["warn"] = (fields) => void warnings.push(fields);
    const heads = () => (reads++, journal.heads());
    const own = { channel, journal: { heads }, log: { ...silentLogger, warn } };
    const beats = createBeats({ clock, clusterId, podId, release: "1", ...own, ...parts });
    beats.start();
    started.push(beats);
    return { beats, channel };
  };
  /** A pod that has these logs. */
  const startOwner = async (
    podId: string,
    logIds: readonly number[],
    parts: Partial<BeatsParts> = {},
  ) => {
    const pod = start(podId, parts);
    const heads: Head[] = [];
    for (const logId of logIds) heads.push(await take(journal, logId, podId));
    const has = { heads };
    pod.beats.listening.speakFor(() => ({ heads: has.heads, isDraining: false }));
    await pod.beats.beat(podId, heads);
    return { ...pod, has };
  };
  const publish = (changes: Partial<Beat>): void => {
    channels.connect().publish(
      encodeBeat({
        clusterId,
        podId: "stranger",
        host: null,
        release: "1",
        count: 1,
        isDraining: false,
        logs: [],
        agents: "0".repeat(64),
        reachesStore: true,
        backlogged: [],
        ...changes,
      }),
    );
  };
  const owners = async (beats: Beats) => (await beats.heads()).map(({ owner }) => owner);

  test("come four times a second, and say what their pod has by then", async () => {
    const { has } = await startOwner("a", [0]);
    const watching = start(undefined).beats;
    await clock.advance(250);
    const counts = () => watching.present().map(({ count }) => count);
    const [before] = counts();
    await clock.advance(2_000);
    expect(counts()).toEqual([before! + 8]);
    const [head] = has.heads;
    has.heads = [{ ...head!, offset: head!.offset + 5, recordId: "later" }];
    await clock.advance(250);
    expect((await watching.heads())[0]).toMatchObject({ owner: "a", offset: 6, recordId: "later" });
  });

  test("tell of large backlogs, which the pod that is next to take the log stands by for", async () => {
    let backlogged: readonly number[] = [];
    const { has } = await startOwner("a", [0, 1], { backlogged: () => backlogged });
    const others = ["b", "c", "d"].map((podId) => ({ podId, beats: start(podId).beats }));
    for (const { podId, beats } of others) await beats.beat(podId, []);
    await clock.advance(500);
    const standing = () =>
      others.flatMap(({ podId, beats }) =>
        beats.standbyFor().map(({ logId, offset, owner }) => ({ podId, logId, offset, owner })),
      );
    expect(standing()).toEqual([]);
    backlogged = [1];
    await clock.advance(500);
    const next = placeLogs(logs, ["b", "c", "d"])[1];
    const { offset } = has.heads[1]!;
    expect(standing()).toEqual([{ podId: next, logId: 1, offset, owner: "a" }]);
    expect(start(undefined).beats.standbyFor()).toEqual([]);
  });

  test("spare a read of logs that pods speak for", async () => {
    const { beats } = await startOwner("a", [0, 1]);
    const watching = start(undefined).beats;
    await clock.advance(250);
    await watching.heads();
    reads = 0;
    await clock.advance(5_000);
    expect(await owners(watching)).toEqual(["a", "a"]);
    expect(await owners(beats)).toEqual(["a", "a"]);
    expect(reads).toBe(0);
  });

  test("leave what no pod speaks for to a read", async () => {
    await startOwner("a", [0]);
    const watching = start(undefined).beats;
    await clock.advance(250);
    expect(await owners(watching)).toEqual(["a", null]);
    await take(journal, 1, "silent");
    expect(await owners(watching)).toEqual(["a", "silent"]);
  });

  test("show at once that a log was released", async () => {
    const { beats, has } = await startOwner("a", [0, 1]);
    const watching = start(undefined).beats;
    await clock.advance(250);
    await watching.heads();
    const [first, second] = has.heads;
    has.heads = [second!];
    await journal.release("a", [first!]);
    beats.listening.speak();
    await eventLoopTurns();
    expect(await owners(watching)).toEqual([null, "a"]);
  });

  test("tell a pod that another has its log, which it then learns by a read", async () => {
    const a = await startOwner("a", [0, 1]);
    const b = await startOwner("b", [0]);
    expect(await b.beats.beat("b", b.has.heads)).toMatchObject({ owned: [0] });
    expect(await a.beats.beat("a", a.has.heads)).toMatchObject({ owned: [1] });
    expect(await owners(a.beats)).toEqual(["b", "a"]);
  });

  test("of a stranger take no log from its owner", async () => {
    const a = await startOwner("a", [0]);
    const [head] = await journal.heads();
    publish({ logs: [{ ...head!, term: head!.term + 1, offset: 9_999 }] });
    await eventLoopTurns();
    expect(await a.beats.beat("a", a.has.heads)).toMatchObject({ owned: [0] });
  });

  test("whose terms leap aren't believed", async () => {
    await startOwner("a", [0]);
    const watching = start(undefined).beats;
    await clock.advance(250);
    await watching.heads();
    const [head] = await journal.heads();
    publish({ logs: [{ ...head!, term: 1_000_000 }] });
    await eventLoopTurns();
    expect(await owners(watching)).toEqual(["a", null]);
  });

  test("of two pods that speak for one term lead to a read", async () => {
    await startOwner("a", [0]);
    const watching = start(undefined).beats;
    await clock.advance(250);
    await watching.heads();
    const [head] = await journal.heads();
    publish({ logs: [{ ...head!, offset: head!.offset + 7 }] });
    await eventLoopTurns();
    expect(await owners(watching)).toEqual(["a", null]);
  });

  test("that fall in term change nothing", async () => {
    const a = await startOwner("a", [0]);
    const b = await startOwner("b", [0]);
    await a.beats.beat("a", a.has.heads);
    const watching = start(undefined).beats;
    await clock.advance(250);
    // It was paused, and doesn't know yet.
    publish({ podId: "old", logs: [{ ...a.has.heads[0]!, offset: 1_000 }] });
    await eventLoopTurns();
    expect((await watching.heads())[0]).toMatchObject({ owner: "b", term: 2 });
    expect(await b.beats.beat("b", b.has.heads)).toMatchObject({ owned: [0] });
  });

  test("that are none, or another deployment's, are dropped, and a warning says so now and then", async () => {
    const { beats } = await startOwner("a", [0]);
    for (const bytes of ["", "{}", "nonsense", "x".repeat(300_000)]) {
      channels.connect().publish(Buffer.from(bytes));
    }
    const [head] = await journal.heads();
    publish({ clusterId: "c2", podId: "theirs", logs: [{ ...head!, term: 2 }] });
    await eventLoopTurns();
    expect(beats.present().map(({ podId }) => podId)).toEqual(["a"]);
    expect(await owners(beats)).toEqual(["a", null]);
    expect(warnings).toHaveLength(1);
    await clock.advance(10_000);
    publish({ clusterId: "c2", count: 2 });
    await eventLoopTurns();
    expect(warnings).toEqual([expect.anything(), { beats: 5, why: "of another deployment" }]);
  });

  test("that are late or doubled count once", async () => {
    const { channel } = await startOwner("a", [0]);
    const watching = start(undefined).beats;
    Object.assign(channel, { copies: 3, delayMs: 40 });
    await clock.advance(1_000);
    const [before] = watching.present();
    await clock.advance(1_000);
    expect(watching.present()[0]!.count).toBe(before!.count + 4);
    expect(watching.listening.freeSinceMs((await watching.heads())[0]!)).toBeUndefined();
  });

  test("free the log of a pod that falls silent after a second and a half", async () => {
    const a = await startOwner("a", [0]);
    const { beats } = start("b");
    await clock.advance(1_000);
    const [head] = await beats.heads();
    // It is there and sends no beats, so no question finds it absent.
    a.channel.isMute = true;
    await clock.advance(1_400);
    expect(beats.listening.freeSinceMs(head!)).toBeUndefined();
    await clock.advance(350);
    expect(clock.monotonic() - beats.listening.freeSinceMs(head!)!).toBeLessThan(251);
  });

  test("free the log of a pod that is gone after two missed ones and two questions", async () => {
    const a = await startOwner("a", [0]);
    const { beats } = start("b");
    await clock.advance(1_000);
    const [head] = await beats.heads();
    a.channel.isCut = true;
    await clock.advance(500);
    expect(beats.listening.freeSinceMs(head!)).toBeUndefined();
    await clock.advance(625);
    expect(beats.listening.freeSinceMs(head!)).toBeDefined();
    expect([...beats.fleet.pods().keys()]).toEqual(["b"]);
  });

  test("free no log while a pod doesn't hear its own", async () => {
    await startOwner("a", [0]);
    const b = start("b");
    await clock.advance(1_000);
    const [head] = await b.beats.heads();
    b.channel.isDeaf = true;
    await clock.advance(30_000);
    expect(b.beats.listening.isHeard).toBe(false);
    expect(b.beats.listening.freeSinceMs(head!)).toBeUndefined();
    b.channel.isDeaf = false;
    await clock.advance(1_000);
    expect(b.beats.listening.isHeard).toBe(true);
    expect(b.beats.listening.freeSinceMs(head!)).toBeUndefined();
  });

  test("free no log while they arrive, though nothing else does", async () => {
    const a = await startOwner("a", [0]);
    const { beats } = start("b");
    a.channel.isStuck = true;
    await clock.advance(30_000);
    const [head] = await beats.heads();
    expect(beats.listening.freeSinceMs(head!)).toBeUndefined();
    expect(head!.owner).toBe("a");
  });

  test("free a log that its owner is there for and doesn't speak for", async () => {
    const a = await startOwner("a", [0]);
    const { beats } = start("b");
    await clock.advance(1_000);
    const [head] = await beats.heads();
    expect(head!.owner).toBe("a");
    a.has.heads = [];
    await clock.advance(1_500);
    expect(beats.listening.freeSinceMs(head!)).toBeUndefined();
    await clock.advance(500);
    expect(beats.listening.freeSinceMs(head!)).toBeDefined();
  });

  test("don't read the wall clock", async () => {
    const now = () => {
      throw new Error("the wall clock was read");
    };
    const { beats } = start("a", { clock: { ...clock, now } });
    start("b", { clock: { ...clock, now } });
    await clock.advance(5_000);
    expect(beats.fleet.pods().size).toBe(2);
  });

  describe("as a fleet", () => {
    test("know the pods, their agents, and which of them drain", async () => {
      const a = start("a", { agents: { writer: facts, reader: facts } });
      start("b", { agents: { reader: facts } });
      await clock.advance(1_000);
      const { fleet } = start("c").beats;
      await clock.advance(500);
      expect([...fleet.pods().keys()].toSorted()).toEqual(["a", "b", "c"]);
      expect([fleet.withAgent("writer"), fleet.withAgent("reader")]).toEqual([["a"], ["a", "b"]]);
      a.beats.listening.speakFor(() => ({ heads: [], isDraining: true }));
      await clock.advance(250);
      expect([...fleet.pods().keys()].toSorted()).toEqual(["b", "c"]);
      expect([fleet.withAgent("writer"), fleet.withAgent("reader")]).toEqual([[], ["b"]]);
      expect(fleet.factsOf("writer")).toEqual(facts);
      expect(fleet.factsOf("toString")).toBeUndefined();
    });

    test("ask once for the agents of pods that have the same", async () => {
      const agents = { reader: facts };
      const some = [start("a", { agents }), start("b", { agents })];
      await clock.advance(1_000);
      const asked = () => some.reduce((sum, { channel }) => sum + channel.questions, 0);
      const before = asked();
      const { beats } = start("c");
      await clock.advance(5_000);
      expect(beats.fleet.withAgent("reader")).toHaveLength(2);
      expect(asked() - before).toBe(1);
    });

    test("ask again for agents that weren't told, and keep none with another hash", async () => {
      const agents = { reader: facts };
      const a = start("a", { agents });
      a.channel.isStuck = true;
      const { beats } = start("b");
      await clock.advance(2_500);
      expect(beats.fleet.withAgent("reader")).toEqual([]);
      a.channel.isStuck = false;
      await clock.advance(2_000);
      expect(beats.fleet.withAgent("reader")).toEqual(["a"]);
      channels.connect().serve("stranger", () => Buffer.from(JSON.stringify({ writer: facts })));
      publish({});
      await clock.advance(100);
      expect(beats.fleet.factsOf("writer")).toBeUndefined();
    });
  });
});
