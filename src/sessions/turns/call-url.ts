import { createHash, createHmac } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { type AgentRequest, secretKey } from "../../protocol/agent-http.ts";
import { type BodyItem, createBodyReader, formatOf } from "../../protocol/stream.ts";
import { readLimitHeaders } from "../../throttles/rate-headers.ts";
import type { UrlSource } from "../agents/agent.ts";
import { AgentFailure } from "./failure.ts";
import type { AnswerStream } from "./call-function.ts";
import type { AgentNetwork, PostResponse } from "./network.ts";

type UrlCall = {
  readonly source: UrlSource;
  readonly request: AgentRequest;
  readonly network: AgentNetwork;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Something has come in. */
  readonly touch: () => void;
  /** Default: as chunks. */
  readonly read?: (answer: AnswerBody, touch: () => void) => AsyncGenerator<unknown>;
};

/** Asks an agent at a URL. Rejects with an `AgentFailure` where it gives no answer that can be read. */
export async function callUrl(call: UrlCall): Promise<AnswerStream> {
  const { source, request, network, clock, signal, touch, read = readAnswerBody } = call;
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

type SignatureInput = {
  readonly webhookId: string;
  readonly nowMs: number;
  readonly body: string;
  readonly secrets: readonly string[];
};

/** The headers by which an agent knows a request for ours, after Standard Webhooks. */
export function signatureHeaders({
  webhookId,
  nowMs,
  body,
  secrets,
}: SignatureInput): Record<string, string> {
  const timestamp = String(Math.floor(nowMs / 1_000));
  const signed = `${webhookId}.${timestamp}.${body}`;
  const signatures = secrets.map((secret) => {
    const key = secretKey("the agent", secret);
    return `v1,${createHmac("sha256", key).update(signed).digest("base64")}`;
  });
  return {
    "webhook-id": webhookId,
    "webhook-timestamp": timestamp,
    ...(signatures.length > 0 && { "webhook-signature": signatures.join(" ") }),
  };
}

/**
 * The same for every try of every runner at the same work, and for nothing else. Session ids may hold
 * what a header can't.
 */
export function webhookIdOf(sessionId: string, epoch: number): string {
  const plain = `${sessionId}:${epoch}`;
  if (/^[A-Za-z0-9_:-]{1,128}$/.test(plain)) return plain;
  return createHash("sha256").update(plain).digest("hex");
}

export type AnswerBody = Omit<PostResponse, "body"> & {
  readonly body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
  /** Since 1970, to read what it says about when to come back. */
  readonly nowMs: number;
};

// A message takes far less, but what is shown on the way to it may be replaced many times.
const maxBodyBytes = 64 * 1024 * 1024;
const lineFeed = 0x0a;

/** The chunks of an answer's body. Throws an `AgentFailure` where it is no answer, or stops being one. */
export async function* readAnswerBody(
  answer: AnswerBody,
  touch: () => void,
): AsyncGenerator<unknown> {
  checkStatus(answer);
  const format = formatOf(headerOf(answer, "content-type"));
  if (!format || !isUncompressed(answer)) throw notAnAnswer(answer);
  const reader = createBodyReader({ format });
  for await (const bytes of limitedBytes(answer)) {
    // A line that never ends counts for nothing, or it could drip in for ever.
    if (bytes.includes(lineFeed)) touch();
    for (const item of reader.push(bytes)) {
      if (item.type === "done") return;
      yield chunkOf(item);
    }
  }
  for (const item of reader.end()) {
    if (item.type === "done") return;
    // What can't be read at the very end is what was cut off.
    if (item.type === "error" && !item.fatal) throw agentDied();
    yield chunkOf(item);
  }
}

/** Refuses every status but those of success, and says whether another try might help. */
export function checkStatus({ status, headers, nowMs }: AnswerBody): void {
  if (status >= 200 && status < 300) return;
  if (status >= 300 && status < 400) {
    const message = `the agent answered with a redirect (${status}), which isn't followed`;
    throw new AgentFailure("agent_refused", message, { status, headers });
  }
  throw new AgentFailure("agent_refused", `the agent answered with the status ${status}`, {
    status,
    headers,
    retryable: status === 408 || status === 429 || status >= 500,
    retryAfterMs: readLimitHeaders(headers, nowMs).retryAfterMs,
  });
}

/** The bytes as they come, up to a limit. A connection that breaks is an agent that has died. */
export async function* limitedBytes(
  { body }: AnswerBody,
  maxBytes = maxBodyBytes,
): AsyncGenerator<Uint8Array> {
  let total = 0;
  try {
    for await (const bytes of body) {
      total += bytes.length;
      if (total > maxBytes) {
        throw new AgentFailure("answer_too_large", `the answer is longer than ${maxBytes} bytes`);
      }
      yield bytes;
    }
  } catch (error) {
    throw error instanceof AgentFailure ? error : agentDied(error);
  }
}

export function headerOf({ headers }: AnswerBody, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}

/** Whether it is written as was asked, not compressed: a few bytes could stand for more than there is room. */
export function isUncompressed(answer: AnswerBody): boolean {
  return (headerOf(answer, "content-encoding") ?? "identity") === "identity";
}

export function notAnAnswer(answer: AnswerBody): AgentFailure {
  const type = headerOf(answer, "content-type") ?? "nothing";
  const encoding = isUncompressed(answer)
    ? ""
    : `, compressed by ${headerOf(answer, "content-encoding")}`;
  return new AgentFailure(
    "agent_invalid",
    `an answer is text/event-stream or application/x-ndjson, not ${messageOf(type, 100)}${encoding}`,
  );
}

function chunkOf(item: Exclude<BodyItem, { type: "done" }>): unknown {
  if (item.type === "chunk") return item.chunk;
  const code = item.error.code === "payload_too_large" ? "answer_too_large" : "agent_invalid";
  throw new AgentFailure(code, item.error.message);
}

function agentDied(cause?: unknown): AgentFailure {
  return new AgentFailure("agent_died", "the agent went away before its answer ended", {
    retryable: true,
    cause,
  });
}
