import { describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { until } from "../../base/contract/movable-clock.ts";
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
