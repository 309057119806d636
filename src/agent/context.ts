import type { AgentRequest } from "../protocol/agent-http.ts";
import type { UIMessage } from "../protocol/message.ts";
import { type Refusal, refusal } from "./refusal.ts";
import type { Verified } from "./verify.ts";

/** What an agent behind a URL is given: what a function in a pod is given, as far as a request can carry it. */
export type AnswerContext<Message = UIMessage> = {
  /** What was said, as the agent's `history` and `context` have it; the newest is last. */
  readonly messages: Message[];
  readonly sessionId: string;
  readonly tenant: string;
  /** The name by which it was asked. */
  readonly agent: string;
  /** Who wrote the message that is answered. */
  readonly user?: string;
  /** The turn. It rises with every one, so what comes from an older turn can be told. */
  readonly epoch: number;
  /** Rises when another pod starts the same turn over. */
  readonly attempt: number;
  /** The last entry of the session that it is told of. */
  readonly seq: number;
  /** `compact` asks for a summary of `messages`, of agents that are named as compactors. */
  readonly trigger: AgentRequest["trigger"];
  /** The message that is made anew or gone on with. */
  readonly messageId?: string;
  /** The summary of what was said before `messages`. */
  readonly summary?: string;
  /** The same for every try of this turn, and for no other: what was done for it is to be done once. */
  readonly webhookId: string;
  /** Fires when nobody wants the answer any more: pass it on to the model. */
  readonly signal: AbortSignal;
  /** The request itself, for its headers. Its body was read. */
  readonly request: Request;
};

const triggers = ["submit-message", "regenerate-message", "compact"];

/** What was asked, or why that can't be told. */
export function readAsked<Message>(
  { body, webhookId }: Verified,
  rest: Pick<AnswerContext, "signal" | "request">,
): AnswerContext<Message> | Refusal {
  const asked = parsed(body);
  if (!asked) {
    return refusal(400, "invalid_input", "the body isn't what Flotilla asks an agent with");
  }
  const { messages, trigger, messageId, flotilla } = asked;
  const { sessionId, tenant, agent, user, epoch, attempt, seq, summary } = flotilla;
  return {
    messages: messages as unknown as Message[],
    sessionId,
    tenant,
    agent,
    ...(user !== undefined && { user }),
    epoch,
    attempt,
    seq,
    trigger,
    ...(messageId !== undefined && { messageId }),
    ...(summary !== undefined && { summary }),
    webhookId,
    ...rest,
  };
}

function parsed(body: string): AgentRequest | undefined {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    return undefined;
  }
  const { messages, trigger, flotilla } = (value ?? {}) as Partial<AgentRequest>;
  const { sessionId, tenant, agent, epoch, attempt, seq } = (flotilla ?? {}) as Partial<
    AgentRequest["flotilla"]
  >;
  const fits =
    Array.isArray(messages) &&
    triggers.includes(trigger ?? "") &&
    [sessionId, tenant, agent].every((each) => typeof each === "string") &&
    [epoch, attempt, seq].every((each) => typeof each === "number");
  return fits ? (value as AgentRequest) : undefined;
}
