import type { Json } from "../../base/json.ts";
import type { Logger } from "../../base/log.ts";
import type { AgentAnswer } from "../../protocol/agent-http.ts";
import type { UIMessage } from "../../protocol/message.ts";

/** What an agent's function is given. */
export type AgentContext<Message = UIMessage> = {
  /** What was said, as the agent's `history` and `context` have it; the newest is last. */
  readonly messages: readonly Message[];
  readonly sessionId: string;
  readonly tenant: string;
  /** Who wrote the message that is answered. */
  readonly user?: string;
  /** The turn. It rises with every one, so what comes from an older turn can be told. */
  readonly epoch: number;
  /** Rises when another pod starts the same turn over. */
  readonly attempt: number;
  /** Fires when nobody wants the answer any more: pass it on to the model. */
  readonly signal: AbortSignal;
  readonly log: Logger;
  readonly trigger: "submit-message" | "regenerate-message";
  /** The id that the answer has in user interfaces. */
  readonly messageId: string;
  /** The summary of what was said before `messages`; it is among them too, as a system message. */
  readonly summary?: string;
  /** Enqueues a task, once however often the turn is started over. */
  readonly enqueue: TurnCall<{ readonly taskId: string }>;
  /** Starts a run of a flow, once however often the turn is started over. */
  readonly start: TurnCall<{ readonly runId: string }>;
};

/** Something named, done with an input once per turn. */
export type TurnCall<Made> = (
  what: string | { readonly name: string },
  input: Json,
  options?: {
    /** Tells apart what has the same name and input: the id of the tool call that asks for it. */
    readonly toolCallId?: string;
  },
) => Promise<Made>;

export type AgentFunction<Message = UIMessage> = (
  context: AgentContext<Message>,
) => AgentAnswer | PromiseLike<AgentAnswer>;

/** What a compactor's function is given. */
export type CompactorContext = Pick<
  AgentContext,
  "sessionId" | "tenant" | "epoch" | "attempt" | "signal" | "log" | "summary"
> & {
  /** What is to be summed up, without the last summary, which is in `summary`. */
  readonly messages: readonly UIMessage[];
};

/** Gives the summary, in any of the ways in which an agent answers. */
export type CompactorFunction = (
  context: CompactorContext,
) => AgentAnswer | PromiseLike<AgentAnswer>;
