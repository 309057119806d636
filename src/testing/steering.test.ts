import {
  convertToModelMessages,
  isStepCount,
  streamText,
  tool,
  type UIMessage as SdkMessage,
} from "ai";
import { describe, expect, test } from "vitest";
import { z } from "zod";
// The release before, which `ai-sdk-react-3` brings along.
import * as six from "../../node_modules/ai-sdk-react-3/node_modules/ai/dist/index.mjs";
import { durable } from "../durable/index.ts";
import { textOf } from "../protocol/message.ts";
import { agent } from "../sessions/agents/agent.ts";
import type { AgentContext } from "../sessions/agents/spec.ts";
import type { Chat } from "../sessions/sessions.ts";
import { simulatedModel } from "./simulated-model.ts";
import { testFlotilla } from "./test-flotilla.ts";

const steered = { during: "steer" } as const;

/** What users say in a prompt, in their order. */
function usersIn(
  prompt: readonly { readonly role: string; readonly content: unknown }[],
): string[] {
  return prompt.flatMap(({ role, content }) =>
    role === "user" ? (content as { text: string }[]).map(({ text }) => text).join("") : [],
  );
}

/** An agent of three model calls and two tools. The person says something while the first tool runs. */
function clerk(say: () => Promise<unknown>) {
  const answers = [
    { text: "First the weather. ", tools: [["weather", {}]] },
    { text: "Then the seats. ", tools: [["book", {}]] },
    { text: "All is done." },
  ] as const;
  const prompts: string[][] = [];
  const model = simulatedModel({
    answers({ prompt }) {
      prompts.push(usersIn(prompt));
      const after = prompt.slice(prompt.findIndex(({ role }) => role === "user"));
      const results = after.filter(({ role }) => role === "tool").length;
      return answers[Math.min(results, 2)]!;
    },
  });
  const doing = (name: string, run: () => Promise<unknown>) =>
    tool({
      inputSchema: z.looseObject({}),
      execute: async () => {
        await run();
        return `${name} is done`;
      },
    });
  const tools = { weather: doing("weather", say), book: doing("book", async () => {}) };
  return { prompts, settings: { model, tools, stopWhen: isStepCount(5) } };
}

async function streamed(context: AgentContext, settings: ReturnType<typeof clerk>["settings"]) {
  return streamText({
    ...durable(context, settings),
    messages: await convertToModelMessages(context.messages as SdkMessage[]),
    abortSignal: context.signal,
  });
}

/** Each entry by who said what. */
async function told(chat: Chat) {
  const { entries } = await chat.entries();
  return entries.map((entry) => `${entry.author}: ${textOf(entry)}`);
}

const whole = "First the weather. Then the seats. All is done.";

describe("a message during a durable answer", () => {
  test("reaches the model at its next step, and stays where it was heard", async () => {
    const { prompts, settings } = clerk(() => chat.send("by train", { id: "train" }));
    const helper = agent("helper", steered, (context) => streamed(context, settings));
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const answer = await chat.ask("go");
    expect(prompts).toEqual([["go"], ["go", "by train"], ["go", "by train"]]);
    expect(await told(chat)).toEqual(["ada: go", "ada: by train", `helper: ${whole}`]);
    expect(answer).toMatchObject({ upToSeq: 2, beganSeq: 1, outcome: "completed" });
    const [, heard] = await chat.messages();
    expect(answer.parts.map(({ type }) => type)).toEqual([
      "step-start",
      "text",
      "tool-weather",
      "steering-message",
      "step-start",
      "text",
      "tool-book",
      "step-start",
      "text",
    ]);
    expect(answer.parts[3]).toEqual({
      type: "steering-message",
      id: heard!.id,
      parts: [{ type: "text", text: "by train" }],
    });
    // The next turn's model is given it in the middle of the answer, by any version of the AI SDK.
    await chat.ask("and now?");
    expect(prompts.at(-1)).toEqual(["go", "by train", "and now?"]);
  });

  // One for the question, then the two calls and two tools, what was said, what was heard, and the answer.
  const records = Array.from({ length: 7 }, (_, at) => at + 1);

  test.each(records)(
    "is heard once by one answer, if a pod crashes after record %d of it",
    async (times) => {
      const { prompts, settings } = clerk(() => chat.send("by train", { id: "train" }));
      const helper = agent("helper", steered, (context) => streamed(context, settings));
      await using t = await testFlotilla({ use: [helper], pods: 2 });
      const chat = await t.sessions.create(helper, { user: "ada" });
      const crash = t.crashAfter("stored", { times: times + 1 });
      const answer = await chat.ask("go");
      expect(crash.pod?.alive).toBe(false);
      expect(await told(chat)).toEqual(["ada: go", "ada: by train", `helper: ${whole}`]);
      expect(answer.parts.filter(({ type }) => type === "steering-message")).toHaveLength(1);
      expect(answer).toMatchObject({ upToSeq: 2, outcome: "completed" });
      // No call that had not heard it comes after one that has, and none is made with it twice.
      const heard = prompts.map((prompt) => prompt.filter((said) => said === "by train").length);
      expect(heard).toEqual(heard.toSorted((one, other) => one - other));
      expect(Math.max(...heard)).toBe(1);
    },
  );

  test("is left to the next one by a call that has begun, and answered by the next turn", async () => {
    const { prompts, settings } = clerk(async () => {});
    const last = Promise.withResolvers<void>();
    const model = simulatedModel({
      async answers({ prompt }) {
        prompts.push(usersIn(prompt));
        await last.promise;
        return { text: "Done." };
      },
    });
    const helper = agent("helper", steered, (context) => streamed(context, { ...settings, model }));
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.send("go");
    await t.until(() => prompts.length === 1);
    await chat.send("by train");
    last.resolve();
    await t.until(async () => (await told(chat)).length === 4);
    expect(prompts).toEqual([["go"], ["go", "by train"]]);
    expect(await told(chat)).toEqual([
      "ada: go",
      "ada: by train",
      "helper: Done.",
      "helper: Done.",
    ]);
  });

  test("reaches a model of the AI SDK 6 at each step that follows", async () => {
    const { prompts, settings } = clerk(() => chat.send("by train", { id: "train" }));
    const own: unknown[] = [];
    const helper = agent("helper", steered, async (context) => {
      const { text } = await six.generateText({
        ...(durable(context, {
          ...settings,
          prepareStep({ messages }: { messages: readonly unknown[] }) {
            own.push(messages.length);
            return {};
          },
        }) as unknown as { model: six.LanguageModel }),
        stopWhen: six.stepCountIs(5),
        prompt: "go",
      });
      return text;
    });
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const answer = await chat.ask("go");
    expect(prompts).toEqual([["go"], ["go", "by train"], ["go", "by train"]]);
    // What prepares a step sees it too: one message, then with a call and its result, and what was heard.
    expect(own).toEqual([1, 4, 6]);
    expect(answer.parts.map(({ type }) => type)).toEqual(["steering-message", "text"]);
  });
});

describe("a function that hears messages", () => {
  /** Says what it hears before each of its steps. */
  const listener = (
    effects: string[],
    doing: (name: string) => Promise<unknown> = async () => {},
  ) =>
    agent("helper", steered, async function* ({ steering, step }) {
      for (const name of ["one", "two", "three"]) {
        for (const message of await steering()) yield `(${textOf(message)}) `;
        yield `${await step(name, async () => {
          effects.push(name);
          await doing(name);
          return name;
        })} `;
      }
    });

  test("is given each once, with its author, and the answer shows them where they were heard", async () => {
    const helper = listener([], async (name) => {
      if (name === "one") for (const text of ["a", "b"]) await chat.send(text, { id: text });
      if (name === "two") await chat.send("c", { id: "c", author: "bob" });
      if (name === "three") await chat.send("d", { id: "d" });
    });
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada", users: ["bob"] });
    const answer = await chat.ask("go");
    expect(textOf(answer)).toBe("one (a) (b) two (c) three ");
    const heard = answer.parts.filter(({ type }) => type === "steering-message");
    expect(heard.map(({ id }) => id)).toEqual(["a", "b", "c"]);
    // The last came too late, and the next turn answers it.
    await t.until(async () => (await told(chat)).length === 7);
    expect((await told(chat)).at(-1)).toBe("helper: one two three ");
  });

  test.each(Array.from({ length: 9 }, (_, at) => at + 1))(
    "hears the same at the same step at another pod, if its own crashes after record %d",
    async (times) => {
      const effects: string[] = [];
      const helper = listener(effects, async (name) => {
        if (name !== "three") await chat.send(`after ${name}`, { id: name });
      });
      await using t = await testFlotilla({ use: [helper], pods: 2 });
      const chat = await t.sessions.create(helper, { user: "ada" });
      const crash = t.crashAfter("stored", { times: times + 1 });
      const answer = await chat.ask("go");
      expect([times, crash.pod?.alive ?? false]).toEqual([times, false]);
      // A pod that died within the first step had sent what the next attempt hears before it.
      const first = times === 1 ? "(after one) one" : "one (after one)";
      expect(textOf(answer)).toBe(`${first} two (after two) three `);
      expect((await told(chat)).length).toBe(4);
      expect(answer.parts.filter(({ type }) => type === "steering-message")).toHaveLength(2);
    },
  );

  test("hears nothing unless its agent says so, and nothing within a step or after its end", async () => {
    const errors: unknown[] = [];
    let late = async (): Promise<unknown> => undefined;
    const steering = agent("steered", steered, async ({ steering, step }) => {
      late = steering;
      await step("within", () => steering().catch((error: unknown) => void errors.push(error)));
      return "done";
    });
    const queued = agent("queued", async ({ steering, step }) => {
      await step("one", () => chat.send("more", { to: "queued", id: "m" }).then(() => null));
      return `${(await steering()).length} heard`;
    });
    await using t = await testFlotilla({ use: [steering, queued] });
    const chat = await t.sessions.create([steering, queued], { user: "ada" });
    await chat.ask("go");
    expect(errors).toMatchObject([{ code: "step_ambiguous" }]);
    await expect(late()).rejects.toMatchObject({ code: "closed" });
    expect(textOf(await chat.ask("go", { to: "queued" }))).toBe("0 heard");
  });

  test("hears one that is sent twice with one id once, also where the second comes after the first was heard", async () => {
    const counts: number[] = [];
    const helper = agent("helper", steered, async ({ steering, step }) => {
      for (const name of ["one", "two", "three"]) {
        await step(name, () => chat.send("more", { id: "m" }).then(() => null));
        counts.push((await steering()).length);
      }
      return "done";
    });
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    expect(counts).toEqual([1, 0, 0]);
    expect(await told(chat)).toEqual(["ada: go", "ada: more", "helper: done"]);
  });

  test("hears at most a hundred messages, and the next turn answers those that come then", async () => {
    const counts: number[] = [];
    const seen: number[] = [];
    const helper = agent("helper", steered, async ({ steering, step, messages }) => {
      seen.push(messages.length);
      await step("wait", async () => {
        if (seen.length > 1) return;
        for (let at = 0; at < 250; at++) await chat.send(`message ${at}`, { id: `m${at}` });
      });
      for (let at = 0; at < 5; at++) counts.push((await steering()).length);
      return "done";
    });
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    await t.until(async () => (await chat.entries({ after: 252 })).entries.length === 1);
    expect(counts).toEqual([100, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expect(seen).toEqual([1, 50]);
  });

  test("hears as many bytes as an answer has room for", async () => {
    const heard: number[] = [];
    const text = "x".repeat(60 * 1024);
    const helper = agent("helper", steered, async ({ steering, step }) => {
      await step("wait", async () => {
        if (heard.length > 0) return;
        for (let at = 0; at < 6; at++) await chat.send(text, { id: `m${at}` });
      });
      heard.push((await steering()).length, (await steering()).length);
      return "done";
    });
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    expect((await chat.ask("go")).outcome).toBe("completed");
    await t.until(async () => (await told(chat)).length === 9);
    expect(heard).toEqual([4, 0, 0, 0]);
  });

  test("whose code changed between two attempts leaves what it no longer hears to the next turn", async () => {
    let attempts = 0;
    const helper = agent("helper", steered, async ({ steering, step }) => {
      attempts++;
      if (attempts === 2) return "without";
      await step("one", () => (attempts === 1 ? chat.send("more", { id: "m" }).then(() => 1) : 1));
      const heard = await steering();
      await step("two", () => 2);
      return `with ${heard.length}`;
    });
    await using t = await testFlotilla({ use: [helper], pods: 2 });
    const chat = await t.sessions.create(helper, { user: "ada" });
    // The question, what was said in the first step, that step, what was heard.
    t.crashAfter("stored", { times: 5 });
    await chat.ask("go");
    await t.until(async () => (await told(chat)).length === 4);
    expect(await told(chat)).toEqual(["ada: go", "ada: more", "helper: without", "helper: with 0"]);
  });
});

test("an agent behind a URL can't be steered", () => {
  expect(() => agent("helper", { url: "https://agent.example", ...steered })).toThrow(
    /agent "helper": during can't be "steer" for a URL/,
  );
});
