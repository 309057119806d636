import { bodyWasRead, type RequestBody } from "./verify.ts";
import type { AgentHandler } from "./handler.ts";
import { createRefusal, refuse } from "./refusal.ts";

/** The part of a `node:http` or Express request that is used here. */
export type NodeRequest = {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly httpVersionMajor?: number;
  readonly readableDidRead?: boolean;
  readonly destroyed?: boolean;
  on(event: string, listener: (...values: unknown[]) => void): unknown;
  pause(): unknown;
  resume(): unknown;
};

/** The part of a response that is used here. */
export type NodeResponse = {
  readonly writableFinished: boolean;
  writeHead(status: number, headers: Record<string, string>): unknown;
  flushHeaders(): void;
  write(bytes: Uint8Array): boolean;
  end(): unknown;
  destroy(error?: Error): unknown;
  once(event: string, listener: () => void): unknown;
  off(event: string, listener: () => void): unknown;
};

/** The same agent for `node:http` and Express. Never rejects. */
export function toNode(
  handler: AgentHandler,
): (request: NodeRequest, response: NodeResponse) => Promise<void> {
  return async (request, response) => {
    const gone = new AbortController();
    response.once("close", () => {
      if (!response.writableFinished) gone.abort(new Error("the caller disconnected"));
    });
    try {
      const answer = await callHandler(handler, request, gone.signal);
      await send(answer, request, response, gone.signal);
    } catch (error) {
      // Errors of the answer are in the stream; this one is the connection's.
      gone.abort(error);
      response.destroy();
    }
  };
}

async function callHandler(
  handler: AgentHandler,
  request: NodeRequest,
  signal: AbortSignal,
): Promise<Response> {
  const body = bodyOf(request);
  if (body === undefined) {
    console.error("flotilla/agent:", bodyWasRead);
    return refuse(createRefusal(500, "invalid_option", bodyWasRead));
  }
  const { method = "GET", headers } = request;
  const init = { method, headers: headersOf(headers), signal };
  if (method !== "POST") return handler(new Request(urlOf(request), { ...init, method: "GET" }));
  return handler(new Request(urlOf(request), { ...init, body, duplex: "half" } as RequestInit));
}

/** The body as received, even if a parser has read it and kept the bytes. */
function bodyOf(request: NodeRequest): Exclude<RequestBody, null> | undefined {
  const { rawBody, body } = request as { rawBody?: unknown; body?: unknown };
  for (const kept of [rawBody, body]) {
    if (kept instanceof Uint8Array || typeof kept === "string") return kept;
  }
  if (request.readableDidRead === true) return undefined;
  return streamOf(request);
}

/**
 * The request's body, read on demand. Nothing listens before that, because Node discards only bodies that
 * were not read, and the connection takes no other request until it has. A reader that stops leaves the
 * rest unread: closing it would close the connection before the refusal is sent.
 */
function streamOf(request: NodeRequest): ReadableStream<Uint8Array<ArrayBuffer>> {
  let begun = false;
  let ended = false;
  return new ReadableStream(
    {
      pull(controller) {
        if (!begun) {
          begun = true;
          const end = (how: () => void) => () => {
            if (!ended) how();
            ended = true;
          };
          const cut = end(() => controller.error(new Error("the request was cut off")));
          request.on("data", (bytes) => {
            request.pause();
            if (!ended) controller.enqueue(bytes as Uint8Array<ArrayBuffer>);
          });
          request.on(
            "end",
            end(() => controller.close()),
          );
          request.on("error", cut);
          request.on("close", cut);
          // The request may have closed earlier, and emits that only once.
          if (request.destroyed === true) cut();
        }
        request.resume();
      },
    },
    { highWaterMark: 0 },
  );
}

async function send(
  { status, headers, body }: Response,
  request: NodeRequest,
  response: NodeResponse,
  signal: AbortSignal,
): Promise<void> {
  response.writeHead(status, {
    ...Object.fromEntries(headers),
    // The rest of a too large body would arrive before the next request.
    ...(status === 413 && request.httpVersionMajor === 1 && { connection: "close" }),
  });
  response.flushHeaders();
  const reader = body?.getReader();
  const leave = () => void reader?.cancel(signal.reason).catch(() => {});
  if (signal.aborted) leave();
  else signal.addEventListener("abort", leave, { once: true });
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true };
    if (done || !value) break;
    if (!response.write(value)) await drained(response, signal);
  }
  if (!signal.aborted) response.end();
}

function drained(response: NodeResponse, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const go = () => {
      response.off("drain", go);
      signal.removeEventListener("abort", go);
      resolve();
    };
    if (signal.aborted) return resolve();
    response.once("drain", go);
    signal.addEventListener("abort", go, { once: true });
  });
}

function headersOf(nodeHeaders: NodeRequest["headers"]): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(nodeHeaders)) {
    // HTTP/2 has pseudo-headers, which `Headers` refuses.
    if (value === undefined || name.startsWith(":")) continue;
    for (const each of Array.isArray(value) ? value : [value]) headers.append(name, each);
  }
  return headers;
}

function urlOf(request: NodeRequest): string {
  // Express strips the mount path of a router from `url`.
  const path = (request as { originalUrl?: string }).originalUrl ?? request.url ?? "/";
  const whole = `http://${String(request.headers["host"] ?? "localhost")}${path}`;
  return URL.canParse(whole) ? whole : "http://localhost/";
}
