import { bodyWasRead, type RequestBody } from "./verify.ts";
import type { AgentHandler } from "./handler.ts";
import { createRefusal, refuse } from "./refusal.ts";

/** What is needed of a request as `node:http` and Express have it. */
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

/** What is needed of a response. */
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
      if (!response.writableFinished) gone.abort(new Error("the caller has gone away"));
    });
    try {
      const answer = await callHandler(handler, request, gone.signal);
      await send(answer, request, response, gone.signal);
    } catch (error) {
      // The answer's own trouble is in the stream; this is the connection's.
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

/** The body as it came, also where something else has read it and kept the bytes. */
function bodyOf(request: NodeRequest): Exclude<RequestBody, null> | undefined {
  const { rawBody, body } = request as { rawBody?: unknown; body?: unknown };
  for (const kept of [rawBody, body]) {
    if (kept instanceof Uint8Array || typeof kept === "string") return kept;
  }
  if (request.readableDidRead === true) return undefined;
  return streamOf(request);
}

/**
 * What comes in, as it is asked for. Nothing listens before that, because Node clears away only what
 * nobody began to read, and until it has the connection takes no other request. Whoever stops reading
 * leaves the rest where it is: to close it would close the connection before the refusal is sent.
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
          // It may have gone while something else took its time, and says so only once.
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
    // What is left of a body that is too large would come in before the next request.
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
    // HTTP/2 has some that are no headers.
    if (value === undefined || name.startsWith(":")) continue;
    for (const each of Array.isArray(value) ? value : [value]) headers.append(name, each);
  }
  return headers;
}

function urlOf(request: NodeRequest): string {
  // Express takes from `url` the path that a router is mounted at.
  const path = (request as { originalUrl?: string }).originalUrl ?? request.url ?? "/";
  const whole = `http://${String(request.headers["host"] ?? "localhost")}${path}`;
  return URL.canParse(whole) ? whole : "http://localhost/";
}
