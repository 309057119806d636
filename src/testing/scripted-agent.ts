import type { Chunk } from "../protocol/chunk.ts";
import { agent, type AgentContext, type AgentSpec } from "../sessions/agents/agent.ts";
import type { AgentAnswer } from "../protocol/agent-http.ts";
import type { AgentOptions } from "../sessions/agents/options.ts";

/**
 * What is answered in one turn: a text; texts and chunks one by one, where a promise is waited for before
 * it goes on; an error that is thrown; or a function, as an agent has.
 */
export type ScriptedAnswer =
  | string
  | Error
  | readonly (string | Chunk | Promise<unknown>)[]
  | ((context: AgentContext) => AgentAnswer | PromiseLike<AgentAnswer>);

export type ScriptedAgent = AgentSpec & {
  /** What it was asked with, each call in its turn. */
  readonly asked: readonly AgentContext[];
};

/**
 * An agent that says what a test wants to hear: the first answer in the first turn of each session, the
 * second in the next. A turn that is started over, after a crash or a failure, gets the same answer again.
 */
export function scriptedAgent(
  name: string,
  answers: readonly ScriptedAnswer[],
  options: AgentOptions = {},
): ScriptedAgent {
  const asked: AgentContext[] = [];
  const turns = new Map<string, number[]>();

  const next = ({ sessionId, epoch }: AgentContext): ScriptedAnswer => {
    const epochs = turns.get(sessionId) ?? [];
    turns.set(sessionId, epochs);
    if (!epochs.includes(epoch)) epochs.push(epoch);
    const found = answers[epochs.indexOf(epoch)];
    if (found !== undefined) return found;
    // What is thrown isn't shown to users; what an agent says of itself is, so a test's author sees why.
    const errorText = `the script of agent "${name}" ends after ${answers.length} answers`;
    return [{ type: "error", errorText }];
  };
  const spec = agent(name, options, (context) => {
    asked.push(context);
    const answer = next(context);
    if (answer instanceof Error) throw answer;
    if (typeof answer === "function") return answer(context);
    return typeof answer === "string" ? answer : inTurn(answer);
  });
  return { ...spec, asked };
}

async function* inTurn(pieces: readonly (string | Chunk | Promise<unknown>)[]) {
  for (const piece of pieces) {
    if (piece instanceof Promise) await piece;
    else yield piece as string | Chunk;
  }
}
