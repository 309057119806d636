import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Clock, sleep } from "../../../base/clock.ts";
import { FlotillaError } from "../../../base/errors.ts";
import { type MovableClock, movableClock } from "../../../base/contract/movable-clock.ts";
import { uuidv7 } from "../../../base/ids.ts";
import { type Logger, silentLogger } from "../../../base/log.ts";
import { seededRandom } from "../../../base/random.ts";
import { record } from "../../contract/journal-harness.ts";
import {
  createMemoryChannels,
  type MemoryChannel,
  type MemoryChannels,
} from "../../contract/memory-channel.ts";
import type { Command } from "../../conversation/command.ts";
import type { Journal, Log } from "../journal.ts";
import { createMemoryJournal } from "../memory-journal.ts";
import { createOwner } from "../owner.ts";
import { createHeads } from "../heads.ts";
import { createOwners, type Owners, type OwnersParts } from "../ownership.ts";
import { logOf, placeLogs } from "../placement.ts";
import { type Beats, createBeats } from "./beats.ts";

const logs = 4;
const random = seededRandom(11);
const ids = uuidv7({ now: () => 1_800_000_000_000 }, random);

type Pod = {
  readonly owners: Owners;
  readonly beats: Beats;
  readonly channel: MemoryChannel;
  /** Its process ends without a word. */
  kill(): void;
  /** Its process stands still: no timer fires, nothing is read, nothing is answered. */
  pause(): void;
  resume(): void;
  /** Whether what it asks of the log is answered. */
  isAnswered: boolean;
};

describe("owners of logs that hear each other", () => {
  let clock: MovableClock;
  let journal: Journal & Required<Pick<Log, "prove">>;
  let channels: MemoryChannels;
  let pods: Map<string, Pod>;

  beforeEach(async () => {
    clock = movableClock();
    const made = createMemoryJournal({ ids });
    const prove: Log["prove"] = (at, recordId) => made.commit(at, record({ recordId }));
    journal = { ...made, prove };
    channels = createMemoryChannels({ clock });
    pods = new Map();
    await journal.create(logs);
  });
  afterEach(async () => {
    for (const { owners, beats, isAnswered } of pods.values()) {
      const stopped = isAnswered ? owners.stop() : Promise.resolve();
      await clock.advance(1_000);
      await stopped;
      beats.close();
    }
    await clock.advance(5_000);
    if (clock.timers > 0) throw new Error(`${clock.timers} timers are left`);
  });

  const start = (podId: string, parts: Partial<OwnersParts> = {}): Pod => {
    const channel = channels.connect();
    const own = pausable(clock);
    let isDead = false;
    const through =
      <Args extends unknown[], Result>(call: (...args: Args) => Promise<Result>) =>
      async (...args: Args): Promise<Result> => {
        if (isDead || !pod.isAnswered) return new Promise<never>(() => {});
        const result = await call(...args);
        await own.running();
        return isDead || !pod.isAnswered ? new Promise<never>(() => {}) : result;
      };
    const reached = {
      ...journal,
      heads: through(journal.heads),
      take: through(journal.take),
      recover: through(journal.recover),
      release: through(journal.release),
      commit: through(journal.commit),
      prove: through(journal.prove),
    };
    const shared = { clock: own.clock, ids, log: silentLogger };
    const beats = createBeats({
      ...shared,
      channel,
      journal: reached,
      clusterId: "c1",
      podId,
      release: "1",
    });
    beats.start();
    const owners = createOwners({
      ...shared,
      podId,
      host: null,
      journal: reached,
      presence: { ...beats, beat: through(beats.beat) },
      heads: createHeads({ journal: beats, clock: own.clock }),
      logs,
      pods: beats.fleet.pods,
      isGone: () => false,
      own: async (head, recovered, { onFenced, isFresh }) => ({
        owner: createOwner(head, recovered, {
          ...shared,
          journal: reached,
          random,
          facts: () => ({
            nowMs: clock.now(),
            newId: () => ids.next(),
            agent: () => undefined,
            runnerFor: () => null,
          }),
          prime: () => undefined,
          onCommitted: () => {},
          onFenced,
          isFresh,
        }),
        end: () => {},
      }),
      onEvent: () => {},
      wouldTake: async (to) => pods.get(to)?.channel.isCut === false,
      offer: (to, logIds) => pods.get(to)?.owners.poll(logIds),
      ...parts,
    });
    const pod: Pod = {
      owners,
      beats,
      channel,
      isAnswered: true,
      kill() {
        isDead = true;
        pod.isAnswered = false;
        channel.isCut = true;
        beats.close();
      },
      pause() {
        Object.assign(channel, { isDeaf: true, isStuck: true });
        own.pause();
      },
      resume() {
        Object.assign(channel, { isDeaf: false, isStuck: false });
        own.resume();
      },
    };
    pods.set(podId, pod);
    return pod;
  };
  const stored = async () => (await journal.heads()).map(({ owner }) => owner);
  const terms = async () => (await journal.heads()).map(({ term }) => term);
  const held = (...podIds: string[]) =>
    podIds.flatMap((podId) => pods.get(podId)!.owners.owned.map(({ head }) => head.logId));
  const all = [0, 1, 2, 3];
  /** Moves on until the pods serve all logs together, and says how long that took. */
  const untilServed = async (limitMs: number, ...podIds: string[]): Promise<number> => {
    const fromMs = clock.monotonic();
    while (
      held(...podIds)
        .toSorted((a, b) => a - b)
        .join() !== all.join()
    ) {
      if (clock.monotonic() - fromMs > limitMs)
        throw new Error(`${held(...podIds).join()} after ${limitMs}`);
      await clock.advance(10);
    }
    return clock.monotonic() - fromMs;
  };
  const settle = async (...podIds: string[]): Promise<void> => {
    await clock.advance(20_000);
    expect(await stored()).toEqual(placeLogs(logs, podIds.toSorted()));
  };

  test("share the logs by placement, and leave them where they are", async () => {
    start("a");
    await clock.advance(1_000);
    start("b");
    await settle("a", "b");
    const before = await terms();
    await clock.advance(60_000);
    expect(await terms()).toEqual(before);
    expect(Math.max(...before)).toBeLessThanOrEqual(2);
  });

  test.each([0, 60, 120, 180, 240])(
    "serve the logs of a pod that was killed within a second and a half (%i ms after a beat)",
    async (afterMs) => {
      start("a");
      start("b");
      start("c");
      await settle("a", "b", "c");
      await clock.advance(afterMs);
      pods.get("a")!.kill();
      expect(await untilServed(1_500, "b", "c")).toBeLessThanOrEqual(1_500);
    },
  );

  test("take the logs of a pod that was killed where they end, though it spoke of more, and say so", async () => {
    const lost: object[] = [];
    const error: Logger["error"] = (fields) => void lost.push(fields);
    const a = start("a");
    start("b", { log: { ...silentLogger, error } });
    await settle("a", "b");
    const mine = held("a");
    // Servers have lost the last messages of its logs since it has stored them.
    a.beats.listening.speakFor(() => ({
      heads: a.owners.owned.map(({ head }) => ({ ...head, offset: head.offset + 7 })),
      isDraining: false,
    }));
    await clock.advance(1_000);
    const ends = (await journal.heads()).map(({ offset }) => offset);
    a.kill();
    await untilServed(1_500, "b");
    expect(lost).toEqual(
      mine.map((log) => ({ log, from: ends[log]! + 1, through: ends[log]! + 7 })),
    );
  });

  test.each([
    [0, 0],
    [0, 150],
    [60, 150],
    [120, 150],
  ])(
    "O4: take logs of a dead pod from no other, though these had no leader for long (%i ms apart, %i ms to recover)",
    async (apartMs, recoverMs) => {
      let hasLeader = true;
      const takenFrom: (string | null)[] = [];
      const take: Log["take"] = async (seen, owner) => {
        if (!hasLeader) throw new FlotillaError("store_unavailable", "no leader");
        const taken = await journal.take(seen, owner);
        if (taken) takenFrom.push(seen.owner);
        return taken;
      };
      const recover: Log["recover"] = async (head) => {
        if (recoverMs > 0) await sleep(clock, recoverMs);
        return journal.recover(head);
      };
      const slow = { journal: { ...journal, take, recover } };
      start("a");
      start("b", slow);
      await clock.advance(apartMs);
      start("c", slow);
      await settle("a", "b", "c");
      const mine = held("a");
      takenFrom.length = 0;
      hasLeader = false;
      pods.get("a")!.kill();
      await clock.advance(6_000);
      hasLeader = true;
      await untilServed(1_500, "b", "c");
      expect(takenFrom).toEqual(mine.map(() => "a"));
    },
  );

  test("serve those of a pod that stands still within three seconds, and keep them when it wakes", async () => {
    const a = start("a");
    start("b");
    await settle("a", "b");
    a.pause();
    expect(await untilServed(3_000, "b")).toBeLessThanOrEqual(3_000);
    await clock.advance(10_000);
    const before = await terms();
    a.resume();
    await clock.advance(1_000);
    // It takes nothing from the living, and has forgotten what isn't its own any more.
    expect(await terms()).toEqual(before);
    expect(held("a")).toEqual([]);
    await settle("a", "b");
  });

  test("a paused owner that wakes answers nothing from memory, and its next record is fenced", async () => {
    const a = start("a");
    start("b");
    await settle("a", "b");
    const mine = placeLogs(logs, ["a", "b"]).indexOf("a");
    const sessionId = sessionIn(mine);
    a.owners.isFresh(sessionId);
    await clock.advance(500);
    expect(a.owners.isFresh(sessionId)).toBe(true);
    const owner = a.owners.of(sessionId)!;
    a.pause();
    await untilServed(3_000, "b");
    expect(a.owners.isFresh(sessionId)).toBe(false);
    a.resume();
    await expect(owner.submit("default", sessionId, create(sessionId))).rejects.toMatchObject({
      code: "not_owner",
    });
  });

  test("a pod that doesn't hear its own beats takes nothing, and is sure of nothing", async () => {
    start("a");
    const b = start("b");
    await settle("a", "b");
    b.channel.isDeaf = true;
    await clock.advance(1_000);
    expect(b.owners.areFresh).toBe(false);
    pods.get("a")!.kill();
    const before = await terms();
    await clock.advance(30_000);
    expect(await terms()).toEqual(before);
    b.channel.isDeaf = false;
    await untilServed(3_000, "b");
  });

  test("a pod whose beats are lost loses its logs, and doesn't fight for them", async () => {
    const a = start("a");
    start("b");
    await settle("a", "b");
    a.channel.isMute = true;
    await untilServed(3_000, "b");
    await clock.advance(2_000);
    expect(held("a")).toEqual([]);
    const before = await terms();
    await clock.advance(30_000);
    expect(await terms()).toEqual(before);
    a.channel.isMute = false;
    await settle("a", "b");
  });

  test("beats that are late and doubled move no log", async () => {
    const a = start("a");
    const b = start("b");
    await settle("a", "b");
    Object.assign(a.channel, { delayMs: 180, copies: 2 });
    Object.assign(b.channel, { delayMs: 90, copies: 3 });
    const before = await terms();
    await clock.advance(60_000);
    expect(await terms()).toEqual(before);
  });

  test("a log that is recovered for long isn't taken from the pod that does so", async () => {
    const recover: Journal["recover"] = async (head) => {
      await new Promise<void>((resolve) => clock.after(12_000, resolve));
      return journal.recover(head);
    };
    start("a", { journal: { ...journal, recover } });
    await clock.advance(1_000);
    start("b");
    await clock.advance(10_000);
    expect([await stored(), await terms()]).toEqual([
      ["a", "a", "a", "a"],
      [1, 1, 1, 1],
    ]);
    expect(held("a")).toEqual([]);
    await clock.advance(2_000);
    expect(held("a", "b").length).toBeGreaterThan(0);
  });

  test("a log isn't served before it is recovered", async () => {
    const gate = Promise.withResolvers<void>();
    const recover: Journal["recover"] = async (head) => {
      await gate.promise;
      return journal.recover(head);
    };
    const { owners } = start("a", { journal: { ...journal, recover } });
    await clock.advance(5_000);
    expect(await stored()).toEqual(["a", "a", "a", "a"]);
    expect(owners.of("s")).toBeUndefined();
    gate.resolve();
    await clock.advance(500);
    expect(owners.of("s")).toBeDefined();
  });

  describe("S7: what a pod remembers", () => {
    const sessionId = sessionIn(0);
    let a: Pod;
    beforeEach(async () => {
      a = start("a");
      await clock.advance(1_000);
    });
    const offsets = async () => (await journal.heads()).map(({ offset }) => offset);

    test("counts while the log proves that it is this pod's, which beats and reads don't", async () => {
      expect(a.owners.isFresh(sessionId)).toBe(true);
      a.isAnswered = false;
      await clock.advance(2_100);
      // Its beats are heard, and other pods would still say that the log is its own.
      expect(a.beats.listening.isHeard).toBe(true);
      expect([a.owners.isFresh(sessionId), a.owners.areFresh]).toEqual([false, false]);
    });

    test("is proven every second for as long as it is of interest", async () => {
      for (let second = 0; second < 30; second++) {
        expect(a.owners.isFresh(sessionId)).toBe(true);
        await clock.advance(1_000);
      }
      const before = await offsets();
      expect(before[0]).toBeGreaterThan(20);
      expect(Math.max(...before.slice(1))).toBeLessThan(15);
      await clock.advance(15_000);
      const idle = await offsets();
      await clock.advance(60_000);
      expect(await offsets()).toEqual(idle);
    });

    test("is proven by records, beside which nothing else is stored", async () => {
      const owner = a.owners.of(sessionId)!;
      await owner.submit("default", sessionId, create(sessionId));
      const [before] = await offsets();
      for (let nth = 1; nth <= 20; nth++) {
        await clock.advance(500);
        expect(a.owners.isFresh(sessionId)).toBe(true);
        await owner.submit("default", sessionId, append(`m${nth}`));
      }
      expect((await offsets())[0]).toBe(before! + 20);
    });

    test("is lost with a proof that meets another pod's record", async () => {
      const [head] = await journal.heads();
      a.owners.isFresh(sessionId);
      await journal.take(head!, { podId: "z", host: null, recordId: "z-1" });
      await clock.advance(1_500);
      expect(a.owners.of(sessionId)).toBeUndefined();
    });
  });

  test("a pod that leaves hands all its logs to others at once, which serve them soon", async () => {
    start("a");
    start("b");
    start("c");
    await settle("a", "b", "c");
    const a = pods.get("a")!;
    const left = a.owners.leave({ limitMs: 5_000 });
    const fromMs = clock.monotonic();
    while (held("a").length > 0) await clock.advance(5);
    expect(clock.monotonic() - fromMs).toBeLessThanOrEqual(600);
    // The others needn't wait for its next beat.
    expect(await untilServed(100, "b", "c")).toBeLessThanOrEqual(20);
    await left;
    await clock.advance(10_000);
    // It is still there, for its turns, and gets no log back.
    expect(held("a")).toEqual([]);
    expect([...pods.get("b")!.beats.fleet.pods().keys()].toSorted()).toEqual(["b", "c"]);
  });

  test("a pod that leaves and is alone keeps its logs until it stops", async () => {
    const a = start("a");
    await clock.advance(1_000);
    const left = a.owners.leave({ limitMs: 60_000 });
    await clock.advance(1_000);
    await left;
    expect(held("a")).toEqual(all);
  });

  test("a pod that leaves waits no longer than it may for pods that take nothing", async () => {
    const a = start("a", { wouldTake: async () => false });
    start("b");
    await clock.advance(1_000);
    const mine = held("a");
    expect(mine.length).toBeGreaterThan(0);
    const left = a.owners.leave({ limitMs: 5_000 });
    await clock.advance(5_100);
    await left;
    expect(held("a")).toEqual(mine);
  });
});

/** A clock of a process that can be paused. What falls due meanwhile fires when it goes on. */
function pausable(clock: Clock) {
  let isPaused = false;
  const due = new Set<() => void>();
  let waiting: (() => void)[] = [];
  return {
    clock: {
      ...clock,
      after(delayMs: number, callback: () => void) {
        const cancel = clock.after(delayMs, () => {
          if (isPaused) due.add(callback);
          else callback();
        });
        return () => {
          cancel();
          due.delete(callback);
        };
      },
    } satisfies Clock,
    pause: () => void (isPaused = true),
    resume() {
      isPaused = false;
      for (const resolve of waiting) resolve();
      waiting = [];
      // What they set anew is due later.
      const late = Array.from(due);
      due.clear();
      for (const callback of late) callback();
    },
    running: (): Promise<void> =>
      isPaused ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve(),
  };
}

/** The id of a session of this log. */
function sessionIn(logId: number): string {
  for (let nth = 0; ; nth++) if (logOf(`s${nth}`, logs) === logId) return `s${nth}`;
}

function create(sessionId: string): Command {
  const made = { sessionId, tenant: "default", agents: [], users: [], metadata: null };
  return { type: "create", ...made };
}

function append(id: string): Command {
  const said = { role: "user", author: "ann", parts: [], tokens: 1 } as const;
  return { type: "append", clientId: id, messageId: id, ...said };
}
