import { describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { movableClock, until } from "../../base/movable-clock.contract.ts";
import { systemRandom } from "../../base/random.ts";
import { declarationOf, throttle } from "../../throttle/throttle.ts";
import { createThrottles } from "../../throttle/throttles.ts";
import { agent } from "../agents/agent.ts";
import { events, runnerScene, saying, serve, sse } from "./scene.contract.ts";

const model = throttle("model-of-turns", { pinned: 1 });
const { declared } = declarationOf(model);

describe("an agent's throttle", () => {
  test("is held while an answer streams, and others wait for it", async () => {
    const throttles = createThrottles({ clock: systemClock, random: systemRandom });
    let end: (() => void) | undefined;
    const first = runnerScene(
      agent("helper", { throttle: model }, async function* () {
        yield "a";
        await new Promise<void>((resolve) => {
          end = resolve;
        });
      }),
      { throttles },
    );
    let asked = false;
    const second = runnerScene(
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
    expect(await runnerScene(spec).answer()).toMatchObject({ parts: [{ text: "inside" }] });
  });

  test("that has no permit lets a turn be stopped", async () => {
    const throttles = createThrottles({ clock: systemClock, random: systemRandom });
    const permit = await throttles.of(declared).acquire();
    const scene = runnerScene(
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
    const throttles = createThrottles({ clock, random: systemRandom });
    const limiter = throttles.of(declared);
    const [permit, next] = [await limiter.acquire(), limiter.acquire({ priority: "interactive" })];
    const scene = runnerScene(
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

  test("learns how the agent's answers end", async () => {
    await using server = await serve((response, _, count) => {
      if (count === 1) response.writeHead(429).end();
      else if (count === 2) response.writeHead(500).end();
      else response.writeHead(200, sse).end(events(...saying("hello"), { type: "finish" }));
    });
    const throttles = createThrottles({ clock: systemClock, random: systemRandom });
    const spec = agent("helper", {
      url: server.url,
      allowPrivate: true,
      throttle: model,
      backoff: { baseMs: 1 },
    });
    const scene = runnerScene(spec, { throttles });
    expect(await scene.answer()).toMatchObject({ outcome: "completed" });
    expect(throttles.of(declared).snapshot().outcomes).toMatchObject({
      throttled: 1,
      server_error: 1,
      success: 1,
    });
    await scene.runner.stop({ waitMs: 0 });
  });
});
