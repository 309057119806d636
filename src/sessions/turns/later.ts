import { isJsonObject } from "../../base/json.ts";
import { type LaterMark, withLaterMark, withoutOwnMetadata } from "../../protocol/later.ts";
import type { Part, UIMessage } from "../../protocol/message.ts";
import type { LaterCall, LaterHost, LaterWait } from "../../steps/later.ts";
import type { NewTask } from "../../tasks/sql/enqueue.ts";
import type { AnswerStream } from "./call-url.ts";
import { AgentFailure } from "./failure.ts";

/** The turn whose tool waits. */
export type LaterTurn = {
  readonly sessionId: string;
  readonly tenant: string;
  readonly epoch: number;
  readonly agent: string;
  readonly messageId: string;
};

/** The tasks that a tool call of a turn waits for. They start with the record that stores its step. */
export type PrepareLater = (
  turn: LaterTurn,
  call: LaterCall,
  wait: LaterWait,
) => Promise<readonly NewTask[]>;

type Fields = Readonly<Record<string, unknown>>;

/**
 * The tools of one call of an agent's function whose outputs come later. Such a tool has no output in the
 * answer, which ends with the call open, as one does that a client is to run.
 */
export function createTurnLater(
  start: (call: LaterCall, wait: LaterWait) => Promise<void>,
  continued: UIMessage | undefined,
  nowMs: () => number,
) {
  /** What calls wait for, by their ids. */
  const marks = new Map<string, LaterMark>();
  const unmarked = new Set<string>();
  /** The inputs of calls, as the agent has sent them. */
  const inputs = new Map<string, Fields>();

  /** When what calls wait for was started, if that was now. */
  const begunMs = new Map<string, number>();

  const host: LaterHost = {
    async begin(call, wait) {
      begunMs.set(call.toolCallId, nowMs());
      await start(call, wait);
    },
    async output({ toolCallId }, wait) {
      marks.set(toolCallId, markOf(wait, begunMs.get(toolCallId) ?? nowMs()));
      unmarked.add(toolCallId);
      return undefined;
    },
  };

  /** The chunk that marks a call as waiting, in place of the one that has its output. */
  const marking = (toolCallId: string, mark: LaterMark): Fields | undefined => {
    const chunk = inputs.get(toolCallId) ?? inputOf(continued, toolCallId);
    if (!chunk) return undefined;
    unmarked.delete(toolCallId);
    return { ...chunk, providerMetadata: withLaterMark(chunk["providerMetadata"], mark) };
  };

  /** What is sent in place of a chunk; undefined if nothing is. */
  const replaced = (given: unknown): unknown => {
    if (!isJsonObject(given)) return given;
    // What a call waits for is believed without a question, so an agent can't say it itself.
    const chunk = withoutOwnMetadata(given);
    const { type, toolCallId } = chunk;
    if (typeof toolCallId !== "string") return chunk;
    if (type === "tool-input-available") inputs.set(toolCallId, chunk);
    const mark = marks.get(toolCallId);
    if (type !== "tool-output-available" || mark === undefined) return chunk;
    return chunk["preliminary"] === true ? undefined : marking(toolCallId, mark);
  };

  return {
    host,
    /** The answer with waiting calls marked, and no others, and without the step in which the model said nothing. */
    read({ chunks, ...stream }: AnswerStream): AnswerStream {
      let held: unknown;
      let next: { readonly value: unknown } | undefined;
      let isCut = false;

      const take = async (): Promise<IteratorResult<unknown, unknown>> => {
        for (;;) {
          if (next) {
            const { value } = next;
            next = undefined;
            return { done: false, value };
          }
          const given = await chunks.next();
          if (given.done === true) {
            const [missing] = isCut ? [] : unmarked;
            if (missing !== undefined) throw missingCall(missing);
            return given;
          }
          const chunk = replaced(given.value);
          if (chunk === undefined) continue;
          const type = isJsonObject(chunk) ? chunk["type"] : undefined;
          isCut ||= type === "error" || type === "abort";
          if (held === undefined) {
            if (marks.size === 0 || type !== "start-step") return { done: false, value: chunk };
            held = chunk;
            continue;
          }
          const start = held;
          held = undefined;
          if (type === "finish-step") continue;
          next = { value: chunk };
          return { done: false, value: start };
        }
      };
      return { ...stream, chunks: { next: take, return: async () => leave(chunks) } };
    },
  };
}

async function leave(chunks: AsyncIterator<unknown, unknown>): Promise<IteratorResult<unknown>> {
  return (await chunks.return?.()) ?? { done: true, value: undefined };
}

function markOf(wait: LaterWait, sinceMs: number): LaterMark {
  switch (wait.type) {
    case "child":
      return { task: wait.name };
    case "time":
      return {};
    case "signal": {
      const { signal, schema, timeoutMs } = wait;
      return {
        signal,
        ...(schema !== undefined && { schema }),
        ...(timeoutMs !== undefined && { untilMs: sinceMs + timeoutMs }),
      };
    }
  }
}

/** The input of a call in the message that the answer continues, such as one that was approved. */
function inputOf(message: UIMessage | undefined, toolCallId: string): Fields | undefined {
  const part = message?.parts.findLast((each) => each["toolCallId"] === toolCallId);
  if (!part) return undefined;
  const { input, title, callProviderMetadata } = part;
  return {
    type: "tool-input-available",
    toolCallId,
    ...toolOf(part),
    input,
    ...(title !== undefined && { title }),
    ...(callProviderMetadata !== undefined && { providerMetadata: callProviderMetadata }),
  };
}

function toolOf(part: Part): Fields {
  if (part.type === "dynamic-tool") return { toolName: part["toolName"], dynamic: true };
  return { toolName: part.type.slice("tool-".length) };
}

function missingCall(toolCallId: string): AgentFailure {
  const call = JSON.stringify(toolCallId.slice(0, 80));
  return new AgentFailure(
    "agent_invalid",
    `the output of tool call ${call} comes later, but the answer doesn't have the call: return what streamText gives, and not its text`,
  );
}
