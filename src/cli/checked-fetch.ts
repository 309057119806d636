import process from "node:process";
import { type ErrorCode, errorCodes, messageOf } from "../base/errors.ts";
import { isJsonObject } from "../base/json.ts";
import { network } from "../throttles/fetch.ts";

/** The error of an answer, as Flotilla's servers send it. */
type WireError = { code: ErrorCode; message: string; details?: unknown };

// Pages are at most 1 MiB, but a task and its history have no page.
const maxAnswerBytes = 64 * 1024 * 1024;

/**
 * Sends a request to the server at `--url`, and checks the answer before the client believes it: another
 * program may listen there. An answer that isn't Flotilla's is replaced by an error in Flotilla's form.
 */
export async function checkedFetch(url: string, init: RequestInit = {}): Promise<Response> {
  const response = await send(url, init);
  const { status } = response;
  const method = init.method ?? "GET";
  const { origin } = new URL(url);
  const refused = (code: ErrorCode, message: string): Response =>
    answerOf({ code, message, details: { status } }, response);
  const text = await readText(response);
  if (text === undefined) {
    const message = `${origin} isn't a Flotilla server: it answered more than ${maxAnswerBytes / 1024 / 1024} MiB`;
    return refused(unansweredCode(method), message);
  }
  const answer = parse(text);
  if (!response.ok) {
    const error = isJsonObject(answer) && answer["error"];
    if (isJsonObject(error) && typeof error["code"] === "string") {
      const message = String(error["message"]);
      return answerOf({ ...error, code: knownCode(error["code"]), message }, response);
    }
    const message = `the server answered ${status}, and not as Flotilla does`;
    if (status >= 500) return refused(unansweredCode(method), message);
    return refused(status === 429 ? "unavailable" : "unsupported", message);
  }
  if (answer === undefined) {
    const message = "the server's answer was cut off, or isn't one of Flotilla's";
    return refused(unansweredCode(method), message);
  }
  if (!isJsonObject(answer)) {
    const message = `${origin} isn't a Flotilla server: it answered ${text.slice(0, 100)}`;
    return refused(unansweredCode(method), message);
  }
  return new Response(text, { status });
}

/**
 * `fetch` has the real error in its cause. Requests carry the trace context of the calling program, as
 * tasks stored without a server do.
 */
async function send(url: string, init: RequestInit): Promise<Response> {
  const { TRACEPARENT: traceparent, TRACESTATE: tracestate } = process.env;
  const headers = new Headers(init.headers);
  if (traceparent) headers.set("traceparent", traceparent);
  if (tracestate) headers.set("tracestate", tracestate);
  try {
    return await network(url, { ...init, headers, redirect: "error" });
  } catch (error) {
    const reason = error instanceof Error && error.cause ? error.cause : error;
    throw new Error(messageOf(reason, 200), { cause: error });
  }
}

/** The body; undefined where it is too large. */
async function readText({ body }: Response): Promise<string | undefined> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  // Leaving the loop cancels the rest.
  for await (const chunk of body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > maxAnswerBytes) return undefined;
    chunks.push(chunk);
  }
  return new TextDecoder().decode(Buffer.concat(chunks));
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function answerOf(error: WireError, { ok, status, headers }: Response): Response {
  const retryAfter = headers.get("retry-after");
  return new Response(JSON.stringify({ error }), {
    status: ok ? 502 : status,
    headers: retryAfter === null ? {} : { "retry-after": retryAfter },
  });
}

/** Where the server's own answer is missing, what isn't a read may have been done. */
function unansweredCode(method: string): ErrorCode {
  return method === "GET" ? "unavailable" : "unknown_outcome";
}

function knownCode(code: string): ErrorCode {
  return errorCodes.find((each) => each === code) ?? "unavailable";
}
