import { generateText, isStepCount, streamText, tool, ToolLoopAgent } from "ai";
import { describe, expect, expectTypeOf, test, vi } from "vitest";
import { z } from "zod";
// The release before, which `ai-sdk-react-3` brings along.
import * as six from "../../node_modules/ai-sdk-react-3/node_modules/ai/dist/index.mjs";
import type { Json } from "../base/json.ts";
import { memorySteps } from "../steps/contract/memory-steps.ts";
import { type LaterHost, type LaterWait, setLaterHost } from "../steps/later.ts";
import type { StoredStep } from "../steps/model.ts";
import { task } from "../tasks/task.ts";
import { simulatedModel } from "../testing/simulated-model.ts";
import { durable, type DurableContext } from "./index.ts";
import { later } from "./later.ts";

/** Attempts of one owner, whose answers end without what comes later. */
function storedSteps() {
  const rows = new Map<string, StoredStep>();
  const begun: LaterWait[] = [];
  const marked: string[] = [];
  const host: LaterHost = {
    async begin(_call, wait) {
      begun.push(wait);
    },
    async output({ toolCallId }) {
      marked.push(toolCallId);
      return undefined;
    },
  };
  const context = (): DurableContext => {
    const { step } = memorySteps(rows);
    return { step: setLaterHost(step, host) };
  };
  return { rows, begun, marked, context };
}

type Sdk = Pick<typeof import("ai"), "generateText" | "streamText" | "ToolLoopAgent">;
const releases: readonly (Sdk & { release: number })[] = [
  { release: 6, ...(six as unknown as Sdk) },
  { release: 7, generateText, streamText, ToolLoopAgent },
];

function waiting() {
  const model = simulatedModel({
    answers: [
      {
        text: "wait ",
        tools: [
          ["ask", {}],
          ["look", {}],
        ],
      },
      { text: "never said" },
    ],
  });
  const execute = vi.fn<() => unknown>(() => later({ signal: "ok", timeoutMs: 5_000 }));
  const toModelOutput = vi.fn<() => never>(() => {
    throw new Error("it has no output");
  });
  const ask = { inputSchema: z.object({}), execute, toModelOutput };
  const look = tool({ inputSchema: z.object({}), execute: async () => "seen" });
  return { model, execute, toModelOutput, tools: { ask: ask as unknown as typeof look, look } };
}

describe.each(releases)("a tool whose output comes later, with the AI SDK $release", (sdk) => {
  const ways: readonly [string, (settings: any) => Promise<unknown>][] = [
    ["streamText", async (settings) => sdk.streamText({ ...settings, prompt: "go" }).steps],
    ["generateText", async (settings) => sdk.generateText({ ...settings, prompt: "go" })],
    // Its default goes on for twenty steps.
    [
      "ToolLoopAgent",
      async (settings) => new sdk.ToolLoopAgent(settings).generate({ prompt: "go" }),
    ],
  ];

  test.each(ways)(
    "ends the loop of %s, in every attempt, and the tool begins once",
    async (name, run) => {
      const { rows, begun, marked, context } = storedSteps();
      const { model, execute, toModelOutput, tools } = waiting();
      const stop = name === "ToolLoopAgent" ? {} : { stopWhen: isStepCount(5) };
      await run(durable(context(), { model, tools, ...stop }));
      await run(durable(context(), { model, tools, ...stop }));
      expect([model.begun, execute.mock.calls.length]).toEqual([1, 1]);
      expect(toModelOutput).not.toHaveBeenCalled();
      expect(begun).toEqual([{ type: "signal", signal: "ok", timeoutMs: 5_000 }]);
      expect(marked).toEqual(["call-0-0", "call-0-0"]);
      expect([...rows.keys()].toSorted()).toEqual([
        "ask[1.call-0-0]",
        "look[1.call-0-1]",
        "model[1]",
      ]);
    },
  );

  test("has no output of its own in the answer's stream, and the others have", async () => {
    const { context } = storedSteps();
    const { model, tools } = waiting();
    const settings = durable(context(), { model, tools, stopWhen: isStepCount(5) });
    const outputs: unknown[] = [];
    for await (const chunk of sdk.streamText({ ...settings, prompt: "go" }).toUIMessageStream()) {
      if (chunk.type === "tool-output-available") outputs.push([chunk.toolCallId, chunk.output]);
      if (chunk.type === "error") throw new Error(chunk.errorText);
    }
    const both = [
      ["call-0-0", { later: true }],
      ["call-0-1", "seen"],
    ];
    expect(outputs).toHaveLength(2);
    expect(outputs).toEqual(expect.arrayContaining(both));
  });
});

test("what `later` returns has the type of the output, and takes what the task takes", () => {
  const render = task("render", { input: z.object({ scene: z.string() }) }, async () => ({
    at: new Date(0),
  }));
  const input = { scene: "dawn" };
  expectTypeOf(later({ task: render, input })).toEqualTypeOf<{ at: string }>();
  expectTypeOf(later({ afterMs: 1, output: 5 })).toEqualTypeOf<number>();
  const schema = z.object({ ok: z.boolean() });
  expectTypeOf(later({ signal: "s", schema })).toEqualTypeOf<{ ok: boolean }>();
  expectTypeOf(later({ signal: "s" })).toEqualTypeOf<Json>();
  // @ts-expect-error: the task takes a scene
  later({ task: render, input: { scene: 5 } });
});

describe("a tool whose output comes later", () => {
  test("may yield before, and what it waits for is not shown as one of its values", async () => {
    const { begun, context } = storedSteps();
    const model = simulatedModel({ answers: [{ tools: [["ask", {}]] }] });
    const ask = tool({
      inputSchema: z.object({}),
      execute: async function* () {
        yield "sending it";
        yield later({ afterMs: 999.5, output: { at: 5 } });
      },
    });
    const settings = durable(context(), { model, tools: { ask }, stopWhen: isStepCount(5) });
    const outputs: unknown[] = [];
    for await (const chunk of streamText({ ...settings, prompt: "go" }).toUIMessageStream()) {
      if (chunk.type === "tool-output-available") outputs.push(chunk.output);
    }
    expect(outputs).toEqual(["sending it", { later: true }, { later: true }]);
    expect(begun).toEqual([{ type: "time", afterMs: 1_000, output: { at: 5 } }]);
  });

  test("is a tool's error if the task refuses its input, and nothing is started", async () => {
    const { begun, rows, context } = storedSteps();
    const model = simulatedModel({ answers: [{ tools: [["film", {}]] }, { text: "sorry" }] });
    const contract = { name: "render", input: z.object({ scene: z.string() }), output: undefined };
    const film = tool({
      inputSchema: z.object({}),
      execute: () => later({ task: contract, input: { scene: 5 as unknown as string } }),
    });
    const settings = durable(context(), { model, tools: { film }, stopWhen: isStepCount(5) });
    const { text } = await generateText({ ...settings, prompt: "go" });
    expect(text).toBe("sorry");
    expect(begun).toEqual([]);
    expect(rows.get("film[1.call-0-0]")!.value).toContain("the input of");
  });

  test("keeps the limits of the task that it waits for", async () => {
    const { begun, context } = storedSteps();
    const model = simulatedModel({ answers: [{ tools: [["film", {}]] }] });
    const contract = {
      name: "render",
      input: undefined,
      output: undefined,
      concurrency: { limit: 2, key: ({ of }: { of: string }) => of },
    };
    const film = tool({
      inputSchema: z.object({}),
      execute: () => later({ task: contract, input: { of: "ada" } }),
    });
    const settings = durable(context(), { model, tools: { film }, stopWhen: isStepCount(5) });
    await generateText({ ...settings, prompt: "go" });
    const concurrency = { limit: 2, key: "ada" };
    expect(begun).toEqual([
      { type: "child", name: "render", isFlow: false, input: { of: "ada" }, concurrency },
    ]);
  });

  test("is refused if its schema can't be kept as JSON Schema", async () => {
    const { begun, rows, context } = storedSteps();
    const model = simulatedModel({ answers: [{ tools: [["ask", {}]] }, { text: "sorry" }] });
    const schema = z.object({ at: z.date() });
    const ask = tool({ inputSchema: z.object({}), execute: () => later({ signal: "s", schema }) });
    const settings = durable(context(), { model, tools: { ask }, stopWhen: isStepCount(5) });
    await generateText({ ...settings, prompt: "go" });
    expect(begun).toEqual([]);
    expect(rows.get("ask[1.call-0-0]")!.value).toContain("can't be written as JSON Schema");
  });
});
