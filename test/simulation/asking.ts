/**
 * Durable agents as tasks: calls to a model, tools that they ask for, an agent within one of the tools, and a
 * budget. The loop around them does what the AI SDK does: a tool begins when its call is seen in the stream.
 */
import { durable, type DurableContext, stepOf } from "../../src/durable/index.ts";
import type { StepContext } from "../../src/steps/model.ts";
import type { StepLedger } from "./steps.ts";

type Claim = { readonly taskId: string; readonly token: number };

export type AskingScene = {
  readonly claim: Claim;
  readonly ledger: StepLedger;
  /** The function of the step with this key. */
  does(
    key: string,
    body?: (context: StepContext) => Promise<string>,
  ): (context: StepContext) => Promise<string>;
  work(durationMs: number): Promise<void>;
};

type Part = { readonly type: string } & Readonly<Record<string, unknown>>;
type Asked = { readonly prompt: readonly string[]; readonly tools?: unknown };
type ToolCall = { readonly name: string; readonly id: string };
type Tool = {
  readonly execute: (input: unknown, options: { toolCallId: string }) => Promise<unknown>;
};

/** What tools a call asks for, by its number. */
type Plan = (nth: number) => readonly ToolCall[];

const budget = { calls: 6 };
/** More calls than the budget allows. */
const outerPlan: Plan = (nth) => {
  if (nth === 1) return [look("a"), look("b")];
  if (nth === 2) return [{ name: "research", id: "a" }, look("b")];
  return nth < 10 ? [look("a")] : [];
};
const innerPlan: Plan = (nth) => (nth === 1 ? [look("a")] : []);

function look(id: string): ToolCall {
  return { name: "look", id };
}

/** Runs the agent of a task. */
export function runAsking(step: DurableContext["step"], scene: AskingScene): Promise<string> {
  return converse({ step }, scene, { prefix: "", plan: outerPlan, budget });
}

type Agent = { readonly prefix: string; readonly plan: Plan; readonly budget?: typeof budget };

/** Calls the model, and the tools that it asks for, until it asks for none. */
async function converse(
  context: DurableContext,
  scene: AskingScene,
  { prefix, plan, budget: most }: Agent,
): Promise<string> {
  const { claim, ledger, does } = scene;
  const model = modelOf(scene, { prefix, plan, ...(most && { budget: most }) });
  const toolOf = (name: string, body?: (within: StepContext) => Promise<string>): Tool => ({
    execute: (nth, options) => {
      const call = `${prefix}model[${String(nth)}]`;
      const key = `${prefix}${name}[${String(nth)}.${options.toolCallId}]`;
      ledger.toolBegins(claim, key, call);
      return does(key, body)(stepOf(options));
    },
  });
  const tools = {
    look: toolOf("look"),
    research: toolOf("research", (within) => {
      const inner = `${prefix}research[2.a]/`;
      return converse(within, scene, { prefix: inner, plan: innerPlan });
    }),
  };
  const wrapped = durable(context, { model, tools }, most && { budget: most });
  const prompt: string[] = [];
  for (let nth = 1; ; nth++) {
    const { stream } = await wrapped.model.doStream({ prompt, tools: Object.keys(tools) });
    const running: Promise<unknown>[] = [];
    let text = "";
    for await (const part of stream) {
      if (part.type === "error") throw part["error"];
      if (part.type === "text-delta") text += String(part["delta"]);
      if (part.type !== "tool-call") continue;
      const { execute } = wrapped.tools[part["toolName"] as keyof typeof tools];
      const output = execute(nth, { toolCallId: String(part["toolCallId"]) });
      output.catch(() => {});
      running.push(output);
    }
    ledger.answered(claim, `${prefix}model[${nth}]`, text);
    if (running.length === 0) return text;
    const outputs = await Promise.all(running.map((output) => output.catch(told)));
    prompt.push(outputs.join());
  }
}

/** What a tool threw is told to the model; all else ends the attempt. */
function told(error: unknown): string {
  if (error instanceof Error && error.message.endsWith("fails at first")) return error.message;
  throw error;
}

/** A model that asks for the tools of its plan, as long as it is given any. */
function modelOf(
  { claim, ledger, does, work }: AskingScene,
  { prefix, plan, budget: most }: Agent,
) {
  async function* speak({ prompt, tools }: Asked, context: StepContext): AsyncGenerator<Part> {
    const nth = prompt.length + 1;
    const key = `${prefix}model[${nth}]`;
    if (most) ledger.callBegins(claim, { ...most, hasTools: tools !== undefined });
    yield { type: "stream-start", warnings: [] };
    yield { type: "text-start", id: "text" };
    yield { type: "text-delta", id: "text", delta: await does(key)(context) };
    yield { type: "text-end", id: "text" };
    for (const { name, id } of tools === undefined ? [] : plan(nth)) {
      yield { type: "tool-call", toolCallId: id, toolName: name, input: "{}" };
    }
    await work(50);
    yield { type: "finish", usage: { inputTokens: { total: 10 }, outputTokens: { total: 1 } } };
  }
  const noContext = {} as StepContext;
  return {
    modelId: "simulated",
    doGenerate: () => Promise.reject(new Error("all calls are streams")),
    async doStream(asked: Asked): Promise<{ stream: ReadableStream<Part> }> {
      const parts = speak(asked, noContext);
      const stream = new ReadableStream<Part>({
        async pull(controller) {
          try {
            const next = await parts.next();
            if (next.done) controller.close();
            else controller.enqueue(next.value);
          } catch (error) {
            controller.enqueue({ type: "error", error });
            controller.close();
          }
        },
      });
      return { stream };
    },
  };
}
