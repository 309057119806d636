import type { Clock } from "../../base/clock.ts";
import type { AgentRequest } from "../../protocol/agent-http.ts";
import type { UrlSource } from "../agents/spec.ts";
import { AgentFailure } from "./failure.ts";
import type { Pieces } from "./given.ts";
import type { AgentNetwork } from "./network.ts";
import { type Body, readBody } from "./read-body.ts";
import { signatureHeaders, webhookIdOf } from "./sign.ts";

export type UrlCall = {
  readonly source: UrlSource;
  readonly request: AgentRequest;
  readonly network: AgentNetwork;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Something has come in. */
  readonly touch: () => void;
  /** Default: as chunks. */
  readonly read?: (answer: Body, touch: () => void) => AsyncGenerator<unknown>;
};

/** Asks an agent at a URL. Rejects with an `AgentFailure` where it gives no answer that can be read. */
export async function callUrl(call: UrlCall): Promise<Pieces> {
  const { source, request, network, clock, signal, touch, read = readBody } = call;
  const body = JSON.stringify(request);
  const { sessionId, epoch } = request.flotilla;
  const headers = {
    accept: "text/event-stream, application/x-ndjson, application/json;q=0.5",
    ...source.headers,
    "accept-encoding": "identity",
    "content-type": "application/json",
    ...signatureHeaders({
      webhookId: webhookIdOf(sessionId, epoch),
      nowMs: clock.now(),
      body,
      secrets: source.secrets,
    }),
  };
  const { url, allowPrivate } = source;
  const answer = await network
    .post({ url, headers, body, allowPrivate, signal })
    .catch((error: unknown) => {
      throw unreachable(error);
    });
  touch();
  return { chunks: read({ ...answer, nowMs: clock.now() }, touch), endsByItself: false };
}

function unreachable(error: unknown): AgentFailure {
  if (error instanceof AgentFailure) return error;
  const found = (error as { cause?: unknown } | undefined)?.cause;
  if (found instanceof AgentFailure) return found;
  // The reason names addresses, which are for the log.
  return new AgentFailure("agent_unreachable", "the agent can't be reached", {
    retryable: true,
    cause: error,
  });
}
