import type { AgentAnswer } from "../protocol/agent-http.ts";
import type { Chunk } from "../protocol/chunk.ts";
import { agent } from "../sessions/agents/agent.ts";
import type { AgentOptions } from "../sessions/agents/options.ts";
import type { Life } from "./crash.ts";
import type { AgentContext, AgentSpec } from "../sessions/agents/spec.ts";

/**
 * The answer of one turn: a text; a list of texts and chunks, in which promises are awaited; an error to
 * throw; or a function, as for `agent`.
 */
export type ScriptedAnswer =
  | string
  | Error
  | readonly (string | Chunk | Promise<unknown>)[]
  | ((context: AgentContext) => AgentAnswer | PromiseLike<AgentAnswer>);

export type ScriptedAgent = AgentSpec & {
  /** The contexts of all calls, in their order. */
  readonly calls: readonly AgentContext[];
};

/**
 * An agent with scripted answers: the first one in the first turn of each session, the second in the next.
 * A turn that is retried, after a crash or a failure, gets the same answer again.
 */
export function scriptedAgent(
  name: string,
  answers: readonly ScriptedAnswer[],
  options: AgentOptions = {},
): ScriptedAgent {
  const calls: AgentContext[] = [];
  const turns = new Map<string, number[]>();

  const next = ({ sessionId, epoch }: AgentContext): ScriptedAnswer => {
    const epochs = turns.get(sessionId) ?? [];
    turns.set(sessionId, epochs);
    if (!epochs.includes(epoch)) epochs.push(epoch);
    const found = answers[epochs.indexOf(epoch)];
    if (found !== undefined) return found;
    // An error chunk, because the text of a thrown error isn't shown in the session.
    const errorText = `the script of agent "${name}" ends after ${answers.length} answers`;
    return [{ type: "error", errorText }];
  };
  const spec = agent(name, options, (context) => {
    calls.push(context);
    const answer = next(context);
    if (answer instanceof Error) throw answer;
    if (typeof answer === "function") return answer(context);
    return typeof answer === "string" ? answer : inTurn(answer);
  });
  return { ...spec, calls };
}

async function* inTurn(pieces: readonly (string | Chunk | Promise<unknown>)[]) {
  for (const piece of pieces) {
    if (piece instanceof Promise) await piece;
    else yield piece as string | Chunk;
  }
}

/** The sessions in which an agent is answering, so that the clock isn't moved meanwhile. */
type Answering = {
  has(sessionId: string): boolean;
  begin(sessionId: string, signal: AbortSignal): () => void;
};

export function createAnswering(): Answering {
  const all = new Set<{ readonly sessionId: string; readonly signal: AbortSignal }>();
  return {
    has: (sessionId) =>
      // An aborted answer doesn't count: nothing waits for it.
      [...all].some((each) => each.sessionId === sessionId && !each.signal.aborted),
    begin(sessionId, signal) {
      const one = { sessionId, signal };
      all.add(one);
      return () => void all.delete(one);
    },
  };
}

/** Wraps an agent, so that its pod can crash while it answers. */
export function mortalAgent(spec: AgentSpec, life: Life, answering: Answering): AgentSpec {
  const { source, compaction } = spec;
  const mortal = <Context extends Pick<AgentContext, "sessionId" | "signal">>(
    run: (context: Context) => AgentAnswer | PromiseLike<AgentAnswer>,
  ) => {
    return async (context: Context): Promise<AgentAnswer> => {
      life.reach("started");
      if (!life.alive) return never();
      const done = answering.begin(context.sessionId, context.signal);
      try {
        const answer = await run(context);
        const watched = inPieces(answer, (pieces) => watch(pieces, life, done));
        if (watched) return watched;
        done();
        return await ended(life, answer);
      } catch (error) {
        done();
        return ended(life, Promise.reject(error as Error));
      }
    };
  };
  return {
    ...spec,
    source: source.type === "function" ? { ...source, run: mortal(source.run) } : source,
    compaction:
      compaction?.source.type === "function"
        ? { ...compaction, source: { ...compaction.source, run: mortal(compaction.source.run) } }
        : compaction,
  };
}

type Pieces = AsyncIterable<unknown> | Iterable<unknown>;

/** Wraps the pieces of an answer. Undefined for texts and messages, which have none. */
function inPieces(
  answer: AgentAnswer,
  watch: (pieces: Pieces) => AsyncGenerator<never>,
): AgentAnswer | undefined {
  if (typeof answer !== "object" || answer === null) return undefined;
  if (answer instanceof Response) {
    const { status, headers, body } = answer;
    return body ? new Response(ReadableStream.from(watch(body)), { status, headers }) : undefined;
  }
  if ("toUIMessageStream" in answer) {
    return { toUIMessageStream: (options) => watch(answer.toUIMessageStream(options) as Pieces) };
  }
  if (Symbol.asyncIterator in answer || Symbol.iterator in answer) return watch(answer as Pieces);
  return undefined;
}

async function* watch(pieces: Pieces, life: Life, done: () => void): AsyncGenerator<never> {
  try {
    for await (const piece of pieces) {
      if (!life.alive) await never();
      yield piece as never;
      // The consumer has asked for the next piece, so this one is on its way to subscribers.
      life.reach("chunk");
      if (!life.alive) await never();
    }
    life.reach("ran");
    if (!life.alive) await never();
  } finally {
    done();
  }
}

function ended(life: Life, answer: AgentAnswer | Promise<never>): Promise<AgentAnswer> {
  life.reach("ran");
  return life.alive ? Promise.resolve(answer) : never();
}

function never(): Promise<never> {
  return new Promise(() => {});
}
