import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../../base/log.ts";
import {
  type MovableClock,
  movableClock,
  eventLoopTurns,
} from "../../base/contract/movable-clock.ts";
import type { Command, Reply } from "../conversation/command.ts";
import type { Header, Turn } from "../conversation/header.ts";
import { createTurnMonitor, type TurnMonitor } from "./turn-monitor.ts";

const turn: Turn = {
  type: "turn",
  epoch: 1,
  attempt: 1,
  lost: 0,
  agent: "echo",
  runner: "pod-2",
  upToSeq: 1,
  trigger: "submit",
  messageId: "m",
  replaces: null,
  stopping: false,
};
const headerOf = (work: Turn | null) =>
  ({ sessionId: "s", tenant: "default", work }) as unknown as Header;
const soFar: Reply = { outcome: "cut", parts: [{ type: "text", text: "so far" }], tokens: 2 };

describe("a turn monitor", () => {
  let clock: MovableClock;
  let monitor: TurnMonitor;
  let asked: Command[];
  let started: string[];

  beforeEach(() => {
    clock = movableClock();
    asked = [];
    started = [];
    monitor = createTurnMonitor({
      silent: { podId: "fell silent", sinceMs: clock.monotonic() - 2_500 },
      clock,
      log: silentLogger,
      start: (runner) => started.push(runner),
      abort: () => {},
      submit: async (_, command) => asked.push(command),
      checkpoint: async () => soFar,
      debounceMs: () => 500,
      isGone: (podId) => podId === "ended",
    });
  });
  afterEach(() => monitor.close());
  const name = { sessionId: "s", epoch: 1, attempt: 1 };

  test("leaves no timer behind once it is closed", () => {
    monitor.watch(headerOf(turn));
    monitor.watch({ ...headerOf({ ...turn, attempt: 0, runner: null }), sessionId: "t" });
    expect(clock.timers).toBe(2);
    monitor.close();
    expect(clock.timers).toBe(0);
  });

  test("sets no timer for a record that is committed after it was closed", () => {
    monitor.close();
    monitor.watch({ ...headerOf({ ...turn, attempt: 0, runner: null }), sessionId: "t" });
    expect(clock.timers).toBe(0);
  });

  test("asks no more about a turn that another has followed while its answer was on its way", async () => {
    const answers: ((error: Error) => void)[] = [];
    const asking = createTurnMonitor({
      silent: undefined,
      clock,
      log: silentLogger,
      start: () => {},
      abort: () => {},
      submit: () => new Promise((_, reject) => answers.push(reject)),
      checkpoint: async () => soFar,
      debounceMs: () => 500,
      isGone: () => false,
    });
    asking.watch(headerOf({ ...turn, attempt: 0, runner: null }));
    await clock.advance(500);
    expect(answers).toHaveLength(1);
    asking.watch(headerOf(null));
    const before = clock.timers;
    answers[0]!(new Error("the log is away"));
    await eventLoopTurns();
    expect(clock.timers).toBe(before);
    asking.close();
    expect(clock.timers).toBe(0);
  });

  test("W1: starts a runner until it names the turn, and gives up on one that falls silent", async () => {
    monitor.watch(headerOf(turn));
    await clock.advance(2_600);
    expect(started).toEqual(["pod-2", "pod-2", "pod-2"]);
    monitor.confirm([name]);
    await clock.advance(4_500);
    expect([started.length, asked]).toEqual([3, []]);
    await clock.advance(1_000);
    expect(asked).toEqual([{ type: "work_lost", epoch: 1, attempt: 1, checkpoint: soFar }]);
  });

  test("doesn't wait for a runner whose process is known to have ended", async () => {
    monitor.watch(headerOf({ ...turn, runner: "ended" }));
    await clock.advance(0);
    expect(asked).toEqual([{ type: "work_lost", epoch: 1, attempt: 1, checkpoint: soFar }]);
    expect(started).toEqual([]);
  });

  test("waits less for a runner on the pod that the log was taken from, which was silent before", async () => {
    monitor.watch(headerOf({ ...turn, runner: "fell silent" }));
    monitor.watch({ ...headerOf(turn), sessionId: "t" });
    await clock.advance(2_250);
    expect(asked).toEqual([]);
    await clock.advance(250);
    expect(asked).toEqual([{ type: "work_lost", epoch: 1, attempt: 1, checkpoint: soFar }]);
    await clock.advance(2_250);
    expect(asked).toHaveLength(1);
  });

  test("goes on with a runner on that pod once it names the turn", async () => {
    monitor.watch(headerOf({ ...turn, runner: "fell silent" }));
    await clock.advance(2_000);
    monitor.confirm([name]);
    await clock.advance(4_750);
    expect(asked).toEqual([]);
  });

  test("calls no runner lost because the process itself has stood still", async () => {
    monitor.watch(headerOf(turn));
    monitor.confirm([name]);
    clock.jump(60_000);
    await clock.advance(4_000);
    expect(asked).toEqual([]);
    await clock.advance(2_000);
    expect(asked).toMatchObject([{ type: "work_lost" }]);
  });

  test("a turn that was being stopped when its runner left ends with what is kept of it", async () => {
    monitor.watch(headerOf({ ...turn, stopping: true }));
    monitor.watch(headerOf({ ...turn, stopping: true, attempt: 2, runner: null }));
    await clock.advance(1_500);
    expect(asked).toEqual([{ type: "work_lost", epoch: 1, attempt: 2, checkpoint: soFar }]);
  });

  test("each turn may wait for a pod that can make it, however long the one before it has waited", async () => {
    monitor.watch(headerOf({ ...turn, runner: null }));
    await clock.advance(59_000);
    expect(asked.every(({ type }) => type === "work_lost")).toBe(true);
    monitor.watch(headerOf({ ...turn, epoch: 2, runner: null }));
    asked = [];
    await clock.advance(30_000);
    expect(asked.every(({ type }) => type === "work_lost")).toBe(true);
    await clock.advance(40_000);
    expect(asked).toContainEqual(expect.objectContaining({ type: "turn_finished", epoch: 2 }));
  });

  test("W1: isn't misled by what an earlier attempt reports of itself", async () => {
    monitor.watch(headerOf({ ...turn, attempt: 2 }));
    for (let at = 0; at < 6; at++) {
      await clock.advance(1_000);
      monitor.confirm([name]);
    }
    expect(asked).toMatchObject([{ type: "work_lost", attempt: 2 }]);
  });

  test("ends a stop that its runner doesn't answer in five seconds, though it still names the turn", async () => {
    monitor.watch(headerOf(turn));
    monitor.watch(headerOf({ ...turn, stopping: true }));
    for (let at = 0; at < 6; at++) {
      await clock.advance(1_000);
      monitor.confirm([name]);
    }
    expect(asked).toEqual([{ type: "stop_expired", epoch: 1, checkpoint: soFar }]);
  });

  test("starts what was debounced once no more messages come", async () => {
    monitor.watch(headerOf({ ...turn, attempt: 0, runner: null, upToSeq: 1 }));
    await clock.advance(400);
    monitor.watch(headerOf({ ...turn, attempt: 0, runner: null, upToSeq: 2 }));
    monitor.perform("s", { type: "debounce", epoch: 1, upToSeq: 2 });
    await clock.advance(400);
    expect(asked).toEqual([]);
    await clock.advance(200);
    expect(asked).toEqual([{ type: "debounced", epoch: 1, upToSeq: 2 }]);
  });

  test("a debounce that couldn't be stored is submitted again", async () => {
    let failing = true;
    const patient = createTurnMonitor({
      clock,
      log: silentLogger,
      start: () => {},
      abort: () => {},
      async submit(_, command) {
        asked.push(command);
        if (failing) throw new Error("the store is away");
      },
      checkpoint: async () => undefined,
      debounceMs: () => 500,
      isGone: (podId) => podId === "ended",
    });
    patient.watch(headerOf({ ...turn, attempt: 0, runner: null }));
    await clock.advance(600);
    failing = false;
    await eventLoopTurns();
    await clock.advance(2_000);
    expect(asked).toEqual(
      Array.from({ length: 2 }, () => ({ type: "debounced", epoch: 1, upToSeq: 1 })),
    );
    patient.close();
  });
});
