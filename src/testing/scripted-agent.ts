import type { AgentAnswer } from "../protocol/agent-http.ts";
import type { Chunk } from "../protocol/chunk.ts";
import { agent, type AgentContext, type AgentSpec } from "../sessions/agents/agent.ts";
import type { AgentOptions } from "../sessions/agents/options.ts";
import type { Life } from "./crash.ts";

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

/** Which sessions somebody answers in right now, so that no clock is moved under an agent's feet. */
type Answering = {
  has(sessionId: string): boolean;
  begin(sessionId: string, signal: AbortSignal): () => void;
};

export function createAnswering(): Answering {
  const all = new Set<{ readonly sessionId: string; readonly signal: AbortSignal }>();
  return {
    has: (sessionId) =>
      // One that was told to end is waited for by nobody.
      [...all].some((each) => each.sessionId === sessionId && !each.signal.aborted),
    begin(sessionId, signal) {
      const one = { sessionId, signal };
      all.add(one);
      return () => void all.delete(one);
    },
  };
}

/** The same agent on a pod that may crash while it answers. */
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
        const given = await run(context);
        const watched = inPieces(given, (pieces) => watch(pieces, life, done));
        if (watched) return watched;
        done();
        return await ended(life, given);
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

/** The same answer with its pieces watched, where it has some: a text and a message come whole. */
function inPieces(
  given: AgentAnswer,
  watch: (pieces: Pieces) => AsyncGenerator<never>,
): AgentAnswer | undefined {
  if (typeof given !== "object" || given === null) return undefined;
  if (given instanceof Response) {
    const { status, headers, body } = given;
    return body ? new Response(ReadableStream.from(watch(body)), { status, headers }) : undefined;
  }
  if ("toUIMessageStream" in given) {
    return { toUIMessageStream: (options) => watch(given.toUIMessageStream(options) as Pieces) };
  }
  if (Symbol.asyncIterator in given || Symbol.iterator in given) return watch(given as Pieces);
  return undefined;
}

async function* watch(pieces: Pieces, life: Life, done: () => void): AsyncGenerator<never> {
  try {
    for await (const piece of pieces) {
      if (!life.alive) await never();
      yield piece as never;
      // By now the one before is on its way to whoever watches.
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
