import {
  convertToModelMessages,
  generateText,
  isStepCount,
  streamText,
  tool,
  type UIMessage as SdkMessage,
} from "ai";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { durable, stepOf } from "../durable/index.ts";
import { textOf } from "../protocol/message.ts";
import { flow } from "../flows/flow.ts";
import { agent } from "../sessions/agents/agent.ts";
import { task } from "../tasks/task.ts";
import { throttle } from "../throttles/throttle.ts";
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

  test.each(crashes)(
    "in a turn goes on where it is, if the pod that owns its session crashes in record %d of the answer",
    async (times) => {
      const { model, effects, settings } = clerk();
      const helper = agent("helper", (context) =>
        streamText({ ...durable(context, settings), prompt: "go", abortSignal: context.signal }),
      );
      // One log, which the first pod has taken when the pod with the agent comes.
      await using t = await testFlotilla({ use: [], sessions: { logs: 1 } });
      const [owner] = t.pods;
      await t.sessions.create(null);
      await t.startPod({ use: [helper] });
      // Its heartbeats tell the first one of it.
      await t.advance(5_000);
      const chat = await t.sessions.create(helper, { user: "ada" });
      const crash = t.crashAfter("stored", { times: times + 1 });
      await chat.send("go");
      // The agent goes on while its pod waits for another owner, by the clock.
      await t.advance(60_000);
      expect(crash.pod).toBe(owner);
      const answer = (await chat.entries()).entries.at(-1)!;
      expect(textOf(answer)).toBe("First the weather. Then the seats. All is done.");
      expect(answer.outcome).toBe("completed");
      expect([model.begun, effects.length]).toEqual([3, 2]);
      const { turns } = await chat.turns();
      expect(turns.map(({ attempt }) => attempt)).toEqual([1]);
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

  test("in a turn goes on with what the call had said that its pod died in", async () => {
    const words = Array.from({ length: 200 }, (_, at) => `word ${at}. `).join("");
    const model = simulatedModel({
      answers: ({ nth, soFar }) => ({ text: soFar === undefined ? words : `attempt ${nth}.` }),
      wordMs: 100,
      clock: { after: (delayMs, callback) => t.clock.after(delayMs, callback) },
    });
    const runs: string[] = [];
    const helper = agent("helper", (context) => {
      const running = t.pods.findIndex(({ alive }) => alive);
      runs.push(`${context.attempt} ${running}`);
      return streamText({
        ...durable(context, { model }),
        prompt: "go",
        abortSignal: context.signal,
      });
    });
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.send("go");
    await t.until(() => model.begun === 1);
    await t.advance(5_000);
    t.crash(t.pods[0]!);
    await t.startPod();
    await t.until(async () => (await chat.messages()).length === 2);
    const [, answer] = await chat.messages();
    const text = textOf(answer!);
    expect(text.endsWith("attempt 2.")).toBe(true);
    const kept = text.slice(0, -"attempt 2.".length);
    expect(words.startsWith(kept)).toBe(true);
    // Five seconds of ten words, and the last is not kept.
    expect(kept.split(" ").length).toBeGreaterThan(35);
    expect(answer!.parts.filter(({ type }) => type === "text")).toHaveLength(1);
    expect(runs).toEqual(["1 0", "2 1"]);
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

  describe("with a throttle", () => {
    const api = throttle("durable-api", { pinned: 1 });
    /** How many permits are out while the model speaks, and while tools run. */
    function watched() {
      const inCalls: number[] = [];
      const inTools: number[] = [];
      const { model, settings } = clerk();
      const { doStream } = model;
      model.doStream = async (options) => {
        inCalls.push(api.snapshot().inFlight);
        return doStream(options);
      };
      const look = tool({
        inputSchema: z.looseObject({}),
        execute: async () => {
          inTools.push(api.snapshot().inFlight);
          return "looked";
        },
      });
      return { inCalls, inTools, settings: { ...settings, tools: { weather: look, book: look } } };
    }

    test("of its agent holds a permit for each call, and none while tools run", async () => {
      const { inCalls, inTools, settings } = watched();
      const helper = agent("helper", { throttle: api }, (context) =>
        streamText({ ...durable(context, settings), prompt: "go", abortSignal: context.signal }),
      );
      await using t = await testFlotilla({ use: [helper] });
      const chat = await t.sessions.create(helper, { user: "ada" });
      expect((await chat.ask("go")).outcome).toBe("completed");
      expect(inCalls).toEqual([1, 1, 1]);
      expect(inTools).toEqual([0, 0]);
    });

    test("of its task holds a permit for each call, and none while tools run", async () => {
      const { inCalls, inTools, settings } = watched();
      const errand = task(
        "errand",
        { throttle: api },
        async (context) => streamText({ ...durable(context, settings), prompt: "go" }).text,
      );
      await using t = await testFlotilla({ use: [errand] });
      expect(await t.run(errand, null)).toBe("All is done.");
      expect(inCalls).toEqual([1, 1, 1]);
      expect(inTools).toEqual([0, 0]);
    });
  });

  test("spends no more than its agent's budget, whichever pods have spent it", async () => {
    const offered: boolean[] = [];
    const model = simulatedModel({
      answers({ hasTools, toolResults }) {
        offered.push(hasTools);
        return { text: `${toolResults} `, ...(hasTools && { tools: [["weather", {}]] }) };
      },
    });
    const { settings, effects } = clerk();
    // Each call takes 100 tokens in and 10 out, which are 0.11 by these prices.
    const prices = { simulated: { input: 1_000, output: 1_000 } };
    const helper = agent("helper", { budget: { cost: 0.2 } }, (context) => {
      const bounded = durable(context, { ...settings, model });
      return streamText({ ...bounded, prompt: "go", abortSignal: context.signal });
    });
    await using t = await testFlotilla({ use: [helper], pods: 2, prices });
    const crash = t.crashAfter("stored", { times: 4 });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const answer = await chat.ask("go");
    expect(crash.pod?.alive).toBe(false);
    expect(textOf(answer)).toBe("0 1 2 ");
    expect(answer.metadata).toMatchObject({ usage: { cost: 0.33 } });
    // The third call is made without tools, because the budget is spent.
    expect(offered).toEqual([true, true, false]);
    expect(effects).toHaveLength(2);
  });

  const ways = ["returns the stream", "makes its own chunks", "throws"] as const;
  test.each(ways)("says in its entry that its budget is spent, if it %s", async (way) => {
    const model = simulatedModel({
      answers: ({ nth }) => ({ text: `${nth} `, tools: [["weather", {}]] }),
    });
    const { settings } = clerk();
    const helper = agent("helper", (context) => {
      const options = { budget: { calls: 2 }, onSpent: "stop" } as const;
      const call = { ...durable(context, { ...settings, model }, options), prompt: "go" };
      if (way === "throws") return generateText(call).then(({ text }) => text);
      const result = streamText({ ...call, onError: () => {} });
      return way === "returns the stream" ? result : result.toUIMessageStream();
    });
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    expect(await chat.ask("go")).toMatchObject({
      outcome: way === "throws" ? "failed" : "cut",
      error: { code: "budget_spent", message: "the budget is spent: 2 of 2 calls" },
    });
    expect(model.begun).toBe(2);
  });

  test("says in its entry that it has stored as many steps as it may", async () => {
    const { model } = clerk();
    const helper = agent("helper", async (context) => {
      await context.step.forEach(
        "fill",
        Array.from({ length: 1_000 }, (_, at) => at),
        { key: String, atOnce: 1_000 },
        () => null,
      );
      return streamText({ ...durable(context, { model }), prompt: "go", onError: () => {} });
    });
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const answer = await chat.ask("go");
    expect(answer.error).toMatchObject({
      code: "steps_full",
      message: expect.stringContaining("1000 steps"),
    });
    expect(model.begun).toBe(0);
  });

  test("in a transition of a flow goes on behind its last stored call, and its steps go with it", async () => {
    const { model, effects, settings } = clerk();
    let failed = false;
    const errand = flow("errand", { version: 1, backoff: { baseMs: 1 } })
      .to("ask", async (context) => {
        const text = await streamText({ ...durable(context, settings), prompt: "go" }).text;
        if (!failed) {
          failed = true;
          throw new Error("once");
        }
        return { text };
      })
      .end();
    await using t = await testFlotilla({ use: [errand], pods: 2 });
    const run = await t.runs.start(errand, null);
    expect(await t.runs.wait(run)).toEqual({ text: "All is done." });
    expect([model.begun, effects.length]).toEqual([3, 2]);
    expect(effects[0]).toContain(`${run.runId}/ask/`);
    expect(await t.tasks.steps(run.runId)).toEqual([]);
  });
});

describe("a stored file in the messages of a durable agent", () => {
  const photo = Buffer.from("the bytes of a photo");
  const looking = () => {
    const seen: unknown[] = [];
    const model = simulatedModel({
      answers: ({ prompt }) => {
        seen.push(...prompt.flatMap(({ content }) => content as { type: string }[]));
        return { text: "I see it" };
      },
    });
    const files = () =>
      seen.filter((part): part is { data: unknown } => (part as { type: string }).type === "file");
    return { model, files };
  };

  test("is bytes for its model, in calls that stream and in a step, and a reference in the log", async () => {
    const { model, files } = looking();
    const seer = agent("seer", async (context) => {
      const messages = await convertToModelMessages(context.messages as unknown as SdkMessage[]);
      await context.step(
        "look",
        async (within) => (await generateText({ ...durable(within, { model }), messages })).text,
      );
      return streamText({ ...durable(context, { model }), messages });
    });
    await using t = await testFlotilla({ use: [seer] });
    const chat = await t.sessions.create(seer, { user: "ada" });
    const part = await chat.upload(photo, { filename: "a.png", mediaType: "image/png" });
    const answer = await chat.ask([{ type: "text", text: "what is it?" }, part]);
    expect([answer.outcome, textOf(answer)]).toEqual(["completed", "I see it"]);
    expect(files()).toMatchObject([
      { data: photo, mediaType: "image/png" },
      { data: photo, mediaType: "image/png" },
    ]);
    const { entries } = await chat.entries();
    expect(entries[0]!.parts[1]).toEqual(part);
  });

  test("that isn't of its session fails the call", async () => {
    const { model, files } = looking();
    const seer = agent("seer", async (context) => {
      const data = new URL(`flotilla-file:${"0".repeat(64)}`);
      const content = [{ type: "file" as const, data, mediaType: "image/png" }];
      const messages = [{ role: "user" as const, content }];
      const asked = generateText({ ...durable(context, { model }), messages, maxRetries: 0 });
      await expect(asked).rejects.toThrow("the session has no file");
      return (await asked).text;
    });
    await using t = await testFlotilla({ use: [seer] });
    const answer = await (await t.sessions.create(seer, { user: "ada" })).ask("look");
    expect(answer).toMatchObject({ outcome: "failed" });
    expect(files()).toEqual([]);
  });
});
