import { systemClock } from "../base/clock.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import type { AgentAnswer } from "../protocol/agent-http.ts";
import type { UIMessage } from "../protocol/message.ts";
import { chunksOf } from "./chunks.ts";
import { type AnswerContext, readAsked } from "./context.ts";
import { type Refusal, refusal, refuse } from "./refusal.ts";
import { streamed } from "./stream.ts";
import { createVerifier, type Verified, type VerifyOptions } from "./verify.ts";

export type AgentHandlerOptions<Message = UIMessage> = VerifyOptions & {
  /** Makes the answer. */
  answer: (context: AnswerContext<Message>) => AgentAnswer | PromiseLike<AgentAnswer>;
  /**
   * Is told what `answer` threw. Text that it gives is what users read, and final; otherwise they learn
   * only that something went wrong, and where nothing was said yet the agent is asked again. Default: it
   * is written to the console.
   */
  onError?: (
    error: unknown,
    context: AnswerContext<Message>,
  ) => string | undefined | void | PromiseLike<string | undefined | void>;
  /** How long nothing may be said before a comment says that the answer is still made. Default 10 seconds. */
  keepAliveMs?: number;
};

/** Answers a request as Next.js, Hono, Bun, Deno and Workers hand it in; for Node there is `toNode`. */
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

/** An agent behind a URL: lets in only what is signed, and streams the answer as the AI SDK does. */
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
    const context = readAsked<Message>(verified, { signal: gone.signal, request });
    if ("ok" in context) return refuse(context);
    const explain = async (error: unknown): Promise<string | undefined> => {
      if (isMeantToBeRead(error)) return messageOf(error, 1_000);
      try {
        const told = await onError(error, context);
        return typeof told === "string" && told !== "" ? told : undefined;
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
    return refusal(405, "invalid_input", `an agent is asked by POST, not ${request.method}`);
  }
  try {
    return await check(request);
  } catch (error) {
    if (!(error instanceof FlotillaError)) {
      return refusal(400, "invalid_input", "the body couldn't be read");
    }
    report(error);
    return refusal(500, error.code, error.message);
  }
}

/** Fires with the request's own signal, and may fire before. */
function goneWith(signal: AbortSignal | undefined): AbortController {
  const gone = new AbortController();
  const leave = () => gone.abort(signal?.reason);
  if (signal?.aborted) leave();
  else signal?.addEventListener("abort", leave, { once: true });
  return gone;
}

/** What `abort(reason)` made, by whichever copy of this package. */
function isMeantToBeRead(error: unknown): boolean {
  return error instanceof Error && (error as Partial<FlotillaError>).code === "aborted";
}

function report(error: unknown): void {
  console.error("flotilla/agent:", error);
}
