import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generateText, isStepCount, streamText, tool } from "ai";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import * as six from "../../node_modules/ai-sdk-react-3/node_modules/ai/dist/index.mjs";
import { movableClock } from "../base/contract/movable-clock.ts";
import { simulatedModel } from "./simulated-model.ts";

const adding = tool({
  inputSchema: z.object({ a: z.number(), b: z.number() }),
  execute: async ({ a, b }) => a + b,
});
const answers = [{ tools: [["add", { a: 1, b: 2 }] as const] }, { text: "it is three" }];

describe("a simulated model", () => {
  test.each([
    [6, six.generateText as unknown as typeof generateText],
    [7, generateText],
  ])("answers by how often tools have answered, to the AI SDK %d", async (_release, generate) => {
    const model = simulatedModel({ answers });
    const result = await generate({
      model,
      tools: { add: adding },
      stopWhen: isStepCount(5),
      prompt: "add",
    });
    expect(result.text).toBe("it is three");
    expect(result.steps[0]!.toolResults[0]).toMatchObject({ output: 3 });
    expect([model.begun, model.ended]).toEqual([2, 2]);
  });

  test("says its words on the test's clock, and stops when it is told to", async () => {
    const clock = movableClock();
    const model = simulatedModel({
      answers: [{ text: "one two three" }],
      firstWordMs: 500,
      wordMs: 100,
      clock,
    });
    const words: string[] = [];
    const stop = new AbortController();
    const { textStream } = streamText({ model, prompt: "count", abortSignal: stop.signal });
    const reading = (async () => {
      for await (const word of textStream) words.push(word);
    })();
    await clock.advance(499);
    expect(words).toEqual([]);
    await clock.advance(101);
    await expect.poll(() => words.join("")).toBe("one two ");
    stop.abort();
    await reading;
    expect([model.begun, model.ended]).toEqual([1, 0]);
  });

  test("says the rest of its text where it is asked to go on with it", async () => {
    const asked: (string | undefined)[] = [];
    const model = simulatedModel({
      answers: ({ soFar }) => {
        asked.push(soFar);
        return { text: "one two three" };
      },
    });
    const question = { role: "user", content: [{ type: "text", text: "count" }] };
    const half = { role: "assistant", content: [{ type: "text", text: "one " }] };
    const note = { ...question, providerOptions: { flotilla: { interrupted: "continue" } } };
    const texts = [];
    for (const prompt of [[question], [question, half, question], [question, half, note]]) {
      const { content } = (await model.doGenerate({ prompt })) as { content: unknown[] };
      texts.push(content[0]);
    }
    const [whole, rest] = ["one two three", "two three"].map((text) => ({ type: "text", text }));
    expect(texts).toEqual([whole, whole, rest]);
    expect(asked).toEqual([undefined, undefined, "one "]);
  });

  test("keeps its ledger in a file that outlives a process", async () => {
    const folder = mkdtempSync(join(tmpdir(), "ledger-"));
    try {
      const ledger = join(folder, "calls");
      const ask = (model = simulatedModel({ answers: [{ text: "hi" }], ledger })) =>
        generateText({ model, prompt: "hi" });
      await ask();
      await ask();
      expect(simulatedModel({ answers: [], ledger }).begun).toBe(2);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test("fails as it is told to, and says which answer is missing", async () => {
    const broken = simulatedModel({ answers: [{ text: "half ", error: new Error("cut") }] });
    await expect(generateText({ model: broken, prompt: "", maxRetries: 0 })).rejects.toThrow("cut");
    const none = simulatedModel({ answers: [] });
    await expect(generateText({ model: none, prompt: "", maxRetries: 0 })).rejects.toThrow(
      "there is no answer 1",
    );
  });
});
