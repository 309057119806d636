import { describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { createAssembler } from "../../protocol/assembler/assembler.ts";
import { agent } from "../agents/agent.ts";
import type { AgentOptions } from "../agents/options.ts";
import type { Command } from "../conversation/command.ts";
import { header, turn } from "../contract/journal-harness.ts";
import { aloneMs } from "./runner.ts";
import {
  createRunnerHarness,
  type RunnerHarnessOptions,
  serve,
  sse,
  events,
  replyText,
} from "../contract/turns-harness.ts";
import type { AgentContext } from "../agents/spec.ts";

/** An agent that says what the test lets it say, when it does. */
function spoken(options: AgentOptions = {}, sceneOptions: RunnerHarnessOptions = {}) {
  const clock = movableClock();
  const contexts: AgentContext[] = [];
  let say: ((text: string | null) => void) | undefined;
  const spec = agent("helper", options, async function* (context) {
    contexts.push(context);
    for (;;) {
      const text = await new Promise<string | null>((resolve) => {
        say = resolve;
      });
      if (text === null) return;
      yield text;
    }
  });
  const scene = createRunnerHarness(spec, { clock, ...sceneOptions });
  return {
    ...scene,
    clock,
    contexts,
    chunks: () => scene.live.flatMap(({ chunks }) => chunks),
    finished: () => scene.told.filter(({ type }) => type === "turn_finished"),
    /** Lets it say this, or end. */
    async say(text: string | null) {
      (await until("it waits to speak", () => say))(text);
      say = undefined;
      await clock.advance(1);
    },
    ended: () =>
      until("it ends", async () => {
        await clock.advance(0);
        return scene.runner.running().length === 0;
      }),
  };
}

describe("a pod with as many turns as it may have", () => {
  test("has others wait, names them as its own, and lets them go where it stops", async () => {
    const { begin, say, contexts, runner, sessionId, told, clock } = spoken({}, { maxTurns: 1 });
    await begin();
    await until("it has begun", () => contexts.length === 1);
    const work = { ...(await begin({ epoch: 1 })), epoch: 1 };
    const other = { ...header(sessionId), sessionId: "other", epoch: 1, work };
    runner.start(other);
    await clock.advance(0);
    expect([contexts.length, runner.waiting]).toEqual([1, 1]);
    expect(runner.running().map((each) => each.sessionId)).toEqual([sessionId, "other"]);
    const stopped = runner.stop({ waitMs: 1_000 });
    await until("what waits is let go", () => runner.waiting === 0);
    await say(null);
    await clock.advance(5_000);
    await stopped;
    expect(contexts).toHaveLength(1);
    expect(told.map(({ type }) => type)).toContain("turn_finished");
  });
});

describe("a turn under which pods were lost", () => {
  /** One that has to be alone, behind another that has begun. */
  const besideAnother = async (options: RunnerHarnessOptions = {}) => {
    const scene = spoken({}, options);
    const { begin, contexts, runner, clock } = scene;
    const work = turn({ agent: "helper" });
    runner.start({ ...header("neighbour"), epoch: 1, work });
    await until("the neighbour has begun", () => contexts.length === 1);
    await begin({ alone: "waits", lost: 2 });
    await clock.advance(10);
    const endNeighbour = async () => {
      runner.abort({ sessionId: "neighbour", epoch: 1, attempt: 1 }, { keep: false });
      await scene.say(null);
    };
    return { ...scene, endNeighbour };
  };

  test("begins once its pod makes no other, and the owner knows", async () => {
    const { say, contexts, told, runner, endNeighbour, reply, ended } = await besideAnother();
    const begun = () => told.filter(({ type }) => type === "work_begun");
    expect([contexts.length, runner.waiting, begun()]).toEqual([1, 1, []]);
    await endNeighbour();
    await until("it begins", () => contexts.length === 2);
    expect(begun()).toEqual([{ type: "work_begun", epoch: 1, attempt: 1 }]);
    await say("alone");
    await say(null);
    expect(replyText(await reply())).toBe("alone");
    await ended();
  });

  test("begins beside others that have lived for a while, and the owner knows when more may", async () => {
    const { clock, contexts, told, runner } = await besideAnother();
    const begun = () => told.filter(({ type }) => type === "work_begun");
    await clock.advance(aloneMs(1));
    await until("it begins", () => contexts.length === 2);
    const named = { type: "work_begun", epoch: 1, attempt: 1 };
    expect([begun(), runner.hasSuspect]).toEqual([[named], true]);
    await clock.advance(aloneMs(1));
    expect([begun(), runner.hasSuspect]).toEqual([[named, { ...named, beside: true }], false]);
  });

  test("has others wait until the owner has stored that they may be to blame", async () => {
    const stored = Promise.withResolvers<void>();
    const owner = async (command: Command) => {
      if (command.type === "work_begun" && command.beside) await stored.promise;
      return { lastSeq: 1, done: true };
    };
    const { clock, begin, contexts, runner } = spoken({}, { owner });
    await begin({ alone: "waits", lost: 2 });
    await until("it begins", () => contexts.length === 1);
    runner.start({ ...header("neighbour"), epoch: 1, work: turn({ agent: "helper" }) });
    await clock.advance(aloneMs(1) + 5_000);
    expect([contexts.length, runner.hasSuspect]).toEqual([1, true]);
    stored.resolve();
    await until("the neighbour begins", () => contexts.length === 2);
    expect(runner.hasSuspect).toBe(false);
  });

  test("isn't taken for alone where a task that pods died under runs on its pod", async () => {
    const { contexts, told, endNeighbour } = await besideAnother({ runsSuspectTask: () => true });
    await endNeighbour();
    await until("it begins", () => contexts.length === 2);
    expect(told).toContainEqual({ type: "work_begun", epoch: 1, attempt: 1, beside: true });
  });

  test("is alone for longer with each attempt, for a minute at most", () => {
    expect([1, 3, 4, 5, 6, 1_000].map(aloneMs)).toEqual([
      5_000, 5_000, 20_000, 60_000, 60_000, 60_000,
    ]);
  });

  test("doesn't begin where the owner answers that it is another's by now", async () => {
    const owner = ({ type }: Command) => ({ lastSeq: 1, done: type !== "work_begun" });
    const { contexts, endNeighbour, ended } = await besideAnother({ owner });
    await endNeighbour();
    await ended();
    expect(contexts).toHaveLength(1);
  });

  test("begins under an owner of an earlier release, which counts every loss", async () => {
    const owner = ({ type }: Command) => {
      if (type === "work_begun") throw new FlotillaError("unsupported", "no such command");
      return { lastSeq: 1, done: true };
    };
    const { say, contexts, endNeighbour, finished, ended } = await besideAnother({ owner });
    await endNeighbour();
    await until("it begins", () => contexts.length === 2);
    await say(null);
    await ended();
    expect(finished()).toHaveLength(1);
  });
});

describe("a turn", () => {
  test("publishes chunks live, a moment's chunks at once, and stores them in the end", async () => {
    const { begin, say, live, reply, sessionId, ended, runner, events: told } = spoken();
    await begin({ epoch: 4, attempt: 2 });
    expect(runner.running()).toEqual([{ sessionId, epoch: 4, attempt: 2 }]);
    await say("hel");
    await say("lo");
    await say(null);
    expect(replyText(await reply())).toBe("hello");
    await ended();
    const name = { sessionId, epoch: 4, attempt: 2 };
    expect(live).toEqual([
      {
        ...name,
        index: 0,
        chunks: [
          { type: "start", messageId: "answer" },
          { type: "text-start", id: "text-1" },
          { type: "text-delta", id: "text-1", delta: "hel" },
        ],
      },
      {
        ...name,
        index: 3,
        chunks: [{ type: "text-delta", id: "text-1", delta: "lo" }],
      },
      {
        ...name,
        index: 4,
        chunks: [{ type: "text-end", id: "text-1" }, { type: "finish" }],
      },
    ]);
    expect(told).toMatchObject([
      { type: "turn_started", agent: "helper" },
      { type: "turn_ended", outcome: "completed", chunks: 4, ttftMs: 0, durationMs: 2 },
    ]);
  });

  test("is started once, however often that is requested, and never again when it is over", async () => {
    const { begin, say, contexts, ended, runner, sessionId } = spoken();
    const work = await begin();
    const again = header(sessionId, { epoch: 1, lastSeq: 1, work });
    runner.start(again);
    await say("x");
    await say(null);
    await ended();
    runner.start(again);
    expect(runner.running()).toEqual([]);
    expect(contexts).toHaveLength(1);
  });

  test.each([
    ["is another pod's", { runner: "pod-2" }],
    ["has no runner", { runner: null }],
    ["still waits for more messages", { attempt: 0 }],
  ])("that %s isn't started", async (_, facts) => {
    const { begin, runner } = spoken();
    await begin(facts);
    expect(runner.running()).toEqual([]);
  });

  test("of an unknown agent fails visibly", async () => {
    const { answer } = createRunnerHarness(undefined);
    expect(await answer()).toMatchObject({ outcome: "failed", error: { code: "agent_missing" } });
  });

  test("waits for a store that is away, and can be stopped meanwhile", async () => {
    const clock = movableClock();
    let away = 3;
    const agentOf = async () => {
      if (away-- > 0) throw new FlotillaError("store_unavailable", "it is away");
      return agent("helper", () => "back");
    };
    const scene = createRunnerHarness(
      agent("helper", () => "unused"),
      { clock, agentOf },
    );
    await scene.begin({ epoch: 1 });
    await until("it is over", async () => {
      await clock.advance(1_000);
      return scene.runner.running().length === 0;
    });
    expect(replyText(await scene.reply(1))).toBe("back");
    away = Infinity;
    await scene.begin({ epoch: 2 });
    await clock.advance(100_000);
    scene.runner.abort(scene.runner.running()[0]!, { keep: true });
    expect(await scene.reply(2)).toMatchObject({ outcome: "stopped" });
  });

  test("that is stopped keeps what was streamed, closed properly, under the same epoch", async () => {
    const { begin, say, runner, reply, chunks, contexts, told, ended } = spoken();
    const { epoch, attempt } = await begin({ epoch: 3 });
    await say("half a sen");
    runner.abort({ ...runner.running()[0]!, epoch, attempt }, { keep: true });
    expect(await reply()).toMatchObject({
      outcome: "stopped",
      parts: [{ type: "text", text: "half a sen", state: "done" }],
    });
    expect(contexts[0]!.signal.aborted).toBe(true);
    expect(chunks().slice(-2)).toMatchObject([{ type: "text-end" }, { type: "abort" }]);
    expect(told.at(-1)).toMatchObject({ type: "turn_finished", epoch: 3, attempt });
    await ended();
  });

  test("that is stopped before its first chunk is stored as stopped, with nothing", async () => {
    const { begin, runner, reply, contexts } = spoken();
    await begin();
    await until("it was asked", () => contexts.length === 1);
    runner.abort(runner.running()[0]!, { keep: true });
    expect(await reply()).toMatchObject({ outcome: "stopped", parts: [] });
  });

  test("that was being stopped when its runner was lost calls no agent any more", async () => {
    const { begin, reply, contexts } = spoken();
    await begin({ stopping: true, attempt: 2 });
    expect(await reply()).toMatchObject({ outcome: "stopped", parts: [] });
    expect(contexts).toEqual([]);
  });

  test("that was replaced stores nothing and sends nothing more", async () => {
    const { begin, say, runner, finished, live, ended, contexts } = spoken();
    await begin();
    await say("old");
    const before = live.length;
    runner.abort(runner.running()[0]!, { keep: false });
    await ended();
    expect(contexts[0]!.signal.aborted).toBe(true);
    expect(finished()).toEqual([]);
    expect(live).toHaveLength(before);
  });

  test("of a higher epoch takes the place of the one before, which stores nothing", async () => {
    const { begin, say, runner, finished, ended, contexts } = spoken();
    await begin({ epoch: 1 });
    await say("old");
    await begin({ epoch: 2 });
    await until("it was asked", () => contexts.length === 2);
    expect(runner.running()).toMatchObject([{ epoch: 2 }]);
    expect(contexts[0]!.signal.aborted).toBe(true);
    await say("new");
    await say(null);
    await ended();
    expect(finished()).toMatchObject([{ epoch: 2, reply: { parts: [{ text: "new" }] } }]);
  });

  test("that is dropped before its start came isn't started any more", async () => {
    const { begin, runner, sessionId } = spoken();
    runner.abort({ sessionId, epoch: 1, attempt: 1 }, { keep: false });
    await begin({ epoch: 1 });
    expect(runner.running()).toEqual([]);
    await begin({ epoch: 1, attempt: 2 });
    expect(runner.running()).toHaveLength(1);
  });

  test("whose agent ignores its signal is left behind, and that is logged", async () => {
    const clock = movableClock();
    const spec = agent("helper", {}, () => new Promise<string>(() => {}));
    const { begin, runner, reply, logged } = createRunnerHarness(spec, { clock });
    await begin();
    await clock.advance(0);
    runner.abort(runner.running()[0]!, { keep: true });
    expect(await reply()).toMatchObject({ outcome: "stopped" });
    await until("it is over", () => runner.running().length === 0);
    await clock.advance(5_000);
    expect(logged.map(({ message }) => message).join()).toContain("abandoned");
  });

  test("is stored though its owner is away for long", async () => {
    let away = 5;
    const owner = () => {
      if (away-- > 0) throw new FlotillaError("timeout", "nobody answers");
      return { lastSeq: 2, done: true };
    };
    const { begin, say, finished, ended, runner, clock } = spoken({}, { owner });
    await begin();
    await say("x");
    await say(null);
    await until("it is told", async () => {
      await clock.advance(1_000);
      return finished().length === 6;
    });
    await ended();
    expect(runner.running()).toEqual([]);
  });

  test("whose answer can't be stored fails visibly instead", async () => {
    const owner = (command: Command) => {
      if (command.type === "turn_finished" && command.reply.outcome === "completed") {
        throw new FlotillaError("payload_too_large", "it is too large");
      }
      return { lastSeq: 2, done: true };
    };
    const { begin, say, finished, ended } = spoken({}, { owner });
    await begin();
    await say("x");
    await say(null);
    await ended();
    expect(finished().at(-1)).toMatchObject({
      reply: { outcome: "failed", parts: [], error: { code: "answer_too_large" } },
    });
  });
});

describe("an answer that is being made", () => {
  test("is shown to a later subscriber as if from its start, and goes on from there", async () => {
    const { begin, say, runner, sessionId, live } = spoken();
    await begin();
    expect(runner.snapshot(sessionId)).toBeUndefined();
    await say("one ");
    await say("two ");
    const snapshot = runner.snapshot(sessionId)!;
    expect(snapshot).toMatchObject({ index: 0, fromStart: true, nextIndex: 4 });
    await say("three");
    const later = live.filter(({ index }) => index >= snapshot.nextIndex!);
    const assembler = createAssembler({ messageId: "answer" });
    for (const chunk of [...snapshot.chunks, ...later.flatMap(({ chunks }) => chunks)]) {
      expect(assembler.push(chunk)).toEqual({});
    }
    expect(replyText(assembler.message())).toBe("one two three");
    expect(runner.snapshot("another")).toBeUndefined();
  });

  test("is kept every two seconds where there is enough of it, and only where it changed", async () => {
    const { begin, say, told, clock } = spoken();
    const kept = () => told.filter(({ type }) => type === "checkpoint");
    await begin();
    await say("short");
    await clock.advance(10_000);
    expect(kept()).toHaveLength(0);
    await say("x".repeat(2_000));
    await clock.advance(1_900);
    expect(kept()).toHaveLength(0);
    await clock.advance(100);
    expect(kept()).toHaveLength(1);
    await clock.advance(10_000);
    expect(kept()).toHaveLength(1);
    await say("y");
    await clock.advance(2_000);
    expect(kept()).toHaveLength(2);
    const last = kept()[1]!;
    if (last.type !== "checkpoint") throw new Error("not reached");
    const body = JSON.parse(last.body) as Parameters<typeof replyText>[0];
    expect(body).toMatchObject({ outcome: "cut" });
    expect(replyText(body)).toBe(`short${"x".repeat(2_000)}y`);
  });

  test("ends where its owner answers that it is another's by now", async () => {
    const owner = (command: Command) => ({ lastSeq: 1, done: command.type !== "checkpoint" });
    const { begin, say, clock, ended, finished, contexts } = spoken({}, { owner });
    await begin();
    await say("x".repeat(2_000));
    await clock.advance(2_000);
    await ended();
    expect(contexts[0]!.signal.aborted).toBe(true);
    expect(finished()).toEqual([]);
  });
});

describe("a runner that stops", () => {
  test("lets answers end for a while", async () => {
    const { begin, say, runner, finished } = spoken();
    await begin();
    await say("x");
    const stopped = runner.stop({ waitMs: 5_000 });
    await say(null);
    await stopped;
    expect(finished()).toHaveLength(1);
  });

  test("releases those that don't, and stores nothing of them", async () => {
    const { begin, say, runner, clock, told } = spoken();
    await begin({ epoch: 5 });
    await say("x");
    const stopped = runner.stop({ waitMs: 5_000 });
    await clock.advance(4_999);
    expect(told).toEqual([]);
    await clock.advance(1);
    await stopped;
    expect(told).toEqual([{ type: "turn_released", epoch: 5, attempt: 1 }]);
  });

  test("hands on at once what is started with it meanwhile", async () => {
    const { begin, runner, told, contexts } = spoken();
    await runner.stop({ waitMs: 0 });
    await begin({ epoch: 2 });
    await until("it is released", () => told.length === 1);
    expect(told).toEqual([{ type: "turn_released", epoch: 2, attempt: 1 }]);
    expect(contexts).toEqual([]);
  });
});

test("a stop closes the connection to an agent at a URL, and keeps what it sent", async () => {
  let closed = false;
  await using server = await serve((response) => {
    response.on("close", () => {
      closed = true;
    });
    response
      .writeHead(200, sse)
      .write(
        events({ type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: "half" }),
      );
  });
  const scene = createRunnerHarness(agent("helper", { url: server.url, allowPrivate: true }));
  await scene.begin();
  await until("it speaks", () => scene.live.length > 0);
  scene.runner.abort(scene.runner.running()[0]!, { keep: true });
  expect(await scene.reply()).toMatchObject({ outcome: "stopped", parts: [{ text: "half" }] });
  await until("the connection is closed", () => closed);
  await scene.runner.stop({ waitMs: 0 });
});
