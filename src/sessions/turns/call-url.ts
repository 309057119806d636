import { createHash, createHmac } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { createAgUiReader } from "../../protocol/ag-ui/to-chunks.ts";
import { runInputOf } from "../../protocol/ag-ui/to-input.ts";
import { type AgentRequest, secretKey } from "../../protocol/agent-http.ts";
import { type BodyItem, createBodyReader, formatOf } from "../../protocol/stream.ts";
import { readLimitHeaders } from "../../throttles/rate-headers.ts";
import { AgentFailure } from "./failure.ts";
import type { UrlSource } from "../agents/spec.ts";
import type { AgentNetwork, PostResponse } from "./network.ts";

/** An answer as a stream. */
export type AnswerStream = {
  /** Chunks, not validated yet. */
  readonly chunks: AsyncIterator<unknown, unknown>;
  /** True if the end of the stream is a good end; false if it needs a final chunk. */
  readonly endsByItself: boolean;
  /** The error behind an `error` chunk, if known. */
  readonly cause?: () => unknown;
};

// A message is far smaller, but chunks on the way to it may replace each other many times.
const maxBodyBytes = 64 * 1024 * 1024;
const lineFeed = 0x0a;

type UrlCall = {
  readonly source: UrlSource;
  readonly request: AgentRequest;
  readonly network: AgentNetwork;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Data has arrived. */
  readonly touch: () => void;
  /** Default: reads chunks. */
  readonly read?: (answer: AnswerBody, touch: () => void) => AsyncGenerator<unknown>;
};

export type AnswerBody = Omit<PostResponse, "body"> & {
  readonly body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
  /** Milliseconds since 1970, to read `retry-after` headers. */
  readonly nowMs: number;
};

/** Calls an agent at a URL. Rejects with an `AgentFailure` if its answer cannot be read. */
export async function callUrl(call: UrlCall): Promise<AnswerStream> {
  const { source, request, network, clock, signal, touch } = call;
  const isAgUi = source.protocol === "ag-ui";
  const { read = isAgUi ? readEventBody : readAnswerBody } = call;
  const body = JSON.stringify(isAgUi ? runInputOf(request) : request);
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

type SignatureInput = {
  readonly webhookId: string;
  readonly nowMs: number;
  readonly body: string;
  readonly secrets: readonly string[];
};

/** The headers by which an agent verifies that a request is from Flotilla, after Standard Webhooks. */
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
 * The same for every try of every runner at the same work, and unique to it. It is hashed if the session
 * id has characters that a header cannot carry.
 */
export function webhookIdOf(sessionId: string, epoch: number): string {
  const plain = `${sessionId}:${epoch}`;
  if (/^[A-Za-z0-9_:-]{1,128}$/.test(plain)) return plain;
  return createHash("sha256").update(plain).digest("hex");
}

/** The chunks in a response body. Throws an `AgentFailure` if the body is not an answer, or breaks off. */
export async function* readAnswerBody(
  answer: AnswerBody,
  touch: () => void,
): AsyncGenerator<unknown> {
  checkStatus(answer);
  const format = formatOf(headerOf(answer, "content-type"));
  if (!format || !isUncompressed(answer)) throw notAnAnswer(answer);
  const reader = createBodyReader({ format });
  for await (const bytes of limitedBytes(answer)) {
    // Only a complete line counts as data. An endless line could otherwise drip in for ever.
    if (bytes.includes(lineFeed)) touch();
    for (const item of reader.push(bytes)) {
      if (item.type === "done") return;
      yield chunkOf(item);
    }
  }
  for (const item of reader.end()) {
    if (item.type === "done") return;
    // An unreadable last item means that the body was cut off.
    if (item.type === "error" && !item.fatal) throw agentDied();
    yield chunkOf(item);
  }
}

/** The chunks that the events of an agent mean that speaks AG-UI. */
async function* readEventBody(answer: AnswerBody, touch: () => void): AsyncGenerator<unknown> {
  const reader = createAgUiReader();
  for await (const event of readAnswerBody(answer, touch)) {
    const chunks = reader.push(event);
    if ("error" in chunks) throw new AgentFailure("agent_invalid", chunks.error);
    yield* chunks;
  }
}

/** Throws for every status other than success, and says whether another try may help. */
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

/** The bytes as they arrive, up to a limit. A broken connection counts as an agent that died. */
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

/** True unless the body is compressed: a few compressed bytes could expand beyond memory. */
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

function unreachable(error: unknown): AgentFailure {
  if (error instanceof AgentFailure) return error;
  const found = (error as { cause?: unknown } | undefined)?.cause;
  if (found instanceof AgentFailure) return found;
  // The cause names addresses, which belong in the log only.
  return new AgentFailure("agent_unreachable", "cannot reach the agent", {
    retryable: true,
    cause: error,
  });
}

function agentDied(cause?: unknown): AgentFailure {
  return new AgentFailure("agent_died", "the agent disconnected before its answer ended", {
    retryable: true,
    cause,
  });
}
