import { describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { agent } from "../agents/agent.ts";
import { createRunnerHarness, replyText } from "../contract/turns-harness.ts";

const spec = agent("echo", () => "hello");

describe("an answer that begins while the store is away", () => {
  test("waits for it, and doesn't fail", async () => {
    let tries = 0;
    const scene = createRunnerHarness(spec, {
      async agentOf() {
        if (++tries < 3) throw new FlotillaError("store_unavailable", "away");
        return spec;
      },
    });
    const reply = await scene.answer();
    expect([reply.outcome, replyText(reply), tries]).toEqual(["completed", "hello", 3]);
  });

  test("can be stopped meanwhile", async () => {
    let tries = 0;
    const scene = createRunnerHarness(spec, {
      async agentOf() {
        tries++;
        throw new FlotillaError("store_unavailable", "away");
      },
    });
    const { epoch, attempt } = await scene.begin();
    await until("a second look", () => tries > 1 || undefined);
    scene.runner.abort({ sessionId: scene.sessionId, epoch, attempt }, { keep: true });
    expect(await scene.reply()).toMatchObject({ outcome: "stopped", parts: [] });
  });
});

describe("a turn whose step ends while the store is away", () => {
  test("waits for a minute, stores it once, and goes on behind it", async () => {
    const clock = movableClock();
    const calls: string[] = [];
    let awayUntilMs: number | undefined;
    const stepping = agent("helper", async function* ({ step }) {
      yield await step("search", () => {
        awayUntilMs = clock.monotonic() + 60_000;
        calls.push("search");
        return "found. ";
      });
      yield await step("order", () => {
        calls.push("order");
        return "ordered.";
      });
    });
    const scene = createRunnerHarness(stepping, {
      clock,
      owner() {
        if (awayUntilMs !== undefined && clock.monotonic() < awayUntilMs) {
          throw new FlotillaError("store_unavailable", "away");
        }
        return undefined as never;
      },
    });
    await scene.begin();
    await until("the step has ended", async () => {
      await clock.advance(1);
      return awayUntilMs;
    });
    await clock.advance(59_000);
    expect(calls).toEqual(["search"]);
    const reply = scene.reply();
    await until("the turn ends", async () => {
      await clock.advance(500);
      return scene.runner.running().length === 0;
    });
    expect([(await reply).outcome, replyText(await reply)]).toEqual([
      "completed",
      "found. ordered.",
    ]);
    expect(calls).toEqual(["search", "order"]);
  });
});
