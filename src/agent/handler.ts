import { systemClock } from "../base/clock.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import type { AgentAnswer, AgentRequest } from "../protocol/agent-http.ts";
import type { UIMessage } from "../protocol/message.ts";
import { chunksOf, streamed } from "./stream.ts";
import { type Refusal, createRefusal, refuse } from "./refusal.ts";
import { createVerifier, type Verified, type VerifyOptions } from "./verify.ts";

export type AgentHandlerOptions<Message = UIMessage> = VerifyOptions & {
  /** Makes the answer. */
  answer: (context: AnswerContext<Message>) => AgentAnswer | PromiseLike<AgentAnswer>;
  /**
   * Called with what `answer` threw. Text that it returns is shown to users, and is final. Otherwise users
   * learn only that something went wrong, and the agent is called again if the answer had not begun.
   * Default: writes the error to the console.
   */
  onError?: (
    error: unknown,
    context: AnswerContext<Message>,
  ) => string | undefined | void | PromiseLike<string | undefined | void>;
  /** How long no chunk may come before a keep-alive comment is sent. Default 10 seconds. */
  keepAliveMs?: number;
};

/** The context of an agent behind a URL: that of a function in a pod, as far as a request can carry it. */
export type AnswerContext<Message = UIMessage> = {
  /** The conversation as the agent's `history` and `context` select it; the newest message is last. */
  readonly messages: Message[];
  readonly sessionId: string;
  readonly tenant: string;
  /** The name under which the agent was called. */
  readonly agent: string;
  /** The author of the message that is answered. */
  readonly user?: string;
  /** The number of the turn. It rises with every turn, so that output of an older one can be recognised. */
  readonly epoch: number;
  /** Rises when another pod starts the same turn over. */
  readonly attempt: number;
  /** The last entry of the session that `messages` cover. */
  readonly seq: number;
  /** `compact` requests a summary of `messages`, from agents that are used as compactors. */
  readonly trigger: AgentRequest["trigger"];
  /** The message that is regenerated or continued. */
  readonly messageId?: string;
  /** The summary of everything before `messages`. */
  readonly summary?: string;
  /** The same for every try of this turn, and unique to it: use it to do side effects once. */
  readonly webhookId: string;
  /** Aborts when the answer is no longer wanted: pass it on to the model. */
  readonly signal: AbortSignal;
  /** The request itself, for its headers. Its body has been read. */
  readonly request: Request;
};

/** Handles a request of Next.js, Hono, Bun, Deno or Workers; for Node there is `toNode`. */
export type AgentHandler = (request: Request) => Promise<Response>;

const optionNames = [
  "secret",
  "toleranceMs",
  "maxBytes",
  "clock",
  "answer",
  "onError",
  "keepAliveMs",
];

const triggers = ["submit-message", "regenerate-message", "compact"];

/** An agent behind a URL: accepts only signed requests, and streams the answer as the AI SDK does. */
export function createAgentHandler<Message = UIMessage>(
  options: AgentHandlerOptions<Message>,
): AgentHandler {
  checkOptions("createAgentHandler", options, optionNames);
  const { answer, onError = report, keepAliveMs = 10_000, clock = systemClock } = options;
  if (typeof answer !== "function") {
    throw new FlotillaError("invalid_option", "createAgentHandler: answer must be a function");
  }
  checkNumber("createAgentHandler: keepAliveMs", keepAliveMs, { min: 1, max: 3_600_000 });
  const check = createVerifier(options);

  return async (request) => {
    const verified = await admit(request, check);
    if (!verified.ok) return refuse(verified);
    const gone = goneWith(request.signal);
    const context = readRequest<Message>(verified, { signal: gone.signal, request });
    if ("ok" in context) return refuse(context);
    const explain = async (error: unknown): Promise<string | undefined> => {
      if (isMeantToBeRead(error)) return messageOf(error, 1_000);
      try {
        const text = await onError(error, context);
        return typeof text === "string" && text !== "" ? text : undefined;
      } catch (another) {
        report(another);
        return undefined;
      }
    };
    const chunks = chunksOf(() => answer(context));
    return streamed(chunks, { clock, keepAliveMs, gone, explain });
  };
}

async function admit(
  request: Request,
  check: ReturnType<typeof createVerifier>,
): Promise<Verified | Refusal> {
  if (request.method !== "POST") {
    return createRefusal(405, "invalid_input", `an agent is called by POST, not ${request.method}`);
  }
  try {
    return await check(request);
  } catch (error) {
    if (!(error instanceof FlotillaError)) {
      return createRefusal(400, "invalid_input", "cannot read the body");
    }
    report(error);
    return createRefusal(500, error.code, error.message);
  }
}

/** Aborts with the request's own signal, or earlier. */
function goneWith(signal: AbortSignal | undefined): AbortController {
  const gone = new AbortController();
  const leave = () => gone.abort(signal?.reason);
  if (signal?.aborted) leave();
  else signal?.addEventListener("abort", leave, { once: true });
  return gone;
}

/** True for errors made by `abort(reason)`, of any copy of this package. */
function isMeantToBeRead(error: unknown): boolean {
  return error instanceof Error && (error as Partial<FlotillaError>).code === "aborted";
}

function report(error: unknown): void {
  console.error("flotilla/agent:", error);
}

/** The context in the request's body, or a refusal. */
function readRequest<Message>(
  { body, webhookId }: Verified,
  rest: Pick<AnswerContext, "signal" | "request">,
): AnswerContext<Message> | Refusal {
  const agentRequest = parsed(body);
  if (!agentRequest) {
    return createRefusal(400, "invalid_input", "the body is not a request of Flotilla to an agent");
  }
  const { messages, trigger, messageId, flotilla } = agentRequest;
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
