import { isStepCount, streamText, tool } from "ai";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { durable } from "../../durable/index.ts";
import { simulatedModel } from "../../testing/simulated-model.ts";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { systemRandom } from "../../base/random.ts";
import { declarationOf, throttle } from "../../throttles/throttle.ts";
import { createThrottleRegistry } from "../../throttles/registry.ts";
import { agent } from "../agents/agent.ts";
import type { CommandResult, Command } from "../conversation/command.ts";
import { events, createRunnerHarness, saying, serve, sse } from "../contract/turns-harness.ts";

const model = throttle("model-of-turns", { pinned: 1 });
const { declared } = declarationOf(model);

describe("an agent's throttle", () => {
  test("is held while an answer streams, and others wait for it", async () => {
    const throttles = createThrottleRegistry({ clock: systemClock, random: systemRandom });
    let end: (() => void) | undefined;
    const first = createRunnerHarness(
      agent("helper", { throttle: model }, async function* () {
        yield "a";
        await new Promise<void>((resolve) => {
          end = resolve;
        });
      }),
      { throttles },
    );
    let asked = false;
    const second = createRunnerHarness(
      agent("helper", { throttle: model }, () => {
        asked = true;
        return "b";
      }),
      { throttles },
    );
    await first.begin();
    await until("it speaks", () => end && first.live.length > 0);
    await second.begin();
    await until("it waits", () => throttles.of(declared).snapshot().waiting === 1);
    expect(asked).toBe(false);
    expect(throttles.of(declared).snapshot().inFlight).toBe(1);
    end!();
    expect(await second.reply()).toMatchObject({ outcome: "completed" });
    await until("all is given back", () => throttles.of(declared).snapshot().inFlight === 0);
  });

  test("counts the agent's own calls under the same permit", async () => {
    const spec = agent("helper", { throttle: model }, async () => model.run(() => "inside"));
    expect(await createRunnerHarness(spec).answer()).toMatchObject({ parts: [{ text: "inside" }] });
  });

  test("isn't held while tools run of a durable answer, though no call was made before", async () => {
    const clock = movableClock();
    const throttles = createThrottleRegistry({ clock, random: systemRandom });
    const limiter = throttles.of(declared);
    const inFlight: number[] = [];
    let isLost = true;
    const look = tool({
      inputSchema: z.looseObject({}),
      execute: async () => {
        inFlight.push(limiter.snapshot().inFlight);
        if (isLost) await new Promise(() => {});
        return "looked";
      },
    });
    const answers = [{ tools: [["look", {}]] as const }, { text: "All is done." }];
    const said = simulatedModel({ answers });
    const scene = createRunnerHarness(
      agent("helper", { throttle: model }, (context) =>
        streamText({
          ...durable(context, { model: said, tools: { look }, stopWhen: isStepCount(3) }),
          prompt: "go",
          abortSignal: context.signal,
        }),
      ),
      { throttles, clock },
    );
    await scene.begin();
    await until("the tool runs", () => inFlight.length === 1);
    isLost = false;
    await scene.begin({ epoch: 1, attempt: 2, hasSteps: true });
    await until("it runs again", () => inFlight.length === 2);
    expect(inFlight).toEqual([0, 0]);
    await until("the answer", async () => {
      await clock.advance(100);
      return scene.told.find(({ type }) => type === "turn_finished");
    });
    expect(await scene.reply()).toMatchObject({ outcome: "completed" });
    expect(said.begun).toBe(2);
    expect(limiter.snapshot().inFlight).toBe(0);
  });

  test("that has no permit lets a turn be stopped", async () => {
    const throttles = createThrottleRegistry({ clock: systemClock, random: systemRandom });
    const permit = await throttles.of(declared).acquire();
    const scene = createRunnerHarness(
      agent("helper", { throttle: model }, () => "never"),
      { throttles },
    );
    await scene.begin();
    await until("it waits", () => throttles.of(declared).snapshot().waiting === 1);
    scene.runner.abort(scene.runner.running()[0]!, { keep: true });
    expect(await scene.reply()).toMatchObject({ outcome: "stopped", parts: [] });
    permit.release("success");
  });

  test("that has no permit is waited for visibly, and nothing of that is in the answer", async () => {
    const clock = movableClock();
    const throttles = createThrottleRegistry({ clock, random: systemRandom });
    const limiter = throttles.of(declared);
    const [permit, next] = [await limiter.acquire(), limiter.acquire({ priority: "interactive" })];
    const scene = createRunnerHarness(
      agent("helper", { throttle: model }, () => "said"),
      { throttles, clock },
    );
    await scene.begin();
    await until("it waits", () => limiter.snapshot().waiting === 2);
    const saying = () => scene.live.flatMap(({ chunks }) => chunks.map((each) => each["data"]));
    expect(scene.live).toEqual([]);
    await clock.advance(1_000);
    expect(saying()).toEqual([{ ahead: 1 }]);
    expect(scene.runner.snapshot(scene.sessionId)).toMatchObject({
      fromStart: true,
      nextIndex: 1,
      chunks: [{ type: "data-waiting", transient: true, data: { ahead: 1 } }],
    });
    // Where nothing has changed, nothing is said.
    await clock.advance(5_000);
    expect(saying()).toEqual([{ ahead: 1 }]);
    permit.release("ignored");
    await clock.advance(2_000);
    expect(saying()).toEqual([{ ahead: 1 }, { ahead: 0 }]);
    (await next).release("ignored");
    await clock.advance(2_000);
    expect(await scene.reply()).toMatchObject({
      outcome: "completed",
      parts: [{ type: "text", text: "said" }],
    });
    const chunks = scene.live.flatMap((each) => each.chunks);
    expect(chunks.slice(0, 4)).toMatchObject([
      { type: "data-waiting", data: { ahead: 1 } },
      { type: "data-waiting", data: { ahead: 0 } },
      { type: "data-waiting", data: null },
      { type: "start" },
    ]);
    let sent = 0;
    for (const { index, chunks: some } of scene.live) {
      expect(index).toBe(sent);
      sent += some.length;
    }
  });

  test("that has no permit is waited for with an estimate where calls have ended", async () => {
    const clock = movableClock();
    const throttles = createThrottleRegistry({ clock, random: systemRandom });
    const limiter = throttles.of(declared);
    const ended = await limiter.acquire();
    await clock.advance(400);
    ended.release("success");
    const permit = await limiter.acquire();
    void limiter.acquire({ priority: "interactive" });
    const spec = agent("helper", { throttle: model }, () => "said");
    const scene = createRunnerHarness(spec, { throttles, clock });
    await scene.begin();
    await until("it waits", () => limiter.snapshot().waiting === 2);
    await clock.advance(250);
    expect(scene.live.flatMap(({ chunks }) => chunks)).toMatchObject([
      { type: "data-waiting", data: { ahead: 1, aboutMs: 800 } },
    ]);
    scene.runner.abort(scene.runner.running()[0]!, { keep: false });
    permit.release("ignored");
  });

  describe("that has no permit", () => {
    /** A turn whose agent's throttle has no permit before `give`. */
    const waitingTurn = async (
      owner?: (command: Command) => CommandResult | Promise<CommandResult>,
    ) => {
      const clock = movableClock();
      const throttles = createThrottleRegistry({ clock, random: systemRandom });
      const permit = await throttles.of(declared).acquire();
      const spec = agent("helper", { throttle: model }, () => "said");
      const scene = createRunnerHarness(spec, { throttles, clock, ...(owner && { owner }) });
      await scene.begin();
      await until("it waits", () => throttles.of(declared).snapshot().waiting === 1);
      const counts = () =>
        scene.told.flatMap((each) => (each.type === "turn_waiting" ? each.count : []));
      const give = () => permit.release("ignored");
      return { ...scene, clock, counts, give };
    };

    test("its wait is submitted to the owner as the wait begins and as it ends, before the answer's end", async () => {
      const { told, clock, counts, give, reply } = await waitingTurn();
      await clock.advance(249);
      expect(told).toEqual([]);
      await clock.advance(1);
      expect(told).toEqual([{ type: "turn_waiting", epoch: 1, attempt: 1, count: 1 }]);
      await clock.advance(5_000);
      expect(counts()).toEqual([1]);
      give();
      expect(await reply()).toMatchObject({ outcome: "completed" });
      expect(told.map(({ type }) => type)).toEqual([
        "turn_waiting",
        "turn_waiting",
        "turn_finished",
      ]);
      expect(counts()).toEqual([1, 2]);
    });

    test("its wait isn't submitted where it is short", async () => {
      const { told, clock, give, reply } = await waitingTurn();
      await clock.advance(200);
      give();
      await reply();
      await clock.advance(1_000);
      expect(told.map(({ type }) => type)).toEqual(["turn_finished"]);
    });

    test("holds nothing up where the owner doesn't answer, or doesn't know of waits", async () => {
      const silent = await waitingTurn(({ type }) =>
        type === "turn_waiting" ? new Promise(() => {}) : { lastSeq: 2, done: true },
      );
      const earlier = await waitingTurn(({ type }) => {
        if (type === "turn_waiting") throw new FlotillaError("unsupported", "no such command");
        return { lastSeq: 2, done: true };
      });
      for (const { clock, counts, give, reply } of [silent, earlier]) {
        await clock.advance(5_000);
        expect(counts()).toEqual([1]);
        give();
        expect(await reply()).toMatchObject({ outcome: "completed" });
        expect(counts()).toEqual([1, 2]);
      }
    });

    test("its wait is submitted again while the owner is away, and no more once it is over", async () => {
      const { clock, counts, give, reply } = await waitingTurn(({ type }) => {
        if (type === "turn_waiting") throw new FlotillaError("unavailable", "no owner");
        return { lastSeq: 2, done: true };
      });
      await clock.advance(3_000);
      const begun = counts();
      expect(begun.length).toBeGreaterThan(1);
      expect(new Set(begun)).toEqual(new Set([1]));
      give();
      await reply();
      await clock.advance(10_000);
      expect(counts().slice(begun.length)).toEqual([2]);
    });

    test("the end of its wait isn't submitted after a stop, which ends it by itself", async () => {
      const { runner, clock, counts, reply } = await waitingTurn();
      await clock.advance(250);
      runner.abort(runner.running()[0]!, { keep: true });
      expect(await reply()).toMatchObject({ outcome: "stopped", parts: [] });
      expect(counts()).toEqual([1]);
    });

    test("ends the turn where the owner answers that it is another's", async () => {
      const {
        runner,
        clock,
        told,
        events: seen,
        give,
      } = await waitingTurn(({ type }) => ({
        lastSeq: 1,
        done: type !== "turn_waiting",
      }));
      await clock.advance(250);
      await until("it has ended", () => runner.running().length === 0);
      give();
      expect(seen.at(-1)).toMatchObject({ type: "turn_ended", outcome: "dropped" });
      expect(told.map(({ type }) => type)).toEqual(["turn_waiting"]);
    });
  });

  test("learns how the agent's answers end", async () => {
    await using server = await serve((response, _, count) => {
      if (count === 1) response.writeHead(429).end();
      else if (count === 2) response.writeHead(500).end();
      else response.writeHead(200, sse).end(events(...saying("hello"), { type: "finish" }));
    });
    const throttles = createThrottleRegistry({ clock: systemClock, random: systemRandom });
    const spec = agent("helper", {
      url: server.url,
      allowPrivate: true,
      throttle: model,
      backoff: { baseMs: 1 },
    });
    const scene = createRunnerHarness(spec, { throttles });
    expect(await scene.answer()).toMatchObject({ outcome: "completed" });
    expect(throttles.of(declared).snapshot().outcomes).toMatchObject({
      throttled: 1,
      server_error: 1,
      success: 1,
    });
    await scene.runner.stop({ waitMs: 0 });
  });
});
