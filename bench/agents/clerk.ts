import { isStepCount, streamText, tool } from "ai";
import { z } from "zod";
import { durable } from "../../src/durable/index.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { simulatedModel } from "../../src/testing/simulated-model.ts";

/** How many calls a turn has. Each of them asks for one tool. */
export const callsOfTurn = 10;
const wordsOfCall = 10;

export type ClerkOptions = {
  readonly name: string;
  readonly durable: boolean;
  /** Between two words. Default 0: the model costs no time. */
  readonly wordMs?: number;
  /** Called when the model is asked. */
  readonly onCall?: (sessionId: string, nth: number) => void;
  /** What every tool waits for. */
  readonly toolsWait?: Promise<unknown>;
};

/** An agent of ten calls and ten tools, whose words are numbered: the third of call 6 is `6.3`. */
export function clerk({ name, wordMs = 0, onCall, toolsWait, ...options }: ClerkOptions) {
  const look = tool({
    inputSchema: z.object({ nth: z.number() }),
    execute: async ({ nth }) => {
      await toolsWait;
      return `looked at ${nth}`;
    },
  });
  return agent(name, { history: { last: 1 } }, (context) => {
    // One for each turn, because a model remembers its calls.
    const model = simulatedModel({
      wordMs,
      answers: ({ toolResults }) => {
        const nth = toolResults + 1;
        onCall?.(context.sessionId, nth);
        const words = Array.from({ length: wordsOfCall }, (_, at) => `${nth}.${at + 1} `);
        return { text: words.join(""), tools: [["look", { nth }]] };
      },
    });
    const settings = { model, tools: { look }, stopWhen: isStepCount(callsOfTurn) };
    return streamText({
      ...(options.durable ? durable(context, settings) : settings),
      prompt: "go",
      abortSignal: context.signal,
    });
  });
}

/** The numbers of words in what came of an answer, in ascending order. */
export function* numbersOfWords(delta: string): Generator<number> {
  for (const [, call, word] of delta.matchAll(/(\d+)\.(\d+) /g)) yield numberOf(call!, word!);
}

/** The number of a word, greater than that of all words before it. */
export function numberOf(call: number | string, word: number | string): number {
  return Number(call) * (wordsOfCall + 1) + Number(word);
}
