import { isStepCount, streamText, tool } from "ai";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { durable, stepOf } from "../durable/index.ts";
import { textOf } from "../protocol/message.ts";
import { agent } from "../sessions/agents/agent.ts";
import { task } from "../tasks/task.ts";
import { simulatedModel } from "./simulated-model.ts";
import { testFlotilla } from "./test-flotilla.ts";

/** An agent of three model calls and two tools, with what it did outside. */
function clerk() {
  const model = simulatedModel({
    answers: [
      { text: "First the weather. ", tools: [["weather", { city: "Oslo" }]] },
      { text: "Then the seats. ", tools: [["book", { seats: 2 }]] },
      { text: "All is done." },
    ],
  });
  const effects: string[] = [];
  const doing = (name: string) =>
    tool({
      inputSchema: z.looseObject({}),
      execute: async (_input, options) => {
        effects.push(`${name} ${stepOf(options).key}`);
        return `${name} is done`;
      },
    });
  const tools = { weather: doing("weather"), book: doing("book") };
  return { model, effects, settings: { model, tools, stopWhen: isStepCount(5) } };
}

describe("a durable agent", () => {
  const crashes = Array.from({ length: 5 }, (_, at) => at + 1);

  test.each(crashes)(
    "in a turn goes on at another pod, if its own crashes after record %d of the answer",
    async (times) => {
      const { model, effects, settings } = clerk();
      const helper = agent("helper", (context) =>
        streamText({ ...durable(context, settings), prompt: "go", abortSignal: context.signal }),
      );
      await using t = await testFlotilla({ use: [helper], pods: 2 });
      const chat = await t.sessions.create(helper, { user: "ada" });
      const crash = t.crashAfter("stored", { times: times + 1 });
      const answer = await chat.ask("go");
      expect(crash.pod?.alive).toBe(false);
      expect(textOf(answer)).toBe("First the weather. Then the seats. All is done.");
      expect(answer.outcome).toBe("completed");
      // The pod that crashed has stored what it was about to learn of: nothing is done twice.
      expect([model.begun, effects.length]).toEqual([3, 2]);
      expect(new Set(effects).size).toBe(2);
      // Each call counts once: in the answer, and over the rows of its attempts.
      const used = { input: 300, output: 30, cached: 0, model: "simulated" };
      expect(answer.metadata).toMatchObject({ usage: used });
      const { turns } = await chat.turns();
      const tokens = turns.map(({ usage }) => usage?.input ?? 0);
      expect(tokens.reduce((sum, each) => sum + each, 0)).toBe(300);
    },
  );

  test("in a turn repeats the call alone that its pod died in", async () => {
    const { model, effects, settings } = clerk();
    const helper = agent("helper", (context) =>
      streamText({ ...durable(context, settings), prompt: "go", abortSignal: context.signal }),
    );
    await using t = await testFlotilla({ use: [helper], pods: 2 });
    const crash = t.crashAfter("ran");
    const chat = await t.sessions.create(helper, { user: "ada" });
    const answer = await chat.ask("go");
    expect(crash.pod?.alive).toBe(false);
    expect(textOf(answer)).toBe("First the weather. Then the seats. All is done.");
    expect(effects).toHaveLength(2);
    expect(model.begun).toBe(3);
  });

  test("in a task goes on at another pod, and gives what it would have given", async () => {
    const { model, effects, settings } = clerk();
    const errand = task(
      "errand",
      {},
      async (context) => streamText({ ...durable(context, settings), prompt: "go" }).text,
    );
    await using t = await testFlotilla({ use: [errand], pods: 2 });
    const crash = t.crashAfter("ran");
    expect(await t.run(errand, null)).toBe("All is done.");
    expect(crash.pod?.alive).toBe(false);
    expect([model.begun, effects.length]).toEqual([3, 2]);
  });
});
