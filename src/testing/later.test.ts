import {
  convertToModelMessages,
  isStepCount,
  streamText,
  tool,
  type ToolSet,
  type UIMessage,
} from "ai";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { abort } from "../base/errors.ts";
import { durable, later, stepOf } from "../durable/index.ts";
import { flow } from "../flows/flow.ts";
import { type Entry, textOf } from "../protocol/message.ts";
import { agent } from "../sessions/agents/agent.ts";
import type { Chat } from "../sessions/sessions.ts";
import { task } from "../tasks/task.ts";
import { simulatedModel, type SimulatedAnswer } from "./simulated-model.ts";
import { testFlotilla } from "./test-flotilla.ts";

const anything = z.looseObject({});
const film = z.object({ scene: z.string() });

/** An agent that says these, and what it was asked. */
function helperWith(tools: object, answers: readonly SimulatedAnswer[]) {
  const prompts: string[] = [];
  const model = simulatedModel({
    answers({ prompt, toolResults }) {
      prompts.push(JSON.stringify(prompt));
      return answers[toolResults]!;
    },
  });
  const helper = agent<UIMessage>("helper", async (context) =>
    streamText({
      ...durable(context, { model, tools: tools as ToolSet, stopWhen: isStepCount(5) }),
      messages: await convertToModelMessages([...context.messages]),
      abortSignal: context.signal,
    }),
  );
  return { helper, model, prompts };
}

const rendering = (rendered: (scene: string) => unknown = (scene) => ({ url: `${scene}.mp4` })) =>
  task("render", { input: film, attempts: 1 }, async ({ input }) => rendered(input.scene));

/** An agent that has a film rendered. */
function director(render = rendering(), options: { timeoutMs?: number } = {}) {
  let begun = 0;
  const tools = {
    film: tool({
      inputSchema: film,
      execute: ({ scene }) => {
        begun++;
        return later({ task: render, input: { scene }, ...options });
      },
    }),
  };
  const made = helperWith(tools, [
    { text: "Wait. ", tools: [["film", { scene: "dawn" }]] },
    { text: "Here it is." },
  ]);
  return { ...made, render, begun: () => begun };
}

/** The entries, once there are that many. */
async function entriesOf(chat: Chat, count: number): Promise<Entry[]> {
  const seen: Entry[] = [];
  for await (const event of chat.events()) {
    if (event.type === "entry") seen.push(event.entry);
    if (seen.length >= count) break;
  }
  return seen;
}

const callIn = ({ parts }: Entry, toolName = "film") =>
  parts.find(({ type }) => type === `tool-${toolName}`)!;

describe("a tool whose output comes later, in a session", () => {
  test("ends the answer with its call open, and the answer goes on when its task has ended", async () => {
    const { helper, model, render, begun } = director();
    await using t = await testFlotilla({ use: [helper, render] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const asks = await chat.ask("a film, please");
    expect(asks).toMatchObject({ outcome: "completed", author: "helper" });
    expect(callIn(asks)).toEqual({
      type: "tool-film",
      toolCallId: "call-0-0",
      state: "input-available",
      input: { scene: "dawn" },
      callProviderMetadata: { flotilla: { later: { task: "render" } } },
    });
    // Nothing of the step in which the model was not asked.
    expect(asks.parts.map(({ type }) => type)).toEqual(["step-start", "text", "tool-film"]);
    const entries = await entriesOf(chat, 4);
    expect(entries[2]).toMatchObject({ kind: "tool_result", author: "helper" });
    expect(entries[3]).toMatchObject({ messageId: asks.messageId, replaces: asks.seq });
    expect(callIn(entries[3]!)).toMatchObject({
      state: "output-available",
      output: { url: "dawn.mp4" },
    });
    expect(textOf(entries[3]!)).toBe("Wait. Here it is.");
    expect([model.begun, begun()]).toEqual([2, 1]);
    const { started } = await chat.started();
    expect(started.map(({ name }) => name)).toEqual(["render", "flotilla:later"]);
    await t.advance(60_000);
    expect(await chat.view()).toMatchObject({ lastSeq: 4, state: { state: "idle" } });
  });

  test("may be a run of a flow, or a time", async () => {
    const cut = flow("cut", { version: 1, input: film, output: z.object({ text: z.string() }) })
      .to("do", ({ input }) => ({ text: `cut of ${input.scene}` }))
      .end();
    const tools = {
      film: tool({ inputSchema: film, execute: (input) => later({ flow: cut, input }) }),
      nap: tool({
        inputSchema: anything,
        execute: () => later({ afterMs: 3_600_000, output: "rested" }),
      }),
    };
    const { helper } = helperWith(tools, [
      { tools: [["film", { scene: "dusk" }]] },
      { tools: [["nap", {}]] },
      { text: "Good." },
    ]);
    await using t = await testFlotilla({ use: [helper, cut] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    const entries = await entriesOf(chat, 4);
    expect(callIn(entries[3]!)).toMatchObject({ output: { text: "cut of dusk" } });
    expect(callIn(entries[3]!, "nap")).toMatchObject({ state: "input-available" });
    await t.advance(3_599_000);
    expect((await chat.view()).lastSeq).toBe(4);
    await t.advance(2_000);
    const all = await entriesOf(chat, 6);
    expect(callIn(all[5]!, "nap")).toMatchObject({ output: "rested" });
    expect(textOf(all[5]!)).toBe("Good.");
  });

  test.each([
    ["fails", () => Promise.reject(new Error("secret path /etc")), "render failed: handler_failed"],
    ["is aborted", () => Promise.reject(abort("no such scene")), "render failed: no such scene"],
  ] as const)("tells the model if its task %s", async (_, rendered, errorText) => {
    const { helper, render } = director(rendering(rendered));
    await using t = await testFlotilla({ use: [helper, render] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    const entries = await entriesOf(chat, 4);
    expect(callIn(entries[3]!)).toMatchObject({ state: "output-error", errorText });
    expect(textOf(entries[3]!)).toBe("Wait. Here it is.");
  });

  test("tells the model if its task is cancelled, though no pod has its handler", async () => {
    const { helper } = director();
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    await t.advance(60_000);
    expect((await chat.view()).lastSeq).toBe(2);
    const { started } = await chat.started();
    await t.tasks.cancel(started.find(({ name }) => name === "render")!.taskId);
    const entries = await entriesOf(chat, 4);
    expect(callIn(entries[3]!)).toMatchObject({ errorText: "render was cancelled" });
  });

  test("ends with a timeout if its task doesn't end, and what the task says after that is dropped", async () => {
    const { helper, render, model } = director(rendering(), { timeoutMs: 30_000 });
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    await t.advance(31_000);
    const entries = await entriesOf(chat, 4);
    expect(callIn(entries[3]!)).toMatchObject({
      state: "output-error",
      errorText: "timeout: render took over 30000 ms",
    });
    await t.startPod({ use: [helper, render] });
    await t.advance(60_000);
    const { started } = await chat.started();
    expect(started.map(({ status }) => status)).toEqual(["completed", "completed", "completed"]);
    expect([(await chat.view()).lastSeq, model.begun]).toEqual([4, 2]);
  });

  test("waits for all outputs of one call, beside a tool that has its own", async () => {
    const render = rendering();
    const tools = {
      film: tool({ inputSchema: film, execute: (input) => later({ task: render, input }) }),
      ask: tool({ inputSchema: anything, execute: () => later({ signal: "answer" }) }),
      look: tool({ inputSchema: anything, execute: async () => "seen" }),
    };
    const { helper, model } = helperWith(tools, [
      {
        tools: [
          ["film", { scene: "noon" }],
          ["ask", {}],
          ["look", {}],
        ],
      },
      { text: "All three." },
    ]);
    await using t = await testFlotilla({ use: [helper, render] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const asks = await chat.ask("go");
    expect(callIn(asks, "look")).toMatchObject({ output: "seen" });
    const three = await entriesOf(chat, 3);
    expect(three[2]).toMatchObject({ kind: "tool_result" });
    await t.advance(10_000);
    expect(await chat.view()).toMatchObject({ lastSeq: 3, state: { state: "idle" } });
    expect(model.begun).toBe(1);
    await chat.signal("answer", { yes: true }, { author: "bob" });
    const entries = await entriesOf(chat, 5);
    expect(entries[3]).toMatchObject({ kind: "tool_result", author: "bob" });
    expect(callIn(entries[4]!)).toMatchObject({ output: { url: "noon.mp4" } });
    expect(callIn(entries[4]!, "ask")).toMatchObject({ output: { yes: true } });
    expect(textOf(entries[4]!)).toBe("All three.");
    expect(model.begun).toBe(2);
  });

  test("that has come before the answer is stored waits for it", async () => {
    const gate = Promise.withResolvers<string>();
    const tools = {
      nap: tool({ inputSchema: anything, execute: () => later({ afterMs: 0, output: "up" }) }),
      look: tool({ inputSchema: anything, execute: () => gate.promise }),
    };
    const { helper, model } = helperWith(tools, [
      {
        tools: [
          ["nap", {}],
          ["look", {}],
        ],
      },
      { text: "Both." },
    ]);
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.send("go");
    const late = async () => (await t.tasks.list({ name: "flotilla:later" })).tasks[0];
    await t.until(async () => ((await late())?.snoozes ?? 0) > 2);
    expect((await chat.view()).lastSeq).toBe(1);
    gate.resolve("seen");
    const entries = await entriesOf(chat, 4);
    expect(callIn(entries[3]!, "nap")).toMatchObject({ output: "up" });
    expect(textOf(entries[3]!)).toBe("Both.");
    expect(await late()).toMatchObject({ status: "completed", result: "stored" });
    expect(model.begun).toBe(2);
  });

  test("leaves the call to a result that came first, and starts no answer for its own", async () => {
    const gate = Promise.withResolvers<void>();
    const slow = task("render", { input: film }, async () => {
      await gate.promise;
      return "late";
    });
    const { helper, render, model } = director(slow as never);
    await using t = await testFlotilla({ use: [helper, render] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const asks = await chat.ask("go");
    await chat.toolResult(asks.messageId, [{ toolCallId: "call-0-0", output: "mine" }]);
    const entries = await entriesOf(chat, 4);
    expect(callIn(entries[3]!)).toMatchObject({ output: "mine" });
    gate.resolve();
    await t.advance(30_000);
    const { started } = await chat.started();
    expect(started.map(({ status }) => status)).toEqual(["completed", "completed"]);
    expect([(await chat.view()).lastSeq, model.begun]).toEqual([4, 2]);
    // A second result of the user is dropped as quietly.
    const again = await chat.toolResult(asks.messageId, [{ toolCallId: "call-0-0", output: 2 }]);
    expect(again).toMatchObject({ duplicate: true });
    expect((await chat.view()).lastSeq).toBe(4);
  });

  test("lets users talk with the agent meanwhile, which knows that the call has not ended", async () => {
    const tools = { ask: tool({ inputSchema: anything, execute: () => later({ signal: "ok" }) }) };
    const { helper, prompts } = helperWith(tools, [{ tools: [["ask", {}]] }, { text: "Well." }]);
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    const meanwhile = await chat.ask("still there?");
    expect(textOf(meanwhile)).toBe("Well.");
    expect(prompts[1]).toContain("This call has not ended yet");
    await chat.signal("ok", "yes");
    const entries = await entriesOf(chat, 6);
    expect(callIn(entries[5]!, "ask")).toMatchObject({ state: "output-available", output: "yes" });
    expect(prompts[2]).toContain("yes");
    expect(prompts[2]).not.toContain("This call has not ended yet");
  });

  test.each(["archived", "removed"] as const)("ends quietly if its session is %s", async (how) => {
    const { helper, render } = director();
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    const { started } = await chat.started();
    await (how === "archived" ? chat.archive() : chat.remove());
    await t.startPod({ use: [helper, render] });
    const ended = await Promise.all(started.map(({ taskId }) => t.settled(taskId)));
    expect(ended).toMatchObject([
      { status: "completed" },
      { status: "completed", result: "dropped" },
    ]);
  });

  test("is dropped if its answer was stopped before it ended", async () => {
    const gate = Promise.withResolvers<void>();
    const render = rendering();
    const tools = {
      film: tool({ inputSchema: film, execute: (input) => later({ task: render, input }) }),
      look: tool({ inputSchema: anything, execute: () => gate.promise }),
    };
    const { helper, model } = helperWith(tools, [
      {
        tools: [
          ["film", { scene: "noon" }],
          ["look", {}],
        ],
      },
      { text: "no" },
    ]);
    await using t = await testFlotilla({ use: [helper, render] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.send("go");
    await t.until(async () => (await t.tasks.list({ name: "flotilla:later" })).tasks.length === 1);
    await chat.stop();
    const entries = await entriesOf(chat, 3);
    expect(entries[2]).toMatchObject({ outcome: "stopped" });
    gate.resolve();
    await t.advance(60_000);
    const [late] = (await t.tasks.list({ name: "flotilla:later" })).tasks;
    expect(late).toMatchObject({ status: "completed", result: "dropped" });
    expect([(await chat.view()).lastSeq, model.begun]).toEqual([3, 1]);
  });

  test("may be that of a call which a user has approved", async () => {
    const render = rendering();
    const tools = {
      film: tool({
        inputSchema: film,
        needsApproval: true,
        execute: (input) => later({ task: render, input }),
      }),
    };
    const { helper, model } = helperWith(tools, [
      { tools: [["film", { scene: "eve" }]] },
      { text: "Here." },
    ]);
    await using t = await testFlotilla({ use: [helper, render] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const asks = await chat.ask("go");
    expect(callIn(asks)).toMatchObject({ state: "approval-requested" });
    await chat.toolResult(asks.messageId, [{ toolCallId: "call-0-0", approved: true }]);
    const entries = await entriesOf(chat, 6);
    expect(entries.map(({ kind }) => kind)).toEqual([
      "message",
      "message",
      "tool_result",
      "message",
      "tool_result",
      "message",
    ]);
    expect(entries[3]!.parts.filter(({ type }) => type === "tool-film")).toHaveLength(1);
    expect(callIn(entries[3]!)).toMatchObject({
      state: "input-available",
      callProviderMetadata: { flotilla: { later: { task: "render" } } },
    });
    expect(callIn(entries[5]!)).toMatchObject({ output: { url: "eve.mp4" } });
    expect(textOf(entries[5]!)).toBe("Here.");
    expect(model.begun).toBe(2);
  });

  test("goes on with the budget that is left: one answer has one", async () => {
    const model = simulatedModel({
      answers: ({ hasTools, nth }) =>
        hasTools && nth < 40 ? { tools: [["nap", {}]] } : { text: "Enough." },
    });
    const tools = { nap: tool({ inputSchema: anything, execute: () => later({ afterMs: 0 }) }) };
    const helper = agent<UIMessage>("helper", { budget: { calls: 2 } }, async (context) =>
      streamText({
        ...durable(context, { model, tools: tools as ToolSet, stopWhen: isStepCount(5) }),
        messages: await convertToModelMessages([...context.messages]),
        abortSignal: context.signal,
      }),
    );
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    await t.advance(3_600_000);
    const { entries } = await chat.entries();
    const last = entries.at(-1)!;
    expect(textOf(last)).toBe("Enough.");
    // Two calls, and the last one without tools.
    expect(model.begun).toBe(3);
    expect(last.metadata).toMatchObject({ usage: { calls: 3 } });
    await chat.ask("another");
    expect(model.begun).toBe(4);
  });

  test("is refused in an agent within a tool, with what to do", async () => {
    const inner = simulatedModel({ answers: [{ tools: [["ask", {}]] }, { text: "told" }] });
    const ask = tool({ inputSchema: anything, execute: () => later({ signal: "ok" }) });
    const errors: string[] = [];
    const tools = {
      delegate: tool({
        inputSchema: anything,
        execute: async (_, options) => {
          const settings = { model: inner, tools: { ask }, stopWhen: isStepCount(3) };
          const result = streamText({ ...durable(stepOf(options), settings), prompt: "go" });
          const steps = await result.steps;
          for (const part of steps.flatMap(({ content }) => content)) {
            if (part.type === "tool-error") errors.push(String(part.error));
          }
          return result.text;
        },
      }),
    };
    const { helper } = helperWith(tools, [{ tools: [["delegate", {}]] }, { text: "Done." }]);
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const answer = await chat.ask("go");
    expect(textOf(answer)).toBe("Done.");
    expect(errors).toEqual([expect.stringContaining("make the inner agent a task")]);
  });

  test("fails an answer that has no room for the call, with what to do", async () => {
    const model = simulatedModel({ answers: [{ text: "Wait.", tools: [["ask", {}]] }] });
    const ask = tool({ inputSchema: anything, execute: () => later({ signal: "ok" }) });
    const helper = agent(
      "helper",
      (context) =>
        streamText({
          ...durable(context, { model, tools: { ask }, stopWhen: isStepCount(3) }),
          prompt: "go",
        }).textStream,
    );
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const answer = await chat.ask("go");
    expect(answer).toMatchObject({ outcome: "cut", error: { code: "agent_invalid" } });
    expect(answer.error!.message).toContain("return what streamText gives");
  });

  test("is that of one task, which is stored with the step, though the pod dies before it knows that", async () => {
    const { helper, render, model, begun } = director();
    await using t = await testFlotilla({ use: [helper, render], pods: 2 });
    const crash = t.crashAfter("later");
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.send("go", { id: "m" });
    const entries = await entriesOf(chat, 4);
    expect(crash.pod?.alive).toBe(false);
    expect(callIn(entries[3]!)).toMatchObject({ output: { url: "dawn.mp4" } });
    // The step was stored in the same record, so the tool didn't run again.
    expect([model.begun, begun()]).toEqual([2, 1]);
    expect((await t.tasks.list({ name: "render" })).tasks).toHaveLength(1);
    expect((await t.tasks.list({ name: "flotilla:later" })).tasks).toHaveLength(1);
  });

  const crashes = [
    ...Array.from({ length: 8 }, (_, at) => ["stored", at + 1] as const),
    ...(["claimed", "started", "ran", "finished"] as const).flatMap((point) =>
      [1, 2, 3].map((times) => [point, times] as const),
    ),
  ];
  test.each(crashes)(
    "comes once, though a pod crashes at `%s` for the %d. time",
    async (point, times) => {
      const { helper, render, model, begun } = director();
      await using t = await testFlotilla({ use: [helper, render], pods: 2 });
      const chat = await t.sessions.create(helper, { user: "ada" });
      t.crashAfter(point, { times });
      await chat.send("go", { id: "m" });
      const entries = await entriesOf(chat, 4);
      expect(entries.map(({ kind }) => kind)).toEqual([
        "message",
        "message",
        "tool_result",
        "message",
      ]);
      expect(callIn(entries[3]!)).toMatchObject({ output: { url: "dawn.mp4" } });
      expect(textOf(entries[3]!)).toBe("Wait. Here it is.");
      const { started } = await chat.started();
      expect(started.map(({ name }) => name)).toEqual(["render", "flotilla:later"]);
      // It is stored under an id that every attempt of the task that brings it has.
      const [brings] = (await t.tasks.list({ name: "flotilla:later" })).tasks;
      const again = await chat.toolResult(
        entries[1]!.messageId,
        [{ toolCallId: "call-0-0", output: null }],
        { id: `later-${brings!.taskId}` },
      );
      expect(again).toMatchObject({ seq: entries[2]!.seq, duplicate: true });
      await t.advance(30_000);
      expect((await chat.view()).lastSeq).toBe(4);
      // What was stored is neither asked nor done again. What runs beside the crash may be repeated once.
      const repeated = model.begun - 2 + (begun() - 1);
      expect(repeated).toBeLessThanOrEqual(point === "stored" ? 0 : 1);
    },
  );
});

describe("a signal to a session", () => {
  const schema = z.object({ ok: z.boolean() });
  const asking = (options: { timeoutMs?: number } = {}) => {
    const tools = {
      ask: tool({
        inputSchema: anything,
        execute: () => later({ signal: "approve", schema, ...options }),
      }),
    };
    return helperWith(tools, [{ tools: [["ask", {}]] }, { text: "Thanks." }]);
  };

  test("is refused if nothing waits for it, and is not kept for what waits later", async () => {
    const { helper } = asking();
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const early = chat.signal("approve", { ok: true });
    await expect(early).rejects.toMatchObject({ code: "conflict" });
    const asks = await chat.ask("go");
    expect(callIn(asks, "ask")).toMatchObject({ state: "input-available" });
    const other = chat.signal("approved", { ok: true });
    await expect(other).rejects.toMatchObject({ code: "conflict" });
    expect((await chat.view()).lastSeq).toBe(2);
  });

  test("is refused by its schema, which the call shows, and another may come", async () => {
    const { helper } = asking();
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const asks = await chat.ask("go");
    expect(callIn(asks, "ask")["callProviderMetadata"]).toMatchObject({
      flotilla: { later: { signal: "approve", schema: { properties: { ok: {} } } } },
    });
    const wrong = chat.signal("approve", { ok: "yes" });
    await expect(wrong).rejects.toMatchObject({
      code: "invalid_input",
      message: expect.stringContaining("ok"),
    });
    expect((await chat.view()).lastSeq).toBe(2);
    await chat.signal("approve", { ok: false });
    const entries = await entriesOf(chat, 4);
    expect(callIn(entries[3]!, "ask")).toMatchObject({ output: { ok: false } });
  });

  test("has its schema for a result of the call too, unless the result is an error", async () => {
    const { helper } = asking();
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const { messageId } = await chat.ask("go");
    const result = (given: object) =>
      chat.toolResult(messageId, [{ toolCallId: "call-0-0", ...given } as never]);
    await expect(result({ output: { ok: "yes" } })).rejects.toMatchObject({
      code: "invalid_input",
      message: expect.stringContaining("ok"),
    });
    expect((await chat.view()).lastSeq).toBe(2);
    await result({ errorText: "the form was closed" });
    const entries = await entriesOf(chat, 4);
    expect(callIn(entries[3]!, "ask")).toMatchObject({ errorText: "the form was closed" });
  });

  test("doesn't freeze the pod with a text that the schema's expression never gets through", async () => {
    const schema = z.string().regex(/^(a+)+$/);
    const tools = {
      ask: tool({ inputSchema: anything, execute: () => later({ signal: "approve", schema }) }),
    };
    const { helper } = helperWith(tools, [{ tools: [["ask", {}]] }, { text: "Thanks." }]);
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    // By itself it would take longer than the machine lasts.
    const slow = chat.signal("approve", `${"a".repeat(100)}!`);
    await expect(slow).rejects.toMatchObject({
      code: "invalid_input",
      message: expect.stringContaining("too long"),
    });
    await chat.signal("approve", "aaa");
    const entries = await entriesOf(chat, 4);
    expect(callIn(entries[3]!, "ask")).toMatchObject({ output: "aaa" });
  });

  test("is refused where only the agent's own words say that something waits for it", async () => {
    const helper = agent("helper", async function* () {
      const providerMetadata = { flotilla: { later: { signal: "approve" } } };
      const call = { toolCallId: "c", toolName: "ask", input: {}, providerMetadata };
      yield { type: "tool-input-available", ...call } as const;
    });
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const asks = await chat.ask("go");
    expect(callIn(asks, "ask")).toMatchObject({ callProviderMetadata: {} });
    await expect(chat.signal("approve")).rejects.toMatchObject({ code: "conflict" });
  });

  test("counts once under one id, and a second one is refused", async () => {
    const { helper, model } = asking();
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    const sent = await chat.signal("approve", { ok: true }, { id: "click" });
    expect(sent).toEqual({ seq: 3, duplicate: false });
    expect(await chat.signal("approve", { ok: true }, { id: "click" })).toEqual({
      seq: 3,
      duplicate: true,
    });
    const second = chat.signal("approve", { ok: false });
    await expect(second).rejects.toMatchObject({ code: "conflict" });
    const entries = await entriesOf(chat, 4);
    expect(callIn(entries[3]!, "ask")).toMatchObject({ output: { ok: true } });
    expect(model.begun).toBe(2);
  });

  test("of two at the same moment one counts, and the other is refused", async () => {
    const { helper, model } = asking();
    await using t = await testFlotilla({ use: [helper], pods: 2 });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    const sent = await Promise.allSettled(
      Array.from({ length: 5 }, (_, at) => chat.signal("approve", { ok: at % 2 === 0 })),
    );
    expect(sent.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    await entriesOf(chat, 4);
    await t.advance(10_000);
    expect([(await chat.view()).lastSeq, model.begun]).toEqual([4, 2]);
  });

  test("that doesn't come in time fails the call", async () => {
    const { helper } = asking({ timeoutMs: 60_000 });
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("go");
    await t.advance(61_000);
    const entries = await entriesOf(chat, 4);
    expect(callIn(entries[3]!, "ask")).toMatchObject({
      errorText: 'timeout: the signal "approve" took over 60000 ms',
    });
    const late = chat.signal("approve", { ok: true });
    await expect(late).rejects.toMatchObject({ code: "conflict" });
  });
});

describe("a tool whose output comes later, in a task", () => {
  const writer = (tools: object, answers: readonly SimulatedAnswer[]) => {
    const model = simulatedModel({ answers });
    const errand = task("errand", {}, async (context) => {
      const settings = { model, tools: tools as ToolSet, stopWhen: isStepCount(5) };
      const onError = () => {};
      const call = { prompt: "go", maxRetries: 0, onError };
      const result = streamText({ ...durable(context, settings), ...call });
      const steps = await result.steps;
      return [await result.text, steps.flatMap((each) => each.toolResults.map((of) => of.output))];
    });
    return { errand, model };
  };

  test("parks the task until the other task has ended, and asks the model for nothing twice", async () => {
    const render = rendering();
    let begun = 0;
    const tools = {
      film: tool({
        inputSchema: film,
        execute: (input) => {
          begun++;
          return later({ task: render, input });
        },
      }),
      nap: tool({ inputSchema: anything, execute: () => later({ afterMs: 60_000, output: "up" }) }),
      look: tool({ inputSchema: anything, execute: async () => "seen" }),
    };
    const { errand, model } = writer(tools, [
      {
        tools: [
          ["film", { scene: "noon" }],
          ["nap", {}],
          ["look", {}],
        ],
      },
      { text: "Done." },
    ]);
    await using t = await testFlotilla({ use: [errand] });
    const { taskId } = await t.enqueue(errand, null);
    await t.advance(30_000);
    expect(await t.tasks.get(taskId)).toMatchObject({ status: "pending", failures: 0 });
    expect(t.pods[0]!.running).toBe(0);
    await t.startPod({ use: [errand, render] });
    const outputs = expect.arrayContaining([{ url: "noon.mp4" }, "up", "seen"]);
    expect(await t.result(taskId)).toEqual(["Done.", outputs]);
    expect([model.begun, begun]).toEqual([2, 1]);
  });

  const crashes = (["claimed", "step_ran", "step_stored", "ran", "finished"] as const).flatMap(
    (point) => [1, 2, 3, 4].map((times) => [point, times] as const),
  );
  test.each(crashes)(
    "comes once, though a pod crashes at `%s` for the %d. time",
    async (point, times) => {
      let begun = 0;
      let rendered = 0;
      const render = rendering((scene) => {
        rendered++;
        return scene;
      });
      const tools = {
        film: tool({
          inputSchema: film,
          execute: (input) => {
            begun++;
            return later({ task: render, input });
          },
        }),
        nap: tool({ inputSchema: anything, execute: () => later({ afterMs: 60_000 }) }),
      };
      const { errand, model } = writer(tools, [
        {
          tools: [
            ["film", { scene: "noon" }],
            ["nap", {}],
          ],
        },
        { text: "Done." },
      ]);
      await using t = await testFlotilla({ use: [errand, render], pods: 2 });
      t.crashAfter(point, { times });
      const [text, outputs] = (await t.run(errand, null)) as [string, unknown[]];
      expect(text).toBe("Done.");
      expect(outputs).toEqual(expect.arrayContaining(["noon", null]));
      expect((await t.tasks.list({ name: "render" })).tasks).toHaveLength(1);
      // What was stored isn't begun again. What runs beside the crash may be repeated once.
      const repeated = model.begun - 2 + (begun - 1) + (rendered - 1);
      expect(repeated).toBeLessThanOrEqual(point === "step_stored" ? 0 : 2);
    },
  );

  test("takes a signal of the task, as its schema says, and throws a timeout to the model", async () => {
    const schema = z.object({ ok: z.boolean() });
    const tools = {
      ask: tool({ inputSchema: anything, execute: () => later({ signal: "approve", schema }) }),
      poll: tool({
        inputSchema: anything,
        execute: () => later({ signal: "never", timeoutMs: 5_000 }),
      }),
    };
    const { errand, model } = writer(tools, [
      { tools: [["ask", {}]] },
      { tools: [["poll", {}]] },
      { text: "Done." },
    ]);
    await using t = await testFlotilla({ use: [errand] });
    const { taskId } = await t.enqueue(errand, null);
    await t.advance(1_000);
    await t.tasks.signal(taskId, "approve", { ok: "maybe" });
    await t.tasks.signal(taskId, "approve", { ok: true });
    expect(await t.result(taskId)).toEqual(["Done.", [{ ok: true }]]);
    expect(model.begun).toBe(3);
  });

  test.each([0, 60_000])(
    "of two tools that wait for one signal, each takes one, sent %d ms apart",
    async (apartMs) => {
      const tools = {
        ask: tool({ inputSchema: anything, execute: () => later({ signal: "approve" }) }),
      };
      const twice = [
        ["ask", { at: 1 }],
        ["ask", { at: 2 }],
      ] as const;
      const { errand, model } = writer(tools, [{ tools: twice }, { text: "Done." }]);
      await using t = await testFlotilla({ use: [errand] });
      const { taskId } = await t.enqueue(errand, null);
      await t.advance(1_000);
      await t.tasks.signal(taskId, "approve", "first");
      await t.advance(apartMs);
      await t.tasks.signal(taskId, "approve", "second");
      expect(await t.result(taskId)).toEqual(["Done.", ["first", "second"]]);
      expect(model.begun).toBe(2);
    },
  );

  test("gives up a task that takes too long", async () => {
    const render = rendering();
    const tools = {
      film: tool({
        inputSchema: film,
        execute: (input) => later({ task: render, input, timeoutMs: 10_000 }),
      }),
    };
    const { errand } = writer(tools, [{ tools: [["film", { scene: "x" }]] }, { text: "Sorry." }]);
    await using t = await testFlotilla({ use: [errand] });
    expect(await t.run(errand, null)).toEqual(["Sorry.", []]);
  });
});

test("what `later` doesn't take is refused where it is called", () => {
  const make = later as (what: unknown) => unknown;
  expect(() => make({})).toThrow("give it one of `task`, `flow`, `afterMs` and `signal`");
  expect(() => make({ signal: "a", afterMs: 1 })).toThrow("give it one of");
  expect(() => make({ signal: "a", timeout: 1 })).toThrow("did you mean `timeoutMs`?");
  expect(() => make({ afterMs: -1 })).toThrow("later: afterMs");
  expect(() => make({ task: {}, input: 1 })).toThrow("`task` must be a task");
  expect(() => make({ signal: "a/b" })).toThrow("without # @ /");
  expect(() => JSON.stringify(make({ afterMs: 1 }))).toThrow("go through durable()");
});
